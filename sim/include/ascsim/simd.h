// 32-byte vectors and the loops over them. g++ at -O2 does not vectorise loops with unknown trip counts, so
// the width is written out; GCC vector types keep one functor valid for both the vector body and the scalar
// tail.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "ascsim/bf16.h"
#include "ascsim/half.h"

namespace ascsim {

typedef float V8f __attribute__((vector_size(32)));
typedef int32_t V8i __attribute__((vector_size(32)));
typedef uint32_t V8u __attribute__((vector_size(32)));
typedef int16_t V16s __attribute__((vector_size(32)));
typedef uint16_t V16u __attribute__((vector_size(32)));

// Type that arithmetic happens in, and its vector.
template <typename T>
struct Compute {
    using Scalar = T;
};
template <>
struct Compute<half> {
    using Scalar = float;
};
template <>
struct Compute<bfloat16_t> {
    using Scalar = float;
};
template <typename T>
using ComputeType = typename Compute<T>::Scalar;

template <typename C>
struct VectorOf;
template <>
struct VectorOf<float> {
    using Type = V8f;
};
template <>
struct VectorOf<int32_t> {
    using Type = V8i;
};
template <>
struct VectorOf<uint32_t> {
    using Type = V8u;
};
template <>
struct VectorOf<int16_t> {
    using Type = V16s;
};
template <>
struct VectorOf<uint16_t> {
    using Type = V16u;
};
template <typename T>
using Vector = typename VectorOf<ComputeType<T>>::Type;
template <typename V>
constexpr uint32_t kWidth = sizeof(V) / sizeof(V{}[0]);

inline V8f Splat(float x) { return V8f{x, x, x, x, x, x, x, x}; }
template <typename V, typename S>
inline V SplatTo(S x) {
    return V{} + x;
}
template <>
inline V8f SplatTo<V8f, float>(float x) {
    return Splat(x);
}

// fp16 results above this magnitude become it; infinity switches saturation off. NaN stays NaN.
struct HalfLimit {
    float max;
    explicit HalfLimit(bool saturate) : max(saturate ? 65504.0f : std::numeric_limits<float>::infinity()) {}
    template <typename V>
    V operator()(V v) const {
        if constexpr (std::is_same_v<V, float>) {
            v = v > max ? max : v;
            return v < -max ? -max : v;
        } else {
            const V high = Splat(max), low = Splat(-max);
            v = v > high ? high : v;
            return v < low ? low : v;
        }
    }
};

inline V8f LoadHalf8(const void* p) {
#if defined(__F16C__)
    return reinterpret_cast<V8f>(_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))));
#else
    uint16_t bits[8];
    std::memcpy(bits, p, 16);
    V8f v;
    for (int i = 0; i < 8; ++i) v[i] = HalfBitsToFloatPortable(bits[i]);
    return v;
#endif
}
inline void StoreHalf8(void* p, V8f v) {
#if defined(__F16C__)
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#else
    uint16_t bits[8];
    for (int i = 0; i < 8; ++i) bits[i] = FloatToHalfBitsPortable(v[i]);
    std::memcpy(p, bits, 16);
#endif
}

template <typename T>
inline Vector<T> LoadVector(const T* p) {
    if constexpr (std::is_same_v<T, half>)
        return LoadHalf8(p);
    else {
        Vector<T> v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
}
template <typename T>
inline void StoreVector(T* p, Vector<T> v, HalfLimit limit) {
    if constexpr (std::is_same_v<T, half>)
        StoreHalf8(p, limit(v));
    else
        std::memcpy(p, &v, sizeof v);
}
template <typename T>
inline ComputeType<T> LoadScalar(const T* p) {
    return static_cast<ComputeType<T>>(*p);
}
template <typename T>
inline void StoreScalar(T* p, ComputeType<T> v, HalfLimit limit) {
    if constexpr (std::is_same_v<T, half>)
        *p = half(limit(v));
    else
        *p = static_cast<T>(v);
}

// dst[i] = f(src…[i]); `f` accepts the compute type and its vector.
template <typename D, typename F, typename... S>
inline void MapVector(uint32_t n, HalfLimit limit, F f, D* dst, const S*... src) {
    constexpr uint32_t width = kWidth<Vector<D>>;
    uint32_t i = 0;
    for (; i + width <= n; i += width) StoreVector(dst + i, f(LoadVector(src + i)...), limit);
    for (; i < n; ++i) StoreScalar(dst + i, f(LoadScalar(src + i)...), limit);
}
template <typename D, typename F, typename... S>
inline void MapScalar(uint32_t n, HalfLimit limit, F f, D* dst, const S*... src) {
    for (uint32_t i = 0; i < n; ++i) StoreScalar(dst + i, f(LoadScalar(src + i)...), limit);
}

// One rounding from fp64 to the operand type.
template <typename T>
inline ComputeType<T> RoundOnce(double x) {
    if constexpr (std::is_same_v<T, float>)
        return static_cast<float>(x);
    else
        return DoubleToFloatOdd(x);
}

}  // namespace ascsim
