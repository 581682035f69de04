// out = x / sqrt(mean(x^2) + eps) * weight * silu(z) per row, in fp32 with one rounding at the end.
//
// Two chains of dependent vector steps, the statistics of the rows and the gate, run side by side between the
// same barriers: a decode step is short enough for latencies to matter.
#include "hybrid_gated_rms_norm_tiling.h"

#include "common/buffers.h"
#include "common/rows.h"

namespace hybrid_ops {
namespace gated_norm {

using AscendC::LocalTensor;
using AscendC::PipeBarrier;

constexpr float kLargest = 3.402823466e38f;

// Beyond +-kBound values count as kBound: an fp16 row that overflowed where it was made keeps its direction
// instead of turning into inf * 0. With 2^59 the squares of 512 bf16 values still add up in fp32.
template <typename T>
struct Saturation {
    static constexpr float kBound = 576460752303423488.0f;
};
template <>
struct Saturation<half> {
    static constexpr float kBound = 65504.0f;
};

template <typename T, typename WeightT>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const HybridGatedRmsNormTilingData& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR x, GM_ADDR z, GM_ADDR weight, GM_ADDR out) {
        x_.SetGlobalBuffer((__gm__ T*)x);
        z_.SetGlobalBuffer((__gm__ T*)z);
        weightIn_.SetGlobalBuffer((__gm__ WeightT*)weight);
        out_.SetGlobalBuffer((__gm__ T*)out);
        rows_.Init(t_.dim);
        const uint32_t elements = t_.tileRows * t_.dim,
                       sums = hybrid_ops::RoundUp(t_.tileRows, 8) * rows_.slots;
        pipe.InitBuffer(xQueue_, 2, elements * sizeof(T));
        pipe.InitBuffer(zQueue_, 2, elements * sizeof(T));
        pipe.InitBuffer(outQueue_, 2, elements * sizeof(T));
        pipe.InitBuffer(weightQueue_, 1, t_.dim * sizeof(WeightT));
        // The gate and the weight are half a period of the banks off what they are multiplied with.
        const uint32_t periods = hybrid_ops::RoundUp(elements, kBankPeriod);
        Reserve(pipe, buffers_[0], wide_, periods + kBankPeriod / 2);
        Reserve(pipe, buffers_[1], gate_, periods);
        Reserve(pipe, buffers_[7], weight_, hybrid_ops::RoundUp(t_.dim, kBankPeriod));
        Reserve(pipe, buffers_[2], square_, elements);
        Reserve(pipe, buffers_[3], partial_, sums * kFloatBlock + kFloatLanes);
        Reserve(pipe, buffers_[4], level_[0], sums + kFloatLanes);
        Reserve(pipe, buffers_[5], level_[1], sums / 2 + kFloatLanes);
        Reserve(pipe, buffers_[6], column_, hybrid_ops::RoundUp(t_.tileRows, 8) * kFloatBlock);
        Reserve(pipe, buffers_[8], one_, hybrid_ops::RoundUp(t_.tileRows, 8));
        if constexpr (!Soc::kBroadcast) {
            Reserve(pipe, buffers_[9], broadcast_, hybrid_ops::RoundUp(t_.tileRows, 8) * kFloatBlock);
        }
    }

    __aicore__ inline void Process() {
        const uint32_t cores = AscendC::GetBlockNum(), core = AscendC::GetBlockIdx();
        const uint32_t begin = uint64_t(core) * t_.rows / cores, end = uint64_t(core + 1) * t_.rows / cores;
        if (begin == end) return;
        uint32_t ready = begin;  // rows that have been asked for
        Load(ready, end);
        Prepare();
        for (uint32_t row = begin; row < end; row += t_.tileRows) {
            Load(ready, end);  // the next tile arrives while this one is worked on
            Tile(row, Count(row, end));
        }
    }

