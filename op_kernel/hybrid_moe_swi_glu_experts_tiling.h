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
// On ascend310p a result is [tokens, rows] of each of two row blocks: all tokens of an expert, up to
// kMostCubeTokens, share one pass over its weights, with fewer rows where they are many.
constexpr uint32_t kMostCubeTokens = 512;
constexpr uint32_t kMostSlotRows = kMostCubeTokens + 2 * 64;  // tokens and rows of a step in L1
constexpr uint32_t kMostCubeCores = 16;

struct CubeShape {
    uint32_t tokens, rows;

    constexpr explicit CubeShape(uint32_t n) : tokens(0), rows(0) {
        const uint32_t passes = (n + kMostCubeTokens - 1) / kMostCubeTokens;
        tokens = ((n + passes - 1) / passes + 15) / 16 * 16;
        rows = kCubeTokens * kCubeRows / tokens / 16 * 16;
        if (rows > kCubeRows) rows = kCubeRows;
    }
};

// Rows per expert from which the cube path is the faster one.
constexpr uint32_t kCubeFromRows910b = 3, kCubeFromRows310p = 2;

// Cycles that n > 0 rows of one expert take per weight tile. Further passes over it find it in L2.
inline uint64_t ExpertCost(uint32_t n, const HybridMoeSwiGluExpertsTilingData& t) {
    const uint64_t passes = (n + t.tileTokens - 1) / t.tileTokens;
    const uint64_t cost = passes * t.tileCost + uint64_t(n) * t.tokenCost;
    return cost > t.loadCost ? cost : t.loadCost;
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
    const uint32_t fromRows = chip.is910b ? kCubeFromRows910b : kCubeFromRows310p;
    const bool worth =
        shape.strategy == kCube || (shape.strategy == kAuto && shape.rows >= busy * int64_t(fromRows));
    const bool cube = chip.cubeCores != 0 && shape.bytes == 2 && worth && shape.rows != 0;
    plan.tilingKey = cube ? 1 : 0;
    if (cube) {
        t.tileTokens = chip.is910b ? kCubeTokens : kMostCubeTokens;
        // A core's share of memory is 41 bytes a cycle on 910B, 17 on 310P. Tokens: 910B multiplies 16 x 16 x
        // 16 a cycle, 310P waits for their moves from L2.
        t.loadCost = chip.is910b ? 1600 : 7700;
        t.tileCost = chip.is910b ? 500 : 7700;
        t.tokenCost = chip.is910b ? 8 : 10;
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
    if (cube && !chip.is910b && plan.blockDim > kMostCubeCores) plan.blockDim = kMostCubeCores;
    if (plan.blockDim == 0) plan.blockDim = 1;
    t.syncBytes = (plan.blockDim * 32 + 511) / 512 * 512;
    // act; on the cube path the two projections stand there first.
    plan.workspace =
        t.syncBytes + uint64_t(cube ? 2 : 1) * uint64_t(shape.rows) * uint64_t(shape.inner) * shape.bytes;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_TILING_H_
