// Both products on the combined cores of ascend310p. A pass sums two results of as many weight rows as
// CubeShape says: gate and up, or two row blocks of down. Tokens and weights come to L1 one step ahead of the
// products; the activation is computed in the order of the fractals.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_

#include "../common/cube_310p.h"
#include "activation.h"
#include "arguments.h"
#include "dealt_walk.h"
#include "fractal_loader_310p.h"

namespace hybrid_ops {
namespace moe_experts {

class CubePath310p {
 public:
    __aicore__ inline explicit CubePath310p(const Data& data) : t_(data), experts_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        tensors_.Init(t_, a);
        cube_.Init(pipe, kSums * kCubeTokens * kCubeRows, kSlots * kMostSlotRows * kCubeStep);
        for (uint32_t i = 0; i < kSlots; ++i) cube_.Tile(slots_[i], kMostSlotRows, kCubeStep);
        for (uint32_t s = 0; s < kSums; ++s) cube_.Sum(sums_[s], kCubeTokens * kCubeRows);
        loader_.Init(pipe);
        pipe.InitBuffer(out_, kPieces, kPiece * sizeof(half));
        for (uint32_t i = 0; i < 3; ++i) Reserve(pipe, buffers_[i], wide_[i], kPiece);
        Reserve(pipe, buffers_[3], narrow_, kPiece);
        barrier_.Init(pipe, a.workspace);
        experts_.Init(pipe, a.offsets);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t s = 0; s < kSums; ++s) cube_.Finish(sums_[s]);
        loader_.Release(pipe);
        cube_.Release(pipe);
    }
    __aicore__ inline void Process() {
        ZeroRows(0, experts_.First());
        ZeroRows(experts_.End(), t_.rows);
        Phase<true>();
        barrier_.Wait();
        Phase<false>();
    }

 private:
    static constexpr uint32_t kSums = 2, kSlots = 2;
    static constexpr uint32_t kPieceTokens = 32, kPieceColumns = 128;  // of a result
    static constexpr uint32_t kPiece = kPieceTokens * kPieceColumns;
    static constexpr uint32_t kPieces = 4;  // on their way to global memory

    template <bool kUp>
    __aicore__ inline void Phase() {
        const uint32_t height = kUp ? t_.inner : t_.hidden, depth = kUp ? t_.hidden : t_.inner;
        DealtWalk<kUp ? 1 : kSums, kCubeStep> now(experts_, height, depth);
        auto ahead = now;
        Load<kUp>(ahead, depth);
        for (; now.Live(); now.Advance()) {
            Load<kUp>(ahead, depth);
            const Tile tile = now.Now();
            Multiply<kUp>(tile, now.Shape().rows);
            if (tile.ends) Store<kUp>(tile, now.Shape().rows, height);
        }
    }

    // Weight rows of sum s: all of gate or up; the first or second half of down's.
    template <bool kUp>
    __aicore__ static inline uint32_t RowsOf(const Tile& t, uint32_t block, uint32_t s) {
        if (kUp) return t.rows;
        const uint32_t done = s * block;
        return t.rows <= done ? 0 : t.rows - done < block ? t.rows - done : block;
    }

    template <bool kUp, typename Walk>
    __aicore__ inline void Load(Walk& ahead, uint32_t depth) {
        if (!ahead.Live()) {
            loader_.Flush();
            return;
        }
        const Tile t = ahead.Now();
        const uint32_t block = ahead.Shape().rows;
        CubeTile& tokens = tokens_[load_];
        tokens.data = slots_[load_].data;
        uint32_t at = ahead.Shape().tokens * kCubeStep;
        ahead.Advance();
        for (uint32_t s = 0; s < kSums; ++s) {
            const uint32_t rows = RowsOf<kUp>(t, block, s);
            if (rows == 0) continue;
            const AscendC::GlobalTensor<half> weights =
                kUp ? tensors_.Projection(t.expert.index, s) : tensors_.Down(t.expert.index);
            const uint32_t row = kUp ? t.row : t.row + s * block;
            weights_[load_][s].data = slots_[load_].data[at];
            at += block * kCubeStep;
            loader_.Load(weights_[load_][s], weights[uint64_t(row) * depth + t.column], rows, t.columns,
                         depth, load_, s == 0, false);
        }
        loader_.Load(tokens, (kUp ? tensors_.x : tensors_.act)[uint64_t(t.token) * depth + t.column],
                     t.tokens, t.columns, depth, load_, false, true);
        load_ ^= 1;
    }

