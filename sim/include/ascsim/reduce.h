// Reductions inside one repeat: per block, per repeat, per pair.
// Docs: "归约计算/ReduceDataBlock" (BlockReduce*), "ReduceRepeat" (WholeReduce*), "ReducePairElem"
// (PairReduceSum).
#pragma once
#include "ascsim/elementwise.h"
#include "ascsim/tree.h"

namespace ascsim {

using AscendC::ReduceOrder;
using AscendC::ReduceType;

// Active lanes of one repeat as floats; inactive ones hold `fill`.
template <typename T>
void LoadRepeat(float* out, const Lane<sizeof(T)>& src, const Lanes& lanes, uint32_t r, float fill) {
    constexpr uint32_t per_block = kBlock / sizeof(T);
    for (uint32_t b = 0; b < lanes.lanes / per_block; ++b) {
        const T* in = reinterpret_cast<const T*>(src.At(r, b * per_block));
        const uint32_t left = lanes.prefix ? lanes.Active(r) : 0;
        if (lanes.prefix && left >= (b + 1) * per_block) {
            for (uint32_t i = 0; i < per_block; i += 8) {
                const V8f v = LoadVector(in + i);
                std::memcpy(out + b * per_block + i, &v, sizeof v);
            }
            continue;
        }
        for (uint32_t i = 0; i < per_block; ++i) {
            const uint32_t lane = b * per_block + i;
            out[lane] = lanes.On(r, lane) ? static_cast<float>(in[i]) : fill;
        }
    }
}

// Lanes of a destination that takes one element per `group` source lanes.
inline Lanes GroupLanes(const Lanes& lanes, uint32_t group) {
    const uint32_t n = lanes.lanes / group;
    if (lanes.prefix)
        return Lanes{
            lanes.repeats, n, true, (lanes.active + group - 1) / group, (lanes.last + group - 1) / group,
            {0, 0}};
    uint64_t bits = 0;
    for (uint32_t lane = 0; lane < lanes.lanes; ++lane)
        bits |= static_cast<uint64_t>(lanes.On(0, lane)) << (lane / group);
    return BitLanes(n, bits, 0, lanes.repeats);
}

template <ReduceType type>
struct Extreme {
    float value = type == ReduceType::MAX ? -std::numeric_limits<float>::infinity()
                                          : std::numeric_limits<float>::infinity();
    uint64_t index = 0;
    bool any = false;
    // The first of equal values stays.
    void Take(float v, uint64_t i) {
        if (!any || (type == ReduceType::MAX ? v > value : v < value)) {
            value = v;
            index = i;
            any = true;
        }
    }
};

// dst: one element per block, repeats dst_rep * 8 elements apart. A block without active lanes keeps its dst
// element.
template <Text api, ReduceType type, typename T>
void RunBlockReduce(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                    const AscendC::LocalTensor<T>& src, uint64_t dst_rep, uint64_t src_blk,
                    uint64_t src_rep) {
    constexpr uint32_t per_block = kBlock / sizeof(T);
    VecOperand d = Dst(dst);
    d.stride = {kBlock, dst_rep * kBlocksPerRepeat * sizeof(T)};
    const VecOperand s = Src(src, "src", src_blk, src_rep);
    const Lanes blocks = GroupLanes(lanes, per_block);
    if (!BeginReduced(site, CostKey<api, T>::value.data(), blocks, d, lanes, s,
                      Rules{.dst_align = 8 * sizeof(T)}))
        return;
    const HalfLimit limit(Soc().fp16_saturate);
    const auto in = s.Host<T>();
    uint8_t* const out = Local(d.mem, d.offset);
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        T* const o = reinterpret_cast<T*>(out + r * d.stride.repeat);
        if constexpr (std::is_same_v<T, float> && type == ReduceType::SUM) {
            if (lanes.prefix && lanes.Active(r) == lanes.lanes) {
                StoreVector(o, BlockSums8(in.At(r, 0), in.stride.block), limit);
                continue;
            }
        }
        float v[128];
        LoadRepeat<T>(v, in, lanes, r, 0.0f);
        if constexpr (type == ReduceType::SUM) {  // the trees of all blocks, level by level
            for (uint32_t n = lanes.lanes; n > kBlocksPerRepeat; n /= 2) TreeLevel<T>(v, n, limit);
        }
        for (uint32_t b = 0; b < kBlocksPerRepeat; ++b) {
            if (!blocks.On(r, b)) continue;
            if constexpr (type == ReduceType::SUM) {
                StoreScalar(o + b, v[b], HalfLimit(false));
            } else {
                Extreme<type> best;
                for (uint32_t i = 0; i < per_block; ++i) {
                    if (lanes.On(r, b * per_block + i)) best.Take(v[b * per_block + i], i);
                }
                StoreScalar(o + b, best.value, HalfLimit(false));
            }
        }
    }
}

