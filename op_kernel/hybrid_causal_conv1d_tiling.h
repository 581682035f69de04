// Work split and buffer plan of hybrid_causal_conv1d, shared by host, kernel and simulator: plain data, no
// CANN.
//
// Cores form a grid of channel ranges and row ranges; the plan takes the grid with the least work on the
// busiest core. A core walks its rows once per pass of at most `passChannels` channels, in tiles of at most
// `tileRows` rows of y.
#ifndef HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILING_H_
#define HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILING_H_

#include <cstdint>

struct HybridCausalConv1dTilingData {
    uint32_t tokens;         // T, packed rows
    uint32_t channels;       // D
    uint32_t width;          // W, taps
    uint32_t lines;          // S
    uint32_t lineRows;       // L
    uint32_t sequences;      // B
    uint32_t channelRanges;  // columns of the grid of cores
    uint32_t rowRanges;      // rows of the grid
    uint32_t passChannels;   // channels of a pass, a multiple of 16
    uint32_t tileRows;       // rows of y in a tile, at least W - 1
    uint32_t stagedRows;     // rows of x and of lines in a tile
    uint32_t tableEntries;   // most offsets, lines, modes or accepted counts to be read locally
    uint32_t hasBias;
    uint32_t hasIndices;   // cache_indices present
    uint32_t hasMode;      // initial_state_mode present
    uint32_t hasAccepted;  // num_accepted_tokens present
    uint32_t activation;   // 1: SiLU
    uint32_t update;       // run_mode 1
    int64_t padLine;       // pad_slot_id
};

struct HybridCausalConv1dShape {
    int64_t tokens, channels, width, lines, lineRows, sequences;
    bool hasBias, hasIndices, hasMode, hasAccepted, activation, update;
    int64_t padLine;
};

struct HybridCausalConv1dPlatform {
    uint32_t cores;
    uint32_t localBytes;  // unified buffer
};

struct HybridCausalConv1dPlan {
    HybridCausalConv1dTilingData data;
    uint32_t blockDim;
};

namespace hybrid_ops {
namespace conv1d {

constexpr uint32_t kUnit = 16;         // channels: 32 bytes, what one core may own
constexpr uint32_t kLanes = 64;        // fp32 lanes of a repeat
constexpr uint32_t kMaxRows = 240;     // repeatTimes is 8 bits wide
constexpr uint32_t kMaxPass = 2032;    // a repeat's stride is at most 255 blocks of 8 fp32
constexpr uint32_t kMaxSegments = 16;  // sequences of a tile
constexpr uint32_t kMaxTableEntries = 1024;
constexpr uint32_t kBankPeriod = 512;      // bytes after which banks of local memory repeat
constexpr uint32_t kRangeRows = 8;         // what a cut costs in rows: W - 1 read again, taps, a short tile
constexpr uint32_t kReservedBytes = 8192;  // of the framework and of emulated calls

inline uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }
inline uint32_t Ceil(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit; }
inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t Most(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Rows of a sequence on average, at least 1.
inline uint32_t MeanRows(const HybridCausalConv1dTilingData& t) {
    return t.sequences == 0 ? Most(t.tokens, 1) : Most(t.tokens / t.sequences, 1);
}

// Places of the fp32 buffers, in elements from the start of local memory. Those that one call reads together
// are half a period of the banks apart: `odd` ones begin in its second half.
struct Places {
    uint32_t wide, sum;                         // even
    uint32_t weights, product[2], minusOne[2];  // odd, but for minusOne[0]
    uint32_t end;
};
inline uint32_t Place(uint32_t& end, uint32_t elements, bool odd) {
    const uint32_t at = RoundUp(end, kBankPeriod / 4) + (odd ? kBankPeriod / 8 : 0);
    end = at + elements;
    return at;
}
inline Places PlacesOf(const HybridCausalConv1dTilingData& t) {
    const uint32_t pass = t.passChannels;
    Places p{};
    p.wide = Place(p.end, (t.stagedRows + t.width - 1) * pass, false);
    p.sum = Place(p.end, t.tileRows * pass, false);
    p.weights = Place(p.end, (t.width + 1) * pass, true);
    p.product[0] = Place(p.end, t.tileRows * pass, true);
    p.product[1] = Place(p.end, t.tileRows * pass, true);
    p.minusOne[0] = Place(p.end, kLanes, false);
    p.minusOne[1] = p.minusOne[0] + kLanes;
    p.end += kLanes;
    return p;
}

// Bytes of local memory of a plan: the buffers that the kernel allocates.
inline uint64_t LocalBytes(const HybridCausalConv1dTilingData& t) {
    const uint64_t pass = t.passChannels;
    uint64_t bytes = uint64_t(PlacesOf(t).end) * 4;
    bytes += (t.width + 1) * pass * 2 + (t.width - 1) * pass * 2;  // taps and bias, rows of a line
    bytes += 2 * (t.stagedRows + t.tileRows) * pass * 2;           // rows in, rows out
    bytes += 4 * (t.tableEntries + 8) * 4 + 512;                   // tables; each buffer fills 32 bytes
    return bytes + kReservedBytes;
}

// Most rows of a tile for passes of this many channels; false when not even `least` fit.
inline bool PlanTile(HybridCausalConv1dTilingData& t, uint32_t rangeRows, uint32_t least,
                     uint32_t localBytes) {
    const uint32_t history = t.width - 1, mean = MeanRows(t);
    for (t.tileRows = Most(Least(rangeRows, kMaxRows), history); t.tileRows >= least; --t.tileRows) {
        const uint32_t begun = Least(Ceil(t.tileRows, mean) + (mean == 1 ? 0 : 1), kMaxSegments);
        t.stagedRows = t.tileRows + Least(begun, t.tileRows) * history;
        if (LocalBytes(t) <= localBytes) return true;
    }
    return false;
}

// Work of the busiest core: repeats of its channels times its rows. Ranges re-read W - 1 rows and set up
// taps.
inline uint64_t Work(const HybridCausalConv1dTilingData& t, uint32_t channelRanges, uint32_t rowRanges) {
    const uint64_t units = Ceil(t.channels / kUnit, channelRanges), rows = Ceil(Most(t.tokens, 1), rowRanges);
    // Half of the calls work on whole tiles, the others waste the lanes of a last repeat; short rows move
    // badly.
    const uint64_t lanes = units * kUnit + RoundUp(uint32_t(units * kUnit), kLanes) + kLanes;
    return lanes * (rows + (rowRanges == 1 || MeanRows(t) == 1 ? 1 : kRangeRows));
}

}  // namespace conv1d
}  // namespace hybrid_ops

