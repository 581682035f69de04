// Units of work and workspace of the cube path on split cores (ascend910b): plain data, no CANN.
//
// A unit is one value head, or `tile` of its DV rows of the state. An AI Core takes an item: one sequence and
// two units, one per vector core, and walks its chunks.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PLAN_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PLAN_H_

#include <cstdint>

namespace hybrid_ops {
namespace cgdr {
namespace split {

constexpr uint32_t kChunk = 64;  // tokens of a chunk
constexpr uint32_t kMatrix = kChunk * kChunk;
constexpr uint32_t kUnits = 2;      // units of an item: vector cores of an AI Core
constexpr uint32_t kOperands = 3;   // full matrices, in two parts each
constexpr uint32_t kDiagonals = 3;  // diagonal matrices, in two parts each: their four blocks side by side
constexpr uint32_t kWholeDiagonals = 2;  // of them: those that are multiplied as full matrices
constexpr uint32_t kDiagonal = 16 * kChunk;
// Mean length from which chunks pay: a chunk costs nearly the same whatever its tokens (timing model: as much
// as 12 tokens of the vector path).
constexpr uint32_t kLeastMean = 16;

constexpr bool Worth(int64_t tokens, int64_t sequences) {
    return sequences > 0 && tokens >= sequences * kLeastMean;
}

// Rows of the state that a unit has: a result of 64 KB, operands of 32 KB, two sets of them in L1.
constexpr uint32_t ValueTile(uint32_t keyPitch) { return keyPitch <= 128 ? 128 : 32; }

// Whether the cube core keeps the state, as two bfloat16 parts in L1, from the first chunk to the last: what
// is lost each time, 3e-6 of it, is nothing beside the rounding of a 16-bit state. Whole fractals, and what
// L1 holds.
constexpr bool Resident(uint32_t stateBytes, uint32_t keyPitch, uint32_t valueDim) {
    return stateBytes == 2 && keyPitch <= 128 && valueDim % 16 == 0;
}

// The workspace of one core, in bytes: what cube and vector cores give each other.
struct Layout {
    uint32_t stateElements;  // of one unit, rows and columns padded to 16

    constexpr explicit Layout(uint32_t tile, uint32_t keyPitch)
        : stateElements((tile + 15) / 16 * 16 * keyPitch) {}

    // fp32 [64, 64]: 0: K K^T, 1: K Q^T; of one unit and parity of chunks
    constexpr uint64_t Scores(uint32_t parity, uint32_t unit) const {
        return uint64_t(parity * kUnits + unit) * kScoresBytes;
    }
    // bfloat16: high and low part of each operand, [64, 64], then the high parts of the
    // diagonals, [16, 64], and the low ones
    constexpr uint64_t Operands(uint32_t parity, uint32_t unit) const {
        return 2 * kUnits * kScoresBytes + uint64_t(parity * kUnits + unit) * kOperandsBytes;
    }
    // bfloat16: high and low part of the state
    constexpr uint64_t State(uint32_t unit) const {
        return 2 * kUnits * (kScoresBytes + kOperandsBytes) + uint64_t(unit) * stateElements * 4;
    }
    // fp32: what a chunk adds to the state
    constexpr uint64_t Update(uint32_t unit) const {
        return State(kUnits) + uint64_t(unit) * stateElements * 4;
    }
    // bfloat16: the identity matrix, negative
    constexpr uint64_t Identity() const { return Update(kUnits); }
    constexpr uint64_t Bytes() const { return Identity() + kMatrix * 2; }

 private:
    static constexpr uint64_t kScoresBytes = 2 * kMatrix * 4,
                              kOperandsBytes = (kOperands * kMatrix + kDiagonals * kDiagonal) * 2 * 2;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PLAN_H_
