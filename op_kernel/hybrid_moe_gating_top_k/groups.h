// Selection of groups. The keys of every group are sorted already; those of groups that are not selected fall
// to -inf in their records, which keeps their order.
#ifndef HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_GROUPS_H_
#define HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_GROUPS_H_

#include "work.h"

namespace hybrid_ops {
namespace gating {

class Groups {
 public:
    __aicore__ inline Groups(const Data& t, Work& w) : t_(t), w_(w) {}

    __aicore__ inline void Prepare() {
        const uint32_t all = RoundUp(t_.tileRows * t_.groupRow, kFloatLanes);
        for (uint32_t i = 0; i < 2; ++i)
            AscendC::Duplicate(w_.groupRecords[i], 0.0f, int32_t(all * Records::kFloats));
        AscendC::Duplicate(w_.groupScore, kBarred, int32_t(all));
        AscendC::Duplicate(w_.groupSecond, kBarred, int32_t(all));
        AscendC::Duplicate(w_.groupShut, 0.0f, int32_t(all));
        AscendC::Duplicate(w_.groupBest, 0.0f, int32_t(all));
        AscendC::Duplicate(w_.groupOpen, 0.0f, int32_t(all));
        AscendC::Duplicate(w_.groupClosed, kBarred, int32_t(all));
        AscendC::Duplicate(w_.groupNumber, 0.0f, int32_t(all));
        // First record of each group of a row, and the last record of a row that is selected.
        const IntTensor table = w_.groupTable.ReinterpretCast<int32_t>();
        AscendC::CreateVecIndex(table, 0, t_.groups);
        AscendC::CreateVecIndex(w_.rowTable, 0, t_.tileRows);
        for (uint32_t r = 0; r < t_.tileRows; ++r) {
            AscendC::CreateVecIndex(w_.groupLabels[r * t_.groupRow], static_cast<Records::Number>(0),
                                    t_.groupRow);
        }
        PipeBarrier<PIPE_V>();
        AscendC::Muls(table, table, int32_t(t_.groupPitch * Records::kBytes), int32_t(t_.groups));
        AscendC::Muls(w_.rowTable, w_.rowTable, int32_t(t_.groupRow * Records::kBytes), int32_t(t_.tileRows));
        PipeBarrier<PIPE_V>();
        AscendC::Adds(w_.rowTable, w_.rowTable, int32_t((t_.selectedGroups - 1) * Records::kBytes),
                      int32_t(t_.tileRows));
        NumbersAsFloat(w_.groupNumber, w_.groupLabels, t_.tileRows * t_.groupRow);
        if constexpr (!Soc::kBroadcast) {
            const IntTensor wide = w_.wideTable.ReinterpretCast<int32_t>();
            AscendC::Duplicate(wide, 0, int32_t(kFloatBlock));
            FillTable(wide, kFloatBlock, all, int32_t(sizeof(float)));
        }
        PipeBarrier<PIPE_V>();
    }

    // records: [n, groupSlots, groupPitch], sorted in each group.
    __aicore__ inline void Shut(const FloatTensor& records, uint32_t n) {
        const uint32_t scores = n * t_.groupRow;
        ScoreGroups(records, n);
        SortLists(w_.groupRecords[0], w_.groupRecords[1], w_.groupScore, w_.groupLabels,
                  scores / Records::kList);
        FloatTensor sorted = w_.groupRecords[0], other = w_.groupRecords[1];
        MergeLists(sorted, other, n, t_.groupRow / Records::kList, Records::kList, t_.groupRow);
        // The worst selected group of each row: groups before it, in score then in number, are selected too.
        const LocalTensor<uint32_t> table = w_.rowTable.ReinterpretCast<uint32_t>();
        const uint32_t score = Records::kScore * sizeof(float), number = Records::kNumber * sizeof(float);
        AscendC::Gather(w_.rowFirst, sorted, table, score, n);
        if constexpr (Records::kShort) {
            const IntTensor numbers = w_.rowSecond.ReinterpretCast<int32_t>();
            AscendC::Gather(numbers, sorted.ReinterpretCast<int32_t>(), table, number, n);
            PipeBarrier<PIPE_V>();
            AscendC::Cast(w_.rowSecond, numbers, AscendC::RoundMode::CAST_NONE, n);
        } else {
            AscendC::Gather(w_.rowSecond, sorted, table, number, n);
        }
        PipeBarrier<PIPE_V>();
        Compare(n);
        Bar(records, n);
    }

