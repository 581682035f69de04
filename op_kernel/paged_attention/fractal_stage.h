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
    // Two buffers of `elements` halves for rows, at least 16 of the widest matrix, and two of `fractals`.
    __aicore__ inline void Init(AscendC::TPipe& pipe, Cube310p& cube, uint32_t elements, uint32_t fractals) {
        cube_ = &cube;
        elements_ = elements;
        fractalElements_ = fractals;
        pipe.InitBuffer(rows_, 2, elements * sizeof(half));
        pipe.InitBuffer(fractals_, 2, fractals * sizeof(half));
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
        const uint32_t fit =
            fractalElements_ / (columns < kColumns ? columns : kColumns) / kFractal * kFractal;
        most_ = most < kMostRows ? most : kMostRows;
        if (most_ > fit) most_ = fit;
        row_ = staged_ = 0;
    }
    // Rows that a chunk holds: what is put in one call, to have it under way.
    __aicore__ inline uint32_t MostRows() const { return most_; }
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
            if (staged_ == most_) Close();
        }
    }
    // No more rows; those up to the next multiple of 16 become zero. The last chunk may still be under way.
    __aicore__ inline void Close() {
        if (staged_ == 0) return;
        rows_.EnQue(buffer_);
        Drain();
        waiting_ = {tile_, columns_, row_, staged_};
        row_ += staged_;
        staged_ = 0;
    }
    // All of the matrix is on its way to L1.
    __aicore__ inline void End() {
        Close();
        Drain();
    }
    // Room for results on their way out, as the fractals use it.
    __aicore__ inline AscendC::TQue<AscendC::TPosition::VECOUT, 2>& Out() { return fractals_; }

 private:
    static constexpr uint32_t kColumns = 128;   // of a repeat
    static constexpr uint32_t kMostRows = 240;  // repeat counts and strides are 8 bits wide

    // Rows that were asked for, and come to the vector unit after the next ones are on their way too.
    struct Chunk {
        CubeTile* tile = nullptr;
        uint32_t columns = 0, row = 0, rows = 0;
    };

    __aicore__ inline void Drain() {
        using AscendC::LocalTensor;
        const Chunk chunk = waiting_;
        if (chunk.rows == 0) return;
        waiting_.rows = 0;
        const uint32_t columns = chunk.columns, n = RoundUp(chunk.rows, kFractal);
        LocalTensor<half> rows = rows_.DeQue<half>();
        if (n != chunk.rows) {
            AscendC::Duplicate(rows[chunk.rows * columns], half(0), int32_t((n - chunk.rows) * columns));
            AscendC::PipeBarrier<PIPE_V>();
        }
        const LocalTensor<int16_t> from = rows.ReinterpretCast<int16_t>();
        const uint32_t fit = fractalElements_ / n / kColumns * kColumns,
                       most = fit < kColumns ? kColumns : fit;
        for (uint32_t at = 0; at < columns; at += most) {
            const uint32_t some = columns - at < most ? columns - at : most;
            LocalTensor<half> fractals = fractals_.AllocTensor<half>();
            const LocalTensor<int16_t> to = fractals.ReinterpretCast<int16_t>();
            for (uint32_t c = 0; c < some; c += kColumns) {
                const uint32_t lanes = some - c < kColumns ? some - c : kColumns;
                AscendC::Adds(to[c * n], from[at + c], int16_t(0), uint64_t(lanes), uint8_t(n),
                              AscendC::UnaryRepeatParams(uint16_t(n), 1, 1, uint8_t(columns / kFractal)));
            }
            if (at + some == columns) rows_.FreeTensor(rows);
            fractals_.EnQue(fractals);
            fractals = fractals_.DeQue<half>();
            cube_->FillBlock(*chunk.tile, fractals, n, chunk.row, some, at);
            fractals_.FreeTensor(fractals);
        }
    }

    Cube310p* cube_;
    CubeTile* tile_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> rows_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> fractals_;
    AscendC::LocalTensor<half> buffer_;
    Chunk waiting_;
    uint32_t elements_, fractalElements_, columns_, most_, row_, staged_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_STAGE_H_
