// g = -exp(A_log) * softplus(a + dt_bias) and beta = sigmoid(b), in fp32.
//
// softplus(x) = max(x, 0) + log1p(u) with u = exp(-|x|), and log1p(u) = 2 atanh(s) with s = u / (u + 2), a
// polynomial in s^2 <= 1/9: unlike ln(1 + exp(x)) it keeps its accuracy where u is small. Beyond x = 20 the
// sum rounds to x.
//
// exp(A_log) is applied as the square of h = exp(A_log / 2), h and softplus at most the largest float: no
// factor is infinite, so that none times zero is NaN, and a product in range does not pass through an
// infinite exp(A_log).
#include "hybrid_gated_delta_gate_tiling.h"

#include "common/buffers.h"
#include "common/row_copy.h"
#include "common/rows.h"

namespace hybrid_ops {
namespace gate {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;

constexpr float kLargest = 3.402823466e38f;
// -2 atanh(s) = s * polynomial(s^2), interpolated at Chebyshev points of [0, 1/9]: relative error 4e-9.
constexpr float kSeries[] = {-0.28157777f, -0.27965158f, -0.40024596f, -0.66666322f, -2.0f};
constexpr uint32_t kSeriesTerms = sizeof(kSeries) / sizeof(kSeries[0]);

template <typename T>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const HybridGatedDeltaGateTilingData& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR a, GM_ADDR b, GM_ADDR rate, GM_ADDR bias,
                                GM_ADDR g, GM_ADDR beta) {
        a_.SetGlobalBuffer((__gm__ T*)a);
        b_.SetGlobalBuffer((__gm__ T*)b);
        rateIn_.SetGlobalBuffer((__gm__ float*)rate);
        biasIn_.SetGlobalBuffer((__gm__ float*)bias);
        g_.SetGlobalBuffer((__gm__ float*)g);
        beta_.SetGlobalBuffer((__gm__ T*)beta);
        pipe.InitBuffer(aQueue_, 2, t_.tileElements * sizeof(T));
        pipe.InitBuffer(bQueue_, 2, t_.tileElements * sizeof(T));
        pipe.InitBuffer(betaQueue_, 2, t_.tileElements * sizeof(T));
        pipe.InitBuffer(gQueue_, 2, t_.tileElements * sizeof(float));
        Reserve(pipe, buffers_[0], rate_, t_.tileElements);
        Reserve(pipe, buffers_[1], bias_, t_.tileElements);
        Reserve(pipe, buffers_[2], x_, t_.tileElements);
        Reserve(pipe, buffers_[3], u_, t_.tileElements);
        Reserve(pipe, buffers_[4], square_, t_.tileElements);
        Reserve(pipe, buffers_[5], sum_, t_.tileElements);
        Reserve(pipe, buffers_[6], step_, t_.tileElements);
        Reserve(pipe, buffers_[7], headRate_, t_.heads + 2 * kFloatBlock);
        Reserve(pipe, buffers_[8], headBias_, t_.heads + 2 * kFloatBlock);
        Reserve(pipe, buffers_[9], one_, kFloatLanes);
    }

    __aicore__ inline void Process() {
        const uint64_t units = t_.elements / t_.unit, cores = AscendC::GetBlockNum(),
                       core = AscendC::GetBlockIdx();
        uint64_t at = core * units / cores * t_.unit;
        const uint64_t end = core + 1 == cores ? t_.elements : (core + 1) * units / cores * t_.unit;
        if (at == end) return;
        uint64_t ready = at;  // elements that have been asked for
        Load(ready, end);
        Prepare();
        while (at < end) {
            Load(ready, end);  // the next tile arrives while this one is worked on
            const uint32_t n = Count(at, end);
            Tile(at, n);
            at += n;
        }
    }

 private:
    // Elements of the tile at `at`; a rest that no 32-byte move could carry goes with the tile before it.
    __aicore__ inline uint32_t Count(uint64_t at, uint64_t end) const {
        const uint32_t most = Soc::kPaddedMoves ? t_.tile : t_.tile + kBlock - 1;
        return end - at <= most ? uint32_t(end - at) : t_.tile;
    }
    // Without padded moves fewer elements than a block can only be read and written one by one.
    __aicore__ inline bool Tiny() const { return !Soc::kPaddedMoves && t_.elements < kBlock; }
    // Elements in local memory, where the last block may stand once more behind the whole ones.
    __aicore__ inline uint32_t Staged(uint32_t n) const { return Tiny() ? n : LastBlock<T>::Staged(n); }