    template <bool kUp>
    __aicore__ inline void Multiply(const Tile& t, uint32_t block) {
        loader_.Await(turn_);
        for (uint32_t s = 0; s < kSums; ++s) {
            const uint32_t rows = RowsOf<kUp>(t, block, s);
            if (rows == 0) continue;
            cube_.Multiply(sums_[s], {&tokens_[turn_], false}, {&weights_[turn_][s], true},
                           hybrid_ops::RoundUp(t.tokens, kFractal), rows, t.columns, t.column != 0);
        }
        loader_.Free(turn_);
        turn_ ^= 1;
    }

    // act or y <- the sums, a piece of tokens and columns at a time
    template <bool kUp>
    __aicore__ inline void Store(const Tile& t, uint32_t block, uint32_t width) {
        const uint32_t height = hybrid_ops::RoundUp(t.tokens, kFractal);
        for (uint32_t s = 0; s < (kUp ? 1 : kSums); ++s) {
            const uint32_t rows = RowsOf<kUp>(t, block, s);
            for (uint32_t row = 0; row < rows; row += kPieceColumns) {
                for (uint32_t token = 0; token < t.tokens; token += kPieceTokens) {
                    const uint32_t left = t.tokens - token, more = rows - row;
                    const bool last = left <= kPieceTokens && more <= kPieceColumns;
                    StorePiece<kUp>(s,
                                    {row, token, more < kPieceColumns ? more : kPieceColumns,
                                     left < kPieceTokens ? left : kPieceTokens},
                                    height, t, s * block, width, last);
                }
            }
        }
    }
    struct Piece {
        uint32_t row, token, columns, tokens;
    };
    template <bool kUp>
    __aicore__ inline void StorePiece(uint32_t s, const Piece& p, uint32_t height, const Tile& t,
                                      uint32_t first, uint32_t width, bool last) {
        const uint32_t tall = hybrid_ops::RoundUp(p.tokens, kFractal), n = tall * p.columns;
        for (uint32_t i = 0; i < (kUp ? kSums : 1); ++i) {
            CubeSum& sum = sums_[kUp ? i : s];
            cube_.FetchRows(wide_[i], sum, p.row * height / kFractal + p.token, tall, p.columns, height,
                            last);
        }
        AscendC::PipeBarrier<PIPE_V>();
        if constexpr (kUp) {
            SwiGlu(narrow_, wide_[0], wide_[1], wide_[2], n);
        } else {
            Convert(narrow_, wide_[0], n);
        }
        AscendC::LocalTensor<half> out = out_.AllocTensor<half>();
        AscendC::PipeBarrier<PIPE_V>();
        const uint32_t blocks = p.columns / kFractal;
        MoveBlocks(out.ReinterpretCast<int16_t>(), narrow_.ReinterpretCast<int16_t>(), p.tokens, blocks,
                   {1, blocks}, {tall, 1});
        AscendC::PipeBarrier<PIPE_V>();
        out_.EnQue(out);
        out = out_.DeQue<half>();
        const AscendC::GlobalTensor<half>& to = kUp ? tensors_.act : tensors_.y;
        AscendC::DataCopy(to[uint64_t(t.token + p.token) * width + t.row + first + p.row], out,
                          AscendC::DataCopyParams(uint16_t(p.tokens), uint16_t(blocks), 0,
                                                  uint16_t((width - p.columns) / kFractal)));
        out_.FreeTensor(out);
    }

    __aicore__ inline void ZeroRows(uint32_t begin, uint32_t end) {
        const uint32_t cores = uint32_t(AscendC::GetBlockNum()), core = uint32_t(AscendC::GetBlockIdx());
        for (uint32_t row = begin + core; row < end; row += cores) {
            for (uint32_t done = 0; done < t_.hidden; done += kPiece) {
                const uint32_t left = t_.hidden - done, n = left < kPiece ? left : kPiece;
                AscendC::LocalTensor<half> zeros = out_.AllocTensor<half>();
                AscendC::Duplicate(zeros.ReinterpretCast<int16_t>(), int16_t(0), int32_t(n));
                out_.EnQue(zeros);
                zeros = out_.DeQue<half>();
                AscendC::DataCopy(tensors_.y[uint64_t(row) * t_.hidden + done], zeros, n);
                out_.FreeTensor(zeros);
            }
        }
    }

    const Data t_;
    ExpertWalk experts_;
    Tensors<half> tensors_;
    Cube310p cube_;
    CubeTile slots_[kSlots], tokens_[kSlots], weights_[kSlots][kSums];
    CubeSum sums_[kSums];
    FractalLoader310p<kSlots, kCubeStep> loader_;
    uint32_t turn_ = 0, load_ = 0;
    CoreBarrier<> barrier_;
    AscendC::TQue<AscendC::TPosition::VECOUT, kPieces> out_;
    Buffer buffers_[4];
    AscendC::LocalTensor<half> narrow_;
    FloatTensor wide_[3];
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_
