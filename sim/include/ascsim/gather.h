// Element moves by offset or pattern: Gather, Gatherb, Scatter, GatherMask.
// Docs: "离散与聚合/Gather", "Gatherb(ISASI)", "Scatter(ISASI)", "比较与选择/GatherMask".
#pragma once
#include <algorithm>

#include "ascsim/elementwise.h"

namespace ascsim {

// Offsets come from memory, so the footprint is the range between the smallest and the largest offset in use.
struct Reach {
    uint64_t low = ~uint64_t{0}, high = 0;
    void Add(uint64_t offset, uint32_t bytes) {
        low = std::min(low, offset);
        high = std::max(high, offset + bytes);
    }
};

template <typename T>
Access ReachAccess(const AscendC::LocalTensor<T>& t, bool write, const char* name, uint64_t base,
                   const Reach& reach) {
    Access a = Operand(t, write, name, reach.high - reach.low);
    a.base += base + reach.low;
    return a;
}

inline Op VectorOp(Site site, const char* cost, uint32_t repeats) {
    Op op;
    op.name = site.api;
    op.kind = OpKind::Compute;
    op.pipe = Pipe::V;
    op.loc = site.loc;
    op.work.cost = cost;
    op.work.repeats = repeats;
    return op;
}

// Gather (dst[i] = src at offset[i]) and Scatter (dst at offset[i] = src[i]); offsets in bytes, one per lane.
// `indexed` is the tensor the offsets address, `linear` the one walked by lanes.
template <Text api, bool scatter, typename T>
void RunIndexed(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& indexed,
                const AscendC::LocalTensor<T>& linear, const AscendC::LocalTensor<uint32_t>& offsets,
                uint64_t base, uint64_t linear_repeat) {
    if (lanes.Nothing()) return;
    const VecOperand l = MakeOperand(linear, scatter ? "src" : "dst", !scatter, 1, linear_repeat);
    VecOperand o = Src(offsets, scatter ? "dstOffset" : "srcOffset");
    o.stride.repeat = static_cast<uint64_t>(lanes.lanes) * sizeof(uint32_t);
    Op op = VectorOp(site, CostKey<api, T>::value.data(), lanes.repeats);
    CheckOperands(op, {l, o}, lanes, {});
    Footprint(op, o, lanes);
    const auto offset_at = [&](uint32_t r, uint32_t i) {
        return reinterpret_cast<const uint32_t*>(
            Local(o.mem, o.offset))[static_cast<uint64_t>(r) * lanes.lanes + i];
    };
    const uint64_t offsets_end =
        (lanes.repeats - 1) * o.stride.repeat + (lanes.prefix ? lanes.last : lanes.lanes) * sizeof(uint32_t);
    if (o.offset + offsets_end > Core().local_bytes[int(Mem::UB)]) {
        Issue(op);  // stops the launch: the offsets themselves are out of bounds
        return;
    }
    Reach reach;
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.lanes; ++i) {
            if (!lanes.On(r, i)) continue;
            const uint32_t offset = offset_at(r, i);
            if (offset % sizeof(T)) {
                Report(Severity::Error, op, "param.offset",
                       "offset: not a multiple of the element size: got %u; allowed multiples of %zu", offset,
                       sizeof(T));
            }
            reach.Add(offset, sizeof(T));
        }
    }
    Footprint(op, l, lanes);
    if (reach.high) op.Add(ReachAccess(indexed, scatter, scatter ? "dst" : "src", base, reach));
    if (!Issue(op)) return;
    const auto host = l.Host<T>();
    uint8_t* const origin = reinterpret_cast<uint8_t*>(indexed.Ptr()) + base;
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.lanes; ++i) {
            if (!lanes.On(r, i)) continue;
            if constexpr (scatter)
                std::memcpy(origin + offset_at(r, i), host.At(r, i), sizeof(T));
            else
                std::memcpy(host.At(r, i), origin + offset_at(r, i), sizeof(T));
        }
    }
}

// Fixed patterns 1..7, lowest bit first.
constexpr uint32_t kGatherPatterns[] = {0,          0x55555555, 0xaaaaaaaa, 0x11111111,
                                        0x22222222, 0x44444444, 0x88888888, 0xffffffff};

