// Recurrent gated delta rule. Per token, with state S of one value head ([DV, DK], V first):
//   S <- exp(g) S;  m = S k;  d = (v - m) beta;  S <- S + d k^T;  out = S (scale q)
// The decay leaves the products: with alpha = exp(g) and the old state, m = alpha (S k), r = alpha (S q),
// out = scale (r + (k . q) d), S' = alpha S + d k^T, so that one pass over S gives m and r and one writes S'.
// gk of rank 3 first decays S lane by lane. S stays fp32 in unified buffer over the tokens of a sequence;
// after each token it goes to the pool, rounded, unless the next live token goes to the same slot.
//
// state_out is the pool that is read and written. In place it is `state`; a caller who wants `state` kept
// copies the pool to state_out first. Sequences run one after the other on the core that owns their rows, so
// sequences that share a slot see each other's result in the order of the batch.
#include "common/row_copy.h"
#include "common/rows.h"
#include "common/sequence_walk.h"
#include "recurrent_gated_delta_rule_tiling.h"

namespace hybrid_ops {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;

struct RecurrentGatedDeltaRuleArguments {
    GM_ADDR query;
    GM_ADDR key;
    GM_ADDR value;
    GM_ADDR beta;
    GM_ADDR lengths;
    GM_ADDR slots;
    GM_ADDR g;
    GM_ADDR gk;
    GM_ADDR accepted;
    GM_ADDR out;
    GM_ADDR state;
};

template <typename T, typename StateT, bool kTail, bool kChannelGate>
class RecurrentGatedDeltaRuleKernel {
 public:
    using Data = RecurrentGatedDeltaRuleTilingData;

    __aicore__ inline RecurrentGatedDeltaRuleKernel(const Data& data, AscendC::TPipe& pipe)
        : t_(data), pipe_(pipe) {}

    __aicore__ inline void Init(const RecurrentGatedDeltaRuleArguments& a) {
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        value_.SetGlobalBuffer((__gm__ T*)a.value);
        beta_.SetGlobalBuffer((__gm__ T*)a.beta);
        if (t_.hasGate) gate_.SetGlobalBuffer((__gm__ float*)a.g);
        if (t_.channelGate) channelGate_.SetGlobalBuffer((__gm__ float*)a.gk);
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        pool_.SetGlobalBuffer((__gm__ StateT*)a.state);
        walk_.Init(a.lengths, a.slots, t_.hasAccepted ? a.accepted : static_cast<GM_ADDR>(nullptr), t_.tokens,
                   t_.sequences, t_.slots, t_.tableWidth);
        rows_.Init(t_.keyPitch);
        InitBuffers();
        InitConstants();
    }

    __aicore__ inline void Process() {
        const uint64_t units = uint64_t(t_.valueHeads) * t_.headUnits;
        const uint64_t ranges = uint64_t(AscendC::GetBlockNum()) * t_.bands;
        const uint64_t mine = uint64_t(AscendC::GetBlockIdx()) * t_.bands;
        for (uint64_t range = mine; range < mine + t_.bands; ++range) {
            unitBegin_ = uint32_t(range * units / ranges);
            unitEnd_ = uint32_t((range + 1) * units / ranges);
            if (unitBegin_ < unitEnd_) ProcessRange();
        }
    }

 private:
    // Rows of the flattened [NV * DV] that are worked on together.
    struct Group {
        uint32_t unit;      // first unit
        uint32_t unitsEnd;  // one past the last
        uint32_t row, rows;
        uint32_t value;  // offset of its values in a staged token
    };
    // Rows of a group that belong to one value head, and the head's scalars of one token.
    struct Segment {
        uint32_t row, rows;  // relative to the group
        uint32_t key, head;  // relative to the range
        float decay, beta, keyQuery;
    };
    static constexpr uint32_t kMaxSegments = 17;  // 240 rows of at least 16, and a cut head
    static constexpr uint32_t kMaxPieces = 4;
    static constexpr float kGateFloor = -200.0f;  // exp is 0 in fp32 from -104 on; keeps -inf out of Exp

    __aicore__ inline void InitBuffers() {
        const uint32_t prepared = t_.tokenBlock * t_.coreKeyHeads, pitch = t_.keyPitch;
        const uint32_t gates = rgdr::GateElements(t_), rowBytes = rgdr::RowElements(t_) * sizeof(float);
        const uint32_t partial = RoundUp(t_.groupRows, 8) * rows_.slots;
        pieceRows_ = rgdr::PieceRows(t_);
        stateBytes_ = (pieceRows_ * pitch + 32) * sizeof(StateT);
        pipe_.InitBuffer(stateIn_, uint8_t(t_.pieces), stateBytes_);
        pipe_.InitBuffer(stateOut_, uint8_t(t_.pieces), stateBytes_);
        pipe_.InitBuffer(rowOut_, 2, rgdr::RowElements(t_) * sizeof(T));
        const uint32_t tileBytes = (t_.groupRows * pitch + kFloatLanes) * sizeof(float);
        Get(state_, stateBuffer_, tileBytes);
        Get(product_, productBuffer_, tileBytes);
        Get(partial_, partialBuffer_, (partial * 8 + kFloatLanes) * sizeof(float));
        const uint32_t levelBytes = (partial + kFloatLanes) * sizeof(float);
        Get(levelKey_[0], levelBuffer_[0], levelBytes);
        Get(levelKey_[1], levelBuffer_[1], levelBytes);
        Get(levelQuery_[0], levelBuffer_[2], levelBytes);
        Get(levelQuery_[1], levelBuffer_[3], levelBytes);
        Get(delta_, deltaBuffer_, rowBytes);
        Get(readout_, readoutBuffer_, rowBytes);
        Get(moved_, movedBuffer_, rowBytes);
        Get(keys_, keysBuffer_, prepared * pitch * sizeof(float));
        Get(queries_, queriesBuffer_, prepared * pitch * sizeof(float));
        Get(keyQuery_, keyQueryBuffer_, (prepared + 2 * kFloatLanes) * sizeof(float));
        Get(alpha_, alphaBuffer_, gates * sizeof(float));
        Get(betas_, betasBuffer_, gates * sizeof(float));
        Get(zeros_, zerosBuffer_, rgdr::kZeroElements * sizeof(T));
        // A staged token block: keys, queries, values, betas in T, then fp32 gates.
        stageQueries_ = prepared * pitch;
        stageValues_ = 2 * prepared * pitch;
        stageBetas_ = stageValues_ + t_.tokenBlock * t_.valuePitch;
        stageGates_ = stageBetas_ + gates;
        constexpr uint32_t kFloatSize = sizeof(float) / sizeof(T);
        stageHeadGates_ = stageGates_ + (t_.hasGate ? gates * kFloatSize : 0);
        stageEnd_ = stageHeadGates_ + (t_.channelGate == 2 ? gates * kFloatSize : 0);
        if constexpr (kChannelGate) {
            const uint32_t channel = t_.tokenBlock * t_.coreHeads * pitch;
            Get(channelAlpha_, channelBuffer_, channel * sizeof(float));
            stageEnd_ += channel * kFloatSize;
        }
        pipe_.InitBuffer(tokensIn_, 2, stageEnd_ * sizeof(T));
        if constexpr (!Soc::kBroadcast) Get(broadcast_, broadcastBuffer_, RoundUp(t_.groupRows, 8) * 32);
        if constexpr (kTail && !Soc::kPaddedMoves) {
            Get(packTable_, packBuffer_, rgdr::kTableRows * pitch * sizeof(uint32_t));
            Get(rowTable_, rowTableBuffer_, pitch * sizeof(uint32_t));
            Get(line_, lineBuffer_, 64);
        }
    }

