// The states of the sequences: an item's rows from initial_state to fp32 in local memory, and to final_state.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_STATE_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_STATE_H_

#include "workspace.h"

namespace hybrid_ops {
namespace cgdr {

template <typename T, bool kTail>
class States {
 public:
    __aicore__ inline States(const Data& t, const Rows& rows, const Item& item, Workspace& work)
        : t_(t), rows_(rows), item_(item), work_(work) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR initial, GM_ADDR final) {
        initial_.SetGlobalBuffer((__gm__ T*)initial);
        final_.SetGlobalBuffer((__gm__ T*) final);
        const uint32_t bytes = t_.pieceRows * t_.keyPitch * sizeof(T);
        pipe.InitBuffer(in_, kPieces, bytes);
        pipe.InitBuffer(out_, kPieces, bytes);
        if constexpr (kTail) {
            // Moves leave pads alone: zero once.
            for (uint32_t i = 0; i < kPieces; ++i) {
                LocalTensor<T> piece = in_.template AllocTensor<T>();
                AscendC::Duplicate(piece.template ReinterpretCast<float>(), 0.0f,
                                   int32_t(bytes / sizeof(float)));
                in_.EnQue(piece);
                piece = in_.template DeQue<T>();
                in_.FreeTensor(piece);
            }
        }
    }

    // Starts to fetch the state of a sequence: as many pieces as there are buffers.
    __aicore__ inline void Fetch(uint32_t sequence) {
        sequence_ = sequence;
        fetched_ = 0;
        for (uint32_t i = 0; i < kPieces; ++i) FetchPiece();
    }
    // work_.state <- the state being fetched, fp32
    __aicore__ inline void Widen() {
        for (uint32_t r = 0; r < item_.rows; r += t_.pieceRows) {
            LocalTensor<T> piece = in_.template DeQue<T>();
            work_.template Widen<T, kTail>(work_.state[r * t_.keyPitch], piece, rows_, t_.keyDim, Piece(r));
            in_.FreeTensor(piece);
            FetchPiece();
        }
        PipeBarrier<PIPE_V>();
    }
    // final_state of the sequence <- work_.state, rounded
    __aicore__ inline void Store(uint32_t sequence) {
        for (uint32_t r = 0; r < item_.rows; r += t_.pieceRows) {
            const uint32_t n = Piece(r);
            LocalTensor<T> piece = out_.template AllocTensor<T>();
            if (Shifted()) AppendTails(r, n);
            Convert(piece, Shifted() ? work_.product : work_.state[r * t_.keyPitch], n * t_.keyPitch);
            out_.EnQue(piece);
            piece = out_.template DeQue<T>();
            StoreRows(final_[At(sequence, r)], piece, n, t_.keyDim, t_.keyDim, t_.keyPitch);
            out_.FreeTensor(piece);
            if (Shifted()) PipeBarrier<PIPE_V>();
        }
    }

 private:
    static constexpr uint32_t kPieces = 2;

    // Moves without padding store the last 16 elements of a row apart, from behind its whole blocks.
    __aicore__ inline bool Shifted() const { return kTail && !Soc::kPaddedMoves && t_.keyDim != t_.keyPitch; }
    __aicore__ inline uint32_t Piece(uint32_t row) const {
        return item_.rows - row < t_.pieceRows ? item_.rows - row : t_.pieceRows;
    }
    __aicore__ inline uint64_t At(uint32_t sequence, uint32_t row) const {
        return (uint64_t(sequence) * t_.valueHeads * t_.valueDim + item_.row + row) * t_.keyDim;
    }
    __aicore__ inline void FetchPiece() {
        if (fetched_ >= item_.rows) return;
        LocalTensor<T> piece = in_.template AllocTensor<T>();
        LoadRows(piece, initial_[At(sequence_, fetched_)], Piece(fetched_), t_.keyDim, t_.keyDim,
                 t_.keyPitch);
        in_.EnQue(piece);
        fetched_ += t_.pieceRows;
    }
    // product <- rows of the state, their last 16 elements behind their whole blocks
    __aicore__ inline void AppendTails(uint32_t row, uint32_t n) {
        const uint32_t whole = LastBlock<T>::Whole(t_.keyDim), at = row * t_.keyPitch;
        AscendC::Adds(work_.product, work_.state[at], 0.0f, int32_t(n * t_.keyPitch));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < n; ++r) {
            AscendC::Gather(work_.product[r * t_.keyPitch + whole], work_.state, work_.line,
                            uint32_t((at + r * t_.keyPitch + t_.keyDim - 16) * sizeof(float)), uint32_t(16));
        }
        PipeBarrier<PIPE_V>();
    }

    const Data& t_;
    const Rows& rows_;
    const Item& item_;
    Workspace& work_;
    AscendC::GlobalTensor<T> initial_, final_;
    AscendC::TQue<AscendC::TPosition::VECIN, kPieces> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, kPieces> out_;
    uint32_t sequence_ = 0, fetched_ = 0;  // fetched_: rows on their way or here
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_STATE_H_
