// Paged attention on the vector units. A core walks the tiles of its items; while one is worked on the next
// arrives. Keys and values stay in their pages until they are loaded, slots that a query does not see are
// never named.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_KERNEL_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_KERNEL_H_

#include "pages.h"
#include "small_rows.h"
#include "softmax.h"

namespace hybrid_ops {
namespace paged {

using AscendC::GlobalTensor;

// kLatent: the keys, whose rotary part has a cache of its own, are the values too.
template <typename T, bool kLatent, Layout kLayout>
class VectorKernel {
 public:
    __aicore__ inline explicit VectorKernel(const Data& data) : t_(data) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        query_.SetGlobalBuffer((__gm__ T*)a.query);
        key_.SetGlobalBuffer((__gm__ T*)a.key);
        if constexpr (kLatent) {
            queryRope_.SetGlobalBuffer((__gm__ T*)a.queryRope);
            keyRope_.SetGlobalBuffer((__gm__ T*)a.keyRope);
        } else {
            value_.SetGlobalBuffer((__gm__ T*)a.value);
        }
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        partials_.SetGlobalBuffer((__gm__ float*)a.workspace + t_.syncFloats);
        walk_.Init(t_, a);
        keyPitch_ = Pitch(t_.keyDim, sizeof(T));
        ropePitch_ = kLatent ? Pitch(t_.ropeDim, sizeof(T)) : 0;
        valuePitch_ = Pitch(t_.valueDim, sizeof(T));
        keyLanes_ = hybrid_ops::RoundUp(keyPitch_, kFloatLanes);
        queryLanes_ = keyLanes_ + hybrid_ops::RoundUp(ropePitch_, kFloatLanes);
        pipe.InitBuffer(keys_, 2, t_.tile * (keyPitch_ + ropePitch_) * sizeof(T));
        if constexpr (!kLatent) pipe.InitBuffer(values_, 2, t_.tile * valuePitch_ * sizeof(T));
        pipe.InitBuffer(queries_, 2, t_.headBlock * (keyPitch_ + ropePitch_) * sizeof(T));
        pipe.InitBuffer(results_, 2, t_.headBlock * valuePitch_ * sizeof(T));
        Reserve(pipe, buffers_[0], wideQuery_, t_.headBlock * queryLanes_);
        if constexpr (!kWide) {
            Reserve(pipe, buffers_[1], wide_,
                    t_.tile * ((keyPitch_ > valuePitch_ ? keyPitch_ : valuePitch_) + ropePitch_));
        }
        const uint32_t products = t_.tile * (queryLanes_ > valuePitch_ ? queryLanes_ : valuePitch_);
        softmax_.Init(pipe, t_, products, valuePitch_);
    }

    __aicore__ inline void Process(AscendC::TPipe&) {
        Tile tiles[2];
        bool open = Fetch(tiles[0]);
        for (uint32_t i = 0; open; ++i) {
            const bool more = Fetch(tiles[(i + 1) % 2]);
            Compute(tiles[i % 2]);
            open = more;
        }
        keys_.FreeAllEvent();
        if constexpr (!kLatent) values_.FreeAllEvent();
        queries_.FreeAllEvent();
        results_.FreeAllEvent();
    }

 private:
    static constexpr bool kWide = sizeof(T) == 4;

