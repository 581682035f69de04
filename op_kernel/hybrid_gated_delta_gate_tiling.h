// Work split of hybrid_gated_delta_gate, shared by host, kernel and simulator: plain data, no CANN.
//
// [T, NV] is one line of T * NV elements. Its smallest piece that a core may own, a unit, is whole rows and,
// where moves are whole 32-byte blocks, whole blocks: what a core computes on then always starts with head 0,
// aligned. Units are cut into one even range per core; the elements that fill no unit belong to the last
// core.
#ifndef HYBRID_OPS_HYBRID_GATED_DELTA_GATE_TILING_H_
#define HYBRID_OPS_HYBRID_GATED_DELTA_GATE_TILING_H_

#include <cstdint>

struct HybridGatedDeltaGateTilingData {
    uint64_t elements;      // T * NV
    uint32_t heads;         // NV
    uint32_t unit;          // elements of a unit
    uint32_t tile;          // elements worked on at once: whole units, or all there are
    uint32_t tileElements;  // room of a tile in local memory: its last one may have up to 15 more
};

struct HybridGatedDeltaGatePlan {
    HybridGatedDeltaGateTilingData data;
    uint32_t blockDim;
};

namespace hybrid_ops {
namespace gate {

constexpr uint32_t kBlock = 16;  // elements of 32 bytes in 16 bits
constexpr uint32_t kLanes = 64;  // fp32 lanes of a repeat
// Elements of a tile unless a unit is larger, which at most 255 heads make it on ascend310p only. An element
// takes 48 bytes of local memory: a, b, beta twice in 16 bits, g twice, seven fp32 vectors.
constexpr uint32_t kMaxTile = 3584;

inline uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace gate
}  // namespace hybrid_ops

inline HybridGatedDeltaGatePlan PlanHybridGatedDeltaGate(int64_t tokens, int64_t heads, uint32_t cores,
                                                         bool paddedMoves) {
    using namespace hybrid_ops::gate;
    HybridGatedDeltaGatePlan plan{};
    HybridGatedDeltaGateTilingData& t = plan.data;
    t.elements = uint64_t(tokens) * uint64_t(heads);
    t.heads = uint32_t(heads);
    t.unit = t.heads;
    while (!paddedMoves && t.unit % kBlock != 0) t.unit += t.heads;
    const uint64_t units = t.elements / t.unit;
    plan.blockDim = units == 0 ? 1 : units < cores ? uint32_t(units) : cores;
    const uint64_t share = RoundUp(units, plan.blockDim) / plan.blockDim * t.unit;
    const uint64_t most = t.unit < kMaxTile ? kMaxTile / t.unit * t.unit : t.unit;
    t.tile = uint32_t(share < most ? share : most);
    if (t.tile == 0) t.tile = uint32_t(t.elements);
    t.tileElements = uint32_t(RoundUp(t.tile + kBlock, kLanes));
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_GATED_DELTA_GATE_TILING_H_
