// Cube path on ascend310p: chunks of 64 tokens in the WY form (Yang et al., arXiv:2412.06464, section 3.3).
//
// With E_ij the decay from j to i, G_i that from the chunk's start, A = strictly lower (beta K K^T o E),
// T = (I + A)^-1 and S the state before the chunk:
//   U   = T diag(beta) V - T diag(beta exp(G)) (K S)
//   out = scale (exp(G) Q S + (Q K^T o E) U)
//   S  <- exp(G_n) S + (exp(G_n - G) K)^T U
// The transposed state [columns, DK], V first as in the contract, stays in unified buffer in fp32 over all
// tokens of a sequence. Factors of products are rounded to fp16 once (A twice), sums are fp32. A chunk with
// fewer tokens is one of 64 with beta = 0, g = 0 and zero rows.
//
// While a chunk passes through the state, the next one is prepared: each of the two has steps that wait for a
// product, and fills the gaps of the other. Inputs are fetched one chunk further ahead.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_H_

#include "cube_310p_gates.h"
#include "cube_310p_inverse.h"
#include "cube_310p_range.h"
#include "tokens.h"

namespace hybrid_ops {
namespace cgdr {

class CubeKernel {
 public:
    __aicore__ inline explicit CubeKernel(const Data& data)
        : t_(data), gates_(t_, work_), inverse_(work_), range_(t_, work_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ half*)a.query);
        key_.SetGlobalBuffer((__gm__ half*)a.key);
        value_.SetGlobalBuffer((__gm__ half*)a.value);
        initial_.SetGlobalBuffer((__gm__ half*)a.initial);
        out_.SetGlobalBuffer((__gm__ half*)a.out);
        final_.SetGlobalBuffer((__gm__ half*)a.final);
        LocalTensor<int32_t> table;
        Reserve(pipe, lengthsBuffer_, table, t_.entries + 8);
        lengths_.Load(a.lengths, table, t_.sequences, t_.entries);
        work_.Init(pipe, t_);
        gates_.Init(pipe, a.beta, a.g);
        inverse_.Init(pipe);
        unloaded_.Init(pipe);
        Order<HardEvent::MTE2_S>();
    }

    __aicore__ inline void Process() {
        ahead_.index = uint32_t(AscendC::GetBlockIdx());
        ahead_.sequence = t_.sequences;  // before the first one
        ahead_.token = ahead_.end = 0;
        ahead_.index -= uint32_t(AscendC::GetBlockNum());
        item_.Set(t_, uint32_t(AscendC::GetBlockIdx()));
        FetchState(0);
        Fetch(0, Rows::kKeys);
        Fetch(0, Rows::kQueries);
        Fetch(0, Rows::kValues);
        Pass(nullptr, 0);
        const uint32_t items = t_.valueHeads * t_.valueSteps;
        for (uint32_t i = uint32_t(AscendC::GetBlockIdx()); i < items;
             i += uint32_t(AscendC::GetBlockNum())) {
            index_ = i;
            item_.Set(t_, i);
            ProcessItem();
        }
        FlushOut();
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        gates_.Release(pipe);
        unloaded_.Release(pipe);
        work_.Release(pipe);
    }

 private:
    static constexpr uint32_t kFlushRows = kChunkTokens / 4;

    struct Cursor {
        uint32_t index, sequence;  // of the item, of the sequence
        int64_t token, end;        // next token; end of the sequence
    };

