// Paged attention on split cores (ascend910b): the cube core's part. Scores, weights and sums of a tile go
// through the workspace, in columns of fractals, between the cube core and its two vector cores
// (vector_side_910b.h), each in places that take turns. The cube core is one tile ahead with the scores.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_SIDE_910B_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_SIDE_910B_H_

#include "../common/cube_910b.h"
#include "fractal_softmax.h"
#include "pages.h"

namespace hybrid_ops {
namespace paged {

using AscendC::GlobalTensor;
using AscendC::HardEvent;

// Flags between the cores.
constexpr uint16_t kScored = 0, kWeighed = 1, kSummed = 2;
constexpr uint32_t kVectorCores = 2;  // of an AI Core

// Workspace of one AI Core, behind the partial results.
template <typename T>
struct Shared {
    GlobalTensor<float> scores[kScorePlaces], sums[2];
    GlobalTensor<T> weights[2];
    __aicore__ inline void Init(const Data& t, GM_ADDR workspace, uint32_t core) {
        GM_ADDR at = workspace + t.partialBytes + uint64_t(core) * t.sharedBytes;
        const uint64_t scoreElements = uint64_t(t.blockRows) * t.tile;
        const uint64_t sumElements = uint64_t(t.blockRows) * t.valueDim;
        for (uint32_t i = 0; i < kScorePlaces; ++i) {
            scores[i].SetGlobalBuffer((__gm__ float*)at);
            at += scoreElements * sizeof(float);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            sums[i].SetGlobalBuffer((__gm__ float*)at);
            at += sumElements * sizeof(float);
            weights[i].SetGlobalBuffer((__gm__ T*)at);
            at += scoreElements * sizeof(T);
        }
    }
};

// Rows that the cores exchange: those of the block, but at least two, as with m = 1 the unit would read the
// left operand as a plain row.
__aicore__ inline uint32_t SharedRows(const Block& block) { return block.rows < 2 ? 2 : block.rows; }

template <typename T, bool kLatent, Layout kLayout>
class CubeSide910b {
 public:
    __aicore__ inline explicit CubeSide910b(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        value_.SetGlobalBuffer((__gm__ T*)a.value);
        if constexpr (kLatent) {
            queryRope_.SetGlobalBuffer((__gm__ T*)a.queryRope);
            keyRope_.SetGlobalBuffer((__gm__ T*)a.keyRope);
        }
        const uint32_t core = uint32_t(AscendC::GetBlockIdx());
        walk_.Init(t_, a, core, uint32_t(AscendC::GetBlockNum()));
        shared_.Init(t_, a.workspace, core);
        unit_.Init(pipe);
        const uint32_t rows = t_.blockRows, keys = t_.keyDim + t_.ropeDim;
        const uint32_t values = kLatent ? 0 : 2 * t_.tile * t_.valueDim;
        pipe.InitBuffer(l1_, (rows * keys + 2 * t_.tile * keys + values + 2 * rows * t_.tile) * sizeof(T));
        Take(pipe, queries_, rows, t_.keyDim);
        if constexpr (kLatent) queryRopes_ = Room(rows, t_.ropeDim);
        for (uint32_t i = 0; i < 2; ++i) {
            Take(pipe, keys_[i], t_.tile, t_.keyDim);
            Take(pipe, weights_[i], rows, t_.tile);
            if constexpr (kLatent) {
                keyRopes_[i] = Room(t_.tile, t_.ropeDim);
            } else {
                Take(pipe, values_[i], t_.tile, t_.valueDim);
            }
        }
    }

    __aicore__ inline void Process(AscendC::TPipe& pipe) {
        Block block;
        while (walk_.Next(block)) Run(block);
        Drop(pipe, queries_);
        for (uint32_t i = 0; i < 2; ++i) {
            Drop(pipe, keys_[i]);
            Drop(pipe, weights_[i]);
            if constexpr (!kLatent) Drop(pipe, values_[i]);
        }
        unit_.Release(pipe);
    }

