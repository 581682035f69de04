// The multiply-accumulate loops behind Mmad, on matrices unpacked from fractals.
#pragma once
#include <cstdint>

namespace ascsim {

// Row-major: a is m x k, b is k x n, c is m x n and holds the start values; n is a multiple of 16.
struct MatmulShape {
    uint32_t m = 0, n = 0, k = 0;
    uint32_t k_block = 16;  // products summed on their own before they join the accumulator
    bool tree = false;      // within a block: adjacent pairs (true) or one after the other
};

// fp32 accumulation: c = ((c + block 0) + block 1) + …, each sum rounded once.
void MatmulF32(const MatmulShape& shape, const float* a, const float* b, float* c);
// int32 accumulation, modulo 2^32.
void MatmulI32(const MatmulShape& shape, const int32_t* a, const int32_t* b, int32_t* c);

}  // namespace ascsim
