// Blocks of consecutive tokens: keys, queries, values and gates of a range's heads, widened and reduced once
// per block.
#ifndef HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TOKENS_H_
#define HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TOKENS_H_

#include "../common/row_copy.h"
#include "range.h"

namespace hybrid_ops {
namespace rgdr {

template <typename T, bool kTail, bool kChannelGate>
class Tokens {
 public:
    // Factors of one token and value head; `channels` is its row of exp(gk).
    struct Head {
        float decay, beta, keyQuery;
        FloatTensor key, query, channels;
    };

    __aicore__ inline Tokens(const Data& t, const Rows& rows, const Range& range, Workspace& work)
        : t_(t), rows_(rows), range_(range), work_(work) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR query, GM_ADDR key, GM_ADDR value, GM_ADDR beta,
                                GM_ADDR g, GM_ADDR gk) {
        query_.SetGlobalBuffer((__gm__ T*)query);
        key_.SetGlobalBuffer((__gm__ T*)key);
        value_.SetGlobalBuffer((__gm__ T*)value);
        beta_.SetGlobalBuffer((__gm__ T*)beta);
        if (t_.hasGate) gate_.SetGlobalBuffer((__gm__ float*)g);
        if (t_.channelGate) keyGate_.SetGlobalBuffer((__gm__ float*)gk);
        const uint32_t prepared = t_.tokenBlock * t_.coreKeyHeads, pitch = t_.keyPitch,
                       gates = GateElements(t_);
        Workspace::Get(pipe, keys_, buffers_[0], prepared * pitch * sizeof(float));
        Workspace::Get(pipe, queries_, buffers_[1], prepared * pitch * sizeof(float));
        Workspace::Get(pipe, keyQuery_, buffers_[2], (prepared + 2 * kFloatLanes) * sizeof(float));
        Workspace::Get(pipe, alpha_, buffers_[3], gates * sizeof(float));
        Workspace::Get(pipe, betas_, buffers_[4], gates * sizeof(float));
        // A staged block: keys, queries, values, betas in T, then fp32 gates.
        constexpr uint32_t kFloatSize = sizeof(float) / sizeof(T);
        atQueries_ = prepared * pitch;
        atValues_ = 2 * prepared * pitch;
        atBetas_ = atValues_ + t_.tokenBlock * t_.valuePitch;
        atGates_ = atBetas_ + gates;
        atKeyGates_ = atGates_ + (t_.hasGate ? gates * kFloatSize : 0);
        uint32_t end = atKeyGates_ + (t_.channelGate == 2 ? gates * kFloatSize : 0);
        if constexpr (kChannelGate) {
            const uint32_t channels = t_.tokenBlock * t_.coreHeads * pitch;
            Workspace::Get(pipe, channelAlpha_, buffers_[5], channels * sizeof(float));
            end += channels * kFloatSize;
        }
        Workspace::Get(pipe, values_, buffers_[6], t_.tokenBlock * t_.valuePitch * sizeof(float));
        pipe.InitBuffer(staged_, 1, end * sizeof(T));
        ready_ = static_cast<event_t>(pipe.AllocEventID<HardEvent::V_S>());
        if constexpr (kTail) {
            // Moves leave pads alone: zero once.
            LocalTensor<T> stage = staged_.template AllocTensor<T>();
            AscendC::Duplicate(Floats(stage), 0.0f, int32_t(end * sizeof(T) / sizeof(float)));
            staged_.EnQue(stage);
            stage = staged_.template DeQue<T>();
            staged_.FreeTensor(stage);
        }
    }

    // Starts to fetch the block that begins with the sequence, unless the current block holds it.
    __aicore__ inline void Prefetch(int64_t begin, int64_t rows) {
        const int64_t end = begin + (rows < t_.tokenBlock ? rows : int64_t(t_.tokenBlock));
        if (pendingRows_ == 0 && (begin < begin_ || end > begin_ + rowCount_)) Load(begin);
    }

    // Makes the block that holds the token, and all tokens before `until` if a block can, the current one.
    __aicore__ inline void Need(int64_t token, int64_t until) {
        if (until > token + t_.tokenBlock) until = token + t_.tokenBlock;
        if (rowCount_ != 0 && token >= begin_ && until <= begin_ + rowCount_) return;
        const int64_t pendingEnd = pendingBegin_ + pendingRows_;
        if (pendingRows_ != 0 && (token < pendingBegin_ || until > pendingEnd)) Drop();
        if (pendingRows_ == 0) Load(token);
        begin_ = pendingBegin_;
        rowCount_ = pendingRows_;
        betaSlice_ = pendingBeta_;
        gateSlice_ = pendingGate_;
        pendingRows_ = 0;
        Prepare();
    }
    // The scalar unit waits until what the current block prepared can be read.
    __aicore__ inline void Wait() {
        if (!waiting_) return;
        AscendC::WaitFlag<HardEvent::V_S>(ready_);
        waiting_ = false;
    }
    __aicore__ inline void Drop() {
        if (pendingRows_ == 0) return;
        LocalTensor<T> stage = staged_.template DeQue<T>();
        staged_.FreeTensor(stage);
        pendingRows_ = 0;
    }
    // Before another range's blocks.
    __aicore__ inline void Reset() {
        Wait();
        Drop();
        rowCount_ = 0;
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) { pipe.ReleaseEventID<HardEvent::V_S>(ready_); }

