// Work split of hybrid_moe_init_routing, shared by host, kernel and simulator: plain data, no CANN.
//
// Slots are cut into chunks of whole tokens. A core counts the experts of its chunks; from the counts of all
// chunks follows the expanded row of every slot. One chunk is counted by every core for itself; several are
// counted once each, and the cores meet in between.
#ifndef HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_
#define HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_

#include <cstdint>

struct HybridMoeInitRoutingTilingData {
    uint64_t tokens, slots;
    uint64_t width;  // columns
    uint32_t perToken;
    uint32_t experts;
    uint32_t expertPitch;               // experts and one for inactive slots, whole blocks
    uint32_t chunks;                    // the last one takes what is left
    uint32_t chunkTokens;               // tokens of a chunk
    uint32_t chunkRoom;                 // slots of the largest chunk, whole repeats
    uint32_t tokenRanges;               // that tokens are copied in: one per core and part
    uint32_t parts, partWidth;          // parts of the columns; the last one takes what is left
    uint32_t tileWidth;                 // columns copied at once
    uint32_t windowRows;                // expanded rows whose maps are made at once
    uint64_t countsAt, idsAt, ranksAt;  // bytes in the workspace
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
    bool paddedMoves;
};

namespace hybrid_ops {
namespace routing {

constexpr uint32_t kBlock = 8;  // int32 of 32 bytes
constexpr uint32_t kLanes = 64;
constexpr uint32_t kAlone = 256;       // slots that every core counts for itself, rather than wait for others
constexpr uint32_t kMostChunk = 4096;  // slots
constexpr uint32_t kLeastPart = 256;   // columns: a move of less is mostly start-up
constexpr uint32_t kTileBytes = 16384;  // of a row copied at once
constexpr uint32_t kMostWindow = 8192;

inline uint64_t RoundUpTo(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
inline uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

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
    const uint64_t cores = !chip.paddedMoves && t.width < block ? 1 : chip.cores;
    if (t.slots <= kAlone) {
        t.chunks = 1;
        t.chunkTokens = uint32_t(t.tokens);
    } else {
        // Whole blocks of slots, and no more than local memory has room for.
        uint32_t step = kBlock;
        while (step > 1 && t.perToken % 2 == 0 && uint64_t(step / 2) * t.perToken % kBlock == 0) step /= 2;
        const uint64_t fit = kMostChunk / t.perToken / step * step;
        const uint64_t share = RoundUpTo((t.tokens + cores - 1) / cores, step);
        t.chunkTokens = uint32_t(Least(share, fit == 0 ? step : fit));
        t.chunks = uint32_t((t.tokens + t.chunkTokens - 1) / t.chunkTokens);
        const uint64_t left = t.slots - uint64_t(t.chunks - 1) * t.chunkTokens * t.perToken;
        if (t.chunks > 1 && left < kBlock) --t.chunks;
    }
    const uint64_t most = t.slots - uint64_t(t.chunks - 1) * t.chunkTokens * t.perToken;
    const uint64_t whole = uint64_t(t.chunkTokens) * t.perToken;
    t.chunkRoom = uint32_t(RoundUpTo((most > whole ? most : whole) + kBlock, kLanes));
    t.tokenRanges = uint32_t(Least(t.chunks == 1 ? t.tokens : t.chunks, cores));
    if (t.tokenRanges == 0) t.tokenRanges = 1;
    const uint64_t widest = t.width / kLeastPart == 0 ? 1 : t.width / kLeastPart;
    const uint64_t parts = Least(cores / t.tokenRanges, widest);
    t.partWidth = uint32_t(RoundUpTo((t.width + parts - 1) / parts, parts == 1 ? block : kLeastPart));
    t.parts = uint32_t((t.width + t.partWidth - 1) / t.partWidth);
    if (t.parts > 1 && t.width - uint64_t(t.parts - 1) * t.partWidth < block) --t.parts;
    t.tileWidth = uint32_t(Least(kTileBytes / s.elementBytes, RoundUpTo(t.partWidth, block)));
    plan.blockDim = t.tokenRanges * t.parts;
    const uint64_t rowsOfCore = RoundUpTo((t.slots + plan.blockDim - 1) / plan.blockDim, kBlock) + kBlock;
    t.windowRows =
        uint32_t(t.chunks == 1 ? RoundUpTo(t.slots + kBlock, kBlock) : Least(rowsOfCore, kMostWindow));
    const uint64_t counts = RoundUpTo(uint64_t(plan.blockDim) * 32, 512);
    t.countsAt = counts;
    t.idsAt = RoundUpTo(t.countsAt + uint64_t(t.chunks) * t.expertPitch * 4, 512);
    t.ranksAt = RoundUpTo(t.idsAt + t.slots * 4, 512);
    plan.workspaceBytes = t.chunks == 1 ? 0 : t.ranksAt + t.slots * 4;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_TILING_H_
