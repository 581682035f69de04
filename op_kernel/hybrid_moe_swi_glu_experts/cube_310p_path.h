// Both products on the combined cores of ascend310p. A pass sums two results of kCubeRows weight rows: gate
// and up, or two row blocks of down. Tokens and weights go from global memory to L1 in bursts of a fractal's
// row, one step ahead of the products; the activation is computed in the order of the fractals.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_

#include "../common/cube_310p.h"
#include "activation.h"
#include "arguments.h"
#include "walk.h"

namespace hybrid_ops {
namespace moe_experts {

class CubePath310p {
 public:
    __aicore__ inline explicit CubePath310p(const Data& data) : t_(data), experts_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        tensors_.Init(t_, a);
        cube_.Init(pipe, kSums * kCubeTokens * kCubeRows,
                   kSlots * (kCubeTokens + kSums * kCubeRows) * kCubeStep);
        for (uint32_t i = 0; i < kSlots; ++i) {
            cube_.Tile(tokens_[i], kCubeTokens, kCubeStep);
            for (uint32_t s = 0; s < kSums; ++s) cube_.Tile(weights_[i][s], kCubeRows, kCubeStep);
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE2_MTE1>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE1_MTE2>());
            AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
        for (uint32_t s = 0; s < kSums; ++s) cube_.Sum(sums_[s], kCubeTokens * kCubeRows);
        pipe.InitBuffer(out_, 2, kPiece * sizeof(half));
        for (uint32_t i = 0; i < 3; ++i) Reserve(pipe, buffers_[i], wide_[i], kPiece);
        barrier_.Init(pipe, a.workspace);
        experts_.Init(pipe, a.offsets);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t s = 0; s < kSums; ++s) cube_.Finish(sums_[s]);
        for (uint32_t i = 0; i < kSlots; ++i) {
            AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE2_MTE1>(loaded_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
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
    static constexpr uint32_t kPiece = kCubeTokens * kFractal;  // a column of fractals of a result

    template <bool kUp>
    __aicore__ inline void Phase() {
        const uint32_t height = kUp ? t_.inner : t_.hidden, depth = kUp ? t_.hidden : t_.inner;
        TileWalk<kUp ? kCubeRows : kSums * kCubeRows, kCubeTokens, kCubeStep, false> now(experts_, height,
                                                                                         depth, 1);
        auto ahead = now;
        Load<kUp>(ahead, depth);
        for (; now.Live(); now.Advance()) {
            Load<kUp>(ahead, depth);
            const Tile tile = now.Now();
            Multiply<kUp>(tile);
            if (tile.ends) Store<kUp>(tile, height);
        }
    }

    // Weight rows of sum s: all of gate or up; the first or second half of down's.
    template <bool kUp>
    __aicore__ static inline uint32_t RowsOf(const Tile& t, uint32_t s) {
        if (kUp) return t.rows;
        const uint32_t done = s * kCubeRows;
        return t.rows <= done ? 0 : t.rows - done < kCubeRows ? t.rows - done : kCubeRows;
    }

    template <bool kUp, typename Walk>
    __aicore__ inline void Load(Walk& ahead, uint32_t depth) {
        if (!ahead.Live()) return;
        const Tile t = ahead.Now();
        ahead.Advance();
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[load_]);
        for (uint32_t s = 0; s < kSums; ++s) {
            const uint32_t rows = RowsOf<kUp>(t, s);
            if (rows == 0) continue;
            const AscendC::GlobalTensor<half> weights =
                kUp ? tensors_.Projection(t.expert.index, s) : tensors_.Down(t.expert.index);
            const uint32_t row = kUp ? t.row : t.row + s * kCubeRows;
            LoadRowsToL1(weights_[load_][s], weights[uint64_t(row) * depth + t.column], rows, t.columns,
                         depth);
        }
        const AscendC::GlobalTensor<half> x =
            (kUp ? tensors_.x : tensors_.act)[uint64_t(t.token) * depth + t.column];
        CubeTile& tokens = tokens_[load_];
        LoadRowsToL1(tokens, x, t.tokens, t.columns, depth);
        // Rows up to a whole fractal repeat the first: their results are computed and not stored.
        for (uint32_t row = t.tokens; row < tokens.rows; ++row) {
            AscendC::DataCopy(
                tokens.data[row * kFractal], x,
                AscendC::DataCopyParams(uint16_t(t.columns / kFractal), 1, 0, uint16_t(tokens.rows - 1)));
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[load_]);
        load_ ^= 1;
    }
    // tile <- [n, columns], rows `pitch` elements apart in global memory
    __aicore__ inline void LoadRowsToL1(CubeTile& tile, const AscendC::GlobalTensor<half>& src, uint32_t n,
                                        uint32_t columns, uint32_t pitch) {
        tile.rows = hybrid_ops::RoundUp(n, kFractal);
        for (uint32_t c = 0; c < columns; c += kFractal) {
            AscendC::DataCopy(tile.data[c * tile.rows], src[c],
                              AscendC::DataCopyParams(uint16_t(n), 1, uint16_t(pitch / kFractal - 1), 0));
        }
    }

    template <bool kUp>
    __aicore__ inline void Multiply(const Tile& t) {
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[turn_]);
        for (uint32_t s = 0; s < kSums; ++s) {
            const uint32_t rows = RowsOf<kUp>(t, s);
            if (rows == 0) continue;
            cube_.Multiply(sums_[s], {&tokens_[turn_], false}, {&weights_[turn_][s], true},
                           hybrid_ops::RoundUp(t.tokens, kFractal), rows, t.columns, t.column != 0);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[turn_]);
        turn_ ^= 1;
    }

    // act or y <- the sums, column of fractals after column of fractals
    template <bool kUp>
    __aicore__ inline void Store(const Tile& t, uint32_t width) {
        const uint32_t height = hybrid_ops::RoundUp(t.tokens, kFractal), n = height * kFractal;
        const AscendC::GlobalTensor<half>& to = kUp ? tensors_.act : tensors_.y;
        for (uint32_t s = 0; s < (kUp ? 1 : kSums); ++s) {
            const uint32_t rows = RowsOf<kUp>(t, s), first = t.row + s * kCubeRows;
            for (uint32_t row = 0; row < rows; row += kFractal) {
                const bool last = row + kFractal == rows;
                cube_.Fetch(wide_[0], sums_[s], n, row * height, last);
                if constexpr (kUp) cube_.Fetch(wide_[1], sums_[1], n, row * height, last);
                AscendC::PipeBarrier<PIPE_V>();
                AscendC::LocalTensor<half> out = out_.AllocTensor<half>();
                if constexpr (kUp) {
                    SwiGlu(out, wide_[0], wide_[1], wide_[2], n);
                } else {
                    Convert(out, wide_[0], n);
                }
                AscendC::PipeBarrier<PIPE_V>();
                out_.EnQue(out);
                out = out_.DeQue<half>();
                AscendC::DataCopy(
                    to[uint64_t(t.token) * width + first + row], out,
                    AscendC::DataCopyParams(uint16_t(t.tokens), 1, 0, uint16_t(width / kFractal - 1)));
                out_.FreeTensor(out);
            }
        }
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
    CubeTile tokens_[kSlots], weights_[kSlots][kSums];
    CubeSum sums_[kSums];
    event_t loaded_[kSlots], used_[kSlots];
    uint32_t turn_ = 0, load_ = 0;
    CoreBarrier<> barrier_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> out_;
    Buffer buffers_[3];
    FloatTensor wide_[3];
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_310P_PATH_H_