    // Of the current block: fp32, but in the order they were staged in (row_copy.h).
    __aicore__ inline FloatTensor Values(int64_t token, const Group& g) const {
        return values_[uint32_t(token - begin_) * t_.valuePitch + g.value];
    }
    __aicore__ inline Head HeadOf(int64_t token, uint32_t valueHead) const {
        const uint32_t at = uint32_t(token - begin_), gate = at * t_.valueHeads + valueHead;
        const uint32_t key = at * range_.keys + range_.KeyHead(valueHead) - range_.key;
        Head h;
        h.beta = betas_.GetValue(betaSlice_.At(gate));
        h.decay = t_.hasGate || t_.channelGate == 2 ? alpha_.GetValue(gateSlice_.At(gate)) : 1.0f;
        h.keyQuery = keyQuery_.GetValue(key);
        h.key = keys_[key * t_.keyPitch];
        h.query = queries_[key * t_.keyPitch];
        if constexpr (kChannelGate) {
            h.channels = channelAlpha_[(at * range_.heads + valueHead - range_.head) * t_.keyPitch];
        }
        return h;
    }
    // Some channel of the block decays to nothing.
    __aicore__ inline bool HasZeroChannel() const { return zeroChannel_; }

 private:
    static constexpr float kGateFloor = -200.0f;  // exp is 0 in fp32 from -104 on; keeps -inf out of Exp
    static constexpr uint32_t kMaxRepeats = 240;

    __aicore__ static inline FloatTensor Floats(const LocalTensor<T>& tensor) {
        return tensor.template ReinterpretCast<float>();
    }

    // staged_ <- the tokens from `begin` on
    __aicore__ inline void Load(int64_t begin) {
        const int64_t left = int64_t(t_.tokens) - begin;
        const uint32_t n = uint32_t(left < t_.tokenBlock ? left : t_.tokenBlock);
        LocalTensor<T> stage = staged_.template AllocTensor<T>();
        const uint64_t keyWidth = uint64_t(t_.keyHeads) * t_.keyDim,
                       width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint64_t keyAt = uint64_t(begin) * keyWidth + uint64_t(range_.key) * t_.keyDim;
        if (t_.keyDim == t_.keyPitch) {
            const uint32_t wide = range_.keys * t_.keyDim;
            LoadRows(stage, key_[keyAt], n, wide, keyWidth, wide);
            LoadRows(stage[atQueries_], query_[keyAt], n, wide, keyWidth, wide);
        } else {
            for (uint32_t i = 0; i < n; ++i) {
                const uint32_t to = i * range_.keys * t_.keyPitch;
                LoadRows(stage[to], key_[keyAt + i * keyWidth], range_.keys, t_.keyDim, t_.keyDim,
                         t_.keyPitch);
                LoadRows(stage[atQueries_ + to], query_[keyAt + i * keyWidth], range_.keys, t_.keyDim,
                         t_.keyDim, t_.keyPitch);
            }
        }
        const LocalTensor<T> values = stage[atValues_];
        if (range_.Even()) {
            LoadRows(values, value_[uint64_t(begin) * width + range_.row], n, range_.rows, width,
                     t_.valuePitch);
        } else {
            for (Group g = range_.First(t_.groupUnits);; g = range_.Next(g)) {
                LoadRows(values[g.value], value_[uint64_t(begin) * width + g.row], n, g.rows, width,
                         t_.valuePitch);
                if (range_.IsLast(g)) break;
            }
        }
        const uint64_t first = uint64_t(begin) * t_.valueHeads, total = uint64_t(t_.tokens) * t_.valueHeads;
        const uint32_t gates = n * t_.valueHeads;
        pendingBeta_.Load(stage[atBetas_], beta_, first, gates, total);
        if (t_.hasGate) pendingGate_.Load(Floats(stage[atGates_]), gate_, first, gates, total);
        if (t_.channelGate == 2) pendingGate_.Load(Floats(stage[atKeyGates_]), keyGate_, first, gates, total);
        if constexpr (kChannelGate) {
            for (uint32_t i = 0; i < n; ++i) {
                LoadRows(Floats(stage[atKeyGates_ + 2 * i * range_.heads * t_.keyPitch]),
                         keyGate_[(first + i * t_.valueHeads + range_.head) * t_.keyDim], range_.heads,
                         t_.keyDim, t_.keyDim, t_.keyPitch);
            }
        }
        staged_.EnQue(stage);
        pendingBegin_ = begin;
        pendingRows_ = n;
    }
    // keys_, queries_ [token, key head, pitch]; values_ [token, valuePitch]; alpha_, betas_ [token, NV];
    // keyQuery_ [token, key head]; all fp32
    __aicore__ inline void Prepare() {
        Wait();
        stage_ = staged_.template DeQue<T>();
        const uint32_t rows = rowCount_ * range_.keys, count = rows * t_.keyPitch;
        AscendC::Cast(keys_, stage_, AscendC::RoundMode::CAST_NONE, count);
        AscendC::Cast(queries_, stage_[atQueries_], AscendC::RoundMode::CAST_NONE, count);
        AscendC::Cast(betas_, stage_[atBetas_], AscendC::RoundMode::CAST_NONE, betaSlice_.extent);
        WidenValues();
        PrepareGates();
        if constexpr (kTail && !Soc::kPaddedMoves) {
            MoveKeyTails(keys_, stage_, rows);
            MoveKeyTails(queries_, stage_[atQueries_], rows);
        }
        if constexpr (kChannelGate) PrepareChannels();
        staged_.FreeTensor(stage_);
        PipeBarrier<PIPE_V>();
        const uint32_t batch = t_.groupRows / 8 * 8;
        for (uint32_t r = 0; r < rows; r += batch) {
            const uint32_t n = rows - r < batch ? rows - r : batch;
            AscendC::Mul(work_.product, keys_[r * t_.keyPitch], queries_[r * t_.keyPitch],
                         int32_t(n * t_.keyPitch));
            PipeBarrier<PIPE_V>();
            rows_.SumBlocks(work_.partial, work_.product, n);
            FloatTensor from = work_.partial;
            for (uint32_t level = 0; level < rows_.levels; ++level) {
                PipeBarrier<PIPE_V>();
                FloatTensor to = level + 1 == rows_.levels ? keyQuery_[r] : work_.levelKey[level & 1];
                rows_.SumLevel(level, to, from, n);
                from = to;
            }
        }
        AscendC::SetFlag<HardEvent::V_S>(ready_);
        waiting_ = true;
    }

