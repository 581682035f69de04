#include "core/gm.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "core/gm_hazard.h"
#include "core/state.h"

namespace ascsim {
namespace {

// Shadow words kept over launches. Epochs and other words live apart: an old epoch is harmless (below the new
// base), any other stale word read as an epoch would not be.
class Arena {
 public:
    void Start(uint64_t words) {
        used_ = 0;
        if (words <= capacity_) return;
        if (base_) munmap(base_, capacity_ * 4);
        capacity_ = words + (words >> 2) + 4096;
        void* p = mmap(nullptr, capacity_ * 4, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<uint32_t*>(p);
    }
    uint32_t* Take(uint64_t words) { return base_ + (used_ += words) - words; }

 private:
    uint32_t* base_ = nullptr;
    uint64_t capacity_ = 0, used_ = 0;
};

Arena g_epochs, g_words;

}  // namespace

bool GmPlane::AllOwn(uint64_t g0, uint64_t g1, uint32_t base, uint32_t key, uint32_t know) const {
    constexpr uint32_t kCorePipe = 0xfff80000u;
    uint32_t foreign = 0;
    for (uint64_t g = g0; g < g1; ++g) {
        const uint32_t bad = ((meta_[g] ^ key) & kCorePipe) | (epoch_[g] > know ? 1u : 0u);
        foreign |= epoch_[g] > base ? bad : 0u;
    }
    return foreign == 0;
}

void GmPlane::MarkPart(uint64_t g, uint32_t lo, uint32_t hi, uint32_t epoch, uint32_t meta) {
    Part& p = parts_[g];
    if (p.latest != epoch_[g] || p.owner != meta_[g] || !p.latest) {
        std::fill_n(p.epoch, kGranule, epoch_[g]);
        std::fill_n(p.meta, kGranule, meta_[g]);
    }
    std::fill(p.epoch + lo, p.epoch + hi, epoch);
    std::fill(p.meta + lo, p.meta + hi, meta);
    p.latest = epoch_[g] = epoch;
    p.owner = meta_[g] = meta;
}

void GmPlane::Mark(uint64_t b, uint64_t e, uint32_t epoch, uint32_t meta) {
    uint64_t g0 = b / kGranule, g1 = e / kGranule;
    if (b % kGranule) {
        MarkPart(g0, b % kGranule, g0 == g1 ? e % kGranule : kGranule, epoch, meta);
        if (g0 == g1) return;
        ++g0;
    }
    if (e % kGranule) MarkPart(g1, 0, e % kGranule, epoch, meta);
    std::fill(epoch_ + g0, epoch_ + g1, epoch);
    std::fill(meta_ + g0, meta_ + g1, meta);
}

void GlobalMemory::Build(const AscsimArg* args, int32_t n, uint32_t base) {
    base_ = base;
    last_ = 0;
    segments_.clear();
    scalar_lines_.clear();
    std::vector<int32_t> order;
    for (int32_t i = 0; i < n; ++i)
        if (args[i].data) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return args[a].data < args[b].data; });
    for (const int32_t i : order) {
        const AscsimArg& a = args[i];
        const uint64_t begin = reinterpret_cast<uint64_t>(a.data);
        const bool writable = a.role == 1 || a.role == 2 || a.role == 3;
        const bool undefined = a.role == 1 || a.role == 3;
        if (!segments_.empty() && begin < segments_.back().end) {  // in place: two arguments, one buffer
            Segment& s = segments_.back();
            s.end = std::max(s.end, begin + a.bytes);
            s.writable |= writable;
            s.undefined &= undefined;
            s.name += std::string("/") + a.name;
            continue;
        }
        Segment s;
        s.begin = begin;
        s.end = begin + a.bytes;
        s.name = a.name;
        s.writable = writable;
        s.undefined = undefined;
        segments_.push_back(std::move(s));
    }
    uint64_t granules = 0;
    for (Segment& s : segments_) {
        s.origin = s.begin & ~uint64_t(kGranule - 1);
        s.tracked = s.writable && g_soc.checks;
        if (s.tracked) granules += (s.end - s.origin + kGranule - 1) / kGranule + 1;
    }
    g_epochs.Start(3 * granules);
    g_words.Start(4 * granules);
    for (Segment& s : segments_) {
        if (!s.tracked) continue;
        const uint64_t count = (s.end - s.origin + kGranule - 1) / kGranule + 1;
        s.written.Bind(g_epochs.Take(count), g_words.Take(count));
        s.read.Bind(g_epochs.Take(count), g_words.Take(count));
        s.read_other.Bind(g_epochs.Take(count), g_words.Take(count));
        s.init = g_words.Take(count);
    }
}

