// Row-wise vector steps on fp32 matrices [n, pitch] in unified buffer, pitch a multiple of 16 up to 512, n <=
// 240.
#ifndef HYBRID_OPS_KERNEL_ROWS_H_
#define HYBRID_OPS_KERNEL_ROWS_H_

#include "soc.h"

namespace hybrid_ops {

using FloatTensor = AscendC::LocalTensor<float>;

struct Rows {
    uint32_t pitch, blocks, chunks, slots, levels;

    __aicore__ inline void Init(uint32_t rowPitch) {
        pitch = rowPitch;
        blocks = pitch / kFloatBlock;
        chunks = (pitch + kFloatLanes - 1) / kFloatLanes;
        slots = chunks <= 2 ? chunks : chunks <= 4 ? 4 : 8;
        levels = slots == 1 ? 1 : slots == 4 ? 3 : 2;
    }
    __aicore__ inline uint32_t Lanes(uint32_t chunk) const {
        return chunk + 1 < chunks ? kFloatLanes : pitch - chunk * kFloatLanes;
    }

    // dst[r, :] = src[r, :] * vec[:]
    __aicore__ inline void Scale(const FloatTensor& dst, const FloatTensor& src, const FloatTensor& vec,
                                 uint32_t n) const {
        const uint8_t step = static_cast<uint8_t>(blocks);
        for (uint32_t c = 0; c < chunks; ++c) {
            const uint32_t at = c * kFloatLanes;
            AscendC::Mul(dst[at], src[at], vec[at], uint64_t(Lanes(c)), uint8_t(n),
                         AscendC::BinaryRepeatParams(1, 1, 1, step, step, 0));
        }
    }
    // dst[r, :] = col[r] * vec[:]; col holds every value eight times
    __aicore__ inline void Outer(const FloatTensor& dst, const FloatTensor& col, const FloatTensor& vec,
                                 uint32_t n) const {
        const uint8_t step = static_cast<uint8_t>(blocks);
        for (uint32_t c = 0; c < chunks; ++c) {
            const uint32_t at = c * kFloatLanes;
            AscendC::Mul(dst[at], col, vec[at], uint64_t(Lanes(c)), uint8_t(n),
                         AscendC::BinaryRepeatParams(1, 0, 1, step, 1, 0));
        }
    }
    // As Outer for rows [row, row + n) of pitch 128, without bank conflicts: col[1] holds the same as col[0]
    // half a period of the banks off, and vec is half a period off col[0].
    __aicore__ inline void OuterApart(const FloatTensor& dst, const FloatTensor* col, const FloatTensor& vec,
                                      uint32_t row, uint32_t n) const {
        for (uint32_t r = row; r < row + n;) {
            const uint32_t next = r / 8 * 8 + 8, end = next < row + n ? next : row + n;
            for (uint32_t c = 0; c < 2; ++c) {
                AscendC::Mul(dst[r * pitch + c * kFloatLanes], col[(r / 8 & 1) ^ c][r * kFloatBlock],
                             vec[c * kFloatLanes], uint64_t(kFloatLanes), uint8_t(end - r),
                             AscendC::BinaryRepeatParams(1, 0, 1, 16, 1, 0));
            }
            r = end;
        }
    }
    // partial[r, slots, 8] = sums of eight lanes; lanes of absent blocks keep the zero they were initialised
    // with
    __aicore__ inline void SumBlocks(const FloatTensor& partial, const FloatTensor& src, uint32_t n) const {
        for (uint32_t c = 0; c < chunks; ++c) {
            AscendC::BlockReduceSum(partial[c * kFloatBlock], src[c * kFloatLanes], int32_t(n),
                                    int32_t(Lanes(c)), int32_t(slots), 1, int32_t(blocks));
        }
    }
    // Level `level` of the tree from partial sums to one value per row; the last of `levels` leaves dst[r].
    __aicore__ inline void SumLevel(uint32_t level, const FloatTensor& dst, const FloatTensor& src,
                                    uint32_t n) const {
        if (level == 0) {
            AscendC::BlockReduceSum(dst, src, int32_t((n * slots + 7) / 8), int32_t(kFloatLanes), 1, 1, 8);
        } else if (slots == 8) {
            AscendC::BlockReduceSum(dst, src, int32_t((n + 7) / 8), int32_t(kFloatLanes), 1, 1, 8);
        } else {
            const uint32_t values = n * (slots >> (level - 1));
            AscendC::PairReduceSum(dst, src, int32_t((values + kFloatLanes - 1) / kFloatLanes),
                                   int32_t(kFloatLanes), 1, 1, 8);
        }
    }
    // Lanes [width, pitch) of each row become `value`; width is in the last 16 lanes.
    __aicore__ inline void FillPad(const FloatTensor& dst, uint32_t width, float value, uint32_t n) const {
        uint64_t mask[2] = {0xffffull & ~((1ull << (width % 16)) - 1), 0};
        AscendC::Duplicate(dst[width / 16 * 16], value, mask, uint8_t(n), 1, uint8_t(blocks));
    }
};

// col[8 * r + i] = vec[r]: one instruction where it exists, else a gather through `table` (see
// FillBroadcastTable).
__aicore__ inline void BroadcastColumn(const FloatTensor& col, const FloatTensor& vec,
                                       const AscendC::LocalTensor<uint32_t>& table, uint32_t n) {
    if constexpr (Soc::kBroadcast) {
        AscendC::Brcb(col, vec, uint8_t((n + 7) / 8), AscendC::BrcbRepeatParams(1, 8));
    } else {
        AscendC::Gather(col, vec, table, uint32_t(0), n * kFloatBlock);
    }
}

// table[0 .. length) repeated: part p holds first part + p * step, for `parts` parts (byte offsets).
__aicore__ inline void FillTable(const AscendC::LocalTensor<int32_t>& table, uint32_t length, uint32_t parts,
                                 int32_t step) {
    for (uint32_t done = 1; done < parts; done *= 2) {
        const uint32_t more = done < parts - done ? done : parts - done;
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Adds(table[done * length], table, int32_t(done) * step, int32_t(more * length));
    }
    AscendC::PipeBarrier<PIPE_V>();
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_ROWS_H_
