// Global memory of a launch: the argument map (bounds, write permission) and the shadow that orders accesses
// within a core (MTE3 -> MTE2) and between cores (two blocks on one address without a SyncAll or flag between
// them).
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/abi.h"
#include "core/engine.h"
#include "core/shadow.h"

namespace ascsim {

struct Block;

constexpr uint64_t kCacheLine = 64;  // scalar data cache line

// Who touched a granule: core id, pipe, atomic or not. When it did is the epoch kept beside it.
struct Toucher {
    uint32_t core, pipe, atomic;
    uint32_t Pack() const { return core << 22 | pipe << 19 | atomic << 18; }
    static Toucher Unpack(uint32_t m) { return {m >> 22, m >> 19 & 7, m >> 18 & 1}; }
};

class GmPlane {
 public:
    void Bind(uint32_t* epoch, uint32_t* meta) {
        epoch_ = epoch;
        meta_ = meta;
        parts_.clear();
    }
    uint32_t MaxIn(uint64_t g0, uint64_t g1) const { return MaxEpoch(epoch_ + g0, g1 - g0); }
    uint32_t epoch(uint64_t g) const { return epoch_[g]; }
    // All granules in [g0, g1) untouched since `base`, or touched by core/pipe `key` at epochs up to `know`.
    bool AllOwn(uint64_t g0, uint64_t g1, uint32_t base, uint32_t key, uint32_t know) const;
    void Mark(uint64_t b, uint64_t e, uint32_t epoch, uint32_t meta);
    // visit(begin, end, epoch, meta) for every stretch of [b, e) touched after `base`.
    template <typename Fn>
    void Visit(uint64_t b, uint64_t e, uint32_t base, Fn visit) const {
        for (uint64_t g = b / kGranule; g * kGranule < e; ++g) {
            if (epoch_[g] <= base) continue;
            const uint64_t lo = std::max(b, g * kGranule), hi = std::min(e, (g + 1) * kGranule);
            const auto part = parts_.empty() ? parts_.end() : parts_.find(g);
            if (part == parts_.end() || part->second.latest != epoch_[g] || part->second.owner != meta_[g]) {
                visit(lo, hi, epoch_[g], meta_[g]);
                continue;
            }
            for (uint64_t i = lo; i < hi; ++i)
                if (part->second.epoch[i % kGranule] > base)
                    visit(i, i + 1, part->second.epoch[i % kGranule], part->second.meta[i % kGranule]);
        }
    }

 private:
    struct Part {
        uint32_t latest = 0, owner = 0;  // valid while equal to the granule's epoch and meta
        uint32_t epoch[kGranule], meta[kGranule];
    };
    void MarkPart(uint64_t g, uint32_t lo, uint32_t hi, uint32_t epoch, uint32_t meta);
    uint32_t* epoch_ = nullptr;
    uint32_t* meta_ = nullptr;
    std::unordered_map<uint64_t, Part> parts_;
};

struct Segment {
    uint64_t begin = 0, end = 0;
    uint64_t origin = 0;  // address of granule 0 of the shadow
    std::string name;
    bool writable = false;
    bool undefined = false;  // contents undefined at launch: outputs, workspace
    bool tracked = false;
    GmPlane written, read, read_other;  // read_other: latest reader on another core than `read`
    uint32_t* init = nullptr;           // byte mask per granule, valid where `written` is of this launch
};

// Scalar data cache of one core, not coherent with the DMA pipes.
struct DataCache {
    std::unordered_set<uint64_t> dirty;
    std::unordered_map<uint64_t, uint32_t> loaded;  // line -> MTE3 epoch at the time of the load
};

class GlobalMemory {
 public:
    void Build(const AscsimArg* args, int32_t n, uint32_t base);
    const Segment* Find(uint64_t address) const;
    std::string Name(uint64_t address) const;
    // Stops the launch when the footprint leaves its argument or writes an input.
    void Bounds(const Op& op, const Access& a, const Foot& f);
    // Hazards of this access, then marks it.
    void Track(Block& block, const Op& op, const Access& a, const Foot& f, uint32_t epoch);
    void FinishCaches();
    const std::vector<Segment>& segments() const { return segments_; }

 private:
    void NoteReadBack(Block& block, const Op& op, const Segment& s, uint64_t b, uint64_t e);
    void Scalar(Block& block, const Op& op, const Access& a);
    void Run(Block& block, const Op& op, const Access& a, Segment& s, uint64_t b, uint64_t e, uint32_t epoch);
    Segment* FindMutable(uint64_t address) { return const_cast<Segment*>(Find(address)); }
    std::vector<Segment> segments_;
    mutable size_t last_ = 0;
    uint32_t base_ = 0;
    std::unordered_map<uint64_t, uint32_t>
        scalar_lines_;  // line -> last core that wrote it through its cache
};

// A DMA access to lines that are dirty in a scalar cache.
void CheckDirtyLines(Block& block, const Op& op, const Access& a, const Foot& f);

}  // namespace ascsim
