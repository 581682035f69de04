// bfloat16: the upper half of an fp32 number. No arithmetic on the scalar unit (kernels use ToFloat / Cast),
// as in CANN.
#pragma once
#include "half.h"

#define __bfloat16_t_defined  // kernels that bring a stand-in for SoCs without the type look for this

namespace ascsim {

constexpr float Bf16BitsToFloat(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t FloatToBf16Bits(float value) {
    const uint32_t x = std::bit_cast<uint32_t>(value);
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);  // quiet the NaN
    return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

}  // namespace ascsim

class bfloat16_t {
 public:
    bfloat16_t() = default;
    template <typename T>
        requires std::is_arithmetic_v<T>
    bfloat16_t(T value) : bits_(ascsim::FloatToBf16Bits(Narrow(value))) {}
    explicit operator float() const { return ascsim::Bf16BitsToFloat(bits_); }

    static constexpr bfloat16_t FromBits(uint16_t bits) {
        bfloat16_t b;
        b.bits_ = bits;
        return b;
    }
    constexpr uint16_t Bits() const { return bits_; }

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
namespace AscendC {
inline float ToFloat(const bfloat16_t& value) { return static_cast<float>(value); }
inline bfloat16_t ToBfloat16(const float& value) {  // drops the lower half, as CANN's scalar helper does
    return bfloat16_t::FromBits(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
}
}  // namespace AscendC

static_assert(sizeof(bfloat16_t) == 2 && std::is_trivially_copyable_v<bfloat16_t>);
