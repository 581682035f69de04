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

template <typename T, typename StateT>
class Products {
 public:
    __aicore__ inline Products(const Data& t, const Layout& layout, GM_ADDR workspace, const Arguments& a)
        : t_(t),
          layout_(layout),
          workspace_(workspace),
          resident_(Resident(sizeof(StateT), t.keyPitch, t.valueDim)) {
        initial_.SetGlobalBuffer((__gm__ StateT*)a.initial);
        final_.SetGlobalBuffer((__gm__ StateT*)a.final);
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        value_.SetGlobalBuffer((__gm__ T*)a.value);
        out_.SetGlobalBuffer((__gm__ T*)a.out);
    }
    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        unit_.Init(pipe);
        const uint32_t rows = t_.valueStep, pitch = t_.keyPitch, wide = rows < pitch ? pitch : rows;
        const uint32_t tokens = 2 * pitch + rows + 2 * wide, scoring = resident_ ? 2 * kChunk * pitch : 0;
        const uint32_t set =
            kChunk * tokens + 2 * rows * pitch + 2 * (kOperands * kMatrix + kWholeDiagonals * kDiagonal);
        pipe.InitBuffer(
            l1_, (kUnits * (set + 2 * kFractal) + scoring + (resident_ ? kFractal : kMatrix)) * sizeof(T));
        used_ = 0;
        for (uint32_t i = 0; i < kUnits; ++i) {
            Set& s = sets_[i];
            s.keys = Take(kChunk, pitch);
            s.queries = Take(kChunk, pitch);
            s.values = Take(kChunk, rows);
            s.delta[0] = s.values;  // they are read by the product that delta comes from
            for (uint32_t j = 0; j < 2; ++j) {
                s.state[j] = Take(rows, pitch);
                s.mixed[j] = Take(kChunk, wide);
            }
            for (uint32_t j = 0; j < 2 * kOperands; ++j) s.operands[j] = Take(kChunk, kChunk);
            for (uint32_t j = 0; j < 2 * kWholeDiagonals; ++j) s.diagonals[j] = Take(16, kChunk);
            for (uint32_t j = 0; j < 2; ++j) s.last[j] = Take(16, 16);
            // As soon as the value operand and the read operand are used up.
            s.delta[1] = {s.operands[2 * kValueOperand].data, kChunk};
            s.weighed[0] = {s.keys.data, pitch};
            s.weighed[1] = {s.operands[2 * kReadOperand].data, pitch};
            for (uint32_t j = 0; j < 2; ++j) s.scaled[j] = {s.mixed[j].data, pitch};
            s.loaded = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
            s.complete = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
            s.used = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
            for (uint32_t j = 0; j < 2; ++j) {
                s.stored[j] = static_cast<event_t>(pipe.AllocEventID<HardEvent::FIX_MTE1>());
            }
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        }
        // A product with the whole matrix holds up the chain of products less than one by columns.
        identity_ = resident_ ? Take(16, 16) : Take(kChunk, kChunk);
        if (resident_) {
            scoring_.keys = Take(kChunk, pitch);
            scoring_.queries = Take(kChunk, pitch);
            scoring_.loaded = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_MTE1>());
            scoring_.used = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE1_MTE2>());
            AscendC::SetFlag<HardEvent::MTE1_MTE2>(scoring_.used);
        }
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kUnits; ++i) {
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(sets_[i].used);
            pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(sets_[i].loaded);
            pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(sets_[i].complete);
            pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(sets_[i].used);
            for (uint32_t j = 0; j < 2; ++j) pipe.ReleaseEventID<HardEvent::FIX_MTE1>(sets_[i].stored[j]);
        }
        if (resident_) {
            AscendC::WaitFlag<HardEvent::MTE1_MTE2>(scoring_.used);
            pipe.ReleaseEventID<HardEvent::MTE2_MTE1>(scoring_.loaded);
            pipe.ReleaseEventID<HardEvent::MTE1_MTE2>(scoring_.used);
        }
        unit_.Release(pipe);
    }

    __aicore__ inline void Process(Walk& walk) {
        Work work;
        while (walk.Next(work)) {
            if (work.chunks == 0) continue;
            if constexpr (sizeof(StateT) == sizeof(T)) {
                if (resident_) {
                    ProcessResident(work);
                    Signal<PIPE_FIX>(kDone);
                    continue;
                }
            }
            Score(work, 0);
            Score(work, 1);
            for (uint32_t i = 0; i < work.chunks; ++i) Run(work, i);
            Signal<PIPE_FIX>(kDone);
        }
    }

 private:
    // One unit in L1. `mixed`: R, then D v', then scaled queries; what comes of diagonal matrices is
    // transposed.
    struct Set {
        CubeMatrix<T> keys, queries, values, state[2], mixed[2], delta[2];
        CubeMatrix<T> operands[2 * kOperands], diagonals[2 * kWholeDiagonals];
        CubeMatrix<T> weighed[2], last[2];   // (D K)^T; exp(G_last) times one block of the identity
        CubeMatrix<T> scaled[2], turned[2];  // `mixed` as (exp(G) scale Q)^T and as (D v')^T
        event_t loaded, used, stored[2];
        event_t complete;  // unless the state is resident: `loaded` are keys and state, this the rest
        CubeUnit::Result results[2];  // one per event of `stored`
        uint32_t rows, width;         // of the state, and padded
        uint32_t tokens, parts;       // of the chunk; of the state: the initial one has one part
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
    __aicore__ inline void LoadScored(const Set& s, const Work& work, uint32_t index, uint32_t u) {
        const Chunk c = work.At(index);
        AscendC::WaitFlag<HardEvent::MTE1_MTE2>(s.used);
        const uint32_t key = Unit(t_, work.unit + u).key;
        LoadTokens(s.keys, key_, c, key);
        LoadTokens(s.queries, query_, c, key);
        AscendC::SetFlag<HardEvent::MTE2_MTE1>(s.loaded);
    }
    __aicore__ inline void MultiplyScored(const Set& s, uint32_t n, uint32_t u) {
        AscendC::WaitFlag<HardEvent::MTE2_MTE1>(s.loaded);
        const auto scores = Shared<float>(layout_.Scores(scored_ & 1, u));
        const auto r = unit_.Begin();
        for (uint32_t i = 0; i < 2; ++i) {
            const CubeUnit::Result part{r.data[i * kMatrix], r.half};
            unit_.template Add<false, false>(part, s.keys, i == 0 ? s.keys : s.queries, n, n, t_.keyPitch,
                                             true);
            unit_.Ready(part);
            unit_.StoreRows(scores[i * kMatrix], part, n, n, kChunk);
        }
        unit_.End(r);
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
    }
    __aicore__ inline void Score(const Work& work, uint32_t index) {
        if (index >= work.chunks) return;
        const uint32_t units = work.SharedKey(t_) ? 1 : work.units;
        for (uint32_t u = 0; u < units; ++u) LoadScored(sets_[u], work, index, u);
        AscendC::PipeBarrier<PIPE_FIX>();
        for (uint32_t u = 0; u < units; ++u) MultiplyScored(sets_[u], work.At(index).count, u);
        ++scored_;
        Signal<PIPE_FIX>(kScored);
    }
    // As Score, in memory of its own; the tokens of the first unit have been loaded, those of the next
    // chunk's are.
    __aicore__ inline void ScoreAhead(const Work& work, uint32_t index) {
        if (index >= work.chunks) return;
        const uint32_t units = work.SharedKey(t_) ? 1 : work.units;
        AscendC::PipeBarrier<PIPE_FIX>();
        for (uint32_t u = 0; u < units; ++u) {
            if (u != 0) LoadScored(scoring_, work, index, u);
            MultiplyScored(scoring_, work.At(index).count, u);
        }
        Settle();
        ++scored_;
        Signal<PIPE_FIX>(kScored);
        if (index + 1 < work.chunks) LoadScored(scoring_, work, index + 1, 0);
    }

    __aicore__ inline void LoadKeys(Set& s, const Work& work, const Chunk& c, uint32_t u) {
        const Unit unit(t_, work.unit + u);
        s.rows = unit.rows;
        s.width = unit.Padded();
        for (uint32_t j = 0; j < 2; ++j) s.turned[j] = {s.mixed[j].data, s.width};
        AscendC::WaitFlag<HardEvent::MTE1_MTE2>(s.used);
        LoadTokens(s.keys, key_, c, unit.key);
    }
    // Everything else but the state.
    __aicore__ inline void LoadOperands(Set& s, const Work& work, const Chunk& c, uint32_t u) {
        const Unit unit(t_, work.unit + u);
        LoadTokens(s.queries, query_, c, unit.key);
        const uint32_t width = t_.valueHeads * t_.valueDim;
        LoadMatrix(s.values, value_[uint64_t(c.token) * width + uint64_t(unit.head) * t_.valueDim + unit.row],
                   c.count, unit.rows, width);
        const auto operands = Shared<T>(layout_.Operands(done_ & 1, u));
        for (uint32_t j = 0; j < 2 * kOperands; ++j) {
            LoadMatrix(s.operands[j], operands[j * kMatrix], kChunk, kChunk, kChunk);
        }
        for (uint32_t j = 0; j < 2 * kWholeDiagonals; ++j) {
            const uint32_t at = 2 * kOperands * kMatrix + (j % 2 * kDiagonals + j / 2) * kDiagonal;
            LoadMatrix(s.diagonals[j], operands[at], 16, kChunk, kChunk);
        }
        for (uint32_t j = 0; resident_ && j < 2; ++j) {
            const uint32_t at = 2 * kOperands * kMatrix + (j * kDiagonals + kStateDiagonal) * kDiagonal;
            LoadMatrix(s.last[j], operands[at], 16, 16, kChunk);
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
    __aicore__ inline void LoadConstants() {
        if (haveConstants_) return;
        haveConstants_ = true;
        const auto identity = Shared<T>(layout_.Identity());
        LoadMatrix(identity_, identity, identity_.height, identity_.height, kChunk);
        AscendC::PipeBarrier<PIPE_MTE2>();
    }

    // Products of a chunk. The two units take turns, so that one's results are stored while the other's are
    // summed; what the state needs comes first, the vector cores update it meanwhile.
    __aicore__ inline void Run(const Work& work, uint32_t index) {
        const Chunk c = work.At(index);
        const uint32_t n = c.count, units = work.units, pitch = t_.valueHeads * t_.valueDim;
        Await(kPrepared);
        LoadConstants();
        Score(work, index + 2);
        Await(kStateReady);
        for (uint32_t u = 0; u < units; ++u) {
            LoadKeys(sets_[u], work, c, u);
            LoadState(sets_[u], u);
        }
        for (uint32_t u = 0; u < units; ++u) {
            LoadOperands(sets_[u], work, c, u);
            AscendC::SetFlag<HardEvent::MTE2_MTE1>(sets_[u].complete);
        }
        for (uint32_t u = 0; u < units; ++u) ReadState(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].mixed, n, sets_[u].width);
        for (uint32_t u = 0; u < units; ++u) Correct(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].delta, n, sets_[u].width);
        for (uint32_t u = 0; u < units; ++u) Weigh(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].turned, sets_[u].width, n);
        AscendC::PipeBarrier<PIPE_FIX>();  // the updates of the last chunk are overwritten
        for (uint32_t u = 0; u < units; ++u) UpdateState(sets_[u], n, u);
        Signal<PIPE_FIX>(kUpdated);
        for (uint32_t u = 0; u < units; ++u) ScaleQueries(sets_[u], n);
        for (uint32_t u = 0; u < units; ++u) Split(sets_[u], sets_[u].scaled, t_.keyPitch, n);
        for (uint32_t u = 0; u < units; ++u) {
            const Unit unit(t_, work.unit + u);
            Output(sets_[u], n,
                   out_[uint64_t(c.token) * pitch + uint64_t(unit.head) * t_.valueDim + unit.row], pitch);
        }
        ++done_;
    }

    // As Run, where the state stays in L1: what is multiplied with it is prepared from the keys first
    // (Keys), so that only two products of a chunk wait for each other. While a unit's chunk is finished the
    // other's keys are prepared.
    __aicore__ inline void ProcessResident(const Work& work) {
        LoadScored(scoring_, work, 0, 0);
        ScoreAhead(work, 0);
        ScoreAhead(work, 1);
        AwaitChunk(work, 0);
        LoadChunk(work, 0, 0);
        Overlap(work, 0, nullptr, 0, &sets_[0]);
        if (work.units > 1) LoadChunk(work, 0, 1);
        Signal<PIPE_MTE2>(kUpdated);
        for (uint32_t i = 0; i < work.chunks; ++i) {
            const bool more = i + 1 < work.chunks;
            Overlap(work, i, &sets_[0], 0, work.units > 1 ? &sets_[1] : nullptr);
            if (more) {
                AwaitChunk(work, i + 1);
                LoadChunk(work, i + 1, 0);
            }
            Overlap(work, i, work.units > 1 ? &sets_[1] : nullptr, 1, more ? &sets_[0] : nullptr);
            if (!more) break;
            if (work.units > 1) LoadChunk(work, i + 1, 1);
            Signal<PIPE_MTE2>(kUpdated);
        }
    }
    __aicore__ inline void AwaitChunk(const Work& work, uint32_t index) {
        Await(kPrepared);
        LoadConstants();
        ScoreAhead(work, index + 2);
    }
    __aicore__ inline void LoadChunk(const Work& work, uint32_t index, uint32_t u) {
        Set& s = sets_[u];
        s.tokens = work.At(index).count;
        s.parts = index == 0 ? 1 : 2;
        LoadKeys(s, work, work.At(index), u);
        LoadOperands(s, work, work.At(index), u);
        if (index == 0) LoadInitial(s, work, u);
        AscendC::SetFlag<HardEvent::MTE2_MTE1>(s.loaded);
        if (u + 1 == work.units) ++done_;
    }
    // Finishes chunk `index` of unit u, whose set is `main`, and prepares the keys in `next`; either may be
    // absent.
    __aicore__ inline void Overlap(const Work& work, uint32_t index, Set* main, uint32_t u, Set* next) {
        const bool last = index + 1 == work.chunks;
        if (main != nullptr) {
            CorrectResident(*main);
            ScaleQueries(*main, main->tokens, 1);
            Split(*main, main->delta, main->tokens, main->width);
            Split(*main, main->scaled, t_.keyPitch, main->tokens, 1);
        } else {
            Settle();
        }
        if (next != nullptr) ReadKeys(*next);
        if (main != nullptr) MultiplyOutput(*main);
        if (next != nullptr) Split(*next, next->mixed, next->tokens, t_.keyPitch, 1);
        if (main != nullptr) StoreOutput(*main, work, index, u);
        if (next != nullptr) WeighKeys(*next);
        if (main != nullptr) Decay(*main);
        if (next != nullptr) Split(*next, next->weighed, t_.keyPitch, next->tokens);
        if (main != nullptr) Advance(*main, last, work, u);
        if (main != nullptr && !last) unsettled_ = main;
        if (last) Settle();
    }
    // The low part of a new state, which its reader comes long after.
    __aicore__ inline void Settle() {
        if (unsettled_ == nullptr) return;
        Split(*unsettled_, unsettled_->state, unsettled_->width, t_.keyPitch);
        unsettled_ = nullptr;
    }
    __aicore__ inline uint64_t StateAt(const Work& work, uint32_t u) const {
        const Unit unit(t_, work.unit + u);
        return ((uint64_t(work.sequence) * t_.valueHeads + unit.head) * t_.valueDim + unit.row) * t_.keyDim;
    }
    __aicore__ inline void LoadInitial(Set& s, const Work& work, uint32_t u) {
        for (uint32_t j = 0; j < 2; ++j) s.state[j].height = s.width;
        if constexpr (sizeof(StateT) == sizeof(T)) {
            LoadMatrix(s.state[0], initial_[StateAt(work, u)], s.rows, t_.keyDim, t_.keyDim);
        }
    }
    // mixed <- -T beta exp(G) K
    __aicore__ inline void ReadKeys(Set& s) {
        if (s.parts > 1) AwaitParts(s);  // the state
        AscendC::WaitFlag<HardEvent::MTE2_MTE1>(s.loaded);
        const CubeMatrix<T>* read = &s.operands[2 * kReadOperand];
        s.results[1] = unit_.Begin();
        unit_.template AddBoth<false, true>(s.results[1], read[0], read[1], s.keys, s.tokens, t_.keyPitch,
                                            s.tokens, true);
        StoreHigh(s, s.mixed, s.tokens, t_.keyPitch, 1);
    }
    // weighed <- (D K)^T
    __aicore__ inline void WeighKeys(Set& s) {
        s.results[0] = unit_.Begin();
        unit_.AddDiagonal(s.results[0], s.keys, &s.diagonals[2 * kDecayDiagonal], 2, t_.keyPitch, s.tokens,
                          true);
        StoreHigh(s, s.weighed, t_.keyPitch, s.tokens);
    }
    // delta <- v'
    __aicore__ inline void CorrectResident(Set& s) {
        const CubeMatrix<T>* value = &s.operands[2 * kValueOperand];
        s.results[0] = unit_.Begin();
        unit_.template AddBoth<false, true>(s.results[0], value[0], value[1], s.values, s.tokens, s.width,
                                            s.tokens, true);
        Settle();
        for (uint32_t j = 0; j < 2; ++j) AwaitParts(s, j);
        unit_.template AddBoth<false, false>(s.results[0], s.mixed[0], s.mixed[1], s.state[0], s.tokens,
                                             s.width, t_.keyPitch);
        if (s.parts > 1) {
            unit_.template Add<false, false>(s.results[0], s.mixed[0], s.state[1], s.tokens, s.width,
                                             t_.keyPitch);
        }
        StoreHigh(s, s.delta, s.tokens, s.width);
    }
    __aicore__ inline void MultiplyOutput(Set& s) {
        for (uint32_t i = 0; i < 2; ++i) AwaitParts(s, i);
        s.results[0] = unit_.Begin();
        unit_.template AddBoth<true, false>(s.results[0], s.scaled[0], s.scaled[1], s.state[0], s.tokens,
                                            s.width, t_.keyPitch, true);
        if (s.parts > 1) {
            unit_.template Add<true, false>(s.results[0], s.scaled[0], s.state[1], s.tokens, s.width,
                                            t_.keyPitch);
        }
        AddSplit<true, true>(s.results[0], &s.operands[2 * kScoreOperand], s.delta, s.tokens, s.width,
                             s.tokens, false);
    }
    __aicore__ inline void StoreOutput(Set& s, const Work& work, uint32_t index, uint32_t u) {
        const Unit unit(t_, work.unit + u);
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint64_t at = uint64_t(work.At(index).token) * width + uint64_t(unit.head) * t_.valueDim;
        unit_.Ready(s.results[0]);
        unit_.StoreRows(out_[at + unit.row], s.results[0], s.tokens, s.rows, uint32_t(width));
        unit_.End(s.results[0]);
    }
    // result <- exp(G_last) state
    __aicore__ inline void Decay(Set& s) {
        s.results[0] = unit_.Begin();
        const auto& r = s.results[0];
        unit_.AddScaled(r, s.state[0], s.last[0].data, s.width, t_.keyPitch, true);
        unit_.AddScaled(r, s.state[0], s.last[1].data, s.width, t_.keyPitch);
        if (s.parts > 1) unit_.AddScaled(r, s.state[1], s.last[0].data, s.width, t_.keyPitch);
    }
    // state <- result + v'^T (D K), or to the final state if it was the last chunk
    __aicore__ inline void Advance(Set& s, bool last, const Work& work, uint32_t u) {
        const auto& r = s.results[0];
        AddSplit<true, false>(r, s.delta, s.weighed, s.width, t_.keyPitch, s.tokens, false);
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        if (!last) {
            StoreHigh(s, s.state, s.width, t_.keyPitch);
            return;
        }
        unit_.Ready(r);
        unit_.StoreRows(final_[StateAt(work, u)], r, s.rows, t_.keyDim, t_.keyDim);
        unit_.End(r);
    }

    // A result begins to become an operand: its high part.
    __aicore__ inline void StoreHigh(Set& s, const CubeMatrix<T>* parts, uint32_t m, uint32_t n,
                                     uint32_t slot = 0) {
        unit_.Ready(s.results[slot]);
        unit_.StoreMatrix(parts[0], s.results[slot], m, n);
        AscendC::SetFlag<HardEvent::FIX_MTE1>(s.stored[slot]);
    }
    // ... and its low part, after which the result is gone.
    __aicore__ inline void Split(Set& s, const CubeMatrix<T>* parts, uint32_t m, uint32_t n,
                                 uint32_t slot = 0) {
        const auto& r = s.results[slot];
        AscendC::WaitFlag<HardEvent::FIX_MTE1>(s.stored[slot]);
        if (resident_ || m > kChunk || n % kCubeSide != 0) {
            unit_.AddScaled(r, parts[0], identity_.data, m, n);
        } else {
            unit_.template Add<false, true>(r, identity_, parts[0], m, n, m);
        }
        unit_.Ready(r);
        unit_.StoreMatrix(parts[1], r, m, n);
        unit_.End(r);
        AscendC::SetFlag<HardEvent::FIX_MTE1>(s.stored[slot]);
    }
    __aicore__ inline void AwaitParts(const Set& s, uint32_t slot = 0) {
        AscendC::WaitFlag<HardEvent::FIX_MTE1>(s.stored[slot]);
    }
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
        s.results[0] = unit_.Begin();
        unit_.template Add<false, false>(s.results[0], s.keys, s.state[0], n, s.width, t_.keyPitch, true);
        unit_.template Add<false, false>(s.results[0], s.keys, s.state[1], n, s.width, t_.keyPitch);
        StoreHigh(s, s.mixed, n, s.width);
    }
    // delta <- v'
    __aicore__ inline void Correct(Set& s, uint32_t n) {
        AwaitParts(s);
        AscendC::WaitFlag<HardEvent::MTE2_MTE1>(s.complete);
        s.results[0] = unit_.Begin();
        const CubeMatrix<T>* value = &s.operands[2 * kValueOperand];
        unit_.template AddBoth<false, true>(s.results[0], value[0], value[1], s.values, n, s.width, n, true);
        AddSplit<false, true>(s.results[0], &s.operands[2 * kReadOperand], s.mixed, n, s.width, n, false);
        StoreHigh(s, s.delta, n, s.width);
    }
    // turned <- (D v')^T
    __aicore__ inline void Weigh(Set& s, uint32_t n) {
        AwaitParts(s);
        s.results[0] = unit_.Begin();
        const CubeMatrix<T>* decay = &s.diagonals[2 * kDecayDiagonal];
        unit_.AddDiagonal(s.results[0], s.delta[0], decay, 2, s.width, n, true);
        unit_.AddDiagonal(s.results[0], s.delta[1], decay, 1, s.width, n);
        StoreHigh(s, s.turned, s.width, n);
    }
    // the update <- (D v')^T K
    __aicore__ inline void UpdateState(Set& s, uint32_t n, uint32_t u) {
        AwaitParts(s);
        s.results[0] = unit_.Begin();
        unit_.template AddBoth<false, true>(s.results[0], s.turned[0], s.turned[1], s.keys, s.rows,
                                            t_.keyPitch, n, true);
        unit_.Ready(s.results[0]);
        unit_.StoreRows(Shared<float>(layout_.Update(u)), s.results[0], s.rows, t_.keyPitch, t_.keyPitch);
        unit_.End(s.results[0]);
    }
    // scaled <- (exp(G) scale Q)^T
    __aicore__ inline void ScaleQueries(Set& s, uint32_t n, uint32_t slot = 0) {
        s.results[slot] = unit_.Begin();
        unit_.AddDiagonal(s.results[slot], s.queries, &s.diagonals[2 * kQueryDiagonal], 2, t_.keyPitch, n,
                          true);
        StoreHigh(s, s.scaled, t_.keyPitch, n, slot);
    }
    __aicore__ inline void Output(Set& s, uint32_t n, const GlobalTensor<T>& out, uint32_t pitch) {
        AwaitParts(s);
        s.results[0] = unit_.Begin();
        AddSplit<true, false>(s.results[0], s.scaled, s.state, n, s.width, t_.keyPitch, true);
        AddSplit<true, true>(s.results[0], &s.operands[2 * kScoreOperand], s.delta, n, s.width, n, false);
        AscendC::SetFlag<HardEvent::MTE1_MTE2>(s.used);
        unit_.Ready(s.results[0]);
        unit_.StoreRows(out, s.results[0], n, s.rows, pitch);
        unit_.End(s.results[0]);
    }

    const Data& t_;
    const Layout layout_;
    GM_ADDR workspace_;
    static constexpr uint32_t kFractal = kFractalElements<T>;
    const bool resident_;
    GlobalTensor<T> query_, key_, value_, out_;
    GlobalTensor<StateT> initial_, final_;
    CubeUnit unit_;
    AscendC::TBuf<AscendC::TPosition::A1> l1_;
    uint32_t used_ = 0;  // elements of l1_
    Set sets_[kUnits], scoring_;
    Set* unsettled_ = nullptr;
    CubeMatrix<T> identity_;
    uint32_t scored_ = 0, done_ = 0;  // chunks
    bool haveConstants_ = false;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PRODUCTS_H_
