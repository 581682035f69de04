// Small helpers kernels take from CANN's headers.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "ascsim/types.h"

namespace AscendC {

template <typename T, typename U>
struct IsSameType : std::is_same<T, U> {};

inline constexpr uint32_t DivCeil(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
inline constexpr uint32_t AlignUp(uint32_t a, uint32_t b) { return DivCeil(a, b) * b; }
inline constexpr uint32_t ConstCeil(uint32_t a, uint32_t b) { return DivCeil(a, b); }
inline constexpr uint32_t Ceil(uint32_t a, uint32_t b) { return DivCeil(a, b); }
inline constexpr int32_t CeilDivision(int32_t a, int32_t b) { return b ? (a + b - 1) / b : 0; }

namespace Std {
template <typename T, typename U>
constexpr T min(const T a, const U b) {
    static_assert(std::is_same_v<T, U>, "Std::min: both arguments must have one type");
    return a < b ? a : b;
}
template <typename T, typename U>
constexpr T max(const T a, const U b) {
    static_assert(std::is_same_v<T, U>, "Std::max: both arguments must have one type");
    return a > b ? a : b;
}
template <bool C, typename A, typename B>
using conditional_t = std::conditional_t<C, A, B>;
template <bool C, typename T = void>
using enable_if_t = std::enable_if_t<C, T>;
template <typename A, typename B>
inline constexpr bool is_same_v = std::is_same_v<A, B>;
template <typename A, typename B>
using is_same = std::is_same<A, B>;
template <typename T>
using remove_reference_t = std::remove_reference_t<T>;
}  // namespace Std

// Bits of `value` equal to countValue (0 or 1).
template <int countValue>
int64_t ScalarGetCountOfValue(uint64_t value) {
    static_assert(countValue == 0 || countValue == 1, "countValue must be 0 or 1");
    return countValue ? std::popcount(value) : 64 - std::popcount(value);
}
inline int64_t ScalarCountLeadingZero(uint64_t value) { return std::countl_zero(value); }
// Bits that equal the sign bit, counted from the top, the sign bit itself left out.
inline int64_t CountBitsCntSameAsSignBit(int64_t value) {
    return std::countl_zero(uint64_t(value < 0 ? ~value : value)) - 1;
}
// Position of the lowest bit equal to countValue, -1 when there is none.
template <int countValue>
int64_t ScalarGetSFFValue(uint64_t value) {
    static_assert(countValue == 0 || countValue == 1, "countValue must be 0 or 1");
    const uint64_t bits = countValue ? value : ~value;
    return bits ? std::countr_zero(bits) : -1;
}

}  // namespace AscendC