 private:
    __aicore__ inline void ScoreGroups(const FloatTensor& records, uint32_t n) {
        const uint32_t rowBytes = t_.pitch * Records::kBytes, score = Records::kScore * sizeof(float);
        for (uint32_t r = 0; r < n; ++r) {
            AscendC::Gather(w_.groupScore[r * t_.groupRow], records, w_.groupTable, r * rowBytes + score,
                            t_.groups);
            if (t_.bestTwo == 0) continue;
            AscendC::Gather(w_.groupSecond[r * t_.groupRow], records, w_.groupTable,
                            r * rowBytes + score + Records::kBytes, t_.groups);
        }
        PipeBarrier<PIPE_V>();
        const int32_t all = int32_t(n * t_.groupRow);
        if (t_.bestTwo != 0) {
            AscendC::Add(w_.groupScore, w_.groupScore, w_.groupSecond, all);
            PipeBarrier<PIPE_V>();
        }
    }

    // dst[r, :] = column[r]
    __aicore__ inline void Expand(const FloatTensor& dst, const FloatTensor& column, uint32_t n) {
        for (uint32_t at = 0; at < t_.groupRow; at += kFloatLanes) {
            const uint32_t lanes = t_.groupRow - at < kFloatLanes ? t_.groupRow - at : kFloatLanes;
            AscendC::Adds(dst[at], column, 0.0f, uint64_t(lanes), uint8_t(n),
                          UnaryRepeatParams(1, 0, uint8_t(t_.groupRow / kFloatBlock), 1));
        }
    }

    // groupShut: 0 for a selected group, else -inf.
    __aicore__ inline void Compare(uint32_t n) {
        constexpr AscendC::SELMODE kMode = AscendC::SELMODE::VSEL_TENSOR_TENSOR_MODE;
        const uint32_t all = RoundUp(n * t_.groupRow, kFloatLanes);
        const FloatTensor &best = w_.groupBest, &last = w_.groupShut, &tied = w_.groupRecords[0];
        BroadcastColumn(w_.column, w_.rowFirst, w_.columnTable, n);
        BroadcastColumn(w_.partial, w_.rowSecond, w_.columnTable, n);
        PipeBarrier<PIPE_V>();
        Expand(best, w_.column, n);
        Expand(last, w_.partial, n);
        PipeBarrier<PIPE_V>();
        AscendC::Compare(w_.better, w_.groupNumber, last, AscendC::CMPMODE::LE, all);
        AscendC::Compare(w_.equal, w_.groupScore, best, AscendC::CMPMODE::EQ, all);
        PipeBarrier<PIPE_V>();
        AscendC::Select(tied, w_.better, w_.groupOpen, w_.groupClosed, kMode, all);
        PipeBarrier<PIPE_V>();
        AscendC::Compare(w_.better, w_.groupScore, best, AscendC::CMPMODE::GT, all);
        PipeBarrier<PIPE_V>();
        AscendC::Select(last, w_.better, w_.groupOpen, w_.groupClosed, kMode, all);
        PipeBarrier<PIPE_V>();
        AscendC::Select(w_.groupShut, w_.equal, tied, last, kMode, all);
        PipeBarrier<PIPE_V>();
    }

    // Adds groupShut to the scores of each group's records.
    __aicore__ inline void Bar(const FloatTensor& records, uint32_t n) {
        constexpr uint64_t kScores = Records::kShort ? 0x5555555555555555ull : 0x1010101010101010ull;
        uint64_t mask[2] = {kScores, 0};
        BroadcastColumn(w_.groupWide, w_.groupShut, w_.wideTable, n * t_.groupRow);
        PipeBarrier<PIPE_V>();
        const uint32_t group = t_.groupPitch * Records::kFloats, step = group / kFloatBlock;
        const bool together = step <= kMostStride;
        for (uint32_t r = 0; r < n; ++r) {
            for (uint32_t g = 0; g < t_.groupSlots; g += together ? t_.groupSlots : 1) {
                const FloatTensor& shut = w_.groupWide[(r * t_.groupRow + g) * kFloatBlock];
                for (uint32_t at = 0; at < group; at += kFloatLanes) {
                    const FloatTensor& part = records[(r * t_.groupSlots + g) * group + at];
                    const uint8_t apart = together ? uint8_t(step) : 0;
                    AscendC::Add(part, part, shut, mask, uint8_t(together ? t_.groupSlots : 1),
                                 AscendC::BinaryRepeatParams(1, 1, 0, apart, apart, 1));
                }
            }
        }
        PipeBarrier<PIPE_V>();
    }

    const Data& t_;
    Work& w_;
};

}  // namespace gating
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_GROUPS_H_