    template <typename U, typename Buffer>
    __aicore__ inline void Get(LocalTensor<U>& tensor, Buffer& buffer, uint32_t bytes) {
        pipe_.InitBuffer(buffer, RoundUp(bytes, kBlockBytes));
        tensor = buffer.template Get<U>();
    }

    // Lanes that no step writes, but whole repeats read, are zero from here on.
    __aicore__ inline void InitConstants() {
        AscendC::Duplicate(partial_, 0.0f, int32_t(partial_.GetSize()));
        for (uint32_t i = 0; i < 2; ++i) {
            AscendC::Duplicate(levelKey_[i], 0.0f, int32_t(levelKey_[i].GetSize()));
            AscendC::Duplicate(levelQuery_[i], 0.0f, int32_t(levelQuery_[i].GetSize()));
        }
        AscendC::Duplicate(delta_, 0.0f, int32_t(delta_.GetSize()));
        AscendC::Duplicate(zeros_.template ReinterpretCast<float>(), 0.0f,
                           int32_t(rgdr::kZeroElements * sizeof(T) / sizeof(float)));
        if constexpr (!Soc::kBroadcast) {
            LocalTensor<int32_t> table = broadcast_.template ReinterpretCast<int32_t>();
            AscendC::Duplicate(table, int32_t(0), int32_t(kFloatBlock));
            FillTable(table, kFloatBlock, RoundUp(t_.groupRows, 8), sizeof(float));
        }
        if constexpr (kTail) InitTail();
        Order<HardEvent::V_MTE3>();  // zeros_ is stored without further ado
    }

