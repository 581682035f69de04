// Calls that fill: Duplicate, Brcb, CreateVecIndex (ArithProgression, Arange).
// Docs: "数据填充/Duplicate", "数据填充/Brcb", "数据填充/CreateVecIndex".
#pragma once
#include "ascsim/scalar_ops.h"

namespace ascsim {

template <typename T>
void RunDuplicate(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst, T value, uint64_t block,
                  uint64_t repeat) {
    const VecOperand d = Dst(dst, block, repeat);
    if (!Begin(site, CostKey<"Duplicate", T>::value.data(), lanes, {d})) return;
    T pattern[kBlock / sizeof(T)];
    for (T& p : pattern) p = value;
    ForEachRun(
        lanes,
        [&](uint32_t n, uint8_t* out) {
            constexpr uint32_t step = kBlock / sizeof(T);
            for (; n >= step; n -= step, out += kBlock) std::memcpy(out, pattern, kBlock);
            if (n) std::memcpy(out, pattern, n * sizeof(T));
        },
        d.Host<T>());
}

// Element i of the count is first + i; in a repeat form lane l of repeat r is first + r * lanes + l.
template <typename T>
void RunIndex(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst, T first, uint64_t block,
              uint64_t repeat) {
    const VecOperand d = Dst(dst, block, repeat);
    if (!Begin(site, CostKey<"CreateVecIndex", T>::value.data(), lanes, {d})) return;
    const auto host = d.Host<T>();
    using C = std::conditional_t<std::is_integral_v<T>, int64_t, float>;
    const HalfLimit limit(Soc().fp16_saturate);
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t l = 0; l < lanes.lanes; ++l) {
            if (!lanes.On(r, l)) continue;
            T* out = reinterpret_cast<T*>(host.At(r, l));
            const C value = static_cast<C>(first) + static_cast<C>(r * lanes.lanes + l);
            if constexpr (std::is_integral_v<T>)
                *out = static_cast<T>(value);
            else
                StoreScalar(out, value, limit);
        }
    }
}

}  // namespace ascsim

namespace AscendC {

template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const ascsim::Scalar<T>& scalarValue, uint64_t mask,
               int64_t repeatTime, const uint16_t dstBlockStride, const uint8_t dstRepeatStride,
               Loc loc = Loc::Here()) {
    ascsim::support::Duplicate<T>();
    const ascsim::Site site{"Duplicate", loc};
    ascsim::RunDuplicate(
        site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst,
        scalarValue, dstBlockStride, dstRepeatStride);
}
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const ascsim::Scalar<T>& scalarValue, uint64_t mask[],
               int64_t repeatTime, const uint16_t dstBlockStride, const uint8_t dstRepeatStride,
               Loc loc = Loc::Here()) {
    ascsim::support::Duplicate<T>();
    const ascsim::Site site{"Duplicate", loc};
    ascsim::RunDuplicate(
        site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst,
        scalarValue, dstBlockStride, dstRepeatStride);
}
template <typename T>
void Duplicate(const LocalTensor<T>& dst, const ascsim::Scalar<T>& scalarValue, const int32_t& count,
               Loc loc = Loc::Here()) {
    ascsim::support::Duplicate<T>();
    const ascsim::Site site{"Duplicate", loc};
    ascsim::RunDuplicate(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst,
                         scalarValue, 1, 8);
}

// Eight source elements per repeat, each spread over one block. 310P emulates the call: it takes stride 0 as
// 1 and leaves normal mode with an all-ones mask behind.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src0, int64_t repeatTime,
          const BrcbRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Brcb<T>();
    const ascsim::Site site{"Brcb", loc};
    const uint32_t repeat = ascsim::CheckRepeat(site, repeatTime);
    uint64_t block = repeatParams.dstBlkStride;
#if defined(ASCSIM_SOC_310P)
    if (block == 0) block = 1;
    ascsim::WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
#endif
    const ascsim::VecOperand d = ascsim::Dst(dst, block, repeatParams.dstRepStride);
    ascsim::VecOperand s = ascsim::Src(src0, "src");
    s.stride.repeat = 8 * sizeof(T);
    const uint32_t lanes = ascsim::LanesPerRepeat(sizeof(T));
    // The source footprint is 8 elements a repeat, so it is issued with its own lanes.
    if (!ascsim::BeginReduced(site, ascsim::CostKey<"Brcb", T>::value.data(),
                              ascsim::PrefixLanes(lanes, lanes, repeat), d, ascsim::PrefixLanes(8, 8, repeat),
                              s, ascsim::Rules{.overlap_free = true}))
        return;
    const T* in = reinterpret_cast<const T*>(s.Host<T>().base);
    uint8_t* out = d.Host<T>().base;
    for (uint32_t r = 0; r < repeat; ++r) {
        for (uint32_t j = 0; j < 8; ++j) {
            T pattern[ascsim::kBlock / sizeof(T)];
            for (T& p : pattern) p = in[r * 8 + j];
            std::memcpy(out + r * d.stride.repeat + j * d.stride.block, pattern, ascsim::kBlock);
        }
    }
}

template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const ascsim::Scalar<T>& firstValue, uint64_t mask,
                    int64_t repeatTime, uint16_t dstBlkStride, uint8_t dstRepStride, Loc loc = Loc::Here()) {
    ascsim::support::CreateVecIndex<T>();
    const ascsim::Site site{"CreateVecIndex", loc};
    ascsim::RunIndex<T>(site,
                        ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst,
                        firstValue, dstBlkStride, dstRepStride);
}
template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const ascsim::Scalar<T>& firstValue, uint64_t mask[],
                    int64_t repeatTime, uint16_t dstBlkStride, uint8_t dstRepStride, Loc loc = Loc::Here()) {
    ascsim::support::CreateVecIndex<T>();
    const ascsim::Site site{"CreateVecIndex", loc};
    ascsim::RunIndex<T>(site,
                        ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst,
                        firstValue, dstBlkStride, dstRepStride);
}
template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const ascsim::Scalar<T>& firstValue, uint32_t count,
                    Loc loc = Loc::Here()) {
    ascsim::support::CreateVecIndex<T>();
    const ascsim::Site site{"CreateVecIndex", loc};
    ascsim::RunIndex<T>(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst,
                        firstValue, 1, 8);
}

// first, first + diff, …; each value is computed from its index, so that no error accumulates.
template <typename T>
void ArithProgression(const LocalTensor<T>& dst, const ascsim::Scalar<T> firstValue,
                      const ascsim::Scalar<T> diffValue, const int32_t count, Loc loc = Loc::Here()) {
    ascsim::support::ArithProgression<T>();
    const ascsim::Site site{"ArithProgression", loc};
    const ascsim::Lanes lanes = ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count);
    const ascsim::VecOperand d = ascsim::Dst(dst);
    if (!ascsim::Begin(site, ascsim::CostKey<"ArithProgression", T>::value.data(), lanes, {d})) return;
    T* out = dst.Ptr();
    const ascsim::HalfLimit limit(ascsim::Soc().fp16_saturate);
    for (int32_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<T>)
            out[i] = static_cast<T>(firstValue + static_cast<int64_t>(diffValue) * i);
        else
            ascsim::StoreScalar(
                out + i,
                static_cast<float>(firstValue) + static_cast<float>(diffValue) * static_cast<float>(i),
                limit);
    }
}
template <typename T>
void Arange(const LocalTensor<T>& dst, const ascsim::Scalar<T> firstValue, const ascsim::Scalar<T> diffValue,
            const int32_t count, Loc loc = Loc::Here()) {
    ArithProgression(dst, firstValue, diffValue, count, loc);
}

}  // namespace AscendC
