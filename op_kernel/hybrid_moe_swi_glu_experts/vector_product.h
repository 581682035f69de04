// Products of weight tiles with few tokens on the vector unit, summed in fp32:
//   sums[m][t][row] = sum over columns of W_m[row, :] x[t, :]
// A tile is widened once and multiplied with every token. Of 64 products the eight blocks of eight are summed
// at once; those sums stand in planes [plane][row][8], one plane per 64 columns of a tile, and are added up
// over the tiles. Planes and blocks are summed when the last tile is done, in a fixed order.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PRODUCT_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PRODUCT_H_

#include "../common/buffers.h"
#include "../common/rows.h"
#include "walk.h"

namespace hybrid_ops {
namespace moe_experts {

using AscendC::LocalTensor;
using AscendC::PipeBarrier;

constexpr uint32_t kPlane = kUnitRows * kFloatBlock;             // elements of a plane
constexpr uint32_t kSums = kPlanes * kPlane;                     // of one matrix and token
constexpr uint32_t kWeightElements = kUnitRows * kTileColumns;   // of a tile
constexpr uint32_t kTokenElements = kTileTokens * kTileColumns;  // of a tile's tokens

template <typename T>
class VectorProduct {
 public:
    static constexpr bool kWiden = sizeof(T) == 2;
    static constexpr uint32_t kTogether = kWiden ? 2 : 1;  // tokens between the same barriers

    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        pipe.InitBuffer(queue_, 2, (kWeightElements + kTokenElements) * sizeof(T));
        Reserve(pipe, buffers_[0], product_, kTogether * kWeightElements);
        if constexpr (kWiden) Reserve(pipe, buffers_[1], wide_, kWeightElements);
        // Half a period of the banks apart from what they are multiplied with, or added to.
        Reserve(pipe, buffers_[2], tokens_, kTokenElements + kFloatLanes);
        tokens_ = tokens_[kFloatLanes];
        Reserve(pipe, buffers_[3], part_, kTogether * kSums);
        Reserve(pipe, buffers_[4], sums_, 2 * kTileTokens * kSums);
        Reserve(pipe, buffers_[5], result_, 2 * kTileTokens * kUnitRows);
    }

    // Tiles in flight: two. Weights of the tile's matrix, whose rows have `depth` columns; then, for the
    // first matrix, its tokens. Between the two may stand a barrier that the tokens wait for.
    __aicore__ inline LocalTensor<T> LoadWeights(const AscendC::GlobalTensor<T>& weights, const Tile& t,
                                                 uint32_t depth) {
        LocalTensor<T> tile = queue_.template AllocTensor<T>();
        LoadRows(tile, weights[uint64_t(t.row) * depth + t.column], t.rows, t.columns, depth, t.columns);
        return tile;
    }
    __aicore__ inline void LoadTokens(LocalTensor<T>& tile, const AscendC::GlobalTensor<T>& x, const Tile& t,
                                      uint32_t depth) {
        if (t.matrix == 0) {
            LoadRows(tile[kWeightElements], x[uint64_t(t.token) * depth + t.column], t.tokens, t.columns,
                     depth, t.columns);
        }
        queue_.EnQue(tile);
    }

    // Adds the oldest loaded tile to the sums; the first of a row of tiles starts them.
    __aicore__ inline void Multiply(const Tile& t) {
        LocalTensor<T> tile = queue_.template DeQue<T>();
        const uint32_t chunks = (t.columns + kFloatLanes - 1) / kFloatLanes;
        FloatTensor weights;
        if constexpr (kWiden) {
            AscendC::Cast(wide_, tile, AscendC::RoundMode::CAST_NONE, t.rows * t.columns);
            weights = wide_;
        } else {
            weights = tile;
        }
        if (t.matrix == 0) Convert(tokens_, tile[kWeightElements], t.tokens * t.columns);
        // Lanes behind the last column are summed with the others.
        if (t.columns % kFloatLanes != 0) {
            for (uint32_t i = 0; i < kTogether; ++i) {
                AscendC::Duplicate(product_[i * kWeightElements + (chunks - 1) * t.rows * kFloatLanes], 0.0f,
                                   int32_t(t.rows * kFloatLanes));
            }
        }
        PipeBarrier<PIPE_V>();
        if constexpr (kWiden) queue_.FreeTensor(tile);
        for (uint32_t i = 0; i < t.tokens; i += kTogether) {
            MultiplyTokens(t, i, t.tokens - i < kTogether ? t.tokens - i : kTogether, weights, chunks);
        }
        PipeBarrier<PIPE_V>();
        if constexpr (!kWiden) queue_.FreeTensor(tile);
    }

