// Rows of new tokens to their slots of a paged cache:
//   cache[slot[t]] = row[t], slot = page * pageSize + offset; slots outside the pool are left out.
// Tokens with consecutive slots form a run. In ND a run is one piece of memory on both sides; in NZ, within a
// page, it is a matrix whose columns of 16 elements stand pageSize * 16 elements apart.
//
// No arithmetic: loads and stores alternate over a ring of staging buffers.
#include "common/buffers.h"
#include "common/sequence_walk.h"
#include "hybrid_reshape_and_cache_tiling.h"

namespace hybrid_ops {
namespace reshape_cache {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using Data = HybridReshapeAndCacheTilingData;

template <typename T>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data) : t_(data) {}

    __aicore__ inline void Process(AscendC::TPipe& pipe, GM_ADDR key, GM_ADDR value, GM_ADDR keyCache,
                                   GM_ADDR valueCache, GM_ADDR slots) {
        const uint64_t units = 2 * uint64_t(t_.tokens), core = AscendC::GetBlockIdx();
        const uint64_t begin = core * units / t_.cores, end = (core + 1) * units / t_.cores;
        const uint64_t tokens = t_.tokens;
        const uint64_t keyBegin = begin < tokens ? begin : tokens, keyEnd = end < tokens ? end : tokens;
        const uint64_t valueBegin = begin - keyBegin, valueEnd = end - keyEnd;

        pipe.InitBuffer(staged_, kBuffers, t_.piece * sizeof(T));
        Reserve(pipe, patchBuffer_, patch_, 2 * kColumn);
        LocalTensor<int32_t> tables;
        const uint32_t room = t_.tableEntries + 8;
        Reserve(pipe, tableBuffer_, tables, 2 * room);
        slots_[0].Load(slots + keyBegin * sizeof(int32_t), tables, keyEnd - keyBegin, t_.tableEntries);
        slots_[1].Load(slots + valueBegin * sizeof(int32_t), tables[room], valueEnd - valueBegin,
                       t_.tableEntries);
        Order<HardEvent::MTE2_S>();
        Move(slots_[0], key, keyCache, t_.keyRow, keyBegin, keyEnd);
        Move(slots_[1], value, valueCache, t_.valueRow, valueBegin, valueEnd);
    }

 private:
    __aicore__ inline void Move(const IntTable& slots, GM_ADDR rows, GM_ADDR cache, uint32_t row,
                                uint64_t begin, uint64_t end) {
        rows_.SetGlobalBuffer((__gm__ T*)rows);
        cache_.SetGlobalBuffer((__gm__ T*)cache);
        row_ = row;
        const uint64_t n = end - begin;
        for (uint64_t i = 0; i < n;) {
            const int64_t slot = slots.Get(i);
            if (slot < 0 || slot >= t_.slots) {
                ++i;
                continue;
            }
            uint64_t most = uint64_t(t_.slots - slot);
            if (t_.nz) most = t_.pageSize - uint64_t(slot) % t_.pageSize;
            if (most > n - i) most = n - i;
            uint64_t count = 1;
            while (count < most && slots.Get(i + count) == slot + int64_t(count)) ++count;
            if (t_.nz) {
                MoveColumns((begin + i) * row, uint64_t(slot), uint32_t(count));
            } else {
                MoveFlat((begin + i) * row, uint64_t(slot) * row, count * row);
            }
            i += count;
        }
    }

    // n elements that stand one behind the other on both sides
    __aicore__ inline void MoveFlat(uint64_t from, uint64_t to, uint64_t n) {
        if constexpr (!Soc::kPaddedMoves) {
            if (n < kColumn) {
                Patch(from, to, uint32_t(n));
                return;
            }
        }
        for (uint64_t done = 0; done < n;) {
            const uint64_t left = n - done;
            uint32_t count = left < t_.piece ? uint32_t(left) : t_.piece;
            // What is left for the next piece must be a move of its own.
            if (left > count && left - count < kColumn) count -= kColumn;
            LocalTensor<T> in = staged_.template AllocTensor<T>();
            LoadElements(in, rows_[from + done], count);
            staged_.EnQue(in);
            LocalTensor<T> out = staged_.template DeQue<T>();
            StoreElements(cache_[to + done], out, count);
            staged_.FreeTensor(out);
            done += count;
        }
    }

