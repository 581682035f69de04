// Both products on the cube cores of ascend910b, the activation between them on the vector cores, all cores
// meeting in between: gate x and up x to the workspace, rounded; act = silu(gate x) * (up x); down act.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_910B_PATH_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_910B_PATH_H_

#include "../common/cube_910b.h"
#include "activation.h"
#include "arguments.h"
#include "walk.h"

namespace hybrid_ops {
namespace moe_experts {

// All cores, cube and vector.
__aicore__ inline void MeetAll() {
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::SyncAll<false>();
}

// Cube core. A result [tokens, rows] is summed in both halves of L0C, so that each weight that has come to L1
// serves kCubeTokens tokens; steps of kCubeStep columns are loaded while earlier ones are multiplied.
template <typename T>
class CubeSide {
 public:
    __aicore__ inline explicit CubeSide(const Data& data) : t_(data), experts_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        tensors_.Init(t_, a);
        unit_.Init(pipe);
        pipe.InitBuffer(tokens_, 2 * kTokenElements * sizeof(T));
        pipe.InitBuffer(weights_, 2 * kWeightElements * sizeof(T));
        for (uint32_t i = 0; i < 2; ++i) {
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE2_MTE1>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE1_MTE2>());
            AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
        experts_.Init(pipe, a.offsets, false);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < 2; ++i) {
            AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE2_MTE1>(loaded_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
        unit_.Release(pipe);
    }
    __aicore__ inline void Process() {
        Phase<true>();
        MeetAll();
        MeetAll();
        Phase<false>();
    }

 private:
    static constexpr uint32_t kHalf = 128;  // rows of a result that fill one half of L0C
    static constexpr uint32_t kTokenElements = kCubeTokens * kCubeStep;
    static constexpr uint32_t kWeightElements = kCubeRows * kCubeStep;

    // kUp: gate x and up x. Else y <- down act. The next step is asked for before a step is multiplied: the
    // many loads of L0 would keep its moves waiting.
    template <bool kUp>
    __aicore__ inline void Phase() {
        const uint32_t height = kUp ? t_.inner : t_.hidden, depth = kUp ? t_.hidden : t_.inner;
        TileWalk<kCubeRows, kCubeTokens, kCubeStep, false> now(experts_, height, depth, kUp ? 2 : 1);
        auto ahead = now;
        Load<kUp>(ahead, depth);
        for (; now.Live(); now.Advance()) {
            Load<kUp>(ahead, depth);
            const Tile tile = now.Now();
            Multiply(tile);
            if (!tile.ends) continue;
            Store(tile, !kUp ? tensors_.y : tile.matrix == 0 ? tensors_.act : tensors_.other, height);
        }
    }

    template <bool kUp, typename Walk>
    __aicore__ inline void Load(Walk& ahead, uint32_t depth) {
        if (!ahead.Live()) return;
        const Tile t = ahead.Now();
        ahead.Advance();
        const AscendC::GlobalTensor<T> weights =
            kUp ? tensors_.Projection(t.expert.index, t.matrix) : tensors_.Down(t.expert.index);
        const AscendC::GlobalTensor<T>& x = kUp ? tensors_.x : tensors_.act;
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[load_]);
        LoadMatrix(Weights(t, load_), weights[uint64_t(t.row) * depth + t.column], t.rows, t.columns, depth);
        LoadMatrix(TokensOf(t, load_), x[uint64_t(t.token) * depth + t.column], t.tokens, t.columns, depth);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[load_]);
        load_ ^= 1;
    }

    // sums <- (first step: 0, else sums) + x weights^T of one step.
    __aicore__ inline void Multiply(const Tile& t) {
        const uint32_t parts = Parts(t);
        if (t.column == 0) {
            for (uint32_t p = 0; p < parts; ++p) sums_[p] = unit_.Begin();
        }
        const CubeMatrix<T> left = TokensOf(t, turn_), right = Weights(t, turn_);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[turn_]);
        for (uint32_t k = 0; k < t.columns; k += kHalf) {
            const uint32_t n = t.columns - k < kHalf ? t.columns - k : kHalf;
            const CubeMatrix<T> b{right.data[k * right.height], right.height};
            for (uint32_t p = 0; p < parts; ++p) {
                const CubeMatrix<T> a{left.data[k * left.height + p * kHalf * kFractalColumns<T>],
                                      left.height};
                unit_.template Add<false, false>(sums_[p], a, b, Tokens(t, p), t.rows, n, t.column + k == 0);
            }
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[turn_]);
        turn_ ^= 1;
    }

    // out [tokens, rows] <- sums
    __aicore__ inline void Store(const Tile& t, const AscendC::GlobalTensor<T>& out, uint32_t width) {
        for (uint32_t p = 0; p < Parts(t); ++p) {
            unit_.Ready(sums_[p]);
            unit_.StoreRows(out[uint64_t(t.token + p * kHalf) * width + t.row], sums_[p], Tokens(t, p),
                            t.rows, width);
            unit_.End(sums_[p]);
        }
    }
    __aicore__ inline CubeMatrix<T> TokensOf(const Tile& t, uint32_t slot) {
        return {tokens_.template Get<T>()[slot * kTokenElements], hybrid_ops::RoundUp(t.tokens, kCubeSide)};
    }
    __aicore__ inline CubeMatrix<T> Weights(const Tile& t, uint32_t slot) {
        return {weights_.template Get<T>()[slot * kWeightElements], hybrid_ops::RoundUp(t.rows, kCubeSide)};
    }
    __aicore__ static inline uint32_t Parts(const Tile& t) { return (t.tokens + kHalf - 1) / kHalf; }
    __aicore__ static inline uint32_t Tokens(const Tile& t, uint32_t part) {
        const uint32_t left = t.tokens - part * kHalf;
        return left < kHalf ? left : kHalf;
    }

    const Data t_;
    ExpertWalk experts_;
    Tensors<T> tensors_;
    CubeUnit unit_;
    AscendC::TBuf<AscendC::TPosition::A1> tokens_;
    AscendC::TBuf<AscendC::TPosition::B1> weights_;
    event_t loaded_[2], used_[2];
    uint32_t turn_ = 0, load_ = 0;
    CubeUnit::Result sums_[2];
};

