// IEEE binary16 as the AI Core sees it: 2 bytes, arithmetic in fp32 with one rounding (to nearest even) per
// operation. The double rounding fp32 -> fp16 is exact for + - * / sqrt because 24 >= 2 * 11 + 2 (Figueroa,
// "When is double rounding innocuous?", 1995).
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace ascsim {

constexpr uint16_t kHalfMaxBits = 0x7bff;  // 65504
constexpr uint16_t kHalfInfBits = 0x7c00;

// Portable conversions: reference for the intrinsics, and the path of machines without F16C.
constexpr float HalfBitsToFloatPortable(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1f) {
        // A signalling NaN becomes quiet, as vcvtph2ps does.
        return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? 0x400000u : 0u) | (mantissa << 13));
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact: subnormals have 10 bits
        return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

constexpr uint16_t FloatToHalfBitsPortable(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((x >> 16) & 0x8000u);
    const uint32_t magnitude = x & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) {
        const uint32_t payload = magnitude > 0x7f800000u ? (0x200u | ((magnitude >> 13) & 0x3ffu)) : 0u;
        return static_cast<uint16_t>(sign | kHalfInfBits | payload);
    }
    if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
        return static_cast<uint16_t>(sign | kHalfInfBits);
    }
    if (magnitude < 0x38800000u) {  // below 2^-14: align the mantissa to 2^-24 and round the dropped part
        const uint32_t exponent = magnitude >> 23;
        if (exponent < 102) return sign;  // below 2^-25
        const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        const uint32_t shift = 126 - exponent;
        const uint32_t rest = mantissa & ((1u << shift) - 1);
        const uint32_t tie = 1u << (shift - 1);
        uint32_t result = mantissa >> shift;
        if (rest > tie || (rest == tie && (result & 1u))) ++result;
        return static_cast<uint16_t>(sign | result);
    }
    const uint32_t rebased = magnitude - 0x38000000u;
    const uint32_t odd = (rebased >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((rebased + 0xfffu + odd) >> 13));
}

inline float HalfBitsToFloat(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    return HalfBitsToFloatPortable(h);
#endif
}

inline uint16_t FloatToHalfBits(float value) {
#if defined(__F16C__)
    return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
    return FloatToHalfBitsPortable(value);
#endif
}

// Keeps the bits that a later rounding to fewer bits needs: truncation with a sticky last bit ("round to
// odd"), so that double -> fp32 -> fp16 or bf16 rounds once.
inline float DoubleToFloatOdd(double value) {
    const float nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || value != value) return nearest;
    const uint32_t bits = std::bit_cast<uint32_t>(nearest);
    const bool away = (nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest)) >
                      (value < 0 ? -value : value);
    return std::bit_cast<float>((away ? bits - 1 : bits) | 1u);
}

}  // namespace ascsim

// The name kernels use is global, as the compiler built-in it stands for.
class half {
 public:
    half() = default;
    template <typename T>
        requires std::is_arithmetic_v<T>
    half(T value) : bits_(ascsim::FloatToHalfBits(Narrow(value))) {}
    operator float() const { return ascsim::HalfBitsToFloat(bits_); }

    static constexpr half FromBits(uint16_t bits) {
        half h;
        h.bits_ = bits;
        return h;
    }
    constexpr uint16_t Bits() const { return bits_; }

    half operator-() const { return FromBits(static_cast<uint16_t>(bits_ ^ 0x8000u)); }
    half& operator+=(half other) { return *this = half(float(*this) + float(other)); }
    half& operator-=(half other) { return *this = half(float(*this) - float(other)); }
    half& operator*=(half other) { return *this = half(float(*this) * float(other)); }
    half& operator/=(half other) { return *this = half(float(*this) / float(other)); }

 private:
    template <typename T>
    static float Narrow(T value) {
        if constexpr (std::is_same_v<T, float>)
            return value;
        else
            return ascsim::DoubleToFloatOdd(static_cast<double>(value));
    }
    uint16_t bits_;
};
static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half> &&
              std::is_trivially_default_constructible_v<half>);

inline half operator+(half a, half b) { return half(float(a) + float(b)); }
inline half operator-(half a, half b) { return half(float(a) - float(b)); }
inline half operator*(half a, half b) { return half(float(a) * float(b)); }
inline half operator/(half a, half b) { return half(float(a) / float(b)); }
inline bool operator==(half a, half b) { return float(a) == float(b); }
inline bool operator<(half a, half b) { return float(a) < float(b); }
inline bool operator>(half a, half b) { return float(a) > float(b); }
inline bool operator<=(half a, half b) { return float(a) <= float(b); }
inline bool operator>=(half a, half b) { return float(a) >= float(b); }

// Mixed operands follow the usual arithmetic conversions: half with float is float, half with an integer is
// half.
namespace ascsim {
template <typename T>
using HalfWith = std::conditional_t<std::is_floating_point_v<T>, T, half>;
template <typename T>
concept Arithmetic = std::is_arithmetic_v<T>;
}  // namespace ascsim
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator+(half a, T b) {
    return ascsim::HalfWith<T>(a) + ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator-(half a, T b) {
    return ascsim::HalfWith<T>(a) - ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator*(half a, T b) {
    return ascsim::HalfWith<T>(a) * ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator/(half a, T b) {
    return ascsim::HalfWith<T>(a) / ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator+(T a, half b) {
    return ascsim::HalfWith<T>(a) + ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator-(T a, half b) {
    return ascsim::HalfWith<T>(a) - ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator*(T a, half b) {
    return ascsim::HalfWith<T>(a) * ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
ascsim::HalfWith<T> operator/(T a, half b) {
    return ascsim::HalfWith<T>(a) / ascsim::HalfWith<T>(b);
}
template <ascsim::Arithmetic T>
bool operator==(half a, T b) {
    return float(a) == b;
}
template <ascsim::Arithmetic T>
bool operator<(half a, T b) {
    return float(a) < b;
}
template <ascsim::Arithmetic T>
bool operator>(half a, T b) {
    return float(a) > b;
}
template <ascsim::Arithmetic T>
bool operator<=(half a, T b) {
    return float(a) <= b;
}
template <ascsim::Arithmetic T>
bool operator>=(half a, T b) {
    return float(a) >= b;
}
