// A run of elements from local to global memory, whatever their number; used where a run is the whole tensor
// or fills at least a block.
#ifndef HYBRID_OPS_KERNEL_FLAT_STORE_H_
#define HYBRID_OPS_KERNEL_FLAT_STORE_H_

#include "row_copy.h"

namespace hybrid_ops {

// dst[0, n) = src[0, n), after all vector work on src. Without padded moves src has room for a block more,
// and a tensor smaller than a block is written by the scalar unit of one core.
template <typename T>
__aicore__ inline void StoreFlat(AscendC::GlobalTensor<T> dst, const AscendC::LocalTensor<T>& src,
                                 uint32_t n) {
    constexpr uint32_t kBlock = LastBlock<T>::kBlock;
    const uint32_t whole = LastBlock<T>::Whole(n);
    if (Soc::kPaddedMoves || whole == n) {
        Order<AscendC::HardEvent::V_MTE3>();
        StoreElements(dst, src, n);
        return;
    }
    Order<AscendC::HardEvent::V_S>();
    if (n < kBlock) {
        for (uint32_t i = 0; i < n; ++i) dst.SetValue(i, src.GetValue(i));
        AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(dst);
        return;
    }
    for (uint32_t i = kBlock; i-- > 0;) src.SetValue(whole + i, src.GetValue(n - kBlock + i));
    Order<AscendC::HardEvent::S_MTE3>();
    StoreElements(dst, src, n);
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_FLAT_STORE_H_
