// Work split and buffer plan of chunk_gated_delta_rule, shared by host, kernel and simulator: plain data, no
// CANN.
//
// The state of one sequence is NV * DV rows of DK. A unit is the smallest piece of rows a core may own; head
// h has `headUnits` units, the last one takes the remainder of DV. All units are cut into items of at most
// `rows` rows, evenly, or evenly inside each head where DV leaves a remainder (rows of two heads would leave
// vectors unaligned). An item keeps its rows of the state in local memory and walks all tokens; core i takes
// items i, i + cores, ...
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TILING_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TILING_H_

#include <cstdint>

#include "chunk_gated_delta_rule/cube_910b_plan.h"

struct ChunkGatedDeltaRuleTilingData {
    uint32_t tokens;      // T, packed rows
    uint32_t sequences;   // B
    uint32_t keyHeads;    // NK
    uint32_t valueHeads;  // NV
    uint32_t keyDim;      // DK
    uint32_t valueDim;    // DV
    uint32_t keyPitch;    // DK rounded up to 16: elements between rows in local memory
    uint32_t unitRows;    // rows of a unit, but for the last one of a head
    uint32_t headUnits;   // units of a head
    uint32_t spans;       // parts that are cut into items each on its own: 1, or one per value head
    uint32_t spanItems;   // items of a span
    uint32_t rows;        // most rows of an item
    uint32_t rowPitch;    // rows rounded up to 16: elements of a vector with one value per row
    uint32_t keys;        // most key heads of an item
    uint32_t
        tokenBlock;  // tokens whose keys, queries, values and gates are prepared at once; two blocks are kept
    uint32_t pieceRows;  // rows in which the state is moved
    uint32_t entries;    // most lengths to be copied and read locally
    uint32_t hasGate;    // g present
    float scale;         // scale_value
    // Cube path only: an item is `valueStep` columns of DV of one value head, the last item of a head what is
    // left; core i takes items i, i + cores, ...
    uint32_t valueStep;   // multiple of 16
    uint32_t valueSteps;  // items of a value head
};

// Tiling keys: bit 0, DK or DV leaves a tail (vector path); bit 1, products on the cube unit.
constexpr uint64_t kChunkGatedDeltaRuleTail = 1;
constexpr uint64_t kChunkGatedDeltaRuleCube = 2;

struct ChunkGatedDeltaRuleShape {
    int64_t tokens, sequences, keyHeads, valueHeads, keyDim, valueDim;
    bool hasGate;
    uint32_t stateBytes;  // of one state element
    float scale;
};

struct ChunkGatedDeltaRulePlatform {
    uint32_t cores;
    uint32_t localBytes;  // unified buffer
    bool paddedMoves;     // DataCopyPad exists (ascend910b)
    uint32_t splitCubes;  // cube cores with two vector cores each; 0: none, or a core has both
};

struct ChunkGatedDeltaRulePlan {
    ChunkGatedDeltaRuleTilingData data;
    uint32_t blockDim;
    uint64_t tilingKey;
    bool fits;           // false: no item of one unit fits into local memory
    uint64_t workspace;  // bytes
};