    // Asks for the next tile, and for the queries of an item that it opens.
    __aicore__ inline bool Fetch(Tile& tile) {
        if (!walk_.Next(tile)) return false;
        if (tile.first) FetchQueries(tile.item);
        LocalTensor<T> keys, values;
        for (uint32_t done = 0, run = 0; done < tile.count; done += run) {
            const int64_t slot = walk_.Run(tile.item, tile.begin + done, tile.count - done, run);
            if (slot < 0) continue;
            if (tile.rows == 0) {
                keys = keys_.template AllocTensor<T>();
                if constexpr (!kLatent) values = values_.template AllocTensor<T>();
            }
            LoadSlots(keys[tile.rows * keyPitch_], key_, slot, tile.item.kvHead, run, t_.keyDim, keyPitch_);
            if constexpr (kLatent) {
                LoadSlots(keys[t_.tile * keyPitch_ + tile.rows * ropePitch_], keyRope_, slot,
                          tile.item.kvHead, run, t_.ropeDim, ropePitch_);
            } else {
                LoadSlots(values[tile.rows * valuePitch_], value_, slot, tile.item.kvHead, run, t_.valueDim,
                          valuePitch_);
            }
            tile.rows += run;
        }
        if (tile.rows != 0) {
            keys_.EnQue(keys);
            if constexpr (!kLatent) values_.EnQue(values);
        }
        return true;
    }
    // Rows `pitch` elements apart <- one kv head of `run` slots of one page.
    __aicore__ inline void LoadSlots(const LocalTensor<T>& rows, const GlobalTensor<T>& cache, int64_t slot,
                                     uint32_t kvHead, uint32_t run, uint32_t dim, uint32_t pitch) {
        const GlobalTensor<T> src = cache[RowAt<kLayout>(t_, slot, kvHead, dim)];
        if constexpr (kLayout == Layout::kNz) {
            LoadNzRows(rows, src, run, dim, t_.pageSize, pitch);
        } else {
            LoadAnyRows(rows, src, run, dim, uint64_t(t_.kvHeads) * dim, pitch);
        }
    }
    __aicore__ inline void FetchQueries(const Item& item) {
        LocalTensor<T> rows = queries_.template AllocTensor<T>();
        const uint64_t first = uint64_t(item.query) * t_.heads + item.firstHead;
        LoadAnyRows(rows, query_[first * t_.keyDim], item.heads, t_.keyDim, t_.keyDim, keyPitch_);
        if constexpr (kLatent) {
            LoadAnyRows(rows[t_.headBlock * keyPitch_], queryRope_[first * t_.ropeDim], item.heads,
                        t_.ropeDim, t_.ropeDim, ropePitch_);
        }
        queries_.EnQue(rows);
    }

    __aicore__ inline void Compute(const Tile& tile) {
        if (tile.first) Begin(tile.item);
        if (tile.rows != 0) Step(tile);
        if (!tile.last) return;
        if (t_.merge) {
            StorePartials(tile.item);
        } else {
            Store(tile.item);
        }
    }