 private:
    static constexpr uint32_t kOperand = CubeUnit::kOperandBytes / sizeof(T);
    static constexpr uint32_t kResult = CubeUnit::kResultBytes / sizeof(float);

    // A matrix in L1 that MTE2 writes and MTE1 reads.
    struct Operand {
        CubeMatrix<T> matrix;
        event_t loaded, used;
    };
    __aicore__ inline CubeMatrix<T> Room(uint32_t height, uint32_t columns) {
        const CubeMatrix<T> matrix{l1_.template Get<T>()[l1End_], height};
        l1End_ += height * columns;
        return matrix;
    }
    __aicore__ inline void Take(AscendC::TPipe& pipe, Operand& o, uint32_t height, uint32_t columns) {
        o.matrix = Room(height, columns);
        o.loaded = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
        o.used = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(o.used);
    }
    __aicore__ inline void Drop(AscendC::TPipe& pipe, Operand& o) {
        AscendC::WaitFlag<HardEvent::MTE1_MTE2>(o.used);
        pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(o.loaded);
        pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(o.used);
    }
    __aicore__ inline void BeginLoad(Operand& o) { AscendC::WaitFlag<HardEvent::MTE1_MTE2>(o.used); }
    __aicore__ inline void EndLoad(Operand& o) { AscendC::SetFlag<HardEvent::MTE2_MTE1>(o.loaded); }
    __aicore__ inline void BeginUse(Operand& o) { AscendC::WaitFlag<HardEvent::MTE2_MTE1>(o.loaded); }
    __aicore__ inline void EndUse(Operand& o) { AscendC::SetFlag<HardEvent::MTE1_MTE2>(o.used); }

    // Moves are issued as early as their places are free: what a tile needs is on its way while the vector
    // cores work on the tile before. Latents, which the sums of a tile need too, come after them.
    __aicore__ inline void Run(const Block& block) {
        Tile tiles[3];
        if (!walk_.Find(block, block.item.begin, tiles[0])) return;
        LoadQueries(block);
        LoadKeys(block, tiles[0], tile_);
        bool next = Find(block, tiles[0], tiles[1]);
        Scores(tiles[0], tile_);
        if (next) LoadKeys(block, tiles[1], tile_ + 1);
        if constexpr (!kLatent) LoadValues(block, tiles[0], tile_);
        for (uint32_t i = 0;; ++i, ++tile_) {
            const Tile &tile = tiles[i % 3], &second = tiles[(i + 1) % 3];
            if (next) {
                Scores(second, tile_ + 1);
            } else {
                EndUse(queries_);
            }
            const bool third = next && Find(block, second, tiles[(i + 2) % 3]);
            if (!kLatent && third) LoadKeys(block, tiles[(i + 2) % 3], tile_ + 2);
            LoadWeights(tile, tile_);
            if constexpr (!kLatent) {
                if (next) LoadValues(block, second, tile_ + 1);
            }
            Sums(tile, tile_);
            if (kLatent && third) LoadKeys(block, tiles[(i + 2) % 3], tile_ + 2);
            if (!next) break;
            next = third;
        }
        ++tile_;
    }
    __aicore__ inline bool Find(const Block& block, const Tile& tile, Tile& next) const {
        return walk_.Find(block, tile.begin + tile.count, next);
    }

