// Work split of hybrid_moe_combine, shared by host, kernel and simulator: plain data, no CANN.
//
// A unit is one part of the columns of one token. With fewer tokens than cores rows are cut into parts.
#ifndef HYBRID_OPS_HYBRID_MOE_COMBINE_TILING_H_
#define HYBRID_OPS_HYBRID_MOE_COMBINE_TILING_H_

#include <cstdint>

struct HybridMoeCombineTilingData {
    uint64_t tokens, rows;  // rows: of expanded_y
    uint64_t width;         // columns
    uint32_t perToken;
    uint32_t parts, partWidth;  // parts of a token's columns; the last one takes what is left
    uint32_t partRoom;          // columns of the widest part, whole blocks
    uint32_t rowsAtOnce;        // expanded rows loaded together
    uint32_t mapTokens;         // tokens whose row numbers and weights are loaded together
};

struct HybridMoeCombinePlan {
    HybridMoeCombineTilingData data;
    uint32_t blockDim;
};

struct HybridMoeCombineShape {
    int64_t rows, perRow, width;
    uint32_t elementBytes, scaleBytes;
};

struct HybridMoeCombinePlatform {
    uint32_t cores;
    uint32_t ubBytes;
    bool paddedMoves;
};

namespace hybrid_ops {
namespace combine {

constexpr uint32_t kBlockBytes = 32;
constexpr uint32_t kLeastPart = 256;   // columns: a move of less is mostly start-up
constexpr uint32_t kMostPart = 4096;   // columns
constexpr uint32_t kMapEntries = 512;  // row numbers and weights in local memory, or those of one token

inline uint64_t RoundUpTo(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace combine
}  // namespace hybrid_ops

inline HybridMoeCombinePlan PlanHybridMoeCombine(const HybridMoeCombineShape& s,
                                                 const HybridMoeCombinePlatform& chip) {
    using namespace hybrid_ops::combine;
    HybridMoeCombinePlan plan{};
    HybridMoeCombineTilingData& t = plan.data;
    t.tokens = uint64_t(s.rows);
    t.perToken = uint32_t(s.perRow);
    t.rows = t.tokens * t.perToken;
    t.width = uint64_t(s.width);
    const uint32_t block = kBlockBytes / s.elementBytes;
    // Parts that keep every core busy, none of them small.
    uint64_t parts = t.tokens == 0 || t.tokens >= chip.cores ? 1 : chip.cores / t.tokens;
    const uint64_t most = t.width / kLeastPart == 0 ? 1 : t.width / kLeastPart;
    parts = parts < most ? parts : most;
    uint64_t part = RoundUpTo((t.width + parts - 1) / parts, kLeastPart);
    part = part < kMostPart ? part : kMostPart;
    parts = (t.width + part - 1) / part;
    // What is left must fill a block where moves are whole blocks.
    if (parts > 1 && t.width - (parts - 1) * part < block) --parts;
    t.parts = uint32_t(parts);
    t.partWidth = uint32_t(part);
    const uint64_t last = t.width - (parts - 1) * part;
    t.partRoom = uint32_t(RoundUpTo(last > part || parts == 1 ? last : part, 64) + 64);
    t.mapTokens = t.perToken >= kMapEntries ? 1 : kMapEntries / t.perToken;
    // Two buffers of rows, their fp32 copy, the sum twice over, the result twice.
    const uint64_t perRow = uint64_t(t.partRoom) * (2 * s.elementBytes + 4);
    const uint64_t maps = (uint64_t(t.mapTokens) * t.perToken + 64) * 12;
    const uint64_t room = chip.ubBytes - maps - uint64_t(t.partRoom) * (4 + 2 * s.elementBytes) - 1024;
    const uint64_t fit = room / perRow;
    t.rowsAtOnce = uint32_t(fit < 1 ? 1 : fit < t.perToken ? fit : t.perToken);
    const uint64_t units = t.tokens * t.parts;
    plan.blockDim = units == 0 ? 1 : units < chip.cores ? uint32_t(units) : chip.cores;
    // Columns that fill no block are written one by one, which two cores cannot do side by side.
    if (!chip.paddedMoves && t.width < block) plan.blockDim = 1;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_COMBINE_TILING_H_
