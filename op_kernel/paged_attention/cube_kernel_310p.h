// Paged attention on a combined core (ascend310p): products on the matrix unit, softmax on the vector unit.
//
// Per tile: scores = Q K^T, softmax, sums = P V. The matrix unit is one tile ahead: while the vector unit
// works on the scores of a tile, the scores of the next, also of another block, and the sums of the one
// before are multiplied.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_

#include "fractal_results.h"
#include "fractal_stage.h"
#include "pages.h"
#include "round_walk.h"

namespace hybrid_ops {
namespace paged {

template <Layout kLayout>
class CubeKernel310p {
 public:
    __aicore__ inline explicit CubeKernel310p(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ half*)a.query);
        key_.SetGlobalBuffer((__gm__ half*)a.key);
        value_.SetGlobalBuffer((__gm__ half*)a.value);
        out_.SetGlobalBuffer((__gm__ half*)a.out);
        partials_.SetGlobalBuffer((__gm__ float*)a.workspace + t_.syncFloats);
        walk_.Init(t_, a, uint32_t(AscendC::GetBlockIdx()), uint32_t(AscendC::GetBlockNum()));
        const uint32_t rows = t_.blockRows;
        cube_.Init(pipe, 2 * rows * t_.tile + rows * t_.valueDim,
                   2 * (rows + t_.tile) * t_.keyDim + 2 * t_.tile * t_.valueDim + 2 * rows * t_.tile);
        cube_.Sum(sums_, rows * t_.valueDim);
        for (uint32_t i = 0; i < 2; ++i) {
            cube_.Sum(scores_[i], rows * t_.tile);
            cube_.Tile(queries_[i], rows, t_.keyDim);
            cube_.Tile(weights_[i], rows, t_.tile);
            cube_.Tile(keys_[i], t_.tile, t_.keyDim);
            cube_.Tile(values_[i], t_.tile, t_.valueDim);
        }
        stage_.Init(pipe, cube_, t_.stageElements, t_.stageElements);
        pipe.InitBuffer(weightQueue_, 1, rows * t_.tile * sizeof(half));
        Reserve(pipe, buffers_[0], total_, rows * t_.valueDim);
        Reserve(pipe, buffers_[1], work_, rows * t_.tile);
        softmax_.Init(pipe, rows);
    }

    __aicore__ inline void Process(AscendC::TPipe& pipe) {
        ZeroQueries();
        Round rounds[3];
        bool open = Next(rounds[0]), pending = false;
        if (open) {
            ScoreLate(rounds[0]);
            FillValues(rounds[0]);
        }
        for (uint32_t i = 0; open; ++i) {
            const Round &round = rounds[i % 3], &before = rounds[(i + 2) % 3];
            open = Next(rounds[(i + 1) % 3]);
            Weigh(round);
            if (open) ScoreLate(rounds[(i + 1) % 3]);
            if (pending) {
                AddSums(before);
                if (round.first) Finish(before);
            }
            // Before the product, which waits for the weights: moves to L1 wait for all products before them.
            if (open) FillValues(rounds[(i + 1) % 3]);
            if (!round.empty) {
                cube_.Multiply(sums_, {&weights_[round.Turn()], false}, {&values_[round.Turn()], false},
                               t_.blockRows, t_.valueDim, RoundUp(round.tile.rows, kSide), false);
            }
            pending = true;
            if (open) continue;
            AddSums(round);
            Finish(round);
        }
        cube_.Finish(sums_);
        cube_.Finish(scores_[0]);
        cube_.Finish(scores_[1]);
        stage_.Release();
        weightQueue_.FreeAllEvent();
        cube_.Release(pipe);
    }

 private:
    // Rows beyond a block are multiplied like the others, and never stored.
    __aicore__ inline void ZeroQueries() {
        const uint32_t rows = t_.blockRows;
        AscendC::Duplicate(total_, 0.0f, int32_t(rows * t_.valueDim));
        AscendC::PipeBarrier<PIPE_V>();
        const LocalTensor<half> zeros = total_.template ReinterpretCast<half>();
        const uint32_t most = 2 * rows * t_.valueDim;
        for (uint32_t at = 0; at < rows * t_.keyDim; at += most) {
            const uint32_t left = rows * t_.keyDim - at;
            for (CubeTile& tile : queries_) cube_.Fill(tile, zeros, left < most ? left : most, at);
        }
        Order<AscendC::HardEvent::MTE3_V>();
    }

    // The next round of this core, its scores being multiplied; false when there is none.
    __aicore__ inline bool Next(Round& round) {
        if (!walk_.Next(round)) return false;
        if (round.empty) return true;
        if (round.first) AskQueries(*round.block, queries_[round.state]);
        FillSlots(*round.block, round.tile, keys_[round.Turn()], key_, t_.keyDim);
        if (!IsLate(round)) Scores(round);
        return true;
    }

    // The block whose last round this is, is done.
    __aicore__ inline void Finish(const Round& round) {
        softmax_.Select(round.state);
        const Part part{total_, 0, t_.blockRows};
        if (t_.merge) {
            StorePartials(t_, *round.block, part, softmax_, partials_);
        } else {
            softmax_.Normalize(total_, t_.valueDim / kSide);
            StoreResults(t_, *round.block, part, stage_.Out(), out_);
        }
    }