namespace hybrid_ops {
namespace cgdr {

constexpr uint32_t kStepTokens = 4;               // tokens that one pass over the state serves
constexpr uint32_t kPairs = 2 * kStepTokens - 1;  // k . k of lag 1 .. 3, k . q of lag 0 .. 3
constexpr uint32_t kZeroElements = 256;           // zeros kept for rows without a sequence
constexpr uint32_t kBankPeriod = 512;             // bytes after which local memory's banks repeat
constexpr uint32_t kLanes = 64;                   // fp32 lanes of a repeat
constexpr uint32_t kMostRows = 240;               // repeatTimes is 8 bits wide
constexpr uint32_t kMostEntries = 256;
constexpr uint32_t kMostPieceRows = 64;
constexpr uint32_t kReservedBytes = 8192 + 256;  // scratch of emulated calls and the framework's own
// A step of an item costs as much as so many rows more, whatever its rows (measured in the timing model).
constexpr uint32_t kStepRows = 24;

inline uint32_t PadTo(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// Sums of a row's 64-lane pieces are reduced by fixed trees: 1, 2 or 4 pieces.
inline uint32_t PieceSums(uint32_t keyPitch) {
    return keyPitch <= kLanes ? 1 : keyPitch <= 2 * kLanes ? 2 : 4;
}

// Elements of the buffers; the kernel allocates by these.
inline uint32_t TileElements(const ChunkGatedDeltaRuleTilingData& t) {
    // Whole periods of the banks, so that what follows is in phase.
    return PadTo((t.rows * t.keyPitch + kLanes) * 4, kBankPeriod) / 4;
}
inline uint32_t PartialElements(const ChunkGatedDeltaRuleTilingData& t) {
    return PadTo(t.rows, 8) * PieceSums(t.keyPitch) * 8 + kLanes;
}
inline uint32_t LevelElements(const ChunkGatedDeltaRuleTilingData& t, uint32_t level) {
    const uint32_t sums = PieceSums(t.keyPitch) >> level;
    return (sums > 1 ? PadTo(t.rows, 8) * sums : 0) + kLanes;
}
inline uint32_t StepElements(const ChunkGatedDeltaRuleTilingData& t) {
    return kStepTokens * t.rowPitch + kLanes;
}
inline uint32_t PairElements(const ChunkGatedDeltaRuleTilingData& t) {
    return PadTo(kPairs * t.tokenBlock * t.keys, 16) + 2 * kLanes;
}
inline uint32_t GateElements(const ChunkGatedDeltaRuleTilingData& t) {
    return PadTo(t.tokenBlock * t.valueHeads, 16) + 16;
}
inline uint32_t StagedElements(const ChunkGatedDeltaRuleTilingData& t) {  // of two bytes
    return 2 * t.tokenBlock * t.keys * t.keyPitch + t.tokenBlock * t.rowPitch + GateElements(t) * 3;
}

inline uint64_t LocalBytes(const ChunkGatedDeltaRuleTilingData& t, uint32_t stateBytes, bool paddedMoves) {
    const uint64_t prepared = uint64_t(t.tokenBlock) * t.keys;
    uint64_t floats = 2 * TileElements(t) + kBankPeriod / 8;                             // state, product
    floats += 2 * PartialElements(t) + 2 * (LevelElements(t, 0) + LevelElements(t, 1));  // sums
    floats += 4 * StepElements(t) + 2 * kLanes;                                          // step vectors, line
    floats += 2 * (2 * prepared * t.keyPitch + t.tokenBlock * t.rowPitch);           // keys, queries, values
    floats += 2 * (PairElements(t) + 2 * GateElements(t)) + t.entries + 8;           // pairs, gates, lengths
    if (!paddedMoves) floats += PadTo(t.rows, 8) * 8;                                // broadcast table
    uint64_t bytes = floats * 4 + StagedElements(t) * 2 + kZeroElements * 2;         // staged tokens, zeros
    bytes += 4 * (t.pieceRows * t.keyPitch * stateBytes) + 2 * StepElements(t) * 2;  // state pieces, out rows
    return bytes + 1024;  // rounding of each buffer
}

// Rows and key heads of the widest item.
inline void MeasureItems(ChunkGatedDeltaRuleTilingData& t) {
    const uint32_t spanUnits = t.valueHeads / t.spans * t.headUnits, share = t.valueHeads / t.keyHeads;
    t.rows = 0;
    t.keys = 1;
    for (uint32_t i = 0; i < t.spanItems; ++i) {
        const uint32_t first = uint64_t(i) * spanUnits / t.spanItems;
        const uint32_t last = uint64_t(i + 1) * spanUnits / t.spanItems - 1;
        const uint32_t remainder = last % t.headUnits + 1 == t.headUnits ? t.valueDim % t.unitRows : 0;
        const uint32_t rows = (last - first + 1) * t.unitRows + remainder;
        if (rows > t.rows) t.rows = rows;
        const uint32_t keys = last / t.headUnits / share - first / t.headUnits / share + 1;
        if (keys > t.keys) t.keys = keys;
    }
    t.rowPitch = PadTo(t.rows, 16);
}

// Token block and pieces for items of a given size.
inline bool PlanBuffers(ChunkGatedDeltaRuleTilingData& t, uint32_t stateBytes,
                        const ChunkGatedDeltaRulePlatform& p) {
    for (t.tokenBlock = 4 * kStepTokens; t.tokenBlock >= kStepTokens; t.tokenBlock -= kStepTokens) {
        for (t.pieceRows = kMostPieceRows; t.pieceRows >= t.unitRows; t.pieceRows /= 2) {
            if (LocalBytes(t, stateBytes, p.paddedMoves) + kReservedBytes <= p.localBytes) return true;
        }
    }
    return false;
}

// Cube path of split cores: rows of a unit that its vector core does again at a time, on the vector path.
inline bool PlanRepair(ChunkGatedDeltaRuleTilingData& t, uint32_t stateBytes,
                       const ChunkGatedDeltaRulePlatform& p) {
    t.unitRows = 8;
    t.keys = 1;
    for (t.rows = t.valueStep; t.rows >= t.unitRows; t.rows = PadTo(t.rows / 2, t.unitRows)) {
        t.rowPitch = PadTo(t.rows, 16);
        if (PlanBuffers(t, stateBytes, p)) return true;
        if (t.rows == t.unitRows) break;
    }
    return false;
}

// Cube path of a combined core (ascend310p): elements of its buffers, for items of t.valueStep columns.
constexpr uint32_t kChunkTokens = 64;
constexpr uint32_t kChunkSquare = kChunkTokens * kChunkTokens;
constexpr uint32_t kMostGateHeads = 16;  // whose gates a chunk fetches

inline uint32_t Larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
inline uint32_t CubeGateHeads(const ChunkGatedDeltaRuleTilingData& t) {
    return t.valueHeads < kMostGateHeads ? t.valueHeads : kMostGateHeads;
}
inline uint32_t CubeLanding(const ChunkGatedDeltaRuleTilingData& t) { return kChunkTokens * t.valueStep; }
inline uint32_t CubeFront(const ChunkGatedDeltaRuleTilingData& t) {
    return PadTo(t.valueStep * t.keyDim / 2, 256);
}
inline uint32_t CubeBack(const ChunkGatedDeltaRuleTilingData& t) {
    return Larger(Larger(CubeFront(t), kChunkTokens * t.valueStep), 2 * kChunkSquare);
}
inline uint32_t CubeTileHalves(const ChunkGatedDeltaRuleTilingData& t) {
    const uint32_t inputs = 3 * kChunkTokens * (2 * t.keyDim + t.valueStep);
    const uint32_t prepared = 2 * (2 * kChunkTokens * t.keyDim + 4 * kChunkSquare);
    return inputs + prepared + 2 * t.valueStep * t.keyDim + 2 * kChunkTokens * t.valueStep + 3 * kChunkSquare;
}
inline uint64_t CubeLocalBytes(const ChunkGatedDeltaRuleTilingData& t) {
    const uint32_t gates = kChunkTokens * CubeGateHeads(t) + 16;
    uint64_t floats = t.valueStep * t.keyDim + CubeLanding(t) + 3 * kChunkSquare;
    floats +=
        gates + 3 * kChunkTokens * 16 + 2 * kChunkTokens * 8 + 256 + 7 * 64;  // vectors, tables of gates
    floats += 2 * 512 + 3 * 64 + t.entries + 8;                               // of the inverse; lengths
    const uint64_t halves =
        gates + 2 * kChunkTokens * t.keyDim + CubeFront(t) + CubeBack(t) + kChunkTokens * t.valueStep;
    return floats * 4 + halves * 2 + 512;
}

// Items of the cube path; false: the vector path has to take the shape.
inline bool PlanCube(ChunkGatedDeltaRuleTilingData& t, uint32_t& blocks,
                     const ChunkGatedDeltaRulePlatform& p) {
    // A chunk costs as much as this many columns more, whatever its columns (measured in the timing model).
    constexpr uint32_t kChunkColumns = 240;
    if (p.paddedMoves || t.keyDim % 16 != 0 || t.valueDim % 16 != 0) return false;
    if (t.valueHeads > kMostGateHeads && t.valueHeads % kMostGateHeads != 0) return false;
    // Short sequences fill no chunk.
    if (t.tokens < 16 * t.sequences) return false;
    uint64_t least = ~0ull;
    uint32_t best = 0;
    for (t.valueStep = 16; t.valueStep <= t.valueDim; t.valueStep += 16) {
        if (CubeLocalBytes(t) > p.localBytes || t.valueStep * t.keyDim > 16384 || t.valueStep > 128) break;
        const uint64_t items = uint64_t(t.valueHeads) * ((t.valueDim + t.valueStep - 1) / t.valueStep);
        const uint64_t cost = (items + p.cores - 1) / p.cores * (t.valueStep + kChunkColumns);
        if (cost > least) continue;
        least = cost;
        best = t.valueStep;
    }
    if (best == 0) return false;
    t.valueStep = best;
    t.valueSteps = (t.valueDim + best - 1) / best;
    const uint32_t items = t.valueHeads * t.valueSteps;
    blocks = items < p.cores ? items : p.cores;
    return true;
}

}  // namespace cgdr
}  // namespace hybrid_ops

inline ChunkGatedDeltaRulePlan PlanChunkGatedDeltaRule(const ChunkGatedDeltaRuleShape& s,
                                                       const ChunkGatedDeltaRulePlatform& p) {
    using namespace hybrid_ops::cgdr;
    ChunkGatedDeltaRulePlan plan{};
    ChunkGatedDeltaRuleTilingData t{};
    t.tokens = uint32_t(s.tokens);
    t.sequences = uint32_t(s.sequences);
    t.keyHeads = uint32_t(s.keyHeads);
    t.valueHeads = uint32_t(s.valueHeads);
    t.keyDim = uint32_t(s.keyDim);
    t.valueDim = uint32_t(s.valueDim);
    t.keyPitch = PadTo(t.keyDim, 16);
    t.hasGate = s.hasGate ? 1 : 0;
    t.scale = s.scale;
    t.entries = t.sequences < kMostEntries ? PadTo(t.sequences, 8) : kMostEntries;
    if (p.splitCubes != 0 && split::Worth(s.tokens, s.sequences)) {
        const uint32_t tile = split::ValueTile(t.keyPitch), value = PadTo(t.valueDim, 16);
        t.valueStep = tile < value ? tile : value;
        t.valueSteps = (t.valueDim + t.valueStep - 1) / t.valueStep;
        const uint64_t items =
            t.sequences * uint64_t((t.valueHeads * t.valueSteps + split::kUnits - 1) / split::kUnits);
        plan.tilingKey = kChunkGatedDeltaRuleCube;
        plan.blockDim = uint32_t(items < p.splitCubes ? items : p.splitCubes);
        plan.workspace = plan.blockDim * split::Layout(t.valueStep, t.keyPitch).Bytes();
        plan.fits = PlanRepair(t, s.stateBytes, p);
        plan.data = t;
        return plan;
    }
    // 310P stores whole 32-byte blocks: 16 out values. With padded moves 8 rows keep fp32 vectors 32-byte
    // aligned.
    t.unitRows = p.paddedMoves ? 8 : 16;
    t.headUnits = t.valueDim / t.unitRows;
    const bool valueTail = t.valueDim % t.unitRows != 0;
    t.spans = valueTail ? t.valueHeads : 1;
    plan.tilingKey = valueTail || t.keyDim % 16 != 0 ? kChunkGatedDeltaRuleTail : 0;

    if (s.sequences != 0 && PlanCube(t, plan.blockDim, p)) {
        plan.data = t;
        plan.tilingKey = kChunkGatedDeltaRuleCube;
        plan.fits = true;
        return plan;
    }
    t.valueStep = 0;

    const uint32_t spanUnits = t.valueHeads / t.spans * t.headUnits;
    uint64_t least = ~0ull;
    for (t.spanItems = 1; t.spanItems <= spanUnits; ++t.spanItems) {
        const uint64_t items = uint64_t(t.spans) * t.spanItems;
        const uint64_t turns = (items + p.cores - 1) / p.cores;
        if (turns * (t.unitRows + kStepRows) > least) break;  // more items only cost more from here on
        MeasureItems(t);
        if (t.rows > kMostRows || !PlanBuffers(t, s.stateBytes, p)) continue;
        const uint64_t cost = turns * (t.rows + kStepRows);
        if (cost >= least) continue;
        least = cost;
        plan.data = t;
        plan.blockDim = uint32_t(items < p.cores ? items : p.cores);
        plan.fits = true;
    }
    return plan;
}

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TILING_H_
