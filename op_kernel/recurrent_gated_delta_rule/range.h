// Rows a core works on, cut into groups, and the buffers that the steps of a group share.
#ifndef HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_RANGE_H_
#define HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_RANGE_H_

#include "../common/rows.h"
#include "../recurrent_gated_delta_rule_tiling.h"

namespace hybrid_ops {
namespace rgdr {

using Data = RecurrentGatedDeltaRuleTilingData;
using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;

// Rows of the flattened [NV * DV] that are worked on together.
struct Group {
    uint32_t units;     // most units of a group in this walk
    uint32_t unitsEnd;  // one past its last unit
    uint32_t row, rows;
    uint32_t value;  // offset of its values in a staged token
    bool pieced;     // its state is worked on piece by piece, as it comes and as it goes
};

class Range {
 public:
    uint32_t unitEnd, row, rows, head, heads, key, keys;  // first row, head, key head, and how many

    __aicore__ inline void Set(const Data& t, uint32_t unitBegin, uint32_t unitsEnd) {
        headUnits_ = t.headUnits;
        unitRows_ = t.unitRows;
        valueDim_ = t.valueDim;
        share_ = t.valueHeads / t.keyHeads;
        unitBegin_ = unitBegin;
        unitEnd = unitsEnd;
        row = RowOf(unitBegin);
        rows = RowOf(unitsEnd) - row;
        head = unitBegin / headUnits_;
        heads = (unitsEnd - 1) / headUnits_ - head + 1;
        key = KeyHead(head);
        keys = KeyHead(head + heads - 1) - key + 1;
    }
    __aicore__ inline uint32_t KeyHead(uint32_t valueHead) const { return valueHead / share_; }
    // Groups of at most so many units, one after the other.
    __aicore__ inline Group First(uint32_t units) const { return Make(unitBegin_, units, 0); }
    __aicore__ inline bool IsLast(const Group& g) const { return g.unitsEnd >= unitEnd; }
    __aicore__ inline Group Next(const Group& g) const {
        Group next = Make(g.unitsEnd, g.units, g.value + RoundUp(g.rows, 16));
        next.pieced = g.pieced;
        return next;
    }
    // Heads leave no remainder of a unit: rows of several heads can be worked on, and their values kept,
    // together.
    __aicore__ inline bool Even() const { return valueDim_ % unitRows_ == 0; }

 private:
    __aicore__ inline uint32_t RowOf(uint32_t unit) const {
        return unit / headUnits_ * valueDim_ + unit % headUnits_ * unitRows_;
    }
    __aicore__ inline Group Make(uint32_t unit, uint32_t units, uint32_t value) const {
        Group g;
        g.pieced = false;
        g.units = units;
        g.unitsEnd = unit + units < unitEnd ? unit + units : unitEnd;
        const uint32_t headEnd = (unit / headUnits_ + 1) * headUnits_;
        if (!Even() && g.unitsEnd > headEnd) g.unitsEnd = headEnd;
        g.row = RowOf(unit);
        g.rows = RowOf(g.unitsEnd) - g.row;
        g.value = Even() ? g.row - row : value;
        return g;
    }

    uint32_t headUnits_, unitRows_, valueDim_, share_, unitBegin_;
};

// fp32 matrices [group rows, pitch] and vectors [group rows]; what is in them when, the steps say.
struct Workspace {
    FloatTensor state, product;
    FloatTensor partial, pieceSums, levelKey[2], levelQuery[2];  // sums on their way to one value per row
    FloatTensor column[2];  // each value eight times; the first stands where `partial` does
    FloatTensor delta, readout, moved;
    LocalTensor<uint32_t> broadcast, pack, unpack, line;  // gather offsets in bytes, see Fill

