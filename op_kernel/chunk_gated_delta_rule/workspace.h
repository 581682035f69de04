// Rows a core works on and the buffers that the steps on them share.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_WORKSPACE_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_WORKSPACE_H_

#include "../chunk_gated_delta_rule_tiling.h"
#include "../common/row_copy.h"
#include "../common/rows.h"

namespace hybrid_ops {
namespace cgdr {

using Data = ChunkGatedDeltaRuleTilingData;
using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;

// Rows of the flattened [NV * DV] that are worked on together, and the heads they belong to.
struct Item {
    uint32_t row, rows;
    uint32_t head, heads;
    uint32_t key, keys;

    __aicore__ inline void Set(const Data& t, uint32_t index) {
        const uint32_t spanUnits = t.valueHeads / t.spans * t.headUnits, share = t.valueHeads / t.keyHeads;
        const uint32_t base = index / t.spanItems * spanUnits, part = index % t.spanItems;
        const uint32_t first = base + uint32_t(uint64_t(part) * spanUnits / t.spanItems);
        const uint32_t end = base + uint32_t(uint64_t(part + 1) * spanUnits / t.spanItems);
        row = RowOf(t, first);
        rows = RowOf(t, end) - row;
        head = first / t.headUnits;
        heads = (end - 1) / t.headUnits - head + 1;
        key = head / share;
        keys = (head + heads - 1) / share - key + 1;
    }
    // Rows of one head.
    __aicore__ inline void SetRows(const Data& t, uint32_t from, uint32_t count) {
        row = from;
        rows = count;
        head = row / t.valueDim;
        key = head / (t.valueHeads / t.keyHeads);
        heads = keys = 1;
    }

 private:
    __aicore__ static inline uint32_t RowOf(const Data& t, uint32_t unit) {
        return unit / t.headUnits * t.valueDim + unit % t.headUnits * t.unitRows;
    }
};

// fp32 matrices [rows, keyPitch] and vectors with one value per row; what is in them when, the steps say.
struct Workspace {
    FloatTensor state, product;
    FloatTensor partial[2], level[2][2];    // sums on their way to one value per row; [tree level][parity]
    FloatTensor readKey, readQuery;         // [kStepTokens, rowPitch]: S k, and S q, which becomes out
    FloatTensor delta, decayed;             // [kStepTokens, rowPitch]: what each token writes
    FloatTensor column[2];                  // [rows, 8]: one value per row, eight times; where partial is
    LocalTensor<uint32_t> broadcast, line;  // gather offsets in bytes

    // The state, and what it is multiplied with, start in different halves of the banks.
    __aicore__ inline void InitTiles(AscendC::TPipe& pipe, const Data& t) {
        Get(pipe, state, buffers_[0], TileElements(t));
        pipe.InitBuffer(gap_, kBankPeriod / 2);
        Get(pipe, product, buffers_[1], TileElements(t));
    }
    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& t, bool pads) {
        for (uint32_t i = 0; i < 2; ++i) {
            Get(pipe, partial[i], buffers_[2 + i], PartialElements(t));
            Get(pipe, level[0][i], buffers_[4 + i], LevelElements(t, 0));
            Get(pipe, level[1][i], buffers_[6 + i], LevelElements(t, 1));
            column[i] = partial[i];
        }
        Get(pipe, readKey, buffers_[8], StepElements(t));
        Get(pipe, readQuery, buffers_[9], StepElements(t));
        Get(pipe, delta, buffers_[10], StepElements(t));
        Get(pipe, decayed, buffers_[11], StepElements(t));
        if constexpr (!Soc::kPaddedMoves) {
            Get(pipe, broadcast, buffers_[12], PadTo(t.rows, 8) * kFloatBlock);
            if (pads) Get(pipe, line, buffers_[13], 16);
        }
    }

    // Lanes that no step writes, but whole repeats read, are zero from here on. `pads`: rows have lanes
    // beyond DK, or moves leave a last block behind.
    __aicore__ inline void Fill(const Data& t, bool pads) {
        for (uint32_t i = 0; i < 2; ++i) {
            Zero(partial[i]);
            Zero(level[0][i]);
            Zero(level[1][i]);
        }
        Zero(delta);
        Zero(decayed);
        Zero(readKey);
        Zero(readQuery);
        if (pads) {
            Zero(state);
            Zero(product);
        }
        if constexpr (!Soc::kPaddedMoves) {
            // broadcast[8 r + i]: value r
            LocalTensor<int32_t> table = broadcast.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, PadTo(t.rows, 8), sizeof(float));
            if (pads) {
                LocalTensor<int32_t> lane = line.template ReinterpretCast<int32_t>();
                for (uint32_t i = 0; i < 16; ++i) lane.SetValue(i, int32_t(i * sizeof(float)));
                Order<HardEvent::S_V>();
            }
        }
        PipeBarrier<PIPE_V>();
    }

    // dst <- staged rows [n, pitch of rows] that moves brought in, `width` elements each, in order; pads are
    // zero. Moves without padding leave the last 16 elements of a row in its last 16 lanes.
    template <typename T, bool kTail>
    __aicore__ inline void Widen(const FloatTensor& dst, const LocalTensor<T>& staged, const Rows& rows,
                                 uint32_t width, uint32_t n) {
        if constexpr (!kTail || Soc::kPaddedMoves) {
            Convert(dst, staged, n * rows.pitch);
        } else {
            const uint32_t shift = LastBlock<T>::Shift(width), whole = LastBlock<T>::Whole(width);
            const uint32_t most = uint32_t(product.GetSize() - kLanes) / rows.pitch;
            const uint32_t batch = most < kMostRows ? most : kMostRows;
            for (uint32_t first = 0; first < n; first += batch) {
                const uint32_t some = n - first < batch ? n - first : batch, at = first * rows.pitch;
                Convert(dst[at], staged[at], some * rows.pitch);
                if (shift == 0) continue;
                Convert(product, staged[at], some * rows.pitch);
                PipeBarrier<PIPE_V>();
                for (uint32_t r = 0; r < some; ++r) {
                    AscendC::Gather(dst[at + r * rows.pitch + whole], product, line,
                                    uint32_t((r * rows.pitch + whole + shift) * sizeof(float)), uint32_t(16));
                }
                PipeBarrier<PIPE_V>();
                rows.FillPad(dst[at], width, 0.0f, some);
                PipeBarrier<PIPE_V>();
            }
        }
    }

    template <typename U>
    __aicore__ static inline void Get(AscendC::TPipe& pipe, LocalTensor<U>& tensor, Buffer& buffer,
                                      uint32_t elements) {
        pipe.InitBuffer(buffer, PadTo(elements * sizeof(U), kBlockBytes));
        tensor = buffer.template Get<U>();
    }
    __aicore__ static inline void Zero(const FloatTensor& tensor) {
        AscendC::Duplicate(tensor, 0.0f, int32_t(tensor.GetSize()));
    }

 private:
    Buffer buffers_[14], gap_;
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_WORKSPACE_H_
