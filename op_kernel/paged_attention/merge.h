// Merge of partial results: with M the largest maximum of a row's parts, the result is
// sum_j sums_j exp(max_j - M) / L, L = sum_j denominator_j exp(max_j - M), and the log-sum-exp M + ln L. One
// core does a row, always in the same order.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_MERGE_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_MERGE_H_

#include "small_rows.h"
#include "softmax.h"

namespace hybrid_ops {
namespace paged {

using AscendC::GlobalTensor;

// Rows of log-sum-exps that fill a block, so that no two cores write into one.
constexpr uint32_t kMergeRows = kFloatBlock;
constexpr uint32_t kMergeParts = 8;  // parts whose sums are loaded at once

// Units of rows and what a core owns of them: all but the last unit have kMergeRows rows, that one takes what
// is left, so that it is never smaller unless it is alone.
struct RowRange {
    uint64_t begin, end;
    __aicore__ inline void Set(uint64_t rows, uint32_t unit, uint64_t cores) {
        const uint64_t units = rows < unit ? 1 : rows / unit;
        const uint64_t core = uint64_t(AscendC::GetBlockIdx());
        const uint64_t last = (core + 1) * units / cores;
        begin = core * units / cores * unit;
        end = last == units ? rows : last * unit;
        if (core * units / cores == last) end = begin;
    }
};

// Before the first phase, on ascend310p: what Meet counts in, zero. A workspace comes as it is from most
// callers. Each core clears its own words; one that starts when another is through the whole of its first
// phase would come too late for that one, unless the caller clears the workspace as well.
__aicore__ inline void ClearCounter(AscendC::TPipe& pipe, const Arguments& a) {
    if constexpr (!Soc::kPaddedMoves) {
        constexpr uint32_t kWords = 8;
        Buffer buffer;
        LocalTensor<int32_t> zeros;
        Reserve(pipe, buffer, zeros, kWords);
        AscendC::Duplicate(zeros, int32_t(0), int32_t(kWords));
        Order<AscendC::HardEvent::V_MTE3>();
        GlobalTensor<int32_t> counters;
        counters.SetGlobalBuffer((__gm__ int32_t*)a.workspace);
        AscendC::DataCopy(counters[AscendC::GetBlockIdx() * kWords], zeros, kWords);
        AscendC::PipeBarrier<PIPE_ALL>();
        pipe.Reset();
    }
}

// All cores meet; what they have stored before is there for all of them after. On ascend310p the cores count
// in the front of the workspace.
__aicore__ inline void Meet(AscendC::TPipe& pipe, const Arguments& a) {
    AscendC::PipeBarrier<PIPE_ALL>();
    if constexpr (Soc::kPaddedMoves) {
        AscendC::SyncAll();
    } else {
        Buffer buffer;
        LocalTensor<int32_t> local;
        const uint32_t cores = uint32_t(AscendC::GetBlockNum());
        Reserve(pipe, buffer, local, cores * 8);
        GlobalTensor<int32_t> counters;
        counters.SetGlobalBuffer((__gm__ int32_t*)a.workspace);
        AscendC::SyncAll(counters, local, int32_t(cores));
    }
}

// Zeros in the whole of softmax_lse, each core its part.
__aicore__ inline void ZeroLse(AscendC::TPipe& pipe, const Data& t, GM_ADDR lse, uint32_t cores) {
    constexpr uint32_t kPiece = 256;
    GlobalTensor<float> target;
    target.SetGlobalBuffer((__gm__ float*)lse);
    RowRange rows;
    rows.Set(uint64_t(t.queries) * t.heads, kMergeRows, cores);
    if (rows.begin == rows.end) return;
    Buffer buffer;
    FloatTensor zeros;
    Reserve(pipe, buffer, zeros, kPiece + kMergeRows);
    AscendC::Duplicate(zeros, 0.0f, int32_t(kPiece + kMergeRows));
    Order<AscendC::HardEvent::V_MTE3>();
    for (uint64_t at = rows.begin; at < rows.end;) {
        // The last piece keeps at least a block.
        const uint64_t left = rows.end - at;
        const uint32_t n = left < kPiece + kMergeRows ? uint32_t(left) : kPiece;
        StoreAnyRows(target[at], zeros, 1, n, n);
        at += n;
    }
}

template <typename T>
class Merge {
 public:
    __aicore__ inline explicit Merge(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        lse_.SetGlobalBuffer((__gm__ float*)a.lse);
        partials_.SetGlobalBuffer((__gm__ float*)a.workspace + t_.syncFloats);
        lanes_ = t_.rowFloats - 2 * kFloatBlock;
        pitch_ = Pitch(t_.valueDim, sizeof(T));
        const uint32_t parts = t_.splits < kMergeParts ? t_.splits : kMergeParts;
        pipe.InitBuffer(sums_, 2, parts * lanes_ * sizeof(float));
        pipe.InitBuffer(statistics_, 2, t_.splits * 2 * kBlockBytes);
        pipe.InitBuffer(results_, 2, pitch_ * sizeof(T));
        pipe.InitBuffer(logs_, 1, 2 * kMergeRows * sizeof(float));
        Reserve(pipe, buffers_[0], total_, lanes_);
        Reserve(pipe, buffers_[1], weights_, t_.splits * kFloatBlock + kFloatLanes);
        Reserve(pipe, buffers_[2], work_, t_.splits * kFloatBlock + kFloatLanes);
        Reserve(pipe, buffers_[3], top_, 2 * kMergeRows * kFloatBlock);
        Reserve(pipe, buffers_[4], denominator_, 2 * kMergeRows * kFloatBlock);
    }

