// Blocks of consecutive tokens: keys, queries, values and gates of an item's heads in fp32, and the products
// of neighbouring keys and queries.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TOKENS_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TOKENS_H_

#include "workspace.h"

namespace hybrid_ops {
namespace cgdr {

struct Arguments {
    GM_ADDR query;
    GM_ADDR key;
    GM_ADDR value;
    GM_ADDR beta;
    GM_ADDR initial;
    GM_ADDR lengths;
    GM_ADDR g;
    GM_ADDR out;
    GM_ADDR final;
};

template <typename T, bool kTail>
class Tokens {
 public:
    __aicore__ inline Tokens(const Data& t, const Rows& rows, const Item& item, Workspace& work)
        : t_(t), rows_(rows), item_(item), work_(work) {}

    // Keys and queries are allocated first: Workspace::InitTiles has put them in phase with its matrices.
    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        value_.SetGlobalBuffer((__gm__ T*)a.value);
        beta_.SetGlobalBuffer((__gm__ T*)a.beta);
        if (t_.hasGate) gate_.SetGlobalBuffer((__gm__ float*)a.g);
        valueRows_.Init(t_.rowPitch);
        const uint32_t prepared = t_.tokenBlock * t_.keys * t_.keyPitch, gates = GateElements(t_);
        for (uint32_t i = 0; i < 2; ++i) {
            Workspace::Get(pipe, blocks_[i].keys, buffers_[i], prepared);
            Workspace::Get(pipe, blocks_[i].queries, buffers_[2 + i], prepared);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            Workspace::Get(pipe, blocks_[i].values, buffers_[4 + i], t_.tokenBlock * t_.rowPitch);
            Workspace::Get(pipe, blocks_[i].pairs, buffers_[6 + i], PairElements(t_));
            Workspace::Get(pipe, blocks_[i].alpha, buffers_[8 + i], gates);
            Workspace::Get(pipe, blocks_[i].betas, buffers_[10 + i], gates);
        }
        // A staged block: keys, queries, values, betas in T, then fp32 gates.
        atQueries_ = prepared;
        atValues_ = 2 * prepared;
        atBetas_ = atValues_ + t_.tokenBlock * t_.rowPitch;
        atGates_ = atBetas_ + gates;
        pipe.InitBuffer(staged_, 1, StagedElements(t_) * sizeof(T));
        ready_ = static_cast<event_t>(pipe.AllocEventID<HardEvent::V_S>());
        // Moves leave pads alone: zero once.
        LocalTensor<T> stage = staged_.template AllocTensor<T>();
        AscendC::Duplicate(Floats(stage), 0.0f, int32_t(StagedElements(t_) * sizeof(T) / sizeof(float)));
        staged_.EnQue(stage);
        stage = staged_.template DeQue<T>();
        staged_.FreeTensor(stage);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) { pipe.ReleaseEventID<HardEvent::V_S>(ready_); }

    // Blocks start at multiples of the block size. Before the first token of an item:
    __aicore__ inline void Start(int64_t token) {
        end_ = token - token % t_.tokenBlock;
        Prefetch(end_);
    }
    // Prepares the block that holds the token, unless it is prepared.
    __aicore__ inline void Need(int64_t token) {
        if (token < end_) return;
        const int64_t begin = token - token % t_.tokenBlock;
        if (pending_ != begin) {  // only where a block holds no token of any sequence
            Drop();
            Prefetch(begin);
        }
        Prepare();
    }
    // Prepares the next block beside the last one, whose tokens can still be asked for. Overwrites the
    // product.
    __aicore__ inline void Ahead() {
        if (pending_ == end_) Prepare();
    }
    // One past the last token of the block that holds the token.
    __aicore__ inline int64_t EndOf(int64_t token) const {
        const int64_t end = token - token % t_.tokenBlock + t_.tokenBlock;
        return end < t_.tokens ? end : t_.tokens;
    }
    // The scalar unit waits until what was prepared last can be read.
    __aicore__ inline void Wait() {
        if (!waiting_) return;
        AscendC::WaitFlag<HardEvent::V_S>(ready_);
        waiting_ = false;
    }
    // After the last token of an item.
    __aicore__ inline void Finish() {
        Wait();
        Drop();
    }

