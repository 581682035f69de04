// Paged attention on split cores (ascend910b): the vector cores' part, half of a block's rows each. Both
// cores of a pair set and await the same flags, also one whose rows are all padding.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_SIDE_910B_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_SIDE_910B_H_

#include "exchange_910b.h"
#include "fractal_results.h"
#include "round_walk.h"

namespace hybrid_ops {
namespace paged {

template <typename T>
class VectorSide910b {
 public:
    __aicore__ inline explicit VectorSide910b(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        partials_.SetGlobalBuffer((__gm__ float*)a.workspace);
        const uint32_t core = uint32_t(AscendC::GetBlockIdx()) / kVectorCores;
        walk_.Init(t_, a, core, uint32_t(AscendC::GetBlockNum()));
        shared_.Init(t_, a.workspace, core);
        rows_ = t_.blockRows / kVectorCores;
        row_ = uint32_t(AscendC::GetSubBlockIdx()) * rows_;
        line_ = rows_ * kSide;
        sumColumns_ = kSumElements / line_ < 1 ? 1 : kSumElements / line_;
        pipe.InitBuffer(scores_, 1, rows_ * t_.tile * sizeof(float));
        const uint32_t weights = rows_ * t_.tile, results = kSide * t_.valueDim;
        pipe.InitBuffer(weights_, 1, (weights > results ? weights : results) * sizeof(T));
        pipe.InitBuffer(sums_, kSumPlaces, sumColumns_ * line_ * sizeof(float));
        Reserve(pipe, buffer_, total_, rows_ * t_.valueDim);
        softmax_.Init(pipe, rows_);
        AscendC::Duplicate(total_, 0.0f, int32_t(rows_ * t_.valueDim));
        // Rows that are not exchanged are worked on like the others.
        Zero(scores_, 1, rows_ * t_.tile);
        Zero(sums_, kSumPlaces, sumColumns_ * line_);
    }

    // One round ahead with the weights, over all blocks: the cube core is not kept waiting by results.
    __aicore__ inline void Process(AscendC::TPipe&) {
        Round rounds[3];
        bool open = Next(rounds[0]), pending = false;
        for (uint32_t i = 0; open; ++i) {
            const Round &round = rounds[i % 3], &before = rounds[(i + 2) % 3];
            Weigh(round);
            if (pending) AddSums(before);
            // Waiting for its scores must not keep this round's weights from the cube core, and results must
            // not keep those scores.
            open = Next(rounds[(i + 1) % 3]);
            if (pending && round.first) Finish(before);
            pending = true;
            if (open) continue;
            AddSums(round);
            Finish(round);
        }
        scores_.FreeAllEvent();
        weights_.FreeAllEvent();
        sums_.FreeAllEvent();
    }

 private:
    static constexpr uint32_t kSumPlaces = 2;

    template <class Queue>
    __aicore__ inline static void Zero(Queue& queue, uint32_t places, uint32_t elements) {
        for (uint32_t i = 0; i < places; ++i) {
            LocalTensor<float> tensor = queue.template AllocTensor<float>();
            AscendC::Duplicate(tensor, 0.0f, int32_t(elements));
            queue.EnQue(tensor);
        }
        for (uint32_t i = 0; i < places; ++i) {
            LocalTensor<float> tensor = queue.template DeQue<float>();
            queue.FreeTensor(tensor);
        }
    }

    // The next round of this core, its scores on their way; false when there is none.
    __aicore__ inline bool Next(Round& round) {
        if (!walk_.Next(round)) return false;
        if (!round.empty) FetchScores(round);
        return true;
    }

    // Of this core's rows: those that are exchanged.
    __aicore__ inline uint32_t Used(const Block& block) const {
        const uint32_t shared = SharedRows(block);
        return shared <= row_ ? 0 : shared - row_ < rows_ ? shared - row_ : rows_;
    }

    __aicore__ inline void FetchScores(const Round& round) {
        Await(kScored);
        const uint32_t used = Used(*round.block);
        if (used == 0) return;
        LocalTensor<float> scores = scores_.template AllocTensor<float>();
        const uint32_t columns = hybrid_ops::RoundUp(round.tile.rows, kSide) / kSide;
        AscendC::DataCopy(
            scores, shared_.scores[round.number % kScorePlaces][row_ * kSide],
            AscendC::DataCopyParams(uint16_t(columns), uint16_t(2 * used),
                                    uint16_t(2 * (t_.blockRows - used)), uint16_t(2 * (rows_ - used))));
        scores_.EnQue(scores);
    }

