// The pool of states: a group's rows to and from fp32 in unified buffer.
#ifndef HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_STATE_H_
#define HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_STATE_H_

#include "../common/row_copy.h"
#include "range.h"

namespace hybrid_ops {
namespace rgdr {

template <typename T, bool kTail>
class StatePool {
 public:
    __aicore__ inline StatePool(const Data& t, const Rows& rows, Workspace& work)
        : t_(t), rows_(rows), work_(work) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR pool) {
        pool_.SetGlobalBuffer((__gm__ T*)pool);
        pieceRows_ = PieceRows(t_);
        stored_ = 0;
        group_.rows = 0;
        const uint32_t bytes = (pieceRows_ * t_.keyPitch + 32) * sizeof(T);
        pipe.InitBuffer(in_, uint8_t(t_.pieces), bytes);
        pipe.InitBuffer(out_, uint8_t(t_.storedPieces), bytes);
        if constexpr (kTail) {
            // Moves leave pads alone: zero once.
            LocalTensor<T> piece;
            for (uint32_t i = 0; i < t_.pieces; ++i) {
                piece = in_.template AllocTensor<T>();
                AscendC::Duplicate(piece.template ReinterpretCast<float>(), 0.0f,
                                   int32_t(bytes / sizeof(float)));
                in_.EnQue(piece);
            }
            for (uint32_t i = 0; i < t_.pieces; ++i) {
                piece = in_.template DeQue<T>();
                in_.FreeTensor(piece);
            }
        }
    }

    // in_ <- rows of the group in pool[slot], piece by piece
    __aicore__ inline void Load(int64_t slot, const Group& g) {
        const uint32_t step = Step(g);
        for (uint32_t r = 0; r < g.rows; r += step) {
            const uint32_t n = Piece(g, r);
            LocalTensor<T> piece = in_.template AllocTensor<T>();
            if (Packed()) {
                LoadElements(piece, pool_[At(slot, g.row + r)], n * t_.keyDim);
            } else {
                LoadRows(piece, pool_[At(slot, g.row + r)], n, t_.keyDim, t_.keyDim, t_.keyPitch);
            }
            in_.EnQue(piece);
        }
    }

    // Before Widen: what the last Open left unstored stands in work_.product from here on.
    __aicore__ inline void Turn() {
        if (!Repacked()) work_.Swap();
    }
    // work_.state [from, to) <- in_; whole pieces
    __aicore__ inline void Widen(const Group& g, uint32_t from, uint32_t to) {
        const uint32_t step = Step(g);
        for (uint32_t r = from; r < to; r += step) {
            LocalTensor<T> piece = in_.template DeQue<T>();
            if (Repacked()) {
                Unpack(piece, Piece(g, r));
            } else {
                Convert(work_.state[r * t_.keyPitch], piece, Piece(g, r) * t_.keyPitch);
            }
            in_.FreeTensor(piece);
        }
    }

    // pool[slot] <- work_.state, rounded, by Store and Finish. `wait`: an earlier store to these rows may be
    // under way.
    __aicore__ inline void Open(int64_t slot, const Group& g, bool wait) {
        if (wait) PipeBarrier<PIPE_MTE3>();
        slot_ = slot;
        group_ = g;
        source_ = work_.state;
        stored_ = 0;
        room_ = t_.storedPieces;
    }
    // Rows up to `to`. Pieces for which there is no room yet are left to Finish, so that the vector unit does
    // not wait for it.
    __aicore__ inline void Store(uint32_t to) {
        for (; room_ != 0 && stored_ < to; --room_) StorePiece();
        if (Repacked()) Finish();
    }
    // Before anything else is written where the stored state stands.
    __aicore__ inline void Finish() {
        while (stored_ < group_.rows) StorePiece();
    }
    // Rows of a piece but the last one.
    __aicore__ inline uint32_t Step(const Group& g) const {
        return g.rows < pieceRows_ ? g.rows : pieceRows_;
    }

 private:
    __aicore__ inline void StorePiece() {
        const uint32_t r = stored_, n = Piece(group_, r);
        LocalTensor<T> piece = out_.template AllocTensor<T>();
        if (Repacked()) {
            Pack(piece, n);
        } else {
            Convert(piece, source_[r * t_.keyPitch], n * t_.keyPitch);
        }
        out_.EnQue(piece);
        piece = out_.template DeQue<T>();
        if (Packed()) {
            StoreElements(pool_[At(slot_, group_.row + r)], piece, n * t_.keyDim);
        } else {
            StorePadded(pool_[At(slot_, group_.row + r)], piece, n);
        }
        out_.FreeTensor(piece);
        stored_ += n;
    }
    // Without padded moves, rows that do not fill their pitch are repacked between pool and unified buffer.
    __aicore__ inline bool Repacked() const {
        return kTail && !Soc::kPaddedMoves && t_.keyDim != t_.keyPitch;
    }

