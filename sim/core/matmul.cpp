#include "core/matmul.h"

#include <algorithm>
#include <cstring>

namespace ascsim {
namespace {

typedef float V8f __attribute__((vector_size(32)));
typedef uint32_t V8u __attribute__((vector_size(32)));  // unsigned: wraps

template <typename V, typename T>
V Load(const T* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// kRows rows and 16 columns of c, one block of k after the other.
template <typename V, typename T, int kRows>
void Tile(const MatmulShape& s, const T* a, const T* b, T* c) {
    for (uint32_t k0 = 0; k0 < s.k; k0 += s.k_block) {
        const uint32_t k1 = std::min(s.k, k0 + s.k_block);
        V sum[kRows][2] = {};
        for (uint32_t k = k0; k < k1; ++k) {
            const V b0 = Load<V>(b + uint64_t(k) * s.n), b1 = Load<V>(b + uint64_t(k) * s.n + 8);
            for (int r = 0; r < kRows; ++r) {
                const T x = a[uint64_t(r) * s.k + k];
                sum[r][0] += x * b0;
                sum[r][1] += x * b1;
            }
        }
        for (int r = 0; r < kRows; ++r) {
            T* out = c + uint64_t(r) * s.n;
            const V c0 = Load<V>(out) + sum[r][0], c1 = Load<V>(out + 8) + sum[r][1];
            std::memcpy(out, &c0, sizeof c0);
            std::memcpy(out + 8, &c1, sizeof c1);
        }
    }
}

// One row, 8 columns, products of a block added in adjacent pairs.
void TreeTile(const MatmulShape& s, const float* a, const float* b, float* c) {
    V8f product[64];
    for (uint32_t k0 = 0; k0 < s.k; k0 += s.k_block) {
        uint32_t count = std::min(s.k - k0, s.k_block);
        for (uint32_t k = 0; k < count; ++k) product[k] = a[k0 + k] * Load<V8f>(b + uint64_t(k0 + k) * s.n);
        for (; count > 1; count = (count + 1) / 2) {
            for (uint32_t k = 0; k < count / 2; ++k) product[k] = product[2 * k] + product[2 * k + 1];
            if (count % 2) product[count / 2] = product[count - 1];
        }
        const V8f sum = Load<V8f>(c) + product[0];
        std::memcpy(c, &sum, sizeof sum);
    }
}

template <typename V, typename T>
void Run(const MatmulShape& s, const T* a, const T* b, T* c) {
    for (uint32_t n = 0; n < s.n; n += 16) {
        uint32_t m = 0;
        for (; m + 4 <= s.m; m += 4)
            Tile<V, T, 4>(s, a + uint64_t(m) * s.k, b + n, c + uint64_t(m) * s.n + n);
        for (; m < s.m; ++m) Tile<V, T, 1>(s, a + uint64_t(m) * s.k, b + n, c + uint64_t(m) * s.n + n);
    }
}

}  // namespace

void MatmulF32(const MatmulShape& shape, const float* a, const float* b, float* c) {
    MatmulShape s = shape;
    s.k_block = std::clamp(s.k_block, 1u, s.tree ? 64u : 65536u);
    if (!s.tree) return Run<V8f, float>(s, a, b, c);
    for (uint32_t m = 0; m < s.m; ++m)
        for (uint32_t n = 0; n < s.n; n += 8)
            TreeTile(s, a + uint64_t(m) * s.k, b + n, c + uint64_t(m) * s.n + n);
}

void MatmulI32(const MatmulShape& shape, const int32_t* a, const int32_t* b, int32_t* c) {
    MatmulShape s = shape;
    s.k_block = std::max(s.k, 1u);
    Run<V8u, uint32_t>(s, reinterpret_cast<const uint32_t*>(a), reinterpret_cast<const uint32_t*>(b),
                       reinterpret_cast<uint32_t*>(c));
}

}  // namespace ascsim
