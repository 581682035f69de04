// The scalar data cache against the DMA pipes and against other cores.
#include <algorithm>

#include "core/gm_hazard.h"

namespace ascsim {

// Coherence of the scalar cache: hazards that no event can cure.
void GlobalMemory::Scalar(Block& block, const Op& op, const Access& a) {
    const Segment& s = *Find(a.base);
    const uint64_t line = a.base / kCacheLine;
    const uint64_t b = a.base - s.origin;
    if (a.write) {
        block.dcache.dirty.insert(line);
        g_launch->scalar_writes = true;
        const auto [it, fresh] = scalar_lines_.try_emplace(line, block.core.core_id);
        if (!fresh && it->second != block.core.core_id) {
            Hazard h = GmHazard(block, op, s, "dcache.shared_line", b, b + a.block_bytes);
            h.message = std::string(op.name) + ": writes " + Range(h) +
                        " through the scalar cache in a 64-byte line that " + OtherCore(it->second) +
                        " writes too: write-back of one core overwrites the other's bytes";
            it->second = block.core.core_id;
            g_launch->reporter.Add(std::move(h));
        }
        return;
    }
    const uint32_t mte3 = block.clock[int(Pipe::MTE3)];
    const auto [it, fresh] = block.dcache.loaded.try_emplace(line, mte3);
    if (fresh) return;
    uint32_t newest = 0;
    s.written.Visit(b, b + a.block_bytes, base_, [&](uint64_t, uint64_t, uint32_t epoch, uint32_t meta) {
        const Toucher w = Toucher::Unpack(meta);
        if (w.core == block.core.core_id && w.pipe == uint32_t(Pipe::MTE3)) newest = std::max(newest, epoch);
    });
    if (newest > it->second) {
        Hazard h = GmHazard(block, op, s, "dcache.stale", b, b + a.block_bytes);
        h.message = std::string(op.name) + ": reads " + Range(h) +
                    " from a cached line that MTE3 has overwritten since; " +
                    "missing DataCacheCleanAndInvalid";
        it->second = mte3;
        g_launch->reporter.Add(std::move(h));
    }
}

void CheckDirtyLines(Block& block, const Op& op, const Access& a, const Foot& f) {
    for (const auto& owner : g_launch->blocks) {
        if (owner->dcache.dirty.empty()) continue;
        ForRuns(f, [&](uint64_t b, uint64_t e) {
            for (uint64_t line = b / kCacheLine; line * kCacheLine < e; ++line) {
                if (!owner->dcache.dirty.count(line)) continue;
                if (owner.get() != &block && a.write) continue;  // judged as a cross-core write
                const Segment& s = *g_launch->gm.Find(f.base);
                Hazard h = GmHazard(block, op, s, "dcache.dirty", std::max(b, line * kCacheLine) - s.origin,
                                    std::min(e, (line + 1) * kCacheLine) - s.origin);
                h.message =
                    std::string(op.name) + (a.write ? ": writes " : ": reads ") + Range(h) +
                    ", a line that " +
                    (owner.get() == &block ? std::string("the scalar unit")
                                           : OtherCore(owner->core.core_id)) +
                    " wrote and has not written back; missing DataCacheCleanAndInvalid after SetValue";
                owner->dcache.dirty.erase(line);
                g_launch->reporter.Add(std::move(h));
                return false;
            }
            return true;
        });
    }
}

void GlobalMemory::FinishCaches() {
    for (const auto& block : g_launch->blocks) {
        if (block->dcache.dirty.empty()) continue;
        const uint64_t address = *block->dcache.dirty.begin() * kCacheLine;
        const Segment* s = Find(address);
        if (!s) s = Find(address + kCacheLine - 1);
        Hazard h;
        h.rule = "dcache.unflushed";
        h.severity = Severity::Note;
        h.site.api = "SetValue";
        h.pipe = "S";
        h.core = block->core.core_id;
        h.tensor = s ? s->name : "";
        h.message = "SetValue: " + std::to_string(block->dcache.dirty.size()) + " cache lines of '" +
                    h.tensor +
                    "' written by the scalar unit were never written back; DataCacheCleanAndInvalid makes "
                    "them visible";
        g_launch->reporter.Add(std::move(h));
    }
}

}  // namespace ascsim
