// Vector-scalar calls: Adds Muls Maxs Mins LeakyRelu Axpy ShiftLeft ShiftRight.
// Docs: "基础算术/Adds" and following, "复合计算/Axpy", "逻辑计算/ShiftLeft", "ShiftRight".
#pragma once
#include "ascsim/elementwise.h"

namespace ascsim {

template <typename T>
using Scalar = std::type_identity_t<T>;  // not deduced: the tensors fix the type

template <typename Fn, typename T>
Bound<Fn, ComputeType<T>> Bind(T scalar) {
    return {static_cast<ComputeType<T>>(scalar)};
}

template <typename C>
struct ShiftLeftBy {
    C amount;
    C operator()(C a) const {
        return amount >= C(8 * sizeof(C)) ? C(0)
                                          : static_cast<C>(static_cast<std::make_unsigned_t<C>>(a) << amount);
    }
};
// Arithmetic for signed types; with rounding, half of the last dropped bit is added first.
template <typename C>
struct ShiftRightBy {
    C amount;
    bool round;
    C operator()(C a) const {
        const int64_t n = amount > 62 ? 62 : static_cast<int64_t>(amount);
        const int64_t half_bit = round && n > 0 ? int64_t{1} << (n - 1) : 0;
        return static_cast<C>((static_cast<int64_t>(a) + half_bit) >> n);
    }
};

// dst += src * scalar. float += half takes 64 lanes a repeat.
template <typename T, typename U>
void RunAxpy(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
             const AscendC::LocalTensor<U>& src, U scalar, const AscendC::UnaryRepeatParams& p) {
    CheckTruncated(site, p.truncated);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     s = Src(src, "src", p.srcBlkStride, p.srcRepStride);
    VecOperand old = d;
    old.write = false;
    constexpr bool mixed = !std::is_same_v<T, U>;
    const char* cost = mixed ? CostKey<"Axpy", U, T>::value.data() : CostKey<"Axpy", T>::value.data();
    if (!Begin(site, cost, lanes, {d, old, s}, Rules{.accumulate = true})) return;
    const HalfLimit limit(Soc().fp16_saturate);
    const float factor = static_cast<float>(scalar);
    struct Fn {
        float factor;
        V8f vector;
        float operator()(float dst, float src) const { return src * factor + dst; }
        V8f operator()(V8f dst, V8f src) const { return src * vector + dst; }
    } fn{factor, Splat(factor)};
    ForEachRun(
        lanes,
        [&](auto n, uint8_t* out, uint8_t* in) {
            T* o = reinterpret_cast<T*>(out);
            MapVector<T>(n, limit, fn, o, static_cast<const T*>(o), reinterpret_cast<const U*>(in));
        },
        d.Host<T>(), s.template Host<U>());
}

}  // namespace ascsim

namespace AscendC {

#define ASCSIM_SCALAR(Name, EXTRA, FN)                                                                    \
    template <typename T, bool isSetMask = true>                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascsim::Scalar<T>& scalarValue, \
              uint64_t mask[], int64_t repeatTime, const UnaryRepeatParams& repeatParams EXTRA,           \
              Loc loc = Loc::Here()) {                                                                    \
        ascsim::support::Name<T>();                                                                       \
        const ascsim::Site site{#Name, loc};                                                              \
        ascsim::RunUnary<#Name>(                                                                          \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),  \
            dst, src, repeatParams, FN);                                                                  \
    }                                                                                                     \
    template <typename T, bool isSetMask = true>                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascsim::Scalar<T>& scalarValue, \
              uint64_t mask, int64_t repeatTime, const UnaryRepeatParams& repeatParams EXTRA,             \
              Loc loc = Loc::Here()) {                                                                    \
        ascsim::support::Name<T>();                                                                       \
        const ascsim::Site site{#Name, loc};                                                              \
        ascsim::RunUnary<#Name>(                                                                          \
            site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime),  \
            dst, src, repeatParams, FN);                                                                  \
    }                                                                                                     \
    template <typename T, bool isSetMask = true>                                                          \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const ascsim::Scalar<T>& scalarValue, \
              const int32_t& count, Loc loc = Loc::Here()) {                                              \
        ascsim::support::Name<T>();                                                                       \
        const ascsim::Site site{#Name, loc};                                                              \
        [[maybe_unused]] constexpr bool roundEn = false;                                                  \
        ascsim::RunUnary<#Name>(                                                                          \
            site, ascsim::CountForm<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst, src, \
            {}, FN);                                                                                      \
    }

#define ASCSIM_NONE
#define ASCSIM_ROUND , bool roundEn = false
ASCSIM_SCALAR(Adds, ASCSIM_NONE, ascsim::Bind<ascsim::AddFn>(scalarValue))
ASCSIM_SCALAR(Muls, ASCSIM_NONE, ascsim::Bind<ascsim::MulFn>(scalarValue))
ASCSIM_SCALAR(Maxs, ASCSIM_NONE, ascsim::Bind<ascsim::MaxFn>(scalarValue))
ASCSIM_SCALAR(Mins, ASCSIM_NONE, ascsim::Bind<ascsim::MinFn>(scalarValue))
ASCSIM_SCALAR(LeakyRelu, ASCSIM_NONE, ascsim::Bind<ascsim::LeakyReluFn>(scalarValue))
ASCSIM_SCALAR(ShiftLeft, ASCSIM_NONE, ascsim::ShiftLeftBy<T>{scalarValue})
ASCSIM_SCALAR(ShiftRight, ASCSIM_ROUND, (ascsim::ShiftRightBy<T>{scalarValue, roundEn}))
#undef ASCSIM_ROUND
#undef ASCSIM_NONE
#undef ASCSIM_SCALAR

template <typename T, typename U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const ascsim::Scalar<U>& scalarValue,
          uint64_t mask, int64_t repeatTime, const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Axpy<T, U>();
    const ascsim::Site site{"Axpy", loc};
    ascsim::RunAxpy<T, U>(
        site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst, src,
        scalarValue, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const ascsim::Scalar<U>& scalarValue,
          uint64_t mask[], int64_t repeatTime, const UnaryRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Axpy<T, U>();
    const ascsim::Site site{"Axpy", loc};
    ascsim::RunAxpy<T, U>(
        site, ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst, src,
        scalarValue, repeatParams);
}
template <typename T, typename U>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const ascsim::Scalar<U>& scalarValue,
          const int32_t& count, Loc loc = Loc::Here()) {
    ascsim::support::Axpy<T, U>();
    const ascsim::Site site{"Axpy", loc};
    ascsim::RunAxpy<T, U>(site, ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count), dst, src,
                          scalarValue, UnaryRepeatParams(1, 1, 8, sizeof(U) == sizeof(T) ? 8 : 4));
}

}  // namespace AscendC
