// How pages keep the rows of a cache. ND: a slot has its rows, one a kv head, side by side. NZ: a page has
// columns of 16 elements, kv head after kv head, each with one entry a slot.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_PAGES_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_PAGES_H_

#include "walk.h"

namespace hybrid_ops {
namespace paged {

constexpr uint32_t kColumn = 16;  // elements of an NZ column

enum class Layout { kNd, kNz };

// Element at which the row of a slot and kv head begins.
template <Layout kLayout>
__aicore__ inline uint64_t RowAt(const Data& t, int64_t slot, uint32_t kvHead, uint32_t dim) {
    if constexpr (kLayout == Layout::kNd) {
        return (uint64_t(slot) * t.kvHeads + kvHead) * dim;
    } else {
        const uint64_t page = uint64_t(slot) / t.pageSize, offset = uint64_t(slot) - page * t.pageSize;
        return (page * t.kvHeads + kvHead) * dim * t.pageSize + offset * kColumn;
    }
}

// `n` slots of one page as rows of a matrix in L1 in columns of fractals that are `height` high; `src` is
// where the first row begins (RowAt). 16-bit elements only.
template <typename T>
__aicore__ inline void LoadNzColumns(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                     uint32_t n, uint32_t dim, uint32_t pageSize, uint32_t height) {
    AscendC::DataCopy(dst, src,
                      AscendC::DataCopyParams(uint16_t(dim / kColumn), uint16_t(n), uint16_t(pageSize - n),
                                              uint16_t(height - n)));
}

// The same as rows in unified buffer, `pitch` elements apart.
template <typename T>
__aicore__ inline void LoadNzRows(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                  uint32_t n, uint32_t dim, uint32_t pageSize, uint32_t pitch) {
    constexpr uint32_t kBlock = kBlockBytes / sizeof(T);
    for (uint32_t c = 0; c < dim; c += kColumn) {
        AscendC::DataCopy(
            dst[c], src[uint64_t(c) * pageSize],
            AscendC::DataCopyParams(uint16_t(n), kColumn / kBlock, 0, uint16_t((pitch - kColumn) / kBlock)));
    }
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_PAGES_H_
