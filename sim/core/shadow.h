// Shadow of one local memory: who touched each 32-byte granule last, per pipe, and which bytes are
// initialised. Epochs lie in one uint32 array per pipe and direction, so that a range is tested by a vector
// maximum and marked by a fill. Granules touched only in part keep an exact per-byte record beside it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/op.h"

namespace ascsim {

constexpr int kPipes = int(Pipe::COUNT);
constexpr int kMems = int(Mem::COUNT);
constexpr uint32_t kGranule = 32;

// Footprint reduced to as few contiguous runs as possible: n2 x n1 runs of `bytes`.
struct Foot {
    uint64_t base = 0, bytes = 0;
    uint32_t n1 = 1, n2 = 1;
    uint64_t s1 = 0, s2 = 0;
    uint64_t end() const { return base + (n1 - 1) * s1 + (n2 - 1) * s2 + bytes; }
};

inline Foot Reduce(const Access& a) {
    Foot f;
    f.base = a.base;
    if (!a.block_bytes || !a.blocks || !a.repeats) return f;
    f.bytes = a.block_bytes;
    if (a.blocks > 1 && a.block_stride) {
        if (a.block_stride <= f.bytes)
            f.bytes += (a.blocks - 1) * a.block_stride;
        else
            f.n1 = a.blocks, f.s1 = a.block_stride;
    }
    if (a.repeats > 1 && a.repeat_stride) {
        if (f.n1 == 1 && a.repeat_stride <= f.bytes)
            f.bytes += (a.repeats - 1) * a.repeat_stride;
        else if (f.n1 == 1)
            f.n1 = a.repeats, f.s1 = a.repeat_stride;
        else if (a.repeat_stride == f.n1 * f.s1)
            f.n1 *= a.repeats;
        else
            f.n2 = a.repeats, f.s2 = a.repeat_stride;
    }
    return f;
}

// fn(begin, end) for every run; stops when fn returns false.
template <typename Fn>
inline bool ForRuns(const Foot& f, Fn&& fn) {
    uint64_t outer = f.base;
    for (uint32_t j = 0; j < f.n2; ++j, outer += f.s2) {
        uint64_t p = outer;
        for (uint32_t i = 0; i < f.n1; ++i, p += f.s1)
            if (!fn(p, p + f.bytes)) return false;
    }
    return true;
}

inline uint32_t ByteMask(uint32_t lo, uint32_t hi) {  // bits [lo, hi) of one granule
    return (hi >= 32 ? ~0u : (1u << hi) - 1) & ~((1u << lo) - 1);
}

inline uint32_t MaxEpoch(const uint32_t* e, uint64_t n) {
    uint32_t m = 0;
    for (uint64_t i = 0; i < n; ++i) m = std::max(m, e[i]);
    return m;
}

struct Conflict {
    uint32_t epoch = 0;           // latest conflicting operation
    uint64_t begin = 0, end = 0;  // first conflicting stretch
};

class Plane {
 public:
    void Init(uint32_t* epoch) { epoch_ = epoch; }
    uint32_t high() const { return high_; }

    // Any byte of `f` touched at an epoch above `know`?
    bool Check(const Foot& f, uint32_t know, Conflict* out) const {
        if (high_ <= know) return false;
        return !ForRuns(f, [&](uint64_t b, uint64_t e) {
            const uint64_t g0 = b / kGranule, g1 = (e + kGranule - 1) / kGranule;
            if (MaxEpoch(epoch_ + g0, g1 - g0) <= know) return true;
            return !CheckExact(b, e, know, out);
        });
    }
    void Mark(const Foot& f, uint32_t epoch) {
        high_ = epoch;
        ForRuns(f, [&](uint64_t b, uint64_t e) {
            uint64_t g0 = b / kGranule, g1 = e / kGranule;
            if (b % kGranule) {
                MarkPart(g0, b % kGranule, g0 == g1 ? e % kGranule : kGranule, epoch);
                if (g0 == g1) return true;
                ++g0;
            }
            if (e % kGranule) MarkPart(g1, 0, e % kGranule, epoch);
            std::fill(epoch_ + g0, epoch_ + g1, epoch);
            return true;
        });
    }
    void Reset() {
        high_ = 0;
        parts_.clear();
        part_of_.clear();
    }