    __aicore__ inline void Load(uint64_t& at, uint64_t end) {
        if (at >= end) return;
        const uint32_t n = Count(at, end);
        LocalTensor<T> a = aQueue_.template AllocTensor<T>();
        Fetch(a, a_, at, n);
        aQueue_.EnQue(a);
        LocalTensor<T> b = bQueue_.template AllocTensor<T>();
        Fetch(b, b_, at, n);
        bQueue_.EnQue(b);
        at += n;
    }
    __aicore__ inline void Fetch(const LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, uint64_t at,
                                 uint32_t n) const {
        if (Tiny()) {
            Slice<T> slice;
            slice.Load(dst, src, 0, n, t_.elements);
        } else {
            LoadElements(dst, src[at], n);
        }
    }

    // Parameters of the heads, then vectors of them repeated over a tile.
    __aicore__ inline void Prepare() {
        Slice<float> slice;
        slice.Load(headRate_, rateIn_, 0, t_.heads, t_.heads);
        slice.Load(headBias_, biasIn_, 0, t_.heads, t_.heads);
        AscendC::Duplicate(one_, 1.0f, int32_t(kFloatLanes));
        if (slice.shift != 0) {  // the end of the heads stands in a last block
            Order<HardEvent::MTE2_S>();
            for (uint32_t i = slice.whole; i < t_.heads; ++i) {
                headRate_.SetValue(i, headRate_.GetValue(slice.At(i)));
                headBias_.SetValue(i, headBias_.GetValue(slice.At(i)));
            }
            Order<HardEvent::S_V>();
        }
        Order<HardEvent::MTE2_V>();
        AscendC::Muls(headRate_, headRate_, 0.5f, int32_t(t_.heads));
        AscendC::Muls(headBias_, headBias_, -1.0f, int32_t(t_.heads));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(headRate_, headRate_, int32_t(t_.heads));
        PipeBarrier<PIPE_V>();
        AscendC::Mins(headRate_, headRate_, kLargest, int32_t(t_.heads));
        PipeBarrier<PIPE_V>();
        uint32_t length = t_.heads;
        if (length % kFloatBlock == 0 || t_.tile <= length) {
            AscendC::Adds(rate_, headRate_, 0.0f, int32_t(length));
            AscendC::Adds(bias_, headBias_, 0.0f, int32_t(length));
        } else {
            while (length % kFloatBlock != 0) length += t_.heads;
            if (length > t_.tile) length = t_.tile;
            const LocalTensor<uint32_t> table = HeadOffsets(length);
            AscendC::Gather(rate_, headRate_, table, uint32_t(0), length);
            AscendC::Gather(bias_, headBias_, table, uint32_t(0), length);
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t done = length; done < t_.tile; done *= 2) {
            const uint32_t more = done < t_.tile - done ? done : t_.tile - done;
            AscendC::Adds(rate_[done], rate_, 0.0f, int32_t(more));
            AscendC::Adds(bias_[done], bias_, 0.0f, int32_t(more));
            PipeBarrier<PIPE_V>();
        }
    }

