// Weighted sums of expanded rows: the rows of a token, ascending, times their weights, added up in fp32 while
// the next rows arrive.
#include "hybrid_moe_combine_tiling.h"

#include "common/buffers.h"
#include "common/row_copy.h"
#include "common/rows.h"

namespace hybrid_ops {
namespace combine {

using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using Data = HybridMoeCombineTilingData;

constexpr uint32_t kMostRows = 512;  // per token, as the contract says

// Active slots of a token, and the columns of one unit.
struct Unit {
    uint64_t token, column;
    uint32_t width, count;
    int32_t rows[kMostRows];
    float weights[kMostRows];
};

template <typename T, typename S>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR expanded, GM_ADDR rows, GM_ADDR scales,
                                GM_ADDR y) {
        expanded_.SetGlobalBuffer((__gm__ T*)expanded);
        rows_.SetGlobalBuffer((__gm__ int32_t*)rows);
        scales_.SetGlobalBuffer((__gm__ S*)scales);
        y_.SetGlobalBuffer((__gm__ T*)y);
        pipe.InitBuffer(rowQueue_, 2, t_.rowsAtOnce * t_.partRoom * sizeof(T));
        pipe.InitBuffer(yQueue_, 2, t_.partRoom * sizeof(T));
        Reserve(pipe, buffers_[0], sum_, t_.partRoom);
        Reserve(pipe, buffers_[1], wide_, t_.rowsAtOnce * t_.partRoom);
        const uint32_t entries = t_.mapTokens * t_.perToken + kMapRoom;
        Reserve(pipe, buffers_[2], rowMap_, entries);
        Reserve(pipe, buffers_[3], scaleMap_, entries);
        Reserve(pipe, buffers_[4], weightMap_, entries);
    }

    __aicore__ inline void Process() {
        const uint64_t units = t_.tokens * t_.parts, cores = AscendC::GetBlockNum(),
                       core = AscendC::GetBlockIdx();
        const uint64_t begin = core * units / cores, end = (core + 1) * units / cores;
        if (begin == end) return;
        mapBegin_ = mapEnd_ = begin / t_.parts;
        if (Narrow()) {
            for (uint64_t u = begin; u < end; ++u) SumNarrow(u);
            AscendC::DataCacheCleanAndInvalid<T, AscendC::CacheLine::ENTIRE_DATA_CACHE>(y_);
            return;
        }
        uint32_t now = 0;
        Fill(units_[now], begin);
        Load(units_[now], 0);
        for (uint64_t u = begin; u < end; ++u, now ^= 1) {
            const Unit& unit = units_[now];
            for (uint32_t first = 0; first == 0 || first < unit.count; first += t_.rowsAtOnce) {
                if (first + t_.rowsAtOnce < unit.count) {
                    Load(unit, first + t_.rowsAtOnce);
                } else if (u + 1 < end) {
                    Fill(units_[now ^ 1], u + 1);
                    Load(units_[now ^ 1], 0);
                }
                Add(unit, first);
            }
            Store(unit);
        }
    }

 private:
    static constexpr uint32_t kMapRoom = 64;  // entries: what staging adds

    // No move carries a row: its elements are worked on one by one.
    __aicore__ inline bool Narrow() const { return !Soc::kPaddedMoves && t_.width < LastBlock<T>::kBlock; }
    // Elements of a row in local memory, whole blocks.
    __aicore__ inline uint32_t Pitch(uint32_t width) const { return RoundUp(width, LastBlock<T>::kBlock); }

    // Row numbers and weights of the tokens from `token` on.
    __aicore__ inline void LoadMaps(uint64_t token) {
        const uint64_t left = t_.tokens - token;
        const uint32_t n = left < t_.mapTokens ? uint32_t(left) : t_.mapTokens;
        mapBegin_ = token;
        mapEnd_ = token + n;
        Order<HardEvent::S_MTE2>();
        Order<HardEvent::V_MTE2>();
        rowSlice_.Load(rowMap_, rows_, token * t_.perToken, n * t_.perToken, t_.rows);
        scaleSlice_.Load(scaleMap_, scales_, token * t_.perToken, n * t_.perToken, t_.rows);
        Order<HardEvent::MTE2_S>();
        if constexpr (!AscendC::IsSameType<S, float>::value) {
            Order<HardEvent::MTE2_V>();
            Order<HardEvent::S_V>();
            AscendC::Cast(weightMap_, scaleMap_, AscendC::RoundMode::CAST_NONE, scaleSlice_.extent);
            Order<HardEvent::V_S>();
        }
    }
    __aicore__ inline float Weight(uint32_t i) const {
        if constexpr (AscendC::IsSameType<S, float>::value) {
            return scaleMap_.GetValue(scaleSlice_.At(i));
        } else {
            return weightMap_.GetValue(scaleSlice_.At(i));
        }
    }

