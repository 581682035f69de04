// The cube core's part of a chunk: all products. With n tokens and the state S [DV, DK] before the chunk
//
//   R  = K S^T                    read of the old state
//   v' = (T beta) V - (T beta exp(G)) R
//   out = (exp(G) scale Q) S^T + (Q K^T E scale) v'
//   S' = exp(G_last) S + (D v')^T K      (the vector core adds)
//
// Operands of 64 x 64 and the state come as sums of two bfloat16 matrices, results that become operands are
// split here: the high part is rounded on the way to L1, the low part is what is left when the unit has taken
// it away again, times the negative identity, exactly. Left out are low times low, and what only out would
// notice.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PRODUCTS_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PRODUCTS_H_

#include "cube_910b_walk.h"

namespace hybrid_ops {
namespace cgdr {
namespace split {

template <typename T>
class Products {
 public:
    __aicore__ inline Products(const Data& t, const Layout& layout, GM_ADDR workspace, const Arguments& a)
        : t_(t), layout_(layout), workspace_(workspace) {
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        value_.SetGlobalBuffer((__gm__ T*)a.value);
        out_.SetGlobalBuffer((__gm__ T*)a.out);
    }
    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        unit_.Init(pipe);
        const uint32_t rows = PadTo(t_.valueStep, 16), pitch = t_.keyPitch;
        const uint32_t set = 2 * kChunk * pitch + kChunk * rows + 2 * rows * pitch + 2 * kOperands * kMatrix;
        const uint32_t shared = 4 * kChunk * rows + 2 * kChunk * pitch + kMatrix;
        pipe.InitBuffer(l1_, (kUnits * set + shared) * sizeof(T));
        uint32_t at = 0;
        const auto take = [&](uint32_t height, uint32_t columns) {
            const CubeMatrix<T> matrix{l1_.template Get<T>()[at], height};
            at += height * columns;
            return matrix;
        };
        for (uint32_t i = 0; i < kUnits; ++i) {
            Set& s = sets_[i];
            s.keys = take(kChunk, pitch);
            s.queries = take(kChunk, pitch);
            s.values = take(kChunk, rows);
            for (uint32_t j = 0; j < 2; ++j) s.state[j] = take(rows, pitch);
            for (uint32_t j = 0; j < 2 * kOperands; ++j) s.operands[j] = take(kChunk, kChunk);
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(used_[i]);
        }
        for (uint32_t j = 0; j < 2; ++j) {
            read_[j] = take(kChunk, rows);
            delta_[j] = take(kChunk, rows);
            scaledQueries_[j] = take(kChunk, pitch);
        }
        identity_ = take(kChunk, kChunk);
        stored_ = static_cast<event_t>(pipe.AllocEventID<HardEvent::FIX_MTE1>());
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kUnits; ++i) {
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(used_[i]);
            pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(loaded_[i]);
            pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(used_[i]);
        }
        pipe.ReleaseEventID<HardEvent::FIX_MTE1>(stored_);
        unit_.Release(pipe);
    }

    __aicore__ inline void Process(Walk& walk) {
        Work work;
        while (walk.Next(work)) {
            if (work.chunks == 0) continue;
            Score(work, 0);
            for (uint32_t i = 0; i < work.chunks; ++i) {
                if (i + 1 < work.chunks) Score(work, i + 1);
                Await(kPrepared);
                Await(kStateReady);
                for (uint32_t u = 0; u < work.units; ++u) Load(work, i, u);
                for (uint32_t u = 0; u < work.units; ++u) Run(work, i, u);
                Signal<PIPE_FIX>(kUpdated);
                ++done_;
            }
        }
    }

 private:
    // Inputs of one unit in L1.
    struct Set {
        CubeMatrix<T> keys, queries, values, state[2], operands[2 * kOperands];
    };

