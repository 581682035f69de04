// Rows of x to where the slots of their tokens have them, and zero rows.
#ifndef HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_ROW_MOVES_H_
#define HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_ROW_MOVES_H_

#include "../hybrid_moe_init_routing_tiling.h"

#include "../common/buffers.h"
#include "../common/flat_store.h"

namespace hybrid_ops {
namespace routing {

template <typename T>
class RowMoves {
    using IntTensor = AscendC::LocalTensor<int32_t>;

 public:
    __aicore__ inline explicit RowMoves(const HybridMoeInitRoutingTilingData& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR x, GM_ADDR expanded) {
        x_.SetGlobalBuffer((__gm__ T*)x);
        expanded_.SetGlobalBuffer((__gm__ T*)expanded);
        pipe.InitBuffer(tiles_, 2, RoundUp(t_.tileWidth * sizeof(T), kBlockBytes) + 2 * kBlockBytes);
        Reserve(pipe, buffer_, zeros_, RoundUp(t_.tileWidth, kBlockBytes) + kBlockBytes);
    }
    // Columns [column, last) of a token to the rows that rows[slot] and those behind it name; none where -1.
    __aicore__ inline void Copy(uint64_t token, const IntTensor& rows, uint32_t slot, uint64_t column,
                                uint64_t last) {
        if (Narrow()) {
            CopyNarrow(token, rows, slot);
            return;
        }
        for (uint64_t at = column; at < last;) {
            const uint32_t n = Width(last - at);
            AscendC::LocalTensor<T> tile = tiles_.template AllocTensor<T>();
            LoadElements(tile, x_[token * t_.width + at], n);
            tiles_.EnQue(tile);
            tile = tiles_.template DeQue<T>();
            for (uint32_t j = 0; j < t_.perToken; ++j) {
                const int32_t row = rows.GetValue(slot + j);
                if (row >= 0) StoreElements(expanded_[uint64_t(row) * t_.width + at], tile, n);
            }
            tiles_.FreeTensor(tile);
            at += n;
        }
    }
    __aicore__ inline void Clear(uint64_t from, uint64_t to) {
        if (from == to) return;
        AscendC::Duplicate(zeros_, static_cast<T>(0.0f),
                           int32_t(RoundUp(t_.tileWidth, kBlockBytes) + kBlockBytes));
        Order<AscendC::HardEvent::V_MTE3>();
        for (uint64_t row = from; row < to; ++row) {
            for (uint64_t at = 0; at < t_.width;) {
                const uint32_t n = Width(t_.width - at);
                if (Narrow()) {
                    for (uint32_t c = 0; c < n; ++c)
                        expanded_.SetValue(row * t_.width + c, static_cast<T>(0.0f));
                } else {
                    StoreElements(expanded_[row * t_.width + at], zeros_, n);
                }
                at += n;
            }
        }
    }
    // After the last row.
    __aicore__ inline void Finish() {
        if (Narrow()) AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(expanded_);
    }

 private:
    // No move carries a row: its elements are worked on one by one.
    __aicore__ inline bool Narrow() const { return !Soc::kPaddedMoves && t_.width < LastBlock<T>::kBlock; }
    // Columns of the next tile, leaving none or at least a block.
    __aicore__ inline uint32_t Width(uint64_t left) const {
        if (left <= t_.tileWidth) return uint32_t(left);
        const uint64_t rest = left - t_.tileWidth;
        return rest < LastBlock<T>::kBlock ? t_.tileWidth - LastBlock<T>::kBlock : t_.tileWidth;
    }
    __aicore__ inline void CopyNarrow(uint64_t token, const IntTensor& rows, uint32_t slot) {
        for (uint32_t j = 0; j < t_.perToken; ++j) {
            const int32_t row = rows.GetValue(slot + j);
            for (uint32_t c = 0; row >= 0 && c < t_.width; ++c)
                expanded_.SetValue(uint64_t(row) * t_.width + c, x_.GetValue(token * t_.width + c));
        }
    }

    const HybridMoeInitRoutingTilingData& t_;
    AscendC::GlobalTensor<T> x_, expanded_;
    AscendC::TQueBind<AscendC::TPosition::VECIN, AscendC::TPosition::VECOUT, 2> tiles_;
    Buffer buffer_;
    AscendC::LocalTensor<T> zeros_;
};

}  // namespace routing
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_INIT_ROUTING_ROW_MOVES_H_