    __aicore__ inline void ProcessItem() {
        int64_t begin = 0;
        for (uint32_t b = 0; b < t_.sequences; ++b) {
            const int64_t end = EndOf(begin, b);
            LoadState();
            FetchState(b + 1);
            for (int64_t token = begin; token < end; token += kChunkTokens) {
                Pass(&chunks_[now_ % 3], now_ + 1);
                ++now_;
            }
            begin = end;
            StoreState(b);
        }
        ZeroRows(begin);
    }
    __aicore__ inline int64_t EndOf(int64_t begin, uint32_t sequence) const {
        const int64_t length = lengths_.Get(sequence), left = int64_t(t_.tokens) - begin;
        return begin + (length <= 0 ? 0 : length < left ? length : left);
    }
    // The chunk after the last one drawn, over all sequences and items of this core.
    __aicore__ inline Chunk Draw() {
        Chunk chunk{};
        while (ahead_.token >= ahead_.end) {
            if (ahead_.sequence + 1 < t_.sequences + 1 && ahead_.sequence != t_.sequences) {
                ++ahead_.sequence;
            } else {
                ahead_.index += uint32_t(AscendC::GetBlockNum());
                ahead_.sequence = 0;
                ahead_.token = ahead_.end = 0;
            }
            if (ahead_.sequence == t_.sequences) continue;
            if (ahead_.index >= t_.valueHeads * t_.valueSteps) return chunk;
            ahead_.end = EndOf(ahead_.token, ahead_.sequence);
            chunk.first = true;
        }
        const int64_t left = ahead_.end - ahead_.token;
        chunk.token = ahead_.token;
        chunk.count = uint32_t(left < kChunkTokens ? left : kChunkTokens);
        chunk.item.Set(t_, ahead_.index);
        ahead_.token += chunk.count;
        return chunk;
    }
    // Starts to fetch the rows of chunk number n: a third at a time, as the queue of moves is short.
    enum class Rows { kKeys, kQueries, kValues };
    __aicore__ inline void Fetch(uint32_t n, Rows rows) {
        Chunk& chunk = chunks_[n % 3];
        if (rows == Rows::kKeys) chunk = Draw();
        if (chunk.count == 0) return;
        CubeInputs& to = work_.inputs[n % 3];
        const uint64_t keyWidth = uint64_t(t_.keyHeads) * t_.keyDim, width = Width();
        const uint64_t at = uint64_t(chunk.token) * keyWidth + uint64_t(chunk.item.key) * t_.keyDim;
        if (rows == Rows::kKeys) {
            Order<HardEvent::V_MTE2>();
            gates_.Fetch(chunk);
            work_.cube.FillRows(to.tokens, key_[at], chunk.count, t_.keyDim, keyWidth,
                                chunk.count < kChunkTokens);
        } else if (rows == Rows::kQueries) {
            work_.cube.FillRows(to.tokens, query_[at], chunk.count, t_.keyDim, keyWidth, false, kChunkTokens);
        } else {
            const uint64_t valueAt = uint64_t(chunk.token) * width + Column(chunk.item);
            work_.cube.FillRows(to.value, value_[valueAt], chunk.count, chunk.item.columns, width, true);
            work_.cube.Deliver();
        }
    }

