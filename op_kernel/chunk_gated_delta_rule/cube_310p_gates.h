// Gates of a chunk: from g and beta of one value head to the vectors and the matrix of decays.
//
// With G the running sum of g, decays between tokens are exp(G_i - G_j): formed as differences and cut above
// the diagonal before exp, since factors exp(G_i) exp(-G_j) overflow after a few tokens.
//
// Gates above 0 would leave fp16. With c the largest one, the chunk is computed with gates g - c and values
// exp(-c i) v_i; then out rows are too small by exp(c i) and the state by exp(64 c), see Rise.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_GATES_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_GATES_H_

#include "cube_310p_parts.h"

namespace hybrid_ops {
namespace cgdr {

class CubeGates {
 public:
    __aicore__ inline CubeGates(const Data& t, CubeWork& work) : t_(t), work_(work) {}

    // A value per token, 16 times, [64, 16].
    FloatTensor minusBeta;
    HalfTensor minusBetaHalf;
    HalfTensor toEnd, fromStart;  // exp(G_n - G), exp(G), one behind the other

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR beta, GM_ADDR g) {
        beta_.SetGlobalBuffer((__gm__ half*)beta);
        if (t_.hasGate) gate_.SetGlobalBuffer((__gm__ float*)g);
        const uint32_t staged = kChunkTokens * CubeGateHeads(t_) + 16;
        Reserve(pipe, buffers_[0], stagedGate_, staged);
        Reserve(pipe, buffers_[1], stagedBeta_, staged);
        Reserve(pipe, buffers_[2], minusBeta, 3 * kColumn);
        Reserve(pipe, buffers_[3], limit_, 8 * kFloatBlock);
        Reserve(pipe, buffers_[4], byToken_, kTokens8);
        Reserve(pipe, buffers_[5], byColumn_, kTiled);
        Reserve(pipe, buffers_[6], ramp_, kTokens8);
        start_ = minusBeta[kColumn];
        minusBetaHalf = start_[kTokens8].template ReinterpretCast<half>();
        toEnd = minusBetaHalf[kColumn];
        fromStart = toEnd[kColumn];
        flags_.Init(pipe);
        FillTables();
    }

    // Fetches the gates of a chunk, once those of the chunk before are no longer read.
    __aicore__ inline void Fetch(const Chunk& chunk) {
        const CubeItem& item = chunk.item;
        const uint32_t heads = t_.valueHeads;
        if (CubeGateHeads(t_) != heads) {
            const uint32_t first = item.head / kFractal * kFractal;
            const uint64_t at = uint64_t(chunk.token) * heads + first;
            LoadRows(stagedBeta_, beta_[at], chunk.count, kFractal, heads, kFractal);
            if (t_.hasGate) LoadRows(stagedGate_, gate_[at], chunk.count, kFractal, heads, kFractal);
            betaAt_ = gateAt_ = item.head - first;
            arrived_ = flags_.Raise();
            return;
        }
        const uint64_t first = uint64_t(chunk.token) * heads, total = uint64_t(t_.tokens) * heads;
        betaAt_ = item.head + LoadStretch(stagedBeta_, beta_, first, chunk.count * heads, total);
        if (t_.hasGate) {
            gateAt_ = item.head + LoadStretch(stagedGate_, gate_, first, chunk.count * heads, total);
        }
        arrived_ = flags_.Raise();
    }

    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        flags_.Take(arrived_);
        flags_.Release(pipe);
    }

