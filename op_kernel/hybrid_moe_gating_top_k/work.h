// Local memory of hybrid_moe_gating_top_k and the tables that do not change between tiles.
#ifndef HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_WORK_H_
#define HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_WORK_H_

#include "../hybrid_moe_gating_top_k_tiling.h"

#include "../common/buffers.h"
#include "../common/flat_store.h"
#include "../common/rows.h"
#include "../common/sort_records.h"

namespace hybrid_ops {
namespace gating {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using AscendC::UnaryRepeatParams;
using Data = HybridMoeGatingTopKTilingData;
using IntTensor = LocalTensor<int32_t>;

constexpr float kLargest = 3.402823466e38f;
constexpr float kMostBias = kLargest / 4;
constexpr float kBarred = -__builtin_inff();
constexpr uint32_t kMostStride = 255;  // blocks between repeats

struct Work {
    FloatTensor flat, spread, keys;       // [n, E]; [n, pitch] with pads that never win; [n, pitch]
    LocalTensor<Records::Number> labels;  // expert of each position
    FloatTensor records[2];
    FloatTensor groupScore, groupSecond, groupShut, groupBest, groupNumber;  // [n, groupRow]
    LocalTensor<Records::Number> groupLabels;
    FloatTensor groupRecords[2], groupWide;
    LocalTensor<uint32_t> groupTable, wideTable;
    FloatTensor groupOpen, groupClosed;
    LocalTensor<uint8_t> better, equal, sound;
    FloatTensor chosen, compact;  // [n, kPitch]; [n, k]
    IntTensor experts, offsets;   // [n, kPitch]: numbers; byte offsets of their scores in flat
    IntTensor pick, flatten, rowBase;
    FloatTensor sum, lost, maximum, divisor, rowFirst, rowSecond;  // per row
    IntTensor rowTable;
    FloatTensor partial, column;        // [n, 8]
    LocalTensor<uint32_t> columnTable;  // [n, 8]
    FloatTensor fold;                   // [n, 64]
    FloatTensor bias, pads;             // [pitch]
    LocalTensor<uint32_t> spreadTable;  // [pitch], in records: made anew for each tile

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& t) {
        const Layout size(t, t.tileRows, Soc::kPaddedMoves);
        pipe.InitBuffer(buffer_, size.WorkBytes());
        Carve(flat, size.flat);
        Carve(spread, size.spread);
        Carve(keys, size.keys);
        Carve(labels, size.labels);
        for (uint32_t i = 0; i < 2; ++i) Carve(records[i], size.records);
        Carve(groupScore, size.groupScores);
        Carve(groupSecond, size.groupScores);
        Carve(groupShut, size.groupScores);
        Carve(groupBest, size.groupScores);
        Carve(groupLabels, size.groupScores);
        Carve(groupNumber, size.groupScores);
        Carve(groupOpen, size.groupScores);
        Carve(groupClosed, size.groupScores);
        for (uint32_t i = 0; i < 2; ++i) Carve(groupRecords[i], size.groupRecords);
        Carve(groupWide, size.groupWide);
        Carve(wideTable, size.groupTable);
        Carve(better, size.groupScores);
        Carve(equal, size.groupScores);
        Carve(sound, size.vector / 4);
        Carve(chosen, size.chosen);
        Carve(compact, size.chosen);
        Carve(experts, size.chosen);
        Carve(offsets, size.biasList);
        Carve(pick, size.chosen);
        Carve(flatten, size.flatten);
        Carve(rowBase, size.biasList);
        Carve(sum, size.columns);
        Carve(lost, size.columns);
        Carve(maximum, size.columns);
        Carve(divisor, size.columns);
        Carve(rowFirst, size.columns);
        Carve(rowSecond, size.columns);
        Carve(rowTable, size.columns);
        Carve(groupTable, size.groupList);
        Carve(partial, size.columns * kBlock);
        Carve(column, size.columns * kBlock);
        Carve(columnTable, size.columns * kBlock);
        Carve(fold, size.wide);
        Carve(bias, size.vector);
        Carve(pads, size.vector);
        spreadTable = records[1].ReinterpretCast<uint32_t>();
    }

 private:
    template <typename T>
    __aicore__ inline void Carve(LocalTensor<T>& tensor, uint32_t elements) {
        const uint32_t bytes = elements * sizeof(T);
        tensor = buffer_.GetWithOffset<T>(elements, at_);
        at_ += RoundUp(bytes, kAlign);
    }

    Buffer buffer_;
    uint32_t at_ = 0;
};

}  // namespace gating
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_WORK_H_