    __aicore__ inline void Process(uint32_t cores) {
        RowRange rows;
        rows.Set(uint64_t(t_.queries) * t_.heads, t_.lse ? kMergeRows : 1, cores);
        uint32_t unit = 0;  // rows of the unit so far
        if (rows.begin != rows.end) FetchStatistics(rows.begin);
        for (uint64_t row = rows.begin; row < rows.end; ++row) {
            Weigh(row + 1 < rows.end ? row + 1 : row, row + 1 < rows.end, unit);
            Sum(row);
            if (!t_.lse) continue;
            ++unit;
            // The last unit of all takes the rows that fill no block.
            if (row + 1 == rows.end || (unit >= kMergeRows && rows.end - row - 1 >= kMergeRows)) {
                StoreLse(row + 1 - unit, unit);
                unit = 0;
            }
        }
    }

 private:
    __aicore__ inline uint64_t At(uint64_t row, uint32_t part) const {
        return (row * t_.splits + part) * t_.rowFloats;
    }
    // Blocks of maxima, then of denominators.
    __aicore__ inline void FetchStatistics(uint64_t row) {
        LocalTensor<float> s = statistics_.template AllocTensor<float>();
        const AscendC::DataCopyParams params(uint16_t(t_.splits), 1, uint16_t(t_.rowFloats / kFloatBlock - 1),
                                             0);
        AscendC::DataCopy(s, partials_[At(row, 0) + lanes_], params);
        AscendC::DataCopy(s[t_.splits * kFloatBlock], partials_[At(row, 0) + lanes_ + kFloatBlock], params);
        statistics_.EnQue(s);
    }

    // weights[part] = exp(max - M) / L in eight lanes; keeps M and L of the unit's row `unit`.
    __aicore__ inline void Weigh(uint64_t next, bool more, uint32_t unit) {
        if (more) FetchStatistics(next);
        LocalTensor<float> s = statistics_.template DeQue<float>();
        const int32_t count = int32_t(t_.splits * kFloatBlock);
        const FloatTensor top = top_[unit * kFloatBlock], denominator = denominator_[unit * kFloatBlock];
        const uint8_t parts = static_cast<uint8_t>(t_.splits);
        const AscendC::BinaryRepeatParams by_row(1, 1, 1, 1, 1, 0);
        AscendC::Adds(work_, s, 0.0f, count);
        PipeBarrier<PIPE_V>();
        Fold<true>(t_.splits);
        AscendC::Adds(top, work_, 0.0f, int32_t(kFloatBlock));
        PipeBarrier<PIPE_V>();
        AscendC::Sub(weights_, s, top, uint64_t(kFloatBlock), parts, by_row);
        PipeBarrier<PIPE_V>();
        AscendC::Exp(weights_, weights_, count);
        PipeBarrier<PIPE_V>();
        AscendC::Mul(work_, s[t_.splits * kFloatBlock], weights_, count);
        PipeBarrier<PIPE_V>();
        statistics_.FreeTensor(s);
        Fold<false>(t_.splits);
        // At least 1 where anything was seen, 0 where not: then every sum is 0 too.
        AscendC::Adds(denominator, work_, 0.0f, int32_t(kFloatBlock));
        AscendC::Maxs(work_, work_, 1e-30f, int32_t(kFloatBlock));
        PipeBarrier<PIPE_V>();
        AscendC::Div(weights_, weights_, work_, uint64_t(kFloatBlock), parts, by_row);
        PipeBarrier<PIPE_V>();
    }
    // work[0] <- maximum or sum of `parts` blocks
    template <bool kMax>
    __aicore__ inline void Fold(uint32_t parts) {
        while (parts > 1) {
            const uint32_t half = parts / 2, kept = parts - half;
            const int32_t n = int32_t(half * kFloatBlock);
            if constexpr (kMax) {
                AscendC::Max(work_, work_, work_[kept * kFloatBlock], n);
            } else {
                AscendC::Add(work_, work_, work_[kept * kFloatBlock], n);
            }
            PipeBarrier<PIPE_V>();
            parts = kept;
        }
    }