    // Takes the state through chunk `now`, if any, and prepares chunk number `next`, if there is one.
    __aicore__ inline void Pass(const Chunk* now, uint32_t next) {
        const Chunk* then = chunks_[next % 3].count != 0 ? &chunks_[next % 3] : nullptr;
        const uint32_t last = next + 2;  // number of `now`, modulo 3; its preparation is that of next + 1
        CubeInputs &old = work_.inputs[last % 3], &fresh = work_.inputs[next % 3];
        CubePrepared &mine = work_.prepared[(next + 1) % 2], &ours = work_.prepared[next % 2];
        const bool passes = now != nullptr, prepares = then != nullptr;
        const bool large = passes && range_.Large(mine);
        if (large) gates_.Spoil();
        if (large) range_.Shrink(old.value, mine, item_.columns);
        if (passes && (large || !sent_)) {
            SendState();
            ReadKeys(old);
        }
        // Long gone: its flag is free for others.
        work_.Begin(work_.tokens);
        if (prepares && !correlated_) Correlate(fresh);
        if (passes) {
            work_.cube.Await(mine.solveRead);  // sent last
        }
        if (prepares) gates_.Complete(*then);
        if (passes) ReadState(old, mine);
        if (prepares) {
            gates_.Spread(ours);
            Unload(fresh, mine, *then);
        }
        Fetch(next + 1, Rows::kKeys);
        const bool follows = prepares && chunks_[(next + 1) % 3].count != 0;
        if (passes) Solve(mine);
        FlushSome();
        if (prepares) {
            Couple();
            inverse_.Start();
        }
        FlushSome();
        Fetch(next + 1, Rows::kQueries);
        FlushSome();
        if (prepares) {
            inverse_.Substitute();
            inverse_.Try(0);
        }
        if (passes) SendDelta();
        if (prepares) {
            Attend(ours);
            if (follows) gates_.Begin(chunks_[(next + 1) % 3]);
            gates_.Next();
            inverse_.Turn(0);
        }
        if (passes) Update(mine);
        FlushSome();
        if (passes) Decay(mine);
        Fetch(next + 1, Rows::kValues);
        if (prepares) {
            inverse_.Take(0);
            inverse_.Try(1);
        }
        if (passes) ReadOut(mine);
        if (prepares) {
            gates_.Next();
            unloaded_.Take(unloadedFlag_);
            Scale();
            inverse_.Turn(1);
            work_.Send(ours.scaled, work_.tokens, 2 * kChunkTokens * t_.keyDim);
            range_.Measure(ours, then->item.columns, gates_);
            inverse_.Take(1);
            inverse_.Try(2);
        }
        const uint32_t pieces = passes ? StatePieces() : 0;
        for (uint32_t i = 0; i < pieces; i += 2) WriteState(mine, i);
        if (prepares) inverse_.Turn(2);
        gates_.Next();
        for (uint32_t i = 1; i < pieces; i += 2) WriteState(mine, i);
        if (prepares) {
            inverse_.Take(2);
            inverse_.Try(3);
        }
        FlushOut();
        if (passes) RoundOut(*now, mine, large);
        if (large) range_.Restore(mine, item_.columns);
        if (prepares) inverse_.Turn(3);
        gates_.Next();
        correlated_ = follows;
        if (follows) Correlate(work_.inputs[(next + 1) % 3]);
        sent_ = passes && prepares && !then->first;
        if (sent_) {
            SendState();
            ReadKeys(fresh);
        }
        if (!prepares) return;
        inverse_.Take(3);
        PipeBarrier<PIPE_V>();
        gates_.Next();
        const HalfTensor value = work_.solved.data, read = value[kSquare];
        ScaleRows(read, value, gates_.minusBetaHalf);
        work_.known.Take(ours.known);
        ours.growth = ours.rise.GetValue(0);
        ours.kept = ours.whole.GetValue(0);
        ours.values = float(ours.peak.GetValue(0));
        ours.forgets = ours.kept == 0.0f ? gates_.FirstForgetting(then->count) : then->count;
        PipeBarrier<PIPE_V>();
        AscendC::Muls(value, read, half(-1), int32_t(kSquare));
        if (ours.growth != 0.0f) Shrink(value, ours.growth);
        work_.cube.Fill(ours.solveValue, value, kSquare);
        ScaleRows(read, read, gates_.fromStart);
        work_.cube.Fill(ours.solveRead, read, kSquare);
        work_.solved.moved = work_.moved.Raise();
    }

