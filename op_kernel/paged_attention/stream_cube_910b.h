// Paged attention on split cores (ascend910b): the cube core's part. It works in rounds, as many slots as the
// vector cores (vector_side_910b.h) weigh at once, over all of its blocks:
//
//   scores of rounds 0 and 1 | scores of round i + 2, then sums of round i | ...
//
// Keys and values arrive in pieces of a round in places of L1 that take turns, so that moves are never more
// than those places ahead and never wait for the vector cores: while these weigh round i, the keys of
// round i + 2 and the first values of this one are on their way. Sums of a round stay in L0C to its end.
// Latents are loaded as keys and, from L2, as values: L1 has no room for a round of them.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_STREAM_CUBE_910B_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_STREAM_CUBE_910B_H_

#include "exchange_910b.h"

namespace hybrid_ops {
namespace paged {

template <typename T, bool kLatent, Layout kLayout>
class StreamCube910b {
 public:
    __aicore__ inline explicit StreamCube910b(const Data& data) : t_(data) {}

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
        const uint32_t widest = keys > t_.valueDim ? keys : t_.valueDim;
        pipe.InitBuffer(l1_, (rows * (keys + 2 * t_.tile) + t_.pieces * t_.piece * widest) * sizeof(T));
        Take(pipe, queries_, rows, keys);
        for (uint32_t i = 0; i < 2; ++i) Take(pipe, weights_[i], rows, t_.tile);
        for (uint32_t i = 0; i < t_.pieces; ++i) Take(pipe, pieces_[i], t_.piece, widest);
    }

    __aicore__ inline void Process(AscendC::TPipe& pipe) {
        Round rounds[3];
        uint32_t scored = 0;
        const auto score = [&] {
            if (!Next(rounds[scored % 3])) return false;
            Scores(rounds[scored % 3], scored % kScorePlaces);
            ++scored;
            return true;
        };
        bool open = score() && score();
        for (uint32_t i = 0; i < scored; ++i) {
            open = open && score();
            Sums(rounds[i % 3], i % 2);
        }
        if (asking_) queries_.EndUse();
        Drop(pipe, queries_);
        for (uint32_t i = 0; i < 2; ++i) Drop(pipe, weights_[i]);
        for (uint32_t i = 0; i < t_.pieces; ++i) Drop(pipe, pieces_[i]);
        unit_.Release(pipe);
    }

 private:
    static constexpr uint32_t kOperand = CubeUnit::kOperandBytes / sizeof(T);
    static constexpr uint32_t kResult = CubeUnit::kResultBytes / sizeof(float);

    // A matrix in L1 that MTE2 writes and MTE1 reads.
    struct Operand {
        CubeMatrix<T> matrix;
        event_t loaded, used;
        __aicore__ inline void BeginLoad() const { AscendC::WaitFlag<HardEvent::MTE1_MTE2>(used); }
        __aicore__ inline void EndLoad() const { AscendC::SetFlag<HardEvent::MTE2_MTE1>(loaded); }
        __aicore__ inline void BeginUse() const { AscendC::WaitFlag<HardEvent::MTE2_MTE1>(loaded); }
        __aicore__ inline void EndUse() const { AscendC::SetFlag<HardEvent::MTE1_MTE2>(used); }
    };
    __aicore__ inline void Take(AscendC::TPipe& pipe, Operand& o, uint32_t height, uint32_t columns) {
        o.matrix = {l1_.template Get<T>()[l1End_], height};
        l1End_ += height * columns;
        o.loaded = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
        o.used = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
        o.EndUse();
    }
    __aicore__ inline void Drop(AscendC::TPipe& pipe, const Operand& o) {
        o.BeginLoad();
        pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(o.loaded);
        pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(o.used);
    }

    struct Round {
        const Block* block;
        Tile tile;
        uint32_t rows;  // that the cores exchange
        bool first;     // of its block
    };
    // Slots of a round that were loaded: rows [row, row + rows) of it, up to slot `slot` of it.
    struct Cursor {
        uint32_t slot = 0, row = 0, rows = 0;
    };

