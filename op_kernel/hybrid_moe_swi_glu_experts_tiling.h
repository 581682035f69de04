// Work split of hybrid_moe_swi_glu_experts, shared by host, kernel and simulator: plain data, no CANN.
//
// Two phases with a barrier of all cores between them: act = silu(gate x) * (up x) into the workspace, then
// down act. Which experts have rows is only known on the device: each core walks the offsets and takes an
// equal share of the cost of both phases.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_TILING_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_TILING_H_

#include <cstdint>

struct HybridMoeSwiGluExpertsTilingData {
    uint32_t rows;        // R
    uint32_t experts;     // E
    uint32_t hidden;      // H
    uint32_t inner;       // I
    uint32_t fused;       // up follows gate in one tensor
    uint32_t entries;     // offsets kept in local memory; 0: read from global memory
    uint32_t tileTokens;  // rows of an expert that share one pass over its weights
    uint32_t loadCost;    // cycles a weight tile takes from memory ...
    uint32_t tileCost;    // ... that the core spends on it ...
    uint32_t tokenCost;   // ... and on it per row
    uint32_t syncBytes;   // workspace in front of act that the barrier uses
};

struct HybridMoeSwiGluExpertsShape {
    int64_t rows, experts, hidden, inner;
    bool fused;
    uint32_t bytes;  // of an element
    uint32_t strategy;
};

struct HybridMoeSwiGluExpertsPlatform {
    uint32_t vectorCores;
    uint32_t cubeCores;
    bool is910b;
};

struct HybridMoeSwiGluExpertsPlan {
    HybridMoeSwiGluExpertsTilingData data;
    uint64_t tilingKey;  // 0: vector path; 1: products on the cube units
    uint32_t blockDim;
    uint64_t workspace;
};

namespace hybrid_ops {
namespace moe_experts {

constexpr uint32_t kScalar = 0, kCube = 1, kAuto = 2;  // attribute `strategy`

// Vector path: a weight tile is [kUnitRows, kTileColumns].
constexpr uint32_t kUnitRows = 32;      // weight rows that are worked on, and stored, together
constexpr uint32_t kTileColumns = 256;  // 512 bytes of 16-bit weights
constexpr uint32_t kTileTokens = 4;
constexpr uint32_t kLanes = 64;  // fp32 lanes of a repeat
constexpr uint32_t kPlanes = kTileColumns / kLanes;
constexpr uint32_t kMaxEntries = 1025;  // local memory is for weights

// Cube path: results [kCubeTokens, kCubeRows] fill L0C; operands come in steps of kCubeStep columns.
constexpr uint32_t kCubeRows = 128;
constexpr uint32_t kCubeTokens = 256;
constexpr uint32_t kCubeStep = 256;
constexpr uint32_t kCubeFromRows = 3;  // rows per expert from which weights are not the vector unit's limit

// Cycles that n > 0 rows of one expert take per weight tile.
inline uint64_t ExpertCost(uint32_t n, const HybridMoeSwiGluExpertsTilingData& t) {
    const uint32_t whole = n / t.tileTokens, rest = n % t.tileTokens;
    const uint64_t full = t.tileCost + uint64_t(t.tileTokens) * t.tokenCost;
    const uint64_t last = t.tileCost + uint64_t(rest) * t.tokenCost;
    uint64_t cost = whole * (full > t.loadCost ? full : t.loadCost);
    if (rest != 0) cost += last > t.loadCost ? last : t.loadCost;
    return cost;
}

}  // namespace moe_experts
}  // namespace hybrid_ops

inline HybridMoeSwiGluExpertsPlan PlanHybridMoeSwiGluExperts(const HybridMoeSwiGluExpertsShape& shape,
                                                             const HybridMoeSwiGluExpertsPlatform& chip) {
    using namespace hybrid_ops::moe_experts;
    HybridMoeSwiGluExpertsPlan plan{};
    HybridMoeSwiGluExpertsTilingData& t = plan.data;
    t.rows = uint32_t(shape.rows);
    t.experts = uint32_t(shape.experts);
    t.hidden = uint32_t(shape.hidden);
    t.inner = uint32_t(shape.inner);
    t.fused = shape.fused ? 1 : 0;
    t.entries = t.experts + 1 <= kMaxEntries ? t.experts + 1 : 0;
    const int64_t busy = shape.rows < shape.experts ? shape.rows : shape.experts;  // with rows, at most
    const bool worth =
        shape.strategy == kCube || (shape.strategy == kAuto && shape.rows >= busy * int64_t(kCubeFromRows));
    const bool cube = chip.cubeCores != 0 && shape.bytes == 2 && worth && shape.rows != 0;
    plan.tilingKey = cube ? 1 : 0;
    if (cube) {
        t.tileTokens = kCubeTokens;
        t.loadCost = 1600;  // 64 KB of weights at a core's share of memory, 41 bytes a cycle
        t.tokenCost = 8;    // 16 x 16 x 16 products a cycle
    } else {
        t.tileTokens = kTileTokens;
        // Bytes a core gets per cycle: at most 17 on 310P; on 910B 20.7 when all of them read, more where
        // some are busy with their tokens.
        t.loadCost = kUnitRows * kTileColumns * shape.bytes / (chip.is910b ? 27 : 17);
        t.tileCost = shape.bytes == 2 ? 190 : 10;
        t.tokenCost = 350;
    }
    // No more cores than row blocks of experts that may have rows.
    const uint32_t block = cube ? kCubeRows : kUnitRows, cores = cube ? chip.cubeCores : chip.vectorCores;
    const int64_t wider = shape.hidden > shape.inner ? shape.hidden : shape.inner;
    const int64_t units = busy * ((wider + block - 1) / block);
    plan.blockDim = units < int64_t(cores) ? uint32_t(units) : cores;
    if (plan.blockDim == 0) plan.blockDim = 1;
    t.syncBytes = (plan.blockDim * 32 + 511) / 512 * 512;
    // act; on the cube path the two projections stand there first.
    plan.workspace =
        t.syncBytes + uint64_t(cube ? 2 : 1) * uint64_t(shape.rows) * uint64_t(shape.inner) * shape.bytes;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_TILING_H_