    // Rows stand one behind the other in local memory too: they fill their pitch, or moves cannot pad them.
    __aicore__ inline bool Packed() const { return !Soc::kPaddedMoves || t_.keyDim == t_.keyPitch; }
    __aicore__ inline uint32_t Piece(const Group& g, uint32_t row) const {
        const uint32_t step = Step(g);
        return g.rows - row < step ? g.rows - row : step;
    }
    __aicore__ inline uint64_t At(int64_t slot, uint32_t row) const {
        return (uint64_t(slot) * t_.valueHeads * t_.valueDim + row) * t_.keyDim;
    }

    // Packed rows -> product, packed fp32 -> state, padded with zeros
    __aicore__ inline void Unpack(const LocalTensor<T>& piece, uint32_t n) {
        const uint32_t packed = n * t_.keyDim;
        const FloatTensor state = work_.state, product = work_.product;
        Convert(product, piece, LastBlock<T>::Staged(packed));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < n; ++r) {
            AscendC::Gather(state[r * t_.keyPitch], product, work_.unpack,
                            uint32_t(r * t_.keyDim * sizeof(float)), t_.keyPitch);
        }
        if (LastBlock<T>::Shift(packed) != 0) {
            // The last row ends in the last block, which may start at any lane of the row: 16 values by hand.
            const uint32_t last = LastBlock<T>::Whole(packed), lane = (n - 1) * t_.keyPitch + t_.keyDim - 16;
            Order<HardEvent::V_S>();
            for (uint32_t i = 0; i < 16; ++i) state.SetValue(lane + i, product.GetValue(last + i));
            Order<HardEvent::S_V>();
        }
        PipeBarrier<PIPE_V>();
        rows_.FillPad(state, t_.keyDim, 0.0f, n);
    }

    // state, padded -> product, packed, its last 16 elements once more behind the whole blocks -> piece
    __aicore__ inline void Pack(const LocalTensor<T>& piece, uint32_t n) {
        const uint32_t packed = n * t_.keyDim, whole = LastBlock<T>::Whole(packed);
        const FloatTensor state = work_.state, product = work_.product;
        for (uint32_t r = 0; r < n; r += kTableRows) {
            const uint32_t some = n - r < kTableRows ? n - r : kTableRows;
            AscendC::Gather(product[r * t_.keyDim], state, work_.pack,
                            uint32_t(r * t_.keyPitch * sizeof(float)), some * t_.keyDim);
        }
        PipeBarrier<PIPE_V>();
        if (whole != packed) {
            AscendC::Gather(product[whole], state, work_.line,
                            uint32_t(((n - 1) * t_.keyPitch + t_.keyDim - 16) * sizeof(float)), uint32_t(16));
            PipeBarrier<PIPE_V>();
        }
        Convert(piece, product, LastBlock<T>::Staged(packed));
    }

    __aicore__ inline void StorePadded(const AscendC::GlobalTensor<T>& dst, const LocalTensor<T>& src,
                                       uint32_t n) {
        if constexpr (Soc::kPaddedMoves) {
            constexpr uint32_t kBlock = LastBlock<T>::kBlock;
            const uint32_t gap = (t_.keyPitch - RoundUp(t_.keyDim, kBlock)) / kBlock;
            AscendC::DataCopyPad(
                dst, src,
                AscendC::DataCopyExtParams{uint16_t(n), uint32_t(t_.keyDim * sizeof(T)), gap, 0, 0});
        }
    }

    const Data& t_;
    const Rows& rows_;
    Workspace& work_;
    AscendC::GlobalTensor<T> pool_;
    AscendC::TQue<AscendC::TPosition::VECIN, kMaxPieces> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, kMaxPieces> out_;
    uint32_t pieceRows_;
    Group group_;  // of the last Store, whose rows up to stored_ are on their way
    FloatTensor source_;
    int64_t slot_;
    uint32_t stored_, room_;
};

}  // namespace rgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_RECURRENT_GATED_DELTA_RULE_STATE_H_
