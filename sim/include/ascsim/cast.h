// Cast and SetDeqScale. Docs: "类型转换/Cast", "类型转换辅助配置接口/SetDeqScale".
#pragma once
#include <string>

#include "ascsim/elementwise.h"
#include "ascsim/rounding.h"

namespace ascsim {

constexpr const char* kRoundModes[] = {"CAST_NONE",  "CAST_RINT",  "CAST_FLOOR", "CAST_CEIL",
                                       "CAST_ROUND", "CAST_TRUNC", "CAST_ODD"};

template <typename T>
constexpr const char* TypeName() {
    if constexpr (std::is_same_v<T, half>)
        return "half";
    else if constexpr (std::is_same_v<T, float>)
        return "float";
    else if constexpr (std::is_same_v<T, bfloat16_t>)
        return "bfloat16_t";
    else if constexpr (std::is_same_v<T, AscendC::int4b_t>)
        return "int4b_t";
    else if constexpr (std::is_same_v<T, int8_t>)
        return "int8_t";
    else if constexpr (std::is_same_v<T, uint8_t>)
        return "uint8_t";
    else if constexpr (std::is_same_v<T, int16_t>)
        return "int16_t";
    else if constexpr (std::is_same_v<T, int32_t>)
        return "int32_t";
    else
        return "int64_t";
}

inline std::string ModeList(uint32_t modes) {
    std::string text;
    for (uint32_t m = 0; m < 7; ++m) {
        if (modes >> m & 1u) text += (text.empty() ? "" : ", ") + std::string(kRoundModes[m]);
    }
    return text;
}

// The rounding mode is an ordinary argument, so it is judged when the call is made.
template <typename D, typename S>
void CheckMode(Site site, RoundMode mode) {
    constexpr uint32_t here = support::CastModes<D, S>(), there = support::CastModesElsewhere<D, S>();
    const uint32_t bit = 1u << static_cast<uint32_t>(mode);
    if ((here & bit) || (here & 0x80u)) return;
    const std::string allowed = ModeList(here);
    Fail(CallSite(site.api, site.loc, Pipe::V), "param.round_mode",
         "roundMode: not available for %s to %s: got %s; allowed %s on %s%s%s%s", TypeName<S>(),
         TypeName<D>(), kRoundModes[static_cast<uint32_t>(mode)], allowed.c_str(), support::kSoc,
         there & bit ? " (" : "", there & bit ? support::kOtherSoc : "", there & bit ? " has it)" : "");
}

// Eight lanes at a time for the conversions that kernels spend their time in; false: not one of them.
template <typename D, typename S>
bool ConvertFast(D* out, const S* in, uint32_t n, RoundMode mode, bool saturate_infinity) {
    const bool nearest = mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT;
    uint32_t i = 0;
    if constexpr (std::is_same_v<D, float> && std::is_same_v<S, half>) {
        for (; i + 8 <= n; i += 8) StoreVector(out + i, LoadHalf8(in + i), HalfLimit(false));
        for (; i < n; ++i) out[i] = static_cast<float>(in[i]);
        return true;
    } else if constexpr (std::is_same_v<D, half> && std::is_same_v<S, float>) {
        if (!nearest) return false;
        const HalfLimit limit(true);
        const V8f infinity = Splat(std::numeric_limits<float>::infinity());
        for (; i + 8 <= n; i += 8) {
            const V8f v = LoadVector(in + i);
            V8f r = limit(v);
            if (!saturate_infinity) r = (v == infinity) | (v == -infinity) ? v : r;
            StoreHalf8(out + i, r);
        }
        for (; i < n; ++i) out[i] = ConvertElement<half>(in[i], mode, saturate_infinity);
        return true;
    } else if constexpr (std::is_same_v<D, float> && std::is_same_v<S, bfloat16_t>) {
        for (; i < n; ++i) out[i] = Bf16BitsToFloat(in[i].Bits());
        return true;
    } else if constexpr (std::is_same_v<D, bfloat16_t> && std::is_same_v<S, float>) {
        if (!nearest) return false;
        for (; i + 8 <= n; i += 8) {
            V8u x;
            std::memcpy(&x, in + i, sizeof x);
            const V8u magnitude = x & 0x7fffffffu;
            V8u r = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
            r = (r & 0x7fffu) == 0x7f80u ? (magnitude == 0x7f800000u ? r : r - 1)
                                         : r;  // finite: largest finite
            r = magnitude > 0x7f800000u ? (x >> 16) | 0x40u : r;
            const auto narrow = __builtin_convertvector(r, uint16_t __attribute__((vector_size(16))));
            std::memcpy(out + i, &narrow, sizeof narrow);
        }
        for (; i < n; ++i) out[i] = ConvertElement<bfloat16_t>(in[i], mode, saturate_infinity);
        return true;
    } else if constexpr (std::is_same_v<D, float> && std::is_same_v<S, int32_t>) {
        if (!nearest) return false;
        for (; i + 8 <= n; i += 8)
            StoreVector(out + i, __builtin_convertvector(LoadVector(in + i), V8f), HalfLimit(false));
        for (; i < n; ++i) out[i] = static_cast<float>(in[i]);
        return true;
    }
    return false;
}

template <typename D, typename S>
void Convert(D* out, const S* in, uint32_t n, RoundMode mode, bool saturate_infinity) {
    if constexpr (std::is_same_v<D, half> && std::is_same_v<S, int32_t>) {
        const double scale = Core().deq_scale;
        for (uint32_t i = 0; i < n; ++i)
            out[i] = ConvertElement<half>(DoubleToFloatOdd(in[i] * scale), RoundMode::CAST_RINT,
                                          saturate_infinity);
    } else if (!ConvertFast(out, in, n, mode, saturate_infinity)) {
        for (uint32_t i = 0; i < n; ++i) out[i] = ConvertElement<D>(in[i], mode, saturate_infinity);
    }
}

// Two 4-bit numbers per byte, the even element in the low half.
template <typename D, typename S>
void ConvertPacked(uint8_t* out, const uint8_t* in, uint32_t n, RoundMode mode) {
    for (uint32_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<S, AscendC::int4b_t>) {
            const int8_t nibble = static_cast<int8_t>(static_cast<int8_t>(in[i / 2] << (i % 2 ? 0 : 4)) >> 4);
            reinterpret_cast<half*>(out)[i] = half(static_cast<float>(nibble));
        } else {
            const int8_t whole =
                FloatToInt<int8_t>(static_cast<float>(reinterpret_cast<const half*>(in)[i]), mode);
            const uint8_t nibble = static_cast<uint8_t>(whole < -8 ? -8 : whole > 7 ? 7 : whole) & 15u;
            out[i / 2] = i % 2 ? static_cast<uint8_t>((out[i / 2] & 15u) | nibble << 4)
                               : static_cast<uint8_t>((out[i / 2] & 0xf0u) | nibble);
        }
    }
}