    // square [64, 64], its rows multiplied with exp(-growth i). Uses square[1].
    __aicore__ inline void Shrink(const HalfTensor& square, float growth) {
        const FloatTensor shrink = gates_.Rise(-growth), column = work_.square[1][2 * kColumn];
        for (uint32_t c = 0; c < kSquare; c += kColumn) {
            PipeBarrier<PIPE_V>();
            AscendC::Cast(column, square[c], AscendC::RoundMode::CAST_NONE, kColumn);
            PipeBarrier<PIPE_V>();
            AscendC::Mul(column, column, shrink, int32_t(kColumn));
            PipeBarrier<PIPE_V>();
            AscendC::Cast(square[c], column, AscendC::RoundMode::CAST_NONE, kColumn);
        }
    }
    // K K^T and Q K^T on the way
    __aicore__ inline void Correlate(CubeInputs& in) {
        const uint32_t n = kChunkTokens;
        work_.cube.Multiply(work_.scores, {&in.tokens, false}, {&in.tokens, true}, 2 * n, n, t_.keyDim,
                            false);
    }
    // Keys, queries and values at hand, once those of the chunk before have gone.
    __aicore__ inline void Unload(CubeInputs& in, const CubePrepared& before, const Chunk& then) {
        Cube310p& cube = work_.cube;
        cube.Await(before.scaled);
        cube.Unload(work_.tokens.data, in.tokens, 2 * kChunkTokens * t_.keyDim);
        cube.Unload(range_.Values(), in.value, kChunkTokens * then.item.columns);
        unloadedFlag_ = unloaded_.Raise();
    }
    // Keys and queries, each row multiplied by its factor.
    __aicore__ inline void Scale() {
        const uint32_t elements = 2 * kChunkTokens * t_.keyDim;
        for (uint32_t c = 0; c < elements; c += 2 * kColumn) {
            AscendC::Mul(work_.tokens.data[c], work_.tokens.data[c], gates_.toEnd, int32_t(2 * kColumn));
        }
    }
    // square[0] <- -beta K K^T o E
    __aicore__ inline void Couple() {
        const FloatTensor square = work_.square[0];
        work_.Begin(work_.solved);
        work_.cube.FetchRows(square, work_.scores, 0, kChunkTokens, kChunkTokens, 2 * kChunkTokens, false);
        PipeBarrier<PIPE_V>();
        AscendC::Mul(square, square, work_.decay, int32_t(kSquare));
        PipeBarrier<PIPE_V>();
        ScaleRows(square, gates_.minusBeta);
        PipeBarrier<PIPE_V>();
    }
    __aicore__ inline void Attend(CubePrepared& to) {
        const FloatTensor square = work_.square[1];
        work_.cube.FetchRows(square, work_.scores, kChunkTokens, kChunkTokens, kChunkTokens, 2 * kChunkTokens,
                             true);
        PipeBarrier<PIPE_V>();
        AscendC::Mul(square, square, work_.decay, int32_t(kSquare));
        work_.SendSquare(to.attention, 1, square);
    }