inline HybridCausalConv1dPlan PlanHybridCausalConv1d(const HybridCausalConv1dShape& s,
                                                     const HybridCausalConv1dPlatform& p) {
    using namespace hybrid_ops::conv1d;
    HybridCausalConv1dPlan plan{};
    HybridCausalConv1dTilingData& t = plan.data;
    t.tokens = uint32_t(s.tokens);
    t.channels = uint32_t(s.channels);
    t.width = uint32_t(s.width);
    t.lines = uint32_t(s.lines);
    t.lineRows = uint32_t(s.lineRows);
    t.sequences = uint32_t(s.sequences);
    t.hasBias = s.hasBias;
    t.hasIndices = s.hasIndices;
    t.hasMode = s.hasMode;
    t.hasAccepted = s.hasAccepted;
    t.activation = s.activation;
    t.update = s.update;
    t.padLine = s.padLine;
    t.tableEntries = Least(RoundUp(t.sequences + 1, 8), kMaxTableEntries);

    const uint32_t units = t.channels / kUnit;
    uint64_t best = 0;
    for (uint32_t columns = Least(units, p.cores); columns >= 1; --columns) {
        const uint32_t rows = Most(Least(p.cores / columns, t.tokens), 1);
        const uint64_t work = Work(t, columns, rows);
        if (best != 0 && work >= best) continue;
        best = work;
        t.channelRanges = columns;
        t.rowRanges = rows;
    }
    plan.blockDim = t.channelRanges * t.rowRanges;

    const uint32_t rangeChannels = Ceil(units, t.channelRanges) * kUnit;
    const uint32_t rangeRows = Ceil(t.tokens, t.rowRanges);
    // Long sequences want tiles of many rows, as far as rows of 256 channels leave room; single steps whole
    // lines.
    const uint32_t wanted = Most(Least(rangeRows, MeanRows(t) >= 8 ? p.localBytes / 8192 : 4), t.width - 1);
    for (uint32_t passes = 1;; ++passes) {
        t.passChannels = Ceil(rangeChannels, passes);
        // Rows that fill periods of the banks keep what a call reads half a period apart.
        if (passes != 1)
            t.passChannels = RoundUp(t.passChannels, t.passChannels > 2 * kLanes ? 2 * kLanes : kLanes);
        const bool smallest = t.passChannels <= kLanes;
        if (t.passChannels > kMaxPass) continue;
        if (PlanTile(t, rangeRows, smallest ? t.width - 1 : wanted, p.localBytes) || smallest) break;
    }
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TILING_H_