    template <typename U>
    __aicore__ inline GlobalTensor<U> Shared(uint64_t bytes) const {
        GlobalTensor<U> tensor;
        tensor.SetGlobalBuffer((__gm__ U*)(workspace_ + bytes));
        return tensor;
    }
    __aicore__ inline void LoadTokens(const CubeMatrix<T>& dst, const GlobalTensor<T>& src, const Chunk& c,
                                      uint32_t key) {
        const uint32_t width = t_.keyHeads * t_.keyDim;
        LoadMatrix(dst, src[uint64_t(c.token) * width + uint64_t(key) * t_.keyDim], c.count, t_.keyDim,
                   width);
    }

    // K K^T and K Q^T of a chunk, for the vector cores.
    __aicore__ inline void Score(const Work& work, uint32_t index) {
        const Chunk c = work.At(index);
        for (uint32_t u = 0; u < work.units; ++u) {
            const Set& s = sets_[u];
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(used_[u]);
            const uint32_t key = Unit(t_, work.unit + u).key;
            LoadTokens(s.keys, key_, c, key);
            LoadTokens(s.queries, query_, c, key);
            AscendC::SetFlag<HardEvent::MTE2_MTE1>(loaded_[u]);
        }
        AscendC::PipeBarrier<PIPE_FIX>();
        for (uint32_t u = 0; u < work.units; ++u) {
            const Set& s = sets_[u];
            AscendC::WaitFlag<HardEvent::MTE2_MTE1>(loaded_[u]);
            const auto scores = Shared<float>(layout_.Scores(scored_ & 1, u));
            for (uint32_t i = 0; i < 2; ++i) {
                const auto r = unit_.Begin();
                unit_.template Add<false, false>(r, s.keys, i == 0 ? s.keys : s.queries, c.count, c.count,
                                                 t_.keyPitch, true);
                unit_.Ready(r);
                unit_.StoreRows(scores[i * kMatrix], r, c.count, c.count, kChunk);
                unit_.End(r);
            }
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(used_[u]);
        }
        ++scored_;
        Signal<PIPE_FIX>(kScored);
    }

    __aicore__ inline void Load(const Work& work, uint32_t index, uint32_t u) {
        const Chunk c = work.At(index);
        const Unit unit(t_, work.unit + u);
        const Set& s = sets_[u];
        AscendC::WaitFlag<HardEvent::MTE1_MTE2>(used_[u]);
        if (!haveIdentity_) {
            LoadMatrix(identity_, Shared<T>(layout_.Identity()), kChunk, kChunk, kChunk);
            haveIdentity_ = true;
        }
        const auto state = Shared<T>(layout_.State(u));
        LoadTokens(s.keys, key_, c, unit.key);
        for (uint32_t j = 0; j < 2; ++j) {
            const CubeMatrix<T> part{s.state[j].data, unit.Padded()};
            LoadMatrix(part, state[j * unit.Padded() * t_.keyPitch], unit.Padded(), t_.keyPitch, t_.keyPitch);
        }
        LoadTokens(s.queries, query_, c, unit.key);
        const uint32_t width = t_.valueHeads * t_.valueDim;
        LoadMatrix(s.values, value_[uint64_t(c.token) * width + uint64_t(unit.head) * t_.valueDim + unit.row],
                   c.count, unit.rows, width);
        const auto operands = Shared<T>(layout_.Operands(done_ & 1, u));
        for (uint32_t j = 0; j < 2 * kOperands; ++j) {
            LoadMatrix(s.operands[j], operands[j * kMatrix], kChunk, kChunk, kChunk);
        }
        AscendC::SetFlag<HardEvent::MTE2_MTE1>(loaded_[u]);
    }