    // Fewer elements than a move: the block of the cache around them is read, changed and written.
    __aicore__ inline void Patch(uint64_t from, uint64_t to, uint32_t n) {
        const uint64_t cacheElements = uint64_t(t_.slots) * row_, rowElements = uint64_t(t_.tokens) * row_;
        const LocalTensor<T> block = patch_, source = patch_[kColumn];
        Order<HardEvent::MTE3_MTE2>();
        Slice<T> target, given;
        target.Load(block, cache_, to, n, cacheElements);
        given.Load(source, rows_, from, n, rowElements);
        Order<HardEvent::MTE2_S>();
        for (uint32_t i = 0; i < n; ++i) block.SetValue(target.At(i), source.GetValue(given.At(i)));
        Order<HardEvent::S_MTE3>();
        AscendC::DataCopy(cache_[to - target.At(0)], block, AscendC::DataCopyParams(1, 1, 0, 0));
        Order<HardEvent::MTE3_S>();
    }

    // `count` rows of one page, in parts of whole rows or, where a row is longer than a buffer, of one row.
    __aicore__ inline void MoveColumns(uint64_t from, uint64_t slot, uint32_t count) {
        const uint32_t width = row_ < t_.piece ? row_ : t_.piece, most = t_.piece / width;
        for (uint32_t r = 0; r < count; r += most) {
            const uint32_t rows = count - r < most ? count - r : most;
            for (uint32_t c = 0; c < row_; c += width) {
                const uint32_t elements = row_ - c < width ? row_ - c : width;
                LocalTensor<T> in = staged_.template AllocTensor<T>();
                LoadElements(in, rows_[from + uint64_t(r) * row_ + c], rows * elements);
                staged_.EnQue(in);
                LocalTensor<T> out = staged_.template DeQue<T>();
                StoreColumns(out, slot + r, rows, c / kColumn, elements / kColumn);
                staged_.FreeTensor(out);
            }
        }
    }

    // Staged rows of `columns` columns each, the first of them column `first` of the row.
    __aicore__ inline void StoreColumns(const LocalTensor<T>& staged, uint64_t slot, uint32_t rows,
                                        uint32_t first, uint32_t columns) {
        constexpr uint32_t kBlocks = kColumn * sizeof(T) / kBlockBytes;
        const uint64_t page = slot / t_.pageSize, offset = slot % t_.pageSize;
        const uint64_t pitch = uint64_t(t_.pageSize) * kColumn;  // from a column to the next
        const uint64_t at = (page * (row_ / kColumn) + first) * pitch + offset * kColumn;
        if (rows < columns) {
            const AscendC::DataCopyParams scattered(uint16_t(columns), kBlocks, 0,
                                                    uint16_t((t_.pageSize - 1) * kBlocks));
            for (uint32_t r = 0; r < rows; ++r) {
                AscendC::DataCopy(cache_[at + r * kColumn], staged[r * columns * kColumn], scattered);
            }
            return;
        }
        const AscendC::DataCopyParams gathered(uint16_t(rows), kBlocks, uint16_t((columns - 1) * kBlocks), 0);
        for (uint32_t c = 0; c < columns; ++c) {
            AscendC::DataCopy(cache_[at + c * pitch], staged[c * kColumn], gathered);
        }
    }

    const Data t_;
    AscendC::TQueBind<AscendC::TPosition::VECIN, AscendC::TPosition::VECOUT, kBuffers> staged_;
    Buffer tableBuffer_, patchBuffer_;
    IntTable slots_[2];
    LocalTensor<T> patch_;
    AscendC::GlobalTensor<T> rows_, cache_;
    uint32_t row_;
};

}  // namespace reshape_cache
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_reshape_and_cache(GM_ADDR key, GM_ADDR value, GM_ADDR key_cache,
                                                               GM_ADDR value_cache, GM_ADDR slot_mapping,
                                                               GM_ADDR key_cache_out, GM_ADDR value_cache_out,
                                                               GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridReshapeAndCacheTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    if (TILING_KEY_IS(0)) {
        AscendC::TPipe pipe;
        hybrid_ops::reshape_cache::Kernel<DTYPE_KEY> kernel(data);
        kernel.Process(pipe, key, value, key_cache_out, value_cache_out, slot_mapping);
    }
}
