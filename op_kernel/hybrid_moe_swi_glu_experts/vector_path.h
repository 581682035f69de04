// Both phases on the vector units. Weights are streamed once per kTileTokens rows of an expert.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PATH_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PATH_H_

#include "activation.h"
#include "arguments.h"
#include "vector_product.h"

namespace hybrid_ops {
namespace moe_experts {

template <typename T>
class VectorPath {
 public:
    __aicore__ inline explicit VectorPath(const Data& data) : t_(data), experts_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        tensors_.Init(t_, a);
        product_.Init(pipe);
        pipe.InitBuffer(outQueue_, 2, kTileTokens * kUnitRows * sizeof(T));
        Reserve(pipe, buffers_[0], work_, kTileTokens * kUnitRows);
        barrier_.Init(pipe, a.workspace);
        experts_.Init(pipe, a.offsets);
    }

    __aicore__ inline void Process() {
        ZeroRows(0, experts_.First());
        ZeroRows(experts_.End(), t_.rows);
        {
            Phase<true> up(*this);
            up.Begin();
            up.Run();
        }
        Phase<false> down(*this);
        down.Begin();  // weights come while the others finish
        barrier_.Wait();
        down.Run();
    }

 private:
    // kUp: act <- silu(gate x) * (up x). Else y <- down act. Tiles arrive while earlier ones are worked on.
    template <bool kUp>
    class Phase {
     public:
        __aicore__ inline explicit Phase(VectorPath& path)
            : path_(path),
              height_(kUp ? path.t_.inner : path.t_.hidden),
              depth_(kUp ? path.t_.hidden : path.t_.inner),
              now_(path.experts_, height_, depth_, kMatrices),
              ahead_(now_) {}

        // Weights of the first tiles.
        __aicore__ inline void Begin() {
            for (begun_ = 0; begun_ < 2 && ahead_.Live(); ++begun_) LoadWeights(begun_);
        }
        __aicore__ inline void Run() {
            for (uint32_t i = 0; i < begun_; ++i) LoadTokens(i);
            while (now_.Live()) {
                const Tile tile = now_.Now();
                path_.product_.Multiply(tile);
                if (ahead_.Live()) {
                    LoadWeights(0);
                    LoadTokens(0);
                }
                if (tile.last) {
                    path_.product_.Finish(tile, depth_, kMatrices);
                    path_.template Store<kUp>(tile, height_);
                }
                now_.Advance();
            }
        }

     private:
        static constexpr uint32_t kMatrices = kUp ? 2 : 1;

        __aicore__ inline void LoadWeights(uint32_t i) {
            const Tensors<T>& tensors = path_.tensors_;
            tile_[i] = ahead_.Now();
            const uint32_t expert = tile_[i].expert.index;
            loaded_[i] = path_.product_.LoadWeights(
                kUp ? tensors.Projection(expert, tile_[i].matrix) : tensors.Down(expert), tile_[i], depth_);
            ahead_.Advance();
        }
        __aicore__ inline void LoadTokens(uint32_t i) {
            path_.product_.LoadTokens(loaded_[i], kUp ? path_.tensors_.x : path_.tensors_.act, tile_[i],
                                      depth_);
        }

        VectorPath& path_;
        const uint32_t height_, depth_;
        TileWalk<kUnitRows, kTileTokens, kTileColumns, true> now_, ahead_;
        Tile tile_[2];
        LocalTensor<T> loaded_[2];
        uint32_t begun_;
    };

    template <bool kUp>
    __aicore__ inline void Store(const Tile& t, uint32_t width) {
        const uint32_t n = t.tokens * t.rows;
        LocalTensor<T> out = outQueue_.template AllocTensor<T>();
        if constexpr (kUp) {
            SwiGlu(out, product_.Result(0), product_.Result(1), work_, n);
        } else {
            Convert(out, product_.Result(0), n);
        }
        outQueue_.EnQue(out);
        out = outQueue_.template DeQue<T>();
        const AscendC::GlobalTensor<T>& to = kUp ? tensors_.act : tensors_.y;
        StoreRows(to[uint64_t(t.token) * width + t.row], out, t.tokens, t.rows, width, t.rows);
        outQueue_.FreeTensor(out);
    }

    // y rows of no expert.
    __aicore__ inline void ZeroRows(uint32_t begin, uint32_t end) {
        const uint32_t cores = AscendC::GetBlockNum(), core = AscendC::GetBlockIdx();
        constexpr uint32_t kMost = kTileTokens * kUnitRows;
        for (uint32_t row = begin + core; row < end; row += cores) {
            for (uint32_t done = 0; done < t_.hidden; done += kMost) {
                const uint32_t left = t_.hidden - done, n = left < kMost ? left : kMost;
                LocalTensor<T> zeros = outQueue_.template AllocTensor<T>();
                AscendC::Duplicate(zeros.template ReinterpretCast<int16_t>(), int16_t(0),
                                   int32_t(n * sizeof(T) / sizeof(int16_t)));
                outQueue_.EnQue(zeros);
                zeros = outQueue_.template DeQue<T>();
                StoreElements(tensors_.y[uint64_t(row) * t_.hidden + done], zeros, n);
                outQueue_.FreeTensor(zeros);
            }
        }
    }

    const Data t_;
    ExpertWalk experts_;
    Tensors<T> tensors_;
    VectorProduct<T> product_;
    CoreBarrier<> barrier_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> outQueue_;
    Buffer buffers_[1];
    FloatTensor work_;
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PATH_H_
