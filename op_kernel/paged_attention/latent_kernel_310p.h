// Latent attention on a combined core (ascend310p): products on the matrix unit, softmax on the vector unit.
//
// The latents of a tile are loaded once, as keys and as values. Two tiles are ahead of the one whose softmax
// the vector unit does: the next is multiplied with the queries, the one after it is loaded (LatentFeed310p)
// while the sums of the tile before are multiplied. So L1 has four.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_KERNEL_310P_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_KERNEL_310P_H_

#include "../paged_latent_tiling.h"
#include "fractal_results.h"
#include "latent_feed_310p.h"

namespace hybrid_ops {
namespace paged {

template <Layout kLayout>
class LatentKernel310p {
 public:
    __aicore__ inline explicit LatentKernel310p(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ half*)a.query);
        queryRope_.SetGlobalBuffer((__gm__ half*)a.queryRope);
        out_.SetGlobalBuffer((__gm__ half*)a.out);
        partials_.SetGlobalBuffer((__gm__ float*)a.workspace + t_.syncFloats);
        walk_.Init(t_, a, uint32_t(AscendC::GetBlockIdx()), uint32_t(AscendC::GetBlockNum()));
        const uint32_t rows = t_.blockRows, keys = t_.keyDim + t_.ropeDim;
        cube_.Init(pipe, 2 * rows * t_.tile + rows * t_.valueDim,
                   rows * keys + kLatentTiles * t_.tile * keys + 2 * rows * t_.tile);
        cube_.Tile(queries_, rows, t_.keyDim);
        cube_.Tile(queryRopes_, rows, t_.ropeDim);
        cube_.Sum(sums_, rows * t_.valueDim);
        for (uint32_t i = 0; i < 2; ++i) {
            cube_.Sum(scores_[i], rows * t_.tile);
            cube_.Tile(weights_[i], rows, t_.tile);
        }
        for (uint32_t i = 0; i < kLatentTiles; ++i) {
            cube_.Tile(keys_[i].latents, t_.tile, t_.keyDim);
            cube_.Tile(keys_[i].ropes, t_.tile, t_.ropeDim);
        }
        stage_.Init(pipe, cube_, t_.stageElements, t_.stageElements / 2);
        feed_.Init(t_, a, walk_.Pages(), cube_, stage_);
        const uint32_t weights = rows * t_.tile, results = kSide * t_.valueDim;
        pipe.InitBuffer(weightQueue_, 1, (weights > results ? weights : results) * sizeof(half));
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
        Zero(queries_, rows * t_.keyDim);
        Zero(queryRopes_, rows * t_.ropeDim);
        Order<AscendC::HardEvent::MTE3_V>();
    }
    __aicore__ inline void Zero(CubeTile& tile, uint32_t elements) {
        const LocalTensor<half> zeros = total_.template ReinterpretCast<half>();
        const uint32_t most = 2 * t_.blockRows * t_.valueDim;
        for (uint32_t at = 0; at < elements; at += most) {
            cube_.Fill(tile, zeros, elements - at < most ? elements - at : most, at);
        }
    }