// Copies the elements of src whose pattern bit is set to consecutive places of dst; returns how many.
template <typename T, typename Bit>
uint64_t RunGatherMask(Site site, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                       bool counter, uint32_t mask, const AscendC::GatherMaskParams& p, Op& op, Bit bit) {
    constexpr uint32_t lanes_per_repeat = kRepeatBytes / sizeof(T);
    // Counter mode: 910B takes `mask` elements of each repeat, 310P takes `mask` elements in all.
#if defined(ASCSIM_SOC_310P)
    const Lanes lanes = counter ? CountLanes(lanes_per_repeat, mask)
                                : PrefixLanes(lanes_per_repeat, lanes_per_repeat, p.repeatTimes);
#else
    const uint32_t repeat_lanes = counter ? mask : lanes_per_repeat;
    const Lanes lanes = PrefixLanes(repeat_lanes, repeat_lanes, p.repeatTimes);
#endif
    WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
    if (lanes.Nothing()) return 0;
    const VecOperand s = Src(src, "src0", p.src0BlockStride, p.src0RepeatStride);
    op.work.repeats = static_cast<uint32_t>((lanes.Total() + lanes_per_repeat - 1) / lanes_per_repeat);
    CheckOperands(op, {s}, lanes, {});
    Footprint(op, s, lanes);
    uint64_t kept = 0;
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.Active(r); ++i) kept += bit(r, i);
    }
    if (kept) op.Add(Operand(dst, true, "dst", kept * sizeof(T)));
    if (!Issue(op)) return kept;
    const auto host = s.Host<T>();
    T* out = dst.Ptr();
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.Active(r); ++i) {
            if (bit(r, i)) *out++ = *reinterpret_cast<const T*>(host.At(r, i));
        }
    }
    Core().gather_count = kept;
    return kept;
}

}  // namespace ascsim

namespace AscendC {

template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, const uint64_t mask, int64_t repeatTime, const uint16_t dstRepStride,
            Loc loc = Loc::Here()) {
    ascsim::support::Gather<T>();
    const ascsim::Site site{"Gather", loc};
    ascsim::RunIndexed<"Gather", false>(
        site, ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), src, dst,
        srcOffset, srcBaseAddr, dstRepStride);
}
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, const uint64_t mask[], int64_t repeatTime,
            const uint16_t dstRepStride, Loc loc = Loc::Here()) {
    ascsim::support::Gather<T>();
    const ascsim::Site site{"Gather", loc};
    ascsim::RunIndexed<"Gather", false>(
        site, ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), src, dst,
        srcOffset, srcBaseAddr, dstRepStride);
}
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset,
            const uint32_t srcBaseAddr, const uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Gather<T>();
    const ascsim::Site site{"Gather", loc};
    ascsim::RunIndexed<"Gather", false>(site,
                                        ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count),
                                        src, dst, srcOffset, srcBaseAddr, 8);
}

template <typename T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, const uint64_t mask, int64_t repeatTime, const uint8_t srcRepStride,
             Loc loc = Loc::Here()) {
    ascsim::support::Scatter<T>();
    const ascsim::Site site{"Scatter", loc};
    ascsim::RunIndexed<"Scatter", true>(
        site, ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst, src,
        dstOffset, dstBaseAddr, srcRepStride);
}
template <typename T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, const uint64_t mask[], int64_t repeatTime,
             const uint8_t srcRepStride, Loc loc = Loc::Here()) {
    ascsim::support::Scatter<T>();
    const ascsim::Site site{"Scatter", loc};
    ascsim::RunIndexed<"Scatter", true>(
        site, ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst, src,
        dstOffset, dstBaseAddr, srcRepStride);
}
template <typename T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset,
             const uint32_t dstBaseAddr, const uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Scatter<T>();
    const ascsim::Site site{"Scatter", loc};
    ascsim::RunIndexed<"Scatter", true>(site,
                                        ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count),
                                        dst, src, dstOffset, dstBaseAddr, 8);
}

