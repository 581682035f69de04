// Compare, Compares, Select and the CMPMASK register.
// Docs: "比较与选择/Compare", "Compares", "Compare（结果存入寄存器）", "Select", "GetCmpMask(ISASI)",
// "SetCmpMask(ISASI)".
#pragma once
#include "ascsim/gather.h"
#include "ascsim/scalar_ops.h"

namespace ascsim {

using AscendC::CMPMODE;
using AscendC::SELMODE;

inline bool Holds(CMPMODE mode, auto a, auto b) {
    switch (mode) {
        case CMPMODE::LT:
            return a < b;
        case CMPMODE::GT:
            return a > b;
        case CMPMODE::EQ:
            return a == b;
        case CMPMODE::LE:
            return a <= b;
        case CMPMODE::GE:
            return a >= b;
        default:
            return a != b;
    }
}

template <typename T>
void CheckCompareMode(Site site, CMPMODE mode) {
    if constexpr (std::is_same_v<T, int32_t>) {
        if (mode != CMPMODE::EQ)
            Fail(CallSite(site.api, site.loc, Pipe::V), "param.cmp_mode",
                 "cmpMode: int32_t allows only EQ on %s", support::kSoc);
    }
}

// Results are packed, one bit per element, repeats one after the other. `second(r, lane)` gives the
// right-hand side.
template <Text api, typename T, typename U, typename Second>
void RunCompare(Site site, const Lanes& lanes, const AscendC::LocalTensor<U>& dst, const VecOperand& a,
                Op& op, CMPMODE mode, Second second) {
    static_assert(sizeof(U) == 1, "Compare: dst needs int8_t or uint8_t");
    CheckCompareMode<T>(site, mode);
    CheckOperands(op, {a}, lanes, {});
    Footprint(op, a, lanes);
    const uint64_t bytes = (static_cast<uint64_t>(lanes.repeats) * lanes.lanes) / 8;
    op.Add(Operand(dst, true, "dst", bytes));
    if (!Issue(op)) return;
    const auto in = a.Host<T>();
    uint8_t* out = reinterpret_cast<uint8_t*>(dst.Ptr());
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.lanes; i += 8) {
            uint8_t bits = 0;
            for (uint32_t j = 0; j < 8; ++j) {
                const auto left = LoadScalar(reinterpret_cast<const T*>(in.At(r, i + j)));
                bits |= static_cast<uint8_t>(Holds(mode, left, second(r, i + j))) << j;
            }
            *out++ = bits;
        }
    }
}

// The count form only works on whole repeats.
template <typename T>
Lanes CompareCount(Site site, uint32_t count) {
    constexpr uint32_t lanes = kRepeatBytes / sizeof(T);
    if (count % lanes) {
        WarnAt(
            site, Severity::Error, "param.count",
            "count: not a whole number of repeats, the rest is not compared: got %u; allowed multiples of %u",
            count, lanes);
    }
    WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
    return PrefixLanes(lanes, lanes, count / lanes);
}

template <typename T, typename U>
void CompareTensors(Site site, const Lanes& lanes, const AscendC::LocalTensor<U>& dst,
                    const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, CMPMODE mode,
                    const AscendC::BinaryRepeatParams& p) {
    if (lanes.Nothing()) return;
    Op op = VectorOp(site, CostKey<"Compare", T>::value.data(), lanes.repeats);
    const VecOperand a = Src(src0, "src0", p.src0BlkStride, p.src0RepStride),
                     b = Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    CheckOperands(op, {b}, lanes, {});
    Footprint(op, b, lanes);
    const auto right = b.Host<T>();
    RunCompare<"Compare", T>(site, lanes, dst, a, op, mode, [&](uint32_t r, uint32_t i) {
        return LoadScalar(reinterpret_cast<const T*>(right.At(r, i)));
    });
}

template <typename T, typename U>
void CompareWithScalar(Site site, const Lanes& lanes, const AscendC::LocalTensor<U>& dst,
                       const AscendC::LocalTensor<T>& src, T scalar, CMPMODE mode,
                       const AscendC::UnaryRepeatParams& p) {
    if (lanes.Nothing()) return;
    Op op = VectorOp(site, CostKey<"CompareScalar", T>::value.data(), lanes.repeats);
    const auto right = static_cast<ComputeType<T>>(scalar);
    RunCompare<"CompareScalar", T>(site, lanes, dst, Src(src, "src0", p.srcBlkStride, p.srcRepStride), op,
                                   mode, [&](uint32_t, uint32_t) { return right; });
}

