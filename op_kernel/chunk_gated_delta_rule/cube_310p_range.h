// Values and states that fp16 could not take as they are.
//
// States, K S and U are rounded to fp16 as they are while a bound on the rows of S and on U says that they
// fit. A chunk of which it does not say so is passed with states and values divided by kGrow: a state of
// 65504 in every element, read with a unit key of 256, then just stays within fp16. Always dividing would
// cost the digits of small data.
//
// fp16 saturates, so rows of S^T with an element that is not finite are passed as zeros, and everything that
// they reach, up to the first token that forgets the state, is NaN.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_RANGE_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_RANGE_H_

#include "cube_310p_parts.h"

namespace hybrid_ops {
namespace cgdr {

class CubeRange {
 public:
    static constexpr float kGrow = 16.0f;

    __aicore__ inline CubeRange(const Data& t, CubeWork& work) : t_(t), work_(work) {}

    // A sequence starts with the state of these elements; they are overwritten.
    __aicore__ inline void Start(const HalfTensor& state, uint32_t elements) {
        // As integers, which order what is not finite above the rest.
        const LocalTensor<int16_t> bits = state.template ReinterpretCast<int16_t>();
        AscendC::Abs(state, state, int32_t(elements));
        Fold(bits, elements, kFractal);
        Order<HardEvent::V_S>();
        uint32_t most = 0;
        for (uint32_t i = 1; i < kFractal; ++i) {
            if (bits.GetValue(i) > bits.GetValue(most)) most = i;
        }
        bound_ = bits.GetValue(most) < kInfinity ? kRowElements * float(state.GetValue(most)) : kEndless;
        Order<HardEvent::S_V>();
    }
    // Where the values of the next chunk go, and their largest one, for which the scalar unit waits at
    __aicore__ inline HalfTensor Values() const { return work_.landing.template ReinterpretCast<half>(); }
    // prepared.known. beside.Next() is other vector work.
    template <typename Beside>
    __aicore__ inline void Measure(CubePrepared& prepared, uint32_t columns, Beside& beside) {
        const HalfTensor values = Values();
        uint32_t n = kChunkTokens * columns;
        AscendC::Abs(values, values, int32_t(n));
        while (n > 2 * kFloatLanes) {
            PipeBarrier<PIPE_V>();
            n = Halve(values, n);
            beside.Next();
        }
        PipeBarrier<PIPE_V>();
        AscendC::WholeReduceMax(prepared.peak, values, int32_t(n), 1, 1, 1, 8);
        prepared.known = work_.known.Raise();
    }

    // Whether the chunk has to be passed by way of Shrink and Restore; the state takes it.
    __aicore__ inline bool Large(const CubePrepared& chunk) {
        const float most = bound_ + kChunkTokens * chunk.values;  // unit keys, beta at most 1
        const bool large = !(most < kMost) || chunk.growth != 0.0f;
        bound_ = chunk.kept == 0.0f ? 0.0f : bound_ * chunk.kept;
        bound_ += kChunkTokens * chunk.values;
        if (chunk.growth != 0.0f) bound_ = kMost;
        return large;
    }
    // state and values of the chunk under way, divided
    __aicore__ inline void Shrink(CubeTile& values, const CubePrepared& chunk, uint32_t columns) {
        FindSpoilt(columns);
        AscendC::Muls(work_.state, work_.state, 1.0f / kGrow, int32_t(columns * t_.keyDim));
        const uint32_t elements = kChunkTokens * columns;
        Order<HardEvent::V_MTE1>();
        work_.cube.Unload(Values(), values, elements);
        Order<HardEvent::MTE1_V>();
        AscendC::Muls(Values(), Values(), half(1.0f / kGrow), int32_t(elements));
        work_.cube.Fill(values, Values(), elements);
        Order<HardEvent::MTE3_V>();
    }
    // The state after the chunk.
    __aicore__ inline void Restore(const CubePrepared& chunk, uint32_t columns) {
        PipeBarrier<PIPE_V>();
        AscendC::Muls(work_.state, work_.state, kGrow, int32_t(columns * t_.keyDim));
        PipeBarrier<PIPE_V>();
        if (!anySpoilt_ || chunk.kept == 0.0f) return;
        FillSpoilt(Nan(), columns);
        bound_ = kEndless;
        PipeBarrier<PIPE_V>();
    }
    // rows [64, columns] of out, up to the token that forgets
    __aicore__ inline void Spoil(const HalfTensor& rows, uint32_t tokens, uint32_t columns) const {
        if (!anySpoilt_) return;
        Order<HardEvent::V_S>();
        for (uint32_t c = 0; c < columns; ++c) {
            if (!Spoilt(c)) continue;
            for (uint32_t i = 0; i < tokens; ++i) {
                rows.template ReinterpretCast<uint16_t>().SetValue(i * columns + c, uint16_t(0x7e00));
            }
        }
        Order<HardEvent::S_V>();
        Order<HardEvent::S_MTE3>();
    }