    // Of the last two blocks; key heads are counted from the item's first one.
    __aicore__ inline FloatTensor Key(int64_t token, uint32_t key) const {
        const Block& b = Of(token);
        return b.keys[b.Index(token, key, item_.keys) * t_.keyPitch];
    }
    __aicore__ inline FloatTensor Query(int64_t token, uint32_t key) const {
        const Block& b = Of(token);
        return b.queries[b.Index(token, key, item_.keys) * t_.keyPitch];
    }
    __aicore__ inline FloatTensor Values(int64_t token) const {
        const Block& b = Of(token);
        return b.values[b.Index(token, 0, t_.rowPitch)];
    }
    __aicore__ inline float Beta(int64_t token, uint32_t head) const {
        const Block& b = Of(token);
        return b.betas.GetValue(b.betaSlice.At(b.Index(token, head, t_.valueHeads)));
    }
    __aicore__ inline float Decay(int64_t token, uint32_t head) const {
        if (!t_.hasGate) return 1.0f;
        const Block& b = Of(token);
        return b.alpha.GetValue(b.gateSlice.At(b.Index(token, head, t_.valueHeads)));
    }
    // query(token) . key(token - lag), lag < kStepTokens
    __aicore__ inline float QueryKey(int64_t token, uint32_t lag, uint32_t key) const {
        return Pair(token, lag, key);
    }
    // key(token) . key(token - lag), 0 < lag < kStepTokens
    __aicore__ inline float KeyKey(int64_t token, uint32_t lag, uint32_t key) const {
        return Pair(token, kStepTokens - 1 + lag, key);
    }

 private:
    static constexpr int64_t kNone = -1;
    // exp of it is 0 in fp32, so that a token of -inf forgets the state; keeps -inf out of Exp. Decays are
    // only ever multiplied, never summed up: small ones beside it keep all their digits.
    static constexpr float kGateFloor = -200.0f;

    __aicore__ static inline FloatTensor Floats(const LocalTensor<T>& tensor) {
        return tensor.template ReinterpretCast<float>();
    }
    struct Block {
        // keys, queries [token, key head, pitch]; values [token, rowPitch]; alpha = exp(g), betas [token,
        // NV]; pairs [kPairs, token, key head]
        FloatTensor keys, queries, values, pairs, alpha, betas;
        Slice<T> betaSlice;
        Slice<float> gateSlice;
        int64_t begin;
        uint32_t count;
        __aicore__ inline uint32_t Index(int64_t token, uint32_t i, uint32_t width) const {
            return uint32_t(token - begin) * width + i;
        }
    };

    __aicore__ inline const Block& Of(int64_t token) const {
        return blocks_[token >= blocks_[youngest_].begin ? youngest_ : youngest_ ^ 1];
    }
    __aicore__ inline float Pair(int64_t token, uint32_t pair, uint32_t key) const {
        const Block& b = Of(token);
        return b.pairs.GetValue(pair * b.count * item_.keys + b.Index(token, key, item_.keys));
    }
    __aicore__ inline void Drop() {
        if (pending_ == kNone) return;
        LocalTensor<T> stage = staged_.template DeQue<T>();
        staged_.FreeTensor(stage);
        pending_ = kNone;
    }

    // staged_ <- the block of tokens from `begin` on
    __aicore__ inline void Prefetch(int64_t begin) {
        if (begin >= t_.tokens) return;
        const int64_t left = t_.tokens - begin;
        const uint32_t n = uint32_t(left < t_.tokenBlock ? left : t_.tokenBlock);
        LocalTensor<T> stage = staged_.template AllocTensor<T>();
        const uint64_t keyWidth = uint64_t(t_.keyHeads) * t_.keyDim;
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint64_t keyAt = uint64_t(begin) * keyWidth + uint64_t(item_.key) * t_.keyDim;
        if (t_.keyDim == t_.keyPitch) {
            const uint32_t wide = item_.keys * t_.keyDim;
            LoadRows(stage, key_[keyAt], n, wide, keyWidth, wide);
            LoadRows(stage[atQueries_], query_[keyAt], n, wide, keyWidth, wide);
        } else {
            for (uint32_t i = 0; i < n; ++i) {
                const uint32_t to = i * item_.keys * t_.keyPitch;
                LoadRows(stage[to], key_[keyAt + i * keyWidth], item_.keys, t_.keyDim, t_.keyDim,
                         t_.keyPitch);
                LoadRows(stage[atQueries_ + to], query_[keyAt + i * keyWidth], item_.keys, t_.keyDim,
                         t_.keyDim, t_.keyPitch);
            }
        }
        LoadRows(stage[atValues_], value_[uint64_t(begin) * width + item_.row], n, item_.rows, width,
                 t_.rowPitch);
        const uint64_t first = uint64_t(begin) * t_.valueHeads, total = uint64_t(t_.tokens) * t_.valueHeads;
        pendingBeta_.Load(stage[atBetas_], beta_, first, n * t_.valueHeads, total);
        if (t_.hasGate) pendingGate_.Load(Floats(stage[atGates_]), gate_, first, n * t_.valueHeads, total);
        staged_.EnQue(stage);
        pending_ = begin;
        pendingCount_ = n;
    }

