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
        const uint32_t pass = t_.passChannels;
        Get(pipe, weights, buffers_[0], (t_.width + 1) * pass);
        Get(pipe, wide, buffers_[1], (t_.stagedRows + t_.width - 1) * pass);
        Get(pipe, sum, buffers_[2], t_.tileRows * pass);
        Get(pipe, product_[0], buffers_[3], t_.tileRows * pass);
        Get(pipe, product_[1], buffers_[4], t_.tileRows * pass);
        if (!t_.activation) return;
        Get(pipe, minusOne_, buffers_[5], kLanes);
        AscendC::Duplicate(minusOne_, -1.0f, int32_t(kLanes));
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
        const AscendC::BinaryRepeatParams params(1, 1, 1, 8, 0, 8);
        for (uint32_t at = 0; at < n;) {
            uint32_t repeats = (n - at) / kLanes, lanes = kLanes;
            if (repeats > 255) repeats = 255;
            if (repeats == 0) {
                repeats = 1;
                lanes = n - at;
            }
            AscendC::Sub(e[at], minusOne_, e[at], uint64_t(lanes), uint8_t(repeats), params);
            at += repeats * lanes;
        }
        PipeBarrier<PIPE_V>();
        AscendC::Div(sum, sum, e, int32_t(n));
        PipeBarrier<PIPE_V>();
    }

    // The last W - 1 rows that the segment met become the first of `wide`: the next tile goes on behind them.
    __aicore__ inline void Carry(const Segment& s) {
        AscendC::Muls(wide, wide[(s.base + s.rows) * pitch_], 1.0f, int32_t((t_.width - 1) * pitch_));
    }

    const Data& t_;
    Buffer buffers_[6];
    FloatTensor product_[2], minusOne_;
    uint32_t pitch_;
};

}  // namespace conv1d
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_CAUSAL_CONV1D_TAPS_H_
