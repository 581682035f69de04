// Order of the hardware reductions: binary tree of adjacent pairs, each node rounded to the element type.
// Docs: "归约计算/ReduceDataBlock", key features.
#pragma once
#include "ascsim/simd.h"

namespace ascsim {

template <typename T>
inline float Node(float a, float b, HalfLimit limit) {
    const float sum = a + b;
    if constexpr (std::is_same_v<T, half>)
        return HalfBitsToFloat(FloatToHalfBits(limit(sum)));
    else
        return sum;
}

// One level: v[i] = v[2i] + v[2i + 1] for n values (n even), in place.
template <typename T>
inline void TreeLevel(float* v, uint32_t n, HalfLimit limit) {
    uint32_t i = 0;
#if defined(__AVX2__)
    for (; 2 * i + 16 <= n; i += 8) {
        const __m256 pairs = _mm256_hadd_ps(_mm256_loadu_ps(v + 2 * i), _mm256_loadu_ps(v + 2 * i + 8));
        V8f sum =
            reinterpret_cast<V8f>(_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8)));
        if constexpr (std::is_same_v<T, half>) {
            uint16_t rounded[8];
            StoreHalf8(rounded, limit(sum));
            sum = LoadHalf8(rounded);
        }
        std::memcpy(v + i, &sum, sizeof sum);
    }
#endif
    for (; i < n / 2; ++i) v[i] = Node<T>(v[2 * i], v[2 * i + 1], limit);
}

// Sums n values (n a power of two) in place.
template <typename T>
inline float TreeSum(float* v, uint32_t n, HalfLimit limit) {
    for (; n > 1; n /= 2) TreeLevel<T>(v, n, limit);
    return v[0];
}

// Sums of the eight 8-element blocks at p, step bytes apart, as one vector.
inline V8f BlockSums8(const uint8_t* p, uint64_t step) {
#if defined(__AVX__)
    const auto load = [&](uint32_t i) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(p + i * step));
    };
    const __m256 s01 = _mm256_hadd_ps(load(0), load(1)), s23 = _mm256_hadd_ps(load(2), load(3));
    const __m256 s45 = _mm256_hadd_ps(load(4), load(5)), s67 = _mm256_hadd_ps(load(6), load(7));
    const __m256 s0123 = _mm256_hadd_ps(s01, s23),
                 s4567 = _mm256_hadd_ps(s45, s67);  // halves of each block apart
    const __m128 low = _mm_add_ps(_mm256_castps256_ps128(s0123), _mm256_extractf128_ps(s0123, 1));
    const __m128 high = _mm_add_ps(_mm256_castps256_ps128(s4567), _mm256_extractf128_ps(s4567, 1));
    return reinterpret_cast<V8f>(_mm256_set_m128(high, low));
#else
    V8f r;
    for (uint32_t i = 0; i < 8; ++i) {
        float v[8];
        std::memcpy(v, p + i * step, sizeof v);
        r[i] = TreeSum<float>(v, 8, HalfLimit(false));
    }
    return r;
#endif
}

inline float PairTree8(V8f v) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

}  // namespace ascsim
