// Work split of hybrid_gated_rms_norm, shared by host, kernel and simulator: plain data, no CANN.
//
// Rows are cut into one even range per core; a core walks its range in tiles of at most `tileRows` rows.
#ifndef HYBRID_OPS_HYBRID_GATED_RMS_NORM_TILING_H_
#define HYBRID_OPS_HYBRID_GATED_RMS_NORM_TILING_H_

#include <cstdint>

struct HybridGatedRmsNormTilingData {
    uint32_t rows;      // N
    uint32_t dim;       // D
    uint32_t tileRows;  // most rows of a tile
    float eps;
};

struct HybridGatedRmsNormPlan {
    HybridGatedRmsNormTilingData data;
    uint32_t blockDim;
};

namespace hybrid_ops {
namespace gated_norm {

constexpr uint32_t kReservedBytes = 8192 + 1024;  // the framework's own, and rounding of buffers
constexpr uint32_t kLanes = 64;                   // fp32 lanes of a repeat
constexpr uint32_t kBankPeriod = 128;             // fp32 elements after which local memory's banks repeat
constexpr uint32_t kMaxTileElements = 8192;       // larger tiles only delay the first store
constexpr uint32_t kMinTileElements = 3072;       // smaller tiles have more latency than work
constexpr uint32_t kOverlapTiles = 4;             // tiles that overlap moves with maths
constexpr uint32_t kMaxTileRows = 240;            // repeat counts are 8 bits wide

inline uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// 64-lane pieces of a row whose sums are reduced by a fixed tree: 1, 2, 4 or 8.
inline uint32_t PieceSlots(uint32_t dim) {
    uint32_t slots = 1;
    while (slots * kLanes < dim) slots *= 2;
    return slots;
}

// Bytes of local memory: x, z and out twice in 16 bits, three fp32 matrices, sums, weight.
inline uint64_t LocalBytes(uint32_t tileRows, uint32_t dim) {
    const uint64_t elements = uint64_t(tileRows) * dim, sums = RoundUp(tileRows, 8) * PieceSlots(dim);
    const uint64_t statistics = (sums * 8 + sums + sums / 2 + RoundUp(tileRows, 8) + 4 * kLanes) * 4;
    return elements * (6 * 2 + 3 * 4) + statistics + uint64_t(RoundUp(tileRows, 8)) * 2 * 32 + dim * 8 + 512 +
           4 * kBankPeriod * 4;
}

}  // namespace gated_norm
}  // namespace hybrid_ops

inline HybridGatedRmsNormPlan PlanHybridGatedRmsNorm(int64_t rows, int64_t dim, float eps, uint32_t cores,
                                                     uint32_t localBytes) {
    using namespace hybrid_ops::gated_norm;
    HybridGatedRmsNormPlan plan{};
    HybridGatedRmsNormTilingData& t = plan.data;
    t.rows = uint32_t(rows);
    t.dim = uint32_t(dim);
    t.eps = eps;
    plan.blockDim = t.rows < cores ? t.rows : cores;
    if (plan.blockDim == 0) plan.blockDim = 1;
    const uint32_t share = (t.rows + plan.blockDim - 1) / plan.blockDim;
    uint32_t most = kMaxTileElements / t.dim < kMaxTileRows ? kMaxTileElements / t.dim : kMaxTileRows;
    while (most > 1 && LocalBytes(most, t.dim) + kReservedBytes > localBytes) --most;
    // Tiles of one size, so that no short one at the end has its latencies to itself.
    uint32_t tiles = (share + most - 1) / most;
    while (tiles < kOverlapTiles && share / (tiles + 1) * t.dim >= kMinTileElements) ++tiles;
    t.tileRows = tiles == 0 ? 1 : (share + tiles - 1) / tiles;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_GATED_RMS_NORM_TILING_H_