template <typename T>
float RepeatSum(const Lane<sizeof(T)>& in, const Lanes& lanes, uint32_t r, HalfLimit limit) {
    if constexpr (std::is_same_v<T, float>) {
        if (lanes.prefix && lanes.Active(r) == lanes.lanes)
            return PairTree8(BlockSums8(in.At(r, 0), in.stride.block));
    }
    float v[128];
    LoadRepeat<T>(v, in, lanes, r, 0.0f);
    return TreeSum<T>(v, lanes.lanes, limit);
}

template <ReduceType type, typename T>
Extreme<type> RepeatExtreme(const Lane<sizeof(T)>& in, const Lanes& lanes, uint32_t r) {
    float v[128];
    LoadRepeat<T>(v, in, lanes, r, 0.0f);
    Extreme<type> best;
    for (uint32_t i = 0; i < lanes.lanes; ++i) {
        if (lanes.On(r, i)) best.Take(v[i], i);
    }
    return best;
}

// An index is stored in the bits of the element type.
template <typename T>
T IndexBits(uint64_t index) {
    if constexpr (std::is_same_v<T, half>)
        return half::FromBits(static_cast<uint16_t>(index));
    else
        return std::bit_cast<float>(static_cast<uint32_t>(index));
}
template <typename T>
T ValueBits(float v) {
    return static_cast<T>(v);
}

// dst: one sum per repeat, or a (value, index) pair; dst_rep counts in that unit.
template <Text api, ReduceType type, typename T>
void RunRepeatReduce(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                     const AscendC::LocalTensor<T>& src, uint64_t dst_rep, uint64_t src_blk, uint64_t src_rep,
                     ReduceOrder order) {
    const bool pair = type != ReduceType::SUM &&
                      (order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE);
    const bool only_index = type != ReduceType::SUM && order == ReduceOrder::ORDER_ONLY_INDEX;
    if (type != ReduceType::SUM && !pair && Soc().is_310p) {
        Fail(CallSite(site.api, site.loc, Pipe::V), "param.order",
             "order: not available: got %s; allowed ORDER_VALUE_INDEX, ORDER_INDEX_VALUE on %s (%s has it)",
             only_index ? "ORDER_ONLY_INDEX" : "ORDER_ONLY_VALUE", support::kSoc, support::kOtherSoc);
    }
    const uint32_t unit = pair ? 2 * sizeof(T) : only_index ? 4 : sizeof(T);
    VecOperand d = Dst(dst);
    d.size = unit;
    d.stride = {kBlock, dst_rep * unit};
    const VecOperand s = Src(src, "src", src_blk, src_rep);
    if (!BeginReduced(site, CostKey<api, T>::value.data(), PrefixLanes(1, 1, lanes.repeats), d, lanes, s,
                      Rules{.dst_align = unit}))
        return;
    const HalfLimit limit(Soc().fp16_saturate);
    const auto in = s.Host<T>();
    uint8_t* const out = Local(d.mem, d.offset);
    Extreme<type == ReduceType::SUM ? ReduceType::MAX : type> all;
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        T* const o = reinterpret_cast<T*>(out + r * d.stride.repeat);
        if constexpr (type == ReduceType::SUM) {
            StoreScalar(o, RepeatSum<T>(in, lanes, r, limit), HalfLimit(false));
        } else {
            const Extreme<type> best = RepeatExtreme<type, T>(in, lanes, r);
            all.Take(best.value, static_cast<uint64_t>(r) * lanes.lanes + best.index);
            const T value = ValueBits<T>(best.value), index = IndexBits<T>(best.index);
            if (order == ReduceOrder::ORDER_ONLY_VALUE)
                *o = value;
            else if (order == ReduceOrder::ORDER_ONLY_INDEX)
                std::memcpy(static_cast<void*>(o), &best.index, 4);
            else
                o[order == ReduceOrder::ORDER_INDEX_VALUE] = value,
                           o[order == ReduceOrder::ORDER_VALUE_INDEX] = index;
        }
    }
    if constexpr (type != ReduceType::SUM) {
        const T value = ValueBits<T>(all.value), index = IndexBits<T>(all.index);
        std::memcpy(&Core().reduce_value[0], &value, sizeof(T));
        std::memcpy(&Core().reduce_value[1], &index, sizeof(T));
    }
}