    // Result(m)[t * rows + row], after the last tile of `matrices` products.
    __aicore__ inline void Finish(const Tile& t, uint32_t depth, uint32_t matrices) {
        const uint32_t chunks = (depth + kFloatLanes - 1) / kFloatLanes;
        for (uint32_t planes = chunks < kPlanes ? chunks : kPlanes; planes > 1;) {
            const uint32_t upper = planes / 2;
            planes -= upper;
            for (uint32_t i = 0; i < matrices * t.tokens; ++i) {
                const FloatTensor sums = SumsOf(t, i);
                AscendC::Add(sums, sums, sums[planes * t.rows * kFloatBlock],
                             int32_t(upper * t.rows * kFloatBlock));
            }
            PipeBarrier<PIPE_V>();
        }
        for (uint32_t i = 0; i < matrices * t.tokens; ++i) {
            const uint32_t at = (i / t.tokens * kTileTokens * kUnitRows) + i % t.tokens * t.rows;
            AscendC::BlockReduceSum(result_[at], SumsOf(t, i), int32_t(t.rows / kFloatBlock),
                                    int32_t(kFloatLanes), 1, 1, 8);
        }
        PipeBarrier<PIPE_V>();
    }
    __aicore__ inline FloatTensor Result(uint32_t matrix) const {
        return result_[matrix * kTileTokens * kUnitRows];
    }

 private:
    // Tokens [first, first + n) of the tile.
    __aicore__ inline void MultiplyTokens(const Tile& t, uint32_t first, uint32_t n,
                                          const FloatTensor& weights, uint32_t chunks) {
        const int32_t rows = int32_t(chunks * t.rows);
        for (uint32_t i = 0; i < n; ++i) {
            const FloatTensor product = product_[i * kWeightElements];
            const FloatTensor token = tokens_[(first + i) * t.columns];
            for (uint32_t c = 0; c < chunks; ++c) {
                const uint32_t at = c * kFloatLanes, left = t.columns - at;
                AscendC::Mul(product[c * t.rows * kFloatLanes], weights[at], token[at],
                             uint64_t(left < kFloatLanes ? left : kFloatLanes), uint8_t(t.rows),
                             AscendC::BinaryRepeatParams(1, 1, 1, 8, uint8_t(t.columns / kFloatBlock), 0));
            }
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < n; ++i) {
            const FloatTensor sums = sums_[(t.matrix * kTileTokens + first + i) * kSums];
            AscendC::BlockReduceSum(t.column == 0 ? sums : part_[i * kSums], product_[i * kWeightElements],
                                    rows, int32_t(kFloatLanes), 1, 1, 8);
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < n && t.column != 0; ++i) {
            const FloatTensor sums = sums_[(t.matrix * kTileTokens + first + i) * kSums];
            AscendC::Add(sums, sums, part_[i * kSums], rows * int32_t(kFloatBlock));
        }
    }
    __aicore__ inline FloatTensor SumsOf(const Tile& t, uint32_t i) const {
        return sums_[(i / t.tokens * kTileTokens + i % t.tokens) * kSums];
    }

    AscendC::TQue<AscendC::TPosition::VECIN, 2> queue_;
    Buffer buffers_[6];
    FloatTensor product_, wide_, tokens_, part_, sums_, result_;
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_VECTOR_PRODUCT_H_
