// Exact conversions between element types in every rounding mode of Cast.
// Docs: "数据结构/precision_conversion": NONE means RINT where precision is lost; results out of range
// saturate.
#pragma once
#include "ascsim/params.h"
#include "ascsim/simd.h"

namespace ascsim {

using AscendC::RoundMode;

// What truncation towards zero drops, seen from the last kept bit.
enum class Rest : uint8_t { Zero, Below, Tie, Above };  // nothing, below half, exactly half, above half

inline bool RoundsUp(RoundMode mode, Rest rest, bool odd, bool negative) {
    if (rest == Rest::Zero) return false;
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return negative;
        case RoundMode::CAST_CEIL:
            return !negative;
        case RoundMode::CAST_ROUND:
            return rest >= Rest::Tie;
        case RoundMode::CAST_TRUNC:
            return false;
        case RoundMode::CAST_ODD:
            return !odd;
        default:
            return rest == Rest::Above || (rest == Rest::Tie && odd);
    }
}

inline Rest RestOf(uint64_t dropped, uint32_t bits) {
    const uint64_t tie = uint64_t{1} << (bits - 1);
    return dropped == 0 ? Rest::Zero : dropped < tie ? Rest::Below : dropped == tie ? Rest::Tie : Rest::Above;
}

// Out-of-range finite values become the largest finite one. An infinite source stays infinite where the SoC's
// fp16 knows infinity (fp16_saturate off), and saturates where it does not.
inline uint16_t FloatToHalfRounded(float x, RoundMode mode, bool saturate_infinity) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return FloatToHalfBitsPortable(x);
    if (magnitude == 0x7f800000u) return sign | (saturate_infinity ? kHalfMaxBits : kHalfInfBits);
    if (magnitude >= 0x47800000u) return sign | kHalfMaxBits;
    uint32_t kept;
    Rest rest;
    if (magnitude < 0x38800000u) {
        const uint32_t exponent = magnitude >> 23;
        const uint32_t mantissa = exponent ? (magnitude & 0x7fffffu) | 0x800000u : magnitude;
        const uint32_t shift = 126 - (exponent ? exponent : 1);
        kept = shift > 24 ? 0 : mantissa >> shift;
        rest = shift > 24 ? (mantissa ? Rest::Below : Rest::Zero)
                          : RestOf(mantissa & ((uint64_t{1} << shift) - 1), shift);
    } else {
        const uint32_t rebased = magnitude - 0x38000000u;
        kept = rebased >> 13;
        rest = RestOf(rebased & 0x1fffu, 13);
    }
    if (RoundsUp(mode, rest, kept & 1u, sign)) ++kept;
    return sign | static_cast<uint16_t>(kept > kHalfMaxBits ? kHalfMaxBits : kept);
}

inline uint16_t FloatToBf16Rounded(float x, RoundMode mode) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return FloatToBf16Bits(x);
    uint32_t kept = magnitude >> 16;
    if (RoundsUp(mode, RestOf(magnitude & 0xffffu, 16), kept & 1u, bits >> 31)) ++kept;
    return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (kept >= 0x7f80u ? 0x7f7fu : kept));
}

inline float RoundToIntegral(float x, RoundMode mode) {
    switch (mode) {
        case RoundMode::CAST_FLOOR:
            return std::floor(x);
        case RoundMode::CAST_CEIL:
            return std::ceil(x);
        case RoundMode::CAST_ROUND:
            return std::round(x);
        case RoundMode::CAST_TRUNC:
            return std::trunc(x);
        default:
            return std::nearbyint(x);
    }
}

// NaN becomes 0.
template <typename I>
I FloatToInt(float x, RoundMode mode) {
    const float r = RoundToIntegral(x, mode);
    constexpr float below = static_cast<float>(std::numeric_limits<I>::min());  // a power of two or 0: exact
    constexpr float above = static_cast<float>(uint64_t{1} << std::numeric_limits<I>::digits);  // max + 1
    if (r != r) return 0;
    if (r <= below) return std::numeric_limits<I>::min();
    return r >= above ? std::numeric_limits<I>::max() : static_cast<I>(r);
}

inline float IntToFloat(int64_t v, RoundMode mode) {
    const bool negative = v < 0;
    const uint64_t magnitude = negative ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v);
    const uint32_t width = 64 - static_cast<uint32_t>(std::countl_zero(magnitude | 1));
    if (width <= 24) return static_cast<float>(v);
    const uint32_t drop = width - 24;
    uint64_t kept = magnitude >> drop;
    if (RoundsUp(mode, RestOf(magnitude & ((uint64_t{1} << drop) - 1), drop), kept & 1u, negative)) ++kept;
    const float r = std::ldexp(static_cast<float>(kept), static_cast<int>(drop));
    return negative ? -r : r;
}

template <typename I, typename S>
I Saturate(S v) {
    if constexpr (sizeof(I) >= sizeof(S)) return v;
    constexpr S low = static_cast<S>(std::numeric_limits<I>::min()),
                high = static_cast<S>(std::numeric_limits<I>::max());
    return static_cast<I>(v < low ? low : v > high ? high : v);
}

// One element, any pair of the support tables but int4b_t (packed, see cast.h) and int32 -> half (scaled).
template <typename D, typename S>
D ConvertElement(S v, RoundMode mode, bool saturate_infinity) {
    constexpr bool from_real = !std::is_integral_v<S>;
    if constexpr (std::is_same_v<D, half>) {
        if constexpr (std::is_same_v<S, float>)
            return half::FromBits(FloatToHalfRounded(v, mode, saturate_infinity));
        else
            return half::FromBits(FloatToHalfRounded(static_cast<float>(v), mode, saturate_infinity));
    } else if constexpr (std::is_same_v<D, bfloat16_t>) {
        return bfloat16_t::FromBits(FloatToBf16Rounded(static_cast<float>(v), mode));
    } else if constexpr (std::is_same_v<D, float>) {
        if constexpr (std::is_same_v<S, float>)
            return RoundToIntegral(v, mode);
        else if constexpr (from_real)
            return static_cast<float>(v);
        else
            return IntToFloat(v, mode);
    } else if constexpr (from_real) {
        return FloatToInt<D>(static_cast<float>(v), mode);
    } else {
        return Saturate<D>(v);
    }
}

}  // namespace ascsim