    // The unit's active slots in ascending order of their rows.
    __aicore__ inline void Fill(Unit& unit, uint64_t u) {
        const uint64_t part = u % t_.parts;
        unit.token = u / t_.parts;
        unit.column = part * t_.partWidth;
        unit.width = uint32_t(part + 1 == t_.parts ? t_.width - unit.column : t_.partWidth);
        unit.count = 0;
        if (unit.token >= mapEnd_) LoadMaps(unit.token);
        const uint32_t first = uint32_t(unit.token - mapBegin_) * t_.perToken;
        for (uint32_t j = 0; j < t_.perToken; ++j) {
            const int32_t row = rowMap_.GetValue(rowSlice_.At(first + j));
            if (row < 0 || uint64_t(row) >= t_.rows) continue;
            uint32_t at = unit.count++;
            for (; at > 0 && unit.rows[at - 1] > row; --at) {
                unit.rows[at] = unit.rows[at - 1];
                unit.weights[at] = unit.weights[at - 1];
            }
            unit.rows[at] = row;
            unit.weights[at] = Weight(first + j);
        }
    }

    __aicore__ inline void Load(const Unit& unit, uint32_t first) {
        if (unit.count == 0) return;
        const uint32_t pitch = Pitch(unit.width);
        LocalTensor<T> rows = rowQueue_.template AllocTensor<T>();
        for (uint32_t i = first; i < unit.count && i < first + t_.rowsAtOnce; ++i) {
            LoadRows(rows[(i - first) * pitch], expanded_[uint64_t(unit.rows[i]) * t_.width + unit.column], 1,
                     unit.width, unit.width, pitch);
        }
        rowQueue_.EnQue(rows);
    }

    __aicore__ inline void Add(const Unit& unit, uint32_t first) {
        if (unit.count == 0) return;
        const uint32_t pitch = Pitch(unit.width), left = unit.count - first;
        const uint32_t n = left < t_.rowsAtOnce ? left : t_.rowsAtOnce;
        LocalTensor<T> rows = rowQueue_.template DeQue<T>();
        if constexpr (AscendC::IsSameType<T, float>::value) {
            AddRows(unit, first, n, rows, pitch);
            rowQueue_.FreeTensor(rows);
        } else {
            PipeBarrier<PIPE_V>();
            AscendC::Cast(wide_, rows, AscendC::RoundMode::CAST_NONE, n * pitch);
            rowQueue_.FreeTensor(rows);
            PipeBarrier<PIPE_V>();
            AddRows(unit, first, n, wide_, pitch);
        }
    }
    __aicore__ inline void AddRows(const Unit& unit, uint32_t first, uint32_t n, const FloatTensor& rows,
                                   uint32_t pitch) {
        for (uint32_t i = 0; i < n; ++i) {
            PipeBarrier<PIPE_V>();
            if (first + i == 0) {
                AscendC::Muls(sum_, rows, unit.weights[0], int32_t(pitch));
            } else {
                AscendC::Axpy(sum_, rows[i * pitch], unit.weights[first + i], int32_t(pitch));
            }
        }
    }

    __aicore__ inline void Store(const Unit& unit) {
        const uint32_t pitch = Pitch(unit.width);
        LocalTensor<T> y = yQueue_.template AllocTensor<T>();
        PipeBarrier<PIPE_V>();
        if (unit.count == 0) {
            AscendC::Duplicate(y, static_cast<T>(0.0f), int32_t(pitch));
        } else {
            Convert(y, sum_, pitch);
        }
        yQueue_.EnQue(y);
        y = yQueue_.template DeQue<T>();
        StoreElements(y_[unit.token * t_.width + unit.column], y, unit.width);
        yQueue_.FreeTensor(y);
    }

    static constexpr float kMost = 65504.0f;  // of float16

    __aicore__ inline void SumNarrow(uint64_t u) {
        Unit& unit = units_[0];
        Fill(unit, u);
        for (uint32_t c = 0; c < unit.width; ++c) {
            float sum = 0.0f;
            for (uint32_t i = 0; i < unit.count; ++i) {
                sum += unit.weights[i] * float(expanded_.GetValue(uint64_t(unit.rows[i]) * t_.width + c));
            }
            // As the vector unit converts: a finite value beyond float16 becomes its largest.
            if (sizeof(T) == sizeof(half)) sum = sum > kMost ? kMost : sum < -kMost ? -kMost : sum;
            y_.SetValue(unit.token * t_.width + c, static_cast<T>(sum));
        }
    }

    const Data& t_;
    AscendC::GlobalTensor<T> expanded_, y_;
    AscendC::GlobalTensor<int32_t> rows_;
    AscendC::GlobalTensor<S> scales_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> rowQueue_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> yQueue_;
    Buffer buffers_[5];
    FloatTensor sum_, wide_, weightMap_;
    LocalTensor<int32_t> rowMap_;
    LocalTensor<S> scaleMap_;
    Slice<int32_t> rowSlice_;
    Slice<S> scaleSlice_;
    uint64_t mapBegin_, mapEnd_;  // tokens whose maps are in local memory
    Unit units_[2];
};

}  // namespace combine
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_moe_combine(GM_ADDR expanded_y, GM_ADDR expanded_row_idx,
                                                         GM_ADDR scales, GM_ADDR y, GM_ADDR workspace,
                                                         GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridMoeCombineTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    AscendC::TPipe pipe;
    hybrid_ops::combine::Kernel<DTYPE_EXPANDED_Y, DTYPE_SCALES> kernel(data);
    kernel.Init(pipe, expanded_y, expanded_row_idx, scales, y);
    kernel.Process();
}