    // Rows of 128 that a call reads together come from different halves of the banks: with one token a
    // sequence, Widen leaves its state in the first matrix and the new one goes to the second; keys and
    // queries are allocated next. The second column starts half a period after the first.
    __aicore__ inline void InitTiles(AscendC::TPipe& pipe, const Data& t) {
        const uint32_t sums = SumBytes(t), columns = ColumnBytes(t, Soc::kBroadcast);
        pipe.InitBuffer(buffers_[2], RoundUp(sums + columns, kBankPeriod));
        partial = buffers_[2].Get<float>();
        column[0] = partial;
        if (columns != 0) column[1] = partial[sums / sizeof(float)];
        Get(pipe, product, buffers_[0], TileBytes(t));
        pipe.InitBuffer(gap_, kBankPeriod / 2);
        Get(pipe, state, buffers_[1], TileBytes(t));
    }
    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& t, const Rows& rows, bool pads) {
        const uint32_t sums = RoundUp(t.groupRows, 8) * rows.slots, rowBytes = RowElements(t) * sizeof(float);
        if (FinePieces(t)) {
            Get(pipe, pieceSums, buffers_[14],
                (RoundUp(PieceRows(t), 8) * rows.slots * kFloatBlock + kFloatLanes) * sizeof(float));
        }
        // A second level has half as many sums at most.
        const uint32_t levelBytes[2] = {(sums + kFloatLanes) * 4, (sums / 2 + kFloatLanes) * 4};
        for (uint32_t i = 0; i < 2; ++i) {
            Get(pipe, levelKey[i], buffers_[3 + i], levelBytes[i]);
            Get(pipe, levelQuery[i], buffers_[5 + i], levelBytes[i]);
        }
        Get(pipe, delta, buffers_[7], rowBytes);
        Get(pipe, readout, buffers_[8], rowBytes);
        Get(pipe, moved, buffers_[9], kFloatLanes * sizeof(float));
        if constexpr (!Soc::kPaddedMoves) {
            Get(pipe, broadcast, buffers_[10], RoundUp(t.groupRows, 8) * kBlockBytes);
            if (!pads) return;
            Get(pipe, pack, buffers_[11], kTableRows * t.keyPitch * sizeof(uint32_t));
            Get(pipe, unpack, buffers_[12], t.keyPitch * sizeof(uint32_t));
            Get(pipe, line, buffers_[13], 16 * sizeof(uint32_t));
        }
    }

    // Lanes that no step writes, but whole repeats read, are zero from here on. `pads`: rows have lanes
    // beyond DK that must be zero, or moves leave a last block behind.
    __aicore__ inline void Fill(const Data& t, bool pads) {
        for (uint32_t i = 0; i < 2; ++i) {
            Zero(levelKey[i]);
            Zero(levelQuery[i]);
        }
        Zero(partial);
        if (FinePieces(t)) Zero(pieceSums);
        Zero(delta);
        if (pads) {
            Zero(state);
            Zero(product);
            Zero(moved);
        }
        if constexpr (!Soc::kPaddedMoves) {
            // broadcast[8 r + i]: value r
            LocalTensor<int32_t> table = broadcast.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, RoundUp(t.groupRows, 8), sizeof(float));
            if (pads) FillRepack(t);
        }
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Swap() {
        const FloatTensor old = state;
        state = product;
        product = old;
    }

    template <typename U>
    __aicore__ static inline void Get(AscendC::TPipe& pipe, LocalTensor<U>& tensor, Buffer& buffer,
                                      uint32_t bytes) {
        pipe.InitBuffer(buffer, RoundUp(bytes, kBlockBytes));
        tensor = buffer.template Get<U>();
    }
    __aicore__ static inline void Zero(const FloatTensor& tensor) {
        AscendC::Duplicate(tensor, 0.0f, int32_t(tensor.GetSize()));
    }

 private:
    // line[i], unpack[i]: element i of 16, of a row. pack[i]: element i of eight packed rows, in padded ones.
    __aicore__ inline void FillRepack(const Data& t) {
        LocalTensor<int32_t> lineOffset = line.template ReinterpretCast<int32_t>();
        LocalTensor<int32_t> rowOffset = unpack.template ReinterpretCast<int32_t>();
        LocalTensor<int32_t> packOffset = pack.template ReinterpretCast<int32_t>();
        for (uint32_t i = 0; i < 16; ++i) lineOffset.SetValue(i, int32_t(i * sizeof(float)));
        Order<HardEvent::S_V>();
        const uint32_t packed = kTableRows * t.keyDim;
        AscendC::Adds(rowOffset, lineOffset, int32_t(0), 16);
        AscendC::Adds(packOffset, lineOffset, int32_t(0), 8);
        FillTable(rowOffset, 16, t.keyPitch / 16, 16 * sizeof(float));
        FillTable(packOffset, 8, t.keyDim, 8 * sizeof(float));
        if (t.keyPitch == t.keyDim) return;
        // Byte offset 4 i moves by the pads of the floor((i + 1/2) / DK) rows before it.
        LocalTensor<int32_t> rowIndex = state.template ReinterpretCast<int32_t>();
        AscendC::Cast(product, packOffset, AscendC::RoundMode::CAST_NONE, packed);
        PipeBarrier<PIPE_V>();
        AscendC::Adds(product, product, 2.0f, int32_t(packed));
        PipeBarrier<PIPE_V>();
        AscendC::Muls(product, product, 0.25f / float(t.keyDim), int32_t(packed));
        PipeBarrier<PIPE_V>();
        AscendC::Cast(rowIndex, product, AscendC::RoundMode::CAST_FLOOR, packed);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(rowIndex, rowIndex, int32_t((t.keyPitch - t.keyDim) * sizeof(float)), int32_t(packed));
        PipeBarrier<PIPE_V>();
        AscendC::Add(packOffset, packOffset, rowIndex, int32_t(packed));
        PipeBarrier<PIPE_V>();
        Zero(state);
        Zero(product);
    }

    Buffer buffers_[15], gap_;
};

}  // namespace rgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_RANGE_H_
