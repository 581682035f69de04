// Work split of hybrid_moe_init_routing, shared by host, kernel and simulator: plain data, no CANN.
//
// Slots are cut into chunks of whole tokens. Where cores can meet, each counts the experts of its own chunks
// and learns the counts of the others; where they cannot, or there is little to count, each counts all of
// them. A core then copies the rows of its token range, or a part of their columns.
#ifndef HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_
#define HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_

#include <cstdint>

struct HybridMoeInitRoutingTilingData {
    uint64_t tokens, slots;
    uint64_t width;  // columns
    uint32_t perToken;
    uint32_t experts;
    uint32_t expertPitch;  // counts of a core
    uint32_t shared;       // counts are shared
    uint32_t chunks;       // the last one takes what is left
    uint32_t chunkTokens;
    uint32_t chunkRoom;         // slots of the largest chunk, whole repeats
    uint32_t ranges;            // token ranges
    uint32_t parts, partWidth;  // parts of the columns; the last one takes what is left
    uint32_t tileWidth;         // columns copied at once
    uint32_t windowRows;        // expanded rows whose maps are made at once
    uint32_t countRows;         // cores whose counts are loaded at once
};

struct HybridMoeInitRoutingPlan {
    HybridMoeInitRoutingTilingData data;
    uint32_t blockDim;
    uint64_t workspaceBytes;
};

struct HybridMoeInitRoutingShape {
    int64_t rows, width, perRow, experts;
    uint32_t elementBytes;
};

struct HybridMoeInitRoutingPlatform {
    uint32_t cores;
    uint32_t ubBytes;
    bool split;  // ascend910b: padded moves, and cores that can meet
};

namespace hybrid_ops {
namespace routing {

constexpr uint32_t kBlock = 8;  // int32 of 32 bytes
constexpr uint32_t kLanes = 64;
constexpr uint32_t kAlone = 64;        // slots that every core counts for itself, rather than wait for others
constexpr uint32_t kMostChunk = 2048;  // slots
constexpr uint32_t kLeastPart = 256;   // columns: a move of less is mostly start-up
constexpr uint32_t kTileBytes = 16384;  // of a row copied at once
constexpr uint32_t kMostWindow = 4096;  // rows
constexpr uint32_t kCountBytes = 32768;

inline uint64_t RoundUpTo(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
inline uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Fewest tokens whose slots fill whole blocks.
inline uint32_t TokenStep(uint32_t perToken) {
    uint32_t step = kBlock;
    while (step > 1 && uint64_t(step / 2) * perToken % kBlock == 0) step /= 2;
    return step;
}

}  // namespace routing
}  // namespace hybrid_ops

inline HybridMoeInitRoutingPlan PlanHybridMoeInitRouting(const HybridMoeInitRoutingShape& s,
                                                         const HybridMoeInitRoutingPlatform& chip) {
    using namespace hybrid_ops::routing;
    HybridMoeInitRoutingPlan plan{};
    HybridMoeInitRoutingTilingData& t = plan.data;
    t.tokens = uint64_t(s.rows);
    t.perToken = uint32_t(s.perRow);
    t.slots = t.tokens * t.perToken;
    t.width = uint64_t(s.width);
    t.experts = uint32_t(s.experts);
    t.expertPitch = uint32_t(RoundUpTo(t.experts + 1, kLanes));
    const uint32_t block = 32 / s.elementBytes;
    // Rows that fill no block are written one by one, which two cores cannot do side by side.
    const uint64_t cores = !chip.split && t.width < block ? 1 : chip.cores;
    t.chunks = 1;
    t.chunkTokens = uint32_t(t.tokens);
    t.ranges = uint32_t(Least(t.tokens, cores));
    uint64_t largest = t.slots;
    if (t.slots > (chip.split ? kAlone : kMostChunk)) {
        const uint32_t step = TokenStep(t.perToken);
        const uint64_t fit = kMostChunk / t.perToken / step * step;
        const uint64_t share = RoundUpTo((t.tokens + cores - 1) / cores, step);
        t.chunkTokens = uint32_t(Least(share, fit == 0 ? step : fit));
        t.chunks = uint32_t((t.tokens + t.chunkTokens - 1) / t.chunkTokens);
        const uint64_t chunkSlots = uint64_t(t.chunkTokens) * t.perToken;
        if (t.chunks > 1 && t.slots - uint64_t(t.chunks - 1) * chunkSlots < kBlock) --t.chunks;
        const uint64_t last = t.slots - uint64_t(t.chunks - 1) * chunkSlots;
        largest = last > chunkSlots ? last : chunkSlots;
        t.ranges = uint32_t(Least(t.chunks, cores));
    }
    if (t.ranges == 0) t.ranges = 1;
    t.chunkRoom = uint32_t(RoundUpTo(largest + 2 * kBlock, kLanes));
    const uint64_t widest = t.width / kLeastPart == 0 ? 1 : t.width / kLeastPart;
    const uint64_t parts = Least(cores / t.ranges, widest);
    const uint64_t part = RoundUpTo((t.width + parts - 1) / parts, parts == 1 ? block : kLeastPart);
    t.parts = uint32_t((t.width + part - 1) / part);
    if (t.parts > 1 && t.width - (t.parts - 1) * part < block) --t.parts;
    t.partWidth = uint32_t(part);
    t.tileWidth = uint32_t(Least(kTileBytes / s.elementBytes, RoundUpTo(part, block)));
    plan.blockDim = t.ranges * t.parts;
    t.shared = chip.split && t.chunks > 1 && plan.blockDim > 1;
    const uint64_t share = RoundUpTo((t.slots + plan.blockDim - 1) / plan.blockDim, kBlock) + kBlock;
    t.windowRows = uint32_t(Least(share, kMostWindow));
    t.countRows = uint32_t(Least(t.ranges, kCountBytes / 4 / t.expertPitch));
    plan.workspaceBytes = t.shared ? uint64_t(t.ranges) * t.expertPitch * 4 : 0;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_