// dst = bit ? src0 : src1 on the active lanes. `bit(r, lane)` reads the selection; `second` the other source.
template <typename T, typename Bit, typename Second>
void SelectLanes(const Lanes& lanes, const VecOperand& d, const VecOperand& a, Bit bit, Second second) {
    const auto out = d.Host<T>(), first = a.Host<T>();
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        for (uint32_t i = 0; i < lanes.lanes; ++i) {
            if (!lanes.On(r, i)) continue;
            *reinterpret_cast<T*>(out.At(r, i)) =
                bit(r, i) ? *reinterpret_cast<const T*>(first.At(r, i)) : second(r, i);
        }
    }
}

// Mode 0 uses the same 256 / sizeof(T) selection bits in every repeat (those of the first repeat); modes 1
// and 2 use them up repeat after repeat.
template <typename T, typename U, typename Second>
void RunSelect(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
               const AscendC::LocalTensor<U>& mask, const AscendC::LocalTensor<T>& src0,
               const VecOperand* src1, SELMODE mode, const AscendC::BinaryRepeatParams& p, Second second) {
    CheckTruncated(site, p.truncated);
    if (lanes.Nothing()) return;
    Op op = VectorOp(site, CostKey<"Select", T>::value.data(), lanes.repeats);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     a = Src(src0, "src0", p.src0BlkStride, p.src0RepStride);
    if (src1)
        CheckOperands(op, {d, a, *src1}, lanes, {});
    else
        CheckOperands(op, {d, a}, lanes, {});
    Footprint(op, d, lanes);
    Footprint(op, a, lanes);
    if (src1) Footprint(op, *src1, lanes);
    const bool reuse = mode == SELMODE::VSEL_CMPMASK_SPR;
    const uint64_t used = reuse
                              ? (lanes.repeats == 1 ? (lanes.prefix ? lanes.last : lanes.lanes) : lanes.lanes)
                              : static_cast<uint64_t>(lanes.repeats - 1) * lanes.lanes +
                                    (lanes.prefix ? lanes.last : lanes.lanes);
    op.Add(Operand(mask, false, "selMask", (used + 7) / 8));
    if (!Issue(op)) return;
    const uint8_t* bits = reinterpret_cast<const uint8_t*>(mask.Ptr());
    SelectLanes<T>(
        lanes, d, a,
        [&](uint32_t r, uint32_t i) {
            const uint64_t at = reuse ? i : static_cast<uint64_t>(r) * lanes.lanes + i;
            return (bits[at / 8] >> (at % 8)) & 1u;
        },
        second);
}

template <typename T, typename U>
void SelectTensors(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                   const AscendC::LocalTensor<U>& mask, const AscendC::LocalTensor<T>& src0,
                   const AscendC::LocalTensor<T>& src1, SELMODE mode, const AscendC::BinaryRepeatParams& p) {
    if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE) {
        Fail(CallSite(site.api, site.loc, Pipe::V), "param.sel_mode",
             "selMode: VSEL_TENSOR_SCALAR_MODE takes a scalar src1; allowed VSEL_CMPMASK_SPR, "
             "VSEL_TENSOR_TENSOR_MODE here");
    }
    const VecOperand b = Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    const auto right = b.Host<T>();
    RunSelect(site, lanes, dst, mask, src0, &b, mode, p,
              [&](uint32_t r, uint32_t i) { return *reinterpret_cast<const T*>(right.At(r, i)); });
}
template <typename T, typename U>
void SelectScalar(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                  const AscendC::LocalTensor<U>& mask, const AscendC::LocalTensor<T>& src0, T scalar,
                  SELMODE mode, const AscendC::BinaryRepeatParams& p) {
    if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE) {
        Fail(CallSite(site.api, site.loc, Pipe::V), "param.sel_mode",
             "selMode: a scalar src1 needs VSEL_TENSOR_SCALAR_MODE");
    }
    RunSelect(site, lanes, dst, mask, src0, nullptr, mode, p, [&](uint32_t, uint32_t) { return scalar; });
}

