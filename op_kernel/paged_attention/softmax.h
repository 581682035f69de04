// The vector unit's part of paged attention for one block of at most eight heads and tiles of at most 64
// slots, all in fp32: products of query and key, online softmax, weighted sums of values.
//
// A head's scores of a tile fill one repeat; what there is one of per head (maximum, denominator, factor)
// fills one block of eight lanes for all heads together.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_SOFTMAX_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_SOFTMAX_H_

#include "../common/buffers.h"
#include "../common/rows.h"
#include "walk.h"

namespace hybrid_ops {
namespace paged {

using AscendC::LocalTensor;
using AscendC::PipeBarrier;

// Below every score; finite, so that no difference is NaN.
constexpr float kLowest = -3.0e38f;

// A matrix of fp32 rows in local memory that are multiplied with a vector: keys, or rotary keys.
struct Factor {
    FloatTensor rows, vector;
    uint32_t pitch;  // elements between rows
    __aicore__ inline uint32_t Chunks() const { return (pitch + kFloatLanes - 1) / kFloatLanes; }
    __aicore__ inline uint32_t Lanes(uint32_t chunk) const {
        return chunk + 1 < Chunks() ? kFloatLanes : pitch - chunk * kFloatLanes;
    }
};

class Softmax {
 public:
    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& data, uint32_t productFloats,
                                uint32_t valuePitch) {
        valuePitch_ = valuePitch;
        valueLanes_ = hybrid_ops::RoundUp(valuePitch, kFloatLanes);
        Reserve(pipe, buffers_[0], product_, productFloats);
        Reserve(pipe, buffers_[1], partial_, data.tile * kFloatBlock + kFloatLanes);
        Reserve(pipe, buffers_[2], column_, hybrid_ops::RoundUp(data.tile, 8) * kFloatBlock);
        Reserve(pipe, buffers_[3], scores_, kHeads * kFloatLanes);
        Reserve(pipe, buffers_[4], statistics_, kStatistics * kFloatLanes);
        Reserve(pipe, buffers_[5], sums_, data.headBlock * valueLanes_);
        if constexpr (!Soc::kBroadcast) {
            const uint32_t rows = data.tile < kHeads ? kHeads : hybrid_ops::RoundUp(data.tile, 8);
            Reserve(pipe, buffers_[6], table_, rows * kFloatBlock);
            LocalTensor<int32_t> table = table_.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, rows, sizeof(float));
        }
        // Whole repeats read lanes that no step writes.
        AscendC::Duplicate(partial_, 0.0f, int32_t(partial_.GetSize()));
        AscendC::Duplicate(statistics_, 0.0f, int32_t(statistics_.GetSize()));
        AscendC::Duplicate(scores_, 0.0f, int32_t(scores_.GetSize()));
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Begin(uint32_t heads) {
        heads_ = heads;
        AscendC::Duplicate(sums_, 0.0f, int32_t(heads * valueLanes_));
        AscendC::Duplicate(Maximum(), kLowest, int32_t(kHeads));
        AscendC::Duplicate(Denominator(), 0.0f, int32_t(kHeads));
        PipeBarrier<PIPE_V>();
    }