    __aicore__ inline void Run(const Block& block) {
        PipeBarrier<PIPE_V>();
        softmax_.Begin();
        Tile tiles[kLatentTiles];
        if (walk_.Find(block, block.item.begin, tiles[0])) {
            FillRows(block, queries_, query_, t_.keyDim);
            FillRows(block, queryRopes_, queryRope_, t_.ropeDim);
            Attend(block, tiles);
        } else {
            AscendC::Duplicate(total_, 0.0f, int32_t(t_.blockRows * t_.valueDim));
            PipeBarrier<PIPE_V>();
        }
        const Part part{total_, 0, t_.blockRows};
        if (t_.merge) {
            StorePartials(t_, block, part, softmax_, partials_);
        } else {
            softmax_.Normalize(total_, t_.valueDim / kSide);
            StoreResults(t_, block, part, weightQueue_, out_);
        }
    }
    __aicore__ inline void FillRows(const Block& block, CubeTile& tile, const GlobalTensor<half>& src,
                                    uint32_t columns) {
        stage_.Begin(tile, columns);
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint64_t first = uint64_t(block.item.query + q) * t_.heads + block.item.firstHead;
            stage_.Put(src[first * columns], block.item.heads, columns);
        }
        stage_.End();
    }

    // The first tile is in tiles[0]. Places in L1 are handed on from block to block: `tile_` counts through.
    __aicore__ inline void Attend(const Block& block, Tile* tiles) {
        cube_.Vacate();
        feed_.Begin(block, tiles[0], keys_[tile_ % kLatentTiles]);
        feed_.Finish();
        bool next = walk_.Find(block, tiles[0].begin + tiles[0].count, tiles[1]);
        if (next) feed_.Begin(block, tiles[1], keys_[(tile_ + 1) % kLatentTiles]);
        Scores(tiles[0], tile_);
        feed_.Request();
        open_ = held_ = false;
        for (uint32_t i = 0;; ++i, ++tile_) {
            const Tile &tile = tiles[i % kLatentTiles], &second = tiles[(i + 1) % kLatentTiles];
            Tile& third = tiles[(i + 2) % kLatentTiles];
            const bool more = next && walk_.Find(block, second.begin + second.count, third);
            if (more) {
                // Before the scores, whose loads keep the scalar unit.
                feed_.Begin(block, third, keys_[(tile_ + 2) % kLatentTiles]);
                feed_.Step();
            } else {
                feed_.Finish();
            }
            if (next) Scores(second, tile_ + 1);
            Weigh(block, tile);
            // Before the products that read the places of this tile and of the next: what is waited for then
            // is long over.
            cube_.Vacate();
            cube_.Multiply(sums_, {&weights_[tile_ % 2], false},
                           {&keys_[tile_ % kLatentTiles].latents, false}, t_.blockRows, t_.valueDim,
                           RoundUp(tile.rows, kSide), open_);
            open_ = true;
            feed_.Request();
            if (!next) break;
            next = more;
        }
        ++tile_;
        LocalTensor<half> scratch = weightQueue_.template AllocTensor<half>();
        Collect(scratch.template ReinterpretCast<float>());
        weightQueue_.EnQue(scratch);
        scratch = weightQueue_.template DeQue<half>();
        weightQueue_.FreeTensor(scratch);
    }

    __aicore__ inline void Scores(const Tile& tile, uint32_t number) {
        LatentTile& keys = keys_[number % kLatentTiles];
        CubeSum& scores = scores_[number % 2];
        const uint32_t columns = RoundUp(tile.rows, kSide), rows = t_.blockRows;
        cube_.Multiply(scores, {&queries_, false}, {&keys.latents, true}, rows, columns, t_.keyDim, false);
        cube_.Multiply(scores, {&queryRopes_, false}, {&keys.ropes, true}, rows, columns, t_.ropeDim, true);
    }

    // weights_ <- exponentials of the tile's scores, rounded.
    __aicore__ inline void Weigh(const Block& block, const Tile& tile) {
        const uint32_t columns = RoundUp(tile.rows, kSide), elements = t_.blockRows * columns;
        const uint32_t turn = tile_ % 2;
        feed_.Step();
        cube_.Fetch(work_, scores_[turn], elements);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(work_, work_, t_.scale, int32_t(elements));
        PipeBarrier<PIPE_V>();
        for (uint32_t q = 0; q < block.queries; ++q) {
            const uint32_t seen = walk_.Seen(block, q, tile);
            if (seen < columns) softmax_.Mask(work_, q * block.item.heads, block.item.heads, seen, columns);
        }
        PipeBarrier<PIPE_V>();
        feed_.Step();
        LocalTensor<half> weights = weightQueue_.template AllocTensor<half>();
        const FloatTensor scratch = weights.template ReinterpretCast<float>();
        if (softmax_.Outgrown(work_, scratch, columns)) {
            softmax_.Raise(0);
            Collect(scratch);
            if (held_) softmax_.Rescale(total_, t_.valueDim / kSide, 0);
        }
        softmax_.Exponentials(work_, scratch, columns);
        feed_.Step();
        AscendC::Cast(weights, work_, Soc::kNarrow, elements);
        weightQueue_.EnQue(weights);
        weights = weightQueue_.template DeQue<half>();
        cube_.Fill(weights_[turn], weights, elements);
        weightQueue_.FreeTensor(weights);
        feed_.Step();
    }

    // total <- total + sums of the tiles since the last time; `work` has room for half of a tile's scores.
    __aicore__ inline void Collect(const FloatTensor& work) {
        if (!open_) return;
        const uint32_t elements = t_.blockRows * t_.valueDim;
        open_ = false;
        if (!held_) {
            cube_.Fetch(total_, sums_, elements);
            PipeBarrier<PIPE_V>();
            held_ = true;
            return;
        }
        const uint32_t line = t_.blockRows * kSide, most = t_.blockRows * t_.tile / 2 / line * line;
        for (uint32_t at = 0; at < elements; at += most) {
            const uint32_t some = elements - at < most ? elements - at : most;
            cube_.Fetch(work, sums_, some, at, at + some == elements);
            PipeBarrier<PIPE_V>();
            AscendC::Add(total_[at], total_[at], work, int32_t(some));
            PipeBarrier<PIPE_V>();
        }
    }

    const Data t_;
    BlockWalk walk_;
    Cube310p cube_;
    FractalStage stage_;
    LatentFeed310p<kLayout> feed_;
    FractalSoftmax softmax_;
    GlobalTensor<half> query_, queryRope_, out_;
    GlobalTensor<float> partials_;
    CubeTile queries_, queryRopes_, weights_[2];
    LatentTile keys_[kLatentTiles];
    CubeSum scores_[2], sums_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> weightQueue_;
    Buffer buffers_[2];
    FloatTensor total_, work_;
    uint32_t tile_ = 0;  // tiles so far
    bool open_ = false;  // sums of the matrix unit hold tiles that the total lacks
    bool held_ = false;  // the total holds any
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_LATENT_KERNEL_310P_H_
