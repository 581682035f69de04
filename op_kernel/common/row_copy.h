// Moves of contiguous elements whose number need not fill 32-byte blocks, never touching a byte outside them.
//
// With padded moves (ascend910b) that is one DataCopyPad. Without (ascend310p) the whole blocks are moved
// first, then the last 32 bytes once more: in local memory this "last block" stands right behind the whole
// blocks, so that element i >= Whole(n) is found at i + Shift(n), and a buffer holds Staged(n) elements. Both
// need n elements >= 32 bytes.
#ifndef HYBRID_OPS_KERNEL_ROW_COPY_H_
#define HYBRID_OPS_KERNEL_ROW_COPY_H_

#include "soc.h"

namespace hybrid_ops {

template <typename T>
struct LastBlock {
    static constexpr uint32_t kBlock = kBlockBytes / sizeof(T);
    __aicore__ static inline uint32_t Whole(uint32_t n) { return n / kBlock * kBlock; }
    __aicore__ static inline uint32_t Shift(uint32_t n) { return n % kBlock == 0 ? 0 : kBlock - n % kBlock; }
    __aicore__ static inline uint32_t Staged(uint32_t n) {
        return Soc::kPaddedMoves ? n : RoundUp(n, kBlock);
    }
};

template <typename T>
__aicore__ inline void LoadElements(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                    uint32_t n) {
    using Tail = LastBlock<T>;
    const uint32_t whole = Tail::Whole(n);
    if constexpr (Soc::kPaddedMoves) {
        if (whole != n) {
            AscendC::DataCopyPad(dst, src, AscendC::DataCopyExtParams{1, uint32_t(n * sizeof(T)), 0, 0, 0},
                                 AscendC::DataCopyPadExtParams<T>{false, 0, 0, 0});
            return;
        }
    }
    if (whole != 0) AscendC::DataCopy(dst, src, AscendC::DataCopyParams(1, whole / Tail::kBlock, 0, 0));
    if (whole != n) {
        AscendC::DataCopy(dst[whole], src[n - Tail::kBlock], AscendC::DataCopyParams(1, 1, 0, 0));
    }
}

template <typename T>
__aicore__ inline void StoreElements(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                     uint32_t n) {
    using Tail = LastBlock<T>;
    const uint32_t whole = Tail::Whole(n);
    if constexpr (Soc::kPaddedMoves) {
        if (whole != n) {
            AscendC::DataCopyPad(dst, src, AscendC::DataCopyExtParams{1, uint32_t(n * sizeof(T)), 0, 0, 0});
            return;
        }
    }
    if (whole != 0) AscendC::DataCopy(dst, src, AscendC::DataCopyParams(1, whole / Tail::kBlock, 0, 0));
    if (whole != n) {
        AscendC::PipeBarrier<PIPE_MTE3>();  // both moves write the elements they share
        AscendC::DataCopy(dst[n - Tail::kBlock], src[whole], AscendC::DataCopyParams(1, 1, 0, 0));
    }
}

// `rows` rows of n elements, `from` elements apart in global memory and `to` apart in local memory.
template <typename T>
__aicore__ inline void LoadRows(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                uint32_t rows, uint32_t n, uint64_t from, uint32_t to) {
    constexpr uint32_t kBlock = LastBlock<T>::kBlock;
    if (n % kBlock == 0 && (from - n) % kBlock == 0 && (from - n) / kBlock <= 65535) {
        AscendC::DataCopy(dst, src,
                          AscendC::DataCopyParams(rows, n / kBlock, (from - n) / kBlock, (to - n) / kBlock));
        return;
    }
    if constexpr (Soc::kPaddedMoves) {
        const uint32_t filled = RoundUp(n, kBlock);
        AscendC::DataCopyPad(
            dst, src,
            AscendC::DataCopyExtParams{uint16_t(rows), uint32_t(n * sizeof(T)),
                                       uint32_t((from - n) * sizeof(T)), (to - filled) / kBlock, 0},
            AscendC::DataCopyPadExtParams<T>{true, 0, uint8_t(filled - n), static_cast<T>(0)});
    } else {
        for (uint32_t r = 0; r < rows; ++r) LoadElements(dst[r * to], src[r * from], n);
    }
}

// `rows` rows of n elements, `to` elements apart in global memory and `from` apart in local memory.
template <typename T>
__aicore__ inline void StoreRows(const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                 uint32_t rows, uint32_t n, uint64_t to, uint32_t from) {
    constexpr uint32_t kBlock = LastBlock<T>::kBlock;
    if (n % kBlock == 0 && (to - n) % kBlock == 0 && (to - n) / kBlock <= 65535) {
        AscendC::DataCopy(dst, src,
                          AscendC::DataCopyParams(rows, n / kBlock, (from - n) / kBlock, (to - n) / kBlock));
        return;
    }
    if constexpr (Soc::kPaddedMoves) {
        AscendC::DataCopyPad(dst, src,
                             AscendC::DataCopyExtParams{uint16_t(rows), uint32_t(n * sizeof(T)),
                                                        (from - RoundUp(n, kBlock)) / kBlock,
                                                        uint32_t((to - n) * sizeof(T)), 0});
    } else {
        for (uint32_t r = 0; r < rows; ++r) StoreElements(dst[r * to], src[r * from], n);
    }
}

// A slice of a tensor that may be smaller than a block. Element i of the slice is staged at index At(i).
template <typename T>
struct Slice {
    uint32_t whole, shift, extent;  // extent: staged elements
    __aicore__ inline uint32_t At(uint32_t i) const { return i < whole ? i : i + shift; }

    __aicore__ inline void Load(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                uint64_t first, uint32_t n, uint64_t total) {
        constexpr uint32_t kBlock = LastBlock<T>::kBlock;
        whole = Soc::kPaddedMoves ? n : n / kBlock * kBlock;
        shift = 0;
        extent = n;
        if constexpr (Soc::kPaddedMoves) {
            LoadElements(dst, src[first], n);
        } else if (whole == n || total >= kBlock) {
            if (whole != 0)
                AscendC::DataCopy(dst, src[first], AscendC::DataCopyParams(1, whole / kBlock, 0, 0));
            if (whole == n) return;
            const uint64_t last = first + n < kBlock ? 0 : first + n - kBlock;
            AscendC::DataCopy(dst[whole], src[last], AscendC::DataCopyParams(1, 1, 0, 0));
            shift = uint32_t(whole + first - last);
            extent = whole + kBlock;
        } else {
            // The whole tensor is smaller than a block: no move can read it.
            Order<AscendC::HardEvent::V_S>();
            for (uint32_t i = 0; i < n; ++i) dst.SetValue(i, src.GetValue(first + i));
            Order<AscendC::HardEvent::S_V>();
        }
    }
};

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_ROW_COPY_H_