    // Queries come through unified buffer. Where nothing else does, the vector unit need not wait for them
    // before the round at hand: its scores are multiplied after that.
    __aicore__ inline static bool IsLate(const Round& round) {
        return kLayout == Layout::kNz && round.first && !round.empty;
    }
    __aicore__ inline void ScoreLate(const Round& round) {
        if (!IsLate(round)) return;
        stage_.End();
        Scores(round);
    }
    __aicore__ inline void AskQueries(const Block& block, CubeTile& tile) {
        stage_.Begin(tile, t_.keyDim);
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint64_t first = uint64_t(block.item.query + q) * t_.heads + block.item.firstHead;
            stage_.Put(query_[first * t_.keyDim], block.item.heads, t_.keyDim);
        }
        if constexpr (kLayout == Layout::kNz) {
            stage_.Close();
        } else {
            stage_.End();
        }
    }
    // tile <- rows of the slots that the pool has
    __aicore__ inline void FillSlots(const Block& block, const Tile& tile, CubeTile& to,
                                     const GlobalTensor<half>& cache, uint32_t columns) {
        uint32_t rows = 0;
        if constexpr (kLayout == Layout::kNz) {
            cube_.BeginColumns(to, tile.rows, columns);
        } else {
            stage_.Begin(to, columns);
        }
        for (uint32_t done = 0, run = 0; done < tile.count; done += run) {
            const int64_t slot =
                walk_.Blocks().Pages().Run(block.item, tile.begin + done, tile.count - done, run);
            if (slot < 0) continue;
            const GlobalTensor<half> src = cache[RowAt<kLayout>(t_, slot, block.item.kvHead, columns)];
            if constexpr (kLayout == Layout::kNz) {
                LoadNzColumns(to.data[rows * kColumn], src, run, columns, t_.pageSize, to.rows);
            } else {
                stage_.Put(src, run, uint64_t(t_.kvHeads) * columns);
            }
            rows += run;
        }
        if constexpr (kLayout == Layout::kNz) {
            cube_.EndColumns(to);
        } else {
            stage_.End();
        }
    }

    __aicore__ inline void FillValues(const Round& round) {
        if (round.empty) return;
        FillSlots(*round.block, round.tile, values_[round.Turn()], value_, t_.valueDim);
    }
    // Multiplies the queries with the keys of a round.
    __aicore__ inline void Scores(const Round& round) {
        CubeTile& keys = keys_[round.Turn()];
        cube_.Multiply(scores_[round.Turn()], {&queries_[round.state], false}, {&keys, true}, t_.blockRows,
                       RoundUp(round.tile.rows, kSide), t_.keyDim, false);
    }

    // The round's weights <- exponentials of its scores, rounded.
    __aicore__ inline void Weigh(const Round& round) {
        softmax_.Select(round.state);
        if (round.first) softmax_.Begin();
        if (round.empty) return;
        const Block& block = *round.block;
        const Tile& tile = round.tile;
        const uint32_t columns = RoundUp(tile.rows, kSide), elements = t_.blockRows * columns;
        cube_.Fetch(work_, scores_[round.Turn()], elements);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(work_, work_, t_.scale, int32_t(elements));
        PipeBarrier<PIPE_V>();
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint32_t seen = walk_.Blocks().Seen(block, q, tile);
            if (seen < columns) softmax_.Mask(work_, q * block.item.heads, block.item.heads, seen, columns);
        }
        PipeBarrier<PIPE_V>();
        LocalTensor<half> weights = weightQueue_.template AllocTensor<half>();
        softmax_.Weigh(work_, weights.template ReinterpretCast<float>(), columns, round.Turn());
        AscendC::Cast(weights, work_, Soc::kNarrow, elements);
        weightQueue_.EnQue(weights);
        weights = weightQueue_.template DeQue<half>();
        cube_.Fill(weights_[round.Turn()], weights, elements);
        weightQueue_.FreeTensor(weights);
    }

    // total <- total * factors of the round + its sums
    __aicore__ inline void AddSums(const Round& round) {
        const uint32_t elements = t_.blockRows * t_.valueDim;
        if (round.empty) {
            AscendC::Duplicate(total_, 0.0f, int32_t(elements));
            PipeBarrier<PIPE_V>();
            return;
        }
        if (round.first) {
            cube_.Fetch(total_, sums_, elements);
            PipeBarrier<PIPE_V>();
            return;
        }
        const uint32_t line = t_.blockRows * kSide, most = t_.blockRows * t_.tile / line * line;
        softmax_.Rescale(total_, t_.valueDim / kSide, round.Turn());
        for (uint32_t at = 0; at < elements; at += most) {
            const uint32_t some = elements - at < most ? elements - at : most;
            cube_.Fetch(work_, sums_, some, at, at + some == elements);
            PipeBarrier<PIPE_V>();
            AscendC::Add(total_[at], total_[at], work_, int32_t(some));
            PipeBarrier<PIPE_V>();
        }
    }

    const Data t_;
    RoundWalk walk_;
    Cube310p cube_;
    FractalStage stage_;
    FractalSoftmax softmax_;
    GlobalTensor<half> query_, key_, value_, out_;
    GlobalTensor<float> partials_;
    CubeTile queries_[2], weights_[2], keys_[2], values_[2];
    CubeSum scores_[2], sums_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> weightQueue_;
    Buffer buffers_[2];
    FloatTensor total_, work_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_