    // The next round of this core; false, once, when there is none. The blocks of the two rounds before stay.
    __aicore__ inline bool Next(Round& round) {
        while (true) {
            if (!inside_) {
                if (!walk_.Next(blocks_[place_])) return false;
                at_ = blocks_[place_].item.begin;
                inside_ = fresh_ = true;
            }
            const Block& block = blocks_[place_];
            if (walk_.Find(block, at_, round.tile)) {
                at_ = round.tile.begin + round.tile.count;
                round.block = &block;
                round.rows = SharedRows(block);
                round.first = fresh_;
                fresh_ = false;
                return true;
            }
            inside_ = false;
            if (!fresh_) place_ = (place_ + 1) % 3;
        }
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
        if (asking_) queries_.EndUse();
        asking_ = true;
        queries_.BeginLoad();
        const uint32_t heads = block.item.heads;
        for (uint32_t row = 0; row < t_.blockRows; row += heads) {
            const uint32_t query = row < block.rows ? block.item.query + row / heads : block.item.query;
            const uint32_t n = t_.blockRows - row < heads ? t_.blockRows - row : heads;
            const uint64_t first = uint64_t(query) * t_.heads + block.item.firstHead;
            LoadRows(queries_.matrix, row, query_[first * t_.keyDim], n, t_.keyDim, t_.keyDim);
            if constexpr (kLatent) {
                LoadRows(Rope(queries_), row, queryRope_[first * t_.ropeDim], n, t_.ropeDim, t_.ropeDim);
            }
        }
        queries_.EndLoad();
        queries_.BeginUse();
    }
    // The rotary part of queries or keys, behind the latents.
    __aicore__ inline CubeMatrix<T> Rope(const Operand& o) const {
        return {o.matrix.data[o.matrix.height * t_.keyDim], o.matrix.height};
    }
    // The next piece of a round, in the next place; `keys`: rotary parts too, and rows up to a multiple of 16
    // repeat earlier ones.
    __aicore__ inline void LoadPiece(const Round& round, Cursor& c, const GlobalTensor<T>& cache,
                                     uint32_t columns, bool keys) {
        const auto load = [&](const Operand& to, uint32_t row, int64_t slot, uint32_t run) {
            const uint32_t head = round.block->item.kvHead;
            LoadSlots(to.matrix, row, cache, slot, head, run, columns);
            if (kLatent && keys) LoadSlots(Rope(to), row, keyRope_, slot, head, run, t_.ropeDim);
        };
        const Operand& place = pieces_[loads_ % t_.pieces];
        ++loads_;
        place.BeginLoad();
        c.row += c.rows;
        c.rows = 0;
        int64_t last = 0;
        uint32_t run = 0;  // slots that end with `last`
        for (uint32_t step = 0; c.slot < round.tile.count && c.rows < t_.piece; c.slot += step) {
            const uint32_t left = round.tile.count - c.slot, room = t_.piece - c.rows;
            const int64_t slot = walk_.Pages().Run(round.block->item, round.tile.begin + c.slot,
                                                   left < room ? left : room, step);
            if (slot < 0) continue;
            run = step;
            load(place, c.rows, slot, run);
            c.rows += run;
            last = slot + run - 1;
        }
        const uint32_t missing = (kSide - c.rows % kSide) % kSide;
        if (keys && missing != 0) {
            const bool many = run >= missing;
            for (uint32_t row = c.rows; row % kSide != 0; row += many ? missing : 1) {
                load(place, row, last - (many ? missing - 1 : 0), many ? missing : 1);
            }
        }
        place.EndLoad();
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
    __aicore__ inline void LoadWeights(const Round& round, const Operand& weights, uint32_t turn) {
        const uint16_t gap = uint16_t(t_.blockRows - round.rows);
        weights.BeginLoad();
        AscendC::DataCopy(weights.matrix.data, shared_.weights[turn],
                          AscendC::DataCopyParams(uint16_t((round.tile.rows + kSide - 1) / kSide),
                                                  uint16_t(round.rows), gap, gap));
        weights.EndLoad();
    }

    // c (+)= A B^T, or A B with kRight, in steps of k that fit into half of L0A and L0B.
    template <bool kRight>
    __aicore__ inline void Multiply(const CubeUnit::Result& c, const CubeMatrix<T>& a, const CubeMatrix<T>& b,
                                    uint32_t m, uint32_t n, uint32_t k, bool first) {
        const uint32_t high = hybrid_ops::RoundUp(n, kSide), wide = high > a.height ? high : a.height;
        const uint32_t step = kOperand / wide / kSide * kSide;
        for (uint32_t at = 0; at < k; at += step) {
            const uint32_t some = k - at < step ? k - at : step;
            const CubeMatrix<T> left{a.data[at * a.height], a.height};
            const CubeMatrix<T> right{b.data[at * (kRight ? kFractalColumns<T> : b.height)], b.height};
            unit_.template Add<false, kRight>(c, left, right, m, n, some, first && at == 0);
        }
    }
    __aicore__ inline void Store(const GlobalTensor<float>& dst, const CubeUnit::Result& c, uint32_t m,
                                 uint32_t n) {
        AscendC::Fixpipe<float, float, AscendC::CFG_NZ>(
            dst, c.data,
            AscendC::FixpipeParamsV220(hybrid_ops::RoundUp(n, kSide), m, hybrid_ops::RoundUp(m, kSide),
                                       2 * t_.blockRows, false, QuantMode_t::NoQuant, 0, 1, 0, 0, 0));
    }

    __aicore__ inline void Scores(const Round& round, uint32_t place) {
        if (round.first) LoadQueries(*round.block);
        AscendC::PipeBarrier<PIPE_FIX>();
        for (Cursor key; key.row + key.rows < round.tile.rows;) {
            const Operand& keys = pieces_[loads_ % t_.pieces];
            LoadPiece(round, key, key_, t_.keyDim, true);
            const uint32_t columns = hybrid_ops::RoundUp(key.rows, kSide);
            keys.BeginUse();
            const CubeUnit::Result c = unit_.Begin();
            Multiply<false>(c, queries_.matrix, keys.matrix, round.rows, columns, t_.keyDim, true);
            if constexpr (kLatent) {
                Multiply<false>(c, Rope(queries_), Rope(keys), round.rows, columns, t_.ropeDim, false);
            }
            keys.EndUse();
            unit_.Ready(c);
            Store(shared_.scores[place][key.row * t_.blockRows], c, round.rows, columns);
            unit_.End(c);
        }
        Signal<PIPE_FIX>(kScored);
    }

    __aicore__ inline void Sums(const Round& round, uint32_t turn) {
        const Operand& weights = weights_[turn];
        const uint32_t pieces = (round.tile.rows + t_.piece - 1) / t_.piece;
        uint32_t use = loads_;
        Cursor value;
        uint32_t loaded = 0;
        const auto load = [&](uint32_t most) {
            for (; loaded < pieces && loaded < most; ++loaded) {
                LoadPiece(round, value, value_, t_.valueDim, false);
            }
        };
        // One place stays: with all of them full, moves would stand still until the weights are there.
        load(t_.pieces - 1);
        Await(kWeighed);
        LoadWeights(round, weights, turn);
        load(t_.pieces);  // further ones come free by the products
        weights.BeginUse();
        const uint32_t most = kResult / t_.blockRows / kSide * kSide;  // columns of half of L0C
        const uint32_t halves = t_.valueDim > most ? 2 : 1;
        CubeUnit::Result sums[2];
        for (uint32_t h = 0; h < halves; ++h) sums[h] = unit_.Begin();
        for (uint32_t i = 0; i < pieces; ++i, ++use) {
            const Operand& place = pieces_[use % t_.pieces];
            const uint32_t row = i * t_.piece, left = round.tile.rows - row;
            const CubeMatrix<T> some{weights.matrix.data[row * t_.blockRows], t_.blockRows};
            place.BeginUse();
            for (uint32_t h = 0; h < halves; ++h) {
                const uint32_t n = h == 0 && halves == 2 ? most : t_.valueDim - h * most;
                const CubeMatrix<T> right{place.matrix.data[h * most * t_.piece], t_.piece};
                Multiply<true>(sums[h], some, right, round.rows, n, left < t_.piece ? left : t_.piece,
                               i == 0);
            }
            place.EndUse();
            load(loaded + 1);
        }
        weights.EndUse();
        AscendC::PipeBarrier<PIPE_FIX>();
        for (uint32_t h = 0; h < halves; ++h) {
            unit_.Ready(sums[h]);
            Store(shared_.sums[turn][h * most * t_.blockRows], sums[h], round.rows,
                  h == 0 && halves == 2 ? most : t_.valueDim - h * most);
            unit_.End(sums[h]);
        }
        Signal<PIPE_FIX>(kSummed);
    }

    const Data t_;
    BlockWalk walk_;
    CubeUnit unit_;
    Shared<T> shared_;
    GlobalTensor<T> query_, queryRope_, key_, keyRope_, value_;
    AscendC::TBuf<AscendC::TPosition::A1> l1_;
    Operand queries_, weights_[2], pieces_[kPieces];
    Block blocks_[3];
    int64_t at_ = 0;
    uint32_t l1End_ = 0, loads_ = 0, place_ = 0;
    bool inside_ = false, fresh_ = true, asking_ = false;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_STREAM_CUBE_910B_H_
