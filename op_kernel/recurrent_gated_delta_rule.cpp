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
#include "recurrent_gated_delta_rule/state.h"
#include "recurrent_gated_delta_rule/tokens.h"
#include "common/sequence_walk.h"

namespace hybrid_ops {
namespace rgdr {

struct Arguments {
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
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data)
        : t_(data), tokens_(t_, rows_, range_, work_), pool_(t_, rows_, work_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        walk_.Init(pipe, a.lengths, a.slots, t_.hasAccepted ? a.accepted : static_cast<GM_ADDR>(nullptr),
                   t_.tokens, t_.sequences, t_.slots, t_.tableWidth, t_.tableEntries);
        rows_.Init(t_.keyPitch);
        work_.InitTiles(pipe, t_);
        tokens_.Init(pipe, a.query, a.key, a.value, a.beta, a.g, a.gk);
        pool_.Init(pipe, a.state);
        pipe.InitBuffer(rowOut_, 2, RowElements(t_) * sizeof(T));
        work_.Init(pipe, t_, rows_, kTail);
        Workspace::Get(pipe, zeros_, zerosBuffer_, kZeroElements * sizeof(T));
        Workspace::Zero(zeros_.template ReinterpretCast<float>());
        Order<HardEvent::V_MTE3>();  // zeros_ is stored without further ado
    }

    __aicore__ inline void Process() {
        const uint64_t units = uint64_t(t_.valueHeads) * t_.headUnits;
        const uint64_t ranges = uint64_t(AscendC::GetBlockNum()) * t_.bands;
        const uint64_t mine = uint64_t(AscendC::GetBlockIdx()) * t_.bands;
        bool started = false;
        for (uint64_t i = mine; i < mine + t_.bands; ++i) {
            const uint32_t first = uint32_t(i * units / ranges), end = uint32_t((i + 1) * units / ranges);
            if (first == end) continue;
            range_.Set(t_, first, end);
            ProcessRange(started);
            started = true;
        }
        if (!started) walk_.Wait();
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) { tokens_.Release(pipe); }

 private:
    using Head = typename Tokens<T, kTail, kChannelGate>::Head;

    // Rows of a group that belong to one value head; `at` is where their state begins.
    struct Segment {
        uint32_t row, rows, at;
        Head head;
    };
    static constexpr uint32_t kMaxSegments = kMaxGroupRows / 16 + 2;

    __aicore__ inline void ProcessRange(bool started) {
        walk_.Rewind();
        dirty_ = 0;
        stored_ = 0;
        if (t_.tokens != 0) tokens_.Prefetch(0, 1);
        if (!started) walk_.Wait();
        Sequence now, next;
        bool live = NextLive(now);
        Group g = range_.First(GroupUnits(true));
        if (live) pool_.Load(now.readSlot, g);
        if (!started) work_.Fill(t_, kTail);  // while the first moves are under way
        while (live) {
            const bool more = NextLive(next);
            const uint64_t written = WrittenSlots(now);
            // The next sequence's state is fetched early, unless it is still to be written.
            const bool early = more && (SlotBit(next.readSlot) & (dirty_ | written)) == 0;
            for (; !range_.IsLast(g); g = range_.Next(g))
                ProcessGroup(now, g, now, range_.Next(g), true, false);
            const Group ahead = range_.First(GroupUnits(walk_.Position() >= t_.tokens));
            ProcessGroup(now, g, next, ahead, early, more && now.rows <= t_.tokenBlock);
            dirty_ |= written;
            stored_ |= written;
            if (more && !early) {
                pool_.Finish();
                Order<HardEvent::MTE3_MTE2>();
                dirty_ = 0;
                pool_.Load(next.readSlot, ahead);
            }
            now = next;
            g = ahead;
            live = more;
        }
        pool_.Finish();
        ZeroRows(walk_.Position(), t_.tokens, range_.row, range_.rows);
        tokens_.Reset();
    }

