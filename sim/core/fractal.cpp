#include "core/fractal.h"

#include "core/state.h"

namespace ascsim {
namespace {

uint32_t g_matrices = 0;

}  // namespace

uint32_t NewMatrix() { return ++g_matrices; }

FractalTag TagAt(Mem mem, uint64_t offset) {
    const Memory& m = g_block->local->mem[int(mem)];
    if (!m.tagged || offset % kFractalBytes || offset / kFractalBytes >= m.tags.size()) return {};
    return m.tags[offset / kFractalBytes];
}

void SetTag(Mem mem, uint64_t offset, const FractalTag& tag) {
    if (!g_soc.checks || offset % kFractalBytes) return;
    Memory& m = g_block->local->mem[int(mem)];
    if (!m.tagged) {
        m.tags.assign(m.capacity / kFractalBytes, {});
        m.tagged = true;
    }
    if (offset / kFractalBytes < m.tags.size()) m.tags[offset / kFractalBytes] = tag;
}

void ForgetFractals(Memory& m, const Foot& f) {
    ForRuns(f, [&](uint64_t b, uint64_t e) {
        for (uint64_t i = b / kFractalBytes; i * kFractalBytes < e && i < m.tags.size(); ++i)
            m.tags[i].source = 0;
        return true;
    });
}

}  // namespace ascsim