const Segment* GlobalMemory::Find(uint64_t address) const {
    if (last_ < segments_.size() && address >= segments_[last_].begin && address < segments_[last_].end)
        return &segments_[last_];
    for (size_t i = 0; i < segments_.size(); ++i)
        if (address >= segments_[i].begin && address < segments_[i].end) return last_ = i, &segments_[i];
    return nullptr;
}

std::string GlobalMemory::Name(uint64_t address) const {
    const Segment* s = Find(address);
    return s ? s->name : std::string("outside all arguments");
}

// aclrtMalloc rounds a request up to 32 bytes and adds 32 more: a read that ends there does not fault, and
// what it finds is stale.
static uint64_t AllocationEnd(const Segment& s) {
    constexpr uint64_t kBlock = 32;
    return s.begin + (s.end - s.begin + kBlock - 1) / kBlock * kBlock + kBlock;
}

static void NoteOverRead(const Op& op, const Access& a, const Foot& f, const Segment& s) {
    Report(Severity::Warning, op, "gm.over_read",
           "%s: reads bytes [%llu, %llu) of '%s', which has %llu bytes: the last %llu are the allocator's "
           "padding",
           a.operand, (unsigned long long)(f.base - s.begin), (unsigned long long)(f.end() - s.begin),
           s.name.c_str(), (unsigned long long)(s.end - s.begin), (unsigned long long)(f.end() - s.end));
}

void GlobalMemory::Bounds(const Op& op, const Access& a, const Foot& f) {
    const Segment* s = Find(f.base);
    const char* verb = a.write ? "writes" : "reads";
    if (!f.base)
        Fail(op, "bounds.gm", "%s: %s through a null GM address (absent optional argument?)", a.operand,
             verb);
    if (!s) {
        const Segment* near = nullptr;
        uint64_t best = ~0ull;
        for (const Segment& c : segments_) {
            const uint64_t gap = f.base >= c.end ? f.base - c.end : c.begin - f.base;
            if (gap < best) best = gap, near = &c;
        }
        if (!near) Fail(op, "bounds.gm", "%s: %s GM, but the launch has no tensors", a.operand, verb);
        const int64_t at = int64_t(f.base - near->begin);
        Fail(op, "bounds.gm", "%s: %s %llu bytes at byte %lld of '%s', which has %llu bytes", a.operand, verb,
             (unsigned long long)(f.end() - f.base), (long long)at, near->name.c_str(),
             (unsigned long long)(near->end - near->begin));
    }
    if (f.end() > s->end && !a.write && f.end() <= AllocationEnd(*s))
        NoteOverRead(op, a, f, *s);
    else if (f.end() > s->end)
        Fail(op, "bounds.gm", "%s: %s bytes [%llu, %llu) of '%s', which has %llu bytes (%llu too many)",
             a.operand, verb, (unsigned long long)(f.base - s->begin),
             (unsigned long long)(f.end() - s->begin), s->name.c_str(),
             (unsigned long long)(s->end - s->begin), (unsigned long long)(f.end() - s->end));
    if (a.write && !s->writable)
        Fail(op, "role.input_written", "%s: writes '%s', which is an input of the kernel", a.operand,
             s->name.c_str());
}

