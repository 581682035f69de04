// From logits to keys: scores in fp32, rows laid out for the sort unit, the bias added.
//
// A row whose scores hold a NaN has a NaN sum, whatever the chip's maximum does with NaN: `lost` is sum -
// sum, 0 for every other row.
#ifndef HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_SCORES_H_
#define HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_SCORES_H_

#include "work.h"

namespace hybrid_ops {
namespace gating {

class Scores {
 public:
    __aicore__ inline Scores(const Data& t, Work& w) : t_(t), w_(w) {}

    // bias: staged in w.flat as `slice` says.
    __aicore__ inline void Prepare(const Slice<float>* bias) {
        const uint32_t all = RoundUp(t_.pitch, kFloatLanes);
        padded_ = t_.pitch != t_.experts;
        gathers_ = padded_ && t_.groupExperts % kFloatBlock != 0;
        adds_ = t_.sigmoid != 0 ? bias != nullptr || padded_ : padded_ && t_.groups > 1;
        AscendC::Duplicate(w_.pads, kBarred, int32_t(all));
        AscendC::Duplicate(w_.bias, 0.0f, int32_t(all));
        if (padded_) {  // pads that no strided copy writes: nothing to a maximum, nothing to a sum of
                        // sigmoids
            AscendC::Duplicate(w_.spread, t_.sigmoid != 0 ? 0.0f : kBarred, int32_t(t_.tileRows * t_.pitch));
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t at = 0; at < t_.groupExperts; at += kFloatLanes) {
            const uint32_t left = t_.groupExperts - at;
            const uint8_t stride = t_.groups == 1 ? 0 : uint8_t(t_.groupPitch / kFloatBlock);
            AscendC::Duplicate(w_.pads[at], 0.0f, uint64_t(left < kFloatLanes ? left : kFloatLanes),
                               uint8_t(t_.groups), 1, stride);
        }
        PipeBarrier<PIPE_V>();
        poisoned_ = false;
        judged_ = bias == nullptr;
        if (bias != nullptr) PrepareBias(*bias);
        if (adds_) {
            AscendC::Add(w_.bias, w_.bias, w_.pads, int32_t(t_.pitch));
            PipeBarrier<PIPE_V>();
        }
    }

    // n rows in w.flat -> w.keys, w.sum, w.lost. The scores of sigmoid stay in w.flat.
    __aicore__ inline void Make(uint32_t n) {
        if (t_.sigmoid != 0) Sigmoid(n * t_.experts);
        const FloatTensor rows = padded_ ? w_.spread : w_.flat;
        if (padded_) Spread(n);
        if (t_.sigmoid == 0) {
            Exponentials(rows, n);
            SumRows(w_.keys, n);
            if (adds_) AddToRows(w_.keys, w_.keys, w_.bias, n);
        } else {
            SumRows(rows, n);
            AddToRows(w_.keys, rows, w_.bias, n);
        }
        AscendC::Sub(w_.lost, w_.sum, w_.sum, int32_t(n));
        PipeBarrier<PIPE_V>();
        SetLostRows(n);
    }

 private:
    // f(first row, rows): all at once where the distance of rows fits a call.
    template <typename F>
    __aicore__ inline void OverRows(uint32_t n, F f) const {
        if (t_.pitch / kFloatBlock <= kMostStride) {
            f(0, n);
        } else {
            for (uint32_t r = 0; r < n; ++r) f(r, 1);
        }
    }
    __aicore__ inline uint32_t Lanes(uint32_t at) const {
        return t_.pitch - at < kFloatLanes ? t_.pitch - at : kFloatLanes;
    }
    __aicore__ inline uint8_t Step() const {
        const uint32_t step = t_.pitch / kFloatBlock;
        return step <= kMostStride ? uint8_t(step) : 0;
    }

