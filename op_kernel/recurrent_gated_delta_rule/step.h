// One token on a group of state rows: products with the old state, the delta, the new state, the out rows.
// What is fetched meanwhile for the next group is said by the caller.
#pragma once

#include "state.h"
#include "tokens.h"
#include "../common/sequence_walk.h"

namespace hybrid_ops {
namespace rgdr {

template <typename T, typename StateT, bool kTail, bool kChannelGate>
class Step {
 public:
    using Head = typename Tokens<T, kTail, kChannelGate>::Head;

    // Rows of a group that belong to one value head; `at` is where their state begins.
    struct Segment {
        uint32_t row, rows, at;
        Head head;
    };
    static constexpr uint32_t kMaxSegments = kMaxGroupRows / 16 + 2;

    // What is fetched while a group is worked on.
    struct Ahead {
        const Sequence& sequence;
        const Group group;
        bool state, tokens;
    };
    __aicore__ inline void Fetch(const Ahead& ahead) {
        if (ahead.tokens) tokens_.Prefetch(ahead.sequence.begin, ahead.sequence.rows);  // needed first
        if (ahead.state) pool_.Load(ahead.sequence.readSlot, ahead.group);
    }

    __aicore__ inline Step(const Data& t, Rows& rows, Workspace& work, Tokens<T, kTail, kChannelGate>& tokens,
                           StatePool<StateT, kTail>& pool)
        : t_(t), rows_(rows), work_(work), tokens_(tokens), pool_(pool) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const AscendC::GlobalTensor<T>& out) {
        out_ = out;
        pipe.InitBuffer(rowOut_, 2, RowElements(t_) * sizeof(T));
    }

    // One token on the rows of a group: delta <- beta (v - alpha S k), levelQuery <- S q. With `ahead` S is
    // still to be widened. At an edge each of its pieces is worked on as soon as it is there, one step behind
    // the next one, so that a barrier serves all pieces under way.
    __aicore__ inline uint32_t Products(int64_t token, const Group& g, Segment* segments,
                                        const Ahead* ahead) {
        Workspace& w = work_;
        const uint32_t n = g.rows, step = ahead && g.pieced ? pool_.Step(g) : n,
                       pieces = (n + step - 1) / step;
        uint32_t count = 0;
        FloatTensor values;
        for (uint32_t i = 0; i < pieces + 2; ++i) {
            // partial <- blocks of product; product <- state * q
            if (i >= 4) SumPiece(Cut8(g, i - 4, step), Cut8(g, i - 3, step));
            if (i >= 3) {
                const uint32_t begin = Cut8(g, i - 3, step), end = Cut8(g, i - 2, step);
                rows_.SumBlocks(w.pieceSums, w.product[begin * t_.keyPitch], end - begin);
            }
            if (i >= 2) {
                const uint32_t begin = Cut8(g, i - 2, step), end = Cut8(g, i - 1, step);
                SumProducts(w.partial, begin, end - begin);
                for (uint32_t j = 0; j < count; ++j) {
                    const Segment s = Cut(segments[j], begin, end);
                    if (s.rows != 0) rows_.Scale(w.product[s.at], w.state[s.at], s.head.query, s.rows);
                }
            }
            if (i == 1) {
                for (uint32_t j = 0; j < count; ++j) {
                    const Segment& s = segments[j];
                    AscendC::Muls(w.delta[s.row], values[s.row], s.head.beta, int32_t(s.rows));
                }
            }
            // product <- state * k
            if (i >= 1 && i <= pieces) {
                const uint32_t begin = Cut8(g, i - 1, step), end = Cut8(g, i, step);
                for (uint32_t j = 0; j < count; ++j) {
                    const Segment s = Cut(segments[j], begin, end);
                    if (s.rows == 0) continue;
                    DecayState(s);
                    rows_.Scale(w.product[s.at], w.state[s.at], s.head.key, s.rows);
                }
            }
            if (i < pieces && ahead) {
                pool_.Widen(g, i * step, i + 1 == pieces ? n : (i + 1) * step);
                if (i == 0) pool_.Finish();
                if (i + 1 == pieces) Fetch(*ahead);
            }
            if (i == 0) {
                tokens_.Wait();
                count = MakeSegments(token, g, segments);
                values = OrderedValues(token, g);
            }
            PipeBarrier<PIPE_V>();
        }
        const uint32_t lastRow = Cut8(g, pieces - 1, step);
        if (pieces > 1) SumPiece(Cut8(g, pieces - 2, step), lastRow);
        ReduceRows(segments, count, n, lastRow);
        return count;
    }
    // The rest of the token: out rows are stored, state <- alpha product + delta k^T, where product is the
    // old state. With `store` the new one goes to the pool, at an edge piece by piece.
    __aicore__ inline void Update(int64_t token, const Group& g, const Segment* segments, uint32_t count,
                                  bool store) {
        Workspace& w = work_;
        const uint32_t n = g.rows, step = store && g.pieced ? pool_.Step(g) : n,
                       pieces = (n + step - 1) / step;
        const FloatTensor readout = w.levelQuery[(rows_.levels - 1) & 1];
        // readout <- scale alpha (S q); column <- delta, each value eight times
        for (uint32_t j = 0; j < count; ++j) {
            const Segment& s = segments[j];
            AscendC::Muls(w.readout[s.row], readout[s.row], t_.scale * s.head.decay, int32_t(s.rows));
        }
        BroadcastColumn(w.column[0], w.delta, w.broadcast, n);
        if (Apart()) BroadcastColumn(w.column[1], w.delta, w.broadcast, n);
        PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i <= pieces; ++i) {
            if (i >= 2) pool_.Store((i - 1) * step);
            // state <- alpha product + delta k^T
            if (i >= 1) {
                for (uint32_t j = 0; j < count; ++j) {
                    const Segment s = Cut(segments[j], (i - 1) * step, i * step);
                    if (s.rows == 0) continue;
                    AscendC::Axpy(w.state[s.at], w.product[s.at], s.head.decay,
                                  int32_t(s.rows * t_.keyPitch));
                }
            }
            if (i == 1) StoreOut(token, g);
            // readout <- readout + scale (k . q) delta
            for (uint32_t j = 0; i == 0 && j < count; ++j) {
                const Segment& s = segments[j];
                AscendC::Axpy(w.readout[s.row], w.delta[s.row], t_.scale * s.head.keyQuery, int32_t(s.rows));
            }
            // state <- delta k^T
            for (uint32_t j = 0; i < pieces && j < count; ++j) {
                const Segment s = Cut(segments[j], i * step, (i + 1) * step);
                if (s.rows == 0) continue;
                if (Apart()) {
                    rows_.OuterApart(w.state, w.column, s.head.key, s.row, s.rows);
                } else {
                    rows_.Outer(w.state[s.at], w.column[0][s.row * kFloatBlock], s.head.key, s.rows);
                }
            }
            // The reduction expects lanes of absent blocks to be zero again.
            if (i == pieces && rows_.slots * kFloatLanes != t_.keyPitch) {
                AscendC::Duplicate(w.partial, 0.0f, int32_t(RoundUp(n, 8) * kFloatBlock));
            }
            PipeBarrier<PIPE_V>();
        }
        if (store) pool_.Store(n);
    }

