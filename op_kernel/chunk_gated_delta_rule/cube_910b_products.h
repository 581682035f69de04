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
        const uint32_t rows = t_.valueStep, pitch = t_.keyPitch, wide = rows < pitch ? pitch : rows;
        const uint32_t tokens = 2 * pitch + 2 * rows + 2 * wide;
        const uint32_t set = kChunk * tokens + 2 * rows * pitch + 2 * (kOperands + kDiagonals) * kMatrix;
        pipe.InitBuffer(l1_, (kUnits * set + kMatrix) * sizeof(T));
        used_ = 0;
        for (uint32_t i = 0; i < kUnits; ++i) {
            Set& s = sets_[i];
            s.keys = Take(kChunk, pitch);
            s.queries = Take(kChunk, pitch);
            s.values = Take(kChunk, rows);
            s.delta[0] = s.values;  // they are read by the product that delta comes from
            s.delta[1] = Take(kChunk, rows);
            for (uint32_t j = 0; j < 2; ++j) {
                s.state[j] = Take(rows, pitch);
                s.mixed[j] = Take(kChunk, wide);
            }
            for (uint32_t j = 0; j < 2 * kOperands; ++j) s.operands[j] = Take(kChunk, kChunk);
            for (uint32_t j = 0; j < 2 * kDiagonals; ++j) s.diagonals[j] = Take(kChunk, kChunk);
            s.loaded = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
            s.used = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
            s.stored = static_cast<event_t>(pipe.AllocEventID<HardEvent::FIX_MTE1>());
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        }
        identity_ = Take(kChunk, kChunk);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kUnits; ++i) {
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(sets_[i].used);
            pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(sets_[i].loaded);
            pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(sets_[i].used);
            pipe.ReleaseEventID<HardEvent::FIX_MTE1>(sets_[i].stored);
        }
        unit_.Release(pipe);
    }

    __aicore__ inline void Process(Walk& walk) {
        Work work;
        while (walk.Next(work)) {
            if (work.chunks == 0) continue;
            Score(work, 0);
            for (uint32_t i = 0; i < work.chunks; ++i) {
                if (i + 1 < work.chunks) Score(work, i + 1);
                Run(work, i);
            }
        }
    }

 private:
    // One unit in L1. `mixed`: R, then D v', then scaled queries.
    struct Set {
        CubeMatrix<T> keys, queries, values, state[2], mixed[2], delta[2];
        CubeMatrix<T> operands[2 * kOperands], diagonals[2 * kDiagonals];
        event_t loaded, used, stored;
        CubeUnit::Result result;
        uint32_t rows, width;  // of the state, and padded
    };

    __aicore__ inline CubeMatrix<T> Take(uint32_t height, uint32_t columns) {
        const CubeMatrix<T> matrix{l1_.template Get<T>()[used_], height};
        used_ += height * columns;
        return matrix;
    }
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

    // K K^T and K Q^T of a chunk, for the vector cores; once where units share their key head.
    __aicore__ inline void Score(const Work& work, uint32_t index) {
        const Chunk c = work.At(index);
        const uint32_t units = work.SharedKey(t_) ? 1 : work.units;
        for (uint32_t u = 0; u < units; ++u) {
            const Set& s = sets_[u];
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(s.used);
            const uint32_t key = Unit(t_, work.unit + u).key;
            LoadTokens(s.keys, key_, c, key);
            LoadTokens(s.queries, query_, c, key);
            AscendC::SetFlag<HardEvent::MTE2_MTE1>(s.loaded);
        }
        AscendC::PipeBarrier<PIPE_FIX>();
        for (uint32_t u = 0; u < units; ++u) {
            const Set& s = sets_[u];
            AscendC::WaitFlag<HardEvent::MTE2_MTE1>(s.loaded);
            const auto scores = Shared<float>(layout_.Scores(scored_ & 1, u));
            for (uint32_t i = 0; i < 2; ++i) {
                const auto r = unit_.Begin();
                unit_.template Add<false, false>(r, s.keys, i == 0 ? s.keys : s.queries, c.count, c.count,
                                                 t_.keyPitch, true);
                unit_.Ready(r);
                unit_.StoreRows(scores[i * kMatrix], r, c.count, c.count, kChunk);
                unit_.End(r);
            }
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        }
        ++scored_;
        Signal<PIPE_FIX>(kScored);
    }

    // Everything but the state.
    __aicore__ inline void Load(Set& s, const Work& work, const Chunk& c, uint32_t u) {
        const Unit unit(t_, work.unit + u);
        s.rows = unit.rows;
        s.width = unit.Padded();
        AscendC::WaitFlag<HardEvent::MTE1_MTE2>(s.used);
        LoadTokens(s.keys, key_, c, unit.key);
        LoadTokens(s.queries, query_, c, unit.key);
        const uint32_t width = t_.valueHeads * t_.valueDim;
        LoadMatrix(s.values, value_[uint64_t(c.token) * width + uint64_t(unit.head) * t_.valueDim + unit.row],
                   c.count, unit.rows, width);
        const auto operands = Shared<T>(layout_.Operands(done_ & 1, u));
        for (uint32_t j = 0; j < 2 * kOperands; ++j) {
            LoadMatrix(s.operands[j], operands[j * kMatrix], kChunk, kChunk, kChunk);
        }
        for (uint32_t j = 0; j < 2 * kDiagonals; ++j) {
            // Four blocks, from side by side to the diagonal of a matrix that is 0 elsewhere.
            const uint32_t at = 2 * kOperands * kMatrix + (j % 2 * kDiagonals + j / 2) * kDiagonal;
            AscendC::DataCopy(s.diagonals[j].data, operands[at],
                              AscendC::Nd2NzParams(4, 16, 16, 16, kChunk, kChunk, 1, kChunk * 16 + 256));
        }
    }
    __aicore__ inline void LoadState(Set& s, uint32_t u) {
        const auto state = Shared<T>(layout_.State(u));
        for (uint32_t j = 0; j < 2; ++j) {
            s.state[j].height = s.width;
            LoadMatrix(s.state[j], state[j * s.width * t_.keyPitch], s.width, t_.keyPitch, t_.keyPitch);
        }
        AscendC::SetFlag<HardEvent::MTE2_MTE1>(s.loaded);
    }
    // Off their diagonals the diagonal matrices are 0 from here on.
    __aicore__ inline void LoadConstants() {
        if (haveConstants_) return;
        haveConstants_ = true;
        const auto identity = Shared<T>(layout_.Identity());
        LoadMatrix(identity_, identity, kChunk, kChunk, kChunk);
        for (uint32_t u = 0; u < kUnits; ++u) {
            for (uint32_t j = 0; j < 2 * kDiagonals; ++j) {
                LoadMatrix(sets_[u].diagonals[j], identity, kChunk, kChunk, kChunk);
            }
        }
        AscendC::PipeBarrier<PIPE_MTE2>();
    }

    // Products of a chunk. The two units take turns, so that one's results are stored while the other's are
    // summed; what the state needs comes first, the vector cores update it meanwhile.
    __aicore__ inline void Run(const Work& work, uint32_t index) {
        const Chunk c = work.At(index);
        const uint32_t n = c.count, units = work.units, pitch = t_.valueHeads * t_.valueDim;
        Await(kPrepared);
        LoadConstants();
        for (uint32_t u = 0; u < units; ++u) Load(sets_[u], work, c, u);
        Await(kStateReady);
        for (uint32_t u = 0; u < units; ++u) LoadState(sets_[u], u);
        for (uint32_t u = 0; u < units; ++u) ReadState(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].mixed, n, sets_[u].width);
        for (uint32_t u = 0; u < units; ++u) Correct(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].delta, n, sets_[u].width);
        for (uint32_t u = 0; u < units; ++u) Weigh(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].mixed, n, sets_[u].width);
        AscendC::PipeBarrier<PIPE_FIX>();  // the updates of the last chunk are overwritten
        for (uint32_t u = 0; u < units; ++u) UpdateState(sets_[u], n, u);
        Signal<PIPE_FIX>(kUpdated);
        for (uint32_t u = 0; u < units; ++u) ScaleQueries(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].mixed, n, t_.keyPitch);
        for (uint32_t u = 0; u < units; ++u) {
            const Unit unit(t_, work.unit + u);
            Output(sets_[u], n,
                   out_[uint64_t(c.token) * pitch + uint64_t(unit.head) * t_.valueDim + unit.row], pitch);
        }
        ++done_;
    }

    // A result begins to become an operand: its high part.
    __aicore__ inline void StoreHigh(Set& s, const CubeMatrix<T>* parts, uint32_t m, uint32_t n) {
        unit_.Ready(s.result);
        unit_.StoreMatrix(parts[0], s.result, m, n);
        AscendC::SetFlag<HardEvent::FIX_MTE1>(s.stored);
    }
    // ... and its low part, after which the result is gone.
    __aicore__ inline void Split(Set& s, const CubeMatrix<T>* parts, uint32_t m, uint32_t n) {
        AscendC::WaitFlag<HardEvent::FIX_MTE1>(s.stored);
        unit_.template Add<false, true>(s.result, identity_, parts[0], m, n, m);
        unit_.Ready(s.result);
        unit_.StoreMatrix(parts[1], s.result, m, n);
        unit_.End(s.result);
        AscendC::SetFlag<HardEvent::FIX_MTE1>(s.stored);
    }
    __aicore__ inline void AwaitParts(const Set& s) { AscendC::WaitFlag<HardEvent::FIX_MTE1>(s.stored); }
    // r (+)= A B with A and B in two parts each, without low times low
    template <bool kLeft, bool kRight>
    __aicore__ inline void AddSplit(const CubeUnit::Result& r, const CubeMatrix<T>* a, const CubeMatrix<T>* b,
                                    uint32_t m, uint32_t n, uint32_t k, bool first) {
        unit_.template AddBoth<kLeft, kRight>(r, a[0], a[1], b[0], m, n, k, first);
        unit_.template Add<kLeft, kRight>(r, a[0], b[1], m, n, k);
    }

    // mixed <- R = K S^T
    __aicore__ inline void ReadState(Set& s, uint32_t n) {
        AscendC::WaitFlag<HardEvent::MTE2_MTE1>(s.loaded);
        s.result = unit_.Begin();
        unit_.template Add<false, false>(s.result, s.keys, s.state[0], n, s.width, t_.keyPitch, true);
        unit_.template Add<false, false>(s.result, s.keys, s.state[1], n, s.width, t_.keyPitch);
        StoreHigh(s, s.mixed, n, s.width);
    }
    // delta <- v'
    __aicore__ inline void Correct(Set& s, uint32_t n) {
        AwaitParts(s);
        s.result = unit_.Begin();
        const CubeMatrix<T>* value = &s.operands[2 * kValueOperand];
        unit_.template AddBoth<false, true>(s.result, value[0], value[1], s.values, n, s.width, n, true);
        AddSplit<false, true>(s.result, &s.operands[2 * kReadOperand], s.mixed, n, s.width, n, false);
        StoreHigh(s, s.delta, n, s.width);
    }
    // mixed <- D v'
    __aicore__ inline void Weigh(Set& s, uint32_t n) {
        AwaitParts(s);
        s.result = unit_.Begin();
        AddSplit<false, true>(s.result, &s.diagonals[2 * kDecayDiagonal], s.delta, n, s.width, n, true);
        StoreHigh(s, s.mixed, n, s.width);
    }
    // the update <- (D v')^T K
    __aicore__ inline void UpdateState(Set& s, uint32_t n, uint32_t u) {
        AwaitParts(s);
        s.result = unit_.Begin();
        unit_.template AddBoth<true, true>(s.result, s.mixed[0], s.mixed[1], s.keys, s.rows, t_.keyPitch, n,
                                           true);
        unit_.Ready(s.result);
        unit_.StoreRows(Shared<float>(layout_.Update(u)), s.result, s.rows, t_.keyPitch, t_.keyPitch);
        unit_.End(s.result);
    }
    // mixed <- exp(G) scale Q
    __aicore__ inline void ScaleQueries(Set& s, uint32_t n) {
        s.result = unit_.Begin();
        const CubeMatrix<T>* scale = &s.diagonals[2 * kQueryDiagonal];
        unit_.template AddBoth<false, true>(s.result, scale[0], scale[1], s.queries, n, t_.keyPitch, n, true);
        StoreHigh(s, s.mixed, n, t_.keyPitch);
    }
    __aicore__ inline void Output(Set& s, uint32_t n, const GlobalTensor<T>& out, uint32_t pitch) {
        AwaitParts(s);
        s.result = unit_.Begin();
        AddSplit<false, false>(s.result, s.mixed, s.state, n, s.width, t_.keyPitch, true);
        AddSplit<true, true>(s.result, &s.operands[2 * kScoreOperand], s.delta, n, s.width, n, false);
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        unit_.Ready(s.result);
        unit_.StoreRows(out, s.result, n, s.rows, pitch);
        unit_.End(s.result);
    }

    const Data& t_;
    const Layout layout_;
    GM_ADDR workspace_;
    GlobalTensor<T> query_, key_, value_, out_;
    CubeUnit unit_;
    AscendC::TBuf<AscendC::TPosition::A1> l1_;
    uint32_t used_ = 0;  // elements of l1_
    Set sets_[kUnits];
    CubeMatrix<T> identity_;
    uint32_t scored_ = 0, done_ = 0;  // chunks
    bool haveConstants_ = false;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PRODUCTS_H_
