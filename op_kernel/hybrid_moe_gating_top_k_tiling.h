// Work split and local memory of hybrid_moe_gating_top_k, shared by host, kernel and simulator: plain data,
// no CANN.
//
// A row of keys is laid out as groups of sorted lists: the sort unit orders lists of 32 (16 on ascend310p)
// keys, a merge takes four lists, or the last two or three. Groups and rows are padded to counts that merges
// reduce to one.
#ifndef HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_TILING_H_
#define HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_TILING_H_

#include <cstdint>

struct HybridMoeGatingTopKTilingData {
    uint64_t rows;
    uint32_t experts, k;
    uint32_t groups, selectedGroups, groupExperts;
    uint32_t groupPitch;  // keys of a group in local memory
    uint32_t groupSlots;  // groups of a row in local memory
    uint32_t pitch;       // groupPitch * groupSlots
    uint32_t groupRow;    // pitch of a row of group scores; 0: one group
    uint32_t kPitch;      // k rounded up to whole blocks
    uint32_t unitRows;    // fewest rows of a core: their outputs fill a block
    uint32_t tileRows;    // rows worked on at once
    uint32_t bestTwo, sigmoid, normalise, hasBias;
    float scale;
};

struct HybridMoeGatingTopKPlan {
    HybridMoeGatingTopKTilingData data;
    uint32_t blockDim;
};

struct HybridMoeGatingTopKShape {
    int64_t rows, experts, k, groups, selectedGroups;
    bool bestTwo, sigmoid, normalise, hasBias;
    float scale;
    uint32_t logitBytes;
};

struct HybridMoeGatingTopKPlatform {
    uint32_t cores;
    uint32_t ubBytes;
    bool paddedMoves;  // and the sort unit of ascend910b
};

namespace hybrid_ops {
namespace gating {

constexpr uint32_t kLanes = 64;   // fp32 lanes of a repeat
constexpr uint32_t kBlock = 8;    // fp32 lanes of a block
constexpr uint32_t kAlign = 256;  // bytes; what the sort unit writes in one go
constexpr uint32_t kMostRows = 64;
constexpr uint32_t kBytesOfBlock = 32;
constexpr uint32_t kReserved = 1024;  // bytes that are left to the runtime

inline constexpr uint32_t RoundUpTo(uint32_t value, uint32_t unit) {
    return (value + unit - 1) / unit * unit;
}
inline constexpr uint32_t Aligned(uint32_t bytes) { return RoundUpTo(bytes, kAlign); }

// The least count of at least n that is a power of four, twice or three times one.
inline uint32_t MergeableLists(uint32_t n) {
    for (uint32_t power = 1;; power *= 4) {
        for (uint32_t times = 1; times <= 3; ++times) {
            if (power * times >= n) return power * times;
        }
    }
}

// Elements (4 bytes unless said) of the local buffers for n rows, in the order they are laid out in.
struct Layout {
    uint32_t list, record;  // keys of a sorted list; floats of a sorted entry
    uint32_t flat, spread, keys, labels, records;
    uint32_t groupScores, groupRecords, groupWide, groupTable, groupList;
    uint32_t chosen, biasList, flatten, columns, wide, vector;