 private:
    struct Part {
        uint32_t latest;  // valid while equal to the granule's epoch; a later full touch supersedes it
        uint32_t byte[kGranule];
    };
    void MarkPart(uint64_t g, uint32_t lo, uint32_t hi, uint32_t epoch) {
        if (part_of_.size() <= g) part_of_.resize(g + 256, 0);
        if (!part_of_[g]) {
            parts_.push_back({});
            part_of_[g] = uint32_t(parts_.size());
        }
        Part& p = parts_[part_of_[g] - 1];
        if (p.latest != epoch_[g] || !p.latest) std::fill_n(p.byte, kGranule, epoch_[g]);
        std::fill(p.byte + lo, p.byte + hi, epoch);
        p.latest = epoch_[g] = epoch;
    }
    bool CheckExact(uint64_t b, uint64_t e, uint32_t know, Conflict* out) const {
        bool found = false;
        for (uint64_t g = b / kGranule; g * kGranule < e; ++g) {
            if (epoch_[g] <= know) {
                if (found) break;
                continue;
            }
            const uint64_t lo = std::max(b, g * kGranule), hi = std::min(e, (g + 1) * kGranule);
            const Part* p = g < part_of_.size() && part_of_[g] ? &parts_[part_of_[g] - 1] : nullptr;
            if (p && p->latest == epoch_[g]) {
                for (uint64_t i = lo; i < hi; ++i)
                    if (p->byte[i % kGranule] > know) Note(i, i + 1, p->byte[i % kGranule], &found, out);
            } else {
                Note(lo, hi, epoch_[g], &found, out);
            }
        }
        return found;
    }
    static void Note(uint64_t b, uint64_t e, uint32_t epoch, bool* found, Conflict* out) {
        if (!*found) out->begin = b, out->epoch = epoch;
        *found = true;
        out->end = e;
        out->epoch = std::max(out->epoch, epoch);
    }

    uint32_t* epoch_ = nullptr;
    uint32_t high_ = 0;
    std::vector<uint32_t> part_of_;  // granule -> index + 1 in parts_
    std::vector<Part> parts_;
};

// Which bytes hold a defined value: one mask per granule.
class InitMap {
 public:
    void Init(uint32_t* mask) { mask_ = mask; }
    void Clear(uint64_t bytes) { std::memset(mask_, 0, (bytes + kGranule - 1) / kGranule * 4); }
    void Set(const Foot& f) {
        ForRuns(f, [&](uint64_t b, uint64_t e) {
            Edges(b, e, [](uint32_t& m, uint32_t bits) { m |= bits; });
            const uint64_t g0 = (b + kGranule - 1) / kGranule, g1 = e / kGranule;
            if (g0 < g1) std::fill(mask_ + g0, mask_ + g1, ~0u);
            return true;
        });
    }
    void Unset(uint64_t b, uint64_t e) {
        Edges(b, e, [](uint32_t& m, uint32_t bits) { m &= ~bits; });
        const uint64_t g0 = (b + kGranule - 1) / kGranule, g1 = e / kGranule;
        if (g0 < g1) std::fill(mask_ + g0, mask_ + g1, 0u);
    }
    // True when all bytes are initialised, else the first stretch that is not.
    bool Check(const Foot& f, Conflict* out) const {
        return ForRuns(f, [&](uint64_t b, uint64_t e) {
            const uint64_t g0 = (b + kGranule - 1) / kGranule, g1 = e / kGranule;
            uint32_t all = ~0u;
            for (uint64_t g = g0; g < g1; ++g) all &= mask_[g];
            if (all == ~0u && !(b % kGranule) && !(e % kGranule)) return true;
            return !FindHole(b, e, out);
        });
    }

 private:
    template <typename Fn>
    void Edges(uint64_t b, uint64_t e, Fn fn) {
        const uint64_t g0 = b / kGranule, g1 = e / kGranule;
        if (b % kGranule) {
            fn(mask_[g0], ByteMask(b % kGranule, g0 == g1 ? e % kGranule : kGranule));
            if (g0 == g1) return;
        }
        if (e % kGranule) fn(mask_[g1], ByteMask(0, e % kGranule));
    }
    bool FindHole(uint64_t b, uint64_t e, Conflict* out) const {
        bool found = false;
        for (uint64_t g = b / kGranule; g * kGranule < e; ++g) {
            const uint64_t lo = std::max(b, g * kGranule), hi = std::min(e, (g + 1) * kGranule);
            const uint32_t holes = ~mask_[g] & ByteMask(lo % kGranule, hi - g * kGranule);
            if (!holes) {
                if (found) break;
                continue;
            }
            if (!found) out->begin = g * kGranule + __builtin_ctz(holes);
            out->end = g * kGranule + 32 - __builtin_clz(holes);
            found = true;
        }
        return found;
    }
    uint32_t* mask_ = nullptr;
};

}  // namespace ascsim