inline bool CmpMaskBit(uint32_t lane) { return (Core().cmp_mask[lane / 64] >> (lane % 64)) & 1u; }

}  // namespace ascsim

namespace AscendC {

// The mask arguments of Compare are reserved on both SoCs: every lane is compared.
template <typename T, typename U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, const uint64_t mask[], int64_t repeatTime,
             const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Compare<T>();
    const ascsim::Site site{"Compare", loc};
    constexpr uint32_t lanes = ascsim::LanesPerRepeat(sizeof(T));
    static_cast<void>(mask);
    ascsim::CompareTensors(site, ascsim::PrefixLanes(lanes, lanes, ascsim::CheckRepeat(site, repeatTime)),
                           dst, src0, src1, cmpMode, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, const uint64_t mask, int64_t repeatTime, const BinaryRepeatParams& repeatParams,
             Loc loc = Loc::Here()) {
    static_cast<void>(mask);
    Compare<T, U, isSetMask>(dst, src0, src1, cmpMode, MASK_PLACEHOLDER_LIST, repeatTime, repeatParams, loc);
}
template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
             CMPMODE cmpMode, uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Compare<T>();
    const ascsim::Site site{"Compare", loc};
    ascsim::CompareTensors(site, ascsim::CompareCount<T>(site, count), dst, src0, src1, cmpMode, {});
}

// One repeat into the CMPMASK register.
template <typename T, bool isSetMask = true, typename Mask>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, Mask mask,
             const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Compare<T>();
    const ascsim::Site site{"Compare", loc};
    const ascsim::Lanes lanes = [&] {
        if constexpr (std::is_pointer_v<Mask>)
            return ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, 1);
        else
            return ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)),
                                              static_cast<uint64_t>(mask), 1);
    }();
    if (lanes.Nothing()) return;
    ascsim::CheckCompareMode<T>(site, cmpMode);
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"Compare", T>::value.data(), 1);
    const ascsim::VecOperand a =
        ascsim::Src(src0, "src0", repeatParams.src0BlkStride, repeatParams.src0RepStride);
    const ascsim::VecOperand b =
        ascsim::Src(src1, "src1", repeatParams.src1BlkStride, repeatParams.src1RepStride);
    ascsim::CheckOperands(op, {a, b}, lanes, {});
    ascsim::Footprint(op, a, lanes);
    ascsim::Footprint(op, b, lanes);
    if (!ascsim::Issue(op)) return;
    const auto left = a.Host<T>(), right = b.template Host<T>();
    for (uint32_t i = 0; i < lanes.lanes; ++i) {
        if (!lanes.On(0, i)) continue;
        const uint64_t bit = uint64_t{1} << (i % 64);
        uint64_t& word = ascsim::Core().cmp_mask[i / 64];
        const bool holds =
            ascsim::Holds(cmpMode, ascsim::LoadScalar(reinterpret_cast<const T*>(left.At(0, i))),
                          ascsim::LoadScalar(reinterpret_cast<const T*>(right.At(0, i))));
        word = holds ? word | bit : word & ~bit;
    }
}

template <typename T, typename U, bool isSetMask = true>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const ascsim::Scalar<T> src1Scalar,
                   CMPMODE cmpMode, const uint64_t mask[], int64_t repeatTime,
                   const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::CompareScalar<T>();
    const ascsim::Site site{"CompareScalar", loc};
    constexpr uint32_t lanes = ascsim::LanesPerRepeat(sizeof(T));
    static_cast<void>(mask);
    ascsim::CompareWithScalar<T>(site,
                                 ascsim::PrefixLanes(lanes, lanes, ascsim::CheckRepeat(site, repeatTime)),
                                 dst, src0, src1Scalar, cmpMode, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const ascsim::Scalar<T> src1Scalar,
                   CMPMODE cmpMode, const uint64_t mask, int64_t repeatTime,
                   const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    static_cast<void>(mask);
    CompareScalar<T, U, isSetMask>(dst, src0, src1Scalar, cmpMode, MASK_PLACEHOLDER_LIST, repeatTime,
                                   repeatParams, loc);
}
template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const ascsim::Scalar<T> src1Scalar,
                   CMPMODE cmpMode, uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::CompareScalar<T>();
    const ascsim::Site site{"CompareScalar", loc};
    ascsim::CompareWithScalar<T>(site, ascsim::CompareCount<T>(site, count), dst, src0, src1Scalar, cmpMode,
                                 {});
}
// Newer name of CompareScalar.
template <typename T, typename U, bool isSetMask = true, typename Mask>
void Compares(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const ascsim::Scalar<T> src1Scalar,
              CMPMODE cmpMode, const Mask mask, int64_t repeatTime, const UnaryRepeatParams& repeatParams,
              Loc loc = Loc::Here()) {
    CompareScalar<T, U, isSetMask>(dst, src0, src1Scalar, cmpMode, mask, repeatTime, repeatParams, loc);
}
template <typename T, typename U>
void Compares(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const ascsim::Scalar<T> src1Scalar,
              CMPMODE cmpMode, uint32_t count, Loc loc = Loc::Here()) {
    CompareScalar<T, U>(dst, src0, src1Scalar, cmpMode, count, loc);
}