    // Rows of a matrix: `row` rows are there already, n more follow, `pitch` elements apart.
    __aicore__ inline void LoadRows(const CubeMatrix<T>& to, uint32_t row, const GlobalTensor<T>& src,
                                    uint32_t n, uint32_t columns, uint32_t pitch) {
        AscendC::DataCopy(to.data[row * kFractalColumns<T>], src,
                          AscendC::Nd2NzParams(1, uint16_t(n), uint16_t(columns), 0, uint16_t(pitch),
                                               uint16_t(to.height), 1, 0));
    }
    // All rows of the matrix: those beyond the block repeat its first query, and are never looked at.
    __aicore__ inline void LoadQueries(const Block& block) {
        BeginLoad(queries_);
        rows_ = SharedRows(block);
        const uint32_t heads = block.item.heads;
        for (uint32_t row = 0; row < t_.blockRows; row += heads) {
            const uint32_t query = row < block.rows ? block.item.query + row / heads : block.item.query;
            const uint32_t n = t_.blockRows - row < heads ? t_.blockRows - row : heads;
            const uint64_t first = uint64_t(query) * t_.heads + block.item.firstHead;
            LoadRows(queries_.matrix, row, query_[first * t_.keyDim], n, t_.keyDim, t_.keyDim);
            if constexpr (kLatent) {
                LoadRows(queryRopes_, row, queryRope_[first * t_.ropeDim], n, t_.ropeDim, t_.ropeDim);
            }
        }
        EndLoad(queries_);
        BeginUse(queries_);
    }
    // The slots of a tile; `padded`: rows up to a multiple of 16 repeat the last one.
    __aicore__ inline void LoadCache(const Block& block, const Tile& tile, const CubeMatrix<T>& to,
                                     const GlobalTensor<T>& cache, uint32_t columns, bool padded) {
        uint32_t rows = 0;
        int64_t last = 0;
        for (uint32_t done = 0, run = 0; done < tile.count; done += run) {
            const int64_t slot = walk_.Pages().Run(block.item, tile.begin + done, tile.count - done, run);
            if (slot < 0) continue;
            LoadSlots(to, rows, cache, slot, block.item.kvHead, run, columns);
            rows += run;
            last = slot + run - 1;
        }
        while (padded && rows % kSide != 0) LoadSlots(to, rows++, cache, last, block.item.kvHead, 1, columns);
    }
    // Rows from `row` on <- one kv head of `run` slots of one page.
    __aicore__ inline void LoadSlots(const CubeMatrix<T>& to, uint32_t row, const GlobalTensor<T>& cache,
                                     int64_t slot, uint32_t kvHead, uint32_t run, uint32_t columns) {
        const GlobalTensor<T> src = cache[RowAt<kLayout>(t_, slot, kvHead, columns)];
        if constexpr (kLayout == Layout::kNz) {
            LoadNzColumns(to.data[row * kColumn], src, run, columns, t_.pageSize, to.height);
        } else {
            LoadRows(to, row, src, run, columns, t_.kvHeads * columns);
        }
    }
    __aicore__ inline void LoadKeys(const Block& block, const Tile& tile, uint32_t number) {
        Operand& keys = keys_[number % 2];
        BeginLoad(keys);
        LoadCache(block, tile, keys.matrix, key_, t_.keyDim, true);
        if constexpr (kLatent) LoadCache(block, tile, keyRopes_[number % 2], keyRope_, t_.ropeDim, true);
        EndLoad(keys);
    }
    __aicore__ inline void LoadValues(const Block& block, const Tile& tile, uint32_t number) {
        Operand& values = values_[number % 2];
        BeginLoad(values);
        LoadCache(block, tile, values.matrix, value_, t_.valueDim, false);
        EndLoad(values);
    }
    __aicore__ inline void LoadWeights(const Tile& tile, uint32_t number) {
        Operand& weights = weights_[number % 2];
        const uint16_t gap = uint16_t(t_.blockRows - rows_);
        Await(kWeighed);
        BeginLoad(weights);
        AscendC::DataCopy(
            weights.matrix.data, shared_.weights[number % 2],
            AscendC::DataCopyParams(uint16_t((tile.rows + kSide - 1) / kSide), uint16_t(rows_), gap, gap));
        EndLoad(weights);
    }

