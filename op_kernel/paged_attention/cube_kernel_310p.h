// Paged attention on a combined core (ascend310p): products on the matrix unit, softmax on the vector unit.
//
// Per tile: scores = Q K^T, softmax, sums = P V. The matrix unit is one tile ahead: while the vector unit
// works on the scores of a tile, the scores of the next and the sums of the one before are multiplied.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_

#include "fractal_results.h"
#include "fractal_stage.h"
#include "pages.h"

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
                   (rows + 2 * t_.tile) * t_.keyDim + 2 * t_.tile * t_.valueDim + 2 * rows * t_.tile);
        cube_.Tile(queries_, rows, t_.keyDim);
        cube_.Sum(sums_, rows * t_.valueDim);
        for (uint32_t i = 0; i < 2; ++i) {
            cube_.Sum(scores_[i], rows * t_.tile);
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
        Block block;
        while (walk_.Next(block)) Run(block);
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
            cube_.Fill(queries_, zeros, left < most ? left : most, at);
        }
        Order<AscendC::HardEvent::MTE3_V>();
    }

    __aicore__ inline void Run(const Block& block) {
        PipeBarrier<PIPE_V>();
        AscendC::Duplicate(total_, 0.0f, int32_t(t_.blockRows * t_.valueDim));
        softmax_.Begin();
        const int64_t begin = block.item.begin, end = block.item.end;
        if (begin < end) FillQueries(block);
        Tile tiles[2];
        bool open = begin < end;
        uint32_t done = 0;  // tiles whose scores went into the sums, or are about to
        if (open) Scores(block, begin, tiles[0], 0);
        for (uint32_t i = 0; open; ++i) {
            const uint32_t turn = i % 2, phase = done % 2;
            const Tile& tile = tiles[turn];
            FillSlots(block, tile, values_[turn], value_, t_.valueDim);
            const int64_t next = tile.begin + tile.count;
            open = next < end;
            if (open) Scores(block, next, tiles[turn ^ 1], turn ^ 1);
            if (tile.rows == 0) continue;
            Weigh(block, tile, turn, phase);
            if (done != 0) Add(phase ^ 1);
            cube_.Multiply(sums_, {&weights_[phase], false}, {&values_[turn], false}, t_.blockRows,
                           t_.valueDim, RoundUp(tile.rows, kSide), false);
            ++done;
        }
        if (done != 0) Add((done - 1) % 2);
        const Part part{total_, 0, t_.blockRows};
        if (t_.merge) {
            StorePartials(t_, block, part, softmax_, partials_);
        } else {
            softmax_.Normalize(total_, t_.valueDim / kSide);
            StoreResults(t_, block, part, stage_.Out(), out_);
        }
    }

    __aicore__ inline void FillQueries(const Block& block) { FillRows(block, queries_, query_, t_.keyDim); }
    __aicore__ inline void FillRows(const Block& block, CubeTile& tile, const GlobalTensor<half>& src,
                                    uint32_t columns) {
        stage_.Begin(tile, columns);
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint64_t first = uint64_t(block.item.query + q) * t_.heads + block.item.firstHead;
            stage_.Put(src[first * columns], block.item.heads, columns);
        }
        stage_.End();
    }
    // tile <- rows of the slots that the pool has; returns how many.
    __aicore__ inline uint32_t FillSlots(const Block& block, const Tile& tile, CubeTile& to,
                                         const GlobalTensor<half>& cache, uint32_t columns) {
        uint32_t rows = 0;
        if constexpr (kLayout == Layout::kNz) {
            const uint32_t known = walk_.Known(block, tile.begin, tile.count);
            cube_.BeginColumns(to, known, columns);
        } else {
            stage_.Begin(to, columns);
        }
        for (uint32_t done = 0, run = 0; done < tile.count; done += run) {
            const int64_t slot = walk_.Pages().Run(block.item, tile.begin + done, tile.count - done, run);
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
        return rows;
    }

    // Loads the keys of the tile at `begin` and multiplies the queries with them.
    __aicore__ inline void Scores(const Block& block, int64_t begin, Tile& tile, uint32_t turn) {
        const int64_t left = block.item.end - begin;
        tile.begin = begin;
        tile.count = left < int64_t(t_.tile) ? uint32_t(left) : t_.tile;
        tile.rows = FillSlots(block, tile, keys_[turn], key_, t_.keyDim);
        if (tile.rows == 0) return;
        const uint32_t columns = RoundUp(tile.rows, kSide), rows = t_.blockRows;
        cube_.Multiply(scores_[turn], {&queries_, false}, {&keys_[turn], true}, rows, columns, t_.keyDim,
                       false);
    }

    // weights_[phase] <- exponentials of the tile's scores, rounded.
    __aicore__ inline void Weigh(const Block& block, const Tile& tile, uint32_t turn, uint32_t phase) {
        const uint32_t columns = RoundUp(tile.rows, kSide), elements = t_.blockRows * columns;
        cube_.Fetch(work_, scores_[turn], elements);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(work_, work_, t_.scale, int32_t(elements));
        PipeBarrier<PIPE_V>();
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint32_t seen = walk_.Seen(block, q, tile);
            if (seen < columns) softmax_.Mask(work_, q * block.item.heads, block.item.heads, seen, columns);
        }
        PipeBarrier<PIPE_V>();
        LocalTensor<half> weights = weightQueue_.template AllocTensor<half>();
        softmax_.Weigh(work_, weights.template ReinterpretCast<float>(), columns, phase);
        AscendC::Cast(weights, work_, Soc::kNarrow, elements);
        weightQueue_.EnQue(weights);
        weights = weightQueue_.template DeQue<half>();
        cube_.Fill(weights_[phase], weights, elements);
        weightQueue_.FreeTensor(weights);
    }

    // total <- total * factors of `phase` + sums
    __aicore__ inline void Add(uint32_t phase) {
        const uint32_t elements = t_.blockRows * t_.valueDim;
        const uint32_t line = t_.blockRows * kSide, most = t_.blockRows * t_.tile / line * line;
        softmax_.Rescale(total_, t_.valueDim / kSide, phase);
        for (uint32_t at = 0; at < elements; at += most) {
            const uint32_t some = elements - at < most ? elements - at : most;
            cube_.Fetch(work_, sums_, some, at, at + some == elements);
            PipeBarrier<PIPE_V>();
            AscendC::Add(total_[at], total_[at], work_, int32_t(some));
            PipeBarrier<PIPE_V>();
        }
    }

    const Data t_;
    BlockWalk walk_;
    Cube310p cube_;
    FractalStage stage_;
    FractalSoftmax softmax_;
    GlobalTensor<half> query_, key_, value_, out_;
    GlobalTensor<float> partials_;
    CubeTile queries_, weights_[2], keys_[2], values_[2];
    CubeSum scores_[2], sums_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> weightQueue_;
    Buffer buffers_[2];
    FloatTensor total_, work_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_KERNEL_310P_H_
