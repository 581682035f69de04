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
#include "recurrent_gated_delta_rule/step.h"
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
        : t_(data),
          tokens_(t_, rows_, range_, work_),
          pool_(t_, rows_, work_),
          step_(t_, rows_, work_, tokens_, pool_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        walk_.Init(pipe, a.lengths, a.slots, t_.hasAccepted ? a.accepted : static_cast<GM_ADDR>(nullptr),
                   t_.tokens, t_.sequences, t_.slots, t_.tableWidth, t_.tableEntries);
        rows_.Init(t_.keyPitch);
        work_.InitTiles(pipe, t_);
        tokens_.Init(pipe, a.query, a.key, a.value, a.beta, a.g, a.gk);
        pool_.Init(pipe, a.state);
        step_.Init(pipe, out_);
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
    using TokenStep = Step<T, StateT, kTail, kChannelGate>;
    using Ahead = typename TokenStep::Ahead;

    __aicore__ inline void ProcessRange(bool started) {
        walk_.Rewind();
        dirty_ = 0;
        stored_ = 0;
        if (t_.tokens != 0) tokens_.Prefetch(0, 1);
        if (!started) walk_.Wait();
        Sequence now, next;
        bool live = NextLive(now);
        Group g = FirstGroup(true);
        if (live) pool_.Load(now.readSlot, g);
        if (!started) work_.Fill(t_, kTail);  // while the first moves are under way
        while (live) {
            const bool more = NextLive(next);
            const uint64_t written = WrittenSlots(now);
            // The next sequence's state is fetched early, unless it is still to be written.
            const bool early = more && (SlotBit(next.readSlot) & (dirty_ | written)) == 0;
            for (; !range_.IsLast(g); g = range_.Next(g))
                ProcessGroup(now, g, Ahead{now, range_.Next(g), true, false});
            const Group ahead = FirstGroup(walk_.Position() >= t_.tokens);
            ProcessGroup(now, g, Ahead{next, ahead, early, more && now.rows <= t_.tokenBlock});
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

    // Nothing else hides the first load and the last store of a range: they are worked on in pieces, or half
    // as much is waited for.
    __aicore__ inline Group FirstGroup(bool edge) const {
        const bool pieced = edge && FinePieces(t_) && !kChannelGate;
        const bool half = edge && !pieced && range_.Even();
        Group g = range_.First(half ? (t_.groupUnits + 1) / 2 : t_.groupUnits);
        g.pieced = pieced;
        return g;
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

    // All tokens of the sequence on the group's rows. Its state is on its way.
    __aicore__ inline void ProcessGroup(const Sequence& s, const Group& g, const Ahead& ahead) {
        int64_t i = 0;
        int64_t slot = NextSlot(s, g, i);
        if (slot >= 0) tokens_.Need(s.begin + i, s.begin + s.rows);
        pool_.Turn();
        if (slot < 0) {
            pool_.Widen(g, 0, g.rows);
            pool_.Finish();
            step_.Fetch(ahead);
        }
        uint64_t own = 0;
        for (bool fresh = true; slot >= 0; fresh = false) {
            const int64_t token = s.begin + i;
            tokens_.Need(token, token + 1);
            if (!fresh) pool_.Finish();
            typename TokenStep::Segment segments[TokenStep::kMaxSegments];
            const uint32_t count = step_.Products(token, g, segments, fresh ? &ahead : nullptr);
            ++i;
            const int64_t following = NextSlot(s, g, i);
            work_.Swap();  // the new state goes where the products stood
            if (following != slot) {
                const bool wait = ((stored_ | own) & SlotBit(slot)) != 0;
                pool_.Open(slot, g, wait);
                if (wait) {
                    stored_ = 0;
                    own = 0;
                }
                own |= SlotBit(slot);
            }
            step_.Update(token, g, segments, count, following != slot);
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

    const Data t_;
    Rows rows_;
    Range range_;
    Workspace work_;
    Tokens<T, kTail, kChannelGate> tokens_;
    StatePool<StateT, kTail> pool_;
    TokenStep step_;
    SequenceWalk walk_;
    AscendC::GlobalTensor<T> out_;
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