    // The operands of later products wait until FIX has written L1.
    __aicore__ inline void AwaitStored() {
        AscendC::SetFlag<HardEvent::FIX_MTE1>(stored_);
        AscendC::WaitFlag<HardEvent::FIX_MTE1>(stored_);
    }
    // high + low <- r [m, n], a result that then is gone
    __aicore__ inline void Split(const CubeMatrix<T>* parts, const CubeUnit::Result& r, uint32_t m,
                                 uint32_t n) {
        unit_.Ready(r);
        unit_.StoreMatrix(parts[0], r, m, n);
        AwaitStored();
        unit_.template Add<false, true>(r, identity_, parts[0], m, n, m);
        unit_.Ready(r);
        unit_.StoreMatrix(parts[1], r, m, n);
        unit_.End(r);
        AwaitStored();
    }
    // r (+)= A B with A and B in two parts each, without low times low
    template <bool kRight>
    __aicore__ inline void AddSplit(const CubeUnit::Result& r, const CubeMatrix<T>* a, const CubeMatrix<T>* b,
                                    uint32_t m, uint32_t n, uint32_t k, bool first) {
        unit_.template Add<false, kRight>(r, a[0], b[0], m, n, k, first);
        unit_.template Add<false, kRight>(r, a[0], b[1], m, n, k);
        unit_.template Add<false, kRight>(r, a[1], b[0], m, n, k);
    }

    __aicore__ inline void Run(const Work& work, uint32_t index, uint32_t u) {
        const Chunk c = work.At(index);
        const Unit unit(t_, work.unit + u);
        const Set& s = sets_[u];
        const uint32_t n = c.count, width = unit.Padded(), depth = t_.keyPitch;
        const CubeMatrix<T> state[2] = {{s.state[0].data, width}, {s.state[1].data, width}};
        AscendC::WaitFlag<HardEvent::MTE2_MTE1>(loaded_[u]);

        auto r = unit_.Begin();
        unit_.template Add<false, false>(r, s.keys, state[0], n, width, depth, true);
        unit_.template Add<false, false>(r, s.keys, state[1], n, width, depth);
        Split(read_, r, n, width);

        r = unit_.Begin();
        for (uint32_t j = 0; j < 2; ++j) {
            unit_.template Add<false, true>(r, s.operands[2 * kQueryOperand + j], s.queries, n, depth, n,
                                            j == 0);
        }
        Split(scaledQueries_, r, n, depth);

        r = unit_.Begin();
        for (uint32_t j = 0; j < 2; ++j) {
            unit_.template Add<false, true>(r, s.operands[2 * kValueOperand + j], s.values, n, width, n,
                                            j == 0);
        }
        AddSplit<true>(r, &s.operands[2 * kReadOperand], read_, n, width, n, false);
        Split(delta_, r, n, width);

        r = unit_.Begin();
        AddSplit<false>(r, scaledQueries_, state, n, width, depth, true);
        for (uint32_t j = 0; j < 2; ++j) {
            unit_.template Add<true, true>(r, s.operands[2 * kScoreOperand + j], delta_[0], n, width, n);
        }
        unit_.template Add<true, true>(r, s.operands[2 * kScoreOperand], delta_[1], n, width, n);
        unit_.Ready(r);
        const uint32_t pitch = t_.valueHeads * t_.valueDim;
        unit_.StoreRows(out_[uint64_t(c.token) * pitch + uint64_t(unit.head) * t_.valueDim + unit.row], r, n,
                        unit.rows, pitch);
        unit_.End(r);

        r = unit_.Begin();
        AddSplit<true>(r, &s.operands[2 * kDecayOperand], delta_, n, width, n, true);
        Split(read_, r, n, width);

        r = unit_.Begin();
        for (uint32_t j = 0; j < 2; ++j) {
            unit_.template Add<true, true>(r, read_[j], s.keys, unit.rows, depth, n, j == 0);
        }
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(used_[u]);
        unit_.Ready(r);
        AscendC::PipeBarrier<PIPE_FIX>();
        unit_.StoreRows(Shared<float>(layout_.Update(u)), r, unit.rows, depth, depth);
        unit_.End(r);
    }

    const Data& t_;
    const Layout layout_;
    GM_ADDR workspace_;
    GlobalTensor<T> query_, key_, value_, out_;
    CubeUnit unit_;
    AscendC::TBuf<AscendC::TPosition::A1> l1_;
    Set sets_[kUnits];
    CubeMatrix<T> read_[2], delta_[2], scaledQueries_[2], identity_;
    event_t loaded_[kUnits], used_[kUnits], stored_;
    uint32_t scored_ = 0, done_ = 0;  // chunks
    bool haveIdentity_ = false;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PRODUCTS_H_
