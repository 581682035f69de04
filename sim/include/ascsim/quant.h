// Conversions on the way out of L0C: relu, scale, saturation. The scale word: bits 0 … 31 an fp32 factor (the
// 910B unit reads 19 of them), 37 … 45 a signed 9-bit offset, 46 "the 8-bit result is signed". Docs:
// "Fixpipe", table of quantPre; "DataCopy (L0C to UB)", table of deqValue.
#pragma once
#include <cmath>

#include "ascsim/cube_params.h"
#include "ascsim/rounding.h"
#include "core/engine.h"

namespace ascsim {

struct QuantWord {
    float scale;
    int32_t offset;
    bool is_signed;
    bool shift_first;  // int32 sources: shift right by `shift` and saturate to 16 bits before the product
    uint32_t shift;
    static QuantWord From(uint64_t word, uint32_t scale_mask = 0xffffe000u) {
        const int32_t offset = int32_t(word >> 37 & 0x1ff);
        return {std::bit_cast<float>(uint32_t(word) & scale_mask), offset >= 256 ? offset - 512 : offset,
                (word >> 46 & 1) != 0, (word >> 36 & 1) != 0, uint32_t(word >> 32 & 15) + 1};
    }
};

template <typename D>
D ToHalfLike(float v) {
    if constexpr (std::is_same_v<D, half>)
        return half(HalfLimit(Soc().fp16_saturate)(v));
    else
        return D(v);
}

inline float NearestEven(float v) { return std::nearbyint(v); }

// A float or int32 element times its scale, as an 8-bit integer.
template <typename D>
D ToInt8(float v, const QuantWord& q) {
    const float scaled = std::clamp(NearestEven(v * q.scale), -256.0f, 255.0f) + float(q.offset);
    const float low = q.is_signed ? -128.0f : 0.0f, high = q.is_signed ? 127.0f : 255.0f;
    return D(int32_t(std::clamp(scaled, low, high)));
}

// One element out of L0C in the mode `quant` (vector modes have their own word per column).
template <typename D, typename S>
D Convert(S value, QuantMode_t quant, const QuantWord& q, bool relu) {
    if (relu && value < S(0)) value = S(0);
    switch (quant) {
        case NoQuant:
            if constexpr (std::is_same_v<D, S>) return value;
            break;
        case F322F16:
        case F322BF16:
            if constexpr (std::is_same_v<D, half> || std::is_same_v<D, bfloat16_t>)
                return ToHalfLike<D>(float(value));
            break;
        case DEQF16:
        case VDEQF16:
            if constexpr (std::is_same_v<D, half>) return ToHalfLike<D>(float(value) * q.scale);
            break;
        default:
            if constexpr (sizeof(D) == 1) return ToInt8<D>(float(value), q);
    }
    return D(0);
}

// Whether the mode turns S into D.
template <typename D, typename S>
constexpr bool QuantFits(QuantMode_t quant) {
    const bool f32 = std::is_same_v<S, float>, i32 = std::is_same_v<S, int32_t>;
    switch (quant) {
        case NoQuant:
            return std::is_same_v<D, S>;
        case F322F16:
            return f32 && std::is_same_v<D, half>;
        case F322BF16:
            return f32 && std::is_same_v<D, bfloat16_t>;
        case DEQF16:
        case VDEQF16:
            return i32 && std::is_same_v<D, half>;
        case QF322B8_PRE:
        case VQF322B8_PRE:
            return f32 && sizeof(D) == 1;
        case REQ8:
        case VREQ8:
            return i32 && sizeof(D) == 1;
    }
    return false;
}
constexpr bool PerColumn(QuantMode_t quant) {
    return quant == VDEQF16 || quant == VQF322B8_PRE || quant == VREQ8;
}

}  // namespace ascsim
