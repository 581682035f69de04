#include "core/frame.h"

#include <algorithm>

#include "core/state.h"

namespace ascsim {

void RegisterBuffer(Mem mem, uint64_t begin, uint64_t end, const char* label, Loc loc) {
    g_block->allocations.push_back({mem, uint32_t(begin), uint32_t(end), label, loc});
}

void ForgetBuffers(Mem mem) {
    auto& all = g_block->allocations;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const Allocation& a) { return a.mem == mem; }),
              all.end());
}

uint64_t BufferEnd(Mem mem, uint64_t offset) {
    const Allocation* a = FindAllocation(*g_block, mem, offset);
    return a ? a->end : 0;
}

void Print(const char* text) {
    constexpr size_t kMaxPrints = 10000;
    auto& prints = g_launch->prints;
    if (prints.size() < kMaxPrints)
        prints.push_back(CoreName(*g_block) + ": " + text);
    else if (prints.size() == kMaxPrints)
        prints.push_back("… further output dropped");
}

bool PrintsWanted() { return g_launch->prints.size() <= 10000; }

bool Stopping() { return g_launch->stopped; }

uint64_t TilingKey() { return g_launch->request->tiling_key; }

uint64_t TilingBytes(const void* p) {
    const Segment* s = g_launch->gm.Find(reinterpret_cast<uint64_t>(p));
    return s ? s->end - reinterpret_cast<uint64_t>(p) : 0;
}

}  // namespace ascsim
