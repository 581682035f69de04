// The arithmetic of a tile in fp32: taps, bias, SiLU.
#ifndef HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TAPS_H_
#define HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TAPS_H_

#include "../common/rows.h"
#include "tile.h"

namespace hybrid_ops {
namespace conv1d {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;

template <typename T>
__aicore__ inline void Get(AscendC::TPipe& pipe, LocalTensor<T>& tensor, Buffer& buffer, uint32_t elements) {
    pipe.InitBuffer(buffer, elements * sizeof(T));
    tensor = buffer.Get<T>();
}

// Sums of a tile, [rows, pitch], pitch the channels of the pass.
class Taps {
 public:
    __aicore__ inline explicit Taps(const Data& t) : t_(t) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        const Places p = PlacesOf(t_);
        FloatTensor all;
        Get(pipe, all, buffer_, p.end);
        weights = all[p.weights];
        wide = all[p.wide];
        sum = all[p.sum];
        for (uint32_t i = 0; i < 2; ++i) {
            product_[i] = all[p.product[i]];
            minusOne_[i] = all[p.minusOne[i]];
        }
        if (t_.activation) AscendC::Duplicate(minusOne_[0], -1.0f, int32_t(2 * kLanes));
    }

    // weights <- taps and bias. SiLU takes both negated: the sum is then -a, what its exponential needs.
    template <typename T>
    __aicore__ inline void SetWeights(const LocalTensor<T>& staged, uint32_t channels) {
        pitch_ = channels;
        const uint32_t n = (t_.width + (t_.hasBias ? 1 : 0)) * channels;
        PipeBarrier<PIPE_V>();
        AscendC::Cast(weights, staged, AscendC::RoundMode::CAST_NONE, n);
        PipeBarrier<PIPE_V>();
        if (t_.activation) AscendC::Muls(weights, weights, -1.0f, int32_t(n));
    }

    // sum <- y of the tile in fp32, from its rows in `wide`
    __aicore__ inline void Run(const Tile& tile) {
        const int32_t n = int32_t(tile.rows * pitch_);
        Multiply(tile, sum, 0);
        Multiply(tile, product_[1], 1);
        for (uint32_t tap = 1; tap < t_.width; ++tap) {
            PipeBarrier<PIPE_V>();
            AscendC::Add(sum, sum, product_[tap & 1], n);
            if (tap + 1 < t_.width) Multiply(tile, product_[(tap + 1) & 1], tap + 1);
        }
        PipeBarrier<PIPE_V>();
        if (t_.hasBias) {
            Apply<false>(sum, sum, t_.width, tile.rows);
            PipeBarrier<PIPE_V>();
        }
        if (t_.activation) Silu(uint32_t(n));
        if (tile.continues) Carry(tile.segments[tile.count - 1]);
    }

    FloatTensor weights, wide, sum;

 private:
    // dst rows <- rows of `wide` that the tap meets, times its weights
    __aicore__ inline void Multiply(const Tile& tile, const FloatTensor& dst, uint32_t tap) {
        for (uint32_t i = 0; i < tile.count; ++i) {
            const Segment& s = tile.segments[i];
            const FloatTensor to = dst[s.row * pitch_];
            if (s.line < 0) {
                AscendC::Duplicate(to, 0.0f, int32_t(s.rows * pitch_));
            } else {
                Apply<true>(to, wide[(s.base + tap) * pitch_], tap, s.rows);
            }
        }
    }

    // dst <- src * or + row `which` of the weights. Few rows: one call each. Many: one call per 64 channels.
    template <bool kMultiply>
    __aicore__ inline void Apply(const FloatTensor& dst, const FloatTensor& src, uint32_t which,
                                 uint32_t rows) {
        const FloatTensor factor = weights[which * pitch_];
        if (rows < (pitch_ + kLanes - 1) / kLanes) {
            for (uint32_t at = 0; at < rows * pitch_; at += pitch_) {
                if constexpr (kMultiply) {
                    AscendC::Mul(dst[at], src[at], factor, int32_t(pitch_));
                } else {
                    AscendC::Add(dst[at], src[at], factor, int32_t(pitch_));
                }
            }
            return;
        }
        const uint8_t step = uint8_t(pitch_ / kFloatBlock);
        const AscendC::BinaryRepeatParams params(1, 1, 1, step, step, 0);
        for (uint32_t at = 0; at < pitch_; at += kLanes) {
            const uint64_t lanes = pitch_ - at < kLanes ? pitch_ - at : kLanes;
            if constexpr (kMultiply) {
                AscendC::Mul(dst[at], src[at], factor[at], lanes, uint8_t(rows), params);
            } else {
                AscendC::Add(dst[at], src[at], factor[at], lanes, uint8_t(rows), params);
            }
        }
    }

    // sum <- -sum / (1 + exp(sum)): SiLU of -sum
    __aicore__ inline void Silu(uint32_t n) {
        const FloatTensor e = product_[0];
        AscendC::Exp(e, sum, int32_t(n));
        PipeBarrier<PIPE_V>();
        // Every other repeat at once: each with the constant in the other half of a period.
        const uint32_t whole = n / kLanes;
        for (uint32_t half = 0; half < 2; ++half) Complement(e, half, (whole + 1 - half) / 2, kLanes);
        if (n % kLanes != 0) Complement(e, whole, 1, n % kLanes);
        PipeBarrier<PIPE_V>();
        AscendC::Div(sum, sum, e, int32_t(n));
        PipeBarrier<PIPE_V>();
    }

    // -1 - e of every second group of 64 lanes, from group `first` on
    __aicore__ inline void Complement(const FloatTensor& e, uint32_t first, uint32_t groups, uint32_t lanes) {
        const AscendC::BinaryRepeatParams params(1, 1, 1, 16, 0, 16);
        for (uint32_t done = 0, some; done < groups; done += some) {
            some = groups - done < kMaxRows ? groups - done : kMaxRows;
            const FloatTensor at = e[(first + 2 * done) * kLanes];
            AscendC::Sub(at, minusOne_[first % 2], at, uint64_t(lanes), uint8_t(some), params);
        }
    }

    // The last W - 1 rows that the segment met become the first of `wide`: the next tile goes on behind them.
    __aicore__ inline void Carry(const Segment& s) {
        AscendC::Muls(wide, wide[(s.base + s.rows) * pitch_], 1.0f, int32_t((t_.width - 1) * pitch_));
    }

    const Data& t_;
    Buffer buffer_;
    FloatTensor product_[2], minusOne_[2];
    uint32_t pitch_;
};

}  // namespace conv1d
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TAPS_H_