// Vector core: the activation of all rows that have an expert, zeros in the others.
template <typename T>
class ActivationSide {
 public:
    __aicore__ inline explicit ActivationSide(const Data& data) : t_(data), experts_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        tensors_.Init(t_, a);
        pipe.InitBuffer(in_, 2, 2 * kPiece * sizeof(T));
        pipe.InitBuffer(out_, 2, kPiece * sizeof(T));
        for (uint32_t i = 0; i < 3; ++i) Reserve(pipe, buffers_[i], wide_[i], kPiece);
        experts_.Init(pipe, a.offsets);
    }
    __aicore__ inline void Process() {
        const uint32_t cores = uint32_t(AscendC::GetBlockNum()) * uint32_t(AscendC::GetTaskRation());
        const uint32_t core = uint32_t(AscendC::GetBlockIdx());
        ZeroRows(0, experts_.First(), core, cores);
        ZeroRows(experts_.End(), t_.rows, core, cores);
        MeetAll();
        const uint64_t begin = uint64_t(experts_.First()) * t_.inner,
                       end = uint64_t(experts_.End()) * t_.inner;
        uint64_t ahead = begin + uint64_t(core) * kPiece;
        const uint64_t stride = uint64_t(cores) * kPiece;
        Load(ahead, end);
        for (uint64_t at = begin + uint64_t(core) * kPiece; at < end; at += stride) {
            ahead += stride;
            Load(ahead, end);
            Activate(at, Count(at, end));
        }
        MeetAll();
    }

 private:
    static constexpr uint32_t kPiece = 4096;  // elements worked on together

    __aicore__ static inline uint32_t Count(uint64_t at, uint64_t end) {
        return end - at < kPiece ? uint32_t(end - at) : kPiece;
    }
    __aicore__ inline void Load(uint64_t at, uint64_t end) {
        if (at >= end) return;
        const uint32_t n = Count(at, end);
        AscendC::LocalTensor<T> both = in_.template AllocTensor<T>();
        AscendC::DataCopy(both, tensors_.act[at], n);
        AscendC::DataCopy(both[kPiece], tensors_.other[at], n);
        in_.EnQue(both);
    }
    __aicore__ inline void Activate(uint64_t at, uint32_t n) {
        AscendC::LocalTensor<T> both = in_.template DeQue<T>();
        AscendC::Cast(wide_[0], both, AscendC::RoundMode::CAST_NONE, n);
        AscendC::Cast(wide_[1], both[kPiece], AscendC::RoundMode::CAST_NONE, n);
        AscendC::PipeBarrier<PIPE_V>();
        in_.FreeTensor(both);
        AscendC::LocalTensor<T> out = out_.template AllocTensor<T>();
        SwiGluRounded(out, wide_[0], wide_[1], wide_[2], n);
        out_.EnQue(out);
        out = out_.template DeQue<T>();
        AscendC::DataCopy(tensors_.act[at], out, n);
        out_.FreeTensor(out);
    }
    __aicore__ inline void ZeroRows(uint32_t begin, uint32_t end, uint32_t core, uint32_t cores) {
        for (uint32_t row = begin + core; row < end; row += cores) {
            for (uint32_t done = 0; done < t_.hidden; done += kPiece) {
                const uint32_t left = t_.hidden - done, n = left < kPiece ? left : kPiece;
                AscendC::LocalTensor<T> zeros = out_.template AllocTensor<T>();
                AscendC::Duplicate(zeros.template ReinterpretCast<int16_t>(), int16_t(0), int32_t(n));
                out_.EnQue(zeros);
                zeros = out_.template DeQue<T>();
                AscendC::DataCopy(tensors_.y[uint64_t(row) * t_.hidden + done], zeros, n);
                out_.FreeTensor(zeros);
            }
        }
    }

    const Data t_;
    ExpertWalk experts_;
    Tensors<T> tensors_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> in_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> out_;
    Buffer buffers_[3];
    FloatTensor wide_[3];
};

template <typename T>
__aicore__ inline void RunCube910b(AscendC::TPipe& pipe, const Data& data, const Arguments& arguments) {
    if ASCEND_IS_AIC {
        CubeSide<T> side(data);
        side.Init(pipe, arguments);
        side.Process();
        side.Release(pipe);
    }
    if ASCEND_IS_AIV {
        ActivationSide<T> side(data);
        side.Init(pipe, arguments);
        side.Process();
    }
}

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_CUBE_910B_PATH_H_
