// Where the fractals in L1 and the L0 buffers come from. A move that lays a row-major matrix out in fractals
// tags each with its origin in that matrix; the calls behind it check that a grid of fractals belongs
// together.
#pragma once
#include <cstdint>

#include "core/engine.h"

namespace ascsim {

constexpr uint64_t kFractalBytes = 512;

struct FractalTag {
    uint32_t source = 0;        // number of the move or Mmad that made the matrix; 0 = unknown
    uint32_t row = 0, col = 0;  // element of that matrix at the fractal's first position
    bool transposed = false;    // columns of the matrix lie along the fractal's rows
};

// A number no earlier matrix of this launch has.
uint32_t NewMatrix();
// Tag of the fractal at a byte offset; an unknown one where none was kept (checks off, not on a fractal
// bound).
FractalTag TagAt(Mem mem, uint64_t offset);
void SetTag(Mem mem, uint64_t offset, const FractalTag& tag);

}  // namespace ascsim