    // Pads of padded rows are zero in every buffer a move fills; index tables for rows that are not padded in
    // memory.
    __aicore__ inline void InitTail() {
        AscendC::Duplicate(state_, 0.0f, int32_t(state_.GetSize()));
        AscendC::Duplicate(product_, 0.0f, int32_t(product_.GetSize()));
        AscendC::Duplicate(moved_, 0.0f, int32_t(moved_.GetSize()));
        for (uint32_t i = 0; i < t_.pieces; ++i) {
            LocalTensor<StateT> piece = stateIn_.template AllocTensor<StateT>();
            AscendC::Duplicate(piece.template ReinterpretCast<float>(), 0.0f,
                               int32_t(stateBytes_ / sizeof(float)));
            stateIn_.FreeTensor(piece);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            LocalTensor<T> stage = tokensIn_.template AllocTensor<T>();
            AscendC::Duplicate(stage.template ReinterpretCast<float>(), 0.0f,
                               int32_t(stageEnd_ * sizeof(T) / sizeof(float)));
            tokensIn_.FreeTensor(stage);
        }
        if constexpr (!Soc::kPaddedMoves) {
            // line_: 0, 4, 8, … ; rowTable_: the same over a row, the last row of a tail fetches its end from
            // the last block; packTable_[i]: where element i of eight packed rows stands in padded rows.
            LocalTensor<int32_t> line = line_.template ReinterpretCast<int32_t>();
            for (uint32_t i = 0; i < 16; ++i) line.SetValue(i, int32_t(i * sizeof(float)));
            LocalTensor<int32_t> row = rowTable_.template ReinterpretCast<int32_t>();
            LocalTensor<int32_t> pack = packTable_.template ReinterpretCast<int32_t>();
            Order<HardEvent::S_V>();
            AscendC::Adds(row, line, int32_t(0), 16);
            FillTable(row, 16, t_.keyPitch / 16, 64);
            const uint32_t packed = rgdr::kTableRows * t_.keyDim;
            AscendC::Adds(pack, line, int32_t(0), 8);
            FillTable(pack, kFloatBlock, t_.keyDim, kBlockBytes);
            if (t_.keyPitch != t_.keyDim) {
                // Byte offset 4 i moves by the pads of the rows before: floor((i + 1/2) / DK) rows.
                LocalTensor<int32_t> rowIndex = state_.template ReinterpretCast<int32_t>();
                AscendC::Cast(product_, pack, AscendC::RoundMode::CAST_NONE, packed);
                PipeBarrier<PIPE_V>();
                AscendC::Adds(product_, product_, 2.0f, int32_t(packed));
                PipeBarrier<PIPE_V>();
                AscendC::Muls(product_, product_, 0.25f / float(t_.keyDim), int32_t(packed));
                PipeBarrier<PIPE_V>();
                AscendC::Cast(rowIndex, product_, AscendC::RoundMode::CAST_FLOOR, packed);
                PipeBarrier<PIPE_V>();
                AscendC::Muls(rowIndex, rowIndex, int32_t((t_.keyPitch - t_.keyDim) * sizeof(float)),
                              int32_t(packed));
                PipeBarrier<PIPE_V>();
                AscendC::Add(pack, pack, rowIndex, int32_t(packed));
                PipeBarrier<PIPE_V>();
                AscendC::Duplicate(state_, 0.0f, int32_t(state_.GetSize()));
                AscendC::Duplicate(product_, 0.0f, int32_t(product_.GetSize()));
            }
        }
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline uint32_t RowOfUnit(uint32_t unit) const {
        return unit / t_.headUnits * t_.valueDim + unit % t_.headUnits * t_.unitRows;
    }
    __aicore__ inline Group MakeGroup(uint32_t unit, uint32_t value) const {
        Group g;
        g.unit = unit;
        g.unitsEnd = unit + t_.groupUnits < unitEnd_ ? unit + t_.groupUnits : unitEnd_;
        if constexpr (kTail) {
            const uint32_t headEnd = (unit / t_.headUnits + 1) * t_.headUnits;
            if (t_.valueDim % t_.unitRows != 0 && g.unitsEnd > headEnd) g.unitsEnd = headEnd;
        }
        g.row = RowOfUnit(unit);
        g.rows = RowOfUnit(g.unitsEnd) - g.row;
        g.value = value;
        return g;
    }
    __aicore__ inline Group FirstGroup() const { return MakeGroup(unitBegin_, 0); }
    __aicore__ inline Group NextGroup(const Group& g) const {
        return MakeGroup(g.unitsEnd, g.value + RoundUp(g.rows, 16));
    }

    __aicore__ inline void ProcessRange() {
        rowBegin_ = RowOfUnit(unitBegin_);
        rowEnd_ = RowOfUnit(unitEnd_);
        headBegin_ = unitBegin_ / t_.headUnits;
        heads_ = (unitEnd_ - 1) / t_.headUnits - headBegin_ + 1;
        keyBegin_ = KeyHead(headBegin_);
        keyHeads_ = KeyHead(headBegin_ + heads_ - 1) - keyBegin_ + 1;
        blockRows_ = 0;
        walk_.Rewind();
        dirty_ = 0;
        stored_ = 0;
        Sequence now, next;
        bool live = NextLive(now);
        if (live) {
            LoadTokens(now.begin);
            LoadState(now.readSlot, FirstGroup());
        }
        while (live) {
            const bool more = NextLive(next);
            const uint64_t written = WrittenSlots(now);
            // The next sequence's state may be fetched early unless it is still to be written.
            const bool early = more && (SlotBit(next.readSlot) & (dirty_ | written)) == 0;
            Group g = FirstGroup();
            while (g.unitsEnd < unitEnd_) {
                const Group following = NextGroup(g);
                ProcessGroup(now, g, now, following, true, false);
                g = following;
            }
            ProcessGroup(now, g, next, FirstGroup(), early, more && now.rows <= t_.tokenBlock);
            dirty_ |= written;
            stored_ |= written;
            if (more && !early) {
                Order<HardEvent::MTE3_MTE2>();
                dirty_ = 0;
                LoadState(next.readSlot, FirstGroup());
            }
            now = next;
            live = more;
        }
        ZeroRows(walk_.Position(), t_.tokens, rowBegin_, rowEnd_ - rowBegin_);
        DropTokens();
    }

    __aicore__ inline uint32_t KeyHead(uint32_t head) const { return head / (t_.valueHeads / t_.keyHeads); }

    // Slots stand in a set of 64 bits: a false hit costs a wait, nothing else.
    __aicore__ inline uint64_t SlotBit(int64_t slot) const { return 1ull << (uint64_t(slot) & 63); }
    __aicore__ inline uint64_t WrittenSlots(const Sequence& s) const {
        if (s.rows > 64) return ~0ull;
        uint64_t set = 0;
        for (int64_t i = 0; i < s.rows; ++i) {
            const int64_t slot = walk_.WriteSlot(s, i);
            if (slot >= 0) set |= SlotBit(slot);
        }
        return set;
    }

    // Next sequence with a state; the rows of padded ones on the way become zero.
    __aicore__ inline bool NextLive(Sequence& s) {
        while (walk_.Next(s)) {
            if (s.readSlot >= 0) return true;
            ZeroRows(s.begin, s.begin + s.rows, rowBegin_, rowEnd_ - rowBegin_);
        }
        return false;
    }

    __aicore__ inline void ZeroRows(int64_t begin, int64_t end, uint32_t row, uint32_t rows) {
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        for (int64_t token = begin; token < end; ++token) {
            uint32_t done = 0;
            while (done < rows) {
                uint32_t n = rows - done;
                // The rest stays large enough for a move: 32 elements at least.
                if (n > rgdr::kZeroElements) n = rgdr::kZeroElements - 32;
                StoreElements(out_[uint64_t(token) * width + row + done], zeros_, n);
                done += n;
            }
        }
    }

    // ---- token blocks
    // -------------------------------------------------------------------------------------------------

    // tokensIn_ <- keys, queries, values, betas and gates of the range's heads for the tokens from `begin`
    // on.
    __aicore__ inline void LoadTokens(int64_t begin) {
        const int64_t left = int64_t(t_.tokens) - begin;
        const uint32_t n = uint32_t(left < t_.tokenBlock ? left : t_.tokenBlock);
        LocalTensor<T> stage = tokensIn_.template AllocTensor<T>();
        const uint64_t keyWidth = uint64_t(t_.keyHeads) * t_.keyDim,
                       width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint64_t keyAt = uint64_t(begin) * keyWidth + uint64_t(keyBegin_) * t_.keyDim;
        if (t_.keyDim == t_.keyPitch) {
            const uint32_t wide = keyHeads_ * t_.keyDim;
            LoadRows(stage, key_[keyAt], n, wide, keyWidth, wide);
            LoadRows(stage[stageQueries_], query_[keyAt], n, wide, keyWidth, wide);
        } else {
            for (uint32_t i = 0; i < n; ++i) {
                const uint32_t to = i * keyHeads_ * t_.keyPitch;
                LoadRows(stage[to], key_[keyAt + i * keyWidth], keyHeads_, t_.keyDim, t_.keyDim, t_.keyPitch);
                LoadRows(stage[stageQueries_ + to], query_[keyAt + i * keyWidth], keyHeads_, t_.keyDim,
                         t_.keyDim, t_.keyPitch);
            }
        }
        Group g = FirstGroup();
        while (true) {
            LoadRows(stage[stageValues_ + g.value], value_[uint64_t(begin) * width + g.row], n, g.rows, width,
                     t_.valuePitch);
            if (g.unitsEnd >= unitEnd_) break;
            g = NextGroup(g);
        }
        const uint64_t first = uint64_t(begin) * t_.valueHeads, total = uint64_t(t_.tokens) * t_.valueHeads;
        pendingBeta_.Load(stage[stageBetas_], beta_, first, n * t_.valueHeads, total);
        if (t_.hasGate) pendingGate_.Load(Floats(stage[stageGates_]), gate_, first, n * t_.valueHeads, total);
        if (t_.channelGate == 2) {
            pendingGate_.Load(Floats(stage[stageHeadGates_]), channelGate_, first, n * t_.valueHeads, total);
        }
        if constexpr (kChannelGate) {
            for (uint32_t i = 0; i < n; ++i) {
                LoadRows(Floats(stage[stageHeadGates_])[i * heads_ * t_.keyPitch],
                         channelGate_[(first + i * t_.valueHeads + headBegin_) * t_.keyDim], heads_,
                         t_.keyDim, t_.keyDim, t_.keyPitch);
            }
        }
        tokensIn_.EnQue(stage);
        pendingBegin_ = begin;
        pendingRows_ = n;
    }

    __aicore__ inline FloatTensor Floats(const LocalTensor<T>& tensor) const {
        return tensor.template ReinterpretCast<float>();
    }

    // Makes the block that holds the token, and all tokens before `until` if a block can, the current one.
    __aicore__ inline void NeedTokens(int64_t token, int64_t until) {
        const int64_t end = blockBegin_ + blockRows_;
        if (until > token + t_.tokenBlock) until = token + t_.tokenBlock;
        if (blockRows_ != 0 && token >= blockBegin_ && until <= end) return;
        if (pendingRows_ != 0 && pendingBegin_ != token) DropPending();
        if (pendingRows_ == 0) LoadTokens(token);
        if (blockRows_ != 0) tokensIn_.FreeTensor(stage_);
        stage_ = tokensIn_.template DeQue<T>();
        blockBegin_ = pendingBegin_;
        blockRows_ = pendingRows_;
        betaSlice_ = pendingBeta_;
        gateSlice_ = pendingGate_;
        pendingRows_ = 0;
        PrepareTokens();
    }
    __aicore__ inline void DropPending() {
        LocalTensor<T> stage = tokensIn_.template DeQue<T>();
        tokensIn_.FreeTensor(stage);
        pendingRows_ = 0;
    }
    __aicore__ inline void DropTokens() {
        if (pendingRows_ != 0) DropPending();
        if (blockRows_ != 0) tokensIn_.FreeTensor(stage_);
        blockRows_ = 0;
    }

    // keys_, queries_ [n, key head, pitch]; alpha_, betas_ [n, NV]; keyQuery_ [n, key head]; all fp32 of the
    // staged block.
    __aicore__ inline void PrepareTokens() {
        const uint32_t rows = blockRows_ * keyHeads_, count = rows * t_.keyPitch;
        const FloatTensor gates = Floats(stage_[stageGates_]), headGates = Floats(stage_[stageHeadGates_]);
        AscendC::Cast(keys_, stage_, AscendC::RoundMode::CAST_NONE, count);
        AscendC::Cast(queries_, stage_[stageQueries_], AscendC::RoundMode::CAST_NONE, count);
        AscendC::Cast(betas_, stage_[stageBetas_], AscendC::RoundMode::CAST_NONE, betaSlice_.extent);
        const int32_t gateCount = int32_t(gateSlice_.extent);
        if (t_.hasGate) AscendC::Maxs(alpha_, gates, kGateFloor, gateCount);
        if (t_.channelGate == 2)
            AscendC::Maxs(t_.hasGate ? headGates : alpha_, headGates, kGateFloor, gateCount);
        if constexpr (kTail && !Soc::kPaddedMoves) {
            MoveKeyTails(keys_, stage_, rows);
            MoveKeyTails(queries_, stage_[stageQueries_], rows);
        }
        if constexpr (kChannelGate) PrepareChannelGates();
        PipeBarrier<PIPE_V>();
        if (t_.hasGate && t_.channelGate == 2) {
            AscendC::Add(alpha_, alpha_, headGates, gateCount);
            PipeBarrier<PIPE_V>();
        }
        if (t_.hasGate || t_.channelGate == 2) AscendC::Exp(alpha_, alpha_, gateCount);
        const uint32_t batch = t_.groupRows / 8 * 8;
        for (uint32_t r = 0; r < rows; r += batch) {
            const uint32_t n = rows - r < batch ? rows - r : batch;
            AscendC::Mul(product_, keys_[r * t_.keyPitch], queries_[r * t_.keyPitch],
                         int32_t(n * t_.keyPitch));
            PipeBarrier<PIPE_V>();
            rows_.SumBlocks(partial_, product_, n);
            FloatTensor from = partial_;
            for (uint32_t level = 0; level < rows_.levels; ++level) {
                PipeBarrier<PIPE_V>();
                FloatTensor to = level + 1 == rows_.levels ? keyQuery_[r] : levelKey_[level & 1];
                rows_.SumLevel(level, to, from, n);
                from = to;
            }
        }
        Order<HardEvent::V_S>();
    }

    // Rows without padded moves: the last 16 lanes still hold the last 16 elements; keep those past the whole
    // blocks.
    __aicore__ inline void MoveKeyTails(const FloatTensor& dst, const LocalTensor<T>& staged, uint32_t rows) {
        const uint32_t shift = LastBlock<T>::Shift(t_.keyDim), whole = LastBlock<T>::Whole(t_.keyDim);
        if (shift == 0) return;
        const uint32_t batch = t_.groupRows;
        for (uint32_t first = 0; first < rows; first += batch) {
            const uint32_t n = rows - first < batch ? rows - first : batch;
            PipeBarrier<PIPE_V>();
            AscendC::Cast(product_, staged[first * t_.keyPitch], AscendC::RoundMode::CAST_NONE,
                          n * t_.keyPitch);
            PipeBarrier<PIPE_V>();
            for (uint32_t r = 0; r < n; ++r) {
                AscendC::Gather(dst[(first + r) * t_.keyPitch + whole], product_, line_,
                                uint32_t((r * t_.keyPitch + whole + shift) * sizeof(float)), uint32_t(16));
            }
            PipeBarrier<PIPE_V>();
            rows_.FillPad(dst[first * t_.keyPitch], t_.keyDim, 0.0f, n);
        }
    }

    // channelAlpha_ [n, head, pitch] <- exp(gk), pads 1; channelZero_: some lane is 0 and must be assigned,
    // not multiplied.
    __aicore__ inline void PrepareChannelGates() {
        const uint32_t rows = blockRows_ * heads_, pitch = t_.keyPitch;
        const FloatTensor staged = Floats(stage_[stageHeadGates_]);
        AscendC::Maxs(staged, staged, kGateFloor, int32_t(rows * pitch));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(channelAlpha_, staged, int32_t(rows * pitch));
        PipeBarrier<PIPE_V>();
        if constexpr (kTail && !Soc::kPaddedMoves) {
            const uint32_t shift = LastBlock<float>::Shift(t_.keyDim),
                           whole = LastBlock<float>::Whole(t_.keyDim);
            for (uint32_t r = 0; shift != 0 && r < rows; ++r) {
                AscendC::Gather(moved_, channelAlpha_, line_, uint32_t((r * pitch + whole) * sizeof(float)),
                                uint32_t(8));
                PipeBarrier<PIPE_V>();
                AscendC::Gather(channelAlpha_[r * pitch + whole], moved_, line_,
                                uint32_t(shift * sizeof(float)), uint32_t(8));
                PipeBarrier<PIPE_V>();
            }
        }
        if constexpr (kTail) {
            if (t_.keyDim != pitch) {
                for (uint32_t r = 0; r < rows; r += 240) {
                    rows_.FillPad(channelAlpha_[r * pitch], t_.keyDim, 1.0f, rows - r < 240 ? rows - r : 240);
                }
                PipeBarrier<PIPE_V>();
            }
        }
        // levelQuery_[0] <- least of each lane over the rows, then of all lanes in its first block.
        FloatTensor least = product_;
        AscendC::Duplicate(least, 1.0f, int32_t(8 * kFloatLanes));
        AscendC::Duplicate(moved_, 1.0f, int32_t(kFloatLanes));
        PipeBarrier<PIPE_V>();
        const uint8_t step = uint8_t(rows_.blocks);
        for (uint32_t r = 0; r < rows; r += 240) {
            const uint32_t n = rows - r < 240 ? rows - r : 240;
            for (uint32_t c = 0; c < rows_.chunks; ++c) {
                AscendC::Min(least[c * kFloatLanes], channelAlpha_[r * pitch + c * kFloatLanes],
                             least[c * kFloatLanes], uint64_t(rows_.Lanes(c)), uint8_t(n),
                             AscendC::BinaryRepeatParams(1, 1, 1, 0, step, 0));
            }
            PipeBarrier<PIPE_V>();
        }
        AscendC::BlockReduceMin(moved_, least, int32_t(rows_.chunks), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceMin(readout_, moved_, 1, int32_t(kFloatLanes), 1, 1, 8);
        Order<HardEvent::V_S>();
        channelZero_ = false;
        for (uint32_t i = 0; i < kFloatBlock; ++i)
            channelZero_ = channelZero_ || readout_.GetValue(i) == 0.0f;
        Order<HardEvent::S_V>();
    }

    // ---- state
    // --------------------------------------------------------------------------------------------------------

    __aicore__ inline uint64_t PoolAt(int64_t slot, uint32_t row) const {
        return (uint64_t(slot) * t_.valueHeads * t_.valueDim + row) * t_.keyDim;
    }

    // stateIn_ <- rows of the group in pool[slot], piece by piece.
    __aicore__ inline void LoadState(int64_t slot, const Group& g) {
        for (uint32_t r = 0; r < g.rows; r += pieceRows_) {
            const uint32_t n = g.rows - r < pieceRows_ ? g.rows - r : pieceRows_;
            LocalTensor<StateT> piece = stateIn_.template AllocTensor<StateT>();
            if (t_.keyDim == t_.keyPitch) {
                LoadElements(piece, pool_[PoolAt(slot, g.row + r)], n * t_.keyDim);
            } else if constexpr (Soc::kPaddedMoves) {
                LoadRows(piece, pool_[PoolAt(slot, g.row + r)], n, t_.keyDim, t_.keyDim, t_.keyPitch);
            } else {
                LoadElements(piece, pool_[PoolAt(slot, g.row + r)], n * t_.keyDim);  // packed
            }
            stateIn_.EnQue(piece);
        }
    }

    // state_ [rows, pitch] fp32 <- stateIn_
    __aicore__ inline void WidenState(const Group& g) {
        for (uint32_t r = 0; r < g.rows; r += pieceRows_) {
            const uint32_t n = g.rows - r < pieceRows_ ? g.rows - r : pieceRows_;
            LocalTensor<StateT> piece = stateIn_.template DeQue<StateT>();
            if constexpr (kTail && !Soc::kPaddedMoves) {
                if (t_.keyDim != t_.keyPitch) {
                    UnpackState(piece, n);
                    stateIn_.FreeTensor(piece);
                    continue;
                }
            }
            Convert(state_[r * t_.keyPitch], piece, n * t_.keyPitch);
            stateIn_.FreeTensor(piece);
        }
    }

    // Packed rows -> product_ packed fp32 -> state_ padded, pads zero.
    __aicore__ inline void UnpackState(const LocalTensor<StateT>& piece, uint32_t n) {
        const uint32_t packed = n * t_.keyDim;
        Convert(product_, piece, LastBlock<StateT>::Staged(packed));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < n; ++r) {
            AscendC::Gather(state_[r * t_.keyPitch], product_, rowTable_,
                            uint32_t(r * t_.keyDim * sizeof(float)), t_.keyPitch);
        }
        const uint32_t shift = LastBlock<StateT>::Shift(packed);
        if (shift != 0) {
            // Lanes DK - 16 … DK - 1 of the last row stand in the last block.
            PipeBarrier<PIPE_V>();
            Order<HardEvent::V_S>();
            const uint32_t last = LastBlock<StateT>::Whole(packed);
            for (uint32_t c = t_.keyDim - 16; c < t_.keyDim; ++c) {
                state_.SetValue((n - 1) * t_.keyPitch + c, product_.GetValue(last + c - (t_.keyDim - 16)));
            }
            Order<HardEvent::S_V>();
        }
        PipeBarrier<PIPE_V>();
        rows_.FillPad(state_, t_.keyDim, 0.0f, n);
    }

    // pool[slot] <- state_, rounded; product_ is scratch.
    __aicore__ inline void StoreState(int64_t slot, const Group& g) {
        const uint64_t bit = SlotBit(slot);
        bool clash = ((stored_ | own_) & bit) != 0;
        for (uint32_t r = 0; r < g.rows; r += pieceRows_) {
            const uint32_t n = g.rows - r < pieceRows_ ? g.rows - r : pieceRows_;
            LocalTensor<StateT> piece = stateOut_.template AllocTensor<StateT>();
            const bool packed = !Soc::kPaddedMoves && t_.keyDim != t_.keyPitch;
            if (packed) {
                PackState(piece, n);
            } else {
                Convert(piece, state_[r * t_.keyPitch], n * t_.keyPitch);
            }
            stateOut_.EnQue(piece);
            piece = stateOut_.template DeQue<StateT>();
            if (clash) {
                PipeBarrier<PIPE_MTE3>();  // an earlier store to these rows may be under way
                stored_ = 0;
                own_ = 0;
                clash = false;
            }
            if (packed || t_.keyDim == t_.keyPitch) {
                StoreElements(pool_[PoolAt(slot, g.row + r)], piece, n * t_.keyDim);
            } else {
                StorePaddedRows(pool_[PoolAt(slot, g.row + r)], piece, n);
            }
            stateOut_.FreeTensor(piece);
        }
        own_ |= bit;
    }

    __aicore__ inline void StorePaddedRows(const AscendC::GlobalTensor<StateT>& dst,
                                           const LocalTensor<StateT>& src, uint32_t n) {
        if constexpr (Soc::kPaddedMoves) {
            constexpr uint32_t kBlock = LastBlock<StateT>::kBlock;
            const uint32_t gap = (t_.keyPitch - RoundUp(t_.keyDim, kBlock)) / kBlock;
            AscendC::DataCopyPad(
                dst, src,
                AscendC::DataCopyExtParams{uint16_t(n), uint32_t(t_.keyDim * sizeof(StateT)), gap, 0, 0});
        }
    }

    // Padded state_ -> product_ packed, its last 16 elements once more behind the whole blocks -> piece.
    __aicore__ inline void PackState(const LocalTensor<StateT>& piece, uint32_t n) {
        if constexpr (kTail && !Soc::kPaddedMoves) {
            const uint32_t packed = n * t_.keyDim;
            PipeBarrier<PIPE_V>();
            for (uint32_t r = 0; r < n; r += rgdr::kTableRows) {
                const uint32_t some = n - r < rgdr::kTableRows ? n - r : rgdr::kTableRows;
                AscendC::Gather(product_[r * t_.keyDim], state_, packTable_,
                                uint32_t(r * t_.keyPitch * sizeof(float)), some * t_.keyDim);
            }
            PipeBarrier<PIPE_V>();
            const uint32_t whole = LastBlock<StateT>::Whole(packed);
            if (whole != packed) {
                AscendC::Gather(product_[whole], state_, line_,
                                uint32_t(((n - 1) * t_.keyPitch + t_.keyDim - 16) * sizeof(float)),
                                uint32_t(16));
                PipeBarrier<PIPE_V>();
            }
            Convert(piece, product_, LastBlock<StateT>::Staged(packed));
        }
    }

    // ---- one group
    // ----------------------------------------------------------------------------------------------------

    // All tokens of the sequence on the group's rows. Its state is in stateIn_; `ahead` and its group are
    // fetched next.
    __aicore__ inline void ProcessGroup(const Sequence& s, const Group& g, const Sequence& ahead,
                                        const Group& aheadGroup, bool fetch, bool fetchTokens) {
        int64_t i = 0;
        int64_t slot = NextSlot(s, g, i);
        if (slot >= 0) NeedTokens(s.begin + i, s.begin + s.rows);
        WidenState(g);
        if (fetch) LoadState(ahead.readSlot, aheadGroup);
        if (fetchTokens && pendingRows_ == 0) {
            const int64_t end =
                ahead.begin + (ahead.rows < t_.tokenBlock ? ahead.rows : int64_t(t_.tokenBlock));
            if (end > blockBegin_ + blockRows_) LoadTokens(ahead.begin);
        }
        own_ = 0;
        while (slot >= 0) {
            const int64_t token = s.begin + i;
            NeedTokens(token, token + 1);
            Step(token, g);
            ++i;
            const int64_t following = NextSlot(s, g, i);
            if (following != slot) StoreState(slot, g);
            slot = following;
        }
    }

    // Slot of the first live row from i on, which i becomes; padded rows on the way get zero output.
    // Negative: none.
    __aicore__ inline int64_t NextSlot(const Sequence& s, const Group& g, int64_t& i) {
        for (; i < s.rows; ++i) {
            const int64_t slot = walk_.WriteSlot(s, i);
            if (slot >= 0) return slot;
            ZeroRows(s.begin + i, s.begin + i + 1, g.row, g.rows);
        }
        return -1;
    }

    __aicore__ inline uint32_t MakeSegments(int64_t token, const Group& g, Segment* segments) const {
        const uint32_t at = uint32_t(token - blockBegin_);
        uint32_t count = 0;
        for (uint32_t row = g.row; row < g.row + g.rows;) {
            const uint32_t head = row / t_.valueDim;
            const uint32_t headEnd = (head + 1) * t_.valueDim, groupEnd = g.row + g.rows;
            Segment& s = segments[count++];
            s.row = row - g.row;
            s.rows = (headEnd < groupEnd ? headEnd : groupEnd) - row;
            s.key = at * keyHeads_ + KeyHead(head) - keyBegin_;
            s.head = at * heads_ + head - headBegin_;
            const uint32_t gate = at * t_.valueHeads + head;
            s.beta = betas_.GetValue(betaSlice_.At(gate));
            s.decay = t_.hasGate || t_.channelGate == 2 ? alpha_.GetValue(gateSlice_.At(gate)) : 1.0f;
            s.keyQuery = keyQuery_.GetValue(s.key);
            row += s.rows;
        }
        return count;
    }

    // One token on the rows of a group: out rows are stored, state_ becomes the updated state.
    __aicore__ inline void Step(int64_t token, const Group& g) {
        Segment segments[kMaxSegments];
        const uint32_t count = MakeSegments(token, g, segments);
        const uint32_t pitch = t_.keyPitch, n = g.rows;
        const uint32_t staged = stageValues_ + uint32_t(token - blockBegin_) * t_.valuePitch + g.value;
        // delta_ <- v
        AscendC::Cast(delta_, stage_[staged], AscendC::RoundMode::CAST_NONE, LastBlock<T>::Staged(n));
        if constexpr (kTail && !Soc::kPaddedMoves) MoveValueTail(n);
        PipeBarrier<PIPE_V>();
        if constexpr (kChannelGate) {
            // state_ <- state_ * exp(gk)
            for (uint32_t i = 0; i < count; ++i) DecayChannels(segments[i]);
            PipeBarrier<PIPE_V>();
        }
        for (uint32_t i = 0; i < count; ++i) {
            if (segments[i].decay == 0.0f) {
                AscendC::Duplicate(state_[segments[i].row * pitch], 0.0f, int32_t(segments[i].rows * pitch));
                PipeBarrier<PIPE_V>();
            }
        }
        // product_ <- state_ * k; delta_ <- beta v
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Scale(product_[s.row * pitch], state_[s.row * pitch], keys_[s.key * pitch], s.rows);
            AscendC::Muls(delta_[s.row], delta_[s.row], s.beta, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // partial_ <- blocks of product_; product_ <- state_ * q
        rows_.SumBlocks(partial_, product_, n);
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Scale(product_[s.row * pitch], state_[s.row * pitch], queries_[s.key * pitch], s.rows);
        }
        PipeBarrier<PIPE_V>();
        // The trees of S k and S q, one level apart: levelKey_ and levelQuery_ end with one value per row.
        const uint32_t last = rows_.levels - 1;
        for (uint32_t level = 0; level <= rows_.levels; ++level) {
            if (level <= last) {
                rows_.SumLevel(level, levelKey_[level & 1],
                               level == 0 ? partial_ : levelKey_[(level - 1) & 1], n);
            } else {
                // delta_ <- beta v - alpha beta (S k)
                for (uint32_t i = 0; i < count; ++i) {
                    const Segment& s = segments[i];
                    AscendC::Axpy(delta_[s.row], levelKey_[last & 1][s.row], -s.decay * s.beta,
                                  int32_t(s.rows));
                }
            }
            if (level == 0) {
                rows_.SumBlocks(partial_, product_, n);
            } else {
                rows_.SumLevel(level - 1, levelQuery_[(level - 1) & 1],
                               level == 1 ? partial_ : levelQuery_[(level - 2) & 1], n);
            }
            PipeBarrier<PIPE_V>();
        }
        // partial_ <- delta_, each value eight times; readout_ <- scale alpha (S q)
        BroadcastColumn(partial_, delta_, broadcast_, n);
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            AscendC::Muls(readout_[s.row], levelQuery_[last & 1][s.row], t_.scale * s.decay, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // product_ <- delta k^T; readout_ <- readout_ + scale (k . q) delta
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Outer(product_[s.row * pitch], partial_[s.row * kFloatBlock], keys_[s.key * pitch], s.rows);
            AscendC::Axpy(readout_[s.row], delta_[s.row], t_.scale * s.keyQuery, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // product_ <- alpha state_ + delta k^T, the new state
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            AscendC::Axpy(product_[s.row * pitch], state_[s.row * pitch], s.decay, int32_t(s.rows * pitch));
        }
        StoreOut(token, g);
        PipeBarrier<PIPE_V>();
        const FloatTensor old = state_;
        state_ = product_;
        product_ = old;
        RestoreBlanks(n);
    }

    // BroadcastColumn fills partial_ lanes that the reduction expects to stay zero.
    __aicore__ inline void RestoreBlanks(uint32_t n) {
        if (t_.keyPitch % kFloatLanes == 0 && rows_.slots == rows_.chunks) return;
        AscendC::Duplicate(partial_, 0.0f, int32_t(RoundUp(n, 8) * kFloatBlock));
        PipeBarrier<PIPE_V>();
    }

    // delta_: the end of the values stands in the last block; move it behind the whole ones.
    __aicore__ inline void MoveValueTail(uint32_t n) {
        const uint32_t shift = LastBlock<T>::Shift(n), whole = LastBlock<T>::Whole(n);
        if (shift == 0) return;
        PipeBarrier<PIPE_V>();
        AscendC::Gather(moved_, delta_, line_, uint32_t((whole + shift) * sizeof(float)), uint32_t(16));
        PipeBarrier<PIPE_V>();
        AscendC::Adds(delta_[whole], moved_, 0.0f, 16);
    }

    __aicore__ inline void DecayChannels(const Segment& s) {
        const FloatTensor alpha = channelAlpha_[s.head * t_.keyPitch];
        const FloatTensor rows = state_[s.row * t_.keyPitch];
        if (channelZero_) {
            // Lanes that decay to nothing become 0 whatever they hold: inf * 0 would not.
            for (uint32_t c = 0; c < rows_.chunks; ++c) {
                uint64_t mask[2] = {0, 0};
                for (uint32_t i = 0; i < rows_.Lanes(c); ++i) {
                    if (alpha.GetValue(c * kFloatLanes + i) == 0.0f) mask[0] |= 1ull << i;
                }
                if (mask[0] == 0) continue;
                AscendC::Duplicate(rows[c * kFloatLanes], 0.0f, mask, uint8_t(s.rows), 1,
                                   uint8_t(rows_.blocks));
            }
            PipeBarrier<PIPE_V>();
        }
        rows_.Scale(rows, rows, alpha, s.rows);
    }

    // out rows of the token <- readout_, rounded.
    __aicore__ inline void StoreOut(int64_t token, const Group& g) {
        const uint64_t at = uint64_t(token) * t_.valueHeads * t_.valueDim + g.row;
        LocalTensor<T> row = rowOut_.template AllocTensor<T>();
        if constexpr (kTail && !Soc::kPaddedMoves) {
            const uint32_t whole = LastBlock<T>::Whole(g.rows);
            if (whole != g.rows) {
                AscendC::Gather(moved_, readout_, line_, uint32_t((g.rows - 16) * sizeof(float)),
                                uint32_t(16));
                PipeBarrier<PIPE_V>();
                AscendC::Adds(readout_[whole], moved_, 0.0f, 16);
                PipeBarrier<PIPE_V>();
            }
        }
        AscendC::Cast(row, readout_, Soc::kNarrow, LastBlock<T>::Staged(g.rows));
        rowOut_.EnQue(row);
        row = rowOut_.template DeQue<T>();
        StoreElements(out_[at], row, g.rows);
        rowOut_.FreeTensor(row);
    }

    const Data t_;
    AscendC::TPipe& pipe_;
    AscendC::GlobalTensor<T> query_, key_, value_, beta_, out_;
    AscendC::GlobalTensor<float> gate_, channelGate_;
    AscendC::GlobalTensor<StateT> pool_;
    SequenceWalk walk_;
    Rows rows_;

    AscendC::TQue<AscendC::TPosition::VECIN, kMaxPieces> stateIn_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> tokensIn_;
    AscendC::TQue<AscendC::TPosition::VECOUT, kMaxPieces> stateOut_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> rowOut_;
    using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;
    Buffer stateBuffer_, productBuffer_, partialBuffer_, levelBuffer_[4], deltaBuffer_, readoutBuffer_,
        movedBuffer_;
    Buffer keysBuffer_, queriesBuffer_, keyQueryBuffer_, alphaBuffer_, betasBuffer_, zerosBuffer_,
        channelBuffer_;
    Buffer broadcastBuffer_, packBuffer_, rowTableBuffer_, lineBuffer_;
    FloatTensor state_, product_, partial_, levelKey_[2], levelQuery_[2], delta_, readout_, moved_;
    FloatTensor keys_, queries_, keyQuery_, alpha_, betas_, channelAlpha_;
    LocalTensor<T> zeros_, stage_;
    LocalTensor<uint32_t> broadcast_, packTable_, rowTable_, line_;

    uint32_t pieceRows_, stateBytes_;
    uint32_t stageQueries_, stageValues_, stageBetas_, stageGates_, stageHeadGates_, stageEnd_;
    uint32_t unitBegin_, unitEnd_, rowBegin_, rowEnd_, headBegin_, heads_, keyBegin_, keyHeads_;
    int64_t blockBegin_ = 0, pendingBegin_ = 0;  // token blocks: the prepared one, and one on its way
    uint32_t blockRows_ = 0, pendingRows_ = 0;   // 0: none
    Slice<T> betaSlice_, pendingBeta_;
    Slice<float> gateSlice_, pendingGate_;
    uint64_t dirty_ = 0;   // slots written since loads last waited for stores
    uint64_t stored_ = 0;  // slots written by earlier sequences since stores last waited for each other
    uint64_t own_ = 0;     // … by this sequence on this group
    bool channelZero_ = false;
};

}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void recurrent_gated_delta_rule(
    GM_ADDR query, GM_ADDR key, GM_ADDR value, GM_ADDR beta, GM_ADDR state, GM_ADDR actual_seq_lengths,
    GM_ADDR ssm_state_indices, GM_ADDR g, GM_ADDR gk, GM_ADDR num_accepted_tokens, GM_ADDR out,
    GM_ADDR state_out, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(RecurrentGatedDeltaRuleTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    const hybrid_ops::RecurrentGatedDeltaRuleArguments arguments{
        query, key,      value, beta, actual_seq_lengths, ssm_state_indices, g, gk, num_accepted_tokens,
        out,   state_out};
    AscendC::TPipe pipe;
    // Keys as in recurrent_gated_delta_rule_tiling.h: bit 0 a tail, bit 1 gk of rank 3.
    if (TILING_KEY_IS(0)) {
        hybrid_ops::RecurrentGatedDeltaRuleKernel<DTYPE_QUERY, DTYPE_STATE, false, false> op(data, pipe);
        op.Init(arguments);
        op.Process();
    } else if (TILING_KEY_IS(1)) {
        hybrid_ops::RecurrentGatedDeltaRuleKernel<DTYPE_QUERY, DTYPE_STATE, true, false> op(data, pipe);
        op.Init(arguments);
        op.Process();
    } else if (TILING_KEY_IS(2)) {
        hybrid_ops::RecurrentGatedDeltaRuleKernel<DTYPE_QUERY, DTYPE_STATE, false, true> op(data, pipe);
        op.Init(arguments);
        op.Process();
    } else if (TILING_KEY_IS(3)) {
        hybrid_ops::RecurrentGatedDeltaRuleKernel<DTYPE_QUERY, DTYPE_STATE, true, true> op(data, pipe);
        op.Init(arguments);
        op.Process();
    }
}