    // Only what was loaded: pads hold nothing.
    __aicore__ inline void WidenValues() {
        const LocalTensor<T> staged = stage_[atValues_];
        if (range_.Even() && range_.rows == t_.valuePitch) {
            AscendC::Cast(values_, staged, AscendC::RoundMode::CAST_NONE, rowCount_ * t_.valuePitch);
            return;
        }
        for (uint32_t i = 0; i < rowCount_; ++i) {
            const uint32_t at = i * t_.valuePitch;
            if (range_.Even()) {
                AscendC::Cast(values_[at], staged[at], AscendC::RoundMode::CAST_NONE, range_.rows);
                continue;
            }
            for (Group g = range_.First(t_.groupUnits);; g = range_.Next(g)) {
                AscendC::Cast(values_[at + g.value], staged[at + g.value], AscendC::RoundMode::CAST_NONE,
                              LastBlock<T>::Staged(g.rows));
                if (range_.IsLast(g)) break;
            }
        }
    }

    // alpha_ <- exp(g + gk), gk of rank 2
    __aicore__ inline void PrepareGates() {
        const int32_t count = int32_t(gateSlice_.extent);
        const bool headGates = t_.channelGate == 2;
        if (!t_.hasGate && !headGates) return;
        const FloatTensor gates = Floats(stage_[t_.hasGate ? atGates_ : atKeyGates_]);
        AscendC::Maxs(alpha_, gates, kGateFloor, count);
        if (t_.hasGate && headGates) {
            const FloatTensor second = Floats(stage_[atKeyGates_]);
            AscendC::Maxs(second, second, kGateFloor, count);
            PipeBarrier<PIPE_V>();
            AscendC::Add(alpha_, alpha_, second, count);
        }
        PipeBarrier<PIPE_V>();
        AscendC::Exp(alpha_, alpha_, count);
    }

    // Rows without padded moves: the last 16 lanes still hold the last 16 elements; keep those past the whole
    // blocks.
    __aicore__ inline void MoveKeyTails(const FloatTensor& dst, const LocalTensor<T>& staged, uint32_t rows) {
        const uint32_t shift = LastBlock<T>::Shift(t_.keyDim), whole = LastBlock<T>::Whole(t_.keyDim);
        if (shift == 0) return;
        for (uint32_t first = 0; first < rows; first += t_.groupRows) {
            const uint32_t n = rows - first < t_.groupRows ? rows - first : t_.groupRows;
            PipeBarrier<PIPE_V>();
            AscendC::Cast(work_.product, staged[first * t_.keyPitch], AscendC::RoundMode::CAST_NONE,
                          n * t_.keyPitch);
            PipeBarrier<PIPE_V>();
            for (uint32_t r = 0; r < n; ++r) {
                AscendC::Gather(dst[(first + r) * t_.keyPitch + whole], work_.product, work_.line,
                                uint32_t((r * t_.keyPitch + whole + shift) * sizeof(float)), uint32_t(16));
            }
            PipeBarrier<PIPE_V>();
            rows_.FillPad(dst[first * t_.keyPitch], t_.keyDim, 0.0f, n);
        }
    }

