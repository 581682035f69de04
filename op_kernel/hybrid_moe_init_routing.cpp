// Counting sort of slots by expert, and the rows that go with them. A row of x is read once and written once
// per active slot of its token.
#include "hybrid_moe_init_routing/count_scan.h"
#include "hybrid_moe_init_routing/row_moves.h"

namespace hybrid_ops {
namespace routing {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using Data = HybridMoeInitRoutingTilingData;
using IntTensor = LocalTensor<int32_t>;
using IntGlobal = AscendC::GlobalTensor<int32_t>;

template <typename T>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data) : t_(data), moves_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR x, GM_ADDR experts, GM_ADDR expanded,
                                GM_ADDR rows, GM_ADDR offsets, GM_ADDR slots, GM_ADDR rowExperts,
                                GM_ADDR workspace) {
        moves_.Init(pipe, x, expanded);
        experts_.SetGlobalBuffer((__gm__ int32_t*)experts);
        rowIdx_.SetGlobalBuffer((__gm__ int32_t*)rows);
        offsetsOut_.SetGlobalBuffer((__gm__ int32_t*)offsets);
        slotsOut_.SetGlobalBuffer((__gm__ int32_t*)slots);
        rowExpertsOut_.SetGlobalBuffer((__gm__ int32_t*)rowExperts);
        sharedCounts_.SetGlobalBuffer((__gm__ int32_t*)workspace);
        Reserve(pipe, buffers_[0], ids_, t_.chunkRoom);
        Reserve(pipe, buffers_[1], rows_, t_.chunkRoom);
        Reserve(pipe, buffers_[2], counts_, t_.expertPitch);
        Reserve(pipe, buffers_[3], next_, t_.expertPitch);
        Reserve(pipe, buffers_[4], offsets_, t_.expertPitch);
        const uint32_t window = t_.windowRows + kWindowRoom;
        Reserve(pipe, buffers_[5], windowSlots_, window < kWideSlots ? kWideSlots : window);
        Reserve(pipe, buffers_[6], windowExperts_, window);
        if (t_.chunks == 1) Reserve(pipe, buffers_[7], slotOffsets_, t_.chunkRoom);
        scan_.Init(pipe, t_.expertPitch);
        if (t_.shared == 0) return;
        Reserve(pipe, buffers_[8], others_, t_.countRows * t_.expertPitch);
        Reserve(pipe, buffers_[9], wideSlots_, kWideSlots * kBlock);
        Reserve(pipe, buffers_[10], wideExperts_, kWideSlots * kBlock);
    }

    __aicore__ inline void Process() {
        const uint32_t core = AscendC::GetBlockIdx();
        range_ = core / t_.parts;
        part_ = core % t_.parts;
        const bool alone = t_.chunks == 1;  // the one chunk is everybody's, its tokens are not
        const uint64_t units = alone ? t_.tokens : t_.chunks;
        const uint64_t begin = range_ * units / t_.ranges, end = (range_ + 1) * units / t_.ranges;
        firstToken_ = alone ? begin : begin * t_.chunkTokens;
        lastToken_ = alone ? end : end == t_.chunks ? t_.tokens : end * t_.chunkTokens;
        AscendC::Duplicate(counts_, 0, int32_t(t_.expertPitch));
        Order<HardEvent::V_S>();
        if (t_.shared != 0) {
            for (uint64_t c = begin; c < end; ++c) Count(uint32_t(c));
            ShareCounts();
        } else {
            for (uint32_t c = 0; c < t_.chunks; ++c) Count(c);
        }
        MakeOffsets(core == 0);
        if (t_.shared != 0) {
            for (uint64_t c = begin; c < end; ++c) {
                Assign(uint32_t(c));
                Copy(uint32_t(c));
                if (part_ != 0) continue;
                ScatterMaps(uint32_t(c));
                StoreRows(uint32_t(c));
            }
            StoreIdleMaps(core);
        } else {
            MakeMaps(core);
        }
        ClearIdleRows(core);
        moves_.Finish();
    }

 private:
    static constexpr uint32_t kWindowRoom = 24;  // rows of an almost empty next window, and a repeated block
    static constexpr uint32_t kWideSlots = 256;

    __aicore__ inline uint64_t FirstSlot(uint32_t chunk) const {
        return uint64_t(chunk) * t_.chunkTokens * t_.perToken;
    }
    __aicore__ inline uint32_t Slots(uint32_t chunk) const {
        const uint64_t end = chunk + 1 == t_.chunks ? t_.slots : FirstSlot(chunk + 1);
        return uint32_t(end - FirstSlot(chunk));
    }
    __aicore__ inline bool Active(int32_t expert) const {
        return expert >= 0 && uint32_t(expert) < t_.experts;
    }

    __aicore__ inline void LoadExperts(uint32_t chunk) {
        if (loaded_ == int64_t(chunk)) return;
        loaded_ = chunk;
        Order<HardEvent::S_MTE2>();
        slice_.Load(ids_, experts_, FirstSlot(chunk), Slots(chunk), t_.slots);
        Order<HardEvent::MTE2_S>();
    }

    // Of the only chunk also the rank of each slot among those of its expert, and a number for idle slots.
    __aicore__ inline void Count(uint32_t chunk) {
        LoadExperts(chunk);
        const uint32_t n = Slots(chunk);
        const bool ranks = t_.chunks == 1;
        for (uint32_t i = 0; i < n; ++i) {
            const int32_t expert = ids_.GetValue(slice_.At(i));
            const bool active = Active(expert);
            const int32_t rank = active ? counts_.GetValue(expert) : -1;
            if (active) counts_.SetValue(expert, rank + 1);
            if (!ranks) continue;
            rows_.SetValue(i, rank);
            ids_.SetValue(i, active ? expert : int32_t(t_.experts));
        }
    }

    // counts_ becomes that of all ranges, next_ that of the ranges before this one. A core does not read back
    // what it wrote itself.
    __aicore__ inline void ShareCounts() {
        if (part_ == 0) {
            Order<HardEvent::S_MTE3>();
            AscendC::DataCopy(sharedCounts_[range_ * t_.expertPitch], counts_, t_.expertPitch);
        }
        if constexpr (Soc::kPaddedMoves) AscendC::SyncAll();
        if (part_ != 0) AscendC::Duplicate(counts_, 0, int32_t(t_.expertPitch));
        AscendC::Duplicate(next_, 0, int32_t(t_.expertPitch));
        AddCounts(0, range_, true);
        AddCounts(part_ == 0 ? range_ + 1 : range_, t_.ranges, false);
        Order<HardEvent::V_S>();
    }
    __aicore__ inline void AddCounts(uint32_t from, uint32_t to, bool before) {
        for (uint32_t first = from; first < to; first += t_.countRows) {
            const uint32_t n = to - first < t_.countRows ? to - first : t_.countRows;
            Order<HardEvent::V_MTE2>();
            AscendC::DataCopy(others_, sharedCounts_[first * t_.expertPitch], n * t_.expertPitch);
            Order<HardEvent::MTE2_V>();
            for (uint32_t r = 0; r < n; ++r) {
                const IntTensor& row = others_[r * t_.expertPitch];
                PipeBarrier<PIPE_V>();
                AscendC::Add(counts_, counts_, row, int32_t(t_.expertPitch));
                if (before) AscendC::Add(next_, next_, row, int32_t(t_.expertPitch));
            }
        }
    }

    // offsets_: first row of each expert; next_: the row of this core's next slot of each expert.
    __aicore__ inline void MakeOffsets(bool store) {
        scan_.Run(offsets_, counts_);
        if (t_.shared != 0) {
            AscendC::Add(next_, next_, offsets_, int32_t(t_.expertPitch));
        } else {
            AscendC::Adds(next_, offsets_, 0, int32_t(t_.expertPitch));
        }
        Order<HardEvent::V_S>();
        active_ = uint64_t(offsets_.GetValue(t_.experts));
        if (store) {
            Order<HardEvent::S_MTE3>();
            StoreFlat(offsetsOut_, offsets_, t_.experts + 1);
            Order<HardEvent::MTE3_S>();
            // Offsets behind the whole blocks, where a repeated last block took their place.
            const uint32_t n = t_.experts + 1, whole = LastBlock<int32_t>::Whole(n);
            for (uint32_t e = whole; !Soc::kPaddedMoves && whole != 0 && e < n; ++e)
                offsets_.SetValue(e, offsets_.GetValue(whole + kBlock + e - n));
        }
    }

    // Expanded rows of the chunk's slots, -1 for an inactive one; slots of the window's rows.
    __aicore__ inline void Assign(uint32_t chunk, uint64_t low = 0, uint32_t windowRows = 0) {
        LoadExperts(chunk);
        Order<HardEvent::MTE3_S>();
        const uint32_t n = Slots(chunk);
        const uint64_t slot = FirstSlot(chunk);
        for (uint32_t i = 0; i < n; ++i) {
            const int32_t expert = ids_.GetValue(slice_.At(i));
            int32_t row = -1;
            if (Active(expert)) {
                row = next_.GetValue(expert);
                next_.SetValue(expert, row + 1);
            }
            rows_.SetValue(i, row);
            const int64_t at = int64_t(row) - int64_t(low);
            if (at < 0 || at >= int64_t(windowRows)) continue;
            windowSlots_.SetValue(uint32_t(at), int32_t(slot + i));
            windowExperts_.SetValue(uint32_t(at), expert);
        }
    }
    // As Assign for the only chunk, from its ranks: a rank of -1 on top of 0 is an idle slot's row.
    __aicore__ inline void AddRanks(uint64_t low, uint32_t windowRows) {
        const uint32_t n = Slots(0);
        if (n == 0) return;
        Order<HardEvent::MTE3_S>();
        next_.SetValue(t_.experts, 0);
        Order<HardEvent::S_V>();
        const IntTensor at = slotOffsets_;
        AscendC::Muls(at, ids_, int32_t(sizeof(int32_t)), int32_t(n));
        PipeBarrier<PIPE_V>();
        AscendC::Gather(at, next_, at.ReinterpretCast<uint32_t>(), uint32_t(0), n);
        PipeBarrier<PIPE_V>();
        AscendC::Add(rows_, rows_, at, int32_t(n));
        Order<HardEvent::V_S>();
        for (uint32_t i = 0; windowRows != 0 && i < n; ++i) {
            const int64_t row = int64_t(rows_.GetValue(i)) - int64_t(low);
            if (row < 0 || row >= int64_t(windowRows)) continue;
            windowSlots_.SetValue(uint32_t(row), int32_t(i));
            windowExperts_.SetValue(uint32_t(row), ids_.GetValue(i));
        }
    }
    // Last: a repeated last block takes the place of the rows behind the whole ones.
    __aicore__ inline void StoreRows(uint32_t chunk) {
        Order<HardEvent::S_MTE3>();
        StoreFlat(rowIdx_[FirstSlot(chunk)], rows_, Slots(chunk));
    }

    // Maps by expanded row, element by element: padded moves take four bytes, from a block each.
    __aicore__ inline void ScatterMaps(uint32_t chunk) {
        const uint32_t n = Slots(chunk);
        const AscendC::DataCopyExtParams one(1, sizeof(int32_t), 0, 0, 0);
        for (uint32_t i = n; i % kBlock != 0; ++i) ids_.SetValue(i, 0);
        Order<HardEvent::S_V>();
        for (uint32_t first = 0; first < n; first += kWideSlots) {
            const uint32_t count = n - first < kWideSlots ? n - first : kWideSlots;
            Order<HardEvent::MTE3_V>();
            Order<HardEvent::MTE2_V>();
            AscendC::CreateVecIndex(windowSlots_, int32_t(FirstSlot(chunk) + first), kWideSlots);
            PipeBarrier<PIPE_V>();
            const uint8_t repeats = uint8_t((count + kBlock - 1) / kBlock);
            AscendC::Brcb(wideSlots_, windowSlots_, repeats, AscendC::BrcbRepeatParams(1, 8));
            AscendC::Brcb(wideExperts_, ids_[first], repeats, AscendC::BrcbRepeatParams(1, 8));
            Order<HardEvent::V_MTE3>();
            for (uint32_t i = 0; i < count; ++i) {
                const int32_t row = rows_.GetValue(first + i);
                if (row < 0) continue;
                if constexpr (Soc::kPaddedMoves) {
                    AscendC::DataCopyPad(slotsOut_[row], wideSlots_[i * kBlock], one);
                    AscendC::DataCopyPad(rowExpertsOut_[row], wideExperts_[i * kBlock], one);
                }
            }
        }
    }

    // Maps by expanded row, a window of rows at a time, from a walk over all slots.
    __aicore__ inline void MakeMaps(uint32_t core) {
        const uint64_t units = t_.slots / kBlock, cores = AscendC::GetBlockNum();
        uint64_t low = core * units / cores * kBlock;
        const uint64_t end = core + 1 == cores ? t_.slots : (core + 1) * units / cores * kBlock;
        for (bool first = true; first || low < end; first = false) {
            const uint64_t left = end - low;
            const uint32_t rows = left < t_.windowRows + kBlock ? uint32_t(left) : t_.windowRows;
            OpenWindow();
            for (uint32_t e = 0; !first && e < t_.experts; ++e) next_.SetValue(e, offsets_.GetValue(e));
            for (uint32_t c = 0; c < t_.chunks; ++c) {
                if (t_.chunks == 1) {
                    AddRanks(low, rows);
                } else {
                    Assign(c, low, rows);
                }
                if (!first) continue;
                if (t_.chunks == 1 || Mine(c)) Copy(c);
                if (t_.chunks == 1 ? core == 0 : Mine(c) && part_ == 0) StoreRows(c);
            }
            StoreWindow(low, rows);
            low += rows;
        }
    }
    __aicore__ inline bool Mine(uint32_t chunk) const {
        const uint64_t token = uint64_t(chunk) * t_.chunkTokens;
        return token >= firstToken_ && token < lastToken_;
    }
    __aicore__ inline void OpenWindow() {
        Order<HardEvent::MTE3_V>();
        AscendC::Duplicate(windowSlots_, -1, int32_t(t_.windowRows + kWindowRoom));
        AscendC::Duplicate(windowExperts_, int32_t(t_.experts), int32_t(t_.windowRows + kWindowRoom));
        Order<HardEvent::V_S>();
    }
    __aicore__ inline void StoreWindow(uint64_t low, uint32_t rows) {
        if (rows == 0) return;
        Order<HardEvent::S_MTE3>();
        StoreFlat(slotsOut_[low], windowSlots_, rows);
        StoreFlat(rowExpertsOut_[low], windowExperts_, rows);
    }

    // This core's part of the chunk's rows.
    __aicore__ inline void Copy(uint32_t chunk) {
        const uint64_t first = uint64_t(chunk) * t_.chunkTokens;
        const uint64_t end = chunk + 1 == t_.chunks ? t_.tokens : first + t_.chunkTokens;
        const uint64_t from = first < firstToken_ ? firstToken_ : first,
                       to = end < lastToken_ ? end : lastToken_;
        const uint64_t column = uint64_t(part_) * t_.partWidth;
        const uint64_t last = part_ + 1 == t_.parts ? t_.width : column + t_.partWidth;
        for (uint64_t token = from; token < to; ++token)
            moves_.Copy(token, rows_, uint32_t(token - first) * t_.perToken, column, last);
    }
    // Rows of no slot, behind all others: this core's share of them.
    __aicore__ inline void ClearIdleRows(uint32_t core) {
        const uint64_t idle = t_.slots - active_, cores = AscendC::GetBlockNum();
        moves_.Clear(active_ + core * idle / cores, active_ + (core + 1) * idle / cores);
    }
    __aicore__ inline void StoreIdleMaps(uint32_t core) {
        const uint64_t idle = t_.slots - active_, cores = AscendC::GetBlockNum();
        uint64_t from = active_ + core * idle / cores;
        const uint64_t to = active_ + (core + 1) * idle / cores;
        if (from == to) return;
        Order<HardEvent::MTE3_V>();
        AscendC::Duplicate(windowSlots_, -1, int32_t(t_.windowRows));
        AscendC::Duplicate(windowExperts_, int32_t(t_.experts), int32_t(t_.windowRows));
        Order<HardEvent::V_MTE3>();
        while (from < to) {
            const uint32_t n = to - from < t_.windowRows ? uint32_t(to - from) : t_.windowRows;
            StoreElements(slotsOut_[from], windowSlots_, n);
            StoreElements(rowExpertsOut_[from], windowExperts_, n);
            from += n;
        }
    }

    const Data& t_;
    RowMoves<T> moves_;
    CountScan scan_;
    IntGlobal experts_, rowIdx_, offsetsOut_, slotsOut_, rowExpertsOut_, sharedCounts_;
    Buffer buffers_[11];
    IntTensor ids_, rows_;                        // of a chunk
    IntTensor counts_, next_, offsets_, others_;  // per expert
    IntTensor windowSlots_, windowExperts_;       // per expanded row
    IntTensor slotOffsets_;                       // per slot of the only chunk
    IntTensor wideSlots_, wideExperts_;           // a block each
    Slice<int32_t> slice_;
    int64_t loaded_ = -1;  // chunk whose experts are in ids_
    uint64_t firstToken_, lastToken_, active_;
    uint32_t range_, part_;
};

}  // namespace routing
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_moe_init_routing(GM_ADDR x, GM_ADDR expert_idx,
                                                              GM_ADDR expanded_x, GM_ADDR expanded_row_idx,
                                                              GM_ADDR expert_offsets, GM_ADDR sorted_slots,
                                                              GM_ADDR row_experts, GM_ADDR workspace,
                                                              GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridMoeInitRoutingTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);  // vector cores that meet
#endif
    AscendC::TPipe pipe;
    hybrid_ops::routing::Kernel<DTYPE_X> kernel(data);
    kernel.Init(pipe, x, expert_idx, expanded_x, expanded_row_idx, expert_offsets, sorted_slots, row_experts,
                AscendC::GetUserWorkspace(workspace));
    kernel.Process();
}
