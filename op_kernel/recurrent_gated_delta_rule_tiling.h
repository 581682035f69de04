// Work split and buffer plan of recurrent_gated_delta_rule, shared by host, kernel and simulator: plain data,
// no CANN.
//
// The state of one slot is NV * DV rows of DK. A unit is the smallest piece of rows a core may own; head h
// has `headUnits` units, the last one takes the remainder of DV. All NV * headUnits units are cut into cores
// * `bands` even ranges of which core i owns `bands`. A core takes one range after the other; in a range it
// walks the sequences, for each sequence the range's groups of at most `groupUnits`, for each group the
// sequence's tokens.
#ifndef HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TILING_H_
#define HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TILING_H_

#include <cstdint>

struct RecurrentGatedDeltaRuleTilingData {
    uint32_t tokens;        // T, packed rows
    uint32_t sequences;     // B
    uint32_t slots;         // S, states in the pool
    uint32_t tableWidth;    // S_max of a [B, S_max] slot table; 0: flat [T]
    uint32_t keyHeads;      // NK
    uint32_t valueHeads;    // NV
    uint32_t keyDim;        // DK
    uint32_t valueDim;      // DV
    uint32_t keyPitch;      // DK rounded up to 16: elements between rows in local memory
    uint32_t unitRows;      // rows of a unit, but for the last one of a head
    uint32_t headUnits;     // units of a head
    uint32_t bands;         // ranges of a core
    uint32_t groupUnits;    // units of a group
    uint32_t groupRows;     // most rows of a group
    uint32_t pieces;        // parts in which a group's state is moved, to overlap with maths
    uint32_t storedPieces;  // parts under way to the pool at once
    uint32_t tableEntries;  // most lengths, slots or accepted counts to be copied and read locally
    uint32_t tokenBlock;    // tokens whose keys, queries, values and gates are prepared at once
    uint32_t coreKeyHeads;  // most key heads of a range
    uint32_t coreHeads;     // most value heads of a range
    uint32_t valuePitch;    // elements of a range's value rows of one token, each group padded to 16
    uint32_t hasGate;       // g present
    uint32_t channelGate;   // rank of gk: 0 absent, 2 [T, NV], 3 [T, NV, DK]
    uint32_t hasAccepted;   // num_accepted_tokens present
    float scale;            // scale_value
};

// Tiling keys: bit 0, DK or DV leaves a tail; bit 1, gk has rank 3.
constexpr uint64_t kRecurrentGatedDeltaRuleTail = 1;
constexpr uint64_t kRecurrentGatedDeltaRuleChannelGate = 2;

struct RecurrentGatedDeltaRuleShape {
    int64_t tokens, sequences, slots, tableWidth;  // tableWidth 0: flat slot table
    int64_t keyHeads, valueHeads, keyDim, valueDim;
    int64_t channelGate;  // rank of gk, 0 when absent
    bool hasGate, hasAccepted;
    uint32_t stateBytes;  // of one state element
    float scale;
};

struct RecurrentGatedDeltaRulePlatform {
    uint32_t cores;
    uint32_t localBytes;  // unified buffer
    bool paddedMoves;     // DataCopyPad exists (ascend910b)
};

struct RecurrentGatedDeltaRulePlan {
    RecurrentGatedDeltaRuleTilingData data;
    uint32_t blockDim;
    uint64_t tilingKey;
    bool fits;  // false: no group of one unit fits into local memory
};