    // Byte offset, from its row, of the score at each position; pads repeat the first.
    __aicore__ inline void FillSpreadTable() {
        const IntTensor table = w_.spreadTable.ReinterpretCast<int32_t>();
        AscendC::Duplicate(table, 0, int32_t(t_.pitch));
        PipeBarrier<PIPE_V>();
        for (uint32_t g = 0; g < t_.groups; ++g) {
            AscendC::CreateVecIndex(table[g * t_.groupPitch], int32_t(g * t_.groupExperts), t_.groupExperts);
        }
        PipeBarrier<PIPE_V>();
        AscendC::Muls(table, table, int32_t(sizeof(float)), int32_t(t_.pitch));
        PipeBarrier<PIPE_V>();
    }

    // The bias within +-kMostBias: a barred expert still wins against a pad, and no sum of keys overflows.
    __aicore__ inline void PrepareBias(const Slice<float>& slice) {
        Order<HardEvent::MTE2_V>();
        const uint32_t staged = RoundUp(slice.extent, kFloatBlock), whole = RoundUp(staged, kFloatLanes);
        if (slice.extent != staged || slice.shift != 0) {
            Order<HardEvent::MTE2_S>();
            // What a padded move leaves in its last block; what stands in a repeated one.
            for (uint32_t i = slice.extent; i < staged; ++i) w_.flat.SetValue(i, 0.0f);
            for (uint32_t i = slice.whole; slice.shift != 0 && i < t_.experts; ++i)
                w_.flat.SetValue(i, w_.flat.GetValue(slice.At(i)));
            Order<HardEvent::S_V>();
        }
        if (whole != staged) {
            AscendC::Duplicate(w_.flat[staged], 0.0f, int32_t(whole - staged));
            PipeBarrier<PIPE_V>();
        }
        AscendC::Compare(w_.sound, w_.flat, w_.flat, AscendC::CMPMODE::EQ, whole);
        PipeBarrier<PIPE_V>();
        AscendC::Mins(w_.flat, w_.flat, kMostBias, int32_t(t_.experts));
        PipeBarrier<PIPE_V>();
        AscendC::Maxs(w_.flat, w_.flat, -kMostBias, int32_t(t_.experts));
        PipeBarrier<PIPE_V>();
        if (!padded_) {
            AscendC::Adds(w_.bias, w_.flat, 0.0f, int32_t(t_.experts));
        } else if (gathers_) {
            FillSpreadTable();
            AscendC::Gather(w_.bias, w_.flat, w_.spreadTable, uint32_t(0), t_.pitch);
        } else {
            CopyGroups(w_.bias, w_.flat, t_.groups);
        }
        PipeBarrier<PIPE_V>();
    }

    // exp(min(x, 0)) / (1 + exp(-|x|)): accurate on both sides of 0.
    __aicore__ inline void Sigmoid(uint32_t count) {
        const int32_t n = int32_t(count);
        const FloatTensor &x = w_.flat, &small = w_.records[0], &upper = w_.records[1];
        AscendC::Abs(small, x, n);
        AscendC::Mins(upper, x, 0.0f, n);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(small, small, -1.0f, n);
        AscendC::Exp(upper, upper, n);
        PipeBarrier<PIPE_V>();
        AscendC::Exp(small, small, n);
        PipeBarrier<PIPE_V>();
        AscendC::Adds(small, small, 1.0f, n);
        PipeBarrier<PIPE_V>();
        AscendC::Div(x, upper, small, n);
        PipeBarrier<PIPE_V>();
    }

