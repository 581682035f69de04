// Elementwise vector calls with one, two or three tensor operands.
// Docs: "基础算术/*", "逻辑计算/*", "复合计算/*".
#pragma once
#include "ascsim/call.h"
#include "ascsim/elementwise_fn.h"
#include "ascsim/support.h"

namespace ascsim {

constexpr uint32_t LanesPerRepeat(uint32_t size) { return kRepeatBytes / size; }

template <Text api, typename Fn, typename T>
void RunUnary(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
              const AscendC::LocalTensor<T>& src, const AscendC::UnaryRepeatParams& p, Fn fn) {
    CheckTruncated(site, p.truncated);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     s = Src(src, "src", p.srcBlkStride, p.srcRepStride);
    if (!Begin(site, CostKey<api, T>::value.data(), lanes, {d, s})) return;
    const HalfLimit limit(Soc().fp16_saturate);
    ForEachRun(
        lanes,
        [&](auto n, uint8_t* out, uint8_t* in) {
            if constexpr (std::is_invocable_v<Fn, Vector<T>>)
                MapVector<T>(n, limit, fn, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in));
            else
                MapScalar<T>(n, limit, fn, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in));
        },
        d.Host<T>(), s.Host<T>());
}

template <Text api, typename Fn, typename T>
void RunBinary(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
               const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1,
               const AscendC::BinaryRepeatParams& p) {
    CheckTruncated(site, p.truncated);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     a = Src(src0, "src0", p.src0BlkStride, p.src0RepStride),
                     b = Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    if (!Begin(site, CostKey<api, T>::value.data(), lanes, {d, a, b}, Rules{.accumulate = true})) return;
    const HalfLimit limit(Soc().fp16_saturate);
    ForEachRun(
        lanes,
        [&](auto n, uint8_t* out, uint8_t* x, uint8_t* y) {
            MapVector<T>(n, limit, Fn{}, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(x),
                         reinterpret_cast<const T*>(y));
        },
        d.Host<T>(), a.Host<T>(), b.Host<T>());
}

// Three operands, the destination among them. float destination with half sources takes 64 lanes a repeat.
template <Text api, typename Fn, typename T, typename U>
void RunTernary(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<U>& src0, const AscendC::LocalTensor<U>& src1,
                const AscendC::BinaryRepeatParams& p) {
    CheckTruncated(site, p.truncated);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     a = Src(src0, "src0", p.src0BlkStride, p.src0RepStride),
                     b = Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    VecOperand old = d;
    old.write = false;
    const bool mixed = !std::is_same_v<T, U>;
    const char* cost = mixed ? CostKey<api, U, T>::value.data() : CostKey<api, T>::value.data();
    if (!Begin(site, cost, lanes, {d, old, a, b}, Rules{.overlap_free = mixed, .accumulate = true})) return;
    const HalfLimit limit(Soc().fp16_saturate);
    ForEachRun(
        lanes,
        [&](auto n, uint8_t* out, uint8_t* x, uint8_t* y) {
            T* o = reinterpret_cast<T*>(out);
            MapVector<T>(n, limit, Fn{}, o, static_cast<const T*>(o), reinterpret_cast<const U*>(x),
                         reinterpret_cast<const U*>(y));
        },
        d.Host<T>(), a.Host<U>(), b.Host<U>());
}

}  // namespace ascsim

namespace AscendC {

// Three spellings per call: bit mask, continuous mask, first n elements.
#define ASCSIM_UNARY(Name, Fn)                                                                           \
    template <typename T, bool isSetMask = true>                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[], int64_t repeatTime, \
              const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {                            \
        ascsim::support::Name<T>();                                                                      \
        const ascsim::Site site{#Name, loc};                                                             \
        ascsim::RunUnary<#Name>(                                                                         \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), \
            dst, src, repeatParams, Fn{});                                                               \
    }                                                                                                    \
    template <typename T, bool isSetMask = true>                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask, int64_t repeatTime,   \
              const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {                            \
        ascsim::support::Name<T>();                                                                      \
        const ascsim::Site site{#Name, loc};                                                             \
        ascsim::RunUnary<#Name>(                                                                         \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), \
            dst, src, repeatParams, Fn{});                                                               \
    }                                                                                                    \
    template <typename T>                                                                                \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count,                \
              Loc loc = Loc::Here()) {                                                                   \
        ascsim::support::Name<T>();                                                                      \
        const ascsim::Site site{#Name, loc};                                                             \
        ascsim::RunUnary<#Name>(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), \
                                dst, src, {}, Fn{});                                                     \
    }