 private:
    static constexpr float kMost = 32768.0f;  // half of what fp16 takes
    static constexpr float kEndless = 1e38f;
    static constexpr int16_t kInfinity = 0x7c00;  // its bits in fp16
    static constexpr float kRowElements = 16.0f;  // norm of a row of 256 elements over its largest one

    __aicore__ inline bool Spoilt(uint32_t column) const {
        return (spoilt_[column / 32] >> column % 32 & 1) != 0;
    }
    __aicore__ static inline float Nan() {
        const uint32_t bits = 0x7fc00000;
        return *reinterpret_cast<const float*>(&bits);
    }
    // The largest of n elements, a multiple of 16, is among the first ones, at most `most`.
    template <typename T>
    __aicore__ inline void Fold(const LocalTensor<T>& x, uint32_t n, uint32_t most) const {
        while (n > most) {
            PipeBarrier<PIPE_V>();
            n = Halve(x, n);
        }
    }
    template <typename T>
    __aicore__ inline uint32_t Halve(const LocalTensor<T>& x, uint32_t n) const {
        const uint32_t front = RoundUp(n / 2, kFractal);
        AscendC::Max(x, x, x[front], int32_t(n - front));
        return front;
    }
    // Rows of S^T that are not finite, which turn 0.
    __aicore__ inline void FindSpoilt(uint32_t columns) {
        const uint32_t column = columns * kFractal;
        const FloatTensor sums = work_.landing, totals = work_.square[1];
        PipeBarrier<PIPE_V>();
        AscendC::Muls(sums, work_.state, 0.0f, int32_t(column));
        for (uint32_t c = kFractal; c < t_.keyDim; c += kFractal) {
            PipeBarrier<PIPE_V>();
            AscendC::Axpy(sums, work_.state[c * columns], 0.0f, int32_t(column));
        }
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(totals, sums, int32_t(column / kFloatLanes), int32_t(kFloatLanes), 1, 1, 8);
        Order<HardEvent::V_S>();
        anySpoilt_ = false;
        for (uint32_t i = 0; i < 4; ++i) spoilt_[i] = 0;
        for (uint32_t c = 0; c < columns; ++c) {
            // Zero, or NaN where something was not finite.
            if (totals.GetValue(2 * c) == 0.0f && totals.GetValue(2 * c + 1) == 0.0f) continue;
            spoilt_[c / 32] |= 1u << c % 32;
            anySpoilt_ = true;
        }
        Order<HardEvent::S_V>();
        FillSpoilt(0.0f, columns);
        PipeBarrier<PIPE_V>();
    }
    __aicore__ inline void FillSpoilt(float value, uint32_t columns) const {
        if (!anySpoilt_) return;
        for (uint32_t c = 0; c < columns; ++c) {
            if (!Spoilt(c)) continue;
            for (uint32_t k = 0; k < t_.keyDim; k += kFractal) {
                AscendC::Duplicate(work_.state[k * columns + c * kFractal], value, int32_t(kFractal));
            }
        }
    }

    const Data& t_;
    CubeWork& work_;
    float bound_ = 0.0f;  // on the norm of the state's rows
    bool anySpoilt_ = false;
    uint32_t spoilt_[4] = {0, 0, 0, 0};
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_RANGE_H_