    // Of what was fetched last, sums and rise for Spread, in square[1], in levels each of which waits for the
    // one before. They stand beside other vector work, so that one barrier serves both; Spoil says that
    // something else has used square[1].
    __aicore__ inline void Begin(const Chunk& chunk) {
        count_ = chunk.count;
        level_ = 0;
        spoilt_ = false;
    }
    // One level, between two barriers of the caller.
    __aicore__ inline void Next() {
        if (level_ >= kLevels) return;
        Level();
        ++level_;
    }
    // All levels that are left, or once more.
    __aicore__ inline void Complete(const Chunk& chunk) {
        if (spoilt_) Begin(chunk);
        PipeBarrier<PIPE_V>();
        while (level_ < kLevels) {
            Next();
            PipeBarrier<PIPE_V>();
        }
        spoilt_ = true;
    }
    __aicore__ inline void Spoil() { spoilt_ = true; }
    // work.decay, all vectors and the chunk's decay, rise and swell, from what the levels left.
    __aicore__ inline void Spread(CubePrepared& prepared) {
        const FloatTensor sum = Total(), last = sum[kTokens8 - kFloatBlock], wide = Wide(), rows = Rows();
        const FloatTensor columns = wide[kColumn + kFractal], start = work_.square[1];
        AscendC::Gather(columns, sum, byColumn_, uint32_t(0), kTiled);
        AscendC::Exp(prepared.whole, last, int32_t(kFloatBlock));
        AscendC::Adds(prepared.rise, Limited(), 0.0f, int32_t(kFloatBlock));
        AscendC::Adds(prepared.swell, Swelling(), 0.0f, int32_t(kFloatBlock));
        Widen(minusBeta, Beta(), -1.0f);
        AscendC::Exp(start_, sum, int32_t(kTokens8));
        Widen(rows, sum, 1.0f);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(minusBetaHalf, minusBeta, AscendC::RoundMode::CAST_NONE, kColumn);
        for (uint32_t c = 0; c < 4; ++c) {
            AscendC::Sub(Below(c), rows[c * kFractalElements], columns[c * kFloatLanes],
                         uint64_t(kFloatLanes), uint8_t(16 - 4 * c),
                         AscendC::BinaryRepeatParams(1, 1, 1, 8, 8, 0));
        }
        PipeBarrier<PIPE_V>();
        Diagonal<OnDiagonal::kMin>(work_.decay, limit_);
        AscendC::Mins(work_.decay[kFloatBlock], work_.decay[kFloatBlock], kNever, uint64_t(kFloatLanes),
                      uint8_t(4), AscendC::UnaryRepeatParams(2, 2, kDiagonalStep, kDiagonalStep));
        AscendC::Sub(wide, last, rows, uint64_t(kFloatLanes), uint8_t(kColumn / kFloatLanes),
                     AscendC::BinaryRepeatParams(1, 0, 1, 8, 0, 8));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(start, rows, int32_t(kColumn));
        AscendC::Exp(wide, wide, int32_t(kColumn));
        for (uint32_t c = 0; c < 4; ++c) {
            AscendC::Exp(Below(c), Below(c), int32_t(kColumn - c * kFractalElements));
        }
        PipeBarrier<PIPE_V>();
        AscendC::Cast(toEnd, wide, AscendC::RoundMode::CAST_NONE, kColumn);
        AscendC::Cast(fromStart, start, AscendC::RoundMode::CAST_NONE, kColumn);
        PipeBarrier<PIPE_V>();
    }
    // The first token of the chunk that knows nothing of the state before it, at most `count`; the scalar
    // unit has awaited Spread.
    __aicore__ inline uint32_t FirstForgetting(uint32_t count) const {
        uint32_t known = 0, forgotten = count;  // exp(G) only falls
        while (known < forgotten) {
            const uint32_t middle = (known + forgotten) / 2;
            if (start_.GetValue(middle * kFloatBlock) == 0.0f) {
                forgotten = middle;
            } else {
                known = middle + 1;
            }
        }
        return forgotten;
    }

    // exp(rise i) of row i, counted from 1, in a column [64, 16]. Uses square[1].
    __aicore__ inline FloatTensor Rise(float rise) {
        Spoil();
        const FloatTensor powers = work_.square[1], column = powers[kTokens8];
        PipeBarrier<PIPE_V>();
        AscendC::Muls(powers, ramp_, rise, int32_t(kTokens8));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(powers, powers, int32_t(kTokens8));
        PipeBarrier<PIPE_V>();
        Widen(column, powers, 1.0f);
        PipeBarrier<PIPE_V>();
        return column;
    }

 private:
    // Sums of it stay finite, exp of it is 0 in fp32: a token of -inf forgets the state.
    static constexpr float kLeastGate = -110.0f;
    static constexpr float kNever = -1e30f;    // exp of it is 0
    static constexpr float kMostRise = 1.25f;  // exp of 64 times it is finite
    static constexpr uint32_t kTokens8 = kChunkTokens * kFloatBlock;
    static constexpr uint32_t kAhead = kTokens8 / 2;
    static constexpr uint32_t kTiled = kChunkTokens * 4;

