// Pool of local memories. A set is poisoned with 0xff (a NaN in half, bfloat16 and float, -1 in integers)
// below its high-water mark only; epochs never go back, so the shadow needs no clearing.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "core/state.h"

namespace ascsim {
namespace {

std::vector<std::unique_ptr<LocalSet>> g_pool;

void* Map(uint64_t bytes) {
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return p;
}

void Build(Memory& m, uint64_t bytes) {
    m.capacity = bytes;
    const uint64_t granules = bytes / kGranule + 8;
    m.data = static_cast<uint8_t*>(Map(bytes + 4096));
    m.used = bytes;
    // One mapping for all arrays of this memory; pages of pipes that never touch it stay unbacked.
    const uint64_t stride = (granules + 1023) / 1024 * 1024;
    uint32_t* words = static_cast<uint32_t*>(Map(stride * 4 * (2 * kPipes + 1)));
    m.init.Init(words);
    for (int p = 0; p < kPipes; ++p) {
        m.written[p].Init(words + stride * (1 + p));
        m.read[p].Init(words + stride * (1 + kPipes + p));
    }
}

}  // namespace

std::unique_ptr<LocalSet> TakeLocalSet() {
    std::unique_ptr<LocalSet> set;
    if (!g_pool.empty()) {
        set = std::move(g_pool.back());
        g_pool.pop_back();
    } else {
        set = std::make_unique<LocalSet>();
    }
    for (int i = 0; i < kMems; ++i) {
        Memory& m = set->mem[i];
        const uint64_t bytes = g_soc.bytes[i];
        if (!bytes) continue;
        if (m.capacity < bytes) {
            m = Memory{};
            Build(m, bytes);
        }
        std::memset(m.data, 0xff, m.used);
        if (m.used) m.init.Clear(m.used);
        m.used = 0;
        m.tagged = false;
    }
    return set;
}

void ReturnLocalSet(std::unique_ptr<LocalSet> set) {
    // With checks off the vector calls write past the engine: how far is unknown.
    if (!g_soc.checks) set->mem[int(Mem::UB)].used = g_soc.bytes[int(Mem::UB)];
    g_pool.push_back(std::move(set));
}

}  // namespace ascsim
