// Results of a block on their way out: rows [row, row + rows) of its matrix lie in local memory in columns of
// fractals, [columns / 16][rows][16], fp32.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_RESULTS_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_RESULTS_H_

#include "fractal_softmax.h"

namespace hybrid_ops {
namespace paged {

using AscendC::GlobalTensor;

// What a core holds of a block.
struct Part {
    FloatTensor sums;
    uint32_t row, rows;  // rows: a multiple of 8
};

// The longest run of the part's rows from `row` on that belong to one query: its place among all rows (query,
// head) of the call, and its length; 0 at the end.
__aicore__ inline uint32_t RowRun(const Data& t, const Block& block, uint32_t row, uint32_t end,
                                  uint64_t& first) {
    if (end > block.rows) end = block.rows;
    if (row >= end) return 0;
    const uint32_t query = row / block.item.heads, head = row - query * block.item.heads;
    const uint32_t left = block.item.heads - head;
    first = uint64_t(block.item.query + query) * t.heads + block.item.firstHead + head;
    return end - row < left ? end - row : left;
}

// Rounded rows of the part, already divided by their denominators; `queue` has room for 16 rows.
template <typename T, class Queue>
__aicore__ inline void StoreResults(const Data& t, const Block& block, const Part& part, Queue& queue,
                                    const GlobalTensor<T>& out) {
    const uint32_t columns = t.valueDim / kSide;
    const AscendC::UnaryRepeatParams params(uint16_t(columns), 1, uint8_t(4 * columns), 8);
    for (uint32_t done = 0; done < part.rows && part.row + done < block.rows; done += kSide) {
        const uint32_t left = part.rows - done, count = left < kSide ? left : kSide;
        LocalTensor<T> rows = queue.template AllocTensor<T>();
        for (uint32_t c = 0; c < columns; ++c) {
            AscendC::Cast(rows[c * kSide], part.sums[(c * part.rows + done) * kSide], Soc::kNarrow,
                          uint64_t(kFloatLanes), uint8_t(count / 4), params);
        }
        queue.EnQue(rows);
        rows = queue.template DeQue<T>();
        const uint32_t begin = part.row + done;
        uint64_t first = 0;
        for (uint32_t r = begin, n = 0; (n = RowRun(t, block, r, begin + count, first)) != 0; r += n) {
            AscendC::DataCopy(out[first * t.valueDim], rows[(r - begin) * t.valueDim], n * t.valueDim);
        }
        queue.FreeTensor(rows);
    }
}

// Row (query, head, part of the history) of the workspace: sums as they are, maximum, denominator.
__aicore__ inline void StorePartials(const Data& t, const Block& block, const Part& part,
                                     FractalSoftmax& softmax, const GlobalTensor<float>& partials) {
    FloatTensor maxima, denominators;
    softmax.Statistics(maxima, denominators);
    Order<AscendC::HardEvent::V_MTE3>();
    const uint32_t lanes = t.rowFloats - 2 * kFloatBlock, step = t.splits * t.rowFloats / kFloatBlock;
    uint64_t first = 0;
    const uint32_t end = part.row + part.rows;
    for (uint32_t r = part.row, n = 0; (n = RowRun(t, block, r, end, first)) != 0; r += n) {
        const AscendC::DataCopyParams one(uint16_t(n), 1, 1, uint16_t(step - 1));
        const GlobalTensor<float> row = partials[(first * t.splits + block.item.part) * t.rowFloats];
        const uint32_t local = r - part.row, columns = t.valueDim / kSide;
        if (n < columns) {
            const AscendC::DataCopyParams whole(uint16_t(columns), 2, uint16_t(2 * part.rows - 2), 0);
            for (uint32_t i = 0; i < n; ++i) {
                AscendC::DataCopy(row[uint64_t(i) * t.splits * t.rowFloats], part.sums[(local + i) * kSide],
                                  whole);
            }
        } else {
            const AscendC::DataCopyParams two(uint16_t(n), 2, 0, uint16_t(step - 2));
            for (uint32_t c = 0; c < columns; ++c) {
                AscendC::DataCopy(row[c * kSide], part.sums[(c * part.rows + local) * kSide], two);
            }
        }
        AscendC::DataCopy(row[lanes], maxima[local * kSide], one);
        AscendC::DataCopy(row[lanes + kFloatBlock], denominators[local * kSide], one);
    }
    Order<AscendC::HardEvent::MTE3_V>();  // the next block begins with new sums
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_FRACTAL_RESULTS_H_