 private:
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
    // What of a segment is in rows [begin, end) of the group; rows 0: nothing.
    __aicore__ inline Segment Cut(const Segment& s, uint32_t begin, uint32_t end) const {
        Segment part = s;
        if (part.row < begin) part.row = begin;
        const uint32_t last = s.row + s.rows < end ? s.row + s.rows : end;
        part.rows = part.row < last ? last - part.row : 0;
        part.at = part.row * t_.keyPitch;
        return part;
    }

    // sums <- blocks of product, rows from `row` on
    __aicore__ inline void SumProducts(const FloatTensor& sums, uint32_t row, uint32_t rows) const {
        rows_.SumBlocks(sums[row * rows_.slots * kFloatBlock], work_.product[row * t_.keyPitch], rows);
    }

    // levelQuery <- first level of the tree of S q, rows [begin, end)
    __aicore__ inline void SumPiece(uint32_t begin, uint32_t end) const {
        rows_.SumLevel(0, work_.levelQuery[0][begin * rows_.slots], work_.pieceSums, end - begin);
    }
    // First row of the i-th piece that products are taken of: the sums of eight rows fill a block.
    __aicore__ inline uint32_t Cut8(const Group& g, uint32_t i, uint32_t step) const {
        return i * step < g.rows ? i * step / 8 * 8 : g.rows;
    }
    // Columns stand twice, for reads without bank conflicts.
    __aicore__ inline bool Apart() const { return ColumnBytes(t_, Soc::kBroadcast) != 0; }

    // The trees of S k and S q, one level apart; the blocks of S q from row lastRow on are still to be
    // summed. delta <- delta - alpha beta (S k).
    __aicore__ inline void ReduceRows(const Segment* segments, uint32_t count, uint32_t n, uint32_t lastRow) {
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
                SumProducts(w.partial, lastRow, n - lastRow);
            } else if (level == 1) {
                const uint32_t at = lastRow * rows_.slots;
                rows_.SumLevel(0, w.levelQuery[0][at], w.partial[at * kFloatBlock], n - lastRow);
            } else {
                rows_.SumLevel(level - 1, w.levelQuery[(level - 1) & 1], w.levelQuery[level & 1], n);
            }
            PipeBarrier<PIPE_V>();
        }
    }

    // state <- state * exp(gk); what decays to nothing becomes 0 whatever it held: inf * 0 would not.
    __aicore__ inline void DecayState(const Segment& s) {
        bool changed = false;
        if (s.head.decay == 0.0f) {
            AscendC::Duplicate(work_.state[s.at], 0.0f, int32_t(s.rows * t_.keyPitch));
            changed = true;
        }
        if constexpr (kChannelGate) {
            if (tokens_.HasZeroChannel()) ZeroChannels(s);
            PipeBarrier<PIPE_V>();
            const FloatTensor state = work_.state[s.at];
            rows_.Scale(state, state, s.head.channels, s.rows);
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

    // Values of the token. Where their end stands in a last block they go to delta first, in order.
    __aicore__ inline FloatTensor OrderedValues(int64_t token, const Group& g) {
        const FloatTensor values = tokens_.Values(token, g);
        if constexpr (kTail && !Soc::kPaddedMoves) {
            const uint32_t shift = LastBlock<T>::Shift(g.rows), whole = LastBlock<T>::Whole(g.rows);
            if (shift == 0) return values;
            AscendC::Gather(work_.moved, values, work_.line, uint32_t((whole + shift) * sizeof(float)),
                            uint32_t(16 - shift));
            AscendC::Adds(work_.delta, values, 0.0f, int32_t(whole));
            PipeBarrier<PIPE_V>();
            AscendC::Adds(work_.delta[whole], work_.moved, 0.0f, int32_t(16 - shift));
            return work_.delta;
        }
        return values;
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

    const Data& t_;
    Rows& rows_;
    Workspace& work_;
    Tokens<T, kTail, kChannelGate>& tokens_;
    StatePool<StateT, kTail>& pool_;
    AscendC::GlobalTensor<T> out_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> rowOut_;
};

}  // namespace rgdr
}  // namespace hybrid_ops