// Whole blocks: eight byte offsets a repeat, each naming one 32-byte block of src.
template <typename T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& offset,
             int64_t repeatTime, const GatherRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Gatherb<T>();
    const ascsim::Site site{"Gatherb", loc};
    const uint32_t repeat = ascsim::CheckRepeat(site, repeatTime), lanes = ascsim::LanesPerRepeat(sizeof(T));
    if (repeat == 0) return;
    const ascsim::VecOperand d = ascsim::Dst(dst, repeatParams.dstBlkStride, repeatParams.dstRepStride);
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"Gatherb", T>::value.data(), repeat);
    const ascsim::Lanes all = ascsim::PrefixLanes(lanes, lanes, repeat);
    ascsim::CheckOperands(op, {d}, all, {});
    ascsim::Footprint(op, d, all);
    op.Add(ascsim::Operand(offset, false, "offset", repeat * 8 * sizeof(uint32_t)));
    const uint32_t* offsets = offset.Ptr();
    ascsim::Reach reach;
    const uint64_t room = ascsim::Core().local_bytes[int(ascsim::Mem::UB)];
    for (uint32_t i = 0; i < repeat * 8 && offset.offset() + (i + 1) * sizeof(uint32_t) <= room; ++i)
        reach.Add(offsets[i], ascsim::kBlock);
    if (reach.high) op.Add(ascsim::ReachAccess(src0, false, "src0", 0, reach));
    if (!ascsim::Issue(op)) return;
    const auto host = d.Host<T>();
    const uint8_t* origin = reinterpret_cast<const uint8_t*>(src0.Ptr());
    for (uint32_t i = 0; i < repeat * 8; ++i) {
        std::memcpy(host.base + i / 8 * host.stride.repeat + i % 8 * host.stride.block, origin + offsets[i],
                    ascsim::kBlock);
    }
}

template <typename T, typename U, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<U>& src1Pattern,
                const bool reduceMode, const uint32_t mask, const GatherMaskParams& gatherMaskParams,
                uint64_t& rsvdCnt, Loc loc = Loc::Here()) {
    ascsim::support::GatherMask<T>();
    static_assert(sizeof(U) == sizeof(T),
                  "GatherMask: src1Pattern needs uint16_t for 16-bit and uint32_t for 32-bit elements");
    const ascsim::Site site{"GatherMask", loc};
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"GatherMask", T>::value.data(), 0);
    constexpr uint32_t per_repeat = ascsim::kRepeatBytes / sizeof(T);
    const uint64_t step = gatherMaskParams.src1RepeatStride * ascsim::kBlock;
    // A repeat uses one bit per element, taken from where its pattern starts.
    const uint32_t repeats = reduceMode && ascsim::Soc().is_310p ? (mask + per_repeat - 1) / per_repeat
                                                                 : gatherMaskParams.repeatTimes;
    const uint32_t bits = reduceMode && !ascsim::Soc().is_310p ? mask : per_repeat;
    const uint64_t room = ascsim::Core().local_bytes[int(ascsim::Mem::UB)];
    const uint64_t bytes = (bits + 7) / 8;
    if (repeats) {
        op.Add(ascsim::Operand(src1Pattern, false, "src1Pattern",
                               ascsim::Shape{static_cast<uint32_t>(bytes), 1, 0, step ? repeats : 1, step}));
        if (src1Pattern.offset() + (repeats - 1) * step + bytes > room) {
            ascsim::Issue(op);  // stops the launch
            return;
        }
    }
    const uint8_t* pattern = reinterpret_cast<const uint8_t*>(src1Pattern.Ptr());
    rsvdCnt = ascsim::RunGatherMask(
        site, dst, src0, reduceMode, mask, gatherMaskParams, op,
        [&](uint32_t r, uint32_t i) { return (pattern[r * step + i / 8] >> (i % 8)) & 1u; });
}
template <typename T, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const uint8_t src1Pattern,
                const bool reduceMode, const uint32_t mask, const GatherMaskParams& gatherMaskParams,
                uint64_t& rsvdCnt, Loc loc = Loc::Here()) {
    ascsim::support::GatherMask<T>();
    const ascsim::Site site{"GatherMask", loc};
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"GatherMask", T>::value.data(), 0);
    const uint8_t highest = ascsim::Soc().is_310p ? 6 : 7;
    if (src1Pattern < 1 || src1Pattern > highest) {
        ascsim::Fail(op, "param.pattern", "src1Pattern: got %u; allowed 1..%u on %s", src1Pattern, highest,
                     ascsim::support::kSoc);
    }
    const uint32_t pattern = ascsim::kGatherPatterns[src1Pattern];
    rsvdCnt = ascsim::RunGatherMask(site, dst, src0, reduceMode, mask, gatherMaskParams, op,
                                    [&](uint32_t, uint32_t i) { return (pattern >> (i % 32)) & 1u; });
}
inline int64_t GetGatherMaskRemainCount() { return static_cast<int64_t>(ascsim::Core().gather_count); }

}  // namespace AscendC
