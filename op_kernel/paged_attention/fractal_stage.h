// Rows of global memory to a matrix in L1 (ascend310p): rows are loaded whole into unified buffer, where the
// vector unit orders them in columns of fractals at one repeat per 256 bytes; moving 32 bytes a row instead
// would take a cycle for each.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_STAGE_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_STAGE_H_

#include "../common/cube_310p.h"

namespace hybrid_ops {
namespace paged {

class FractalStage {
 public:
    // Two buffers of `elements` halves for rows and two for fractals: at least 16 rows of the widest matrix.
    __aicore__ inline void Init(AscendC::TPipe& pipe, Cube310p& cube, uint32_t elements) {
        cube_ = &cube;
        elements_ = elements;
        pipe.InitBuffer(rows_, 2, elements * sizeof(half));
        pipe.InitBuffer(fractals_, 2, elements * sizeof(half));
    }
    __aicore__ inline void Release() {
        rows_.FreeAllEvent();
        fractals_.FreeAllEvent();
    }

    // The matrix of `columns` columns begins with what is put next.
    __aicore__ inline void Begin(CubeTile& tile, uint32_t columns) {
        tile_ = &tile;
        columns_ = columns;
        const uint32_t most = elements_ / columns / kFractal * kFractal;
        most_ = most < kMostRows ? most : kMostRows;
        row_ = staged_ = 0;
    }
    // n more rows, `pitch` elements apart, columns and pitch multiples of 16.
    __aicore__ inline void Put(const AscendC::GlobalTensor<half>& src, uint32_t n, uint64_t pitch) {
        for (uint32_t done = 0; done < n;) {
            if (staged_ == 0) buffer_ = rows_.AllocTensor<half>();
            const uint32_t some = n - done < most_ - staged_ ? n - done : most_ - staged_;
            AscendC::DataCopy(buffer_[staged_ * columns_], src[done * pitch],
                              AscendC::DataCopyParams(uint16_t(some), uint16_t(columns_ / kFractal),
                                                      uint16_t((pitch - columns_) / kFractal), 0));
            staged_ += some;
            done += some;
            if (staged_ == most_) Flush();
        }
    }
    // Rows up to the next multiple of 16 become zero.
    __aicore__ inline void End() {
        if (staged_ != 0) Flush();
    }
    // Room for results on their way out, as the fractals use it.
    __aicore__ inline AscendC::TQue<AscendC::TPosition::VECOUT, 2>& Out() { return fractals_; }

 private:
    static constexpr uint32_t kMostRows = 240;  // repeat counts and strides are 8 bits wide

    __aicore__ inline void Flush() {
        using AscendC::LocalTensor;
        rows_.EnQue(buffer_);
        LocalTensor<half> rows = rows_.DeQue<half>();
        const uint32_t n = RoundUp(staged_, kFractal);
        if (n != staged_) {
            AscendC::Duplicate(rows[staged_ * columns_], half(0), int32_t((n - staged_) * columns_));
            AscendC::PipeBarrier<PIPE_V>();
        }
        LocalTensor<half> fractals = fractals_.AllocTensor<half>();
        const LocalTensor<int16_t> from = rows.ReinterpretCast<int16_t>(),
                                   to = fractals.ReinterpretCast<int16_t>();
        for (uint32_t c = 0; c < columns_; c += 128) {
            const uint32_t lanes = columns_ - c < 128 ? columns_ - c : 128;
            AscendC::Adds(to[c * n], from[c], int16_t(0), uint64_t(lanes), uint8_t(n),
                          AscendC::UnaryRepeatParams(uint16_t(n), 1, 1, uint8_t(columns_ / kFractal)));
        }
        rows_.FreeTensor(rows);
        fractals_.EnQue(fractals);
        fractals = fractals_.DeQue<half>();
        cube_->FillBlock(*tile_, fractals, n, row_, columns_);
        fractals_.FreeTensor(fractals);
        row_ += staged_;
        staged_ = 0;
    }

    Cube310p* cube_;
    CubeTile* tile_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> rows_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> fractals_;
    AscendC::LocalTensor<half> buffer_;
    uint32_t elements_, columns_, most_, row_, staged_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_STAGE_H_