    __aicore__ inline void FetchSums(uint64_t row, uint32_t part) {
        if (part >= t_.splits) return;
        LocalTensor<float> s = sums_.template AllocTensor<float>();
        const uint32_t n = t_.splits - part < kMergeParts ? t_.splits - part : kMergeParts;
        AscendC::DataCopy(s, partials_[At(row, part)],
                          AscendC::DataCopyParams(uint16_t(n), uint16_t(lanes_ / kFloatBlock), 2, 0));
        sums_.EnQue(s);
    }
    __aicore__ inline void Sum(uint64_t row) {
        FetchSums(row, 0);
        const uint8_t step = static_cast<uint8_t>(lanes_ / kFloatBlock);
        for (uint32_t part = 0; part < t_.splits; part += kMergeParts) {
            FetchSums(row, part + kMergeParts);
            LocalTensor<float> s = sums_.template DeQue<float>();
            uint32_t n = t_.splits - part < kMergeParts ? t_.splits - part : kMergeParts;
            for (uint32_t at = 0; at < lanes_; at += kFloatLanes) {
                const uint32_t lanes = lanes_ - at < kFloatLanes ? lanes_ - at : kFloatLanes;
                AscendC::Mul(s[at], s[at], weights_[part * kFloatBlock], uint64_t(lanes), uint8_t(n),
                             AscendC::BinaryRepeatParams(1, 1, 0, step, step, 1));
            }
            PipeBarrier<PIPE_V>();
            while (n > 1) {
                const uint32_t half = n / 2, kept = n - half;
                AscendC::Add(s, s, s[kept * lanes_], int32_t(half * lanes_));
                PipeBarrier<PIPE_V>();
                n = kept;
            }
            if (part == 0) {
                AscendC::Adds(total_, s, 0.0f, int32_t(lanes_));
            } else {
                AscendC::Add(total_, total_, s, int32_t(lanes_));
            }
            PipeBarrier<PIPE_V>();
            sums_.FreeTensor(s);
        }
        LocalTensor<T> out = results_.template AllocTensor<T>();
        Convert(out, total_, pitch_);
        results_.EnQue(out);
        out = results_.template DeQue<T>();
        StoreAnyRows(out_[row * t_.valueDim], out, 1, t_.valueDim, pitch_);
        results_.FreeTensor(out);
    }

    // lse[first + i] = M + ln L, -inf where nothing was seen
    __aicore__ inline void StoreLse(uint64_t first, uint32_t rows) {
        const int32_t n = int32_t(rows * kFloatBlock);
        Order<AscendC::HardEvent::V_S>();
        LocalTensor<float> logs = logs_.template AllocTensor<float>();
        uint32_t empty = 0;
        for (uint32_t i = 0; i < rows; ++i) {
            if (!(denominator_.GetValue(i * kFloatBlock) > 0.0f)) empty |= 1u << i;
        }
        AscendC::Ln(denominator_, denominator_, n);
        PipeBarrier<PIPE_V>();
        AscendC::Add(top_, top_, denominator_, n);
        Order<AscendC::HardEvent::V_S>();
        for (uint32_t i = 0; i < rows; ++i) {
            const bool seen = (empty >> i & 1) == 0;
            logs.SetValue(i, seen ? top_.GetValue(i * kFloatBlock) : -kInfinity);
        }
        if (!Soc::kPaddedMoves && rows > kMergeRows) {  // the last block once more, as StoreElements wants it
            for (uint32_t i = kMergeRows; i-- > 0;)
                logs.SetValue(kMergeRows + i, logs.GetValue(rows - kMergeRows + i));
        }
        Order<AscendC::HardEvent::S_V>();
        Order<AscendC::HardEvent::S_MTE3>();
        logs_.EnQue(logs);
        logs = logs_.template DeQue<float>();
        StoreAnyRows(lse_[first], logs, 1, rows, rows);
        logs_.FreeTensor(logs);
    }

    static constexpr float kInfinity = __builtin_inff();
    const Data t_;
    GlobalTensor<T> out_;
    GlobalTensor<float> lse_, partials_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> sums_, statistics_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> results_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> logs_;
    Buffer buffers_[5];
    FloatTensor total_, weights_, work_, top_, denominator_;
    uint32_t lanes_, pitch_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_MERGE_H_