void GlobalMemory::Track(Block& block, const Op& op, const Access& a, const Foot& f, uint32_t epoch) {
    Segment* s = FindMutable(f.base);
    if (!s->tracked) return;
    if (op.pipe == Pipe::S) Scalar(block, op, a);
    const uint64_t origin = s->origin;
    ForRuns(f, [&](uint64_t b, uint64_t e) {
        Run(block, op, a, *s, b - origin, e - origin, epoch);
        return true;
    });
}

// An ordered MTE3 -> MTE2 pair on one core. One public report (PTOAS 730) found the data not yet visible on
// A2/A3.
void GlobalMemory::NoteReadBack(Block& block, const Op& op, const Segment& s, uint64_t b, uint64_t e) {
    bool own = false;
    s.written.Visit(b, e, base_, [&](uint64_t, uint64_t, uint32_t, uint32_t meta) {
        const Toucher w = Toucher::Unpack(meta);
        own |= w.core == block.core.core_id && w.pipe == uint32_t(Pipe::MTE3);
    });
    if (!own) return;
    Hazard h = GmHazard(block, op, s, "gm.read_back", b, e);
    h.severity = Severity::Note;
    h.message = std::string(op.name) + ": reads back " + Range(h) +
                ", which MTE3 of this core wrote; ordered by an event, but " +
                "visibility through GM is not documented for every chip";
    g_launch->reporter.Add(std::move(h));
}