    // c (+)= A B^T, or A B with kRight, in steps of k that fit into half of L0A and L0B. `column`: of B.
    template <bool kRight>
    __aicore__ inline void Multiply(const CubeUnit::Result& c, const CubeMatrix<T>& a, const CubeMatrix<T>& b,
                                    uint32_t n, uint32_t k, bool first, uint32_t column = 0) {
        const uint32_t wide =
            hybrid_ops::RoundUp(n, kSide) > a.height ? hybrid_ops::RoundUp(n, kSide) : a.height;
        const uint32_t step = kOperand / wide / kSide * kSide;
        for (uint32_t at = 0; at < k; at += step) {
            const uint32_t some = k - at < step ? k - at : step;
            const CubeMatrix<T> left{a.data[at * a.height], a.height};
            const CubeMatrix<T> right{
                kRight ? b.data[column * b.height + at * kFractalColumns<T>] : b.data[at * b.height],
                b.height};
            unit_.template Add<false, kRight>(c, left, right, rows_, n, some, first && at == 0);
        }
    }
    __aicore__ inline void Store(const GlobalTensor<float>& dst, const CubeUnit::Result& c, uint32_t n) {
        AscendC::Fixpipe<float, float, AscendC::CFG_NZ>(
            dst, c.data,
            AscendC::FixpipeParamsV220(hybrid_ops::RoundUp(n, kSide), rows_,
                                       hybrid_ops::RoundUp(rows_, kSide), 2 * t_.blockRows, false,
                                       QuantMode_t::NoQuant, 0, 1, 0, 0, 0));
    }

    __aicore__ inline void Scores(const Tile& tile, uint32_t number) {
        const uint32_t turn = number % 2, columns = hybrid_ops::RoundUp(tile.rows, kSide);
        Operand& keys = keys_[turn];
        BeginUse(keys);
        const CubeUnit::Result c = unit_.Begin();
        Multiply<false>(c, queries_.matrix, keys.matrix, columns, t_.keyDim, true);
        if constexpr (kLatent) Multiply<false>(c, queryRopes_, keyRopes_[turn], columns, t_.ropeDim, false);
        if constexpr (!kLatent) EndUse(keys);
        unit_.Ready(c);
        AscendC::PipeBarrier<PIPE_FIX>();
        Store(shared_.scores[number % kScorePlaces], c, columns);
        unit_.End(c);
        Signal<PIPE_FIX>(kScored);
    }

    __aicore__ inline void Sums(const Tile& tile, uint32_t number) {
        const uint32_t turn = number % 2;
        Operand& weights = weights_[turn];
        BeginUse(weights);
        Operand& values = kLatent ? keys_[turn] : values_[turn];
        if constexpr (!kLatent) BeginUse(values);
        const uint32_t most = kResult / t_.blockRows / kSide * kSide;
        for (uint32_t at = 0; at < t_.valueDim; at += most) {
            const uint32_t n = t_.valueDim - at < most ? t_.valueDim - at : most;
            const CubeUnit::Result c = unit_.Begin();
            Multiply<true>(c, weights.matrix, values.matrix, n, tile.rows, true, at);
            unit_.Ready(c);
            if (at == 0) AscendC::PipeBarrier<PIPE_FIX>();
            Store(shared_.sums[turn][at * t_.blockRows], c, n);
            unit_.End(c);
        }
        EndUse(weights);
        EndUse(values);
        Signal<PIPE_FIX>(kSummed);
    }

    const Data t_;
    BlockWalk walk_;
    CubeUnit unit_;
    Shared<T> shared_;
    GlobalTensor<T> query_, queryRope_, key_, keyRope_, value_;
    AscendC::TBuf<AscendC::TPosition::A1> l1_;
    Operand queries_, keys_[2], values_[2], weights_[2];
    CubeMatrix<T> queryRopes_, keyRopes_[2];
    uint32_t l1End_ = 0, tile_ = 0, rows_ = 0;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_CUBE_SIDE_910B_H_
