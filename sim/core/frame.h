// Engine services of the kernel frame: allocation map, kernel prints, tiling data of the launch.
#pragma once
#include <cstdint>

#include "core/engine.h"

namespace ascsim {

// Registers a buffer so that reports can name it. `label` is copied.
void RegisterBuffer(Mem mem, uint64_t begin, uint64_t end, const char* label, Loc loc);
// Forgets all buffers of a memory (TPipe::Reset).
void ForgetBuffers(Mem mem);
// End of the registered buffer that holds `offset`, or 0.
uint64_t BufferEnd(Mem mem, uint64_t offset);

// One line of kernel output, prefixed with the core.
void Print(const char* text);
bool PrintsWanted();

// True once the launch is being unwound: destructors must not issue anything.
bool Stopping();

uint64_t TilingKey();
// Bytes of the tiling argument that start at `p`, 0 when p is not inside it.
uint64_t TilingBytes(const void* p);

}  // namespace ascsim