    // Nothing else hides the first load and the last store of a range: half as much to wait for.
    __aicore__ inline uint32_t GroupUnits(bool edge) const {
        return edge && range_.Even() ? (t_.groupUnits + 1) / 2 : t_.groupUnits;
    }

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
            ZeroRows(s.begin, s.begin + s.rows, range_.row, range_.rows);
        }
        return false;
    }

    __aicore__ inline void ZeroRows(int64_t begin, int64_t end, uint32_t row, uint32_t rows) {
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        for (int64_t token = begin; token < end; ++token) {
            for (uint32_t done = 0, n; done < rows; done += n) {
                n = rows - done;
                if (n > kZeroElements) n = kZeroElements - 32;  // what is left still fills a block
                StoreElements(out_[uint64_t(token) * width + row + done], zeros_, n);
            }
        }
    }

    // All tokens of the sequence on the group's rows. Its state is on its way; that of `ahead` is fetched
    // next.
    __aicore__ inline void ProcessGroup(const Sequence& s, const Group& g, const Sequence& ahead,
                                        const Group& aheadGroup, bool fetch, bool fetchTokens) {
        int64_t i = 0;
        int64_t slot = NextSlot(s, g, i);
        if (slot >= 0) tokens_.Need(s.begin + i, s.begin + s.rows);
        pool_.Widen(g);
        pool_.Finish();
        if (fetchTokens) tokens_.Prefetch(ahead.begin, ahead.rows);  // needed first
        if (fetch) pool_.Load(ahead.readSlot, aheadGroup);
        uint64_t own = 0;
        while (slot >= 0) {
            const int64_t token = s.begin + i;
            pool_.Finish();
            tokens_.Need(token, token + 1);
            Step(token, g);
            ++i;
            const int64_t following = NextSlot(s, g, i);
            if (following != slot) {
                const bool wait = ((stored_ | own) & SlotBit(slot)) != 0;
                pool_.Store(slot, g, wait);
                if (wait) {
                    stored_ = 0;
                    own = 0;
                }
                own |= SlotBit(slot);
            }
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
        uint32_t count = 0;
        for (uint32_t row = g.row; row < g.row + g.rows;) {
            const uint32_t head = row / t_.valueDim, headEnd = (head + 1) * t_.valueDim, end = g.row + g.rows;
            Segment& s = segments[count++];
            s.row = row - g.row;
            s.rows = (headEnd < end ? headEnd : end) - row;
            s.at = s.row * t_.keyPitch;
            s.head = tokens_.HeadOf(token, head);
            row += s.rows;
        }
        return count;
    }

    // One token on the rows of a group: out rows are stored, work_.state becomes the updated state.
    __aicore__ inline void Step(int64_t token, const Group& g) {
        Segment segments[kMaxSegments];
        tokens_.Wait();
        const uint32_t count = MakeSegments(token, g, segments), n = g.rows;
        Workspace& w = work_;
        FloatTensor values = tokens_.Values(token, g);
        if (kTail && !Soc::kPaddedMoves && LastBlock<T>::Shift(n) != 0) {
            OrderValues(values, n);
            values = w.delta;
        }
        PipeBarrier<PIPE_V>();
        DecayState(segments, count);
        // product <- state * k; delta <- beta v
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Scale(w.product[s.at], w.state[s.at], s.head.key, s.rows);
            AscendC::Muls(w.delta[s.row], values[s.row], s.head.beta, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // partial <- blocks of product; product <- state * q
        rows_.SumBlocks(w.partial, w.product, n);
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Scale(w.product[s.at], w.state[s.at], s.head.query, s.rows);
        }
        PipeBarrier<PIPE_V>();
        const FloatTensor readout = ReduceRows(segments, count, n);
        // partial <- delta, each value eight times; readout <- scale alpha (S q)
        BroadcastColumn(w.partial, w.delta, w.broadcast, n);
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            AscendC::Muls(w.readout[s.row], readout[s.row], t_.scale * s.head.decay, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // product <- delta k^T; readout <- readout + scale (k . q) delta
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            rows_.Outer(w.product[s.at], w.partial[s.row * kFloatBlock], s.head.key, s.rows);
            AscendC::Axpy(w.readout[s.row], w.delta[s.row], t_.scale * s.head.keyQuery, int32_t(s.rows));
        }
        PipeBarrier<PIPE_V>();
        // product <- alpha state + delta k^T, the new state
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            AscendC::Axpy(w.product[s.at], w.state[s.at], s.head.decay, int32_t(s.rows * t_.keyPitch));
        }
        StoreOut(token, g);
        // The reduction expects lanes of absent blocks to be zero again.
        if (rows_.slots * kFloatLanes != t_.keyPitch) {
            AscendC::Duplicate(w.partial, 0.0f, int32_t(RoundUp(n, 8) * kFloatBlock));
        }
        PipeBarrier<PIPE_V>();
        w.Swap();
    }

    // The trees of S k and S q, one level apart. delta <- beta v - alpha beta (S k); returns S q, one value
    // per row.
    __aicore__ inline FloatTensor ReduceRows(const Segment* segments, uint32_t count, uint32_t n) {
        Workspace& w = work_;
        const uint32_t last = rows_.levels - 1;
        for (uint32_t level = 0; level <= rows_.levels; ++level) {
            if (level <= last) {
                rows_.SumLevel(level, w.levelKey[level & 1],
                               level == 0 ? w.partial : w.levelKey[(level - 1) & 1], n);
            } else {
                for (uint32_t i = 0; i < count; ++i) {
                    const Segment& s = segments[i];
                    AscendC::Axpy(w.delta[s.row], w.levelKey[last & 1][s.row], -s.head.decay * s.head.beta,
                                  int32_t(s.rows));
                }
            }
            if (level == 0) {
                rows_.SumBlocks(w.partial, w.product, n);
            } else {
                rows_.SumLevel(level - 1, w.levelQuery[(level - 1) & 1],
                               level == 1 ? w.partial : w.levelQuery[(level - 2) & 1], n);
            }
            PipeBarrier<PIPE_V>();
        }
        return w.levelQuery[last & 1];
    }

    // state <- state * exp(gk); what decays to nothing becomes 0 whatever it held: inf * 0 would not.
    __aicore__ inline void DecayState(const Segment* segments, uint32_t count) {
        bool changed = false;
        for (uint32_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            if (s.head.decay == 0.0f) {
                AscendC::Duplicate(work_.state[s.at], 0.0f, int32_t(s.rows * t_.keyPitch));
                changed = true;
            }
            if constexpr (kChannelGate) {
                if (tokens_.HasZeroChannel()) ZeroChannels(s);
            }
        }
        if constexpr (kChannelGate) {
            PipeBarrier<PIPE_V>();
            for (uint32_t i = 0; i < count; ++i) {
                const FloatTensor state = work_.state[segments[i].at];
                rows_.Scale(state, state, segments[i].head.channels, segments[i].rows);
            }
            changed = true;
        }
        if (changed) PipeBarrier<PIPE_V>();
    }
    __aicore__ inline void ZeroChannels(const Segment& s) {
        for (uint32_t c = 0; c < rows_.chunks; ++c) {
            uint64_t mask[2] = {0, 0};
            for (uint32_t i = 0; i < rows_.Lanes(c); ++i) {
                if (s.head.channels.GetValue(c * kFloatLanes + i) == 0.0f) mask[0] |= 1ull << i;
            }
            if (mask[0] == 0) continue;
            AscendC::Duplicate(work_.state[s.at + c * kFloatLanes], 0.0f, mask, uint8_t(s.rows), 1,
                               uint8_t(rows_.blocks));
        }
    }

    // delta <- values, whose end stands in a last block: moved behind the whole ones
    __aicore__ inline void OrderValues(const FloatTensor& values, uint32_t n) {
        const uint32_t shift = LastBlock<T>::Shift(n), whole = LastBlock<T>::Whole(n);
        AscendC::Gather(work_.moved, values, work_.line, uint32_t((whole + shift) * sizeof(float)),
                        uint32_t(16 - shift));
        AscendC::Adds(work_.delta, values, 0.0f, int32_t(whole));
        PipeBarrier<PIPE_V>();
        AscendC::Adds(work_.delta[whole], work_.moved, 0.0f, int32_t(16 - shift));
    }

    // out rows of the token <- readout, rounded
    __aicore__ inline void StoreOut(int64_t token, const Group& g) {
        const uint64_t at = uint64_t(token) * t_.valueHeads * t_.valueDim + g.row;
        const uint32_t whole = LastBlock<T>::Whole(g.rows);
        LocalTensor<T> row = rowOut_.template AllocTensor<T>();
        if (kTail && !Soc::kPaddedMoves && whole != g.rows) {
            // The last 16 values once more, behind the whole blocks.
            AscendC::Gather(work_.moved, work_.readout, work_.line, uint32_t((g.rows - 16) * sizeof(float)),
                            uint32_t(16));
            PipeBarrier<PIPE_V>();
            AscendC::Adds(work_.readout[whole], work_.moved, 0.0f, 16);
            PipeBarrier<PIPE_V>();
        }
        AscendC::Cast(row, work_.readout, Soc::kNarrow, LastBlock<T>::Staged(g.rows));
        rowOut_.EnQue(row);
        row = rowOut_.template DeQue<T>();
        StoreElements(out_[at], row, g.rows);
        rowOut_.FreeTensor(row);
    }

    const Data t_;
    Rows rows_;
    Range range_;
    Workspace work_;
    Tokens<T, kTail, kChannelGate> tokens_;
    StatePool<StateT, kTail> pool_;
    SequenceWalk walk_;
    AscendC::GlobalTensor<T> out_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> rowOut_;
    Buffer zerosBuffer_;
    LocalTensor<T> zeros_;
    uint64_t dirty_ = 0;   // slots written since loads last waited for stores
    uint64_t stored_ = 0;  // slots written by earlier sequences since stores last waited for each other
};

template <bool kTail, bool kChannelGate>
__aicore__ inline void Run(const Data& data, const Arguments& arguments) {
    AscendC::TPipe pipe;
    Kernel<DTYPE_QUERY, DTYPE_STATE, kTail, kChannelGate> kernel(data);
    kernel.Init(pipe, arguments);
    kernel.Process();
    kernel.Release(pipe);
}

}  // namespace rgdr
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
    const hybrid_ops::rgdr::Arguments arguments{
        query, key,      value, beta, actual_seq_lengths, ssm_state_indices, g, gk, num_accepted_tokens,
        out,   state_out};
    // Keys as in recurrent_gated_delta_rule_tiling.h: bit 0 a tail, bit 1 gk of rank 3.
    if (TILING_KEY_IS(0)) {
        hybrid_ops::rgdr::Run<false, false>(data, arguments);
    } else if (TILING_KEY_IS(1)) {
        hybrid_ops::rgdr::Run<true, false>(data, arguments);
    } else if (TILING_KEY_IS(2)) {
        hybrid_ops::rgdr::Run<false, true>(data, arguments);
    } else if (TILING_KEY_IS(3)) {
        hybrid_ops::rgdr::Run<true, true>(data, arguments);
    }
}