    Layout(const HybridMoeGatingTopKTilingData& t, uint32_t n, bool paddedMoves) {
        list = paddedMoves ? 32 : 16;
        record = paddedMoves ? 2 : 8;
        flat = n * t.experts + kLanes;
        spread = n * t.pitch;
        keys = n * t.pitch;
        labels = n * t.pitch;
        records = n * t.pitch * record;
        groupScores = RoundUpTo(n * t.groupRow, kLanes);
        groupRecords = groupScores * record;
        groupWide = groupScores * kBlock;
        groupTable = paddedMoves ? 0 : groupWide;  // one instruction broadcasts there
        chosen = n * t.kPitch + kLanes;
        biasList = t.hasBias != 0 ? chosen : 0;
        flatten = n > 1 && t.k != t.kPitch ? chosen : 0;
        columns = RoundUpTo(n, kBlock);
        groupList = t.groups == 1 ? 0 : RoundUpTo(t.groups, kBlock);
        wide = n * kLanes;
        vector = RoundUpTo(t.pitch, kLanes);
    }
    uint32_t WorkBytes() const {
        return Aligned(flat * 4) + Aligned(spread * 4) + Aligned(keys * 4) + Aligned(labels * 4) +
               2 * Aligned(records * 4) + 8 * Aligned(groupScores * 4) + Aligned(vector / 4) +
               2 * Aligned(groupRecords * 4) + Aligned(groupWide * 4) + Aligned(groupTable * 4) +
               2 * Aligned(groupScores) + 4 * Aligned(chosen * 4) + 2 * Aligned(biasList * 4) +
               Aligned(flatten * 4) + 7 * Aligned(columns * 4) + Aligned(groupList * 4) +
               3 * Aligned(columns * kBlock * 4) + Aligned(wide * 4) + 2 * Aligned(vector * 4);
    }
    // Logits, weights and numbers, each twice.
    uint32_t QueueBytes(uint32_t logitBytes) const {
        return 2 * (Aligned(flat * logitBytes) + Aligned(chosen * logitBytes) + Aligned(chosen * 4));
    }
};

inline uint32_t LocalBytes(const HybridMoeGatingTopKTilingData& t, uint32_t n, bool paddedMoves,
                           uint32_t logitBytes) {
    const Layout layout(t, n, paddedMoves);
    return layout.WorkBytes() + layout.QueueBytes(logitBytes);
}

}  // namespace gating
}  // namespace hybrid_ops

inline HybridMoeGatingTopKPlan PlanHybridMoeGatingTopK(const HybridMoeGatingTopKShape& s,
                                                       const HybridMoeGatingTopKPlatform& chip) {
    using namespace hybrid_ops::gating;
    HybridMoeGatingTopKPlan plan{};
    HybridMoeGatingTopKTilingData& t = plan.data;
    const uint32_t list = chip.paddedMoves ? 32 : 16;
    t.rows = uint64_t(s.rows);
    t.experts = uint32_t(s.experts);
    t.k = uint32_t(s.k);
    t.groups = uint32_t(s.groups);
    t.selectedGroups = uint32_t(s.selectedGroups);
    t.groupExperts = t.experts / t.groups;
    t.groupPitch = list * MergeableLists((t.groupExperts + list - 1) / list);
    t.groupSlots = MergeableLists(t.groups);
    t.pitch = t.groupPitch * t.groupSlots;
    // Bars every slot of a row, also those that hold no group.
    t.groupRow = t.groups == 1 ? 0 : list * MergeableLists((t.groupSlots + list - 1) / list);
    t.kPitch = RoundUpTo(t.k, kBlock);
    t.bestTwo = s.bestTwo;
    t.sigmoid = s.sigmoid;
    t.normalise = s.normalise;
    t.hasBias = s.hasBias;
    t.scale = s.scale;
    const uint32_t perBlock = kBytesOfBlock / s.logitBytes;
    t.unitRows = chip.paddedMoves ? 1 : (perBlock + t.k - 1) / t.k;
    const uint64_t units = t.rows / t.unitRows;
    plan.blockDim = units == 0 ? 1 : units < chip.cores ? uint32_t(units) : chip.cores;
    // The last core also has the rows that fill no unit.
    const uint64_t share = (units + plan.blockDim - 1) / plan.blockDim * t.unitRows + t.unitRows - 1;
    t.tileRows = 1;
    while (t.tileRows < kMostRows && t.tileRows < share &&
           LocalBytes(t, t.tileRows + 1, chip.paddedMoves, s.logitBytes) + kReserved <= chip.ubBytes) {
        ++t.tileRows;
    }
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_MOE_GATING_TOP_K_TILING_H_