template <typename D, typename S>
constexpr bool kPacked = std::is_same_v<D, AscendC::int4b_t> || std::is_same_v<S, AscendC::int4b_t>;
template <typename D, typename S>
constexpr uint32_t kCastLanes =
    kPacked<D, S> ? 128 : kRepeatBytes / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));
// Blocks that one operand advances per repeat when everything is contiguous.
template <typename T, typename D, typename S>
constexpr uint8_t kCastStep = std::is_same_v<T, AscendC::int4b_t> ? 2 : kCastLanes<D, S> * sizeof(T) / kBlock;

template <typename D, typename S>
void RunCast(Site site, const Lanes& lanes, const AscendC::LocalTensor<D>& dst,
             const AscendC::LocalTensor<S>& src, RoundMode mode, const AscendC::UnaryRepeatParams& p) {
    CheckTruncated(site, p.truncated);
    CheckMode<D, S>(site, mode);
    const bool saturate_infinity = Soc().fp16_saturate;
    const char* cost = CostKey<"Cast", S, D>::value.data();
    if constexpr (kPacked<D, S>) {
        // Footprints count bytes: one lane of the packed operand is two elements, so lanes are halved for it.
        if (!lanes.prefix || lanes.active % 2 || lanes.last % 2) {
            Fail(CallSite(site.api, site.loc, Pipe::V), "param.mask",
                 "mask: int4b_t needs whole bytes: allowed an even number of leading lanes");
        }
        constexpr bool narrow = std::is_same_v<D, AscendC::int4b_t>;
        const Lanes bytes{lanes.repeats, lanes.lanes / 2, true, lanes.active / 2, lanes.last / 2, {0, 0}};
        const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                         s = Src(src, "src", p.srcBlkStride, p.srcRepStride);
        if (!BeginReduced(site, cost, narrow ? bytes : lanes, d, narrow ? lanes : bytes, s)) return;
        const Lane<1> out{Local(d.mem, d.offset), d.stride}, in{Local(s.mem, s.offset), s.stride};
        for (uint32_t r = 0; r < lanes.repeats; ++r) {
            for (uint32_t l = 0; l < lanes.Active(r); l += 16) {
                const uint32_t n = lanes.Active(r) - l < 16 ? lanes.Active(r) - l : 16;
                ConvertPacked<D, S>(out.At(r, narrow ? l / 2 : l * 2), in.At(r, narrow ? l * 2 : l / 2), n,
                                    mode);
            }
        }
    } else {
        const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                         s = Src(src, "src", p.srcBlkStride, p.srcRepStride);
        if (!Begin(site, cost, lanes, {d, s})) return;
        ForEachRun(
            lanes,
            [&](auto n, uint8_t* out, uint8_t* in) {
                Convert(reinterpret_cast<D*>(out), reinterpret_cast<const S*>(in), n, mode,
                        saturate_infinity);
            },
            d.Host<D>(), s.template Host<S>());
    }
}

}  // namespace ascsim

