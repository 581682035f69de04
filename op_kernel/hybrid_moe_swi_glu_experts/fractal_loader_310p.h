// Rows in global memory to columns of fractals in L1, and fractals to rows, on ascend310p. A move from one to
// the other fetches 32 bytes at a time; here whole rows come to unified buffer, one piece ahead, the vector
// unit puts their blocks in order, and the piece goes to L1 in long bursts.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_FRACTAL_LOADER_310P_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_FRACTAL_LOADER_310P_H_

#include "../common/cube_310p.h"

namespace hybrid_ops {
namespace moe_experts {

// Strides between blocks and between rows of them, in blocks.
struct BlockSteps {
    uint32_t block, row;
};

// dst <- `rows` rows of `blocks` blocks of 16 values of 16 bits, as bits, each where the strides say.
__aicore__ inline void MoveBlocks(const AscendC::LocalTensor<int16_t>& dst,
                                  const AscendC::LocalTensor<int16_t>& src, uint32_t rows, uint32_t blocks,
                                  const BlockSteps& to, const BlockSteps& from) {
    constexpr uint32_t kBlocks = 8;  // of a repeat
    const AscendC::UnaryRepeatParams steps(uint16_t(to.block), uint16_t(from.block), uint8_t(to.row),
                                           uint8_t(from.row));
    for (uint32_t at = 0; at < blocks; at += kBlocks) {
        const uint32_t n = blocks - at < kBlocks ? blocks - at : kBlocks;
        AscendC::Adds(dst[at * to.block * kFractal], src[at * from.block * kFractal], int16_t(0),
                      uint64_t(n * kFractal), uint8_t(rows), steps);
    }
}

// Tiles are loaded to slots: a slot's tiles are ready, and its room is free, together.
template <uint32_t kSlots, uint32_t kColumns>
class FractalLoader310p {
 public:
    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        pipe.InitBuffer(rows_, 2, kRows * kColumns * sizeof(half));
        pipe.InitBuffer(fractals_, 2, (kRows + 1) * kColumns * sizeof(half));
        for (uint32_t i = 0; i < kSlots; ++i) {
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE3_MTE1>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE1_MTE3>());
            AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE3>(used_[i]);
        }
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kSlots; ++i) {
            AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE3>(used_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE3_MTE1>(loaded_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE1_MTE3>(used_[i]);
        }
    }

    // tile <- [n, columns], rows `pitch` elements apart in global memory; rows up to a whole fractal become
    // zero. opens, closes: the first and the last tile of the slot.
    __aicore__ inline void Load(CubeTile& tile, const AscendC::GlobalTensor<half>& src, uint32_t n,
                                uint32_t columns, uint32_t pitch, uint32_t slot, bool opens, bool closes) {
        tile.rows = RoundUp(n, kFractal);
        for (uint32_t row = 0; row < n; row += kRows) {
            const uint32_t rows = n - row < kRows ? n - row : kRows;
            AscendC::LocalTensor<half> local = rows_.template AllocTensor<half>();
            AscendC::DataCopy(local, src[uint64_t(row) * pitch],
                              AscendC::DataCopyParams(uint16_t(rows), uint16_t(columns / kFractal),
                                                      uint16_t((pitch - columns) / kFractal), 0));
            rows_.EnQue(local);
            Flush();
            piece_ = {&tile, row, rows, columns, slot, opens && row == 0, closes && row + rows == n};
        }
    }
    // What is on its way to unified buffer goes on to L1.
    __aicore__ inline void Flush() {
        if (piece_.tile == nullptr) return;
        const uint32_t height = RoundUp(piece_.rows, kFractal), columns = piece_.columns;
        AscendC::LocalTensor<half> rows = rows_.template DeQue<half>();
        AscendC::LocalTensor<half> fractals = fractals_.template AllocTensor<half>();
        const AscendC::LocalTensor<int16_t> dst = fractals.template ReinterpretCast<int16_t>();
        if (height != piece_.rows) {
            AscendC::Duplicate(dst, int16_t(0), int32_t((height + 1) * columns));
            AscendC::PipeBarrier<PIPE_V>();
        }
        const uint32_t blocks = columns / kFractal;
        MoveBlocks(dst, rows.template ReinterpretCast<int16_t>(), piece_.rows, blocks, {height + 1, 1},
                   {1, blocks});
        rows_.FreeTensor(rows);
        fractals_.EnQue(fractals);
        fractals = fractals_.template DeQue<half>();
        if (piece_.opens) AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE3>(used_[piece_.slot]);
        AscendC::DataCopy(piece_.tile->data[piece_.row * kFractal], fractals,
                          AscendC::DataCopyParams(uint16_t(blocks), uint16_t(height), 1,
                                                  uint16_t(piece_.tile->rows - height)));
        fractals_.FreeTensor(fractals);
        if (piece_.closes) AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE1>(loaded_[piece_.slot]);
        piece_.tile = nullptr;
    }

    // MTE1 may read the slot; it has read it.
    __aicore__ inline void Await(uint32_t slot) {
        AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE1>(loaded_[slot]);
    }
    __aicore__ inline void Free(uint32_t slot) {
        AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE3>(used_[slot]);
    }

 private:
    static constexpr uint32_t kRows = 64;  // of a piece

    struct Piece {
        CubeTile* tile;
        uint32_t row, rows, columns, slot;
        bool opens, closes;
    };

    AscendC::TQue<AscendC::TPosition::VECIN, 2> rows_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> fractals_;
    event_t loaded_[kSlots], used_[kSlots];
    Piece piece_{};
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_FRACTAL_LOADER_310P_H_