// b, e: bytes from the segment's origin.
void GlobalMemory::Run(Block& block, const Op& op, const Access& a, Segment& s, uint64_t b, uint64_t e,
                       uint32_t epoch) {
    const uint32_t me = block.core.core_id;
    const int p = int(op.pipe);
    const bool dma_out = op.pipe == Pipe::MTE3 || op.pipe == Pipe::FIX;
    const Toucher self{me, uint32_t(p), a.write && block.core.atomic && dma_out};
    const uint64_t g0 = b / kGranule, g1 = (e + kGranule - 1) / kGranule;

    struct {
        bool found = false;
        uint64_t b = 0, e = 0;
        uint32_t epoch = 0;
        Toucher who{};
    } hit;
    auto ordered = [&](uint32_t other_epoch, const Toucher& w) {
        if (w.core != me) return !block.seen.empty() && other_epoch <= block.seen[w.core][w.pipe];
        if (w.pipe == uint32_t(Pipe::S))
            return true;  // S completes before it dispatches; its cache is judged apart
        return other_epoch <= block.know[p][w.pipe];
    };
    auto visit = [&](uint64_t vb, uint64_t ve, uint32_t other_epoch, uint32_t meta) {
        const Toucher w = Toucher::Unpack(meta);
        if (w.atomic && self.atomic) return;
        if (ordered(other_epoch, w)) return;
        if (!hit.found)
            hit = {true, vb, ve, other_epoch, w};
        else if (vb == hit.e)
            hit.e = ve;
    };
    auto report = [&](const char* kind, const char* other_did) {
        if (!hit.found) return;
        const bool cross = hit.who.core != me;
        Hazard h = GmHazard(
            block, op, s,
            cross ? (std::string("gm.cross_core.") + kind).c_str() : (std::string("gm.race.") + kind).c_str(),
            hit.b, hit.e);
        const Pipe other_pipe = Pipe(hit.who.pipe);
        const Block& other = *g_launch->blocks[hit.who.core];
        h.has_other = true;
        h.other = SiteOf(other, other_pipe, hit.epoch);
        h.other_pipe = PipeName(other_pipe);
        h.message = std::string(op.name) + (a.write ? ": writes " : ": reads ") + Range(h) + " that " +
                    (cross ? CoreName(other) + " " : std::string()) + other_did + " (" + h.other.api +
                    " at line " + std::to_string(h.other.line) + ", pipe " + h.other_pipe + ")";
        if (cross) {
            h.message += g_launch->mixed ? "; nothing orders the two cores: CrossCoreSetFlag on that pipe "
                                           "and CrossCoreWaitFlag, or SyncAll"
                                         : "; nothing orders the two cores: SyncAll or IBSet/IBWait between "
                                           "them, or disjoint ranges";
        } else if (other_pipe == op.pipe) {
            h.message += std::string("; missing PipeBarrier<PIPE_") + PipeName(op.pipe) + ">";
        } else {
            h.message += std::string("; missing ") + PipeName(other_pipe) + "_" + PipeName(op.pipe) +
                         ": SetFlag/WaitFlag<HardEvent::" + PipeName(other_pipe) + "_" + PipeName(op.pipe) +
                         ">";
            block.know[p][hit.who.pipe] = std::max(block.know[p][hit.who.pipe], hit.epoch);
        }
        g_launch->reporter.Add(std::move(h));
        hit.found = false;
    };

    const bool touched = s.written.MaxIn(g0, g1) > base_;
    if (touched) {
        s.written.Visit(b, e, base_, visit);
        const bool judged = hit.found;
        report(a.write ? "waw" : "raw", a.write ? "wrote before" : "wrote");
        if (!a.write && !judged && op.pipe == Pipe::MTE2) NoteReadBack(block, op, s, b, e);
    }
    if (s.undefined && (!a.write || self.atomic)) {  // an atomic write reads what it adds to
        for (uint64_t g = g0; g < g1; ++g) {
            const uint64_t lo = std::max(b, g * kGranule), hi = std::min(e, (g + 1) * kGranule);
            const uint32_t have = s.written.epoch(g) > base_ ? s.init[g] : 0;
            if ((have & ByteMask(lo % kGranule, hi - g * kGranule)) ==
                ByteMask(lo % kGranule, hi - g * kGranule))
                continue;
            Hazard h = GmHazard(block, op, s, "uninit.gm", lo, hi);
            h.message = std::string(op.name) + (a.write ? ": adds atomically to " : ": reads ") + Range(h) +
                        ", which nothing has written: outputs and workspace " +
                        "hold stale data at launch; write it first or use InitOutput";
            g_launch->reporter.Add(std::move(h));
            break;
        }
    }
    if (a.write) {
        const uint32_t mte2 = me << 22 | uint32_t(Pipe::MTE2) << 19;
        if (!s.read.AllOwn(g0, g1, base_, mte2, block.know[p][int(Pipe::MTE2)])) {
            s.read.Visit(b, e, base_, visit);
            report("war", "reads");
        }
        if (s.read_other.MaxIn(g0, g1) > base_) {
            s.read_other.Visit(b, e, base_, visit);
            report("war", "reads");
        }
        if (s.undefined) {
            for (uint64_t g = g0; g < g1; ++g) {
                const uint64_t lo = std::max(b, g * kGranule), hi = std::min(e, (g + 1) * kGranule);
                const uint32_t bits = ByteMask(lo % kGranule, hi - g * kGranule);
                s.init[g] = s.written.epoch(g) > base_ ? s.init[g] | bits : bits;
            }
        }
        s.written.Mark(b, e, epoch, self.Pack());
        return;
    }
    const uint32_t key = me << 22 | uint32_t(p) << 19;
    if (!s.read.AllOwn(g0, g1, base_, key, ~0u)) {
        s.read.Visit(g0 * kGranule, g1 * kGranule, base_,
                     [&](uint64_t vb, uint64_t ve, uint32_t other_epoch, uint32_t meta) {
                         if (Toucher::Unpack(meta).core != me) s.read_other.Mark(vb, ve, other_epoch, meta);
                     });
    }
    s.read.Mark(b, e, epoch, self.Pack());
}

}  // namespace ascsim