namespace hybrid_ops {
namespace rgdr {

constexpr uint32_t kZeroElements = 256;  // zeros kept for padded rows
constexpr uint32_t kTableRows = 8;       // rows of the repack tables
constexpr uint32_t kMaxTableEntries = 256;
constexpr uint32_t kMaxPieces = 7;  // with the staged tokens that is all events there are
constexpr uint32_t kBankPeriod = 512;
constexpr uint32_t kLanes = 64;                  // fp32 lanes of a repeat
constexpr uint32_t kMaxGroupRows = 240;          // repeatTimes is 8 bits wide
constexpr uint32_t kReservedBytes = 8192 + 256;  // scratch of emulated calls and the framework's own

inline uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// Sums of a row's 64-lane pieces are reduced by fixed trees: 1, 2, 4 or 8 pieces.
inline uint32_t PieceSlots(uint32_t keyPitch) {
    uint32_t slots = 1;
    while (slots * kLanes < keyPitch) slots *= 2;
    return slots;
}

// Pieces small enough to work on one while the others are moved.
inline bool FinePieces(const RecurrentGatedDeltaRuleTilingData& t) { return t.pieces >= 4; }
// Rows that pieces are a multiple of: two rows of 128 halves fill a line of global memory.
inline uint32_t PieceUnit(const RecurrentGatedDeltaRuleTilingData& t) {
    return t.pieces == kMaxPieces ? 8 : 2;
}

// Rows of a piece of a group.
inline uint32_t PieceRows(const RecurrentGatedDeltaRuleTilingData& t) {
    const uint32_t rows = (t.groupRows + t.pieces - 1) / t.pieces;
    return t.pieces == 1 ? rows : RoundUp(rows, PieceUnit(t));
}

// Bytes of an fp32 matrix of a group: whole periods of the local memory's banks, so that what follows it is
// in phase.
inline uint32_t TileBytes(const RecurrentGatedDeltaRuleTilingData& t) {
    return RoundUp((t.groupRows * t.keyPitch + kLanes) * 4, kBankPeriod);
}

// Bytes of the first sums of a group's products, an odd number of half periods when rows fill 128 lanes.
inline uint32_t SumBytes(const RecurrentGatedDeltaRuleTilingData& t) {
    const uint32_t bytes = (RoundUp(t.groupRows, 8) * PieceSlots(t.keyPitch) * 8 + kLanes) * 4;
    return t.keyPitch == 128 ? RoundUp(bytes - kBankPeriod / 2, kBankPeriod) + kBankPeriod / 2 : bytes;
}
// Bytes of a second column of deltas, 0 where it wins nothing: see Workspace::InitTiles.
inline uint32_t ColumnBytes(const RecurrentGatedDeltaRuleTilingData& t, bool broadcast) {
    return broadcast && t.keyPitch == 128 && t.sequences == 1 ? RoundUp(t.groupRows, 8) * 32 : 0;
}

// Elements of a local copy of lengths, slots or accepted counts.
inline uint32_t TableElements(const RecurrentGatedDeltaRuleTilingData& t) { return t.tableEntries + 8; }

// Elements of a buffer of per-head gates of one token block, with room for a repeated last 32-byte block.
inline uint32_t GateElements(const RecurrentGatedDeltaRuleTilingData& t) {
    return RoundUp(t.tokenBlock * t.valueHeads, 16) + 16;
}

// Elements of a buffer of one value per row of a group, with room for a repeated last block.
inline uint32_t RowElements(const RecurrentGatedDeltaRuleTilingData& t) {
    return RoundUp(t.groupRows, 16) + 16;
}

// Bytes of local memory of a plan: the buffers that the parts of the kernel allocate in their Init.
inline uint64_t LocalBytes(const RecurrentGatedDeltaRuleTilingData& t, uint32_t stateBytes, bool paddedMoves,
                           bool tail) {
    const uint64_t prepared = uint64_t(t.tokenBlock) * t.coreKeyHeads, pitch = t.keyPitch;
    const uint64_t gates = GateElements(t), rowElements = RowElements(t);
    const uint64_t channel = t.channelGate == 3 ? uint64_t(t.tokenBlock) * t.coreHeads * pitch * 4 : 0;
    const uint64_t partial = uint64_t(RoundUp(t.groupRows, 8)) * PieceSlots(t.keyPitch);
    uint64_t bytes = (t.pieces + t.storedPieces) * (PieceRows(t) * pitch + 32) * stateBytes;  // state in, out
    bytes += 2 * rowElements * 2;                                                             // out rows
    bytes += 2 * TileBytes(t) + kBankPeriod / 2;                               // state, product
    bytes += RoundUp(SumBytes(t) + ColumnBytes(t, paddedMoves), kBankPeriod);  // partial sums, columns
    bytes += (3 * partial + 4 * kLanes) * 4;                                   // levels
    if (FinePieces(t))
        bytes += (RoundUp(PieceRows(t), 8) * PieceSlots(t.keyPitch) * 8 + kLanes) * 4;  // of a piece
    bytes += (2 * rowElements + kLanes) * 4;                          // delta, readout, moved tail
    bytes += 2 * prepared * pitch * 4 + (prepared + 2 * kLanes) * 4;  // keys, queries, key . query
    bytes += 2 * gates * 4 + channel + kZeroElements * 2;             // alpha, beta, channel decay, zeros
    bytes +=
        prepared * pitch * 4 + gates * 2 + uint64_t(t.tokenBlock) * t.valuePitch * (2 + 4);  // staged, values
    bytes += gates * 4 * ((t.hasGate ? 1 : 0) + (t.channelGate == 2 ? 1 : 0)) + channel;
    bytes += 3 * TableElements(t) * 4;
    if (!paddedMoves) bytes += uint64_t(RoundUp(t.groupRows, 8)) * 32;              // broadcast table
    if (!paddedMoves && tail) bytes += uint64_t(kTableRows + 1) * pitch * 4 + 256;  // repack tables
    return bytes + 512;  // each buffer is rounded up to 32 bytes
}

// Pieces and token block of groups of a given size; false when they do not fit with at least so many tokens.
inline bool PlanBuffers(RecurrentGatedDeltaRuleTilingData& t, uint32_t leastTokens, uint32_t stateBytes,
                        const RecurrentGatedDeltaRulePlatform& p, bool tail) {
    const uint32_t mostTokens = t.tokens < 1 ? 1 : t.tokens < 16 ? t.tokens : 16;
    if (leastTokens > mostTokens) leastTokens = mostTokens;
    for (t.pieces = tail                                             ? 1
                    : t.sequences == 1 && t.groupUnits >= kMaxPieces ? kMaxPieces
                    : t.groupUnits >= 4                              ? 4
                    : t.groupUnits >= 2                              ? 2
                                                                     : 1;
         t.pieces >= 1; t.pieces = t.pieces == kMaxPieces ? 4 : t.pieces / 2) {
        t.storedPieces = t.pieces == kMaxPieces ? t.pieces - 1 : t.pieces;
        for (t.tokenBlock = mostTokens; t.tokenBlock >= leastTokens; --t.tokenBlock) {
            if (LocalBytes(t, stateBytes, p.paddedMoves, tail) + kReservedBytes <= p.localBytes) return true;
        }
    }
    return false;
}

// Largest groups first: a group's chain of dependent vector calls costs about the same whatever its rows.
inline bool PlanGroups(RecurrentGatedDeltaRuleTilingData& t, uint32_t units, uint32_t ranges,
                       uint32_t stateBytes, const RecurrentGatedDeltaRulePlatform& p, bool tail,
                       bool valueTail) {
    uint32_t rangeUnits = 1;
    t.coreKeyHeads = 1;
    t.coreHeads = 1;
    const uint32_t share = t.valueHeads / t.keyHeads;
    for (uint32_t i = 0; i < ranges; ++i) {
        const uint32_t first = uint64_t(i) * units / ranges, last = uint64_t(i + 1) * units / ranges;
        if (first == last) continue;
        const uint32_t h0 = first / t.headUnits, h1 = (last - 1) / t.headUnits;
        if (last - first > rangeUnits) rangeUnits = last - first;
        if (h1 - h0 + 1 > t.coreHeads) t.coreHeads = h1 - h0 + 1;
        if (h1 / share - h0 / share + 1 > t.coreKeyHeads) t.coreKeyHeads = h1 / share - h0 / share + 1;
    }
    // A group of a head with a value tail ends with its head: rows of two heads would leave vectors
    // unaligned.
    const uint32_t mostUnits = valueTail && t.headUnits < rangeUnits ? t.headUnits : rangeUnits;
    for (uint32_t groups = 1; groups <= mostUnits; ++groups) {
        t.groupUnits = (mostUnits + groups - 1) / groups;
        t.groupRows = t.groupUnits * t.unitRows + t.valueDim % t.unitRows;
        if (t.groupRows > kMaxGroupRows) continue;
        t.valuePitch = rangeUnits * t.unitRows;
        // Groups that end with their head: its remainder, and every group padded to 16.
        if (valueTail) t.valuePitch += 16 * (rangeUnits / t.groupUnits + 2 * t.coreHeads + 1);
        t.valuePitch = RoundUp(t.valuePitch, 16);
        if (PlanBuffers(t, groups < mostUnits ? 2 : 1, stateBytes, p, tail)) return true;
    }
    return false;
}

}  // namespace rgdr
}  // namespace hybrid_ops