    __aicore__ inline void Begin(const Item& item) {
        LocalTensor<T> rows = queries_.template DeQue<T>();
        for (uint32_t h = 0; h < item.heads; ++h) {
            Convert(wideQuery_[h * queryLanes_], rows[h * keyPitch_], keyPitch_);
            if constexpr (kLatent) {
                Convert(wideQuery_[h * queryLanes_ + keyLanes_],
                        rows[t_.headBlock * keyPitch_ + h * ropePitch_], ropePitch_);
            }
        }
        PipeBarrier<PIPE_V>();
        queries_.FreeTensor(rows);
        for (uint32_t h = 0; h < item.heads; ++h) {
            const FloatTensor row = wideQuery_[h * queryLanes_];
            AscendC::Muls(row, row, t_.scale, int32_t(keyPitch_));
            if constexpr (kLatent)
                AscendC::Muls(row[keyLanes_], row[keyLanes_], t_.scale, int32_t(ropePitch_));
        }
        PipeBarrier<PIPE_V>();
        DropRepeats(t_.keyDim, 0, item.heads);
        if constexpr (kLatent) DropRepeats(t_.ropeDim, keyLanes_, item.heads);
        softmax_.Begin(item.heads);
        seen_ = false;
    }
    // A last block that was loaded a second time repeats elements: of these lanes only one may count.
    __aicore__ inline void DropRepeats(uint32_t dim, uint32_t at, uint32_t heads) {
        if (Soc::kPaddedMoves || IsSmall<T>(dim) || LastBlock<T>::Shift(dim) == 0) return;
        uint64_t mask[2] = {(uint64_t(1) << LastBlock<T>::Shift(dim)) - 1, 0};
        AscendC::Duplicate(wideQuery_[at + LastBlock<T>::Whole(dim)], 0.0f, mask, uint8_t(heads), 1,
                           uint8_t(queryLanes_ / kFloatBlock));
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Step(const Tile& tile) {
        LocalTensor<T> keys = keys_.template DeQue<T>();
        Factor factors[2];
        factors[0].pitch = keyPitch_;
        factors[1].pitch = ropePitch_;
        if constexpr (kWide) {
            factors[0].rows = keys;
            if constexpr (kLatent) factors[1].rows = keys[t_.tile * keyPitch_];
        } else {
            factors[0].rows = wide_;
            Convert(wide_, keys, tile.rows * keyPitch_);
            if constexpr (kLatent) {
                factors[1].rows = wide_[t_.tile * keyPitch_];
                Convert(factors[1].rows, keys[t_.tile * keyPitch_], tile.rows * ropePitch_);
            }
            PipeBarrier<PIPE_V>();
            keys_.FreeTensor(keys);
        }
        for (uint32_t h = 0; h < tile.item.heads; ++h) {
            factors[0].vector = wideQuery_[h * queryLanes_];
            factors[1].vector = wideQuery_[h * queryLanes_ + keyLanes_];
            softmax_.Dot(h, factors, kLatent ? 2 : 1, tile.rows);
        }
        softmax_.Weigh(tile.rows);
        if constexpr (kLatent) {
            for (uint32_t h = 0; h < tile.item.heads; ++h) softmax_.Accumulate(h, factors[0].rows, tile.rows);
            if constexpr (kWide) keys_.FreeTensor(keys);
        } else {
            if constexpr (kWide) keys_.FreeTensor(keys);
            LocalTensor<T> values = values_.template DeQue<T>();
            FloatTensor wide;
            if constexpr (kWide) {
                wide = values;
            } else {
                wide = wide_;
                Convert(wide_, values, tile.rows * valuePitch_);
                PipeBarrier<PIPE_V>();
                values_.FreeTensor(values);
            }
            for (uint32_t h = 0; h < tile.item.heads; ++h) softmax_.Accumulate(h, wide, tile.rows);
            if constexpr (kWide) values_.FreeTensor(values);
        }
        seen_ = true;
    }

    __aicore__ inline void Store(const Item& item) {
        LocalTensor<T> rows = results_.template AllocTensor<T>();
        const uint32_t lanes = softmax_.ValueLanes();
        if (seen_) softmax_.Normalize();
        for (uint32_t h = 0; h < item.heads; ++h) {
            Convert(rows[h * valuePitch_], softmax_.Sums()[h * lanes], valuePitch_);
        }
        results_.EnQue(rows);
        rows = results_.template DeQue<T>();
        const uint64_t first = uint64_t(item.query) * t_.heads + item.firstHead;
        StoreAnyRows(out_[first * t_.valueDim], rows, item.heads, t_.valueDim, valuePitch_);
        results_.FreeTensor(rows);
    }

    // Row (query, head, part) of the workspace: unnormalised sums, maximum, denominator. What saw nothing has
    // a denominator of 0 and a maximum below every other.
    __aicore__ inline void StorePartials(const Item& item) {
        FloatTensor maxima, denominators;
        softmax_.Statistics(maxima, denominators);
        const uint32_t lanes = valuePitch_, blocks = lanes / kFloatBlock;
        const uint64_t first = (uint64_t(item.query) * t_.heads + item.firstHead) * t_.splits + item.part;
        const uint32_t step = t_.splits * t_.rowFloats / kFloatBlock;
        const GlobalTensor<float> row = partials_[first * t_.rowFloats];
        Order<AscendC::HardEvent::V_MTE3>();
        AscendC::DataCopy(row, softmax_.Sums(),
                          AscendC::DataCopyParams(item.heads, blocks,
                                                  uint16_t(softmax_.ValueLanes() / kFloatBlock - blocks),
                                                  uint16_t(step - blocks)));
        AscendC::DataCopy(row[lanes], maxima, AscendC::DataCopyParams(item.heads, 1, 0, uint16_t(step - 1)));
        AscendC::DataCopy(row[lanes + kFloatBlock], denominators,
                          AscendC::DataCopyParams(item.heads, 1, 0, uint16_t(step - 1)));
        Order<AscendC::HardEvent::MTE3_V>();  // the next item begins with new sums
    }

    const Data t_;
    Walk walk_;
    Softmax softmax_;
    GlobalTensor<T> query_, queryRope_, key_, keyRope_, value_, out_;
    GlobalTensor<float> partials_;
    AscendC::TQue<AscendC::TPosition::VECIN, 2> keys_, values_, queries_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> results_;
    Buffer buffers_[2];
    FloatTensor wideQuery_, wide_;
    uint32_t keyPitch_, ropePitch_, valuePitch_, keyLanes_, queryLanes_;
    bool seen_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_VECTOR_KERNEL_H_