    // states <- S^T, rounded, in halves
    __aicore__ inline void SendState() {
        const uint32_t v = item_.columns, half = v * t_.keyDim / 2;
        work_.states.rows = v;
        HalfTensor& front = work_.Begin(work_.front);
        PipeBarrier<PIPE_V>();
        gates_.Next();
        AscendC::Cast(front, work_.state, AscendC::RoundMode::CAST_NONE, half);
        work_.Send(work_.states, work_.front, half);
        work_.SendBack(work_.states, work_.state[half], half, half);
    }
    // K S on the way
    __aicore__ inline void ReadKeys(CubeInputs& in) {
        const uint32_t n = kChunkTokens, k = t_.keyDim, v = item_.columns;
        work_.cube.Multiply(work_.readSum, {&in.tokens, false}, {&work_.states, true}, n, v, k, false);
    }
    // The state's part of out and the values' part of U on the way.
    __aicore__ inline void ReadState(CubeInputs& in, CubePrepared& mine) {
        const uint32_t n = kChunkTokens, k = t_.keyDim, v = item_.columns;
        Cube310p& cube = work_.cube;
        cube.Multiply(work_.deltaSum, {&mine.solveValue, true}, {&in.value, false}, n, v, n, false, false);
        cube.Multiply(work_.outSum, {&mine.scaled, false, n}, {&work_.states, true}, n, v, k, false, false);
    }
    __aicore__ inline void Solve(CubePrepared& mine) {
        const uint32_t n = kChunkTokens, v = item_.columns;
        work_.SendSum(work_.read, work_.readSum, n * v);
        work_.cube.Multiply(work_.deltaSum, {&mine.solveRead, true}, {&work_.read, false}, n, v, n, true);
    }
    __aicore__ inline void SendDelta() {
        work_.SendSum(work_.delta, work_.deltaSum, kChunkTokens * item_.columns);
    }
    __aicore__ inline void Update(CubePrepared& mine) {
        const uint32_t n = kChunkTokens, k = t_.keyDim, v = item_.columns;
        work_.cube.Multiply(work_.stateSum, {&work_.delta, true}, {&mine.scaled, false}, v, k, n, false);
    }
    __aicore__ inline void ReadOut(CubePrepared& mine) {
        const uint32_t n = kChunkTokens, v = item_.columns;
        work_.cube.Multiply(work_.outSum, {&mine.attention, false}, {&work_.delta, false}, n, v, n, true);
    }
    // S^T <- exp(G_n) S^T
    __aicore__ inline void Decay(CubePrepared& mine) {
        if (!t_.hasGate) return;
        const uint32_t elements = item_.columns * t_.keyDim;
        for (uint32_t at = 0; at < elements; at += kMostRows * kFloatLanes) {
            const uint32_t left = (elements - at) / kFloatLanes,
                           repeats = left < kMostRows ? left : kMostRows;
            AscendC::Mul(work_.state[at], work_.state[at], mine.whole, uint64_t(kFloatLanes),
                         uint8_t(repeats), AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
        }
    }
    __aicore__ inline uint32_t StatePieces() const {
        return (item_.columns * t_.keyDim + CubeLanding(t_) - 1) / CubeLanding(t_);
    }
    // S^T <- S^T + U^T (exp(G_n - G) K), as much as the landing holds
    __aicore__ inline void WriteState(CubePrepared& mine, uint32_t piece) {
        const uint32_t all = item_.columns * t_.keyDim, at = piece * CubeLanding(t_);
        const uint32_t some = all - at < CubeLanding(t_) ? all - at : CubeLanding(t_);
        work_.cube.Fetch(work_.landing, work_.stateSum, some, at, at + some == all);
        PipeBarrier<PIPE_V>();
        gates_.Next();
        AscendC::Add(work_.state[at], work_.state[at], work_.landing, int32_t(some));
        if (mine.growth == 0.0f) return;
        PipeBarrier<PIPE_V>();
        AscendC::Muls(work_.state[at], work_.state[at], mine.swell.GetValue(0), int32_t(some));
    }
    // The chunk's out rows, rounded; FlushOut stores them.
    __aicore__ inline void RoundOut(const Chunk& chunk, const CubePrepared& mine, bool large) {
        const uint32_t v = item_.columns;
        work_.cube.Fetch(work_.landing, work_.outSum, kChunkTokens * v);
        if (mine.growth != 0.0f) {
            const FloatTensor grow = gates_.Rise(mine.growth);
            for (uint32_t c = 0; c < kChunkTokens * v; c += kColumn) {
                AscendC::Mul(work_.landing[c], work_.landing[c], grow, int32_t(kColumn));
            }
        }
        HalfTensor& rows = work_.Begin(work_.out);
        PipeBarrier<PIPE_V>();
        gates_.Next();
        AscendC::Muls(work_.landing, work_.landing, large ? t_.scale * CubeRange::kGrow : t_.scale,
                      int32_t(kChunkTokens * v));
        PipeBarrier<PIPE_V>();
        gates_.Next();
        FromFractals(rows, work_.landing, kChunkTokens, v);
        if (large) range_.Spoil(rows, mine.forgets, v);
        rounded_ = chunk;
        flushed_ = 0;
    }
    // Stores the rows that stand ready, a quarter of a chunk at a time: MTE3 takes long, and what goes to the
    // cube unit stands behind it.
    __aicore__ inline void FlushSome() {
        if (flushed_ >= rounded_.count) return;
        const uint32_t v = rounded_.item.columns, left = rounded_.count - flushed_;
        const uint32_t n = left < kFlushRows ? left : kFlushRows;
        if (flushed_ == 0) Order<HardEvent::V_MTE3>();
        StoreRows(out_[uint64_t(rounded_.token + flushed_) * Width() + Column(rounded_.item)],
                  work_.out.data[flushed_ * v], n, v, Width(), v);
        flushed_ += n;
        if (flushed_ == rounded_.count) work_.out.moved = work_.moved.Raise();
    }
    __aicore__ inline void FlushOut() {
        while (flushed_ < rounded_.count) FlushSome();
    }

    // rows [m, n] in fp16 <- src [m, n] in columns of fractals
    __aicore__ inline void FromFractals(const HalfTensor& rows, const FloatTensor& src, uint32_t m,
                                        uint32_t n) {
        const uint32_t blocks = n / kFractal;
        for (uint32_t c = 0; c < blocks; ++c) {
            AscendC::Cast(rows[c * kFractal], src[c * m * kFractal], AscendC::RoundMode::CAST_NONE,
                          uint64_t(kFloatLanes), uint8_t(m / 4),
                          AscendC::UnaryRepeatParams(uint16_t(blocks), 1, uint8_t(4 * blocks), 8));
        }
    }
    // Starts to fetch the initial state of a sequence of this item, or behind the last one, of the next
    // item's first.
    __aicore__ inline void FetchState(uint32_t sequence) {
        CubeItem item = item_;
        if (sequence == t_.sequences) {
            const uint32_t next = index_ + uint32_t(AscendC::GetBlockNum());
            if (next >= t_.valueHeads * t_.valueSteps) return;
            item.Set(t_, next);
            sequence = 0;
        }
        work_.cube.Fill(work_.initial, initial_[StateAt(item, sequence)], item.columns * t_.keyDim);
        work_.cube.Deliver();
    }
    __aicore__ inline void LoadState() {
        const uint32_t v = item_.columns, k = t_.keyDim, blocks = k / kFractal;
        HalfTensor& rows = work_.BeginRows();
        Order<HardEvent::V_MTE1>();
        work_.cube.Unload(rows, work_.initial, v * k);
        Order<HardEvent::MTE1_V>();
        for (uint32_t c = 0; c < blocks; ++c) {
            AscendC::Cast(work_.state[c * v * kFractal], rows[c * kFractal], AscendC::RoundMode::CAST_NONE,
                          uint64_t(kFloatLanes), uint8_t(v / 4),
                          AscendC::UnaryRepeatParams(1, uint16_t(blocks), 8, uint8_t(4 * blocks)));
        }
        PipeBarrier<PIPE_V>();
        range_.Start(rows, v * k);
    }
    __aicore__ inline void StoreState(uint32_t sequence) {
        const uint32_t v = item_.columns, k = t_.keyDim;
        HalfTensor& rows = work_.BeginRows();
        PipeBarrier<PIPE_V>();
        FromFractals(rows, work_.state, v, k);
        Order<HardEvent::V_MTE3>();
        AscendC::DataCopy(final_[StateAt(item_, sequence)], rows,
                          AscendC::DataCopyParams(1, uint16_t(v * k / kFractal), 0, 0));
        work_.front.moved = work_.moved.Raise();
        work_.back.moved = work_.moved.Raise();
    }
    // Rows of all tokens from `begin` on.
    __aicore__ inline void ZeroRows(int64_t begin) {
        if (begin >= t_.tokens) return;
        FlushOut();
        const uint32_t v = item_.columns;
        HalfTensor& rows = work_.Begin(work_.out);
        AscendC::Duplicate(rows, half(0), int32_t(kChunkTokens * v));
        Order<HardEvent::V_MTE3>();
        for (int64_t token = begin; token < t_.tokens; token += kChunkTokens) {
            const int64_t left = t_.tokens - token;
            StoreRows(out_[uint64_t(token) * Width() + Column(item_)], rows,
                      uint32_t(left < kChunkTokens ? left : kChunkTokens), v, Width(), v);
        }
        work_.out.moved = work_.moved.Raise();
    }

    __aicore__ inline uint64_t Width() const { return uint64_t(t_.valueHeads) * t_.valueDim; }
    __aicore__ inline uint64_t Column(const CubeItem& item) const {
        return uint64_t(item.head) * t_.valueDim + item.column;
    }
    __aicore__ inline uint64_t StateAt(const CubeItem& item, uint32_t sequence) const {
        return (uint64_t(sequence) * Width() + Column(item)) * t_.keyDim;
    }

    const Data t_;
    CubeItem item_;            // whose state is at hand
    uint32_t index_ = 0;       // of item_
    Chunk chunks_[3];          // number n at n % 3: the one under way, the next one, the one being fetched
    Chunk rounded_{};          // whose out rows are to be stored
    uint32_t flushed_ = 0;     // of these, already
    uint32_t now_ = 0;         // number of the chunk under way
    bool sent_ = false;        // the state before it is in L1, K S on the way
    bool correlated_ = false;  // K K^T and Q K^T of the next one as well
    Cursor ahead_;
    CubeWork work_;
    FlagPool<HardEvent::MTE1_V> unloaded_;
    uint32_t unloadedFlag_ = kNoFlag;
    CubeGates gates_;
    CubeInverse inverse_;
    CubeRange range_;
    IntTable lengths_;
    AscendC::GlobalTensor<half> query_, key_, value_, initial_, out_, final_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> lengthsBuffer_;
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_H_