template <typename T>
void GetCmpMask(const LocalTensor<T>& dst, Loc loc = Loc::Here()) {
    ascsim::Op op = ascsim::VectorOp({"GetCmpMask", loc}, "GetCmpMask", 1);
    op.Add(ascsim::Operand(dst, true, "dst", 16));
    if (ascsim::Issue(op)) std::memcpy(static_cast<void*>(dst.Ptr()), ascsim::Core().cmp_mask, 16);
}
template <typename T>
void SetCmpMask(const LocalTensor<T>& src, Loc loc = Loc::Here()) {
    ascsim::Op op = ascsim::VectorOp({"SetCmpMask", loc}, "SetCmpMask", 1);
    op.Add(ascsim::Operand(src, false, "src", 16));
    if (ascsim::Issue(op)) std::memcpy(ascsim::Core().cmp_mask, src.Ptr(), 16);
}

template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint64_t mask[], int64_t repeatTime,
            const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectTensors(site,
                          ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),
                          dst, selMask, src0, src1, selMode, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint64_t mask, int64_t repeatTime,
            const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectTensors(site,
                          ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),
                          dst, selMask, src0, src1, selMode, repeatParams);
}
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const LocalTensor<T>& src1, SELMODE selMode, uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectTensors(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst,
                          selMask, src0, src1, selMode, {});
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const ascsim::Scalar<T> src1, SELMODE selMode, uint64_t mask[], int64_t repeatTime,
            const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectScalar<T>(site,
                            ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),
                            dst, selMask, src0, src1, selMode, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const ascsim::Scalar<T> src1, SELMODE selMode, uint64_t mask, int64_t repeatTime,
            const BinaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectScalar<T>(site,
                            ascsim::LanesOf<true>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),
                            dst, selMask, src0, src1, selMode, repeatParams);
}
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0,
            const ascsim::Scalar<T> src1, SELMODE selMode, uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    ascsim::SelectScalar<T>(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst,
                            selMask, src0, src1, selMode, {});
}

// Selection bits from the CMPMASK register, lanes from the mask register.
template <typename T, SELMODE selMode>
void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
            int64_t repeatTime, const BinaryRepeatParams& p, Loc loc = Loc::Here()) {
    ascsim::support::Select<T>();
    const ascsim::Site site{"Select", loc};
    const ascsim::Lanes lanes =
        ascsim::LanesOf<false>(site, ascsim::LanesPerRepeat(sizeof(T)), uint64_t{0}, repeatTime);
    const ascsim::VecOperand d = ascsim::Dst(dst, p.dstBlkStride, p.dstRepStride),
                             a = ascsim::Src(src0, "src0", p.src0BlkStride, p.src0RepStride),
                             b = ascsim::Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    if (!ascsim::Begin(site, ascsim::CostKey<"Select", T>::value.data(), lanes, {d, a, b})) return;
    const auto right = b.template Host<T>();
    ascsim::SelectLanes<T>(
        lanes, d, a, [](uint32_t, uint32_t i) { return ascsim::CmpMaskBit(i); },
        [&](uint32_t r, uint32_t i) { return *reinterpret_cast<const T*>(right.At(r, i)); });
}

}  // namespace AscendC
