// Rows that are shorter than a block of local memory, where moves cannot be padded (ascend310p): element by
// element through the scalar unit. Longer rows go to common/row_copy.h.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_SMALL_ROWS_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_SMALL_ROWS_H_

#include "../common/row_copy.h"

namespace hybrid_ops {
namespace paged {

template <typename T>
__aicore__ inline bool IsSmall(uint32_t n) {
    return !Soc::kPaddedMoves && n < LastBlock<T>::kBlock;
}

// LoadRows for rows of any length; lanes between n and `to` of a small row become zero. The destination must
// not be in use by the vector unit (a tensor that a queue has just given out).
template <typename T>
__aicore__ inline void LoadAnyRows(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                   uint32_t rows, uint32_t n, uint64_t from, uint32_t to) {
    if (!IsSmall<T>(n)) {
        LoadRows(dst, src, rows, n, from, to);
        return;
    }
    Order<AscendC::HardEvent::V_S>();
    for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < to; ++i) {
            dst.SetValue(r * to + i, i < n ? src.GetValue(r * from + i) : static_cast<T>(0));
        }
    }
    Order<AscendC::HardEvent::S_V>();
}

// StoreRows of contiguous rows of any length, `from` apart in local memory. Small ones need a core of their
// own.
template <typename T>
__aicore__ inline void StoreAnyRows(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                    uint32_t rows, uint32_t n, uint32_t from) {
    if (!IsSmall<T>(n)) {
        StoreRows(dst, src, rows, n, n, from);
        return;
    }
    Order<AscendC::HardEvent::V_S>();
    AscendC::GlobalTensor<T> target = dst;
    for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < n; ++i) target.SetValue(r * n + i, src.GetValue(r * from + i));
    }
    AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(target);
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_SMALL_ROWS_H_