    // `groups` groups of whole blocks, each to its place.
    __aicore__ inline void CopyGroups(const FloatTensor& dst, const FloatTensor& src, uint32_t groups) const {
        const uint32_t width = t_.groupExperts, to = t_.groupPitch / kFloatBlock;
        const uint32_t most = to > kMostStride ? 1 : kMostStride;
        for (uint32_t first = 0; first < groups; first += most) {
            const uint32_t n = groups - first < most ? groups - first : most;
            for (uint32_t at = 0; at < width; at += kFloatLanes) {
                const uint32_t lanes = width - at < kFloatLanes ? width - at : kFloatLanes;
                AscendC::Adds(dst[first * t_.groupPitch + at], src[first * width + at], 0.0f, uint64_t(lanes),
                              uint8_t(n), UnaryRepeatParams(1, 1, uint8_t(to), uint8_t(width / kFloatBlock)));
            }
        }
    }
    __aicore__ inline void Spread(uint32_t n) {
        if (gathers_) {
            FillSpreadTable();
            for (uint32_t r = 0; r < n; ++r) {
                AscendC::Gather(w_.spread[r * t_.pitch], w_.flat, w_.spreadTable,
                                uint32_t(r * t_.experts * sizeof(float)), t_.pitch);
            }
            PipeBarrier<PIPE_V>();
            if (t_.sigmoid == 0) AddToRows(w_.spread, w_.spread, w_.pads, n);
            return;
        }
        if (t_.groupSlots == t_.groups) {
            CopyGroups(w_.spread, w_.flat, n * t_.groups);
        } else {
            for (uint32_t r = 0; r < n; ++r)
                CopyGroups(w_.spread[r * t_.pitch], w_.flat[r * t_.experts], t_.groups);
        }
        PipeBarrier<PIPE_V>();
    }

    // dst[r, :] = src[r, :] + vec[:]
    __aicore__ inline void AddToRows(const FloatTensor& dst, const FloatTensor& src, const FloatTensor& vec,
                                     uint32_t n) const {
        OverRows(n, [&](uint32_t row, uint32_t rows) {
            for (uint32_t at = 0; at < t_.pitch; at += kFloatLanes) {
                const uint32_t here = row * t_.pitch + at;
                AscendC::Add(dst[here], src[here], vec[at], uint64_t(Lanes(at)), uint8_t(rows),
                             AscendC::BinaryRepeatParams(1, 1, 1, Step(), Step(), 0));
            }
        });
        PipeBarrier<PIPE_V>();
    }

