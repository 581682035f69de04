// Rows of logits to weights and numbers of the best experts: scores in fp32, the sort unit for the order,
// tables of byte offsets for what leaves the sorted records.
#include "hybrid_moe_gating_top_k/groups.h"
#include "hybrid_moe_gating_top_k/scores.h"

namespace hybrid_ops {
namespace gating {

template <typename T>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data) : t_(data), scores_(t_, w_), groups_(t_, w_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR x, GM_ADDR bias, GM_ADDR y, GM_ADDR experts) {
        x_.SetGlobalBuffer((__gm__ T*)x);
        bias_.SetGlobalBuffer((__gm__ float*)bias);
        y_.SetGlobalBuffer((__gm__ T*)y);
        experts_.SetGlobalBuffer((__gm__ int32_t*)experts);
        const Layout size(t_, t_.tileRows, Soc::kPaddedMoves);
        pipe.InitBuffer(xQueue_, 2, Aligned(size.flat * sizeof(T)));
        pipe.InitBuffer(yQueue_, 2, Aligned(size.chosen * sizeof(T)));
        pipe.InitBuffer(expertQueue_, 2, Aligned(size.chosen * sizeof(int32_t)));
        w_.Init(pipe, t_);
    }

    __aicore__ inline void Process() {
        const uint64_t units = t_.rows / t_.unitRows, cores = AscendC::GetBlockNum(),
                       core = AscendC::GetBlockIdx();
        uint64_t at = core * units / cores * t_.unitRows;
        const uint64_t end = core + 1 == cores ? t_.rows : (core + 1) * units / cores * t_.unitRows;
        if (at == end) return;
        uint64_t ready = at;
        Slice<float> bias;
        if (t_.hasBias != 0) bias.Load(w_.flat, bias_, 0, t_.experts, t_.experts);
        Slice<T> next = Load(ready, end);
        Prepare(t_.hasBias != 0 ? &bias : nullptr);
        while (at < end) {
            const uint32_t n = Count(at, end);
            const Slice<T> slice = next;
            if (ready < end) next = Load(ready, end);
            Tile(n, slice);
            if (Gathers()) {
                Keep(at, end, n);
            } else {
                Store(at, n);
            }
            at += n;
        }
    }

 private:
    // Rows of the tile at `at`. What is left after the last whole tile shares rows with it, where it would
    // otherwise fill no block.
    __aicore__ inline uint32_t Count(uint64_t at, uint64_t end) const {
        const uint64_t left = end - at;
        if (left <= t_.tileRows) return uint32_t(left);
        const uint64_t rest = left - t_.tileRows;
        return rest < t_.unitRows && !Gathers() ? t_.tileRows - t_.unitRows + uint32_t(rest) : t_.tileRows;
    }
    // Local memory has no room for tiles that fill a block each: their results are stored together.
    __aicore__ inline bool Gathers() const {
        return t_.tileRows < 2 * t_.unitRows - 1 && t_.tileRows < t_.rows;
    }

    __aicore__ inline Slice<T> Load(uint64_t& at, uint64_t end) {
        const uint32_t n = Count(at, end);
        LocalTensor<T> x = xQueue_.template AllocTensor<T>();
        Slice<T> slice;
        slice.Load(x, x_, at * t_.experts, n * t_.experts, t_.rows * t_.experts);
        xQueue_.EnQue(x);
        at += n;
        return slice;
    }