    // Byte offset of element i's head, i % NV * 4, for i < length.
    __aicore__ inline LocalTensor<uint32_t> HeadOffsets(uint32_t length) {
        const LocalTensor<int32_t> table = u_.template ReinterpretCast<int32_t>();
        const LocalTensor<int32_t> row = x_.template ReinterpretCast<int32_t>();
        for (uint32_t i = 0; i < kFloatBlock; ++i) table.SetValue(i, int32_t(i));
        Order<HardEvent::S_V>();
        FillTable(table, kFloatBlock, RoundUp(length, kFloatBlock) / kFloatBlock, kFloatBlock);
        // Row floor((i + 1/2) / NV); the half keeps whole quotients away from rounding.
        AscendC::Cast(square_, table, AscendC::RoundMode::CAST_NONE, length);
        PipeBarrier<PIPE_V>();
        AscendC::Adds(square_, square_, 0.5f, int32_t(length));
        PipeBarrier<PIPE_V>();
        AscendC::Muls(square_, square_, 1.0f / float(t_.heads), int32_t(length));
        PipeBarrier<PIPE_V>();
        AscendC::Cast(row, square_, AscendC::RoundMode::CAST_FLOOR, length);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(row, row, int32_t(t_.heads), int32_t(length));
        PipeBarrier<PIPE_V>();
        AscendC::Sub(table, table, row, int32_t(length));
        PipeBarrier<PIPE_V>();
        AscendC::Muls(table, table, int32_t(sizeof(float)), int32_t(length));
        PipeBarrier<PIPE_V>();
        return table.template ReinterpretCast<uint32_t>();
    }

    // Parameters of the repeated last block of a tile, the last one of the line.
    __aicore__ inline void RepeatLastBlock(uint32_t n) {
        const uint32_t whole = LastBlock<T>::Whole(n);
        Order<HardEvent::V_S>();
        for (uint32_t i = kBlock; i-- > 0;) {  // downwards: the two ranges overlap
            const uint32_t from = n - kBlock + i;
            // Element n - 1 may lie beyond the tile that the vectors were made for.
            const uint32_t known = from < t_.tile ? from : from - t_.tile;
            rate_.SetValue(whole + i, rate_.GetValue(known));
            bias_.SetValue(whole + i, bias_.GetValue(known));
        }
        Order<HardEvent::S_V>();
    }

    __aicore__ inline void Tile(uint64_t at, uint32_t n) {
        LocalTensor<T> a = aQueue_.template DeQue<T>();
        LocalTensor<T> b = bQueue_.template DeQue<T>();
        const uint32_t staged = Staged(n);
        AscendC::Cast(x_, a, AscendC::RoundMode::CAST_NONE, staged);
        AscendC::Cast(step_, b, AscendC::RoundMode::CAST_NONE, staged);
        if (staged != n) RepeatLastBlock(n);
        PipeBarrier<PIPE_V>();
        aQueue_.FreeTensor(a);
        bQueue_.FreeTensor(b);
        LocalTensor<float> g = gQueue_.template AllocTensor<float>();
        LocalTensor<T> beta = betaQueue_.template AllocTensor<T>();
        // Two chains of dependent steps side by side.
        for (uint32_t step = 0; step < kDecaySteps; ++step) {
            DecayStep(step, g, int32_t(staged));
            StepSizeStep(step, beta, staged);
            PipeBarrier<PIPE_V>();
        }
        gQueue_.EnQue(g);
        betaQueue_.EnQue(beta);
        g = gQueue_.template DeQue<float>();
        beta = betaQueue_.template DeQue<T>();
        Store(at, n, g, beta);
        gQueue_.FreeTensor(g);
        betaQueue_.FreeTensor(beta);
    }

    static constexpr uint32_t kBeforeSeries = 7, kSeriesSteps = 2 * (kSeriesTerms - 1);
    static constexpr uint32_t kDecaySteps = kBeforeSeries + kSeriesSteps + 5;

    // x_ is a; sums are kept negative, as g is.
    __aicore__ inline void DecayStep(uint32_t step, const FloatTensor& g, int32_t n) {
        if (step >= kBeforeSeries && step < kBeforeSeries + kSeriesSteps) {
            const uint32_t term = (step - kBeforeSeries + 1) / 2;
            if ((step - kBeforeSeries) % 2 != 0) {
                AscendC::Adds(sum_, sum_, kSeries[term], n);
            } else if (term == 0) {
                AscendC::Muls(sum_, square_, kSeries[0], n);
            } else {
                AscendC::Mul(sum_, sum_, square_, n);
            }
            return;
        }
        switch (step < kBeforeSeries ? step : step - kSeriesSteps) {
            case 0:
                AscendC::Sub(x_, bias_, x_, n);  // -(a + dt_bias)
                break;
            case 1:
                AscendC::Abs(u_, x_, n);
                break;
            case 2:
                AscendC::Muls(u_, u_, -1.0f, n);
                break;
            case 3:
                AscendC::Exp(u_, u_, n);
                break;
            case 4:
                AscendC::Adds(sum_, u_, 2.0f, n);
                AscendC::Mins(x_, x_, 0.0f, n);
                break;
            case 5:
                AscendC::Div(u_, u_, sum_, n);
                break;
            case 6:
                AscendC::Mul(square_, u_, u_, n);
                break;
            case 7:
                AscendC::Mul(sum_, sum_, u_, n);
                break;
            case 8:
                AscendC::Add(sum_, sum_, x_, n);
                break;
            case 9:
                AscendC::Maxs(sum_, sum_, -kLargest, n);
                break;
            case 10:
                AscendC::Mul(sum_, sum_, rate_, n);
                break;
            case 11:
                AscendC::Mul(g, sum_, rate_, n);
                break;
            default:
                break;
        }
    }

