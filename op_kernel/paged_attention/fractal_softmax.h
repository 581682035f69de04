// The vector unit's part of paged attention on the matrix units: online softmax on matrices in columns of
// fractals, [columns / 16][rows][16], fp32, rows a multiple of 8. What there is one of per row (maximum,
// denominator, factor) is a vector of `rows` lanes, spread over 16 lanes a row where it meets a matrix.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_SOFTMAX_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_SOFTMAX_H_

#include "../common/buffers.h"
#include "../common/rows.h"
#include "block_walk.h"

namespace hybrid_ops {
namespace paged {

using AscendC::LocalTensor;
using AscendC::PipeBarrier;

constexpr uint32_t kSide = 16;
// Masked scores lie below the maximum that every row starts with: their exponentials are 0 also in a row that
// has seen nothing yet.
constexpr float kMasked = -3.0e38f;
constexpr float kFloor = -1.0e30f;
constexpr float kSlack = 8.0f;  // exp(8) = 2981

class FractalSoftmax {
 public:
    // Bytes of local memory for `rows` rows.
    __aicore__ inline void Init(AscendC::TPipe& pipe, uint32_t rows) {
        rows_ = rows;
        Reserve(pipe, buffers_[0], vectors_, kVectors * Lanes());
        Reserve(pipe, buffers_[1], blocks_, rows * kFloatBlock + kFloatLanes);
        Reserve(pipe, buffers_[2], spread_, rows * kSide);
        Reserve(pipe, buffers_[3], rescales_, 2 * rows * kSide);
        AscendC::Duplicate(vectors_, 0.0f, int32_t(vectors_.GetSize()));
        AscendC::Duplicate(blocks_, 0.0f, int32_t(blocks_.GetSize()));
        if constexpr (!Soc::kBroadcast) {
            Reserve(pipe, buffers_[4], table_, rows * kSide);
            LocalTensor<int32_t> table = table_.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kSide));
            FillTable(table, kSide, rows, sizeof(float));
        }
        PipeBarrier<PIPE_V>();
    }

    // Maximum and denominator of one of two blocks that are under way.
    __aicore__ inline void Select(uint32_t state) { state_ = state; }

    __aicore__ inline void Begin() {
        AscendC::Duplicate(Maximum(), kFloor, int32_t(rows_));
        AscendC::Duplicate(Denominator(), 0.0f, int32_t(rows_));
        PipeBarrier<PIPE_V>();
    }

    // In rows [row, row + n) of a matrix of `columns` columns, those from `first` on become masked.
    __aicore__ inline void Mask(const FloatTensor& scores, uint32_t row, uint32_t n, uint32_t first,
                                uint32_t columns) const {
        const uint32_t whole = first / kSide, part = first % kSide;
        const uint32_t step = rows_ * kSide / kFloatBlock;  // between columns of fractals
        for (uint32_t r = row; r < row + n;) {
            const uint32_t some = row + n - r < 4 ? row + n - r : 4;  // rows of a repeat
            const uint64_t used = some == 4 ? ~uint64_t(0) : (uint64_t(1) << (some * kSide)) - 1;
            uint32_t next = whole;
            if (part != 0) {
                const uint64_t line = (0xffffull << part) & 0xffffull;
                uint64_t mask[2] = {(line | line << 16 | line << 32 | line << 48) & used, 0};
                AscendC::Duplicate(scores[(whole * rows_ + r) * kSide], kMasked, mask, 1, 1, 8);
                ++next;
            }
            const uint32_t left = columns / kSide - next;
            uint64_t mask[2] = {used, 0};
            if (left != 0 && step <= 255) {
                AscendC::Duplicate(scores[(next * rows_ + r) * kSide], kMasked, mask, uint8_t(left), 1,
                                   uint8_t(step));
            } else {
                for (uint32_t c = next; c < columns / kSide; ++c) {
                    AscendC::Duplicate(scores[(c * rows_ + r) * kSide], kMasked, mask, 1, 1, 8);
                }
            }
            r += some;
        }
    }

    // scores [rows, columns] -> exponentials, in place. What older sums are to be multiplied with is kept for
    // Rescale of the same `turn`, 0 or 1. `work` has room for half of the scores.
    __aicore__ inline void Weigh(const FloatTensor& scores, const FloatTensor& work, uint32_t columns,
                                 uint32_t turn) {
        const uint32_t count = columns / kSide, line = rows_ * kSide;
        FindTop(scores, work, count);
        AscendC::Max(Top(), Top(), Maximum(), int32_t(rows_));
        PipeBarrier<PIPE_V>();
        AscendC::Sub(Factor(), Maximum(), Top(), int32_t(rows_));
        Spread(spread_, Top());
        PipeBarrier<PIPE_V>();
        AscendC::Exp(Factor(), Factor(), int32_t(rows_));
        AscendC::Adds(Maximum(), Top(), 0.0f, int32_t(rows_));
        ByRow<Kind::kSub>(scores, spread_, count);
        PipeBarrier<PIPE_V>();
        AscendC::Exp(scores, scores, int32_t(count * line));
        AscendC::Mul(Denominator(), Denominator(), Factor(), int32_t(rows_));
        Spread(rescales_[turn * line], Factor());
        PipeBarrier<PIPE_V>();
        AddDenominator(scores, work, count);
    }