    __aicore__ inline void Prepare(const Slice<float>* bias) {
        const uint32_t n = t_.tileRows, columns = RoundUp(n, kFloatBlock);
        AscendC::Duplicate(w_.sum, 0.0f, int32_t(columns));
        AscendC::Duplicate(w_.maximum, 0.0f, int32_t(columns));
        AscendC::Duplicate(w_.divisor, 0.0f, int32_t(columns));
        AscendC::Duplicate(w_.rowFirst, 0.0f, int32_t(columns));
        AscendC::Duplicate(w_.rowSecond, 0.0f, int32_t(columns));
        // Fields of records that nothing sets, and records that a merge leaves out.
        for (uint32_t i = 0; i < 2 && (n > 1 || !Records::kShort); ++i)
            AscendC::Duplicate(w_.records[i], 0.0f, int32_t(n * t_.pitch * Records::kFloats));
        if constexpr (!Soc::kBroadcast) {
            const IntTensor table = w_.columnTable.ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, 0, int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, n, int32_t(sizeof(float)));
        }
        FillLabels();
        FillPickTables();
        scores_.Prepare(bias);
        if (t_.groups > 1) groups_.Prepare();
    }

    // Expert of each position of a row; pads carry numbers of no expert.
    __aicore__ inline void FillLabels() {
        using Number = Records::Number;
        for (uint32_t g = 0; g < t_.groupSlots; ++g) {
            AscendC::CreateVecIndex(w_.labels[g * t_.groupPitch], static_cast<Number>(g * t_.groupExperts),
                                    t_.groupPitch);
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t done = 1; done < t_.tileRows; done *= 2) {
            const uint32_t more = done < t_.tileRows - done ? done : t_.tileRows - done;
            AscendC::Adds(w_.labels[done * t_.pitch], w_.labels, static_cast<Number>(0),
                          int32_t(more * t_.pitch));
            PipeBarrier<PIPE_V>();
        }
    }

    // pick[r, j]: offset of row r's j-th record, the k-th repeated up to a whole block. flatten: from [n,
    // kPitch] to [n, k]. rowBase: offset of the row's scores in w.flat.
    __aicore__ inline void FillPickTables() {
        for (uint32_t j = 0; j < t_.kPitch; ++j) {
            w_.pick.SetValue(j, int32_t((j < t_.k ? j : t_.k - 1) * Records::kBytes));
        }
        if (t_.k != t_.kPitch && t_.tileRows > 1) {
            uint32_t i = 0;
            for (uint32_t r = 0; r < t_.tileRows; ++r) {
                for (uint32_t j = 0; j < t_.k; ++j, ++i)
                    w_.flatten.SetValue(i, int32_t((r * t_.kPitch + j) * sizeof(float)));
            }
        }
        Order<HardEvent::S_V>();
        FillTable(w_.pick, t_.kPitch, t_.tileRows, int32_t(t_.pitch * Records::kBytes));
        if (t_.hasBias == 0) return;
        AscendC::Duplicate(w_.rowBase, 0, int32_t(t_.kPitch));
        FillTable(w_.rowBase, t_.kPitch, t_.tileRows, int32_t(t_.experts * sizeof(float)));
    }

    __aicore__ inline void Tile(uint32_t n, const Slice<T>& slice) {
        LocalTensor<T> x = xQueue_.template DeQue<T>();
        Convert(w_.flat, x, slice.extent);
        PipeBarrier<PIPE_V>();
        xQueue_.FreeTensor(x);
        if (slice.shift != 0) {
            Order<HardEvent::V_S>();
            for (uint32_t i = slice.whole; i < n * t_.experts; ++i)
                w_.flat.SetValue(i, w_.flat.GetValue(slice.At(i)));
            Order<HardEvent::S_V>();
        }
        scores_.Make(n);
        FloatTensor sorted = w_.records[0], other = w_.records[1];
        SortLists(sorted, other, w_.keys, w_.labels, n * t_.pitch / Records::kList);
        const uint32_t lists = t_.groupPitch / Records::kList;
        if (t_.groups == 1) {
            MergeLists(sorted, other, n, lists, Records::kList, t_.kPitch);
        } else {
            MergeLists(sorted, other, n * t_.groupSlots, lists, Records::kList, t_.groupPitch);
            groups_.Shut(sorted, n);
            MergeLists(sorted, other, n, t_.groupSlots, t_.groupPitch, t_.kPitch);
        }
        Pick(sorted, n);
        Weigh(n);
    }

    // The first k records of each row: numbers and, if no bias hides them, scores.
    __aicore__ inline void Pick(const FloatTensor& sorted, uint32_t n) {
        const LocalTensor<uint32_t> table = w_.pick.ReinterpretCast<uint32_t>();
        const uint32_t score = Records::kScore * sizeof(float), number = Records::kNumber * sizeof(float);
        const uint32_t count = n * t_.kPitch;
        if constexpr (Records::kShort) {
            AscendC::Gather(w_.experts, sorted.ReinterpretCast<int32_t>(), table, number, count);
        } else {
            AscendC::Gather(w_.compact, sorted, table, number, count);
            PipeBarrier<PIPE_V>();
            AscendC::Cast(w_.experts, w_.compact, AscendC::RoundMode::CAST_RINT, count);
        }
        if (t_.hasBias == 0) {
            AscendC::Gather(w_.chosen, sorted, table, score, count);
            PipeBarrier<PIPE_V>();
            return;
        }
        PipeBarrier<PIPE_V>();
        AscendC::Muls(w_.offsets, w_.experts, int32_t(sizeof(float)), int32_t(count));
        PipeBarrier<PIPE_V>();
        AscendC::Add(w_.offsets, w_.offsets, w_.rowBase, int32_t(count));
        PipeBarrier<PIPE_V>();
        AscendC::Gather(w_.chosen, w_.flat, w_.offsets.ReinterpretCast<uint32_t>(), uint32_t(0), count);
        PipeBarrier<PIPE_V>();
    }

    // chosen / divisor * scale; the divisor of a lost row is NaN.
    __aicore__ inline void Weigh(uint32_t n) {
        if (t_.normalise != 0) {
            SumChosen(n);
        } else if (t_.sigmoid != 0) {
            AscendC::Duplicate(w_.sum, 1.0f, int32_t(n));
            PipeBarrier<PIPE_V>();
        }
        AscendC::Add(w_.divisor, w_.sum, w_.lost, int32_t(n));
        PipeBarrier<PIPE_V>();
        BroadcastColumn(w_.column, w_.divisor, w_.columnTable, n);
        PipeBarrier<PIPE_V>();
        for (uint32_t at = 0; at < t_.kPitch; at += kFloatLanes) {
            OverChosen(n, [&](uint32_t r, uint32_t rows, uint8_t step) {
                const FloatTensor& part = w_.chosen[r * t_.kPitch + at];
                const uint32_t left = t_.kPitch - at;
                AscendC::Div(part, part, w_.column[r * kFloatBlock],
                             uint64_t(left < kFloatLanes ? left : kFloatLanes), uint8_t(rows),
                             AscendC::BinaryRepeatParams(1, 1, 0, step, step, 1));
            });
        }
        PipeBarrier<PIPE_V>();
        if (t_.scale != 1.0f) {
            AscendC::Muls(w_.chosen, w_.chosen, t_.scale, int32_t(n * t_.kPitch));
            PipeBarrier<PIPE_V>();
        }
    }
    template <typename F>
    __aicore__ inline void OverChosen(uint32_t n, F f) const {
        const uint32_t step = t_.kPitch / kFloatBlock;
        if (step <= kMostStride) {
            f(0, n, uint8_t(step));
        } else {
            for (uint32_t r = 0; r < n; ++r) f(r, 1, 0);
        }
    }
    __aicore__ inline void SumChosen(uint32_t n) {
        const uint32_t lanes = t_.k < kFloatLanes ? t_.k : kFloatLanes;
        if (t_.k <= kFloatLanes) {
            AscendC::WholeReduceSum(w_.sum, w_.chosen, int32_t(lanes), int32_t(n), 1, 1,
                                    int32_t(t_.kPitch / kFloatBlock));
            PipeBarrier<PIPE_V>();
            return;
        }
        OverChosen(n, [&](uint32_t r, uint32_t rows, uint8_t step) {
            const FloatTensor& to = w_.fold[r * kFloatLanes];
            AscendC::Adds(to, w_.chosen[r * t_.kPitch], 0.0f, uint64_t(kFloatLanes), uint8_t(rows),
                          UnaryRepeatParams(1, 1, 8, step));
            for (uint32_t at = kFloatLanes; at < t_.k; at += kFloatLanes) {
                const uint32_t left = t_.k - at;
                PipeBarrier<PIPE_V>();
                AscendC::Add(to, to, w_.chosen[r * t_.kPitch + at],
                             uint64_t(left < kFloatLanes ? left : kFloatLanes), uint8_t(rows),
                             AscendC::BinaryRepeatParams(1, 1, 1, 8, 8, step));
            }
        });
        PipeBarrier<PIPE_V>();
        AscendC::WholeReduceSum(w_.sum, w_.fold, int32_t(kFloatLanes), int32_t(n), 1, 1, 8);
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Store(uint64_t at, uint32_t n) {
        const uint32_t count = n * t_.k;
        LocalTensor<T> y = yQueue_.template AllocTensor<T>();
        IntTensor experts = expertQueue_.template AllocTensor<int32_t>();
        if (t_.k == t_.kPitch || n == 1) {
            Convert(y, w_.chosen, count);
            AscendC::Adds(experts, w_.experts, 0, int32_t(count));
        } else {
            const LocalTensor<uint32_t> table = w_.flatten.ReinterpretCast<uint32_t>();
            AscendC::Gather(w_.compact, w_.chosen, table, uint32_t(0), count);
            AscendC::Gather(experts, w_.experts, table, uint32_t(0), count);
            PipeBarrier<PIPE_V>();
            Convert(y, w_.compact, count);
        }
        StoreQueued(at, count, y, experts);
    }
    __aicore__ inline void StoreQueued(uint64_t at, uint32_t count, LocalTensor<T> y, IntTensor experts) {
        yQueue_.EnQue(y);
        expertQueue_.EnQue(experts);
        y = yQueue_.template DeQue<T>();
        experts = expertQueue_.template DeQue<int32_t>();
        StoreFlat(y_[at * t_.k], y, count);
        StoreFlat(experts_[at * t_.k], experts, count);
        yQueue_.FreeTensor(y);
        expertQueue_.FreeTensor(experts);
    }

    // The tile's results behind those that are kept; stored once they fill a block and so does what is left.
    // The room of the queues, a tile and 64 elements, holds them: at most unitRows - 1 rows before and after.
    __aicore__ inline void Keep(uint64_t at, uint64_t end, uint32_t n) {
        if (keptRows_ == 0) {
            keptWeights_ = yQueue_.template AllocTensor<T>();
            keptExperts_ = expertQueue_.template AllocTensor<int32_t>();
            Order<HardEvent::MTE3_S>();
        }
        const LocalTensor<T> weights = w_.compact.template ReinterpretCast<T>();
        Convert(weights, w_.chosen, n * t_.kPitch);
        Order<HardEvent::V_S>();
        for (uint32_t r = 0, i = keptRows_ * t_.k; r < n; ++r) {
            for (uint32_t j = 0; j < t_.k; ++j, ++i) {
                keptWeights_.SetValue(i, weights.GetValue(r * t_.kPitch + j));
                keptExperts_.SetValue(i, w_.experts.GetValue(r * t_.kPitch + j));
            }
        }
        Order<HardEvent::S_V>();
        keptRows_ += n;
        const uint64_t left = end - at - n;
        if (left != 0 && (keptRows_ < t_.unitRows || left < t_.unitRows)) return;
        const uint64_t first = at + n - keptRows_;
        Order<HardEvent::S_MTE3>();
        StoreQueued(first, keptRows_ * t_.k, keptWeights_, keptExperts_);
        keptRows_ = 0;
    }

    const Data& t_;
    Work w_;
    Scores scores_;
    Groups groups_;
    AscendC::GlobalTensor<T> x_, y_;
    AscendC::GlobalTensor<float> bias_;
    AscendC::GlobalTensor<int32_t> experts_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> xQueue_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> yQueue_, expertQueue_;
    LocalTensor<T> keptWeights_;
    IntTensor keptExperts_;
    uint32_t keptRows_ = 0;
};

}  // namespace gating
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_moe_gating_top_k(GM_ADDR x, GM_ADDR bias, GM_ADDR y,
                                                              GM_ADDR expert_idx, GM_ADDR workspace,
                                                              GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridMoeGatingTopKTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    AscendC::TPipe pipe;
    hybrid_ops::gating::Kernel<DTYPE_X> kernel(data);
    kernel.Init(pipe, x, bias, y, expert_idx);
    kernel.Process();
}