    // Parts of square[1]: two halves of a ring [64, 8], 32 rows of zeros ahead of each; G, the first of them
    // at the end; [64, 16] twice, the latter with the largest gate, rise and swell in front, beta [64, 8]
    // behind.
    static constexpr uint32_t kRing[2] = {kAhead, 2 * kAhead + kTokens8};
    __aicore__ inline FloatTensor Total() const { return work_.square[1][kRing[0]]; }
    __aicore__ inline FloatTensor Wide() const { return work_.square[1][2 * (kAhead + kTokens8)]; }
    __aicore__ inline FloatTensor Rows() const { return work_.square[1][kSquare - kColumn]; }
    __aicore__ inline FloatTensor Beta() const { return Rows()[kColumn - kTokens8]; }
    __aicore__ inline FloatTensor Limited() const { return Rows()[kTokens8 - 2 * kFloatBlock]; }
    __aicore__ inline FloatTensor Swelling() const { return Rows()[kTokens8 - kFloatBlock]; }

    static constexpr uint32_t kDoublings = 6;  // of the rows summed, up to a chunk
    static constexpr uint32_t kLevels = kDoublings + 7;
    __aicore__ inline void Level() {
        const FloatTensor scratch = work_.square[1], wide = Wide(), peak = Rows();
        if (level_ == 0) {
            flags_.Take(arrived_);
            AscendC::Cast(wide, stagedBeta_, AscendC::RoundMode::CAST_NONE,
                          kChunkTokens * CubeGateHeads(t_) + 16);
            AscendC::Duplicate(scratch, 0.0f, int32_t(kAhead));
            AscendC::Duplicate(scratch[kAhead + kTokens8], 0.0f, int32_t(kAhead));
        } else if (level_ == 1) {
            Pick(Beta(), wide, betaAt_, count_);
            if (t_.hasGate) {
                Pick(Total(), stagedGate_, gateAt_, count_);
            } else {
                AscendC::Duplicate(Total(), 0.0f, int32_t(kTokens8));
            }
        } else if (level_ == 2) {
            AscendC::Maxs(Total(), Total(), kLeastGate, int32_t(kTokens8));
        } else if (level_ < 3 + kDoublings) {
            // Adds what stands 1, 2, 4 ... tokens ahead, and halves the search for the largest gate.
            const uint32_t i = level_ - 3, left = kTokens8 / 2 >> i, now = i & 1;
            const FloatTensor searched = i == 0 ? Total() : peak;
            AscendC::Max(peak, searched, searched[left], int32_t(left));
            AscendC::Add(scratch[kRing[now ^ 1]], scratch[kRing[now]],
                         scratch[kRing[now] - (kFloatBlock << i)], int32_t(kTokens8));
        } else if (level_ == 3 + kDoublings) {
            AscendC::Mins(Limited(), peak, kMostRise, int32_t(kFloatBlock));
        } else if (level_ == 4 + kDoublings) {
            AscendC::Maxs(Limited(), Limited(), 0.0f, int32_t(kFloatBlock));
        } else if (level_ == 5 + kDoublings) {
            AscendC::Mul(wide, ramp_, Limited(), uint64_t(kFloatLanes), uint8_t(kTokens8 / kFloatLanes),
                         AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
        } else {
            AscendC::Sub(Total(), Total(), wide, int32_t(kTokens8));
            AscendC::Exp(Swelling(), wide[kTokens8 - kFloatBlock], int32_t(kFloatBlock));
        }
    }
    // The part of column c of the decays' fractals that is not above the diagonal's fractals.
    __aicore__ inline FloatTensor Below(uint32_t c) const {
        return work_.decay[c * (kColumn + kFractalElements)];
    }
    // dst [64, 8] <- element `at` of every row of src, eight times; rows from `count` on are zero
    __aicore__ inline void Pick(const FloatTensor& dst, const FloatTensor& src, uint32_t at, uint32_t count) {
        AscendC::Gather(dst, src, byToken_, uint32_t(at * sizeof(float)), count * kFloatBlock);
        if (count == kChunkTokens) return;
        AscendC::Duplicate(dst[count * kFloatBlock], 0.0f, int32_t(kTokens8 - count * kFloatBlock));
    }
    // dst [64, 16] <- factor * src [64, 8]
    __aicore__ inline void Widen(const FloatTensor& dst, const FloatTensor& src, float factor) {
        for (uint32_t i = 0; i < kFractal; i += kFloatBlock) {
            AscendC::Muls(dst[i], src, factor, uint64_t(kFloatLanes), uint8_t(kTokens8 / kFloatLanes),
                          AscendC::UnaryRepeatParams(2, 1, 16, 8));
        }
    }
    // dst <- n elements from `first` on and up to a block more; returns where the first one stands.
    template <typename T>
    __aicore__ inline uint32_t LoadStretch(const LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                           uint64_t first, uint32_t n, uint64_t total) {
        constexpr uint32_t kBlock = LastBlock<T>::kBlock;
        const uint32_t rounded = RoundUp(n, kBlock);
        if (rounded <= total) {
            const uint64_t start = first + rounded <= total ? first : total - rounded;
            AscendC::DataCopy(dst, src[start], AscendC::DataCopyParams(1, uint16_t(rounded / kBlock), 0, 0));
            return uint32_t(first - start);
        }
        // The tensor ends inside a block and is hardly longer than the chunk.
        const uint32_t copied = n / kBlock * kBlock;
        if (copied != 0) {
            AscendC::DataCopy(dst, src[first], AscendC::DataCopyParams(1, uint16_t(copied / kBlock), 0, 0));
        }
        Order<HardEvent::V_S>();
        for (uint32_t i = copied; i < n; ++i) dst.SetValue(i, src.GetValue(first + i));
        Order<HardEvent::S_V>();
        return 0;
    }

    __aicore__ inline void FillTables() {
        AscendC::Duplicate(work_.decay, 0.0f, int32_t(kSquare));
        AscendC::Duplicate(stagedGate_, 0.0f, int32_t(stagedGate_.GetSize()));
        AscendC::Duplicate(stagedBeta_, half(0), int32_t(stagedBeta_.GetSize()));
        const LocalTensor<int32_t> byToken = byToken_.template ReinterpretCast<int32_t>();
        const LocalTensor<int32_t> byColumn = byColumn_.template ReinterpretCast<int32_t>();
        AscendC::Duplicate(byToken, int32_t(0), int32_t(kFloatBlock));
        FillTable(byToken, kFloatBlock, kChunkTokens, int32_t(CubeGateHeads(t_) * sizeof(float)));
        for (uint32_t i = 0; i < kFractal; ++i) byColumn.SetValue(i, int32_t(i * kBlockBytes));
        FillBlock(limit_, 3e38f, 3e38f, kNever);
        AscendC::Duplicate(ramp_, 1.0f, int32_t(kTokens8));
        for (uint32_t rows = 1; rows < kChunkTokens; rows *= 2) {
            PipeBarrier<PIPE_V>();
            AscendC::Adds(ramp_[rows * kFloatBlock], ramp_, float(rows), int32_t(rows * kFloatBlock));
        }
        Order<HardEvent::S_V>();
        FillTable(byColumn, kFractal, 4, 0);
        FillTable(byColumn, kFloatLanes, 4, int32_t(kFractal * kBlockBytes));
        Order<HardEvent::V_MTE2>();  // the first Fetch
    }

    const Data& t_;
    CubeWork& work_;
    AscendC::GlobalTensor<half> beta_;
    AscendC::GlobalTensor<float> gate_;
    FloatTensor start_;                      // exp(G) [64, 8]
    FloatTensor stagedGate_, limit_, ramp_;  // ramp: the number of the row, from 1
    HalfTensor stagedBeta_;
    LocalTensor<uint32_t> byToken_, byColumn_;  // gather offsets, in bytes
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffers_[7];
    FlagPool<HardEvent::MTE2_V> flags_;
    uint32_t arrived_ = kNoFlag;
    uint32_t betaAt_ = 0, gateAt_ = 0;
    uint32_t count_ = 0, level_ = 0;  // of the chunk being summed: tokens, next level
    bool spoilt_ = true;              // what the levels left is gone
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_GATES_H_