    // keys = exp(src - maximum of its row)
    __aicore__ inline void Exponentials(const FloatTensor& src, uint32_t n) {
        uint32_t width;
        AscendC::Duplicate(w_.partial, kBarred, int32_t(RoundUp(n * kFloatBlock, kFloatLanes)));
        const FloatTensor maxima = Narrowed<true>(src, n, width);
        AscendC::BlockReduceMax(w_.partial, maxima, int32_t(n), int32_t(width), 1, 1,
                                int32_t(width / kFloatBlock));
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMax(w_.maximum, w_.partial, int32_t((n + 7) / 8), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        BroadcastColumn(w_.column, w_.maximum, w_.columnTable, n);
        PipeBarrier<PIPE_V>();
        OverRows(n, [&](uint32_t row, uint32_t rows) {
            for (uint32_t at = 0; at < t_.pitch; at += kFloatLanes) {
                const uint32_t here = row * t_.pitch + at;
                AscendC::Sub(w_.keys[here], src[here], w_.column[row * kFloatBlock], uint64_t(Lanes(at)),
                             uint8_t(rows), AscendC::BinaryRepeatParams(1, 1, 0, Step(), Step(), 1));
            }
        });
        PipeBarrier<PIPE_V>();
        AscendC::Exp(w_.keys, w_.keys, int32_t(n * t_.pitch));
        PipeBarrier<PIPE_V>();
    }

    // Maxima or sums of blocks, and of blocks of those, until a row fits a repeat; its width is left in
    // `width`.
    template <bool kMaximum>
    __aicore__ inline FloatTensor Narrowed(const FloatTensor& rows, uint32_t n, uint32_t& width) {
        width = t_.pitch;
        FloatTensor src = rows;
        for (uint32_t level = 0; width > kFloatLanes && width % kFloatLanes == 0; ++level) {
            const FloatTensor& dst = w_.records[level % 2];
            const int32_t repeats = int32_t(n * width / kFloatLanes);
            if constexpr (kMaximum) {
                AscendC::BlockReduceMax(dst, src, repeats, int32_t(kFloatLanes), 1, 1, 8);
            } else {
                AscendC::BlockReduceSum(dst, src, repeats, int32_t(kFloatLanes), 1, 1, 8);
            }
            PipeBarrier<PIPE_V>();
            src = dst;
            width /= kFloatBlock;
        }
        return width <= kFloatLanes ? src : Fold<kMaximum>(src, n, width);
    }
    // Lanes beyond the first 64 onto those: [n, 64].
    template <bool kMaximum>
    __aicore__ inline FloatTensor Fold(const FloatTensor& src, uint32_t n, uint32_t& width) {
        const uint8_t step = uint8_t(width / kFloatBlock);
        AscendC::Adds(w_.fold, src, 0.0f, uint64_t(kFloatLanes), uint8_t(n),
                      UnaryRepeatParams(1, 1, 8, step));
        for (uint32_t at = kFloatLanes; at < width; at += kFloatLanes) {
            const uint64_t lanes = width - at < kFloatLanes ? width - at : kFloatLanes;
            const AscendC::BinaryRepeatParams steps(1, 1, 1, 8, 8, step);
            PipeBarrier<PIPE_V>();
            if constexpr (kMaximum) {
                AscendC::Max(w_.fold, w_.fold, src[at], lanes, uint8_t(n), steps);
            } else {
                AscendC::Add(w_.fold, w_.fold, src[at], lanes, uint8_t(n), steps);
            }
        }
        PipeBarrier<PIPE_V>();
        width = kFloatLanes;
        return w_.fold;
    }
    __aicore__ inline void SumRows(const FloatTensor& src, uint32_t n) {
        uint32_t width;
        const FloatTensor sums = Narrowed<false>(src, n, width);
        AscendC::WholeReduceSum(w_.sum, sums, int32_t(width), int32_t(n), 1, 1, int32_t(width / kFloatBlock));
        PipeBarrier<PIPE_V>();
    }

    // Keys of lost rows become equal, so that the sort unit meets no NaN and the first experts are chosen.
    __aicore__ inline void SetLostRows(uint32_t n) {
        AscendC::WholeReduceSum(w_.rowFirst, w_.lost, int32_t(n), 1, 1, 1, 8);
        Order<HardEvent::V_S>();
        if (!judged_) JudgeBias();
        if (poisoned_) {
            AscendC::Duplicate(w_.lost, -kBarred + kBarred, int32_t(n));
            Order<HardEvent::V_S>();
        } else if (w_.rowFirst.GetValue(0) == 0.0f) {
            return;
        }
        for (uint32_t r = 0; r < n; ++r) {
            if (w_.lost.GetValue(r) == 0.0f) continue;
            if (padded_) {
                AscendC::Adds(w_.keys[r * t_.pitch], w_.pads, 0.0f, int32_t(t_.pitch));
            } else {
                AscendC::Duplicate(w_.keys[r * t_.pitch], 0.0f, int32_t(t_.pitch));
            }
        }
        PipeBarrier<PIPE_V>();
    }

    // Whether the bias has a NaN, which loses every row.
    __aicore__ inline void JudgeBias() {
        const LocalTensor<uint64_t> bits = w_.sound.ReinterpretCast<uint64_t>();
        for (uint32_t i = 0; i * kFloatLanes < t_.experts; ++i)
            poisoned_ = poisoned_ || bits.GetValue(i) != ~0ull;
        judged_ = true;
    }

    const Data& t_;
    Work& w_;
    bool judged_ = true;
    bool padded_ = false, gathers_ = false, adds_ = false, poisoned_ = false;
};

}  // namespace gating
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_SCORES_H_