 private:
    __aicore__ inline uint32_t Count(uint32_t row, uint32_t end) const {
        return end - row < t_.tileRows ? end - row : t_.tileRows;
    }
    __aicore__ inline uint64_t At(uint32_t row) const { return uint64_t(row) * t_.dim; }

    __aicore__ inline void Load(uint32_t& row, uint32_t end) {
        if (row >= end) return;
        const uint32_t n = Count(row, end) * t_.dim;
        LocalTensor<T> x = xQueue_.template AllocTensor<T>();
        AscendC::DataCopy(x, x_[At(row)], n);
        xQueue_.EnQue(x);
        LocalTensor<T> z = zQueue_.template AllocTensor<T>();
        AscendC::DataCopy(z, z_[At(row)], n);
        zQueue_.EnQue(z);
        row += t_.tileRows;
    }

    // Weight in fp32; lanes that no step writes but whole repeats read are zero from here on.
    __aicore__ inline void Prepare() {
        LocalTensor<WeightT> weight = weightQueue_.template AllocTensor<WeightT>();
        AscendC::DataCopy(weight, weightIn_, t_.dim);
        weightQueue_.EnQue(weight);
        AscendC::Duplicate(partial_, 0.0f, int32_t(partial_.GetSize()));
        AscendC::Duplicate(level_[0], 0.0f, int32_t(level_[0].GetSize()));
        AscendC::Duplicate(level_[1], 0.0f, int32_t(level_[1].GetSize()));
        AscendC::Duplicate(one_, 1.0f, int32_t(one_.GetSize()));
        if constexpr (!Soc::kBroadcast) {
            LocalTensor<int32_t> table = broadcast_.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, hybrid_ops::RoundUp(t_.tileRows, 8), sizeof(float));
        }
        weight = weightQueue_.template DeQue<WeightT>();
        Convert(weight_, weight, t_.dim);
        PipeBarrier<PIPE_V>();
        weightQueue_.FreeTensor(weight);
    }

    __aicore__ inline void Tile(uint32_t row, uint32_t rows) {
        const uint32_t n = rows * t_.dim;
        LocalTensor<T> x = xQueue_.template DeQue<T>();
        LocalTensor<T> z = zQueue_.template DeQue<T>();
        Widen(x, z, n);
        xQueue_.FreeTensor(x);
        zQueue_.FreeTensor(z);
        AscendC::Mul(square_, wide_, wide_, int32_t(n));
        PipeBarrier<PIPE_V>();
        rows_.SumBlocks(partial_, square_, rows);
        AscendC::Mul(wide_, wide_, gate_, int32_t(n));
        PipeBarrier<PIPE_V>();
        const uint32_t steps = rows_.levels + kRootSteps;
        for (uint32_t step = 0; step < steps; ++step) {
            Statistics(step, rows);
            Gate(step, n);
            PipeBarrier<PIPE_V>();
        }
        BroadcastColumn(column_, root_, broadcast_, rows);
        PipeBarrier<PIPE_V>();
        for (uint32_t c = 0; c < rows_.chunks; ++c) {
            const uint32_t at = c * kFloatLanes;
            const uint8_t pitch = static_cast<uint8_t>(rows_.blocks);
            AscendC::Mul(wide_[at], wide_[at], column_, uint64_t(rows_.Lanes(c)), uint8_t(rows),
                         AscendC::BinaryRepeatParams(1, 1, 0, pitch, pitch, 1));
        }
        PipeBarrier<PIPE_V>();
        rows_.Scale(wide_, wide_, weight_, rows);
        PipeBarrier<PIPE_V>();
        LocalTensor<T> out = outQueue_.template AllocTensor<T>();
        AscendC::Cast(out, wide_, Soc::kNarrow, n);
        outQueue_.EnQue(out);
        out = outQueue_.template DeQue<T>();
        AscendC::DataCopy(out_[At(row)], out, n);
        outQueue_.FreeTensor(out);
    }

    // Saturated values in fp32. fp16 is clamped before it is widened, at half the cost; bf16 has no such
    // call.
    __aicore__ inline void Widen(const LocalTensor<T>& x, const LocalTensor<T>& z, uint32_t n) {
        if constexpr (AscendC::IsSameType<T, half>::value) {
            Clamp(x, z, n);
        }
        AscendC::Cast(wide_, x, AscendC::RoundMode::CAST_NONE, n);
        AscendC::Cast(gate_, z, AscendC::RoundMode::CAST_NONE, n);
        PipeBarrier<PIPE_V>();
        if constexpr (!AscendC::IsSameType<T, half>::value) {
            Clamp(wide_, gate_, n);
        }
    }
    template <typename U>
    __aicore__ static inline void Clamp(const LocalTensor<U>& x, const LocalTensor<U>& z, uint32_t n) {
        const U bound = static_cast<U>(Saturation<T>::kBound), least = static_cast<U>(-Saturation<T>::kBound);
        AscendC::Mins(x, x, bound, int32_t(n));
        AscendC::Mins(z, z, bound, int32_t(n));
        PipeBarrier<PIPE_V>();
        AscendC::Maxs(x, x, least, int32_t(n));
        AscendC::Maxs(z, z, least, int32_t(n));
        PipeBarrier<PIPE_V>();
    }

    static constexpr uint32_t kRootSteps = 5;

    // From sums of eight lanes to root_[row] = 1 / sqrt(mean + eps).
    __aicore__ inline void Statistics(uint32_t step, uint32_t rows) {
        if (step < rows_.levels) {
            root_ = level_[step % 2];
            rows_.SumLevel(step, root_, step == 0 ? partial_ : level_[(step + 1) % 2], rows);
            return;
        }
        switch (step - rows_.levels) {
            case 0:
                AscendC::Muls(root_, root_, 1.0f / float(t_.dim), int32_t(rows));
                break;
            case 1:
                AscendC::Adds(root_, root_, t_.eps, int32_t(rows));
                break;
            case 2:
                AscendC::Sqrt(root_, root_, int32_t(rows));
                break;
            case 3:  // Rsqrt is an approximation on these chips
                AscendC::Div(root_, one_, root_, int32_t(rows));
                break;
            default:  // a row of zeros with eps 0: 0 * largest is 0, 0 * inf is not
                AscendC::Mins(root_, root_, kLargest, int32_t(rows));
        }
    }

    // wide_ <- wide_ / (1 + exp(-gate_)) in four steps
    __aicore__ inline void Gate(uint32_t step, uint32_t n) {
        switch (step) {
            case 0:
                AscendC::Muls(gate_, gate_, -1.0f, int32_t(n));
                break;
            case 1:
                AscendC::Exp(gate_, gate_, int32_t(n));
                break;
            case 2:
                AscendC::Adds(gate_, gate_, 1.0f, int32_t(n));
                break;
            case 3:
                AscendC::Div(wide_, wide_, gate_, int32_t(n));
                break;
            default:
                break;
        }
    }

    const HybridGatedRmsNormTilingData t_;
    Rows rows_;
    AscendC::GlobalTensor<T> x_, z_, out_;
    AscendC::GlobalTensor<WeightT> weightIn_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> xQueue_, zQueue_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> weightQueue_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> outQueue_;
    Buffer buffers_[10];
    FloatTensor wide_, gate_, square_, partial_, level_[2], column_, weight_, one_, root_;
    LocalTensor<uint32_t> broadcast_;  // byte offsets of a gather
};

}  // namespace gated_norm
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_gated_rms_norm(GM_ADDR x, GM_ADDR z, GM_ADDR weight, GM_ADDR out,
                                                            GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridGatedRmsNormTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    AscendC::TPipe pipe;
    hybrid_ops::gated_norm::Kernel<DTYPE_X, DTYPE_WEIGHT> kernel(data);
    kernel.Init(pipe, x, z, weight, out);
    kernel.Process();
}
