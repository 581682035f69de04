// Fractals: 512 bytes, 16 rows of 32 bytes. Shared by the calls between L1, L0 and the cube.
#pragma once
#include "ascsim/call.h"
#include "ascsim/cube_params.h"
#include "ascsim/move.h"
#include "core/fractal.h"

namespace ascsim {

constexpr uint32_t kRow = 32;  // bytes of a fractal's row (C0 elements)

// Elements in 32 bytes.
template <typename T>
constexpr uint32_t kC0 = std::is_same_v<T, AscendC::int4b_t> ? 64 : 32 / sizeof(T);

constexpr uint32_t CeilTo(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

inline Access LocalAccess(Mem mem, uint64_t offset, uint64_t limit, bool write, const char* operand,
                          const Shape& shape) {
    Access a;
    a.mem = mem;
    a.write = write;
    a.base = offset;
    a.block_bytes = shape.block_bytes;
    a.blocks = shape.blocks;
    a.block_stride = shape.block_stride;
    a.repeats = shape.repeats;
    a.repeat_stride = shape.repeat_stride;
    a.tensor_base = limit > offset ? offset : ~0ull - 1;
    a.tensor_bytes = limit > offset ? limit - offset : 1;
    a.operand = operand;
    return a;
}

inline void CheckRange(const Op& op, const char* field, uint64_t value, uint64_t low, uint64_t high) {
    if (value < low || value > high)
        Report(Severity::Error, op, "param.range", "%s %llu; allowed %llu … %llu", field,
               (unsigned long long)value, (unsigned long long)low, (unsigned long long)high);
}

// Copies 512 bytes between local memories and hands on what is undefined in them.
inline void CopyFractal(Mem to, uint64_t dst, Mem from, uint64_t src) {
    std::memcpy(Local(to, dst), Local(from, src), kFractalBytes);
    HandOnUndefined(to, dst, from, src, kFractalBytes);
}

// Element (row, column) of the matrix goes to byte `at` of the destination; size 1, 2 or 4.
inline void MoveElement(Mem to, uint64_t dst, Mem from, uint64_t src, uint32_t size, bool defined) {
    std::memcpy(Local(to, dst), Local(from, src), size);
    if (!defined && !AllDefined(from, src, size)) MarkUndefined(to, dst, size);
}

}  // namespace ascsim