    // channelAlpha_ [token, head, pitch] <- exp(gk), pads 1
    __aicore__ inline void PrepareChannels() {
        const uint32_t rows = rowCount_ * range_.heads, pitch = t_.keyPitch;
        const FloatTensor staged = Floats(stage_[atKeyGates_]);
        AscendC::Maxs(staged, staged, kGateFloor, int32_t(rows * pitch));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(channelAlpha_, staged, int32_t(rows * pitch));
        PipeBarrier<PIPE_V>();
        if constexpr (kTail && !Soc::kPaddedMoves) {
            const uint32_t shift = LastBlock<float>::Shift(t_.keyDim),
                           whole = LastBlock<float>::Whole(t_.keyDim);
            for (uint32_t r = 0; shift != 0 && r < rows; ++r) {
                AscendC::Gather(work_.moved, channelAlpha_[r * pitch], work_.line,
                                uint32_t((whole + shift) * sizeof(float)), uint32_t(8 - shift));
                PipeBarrier<PIPE_V>();
                AscendC::Adds(channelAlpha_[r * pitch + whole], work_.moved, 0.0f, int32_t(8 - shift));
                PipeBarrier<PIPE_V>();
            }
        }
        for (uint32_t r = 0; kTail && t_.keyDim != pitch && r < rows; r += kMaxRepeats) {
            rows_.FillPad(channelAlpha_[r * pitch], t_.keyDim, 1.0f,
                          rows - r < kMaxRepeats ? rows - r : kMaxRepeats);
        }
        FindZeroChannel(rows);
    }

    // Least of every lane over the rows, then over the lanes.
    __aicore__ inline void FindZeroChannel(uint32_t rows) {
        const uint32_t pitch = t_.keyPitch;
        AscendC::Duplicate(work_.product, 1.0f, int32_t(rows_.chunks * kFloatLanes));
        AscendC::Duplicate(work_.moved, 1.0f, int32_t(kFloatLanes));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < rows; r += kMaxRepeats) {
            const uint32_t n = rows - r < kMaxRepeats ? rows - r : kMaxRepeats;
            for (uint32_t c = 0; c < rows_.chunks; ++c) {
                const FloatTensor least = work_.product[c * kFloatLanes];
                AscendC::Min(least, channelAlpha_[r * pitch + c * kFloatLanes], least,
                             uint64_t(rows_.Lanes(c)), uint8_t(n),
                             AscendC::BinaryRepeatParams(1, 1, 1, 0, uint8_t(rows_.blocks), 0));
            }
            PipeBarrier<PIPE_V>();
        }
        AscendC::BlockReduceMin(work_.moved, work_.product, int32_t(rows_.chunks), int32_t(kFloatLanes), 1, 1,
                                8);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMin(work_.readout, work_.moved, 1, int32_t(kFloatLanes), 1, 1, 8);
        Order<HardEvent::V_S>();
        zeroChannel_ = false;
        // Written so that a NaN of a padded row cannot hide a zero.
        for (uint32_t i = 0; i < kFloatBlock; ++i)
            zeroChannel_ = zeroChannel_ || !(work_.readout.GetValue(i) > 0.0f);
        Order<HardEvent::S_V>();
    }

    const Data& t_;
    const Rows& rows_;
    const Range& range_;
    Workspace& work_;
    AscendC::GlobalTensor<T> query_, key_, value_, beta_;
    AscendC::GlobalTensor<float> gate_, keyGate_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> staged_;
    Buffer buffers_[7];
    FloatTensor keys_, queries_, values_, keyQuery_, alpha_, betas_, channelAlpha_;
    LocalTensor<T> stage_;  // the block being prepared
    event_t ready_;
    bool waiting_ = false;
    uint32_t atQueries_, atValues_, atBetas_, atGates_, atKeyGates_;
    int64_t begin_ = 0, pendingBegin_ = 0;     // the current block, and one on its way
    uint32_t rowCount_ = 0, pendingRows_ = 0;  // 0: none
    Slice<T> betaSlice_, pendingBeta_;
    Slice<float> gateSlice_, pendingGate_;
    bool zeroChannel_ = false;
};

}  // namespace rgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_TOKENS_H_