namespace AscendC {

template <typename D, typename S, bool isSetMask = true>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, const RoundMode& roundMode,
          const uint64_t mask[], int64_t repeatTime, const UnaryRepeatParams& repeatParams,
          Loc loc = Loc::Here()) {
    ascsim::support::Cast<D, S>();
    const ascsim::Site site{"Cast", loc};
    ascsim::RunCast(site, ascsim::LanesOf<isSetMask>(site, ascsim::kCastLanes<D, S>, mask, repeatTime), dst,
                    src, roundMode, repeatParams);
}
template <typename D, typename S, bool isSetMask = true>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, const RoundMode& roundMode,
          const uint64_t mask, int64_t repeatTime, const UnaryRepeatParams& repeatParams,
          Loc loc = Loc::Here()) {
    ascsim::support::Cast<D, S>();
    const ascsim::Site site{"Cast", loc};
    ascsim::RunCast(site, ascsim::LanesOf<isSetMask>(site, ascsim::kCastLanes<D, S>, mask, repeatTime), dst,
                    src, roundMode, repeatParams);
}
template <typename D, typename S>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, const RoundMode& roundMode,
          const uint32_t count, Loc loc = Loc::Here()) {
    ascsim::support::Cast<D, S>();
    const ascsim::Site site{"Cast", loc};
    ascsim::RunCast(site, ascsim::CountForm(site, ascsim::kCastLanes<D, S>, count), dst, src, roundMode,
                    UnaryRepeatParams(1, 1, ascsim::kCastStep<D, D, S>, ascsim::kCastStep<S, D, S>));
}

// Scale of int32 -> half; a register of the core, so it holds for the calls that follow.
inline void SetDeqScale(half scale) { ascsim::Core().deq_scale = static_cast<float>(scale); }

}  // namespace AscendC