// dst: one element per adjacent pair, repeats dst_rep * 128 bytes apart; a pair without active lanes keeps
// its dst.
template <Text api, typename T>
void RunPairReduce(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                   const AscendC::LocalTensor<T>& src, uint64_t dst_rep, uint64_t src_blk, uint64_t src_rep) {
    VecOperand d = Dst(dst);
    d.stride = {kBlock, dst_rep * (kRepeatBytes / 2)};
    const VecOperand s = Src(src, "src", src_blk, src_rep);
    const Lanes pairs = GroupLanes(lanes, 2);
    if (!BeginReduced(site, CostKey<api, T>::value.data(), pairs, d, lanes, s)) return;
    const HalfLimit limit(Soc().fp16_saturate);
    const auto in = s.Host<T>();
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        T* const o = reinterpret_cast<T*>(Local(d.mem, d.offset) + r * d.stride.repeat);
        float v[128];
        LoadRepeat<T>(v, in, lanes, r, 0.0f);
        for (uint32_t i = 0; i < pairs.lanes; ++i) {
            if (pairs.On(r, i)) StoreScalar(o + i, v[2 * i] + v[2 * i + 1], limit);
        }
    }
}

}  // namespace ascsim

namespace AscendC {

// Mask is a lane count or a bit array; the two spellings share one body.
#define ASCSIM_REDUCE(Name, RUN, TAIL, TAIL_USE)                                                         \
    template <typename T, bool isSetMask = true>                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, ASCSIM_ORDER(const int32_t mask),    \
              const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride TAIL,   \
              Loc loc = Loc::Here()) {                                                                   \
        ascsim::support::Name<T>();                                                                      \
        const ascsim::Site site{#Name, loc};                                                             \
        const auto lanes = ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)),           \
                                                      static_cast<uint64_t>(mask), repeatTime);          \
        RUN(site, lanes, dst, src, dstRepStride, srcBlkStride, srcRepStride TAIL_USE);                   \
    }                                                                                                    \
    template <typename T, bool isSetMask = true>                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, ASCSIM_ORDER(const uint64_t mask[]), \
              const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride TAIL,   \
              Loc loc = Loc::Here()) {                                                                   \
        ascsim::support::Name<T>();                                                                      \
        const ascsim::Site site{#Name, loc};                                                             \
        const auto lanes =                                                                               \
            ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime);       \
        RUN(site, lanes, dst, src, dstRepStride, srcBlkStride, srcRepStride TAIL_USE);                   \
    }
#define ASCSIM_NONE
#define ASCSIM_ORDER(MASK) const int32_t repeatTime, MASK
#define ASCSIM_BLOCK(Name, type) \
    ASCSIM_REDUCE(Name, (ascsim::RunBlockReduce<#Name, ReduceType::type, T>), ASCSIM_NONE, ASCSIM_NONE)
ASCSIM_BLOCK(BlockReduceSum, SUM)
ASCSIM_BLOCK(BlockReduceMax, MAX)
ASCSIM_BLOCK(BlockReduceMin, MIN)
ASCSIM_REDUCE(PairReduceSum, (ascsim::RunPairReduce<"PairReduceSum", T>), ASCSIM_NONE, ASCSIM_NONE)
#undef ASCSIM_ORDER
#define ASCSIM_ORDER(MASK) MASK, const int32_t repeatTime
#define ASCSIM_VALUE_ORDER , ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX
#define ASCSIM_PLAIN , ReduceOrder::ORDER_VALUE_INDEX
#define ASCSIM_CHOSEN , order
ASCSIM_REDUCE(WholeReduceSum, (ascsim::RunRepeatReduce<"WholeReduceSum", ReduceType::SUM, T>), ASCSIM_NONE,
              ASCSIM_PLAIN)
ASCSIM_REDUCE(WholeReduceMax, (ascsim::RunRepeatReduce<"WholeReduceMax", ReduceType::MAX, T>),
              ASCSIM_VALUE_ORDER, ASCSIM_CHOSEN)
ASCSIM_REDUCE(WholeReduceMin, (ascsim::RunRepeatReduce<"WholeReduceMin", ReduceType::MIN, T>),
              ASCSIM_VALUE_ORDER, ASCSIM_CHOSEN)
#undef ASCSIM_CHOSEN
#undef ASCSIM_PLAIN
#undef ASCSIM_VALUE_ORDER
#undef ASCSIM_ORDER
#undef ASCSIM_BLOCK
#undef ASCSIM_NONE
#undef ASCSIM_REDUCE

template <typename T, bool isSetMask = true>
void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat,
                     const int32_t elemsInOneRepeat, const int32_t, const int32_t srcBlkStride,
                     const int32_t dstRepStride, const int32_t srcRepStride, Loc loc = Loc::Here()) {
    ascsim::support::RepeatReduceSum<T>();
    const ascsim::Site site{"RepeatReduceSum", loc};
    const auto lanes = ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)),
                                                  static_cast<uint64_t>(elemsInOneRepeat), repeat);
    ascsim::RunRepeatReduce<"RepeatReduceSum", ReduceType::SUM, T>(
        site, lanes, dst, src, dstRepStride, srcBlkStride, srcRepStride, ReduceOrder::ORDER_VALUE_INDEX);
}