    // As Weigh, in steps, with maxima that are only looked at: exponentials refer to the maximum of the last
    // Raise. Up to a difference of kSlack they and their sums stay far from the ends of fp16, at the same
    // precision, and older sums need no factors (FlashAttention-4 rescales as rarely).
    //
    // Whether a row has scores beyond that. The scalar unit waits for the vector unit.
    __aicore__ inline bool Outgrown(const FloatTensor& scores, const FloatTensor& work, uint32_t columns) {
        FindTop(scores, work, columns / kSide);
        AscendC::Sub(Factor(), Top(), Maximum(), int32_t(rows_));
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMax(blocks_, Factor(), 1, int32_t(rows_), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMax(blocks_, blocks_, 1, int32_t(rows_ / kFloatBlock), 1, 1, 8);
        Order<AscendC::HardEvent::V_S>();
        return blocks_.GetValue(0) > kSlack;
    }
    // Exponentials refer to the larger of both maxima from now on; what is summed already is to be multiplied
    // with the factors of `turn` (Rescale). After Outgrown.
    __aicore__ inline void Raise(uint32_t turn) {
        AscendC::Max(Top(), Top(), Maximum(), int32_t(rows_));
        PipeBarrier<PIPE_V>();
        AscendC::Sub(Factor(), Maximum(), Top(), int32_t(rows_));
        Spread(spread_, Top());
        PipeBarrier<PIPE_V>();
        AscendC::Exp(Factor(), Factor(), int32_t(rows_));
        AscendC::Adds(Maximum(), Top(), 0.0f, int32_t(rows_));
        PipeBarrier<PIPE_V>();
        AscendC::Mul(Denominator(), Denominator(), Factor(), int32_t(rows_));
        Spread(rescales_[turn * rows_ * kSide], Factor());
        PipeBarrier<PIPE_V>();
    }
    // scores -> exponentials, in place, added to the denominators
    __aicore__ inline void Exponentials(const FloatTensor& scores, const FloatTensor& work,
                                        uint32_t columns) {
        const uint32_t count = columns / kSide;
        ByRow<Kind::kSub>(scores, spread_, count);
        PipeBarrier<PIPE_V>();
        AscendC::Exp(scores, scores, int32_t(count * rows_ * kSide));
        PipeBarrier<PIPE_V>();
        AddDenominator(scores, work, count);
    }

    // sums[c, r, :] times the factor of row r, for `count` columns of fractals
    __aicore__ inline void Rescale(const FloatTensor& sums, uint32_t count, uint32_t turn) const {
        ByRow<Kind::kMul>(sums, rescales_[turn * rows_ * kSide], count);
    }
    // sums <- sums / denominator, 0 in a row that has seen nothing
    __aicore__ inline void Normalize(const FloatTensor& sums, uint32_t count) {
        AscendC::Maxs(Top(), Denominator(), 1e-30f, int32_t(rows_));
        AscendC::Duplicate(Factor(), 1.0f, int32_t(rows_));
        PipeBarrier<PIPE_V>();
        AscendC::Div(Top(), Factor(), Top(), int32_t(rows_));
        PipeBarrier<PIPE_V>();
        Spread(spread_, Top());
        PipeBarrier<PIPE_V>();
        ByRow<Kind::kMul>(sums, spread_, count);
        PipeBarrier<PIPE_V>();
    }
    // Maximum and denominator of every row, 16 times each.
    __aicore__ inline void Statistics(FloatTensor& maxima, FloatTensor& denominators) {
        Spread(spread_, Maximum());
        Spread(rescales_, Denominator());
        PipeBarrier<PIPE_V>();
        maxima = spread_;
        denominators = rescales_;
    }

 private:
    enum class Kind { kSub, kMul };
    static constexpr uint32_t kVectors = 6;
    __aicore__ inline uint32_t Lanes() const { return hybrid_ops::RoundUp(rows_, kFloatLanes); }
    __aicore__ inline FloatTensor Maximum() const { return vectors_[(2 + 2 * state_) * Lanes()]; }
    __aicore__ inline FloatTensor Denominator() const { return vectors_[(3 + 2 * state_) * Lanes()]; }
    __aicore__ inline FloatTensor Top() const { return vectors_; }
    __aicore__ inline FloatTensor Factor() const { return vectors_[Lanes()]; }

    template <Kind kind>
    __aicore__ inline static void Apply(const FloatTensor& x, const FloatTensor& y, uint32_t lanes,
                                        uint32_t repeats, uint8_t step, uint8_t other) {
        const AscendC::BinaryRepeatParams params(1, 1, 1, step, step, other);
        if constexpr (kind == Kind::kSub) AscendC::Sub(x, x, y, uint64_t(lanes), uint8_t(repeats), params);
        if constexpr (kind == Kind::kMul) AscendC::Mul(x, x, y, uint64_t(lanes), uint8_t(repeats), params);
    }
    // x[c, :, :] op y for `count` columns of fractals: repeats run along the longer of the two.
    template <Kind kind>
    __aicore__ inline void ByRow(const FloatTensor& x, const FloatTensor& y, uint32_t count) const {
        const uint32_t line = rows_ * kSide, pieces = (line + kFloatLanes - 1) / kFloatLanes;
        if (pieces < count && line / kFloatBlock <= 255) {
            for (uint32_t at = 0; at < line; at += kFloatLanes) {
                const uint32_t lanes = line - at < kFloatLanes ? line - at : kFloatLanes;
                Apply<kind>(x[at], y[at], lanes, count, uint8_t(line / kFloatBlock), 0);
            }
            return;
        }
        for (uint32_t c = 0; c < count; ++c) Apply<kind>(x[c * line], y, kFloatLanes, pieces, 8, 8);
    }

    template <bool kMax>
    __aicore__ inline static void Join(const FloatTensor& dst, const FloatTensor& a, const FloatTensor& b,
                                       uint32_t n) {
        if constexpr (kMax) {
            AscendC::Max(dst, a, b, int32_t(n));
        } else {
            AscendC::Add(dst, a, b, int32_t(n));
        }
    }
    // blocks_[r * 8 ...] <- maximum or sum over columns and over lanes i and i + 8 of row r
    template <bool kMax>
    __aicore__ inline void Fold(const FloatTensor& matrix, const FloatTensor& work, uint32_t count) {
        const uint32_t line = rows_ * kSide;
        FloatTensor from = matrix;
        while (count > 1) {
            const uint32_t half = count / 2;
            Join<kMax>(work, from, from[half * line], half * line);
            PipeBarrier<PIPE_V>();
            if (count % 2 != 0) {
                Join<kMax>(work, work, from[2 * half * line], line);
                PipeBarrier<PIPE_V>();
            }
            from = work;
            count = half;
        }
        const AscendC::BinaryRepeatParams pairs(1, 2, 2, 8, 16, 16);
        const uint8_t repeats = static_cast<uint8_t>(rows_ / 8);
        if constexpr (kMax) {
            AscendC::Max(blocks_, from, from[kFloatBlock], uint64_t(kFloatLanes), repeats, pairs);
        } else {
            AscendC::Add(blocks_, from, from[kFloatBlock], uint64_t(kFloatLanes), repeats, pairs);
        }
    }
    // Top <- the maximum of every row
    __aicore__ inline void FindTop(const FloatTensor& scores, const FloatTensor& work, uint32_t count) {
        Fold<true>(scores, work, count);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMax(Top(), blocks_, int32_t((rows_ + 7) / 8), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
    }
    // Denominator <- Denominator + the sum of every row
    __aicore__ inline void AddDenominator(const FloatTensor& scores, const FloatTensor& work,
                                          uint32_t count) {
        Fold<false>(scores, work, count);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(Top(), blocks_, int32_t((rows_ + 7) / 8), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::Add(Denominator(), Denominator(), Top(), int32_t(rows_));
        PipeBarrier<PIPE_V>();
    }
    // dst[16 r + i] = src[r]
    __aicore__ inline void Spread(const FloatTensor& dst, const FloatTensor& src) const {
        if constexpr (Soc::kBroadcast) {
            AscendC::Brcb(dst, src, uint8_t((rows_ + 7) / 8), AscendC::BrcbRepeatParams(2, 16));
            AscendC::Brcb(dst[kFloatBlock], src, uint8_t((rows_ + 7) / 8), AscendC::BrcbRepeatParams(2, 16));
        } else {
            AscendC::Gather(dst, src, table_, uint32_t(0), rows_ * kSide);
        }
    }

    Buffer buffers_[5];
    FloatTensor vectors_, blocks_, spread_, rescales_;
    LocalTensor<uint32_t> table_;  // byte offsets of a gather
    uint32_t rows_, state_ = 0;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_SOFTMAX_H_