    __aicore__ inline void Weigh(const Round& round) {
        softmax_.Select(round.state);
        if (round.first) softmax_.Begin();
        if (round.empty) return;
        const uint32_t used = Used(*round.block);
        if (used == 0) {
            Signal<PIPE_MTE3>(kWeighed);
            return;
        }
        const uint32_t columns = hybrid_ops::RoundUp(round.tile.rows, kSide), elements = rows_ * columns;
        LocalTensor<float> scores = scores_.template DeQue<float>();
        AscendC::Muls(scores, scores, t_.scale, int32_t(elements));
        PipeBarrier<PIPE_V>();
        Mask(*round.block, round.tile, scores, columns);
        LocalTensor<T> weights = weights_.template AllocTensor<T>();
        softmax_.Weigh(scores, weights.template ReinterpretCast<float>(), columns, round.Turn());
        AscendC::Cast(weights, scores, Soc::kNarrow, elements);
        PipeBarrier<PIPE_V>();
        scores_.FreeTensor(scores);
        weights_.EnQue(weights);
        weights = weights_.template DeQue<T>();
        AscendC::PipeBarrier<PIPE_MTE3>();
        AscendC::DataCopy(shared_.weights[round.Turn()][row_ * kSide], weights,
                          AscendC::DataCopyParams(uint16_t(columns / kSide), uint16_t(used),
                                                  uint16_t(rows_ - used), uint16_t(t_.blockRows - used)));
        Signal<PIPE_MTE3>(kWeighed);
        weights_.FreeTensor(weights);
    }
    // Columns that a row does not see, and whole rows of padding.
    __aicore__ inline void Mask(const Block& block, const Tile& tile, const FloatTensor& scores,
                                uint32_t columns) {
        const uint32_t heads = block.item.heads, end = row_ + rows_;
        for (uint32_t r = row_; r < end;) {
            const uint32_t query = r / heads;
            const bool padding = query >= block.queries;
            const uint32_t next = padding || (query + 1) * heads > end ? end : (query + 1) * heads;
            const uint32_t seen = padding ? 0 : walk_.Blocks().Seen(block, query, tile);
            if (seen < columns) softmax_.Mask(scores, r - row_, next - r, seen, columns);
            r = next;
        }
        PipeBarrier<PIPE_V>();
    }

    // The block whose last round this is, is done.
    __aicore__ inline void Finish(const Round& round) {
        softmax_.Select(round.state);
        const Part part{total_, row_, rows_};
        if (t_.merge) {
            StorePartials(t_, *round.block, part, softmax_, partials_);
        } else {
            softmax_.Normalize(total_, t_.valueDim / kSide);
            StoreResults(t_, *round.block, part, weights_, out_);
        }
    }
    // total <- total * factors of the round + its sums
    __aicore__ inline void AddSums(const Round& round) {
        if (round.empty) {
            AscendC::Duplicate(total_, 0.0f, int32_t(rows_ * t_.valueDim));
            PipeBarrier<PIPE_V>();
            return;
        }
        Await(kSummed);
        const uint32_t columns = t_.valueDim / kSide, used = Used(*round.block);
        if (used == 0) return;
        FetchSums(0, round.Turn(), used);
        if (!round.first) {
            softmax_.Rescale(total_, columns, round.Turn());
            PipeBarrier<PIPE_V>();
        }
        for (uint32_t c = 0; c < columns; c += sumColumns_) {
            FetchSums(c + sumColumns_, round.Turn(), used);
            const uint32_t some = columns - c < sumColumns_ ? columns - c : sumColumns_;
            LocalTensor<float> sums = sums_.template DeQue<float>();
            const FloatTensor total = total_[c * line_];
            if (round.first) {
                AscendC::Adds(total, sums, 0.0f, int32_t(some * line_));
            } else {
                AscendC::Add(total, total, sums, int32_t(some * line_));
            }
            sums_.FreeTensor(sums);
        }
        PipeBarrier<PIPE_V>();
    }
    __aicore__ inline void FetchSums(uint32_t column, uint32_t turn, uint32_t used) {
        const uint32_t columns = t_.valueDim / kSide;
        if (column >= columns) return;
        const uint32_t some = columns - column < sumColumns_ ? columns - column : sumColumns_;
        LocalTensor<float> sums = sums_.template AllocTensor<float>();
        AscendC::DataCopy(
            sums, shared_.sums[turn][(column * t_.blockRows + row_) * kSide],
            AscendC::DataCopyParams(uint16_t(some), uint16_t(2 * used), uint16_t(2 * (t_.blockRows - used)),
                                    uint16_t(2 * (rows_ - used))));
        sums_.EnQue(sums);
    }

    const Data t_;
    RoundWalk walk_;
    Shared<T> shared_;
    FractalSoftmax softmax_;
    GlobalTensor<T> out_;
    GlobalTensor<float> partials_;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> scores_;
    AscendC::TQue<AscendC::TPosition::VECIN, kSumPlaces> sums_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> weights_;  // and results
    Buffer buffer_;
    FloatTensor total_;
    uint32_t row_, rows_, line_, sumColumns_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_SIDE_910B_H_