    // scores[head, r] = sum over factors of <rows[r], vector>, for n rows
    __aicore__ inline void Dot(uint32_t head, const Factor* factors, uint32_t count, uint32_t n) {
        uint32_t chunks = 0;
        bool tails = false;
        for (uint32_t f = 0; f < count; ++f) {
            const Factor& factor = factors[f];
            if (factor.pitch % kFloatLanes != 0) {
                const uint32_t last = chunks + factor.Chunks() - 1;
                AscendC::Duplicate(product_[last * n * kFloatLanes], 0.0f, int32_t(n * kFloatLanes));
                tails = true;
            }
            chunks += factor.Chunks();
        }
        if (tails) PipeBarrier<PIPE_V>();
        uint32_t chunk = 0;
        for (uint32_t f = 0; f < count; ++f) {
            const Factor& factor = factors[f];
            const uint8_t step = static_cast<uint8_t>(factor.pitch / kFloatBlock);
            for (uint32_t c = 0; c < factor.Chunks(); ++c, ++chunk) {
                AscendC::Mul(product_[chunk * n * kFloatLanes], factor.rows[c * kFloatLanes],
                             factor.vector[c * kFloatLanes], uint64_t(factor.Lanes(c)), uint8_t(n),
                             AscendC::BinaryRepeatParams(1, 1, 1, 8, step, 0));
            }
        }
        PipeBarrier<PIPE_V>();
        Fold(chunks, n * kFloatLanes);
        AscendC::BlockReduceSum(partial_, product_, int32_t(n), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(scores_[head * kFloatLanes], partial_, int32_t((n + 7) / 8),
                                int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
    }

    // From the tile's n scores per head to exponentials; rescales what was summed before.
    __aicore__ inline void Weigh(uint32_t n) {
        const int32_t heads = int32_t(heads_);
        if (n < kFloatLanes) {
            uint64_t mask[2] = {~uint64_t(0) << n, 0};
            AscendC::Duplicate(scores_, kLowest, mask, uint8_t(heads), 1, 8);
            PipeBarrier<PIPE_V>();
        }
        AscendC::BlockReduceMax(Blocks(), scores_, heads, int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMax(Top(), Blocks(), 1, heads * int32_t(kFloatBlock), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::Max(Top(), Top(), Maximum(), int32_t(kHeads));
        PipeBarrier<PIPE_V>();
        AscendC::Sub(Rescale(), Maximum(), Top(), int32_t(kHeads));
        BroadcastColumn(Column(), Top(), table_, kHeads);
        PipeBarrier<PIPE_V>();
        AscendC::Exp(Rescale(), Rescale(), int32_t(kHeads));
        AscendC::Adds(Maximum(), Top(), 0.0f, int32_t(kHeads));
        AscendC::Sub(scores_, scores_, Column(), uint64_t(kFloatLanes), uint8_t(heads),
                     AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 1));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(scores_, scores_, heads * int32_t(kFloatLanes));
        AscendC::Mul(Denominator(), Denominator(), Rescale(), int32_t(kHeads));
        BroadcastColumn(Column(), Rescale(), table_, kHeads);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(Blocks(), scores_, heads, int32_t(kFloatLanes), 1, 1, 8);
        ScaleSums<false>();
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(Top(), Blocks(), 1, heads * int32_t(kFloatBlock), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::Add(Denominator(), Denominator(), Top(), int32_t(kHeads));
        PipeBarrier<PIPE_V>();
    }

    // sums[head, :] += sum over r of scores[head, r] * values[r, :], for n rows
    __aicore__ inline void Accumulate(uint32_t head, const FloatTensor& values, uint32_t n) {
        const uint8_t step = static_cast<uint8_t>(valuePitch_ / kFloatBlock);
        BroadcastColumn(column_, scores_[head * kFloatLanes], table_, n);
        PipeBarrier<PIPE_V>();
        for (uint32_t at = 0; at < valuePitch_; at += kFloatLanes) {
            const uint32_t lanes = valuePitch_ - at < kFloatLanes ? valuePitch_ - at : kFloatLanes;
            AscendC::Mul(product_[at], values[at], column_, uint64_t(lanes), uint8_t(n),
                         AscendC::BinaryRepeatParams(1, 1, 0, step, step, 1));
        }
        PipeBarrier<PIPE_V>();
        Fold(n, valuePitch_);
        AscendC::Add(sums_[head * valueLanes_], sums_[head * valueLanes_], product_, int32_t(valuePitch_));
        PipeBarrier<PIPE_V>();
    }

    // sums <- sums / denominator
    __aicore__ inline void Normalize() {
        BroadcastColumn(Column(), Denominator(), table_, kHeads);
        PipeBarrier<PIPE_V>();
        ScaleSums<true>();
        PipeBarrier<PIPE_V>();
    }
    // Maximum and denominator of every head, eight times each; before that, Begin and perhaps Weigh.
    __aicore__ inline void Statistics(FloatTensor& maxima, FloatTensor& denominators) {
        BroadcastColumn(Column(), Maximum(), table_, kHeads);
        BroadcastColumn(Blocks(), Denominator(), table_, kHeads);
        PipeBarrier<PIPE_V>();
        maxima = Column();
        denominators = Blocks();
    }
    __aicore__ inline const FloatTensor& Sums() const { return sums_; }
    __aicore__ inline uint32_t ValueLanes() const { return valueLanes_; }

 private:
    static constexpr uint32_t kStatistics = 6;
    __aicore__ inline FloatTensor Maximum() const { return statistics_; }
    __aicore__ inline FloatTensor Denominator() const { return statistics_[kFloatLanes]; }
    __aicore__ inline FloatTensor Top() const { return statistics_[2 * kFloatLanes]; }
    __aicore__ inline FloatTensor Rescale() const { return statistics_[3 * kFloatLanes]; }
    __aicore__ inline FloatTensor Column() const { return statistics_[4 * kFloatLanes]; }
    __aicore__ inline FloatTensor Blocks() const { return statistics_[5 * kFloatLanes]; }

    // product[0] <- sum of `parts` pieces of `size` elements, by a tree
    __aicore__ inline void Fold(uint32_t parts, uint32_t size) {
        while (parts > 1) {
            const uint32_t half = parts / 2, kept = parts - half;
            AscendC::Add(product_, product_, product_[kept * size], int32_t(half * size));
            PipeBarrier<PIPE_V>();
            parts = kept;
        }
    }
    // sums[head, :] times or over Column()[head]
    template <bool kDivide>
    __aicore__ inline void ScaleSums() {
        const uint8_t chunks = static_cast<uint8_t>(valueLanes_ / kFloatLanes);
        const AscendC::BinaryRepeatParams params(1, 1, 0, 8, 8, 0);
        for (uint32_t h = 0; h < heads_; ++h) {
            const FloatTensor row = sums_[h * valueLanes_];
            if constexpr (kDivide) {
                AscendC::Div(row, row, Column()[h * kFloatBlock], uint64_t(kFloatLanes), chunks, params);
            } else {
                AscendC::Mul(row, row, Column()[h * kFloatBlock], uint64_t(kFloatLanes), chunks, params);
            }
        }
    }

    Buffer buffers_[7];
    FloatTensor product_, partial_, column_, scores_, statistics_, sums_;
    LocalTensor<uint32_t> table_;  // byte offsets of a gather
    uint32_t valuePitch_, valueLanes_, heads_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_SOFTMAX_H_