    // The older block <- the one on its way; the one after that is fetched then.
    __aicore__ inline void Prepare() {
        Wait();
        youngest_ ^= 1;
        Block& b = blocks_[youngest_];
        b.begin = pending_;
        b.count = pendingCount_;
        b.betaSlice = pendingBeta_;
        b.gateSlice = pendingGate_;
        end_ = b.begin + b.count;
        pending_ = kNone;
        LocalTensor<T> stage = staged_.template DeQue<T>();
        const uint32_t prepared = b.count * item_.keys;
        work_.template Widen<T, kTail>(b.keys, stage, rows_, t_.keyDim, prepared);
        work_.template Widen<T, kTail>(b.queries, stage[atQueries_], rows_, t_.keyDim, prepared);
        work_.template Widen<T, kTail>(b.values, stage[atValues_], valueRows_, item_.rows, b.count);
        Convert(b.betas, stage[atBetas_], b.betaSlice.extent);
        if (t_.hasGate) {
            AscendC::Maxs(b.alpha, Floats(stage[atGates_]), kGateFloor, int32_t(b.gateSlice.extent));
            PipeBarrier<PIPE_V>();
            AscendC::Exp(b.alpha, b.alpha, int32_t(b.gateSlice.extent));
        }
        staged_.FreeTensor(stage);
        PipeBarrier<PIPE_V>();
        PreparePairs(b, prepared);
        AscendC::SetFlag<HardEvent::V_S>(ready_);
        waiting_ = true;
        Prefetch(end_);
    }

    // The products Q K^T and K K^T of a block, as far as tokens of one step need them: lag by lag, each
    // [token, key head], batches of as many rows as the product matrix holds.
    __aicore__ inline void PreparePairs(const Block& b, uint32_t prepared) {
        const uint32_t room = t_.rows / 8 * 8;
        uint32_t from = 0, filled = 0;  // rows of all lags before the batch, and in it
        for (uint32_t pair = 0; pair < kPairs; ++pair) {
            const bool ofQueries = pair < kStepTokens;
            const uint32_t lag = (ofQueries ? pair : pair - kStepTokens + 1) * item_.keys;
            const FloatTensor& left = ofQueries ? b.queries : b.keys;
            for (uint32_t r = 0, some; r < prepared; r += some) {
                some = prepared - r < room - filled ? prepared - r : room - filled;
                // Rows before the lag have no partner: any finite one will do, nobody asks.
                const uint32_t skip = r < lag ? (lag - r < some ? lag - r : some) : 0;
                const uint32_t at = filled * t_.keyPitch;
                if (skip != 0) AscendC::Duplicate(work_.product[at], 0.0f, int32_t(skip * t_.keyPitch));
                if (skip != some) {
                    AscendC::Mul(work_.product[at + skip * t_.keyPitch], left[(r + skip) * t_.keyPitch],
                                 b.keys[(r + skip - lag) * t_.keyPitch],
                                 int32_t((some - skip) * t_.keyPitch));
                }
                filled += some;
                if (filled == room) {
                    SumPairs(b, from, filled);
                    from += filled;
                    filled = 0;
                }
            }
        }
        if (filled != 0) SumPairs(b, from, filled);
    }
    // pairs[first ..] <- sums of n rows of the product
    __aicore__ inline void SumPairs(const Block& b, uint32_t first, uint32_t n) {
        PipeBarrier<PIPE_V>();
        rows_.SumBlocks(work_.partial[0], work_.product, n);
        FloatTensor from = work_.partial[0];
        for (uint32_t level = 0; level < rows_.levels; ++level) {
            PipeBarrier<PIPE_V>();
            const FloatTensor to = level + 1 == rows_.levels ? b.pairs[first] : work_.level[level & 1][0];
            rows_.SumLevel(level, to, from, n);
            from = to;
        }
        PipeBarrier<PIPE_V>();
    }

    const Data& t_;
    const Rows& rows_;
    const Item& item_;
    Workspace& work_;
    Rows valueRows_;
    AscendC::GlobalTensor<T> query_, key_, value_, beta_;
    AscendC::GlobalTensor<float> gate_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> staged_;
    Buffer buffers_[12];
    Block blocks_[2];
    uint32_t youngest_ = 0;
    event_t ready_;
    bool waiting_ = false;
    uint32_t atQueries_, atValues_, atBetas_, atGates_;
    int64_t end_ = 0;          // of the younger block
    int64_t pending_ = kNone;  // first token of the block on its way
    uint32_t pendingCount_ = 0;
    Slice<T> pendingBeta_;
    Slice<float> pendingGate_;
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_TOKENS_H_