// Names of the newer API pages.
template <ReduceType type, typename T, typename U = T, bool isSetMask = true, typename Mask>
void ReduceDataBlock(const LocalTensor<T>& dst, const LocalTensor<U>& src, const Mask mask,
                     const int32_t repeatTime, const int32_t dstRepStride, const int32_t srcBlkStride,
                     const int32_t srcRepStride, Loc loc = Loc::Here()) {
    ascsim::support::ReduceDataBlock<T>();
    if constexpr (type == ReduceType::SUM)
        BlockReduceSum<T, isSetMask>(dst, src, repeatTime, mask, dstRepStride, srcBlkStride, srcRepStride,
                                     loc);
    else if constexpr (type == ReduceType::MAX)
        BlockReduceMax<T, isSetMask>(dst, src, repeatTime, mask, dstRepStride, srcBlkStride, srcRepStride,
                                     loc);
    else
        BlockReduceMin<T, isSetMask>(dst, src, repeatTime, mask, dstRepStride, srcBlkStride, srcRepStride,
                                     loc);
}
template <ReduceType type, typename T, typename U = T, bool isSetMask = true, typename Mask>
void ReduceRepeat(const LocalTensor<T>& dst, const LocalTensor<U>& src, const Mask mask,
                  const int32_t repeatTime, const int32_t dstRepStride, const int32_t srcBlkStride,
                  const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX,
                  Loc loc = Loc::Here()) {
    ascsim::support::ReduceRepeat<T>();
    if constexpr (type == ReduceType::SUM)
        WholeReduceSum<T, isSetMask>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride,
                                     loc);
    else if constexpr (type == ReduceType::MAX)
        WholeReduceMax<T, isSetMask>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride,
                                     order, loc);
    else
        WholeReduceMin<T, isSetMask>(dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride,
                                     order, loc);
}
template <ReduceType type, typename T, typename U = T, bool isSetMask = true, typename Mask>
void ReducePairElem(const LocalTensor<T>& dst, const LocalTensor<U>& src, const Mask mask,
                    const int32_t repeatTime, const int32_t dstRepStride, const int32_t srcBlkStride,
                    const int32_t srcRepStride, Loc loc = Loc::Here()) {
    ascsim::support::ReducePairElem<T>();
    static_assert(type == ReduceType::SUM, "ReducePairElem: reduceType: only SUM is available");
    PairReduceSum<T, isSetMask>(dst, src, repeatTime, mask, dstRepStride, srcBlkStride, srcRepStride, loc);
}

// Extreme and index of the last WholeReduceMax / WholeReduceMin, in the element type's bits.
template <typename T>
void GetReduceMaxMinCount(T& maxMinValue, T& maxMinIndex) {
    ascsim::support::GetReduceMaxMinCount<T>();
    std::memcpy(&maxMinValue, &ascsim::Core().reduce_value[0], sizeof(T));
    std::memcpy(&maxMinIndex, &ascsim::Core().reduce_value[1], sizeof(T));
}
template <typename T>
void GetReduceMaxMinCount(T& maxMinValue) {
    T index;
    GetReduceMaxMinCount(maxMinValue, index);
}
// Accumulator of the last counted ReduceSum.
template <typename T>
T GetAccVal() {
    ascsim::support::GetAccVal<T>();
    T value;
    std::memcpy(&value, &ascsim::Core().acc_value, sizeof(T));
    return value;
}

}  // namespace AscendC