    // step_ is b.
    __aicore__ inline void StepSizeStep(uint32_t step, const LocalTensor<T>& beta, uint32_t n) {
        switch (step) {
            case 0:
                AscendC::Muls(step_, step_, -1.0f, int32_t(n));
                break;
            case 1:
                AscendC::Exp(step_, step_, int32_t(n));
                break;
            case 2:
                AscendC::Adds(step_, step_, 1.0f, int32_t(n));
                break;
            case 3:
                Invert(step_, n);
                break;
            case 4:
                AscendC::Cast(beta, step_, Soc::kNarrow, n);
                break;
            default:
                break;
        }
    }
    // Reciprocal is an approximation on these chips.
    __aicore__ inline void Invert(const FloatTensor& v, uint32_t n) const {
        const uint32_t repeats = n / kFloatLanes, rest = n % kFloatLanes;
        const AscendC::BinaryRepeatParams params(1, 1, 1, 8, 0, 8);
        if (repeats != 0) AscendC::Div(v, one_, v, uint64_t(kFloatLanes), uint8_t(repeats), params);
        if (rest != 0) {
            const FloatTensor end = v[repeats * kFloatLanes];
            AscendC::Div(end, one_, end, uint64_t(rest), 1, params);
        }
    }

    __aicore__ inline void Store(uint64_t at, uint32_t n, const FloatTensor& g, const LocalTensor<T>& beta) {
        if (Tiny()) {
            Order<HardEvent::V_S>();
            for (uint32_t i = 0; i < n; ++i) {
                g_.SetValue(i, g.GetValue(i));
                beta_.SetValue(i, beta.GetValue(i));
            }
            AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::ENTIRE_DATA_CACHE>(g_);
            AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(beta_);
            return;
        }
        StoreElements(beta_[at], beta, n);
        const uint32_t whole = LastBlock<T>::Whole(n);
        if (Soc::kPaddedMoves || whole == n) {
            StoreElements(g_[at], g, n);
            return;
        }
        // g lies as the 16-bit inputs do: its last 16 elements, two blocks of fp32, behind the whole ones.
        if (whole != 0) AscendC::DataCopy(g_[at], g, whole);
        PipeBarrier<PIPE_MTE3>();  // both moves write the elements they share
        AscendC::DataCopy(g_[at + n - kBlock], g[whole], kBlock);
    }

    const HybridGatedDeltaGateTilingData t_;
    AscendC::GlobalTensor<T> a_, b_, beta_;
    AscendC::GlobalTensor<float> rateIn_, biasIn_, g_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> aQueue_, bQueue_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> betaQueue_, gQueue_;
    Buffer buffers_[10];
    FloatTensor rate_, bias_;  // exp(A_log / 2) and -dt_bias of every element of a tile
    FloatTensor x_, u_, square_, sum_, step_;
    FloatTensor headRate_, headBias_, one_;
};

}  // namespace gate
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_gated_delta_gate(GM_ADDR a, GM_ADDR b, GM_ADDR A_log,
                                                              GM_ADDR dt_bias, GM_ADDR g, GM_ADDR beta,
                                                              GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridGatedDeltaGateTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    AscendC::TPipe pipe;
    hybrid_ops::gate::Kernel<DTYPE_A> kernel(data);
    kernel.Init(pipe, a, b, A_log, dt_bias, g, beta);
    kernel.Process();
}