inline RecurrentGatedDeltaRulePlan PlanRecurrentGatedDeltaRule(const RecurrentGatedDeltaRuleShape& s,
                                                               const RecurrentGatedDeltaRulePlatform& p) {
    using namespace hybrid_ops::rgdr;
    RecurrentGatedDeltaRulePlan plan{};
    RecurrentGatedDeltaRuleTilingData& t = plan.data;
    t.tokens = uint32_t(s.tokens);
    t.sequences = uint32_t(s.sequences);
    t.slots = uint32_t(s.slots);
    t.tableWidth = uint32_t(s.tableWidth);
    t.keyHeads = uint32_t(s.keyHeads);
    t.valueHeads = uint32_t(s.valueHeads);
    t.keyDim = uint32_t(s.keyDim);
    t.valueDim = uint32_t(s.valueDim);
    t.keyPitch = RoundUp(t.keyDim, 16);
    t.hasGate = s.hasGate ? 1 : 0;
    t.channelGate = uint32_t(s.channelGate);
    t.hasAccepted = s.hasAccepted ? 1 : 0;
    t.scale = s.scale;
    // 310P stores whole 32-byte blocks: 16 out values. With padded moves 8 rows keep fp32 vectors 32-byte
    // aligned.
    t.unitRows = p.paddedMoves ? 8 : 16;
    t.headUnits = t.valueDim / t.unitRows;
    const bool valueTail = t.valueDim % t.unitRows != 0;
    const bool tail = valueTail || t.keyDim % 16 != 0;
    plan.tilingKey = (tail ? kRecurrentGatedDeltaRuleTail : 0) |
                     (t.channelGate == 3 ? kRecurrentGatedDeltaRuleChannelGate : 0);

    const uint32_t entries = t.tokens > t.sequences ? t.tokens : t.sequences,
                   table = t.sequences * t.tableWidth;
    t.tableEntries = RoundUp(entries > table ? entries : table, 8);
    if (t.tableEntries > kMaxTableEntries) t.tableEntries = kMaxTableEntries;

    const uint32_t units = t.valueHeads * t.headUnits;
    plan.blockDim = units < p.cores ? units : p.cores;
    if (plan.blockDim == 0) plan.blockDim = 1;
    for (t.bands = 1; t.bands <= (units + plan.blockDim - 1) / plan.blockDim; t.bands *= 2) {
        if (PlanGroups(t, units, plan.blockDim * t.bands, s.stateBytes, p, tail, valueTail)) {
            plan.fits = true;
            break;
        }
    }
    return plan;
}

#endif  // HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TILING_H_