ASCSIM_UNARY(Abs, ascsim::AbsFn)
ASCSIM_UNARY(Exp, ascsim::ExpFn<T>)
ASCSIM_UNARY(Ln, ascsim::LnFn<T>)
ASCSIM_UNARY(Sqrt, ascsim::SqrtFn)
ASCSIM_UNARY(Rsqrt, ascsim::RsqrtFn<T>)
ASCSIM_UNARY(Reciprocal, ascsim::ReciprocalFn<T>)
ASCSIM_UNARY(Relu, ascsim::ReluFn)
ASCSIM_UNARY(Not, ascsim::NotFn)
#undef ASCSIM_UNARY

#define ASCSIM_BINARY(Name)                                                                                \
    template <typename T, bool isSetMask = true>                                                           \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,           \
              uint64_t mask[], int64_t repeatTime, const BinaryRepeatParams& repeatParams,                 \
              Loc loc = Loc::Here()) {                                                                     \
        ascsim::support::Name<T>();                                                                        \
        const ascsim::Site site{#Name, loc};                                                               \
        ascsim::RunBinary<#Name, ascsim::Name##Fn>(                                                        \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),   \
            dst, src0, src1, repeatParams);                                                                \
    }                                                                                                      \
    template <typename T, bool isSetMask = true>                                                           \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,           \
              uint64_t mask, int64_t repeatTime, const BinaryRepeatParams& repeatParams,                   \
              Loc loc = Loc::Here()) {                                                                     \
        ascsim::support::Name<T>();                                                                        \
        const ascsim::Site site{#Name, loc};                                                               \
        ascsim::RunBinary<#Name, ascsim::Name##Fn>(                                                        \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),   \
            dst, src0, src1, repeatParams);                                                                \
    }                                                                                                      \
    template <typename T>                                                                                  \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,           \
              const int32_t& count, Loc loc = Loc::Here()) {                                               \
        ascsim::support::Name<T>();                                                                        \
        const ascsim::Site site{#Name, loc};                                                               \
        ascsim::RunBinary<#Name, ascsim::Name##Fn>(                                                        \
            site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst, src0, src1, {}); \
    }

ASCSIM_BINARY(Add)
ASCSIM_BINARY(Sub)
ASCSIM_BINARY(Mul)
ASCSIM_BINARY(Div)
ASCSIM_BINARY(Max)
ASCSIM_BINARY(Min)
ASCSIM_BINARY(And)
ASCSIM_BINARY(Or)
ASCSIM_BINARY(AddRelu)
ASCSIM_BINARY(SubRelu)
#undef ASCSIM_BINARY

#define ASCSIM_TERNARY(Name, TYPES, U)                                                                   \
    template <TYPES, bool isSetMask = true>                                                              \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,         \
              const uint64_t mask[], int64_t repeatTime, const BinaryRepeatParams& repeatParams,         \
              Loc loc = Loc::Here()) {                                                                   \
        ascsim::support::Name<T, U>();                                                                   \
        const ascsim::Site site{#Name, loc};                                                             \
        ascsim::RunTernary<#Name, ascsim::Name##Fn>(                                                     \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), \
            dst, src0, src1, repeatParams);                                                              \
    }                                                                                                    \
    template <TYPES, bool isSetMask = true>                                                              \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,         \
              uint64_t mask, int64_t repeatTime, const BinaryRepeatParams& repeatParams,                 \
              Loc loc = Loc::Here()) {                                                                   \
        ascsim::support::Name<T, U>();                                                                   \
        const ascsim::Site site{#Name, loc};                                                             \
        ascsim::RunTernary<#Name, ascsim::Name##Fn>(                                                     \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), \
            dst, src0, src1, repeatParams);                                                              \
    }                                                                                                    \
    template <TYPES>                                                                                     \
    void Name(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1,         \
              const int32_t& count, Loc loc = Loc::Here()) {                                             \
        ascsim::support::Name<T, U>();                                                                   \
        const ascsim::Site site{#Name, loc};                                                             \
        /* half sources: the half-width operand advances 4 blocks a repeat */                            \
        const uint8_t step = sizeof(U) == sizeof(T) ? 8 : 4;                                             \
        ascsim::RunTernary<#Name, ascsim::Name##Fn>(                                                     \
            site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst, src0, src1,    \
            BinaryRepeatParams(1, 1, 1, 8, step, step));                                                 \
    }

#define ASCSIM_TYPES_TU typename T, typename U
ASCSIM_TERNARY(MulAddDst, ASCSIM_TYPES_TU, U)
ASCSIM_TERNARY(FusedMulAdd, typename T, T)
ASCSIM_TERNARY(FusedMulAddRelu, typename T, T)
#undef ASCSIM_TYPES_TU
#undef ASCSIM_TERNARY

}  // namespace AscendC
