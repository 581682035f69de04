// Issue(): bounds, hazards of local memory, initialisation, record. The order of work per operation is: reads
// are judged and marked, then writes; so an in-place operation does not conflict with itself.
#include "core/engine.h"

#include <cstring>

#include "core/state.h"
#include "core/timing.h"

namespace ascsim {

CoreState* g_core = nullptr;
SocInfo g_soc;
Launch* g_launch = nullptr;
Block* g_block = nullptr;

const SourceSite& SiteOf(const Block& block, Pipe pipe, uint32_t epoch) {
    static const SourceSite unknown{"?", "?", 0};
    const auto& sites = block.sites[int(pipe)];
    const uint32_t index = epoch - block.base - 1;
    return index < sites.size() ? sites[index] : unknown;
}

const Allocation* FindAllocation(const Block& block, Mem mem, uint64_t offset) {
    const Allocation* best = nullptr;
    for (const Allocation& a : block.allocations)
        if (a.mem == mem && offset >= a.begin && offset < a.end &&
            (!best || a.end - a.begin < best->end - best->begin))
            best = &a;
    return best;
}

std::string LocalName(const Block& block, Mem mem, uint64_t offset) {
    const Allocation* a = FindAllocation(block, mem, offset);
    if (!a) return std::string(MemName(mem)) + "+" + std::to_string(offset);
    std::string name = a->label;
    if (a->loc.line) name += " (line " + std::to_string(a->loc.line) + ")";
    return name;
}

namespace {

const char* KindName(CoreKind kind) {
    return kind == CoreKind::Cube ? "a cube core of " : kind == CoreKind::Vector ? "a vector core of " : "";
}

void LocalBounds(const Op& op, const Access& a, const Foot& f) {
    const char* verb = a.write ? "writes" : "reads";
    const uint64_t end = f.end(), size = g_core->local_bytes[int(a.mem)];
    if (a.tensor_bytes && a.tensor_base == ~0ull - 1)
        Fail(op, "bounds.tensor",
             "%s: %s %llu bytes at %s offset %llu through a tensor with no bytes there (never allocated, "
             "or indexed past its end)",
             a.operand, verb, (unsigned long long)(end - f.base), MemName(a.mem), (unsigned long long)f.base);
    if (end > size)
        Fail(op, "bounds.memory", "%s: %s %s bytes [%llu, %llu), which has %llu bytes on %s%s", a.operand,
             verb, MemName(a.mem), (unsigned long long)f.base, (unsigned long long)end,
             (unsigned long long)size, KindName(g_core->kind), g_soc.name);
    if (!a.tensor_bytes || end <= a.tensor_base + a.tensor_bytes) return;
    const uint64_t limit = a.tensor_base + a.tensor_bytes;
    const Allocation* home = FindAllocation(*g_block, a.mem, a.tensor_base);
    // A hand-placed tensor of the cube's memories has no buffer around it; its length is only what the kernel
    // says.
    const bool inside = home ? end <= home->end : a.mem != Mem::UB;
    const char* hint = op.pipe == Pipe::MTE2 || op.pipe == Pipe::MTE3
                           ? "shorten the move or enlarge the buffer"
                           : "check count, mask, repeat and strides";
    if (inside)
        Report(Severity::Warning, op, "bounds.tensor",
               "%s: %s %llu bytes beyond the tensor's declared %llu, still inside %s; %s", a.operand, verb,
               (unsigned long long)(end - limit), (unsigned long long)a.tensor_bytes,
               home ? home->label.c_str() : MemName(a.mem), hint);
    else
        Report(Severity::Error, op, "bounds.tensor",
               "%s: %s %llu bytes past the end of %s ([%llu, %llu) of %s, access ends at "
               "%llu); %s",
               a.operand, verb, (unsigned long long)(end - limit),
               home ? home->label.c_str() : "its allocation", (unsigned long long)a.tensor_base,
               (unsigned long long)limit, MemName(a.mem), (unsigned long long)end, hint);
}

bool AutoSynced(const Op& op, Pipe a, Pipe b) {
    if (op.unit_flag && a != b && (a == Pipe::M || a == Pipe::FIX) && (b == Pipe::M || b == Pipe::FIX))
        return true;
    if (!g_soc.auto_sync) return false;
    auto with_scalar = [](Pipe p) { return p == Pipe::V || p == Pipe::MTE2 || p == Pipe::MTE3; };
    return (a == Pipe::V && b == Pipe::V) || (a == Pipe::S && with_scalar(b)) ||
           (b == Pipe::S && with_scalar(a));
}

struct Judged {
    bool auto_barrier = false;
    Pipe auto_from = Pipe::S;
};

void ReportRace(Block& b, const Op& op, const Access& a, const char* rule, const char* other_did, Pipe q,
                const Conflict& c) {
    const Pipe p = op.pipe;
    const Allocation* home = FindAllocation(b, a.mem, c.begin);
    const uint64_t origin = home ? home->begin : 0;
    Hazard h;
    h.rule = rule;
    h.site = {op.name, op.loc.file, op.loc.line};
    h.pipe = PipeName(p);
    h.tensor = LocalName(b, a.mem, c.begin);
    h.begin = c.begin - origin;
    h.end = c.end - origin;
    h.core = b.core.core_id;
    h.has_other = true;
    h.other = SiteOf(b, q, c.epoch);
    h.other_pipe = PipeName(q);
    // The hardware schedules products by size; a small one that overtakes is only known from the
    // documentation.
    // So is that Fixpipe does not wait for words on their way.
    if (p == q && (op.overtakes || a.mem == Mem::FB)) h.severity = Severity::Warning;
    const std::string event = std::string(PipeName(q)) + "_" + PipeName(p);
    h.message = std::string(op.name) + ": " + a.operand + ": pipe " + h.pipe +
                (a.write ? " writes " : " reads ") + h.tensor + " bytes [" + std::to_string(h.begin) + ", " +
                std::to_string(h.end) + ") while pipe " + h.other_pipe + " may still " + other_did +
                " them (" + h.other.api + " at line " + std::to_string(h.other.line) + "); ";
    if (p == q)
        h.message += std::string("missing PipeBarrier<PIPE_") + PipeName(p) + "> between the two";
    else
        h.message += "missing " + event + ": EnQue/DeQue, or SetFlag/WaitFlag<HardEvent::" + event + ">";
    g_launch->reporter.Add(std::move(h));
}

// One access against the shadow of its memory.
void JudgeLocal(Block& b, const Op& op, const Access& a, const Foot& f, Judged* judged) {
    const int p = int(op.pipe);
    Memory& m = b.local->mem[int(a.mem)];
    Clock& know = b.know[p];
    Conflict c;
    for (int q = 0; q < kPipes; ++q) {
        // A pipe meets itself only where its instructions overlap in time: V, DMA writes on DMA writes, and a
        // Fixpipe that reads words which a move has just put into the fixpipe buffer.
        const bool self = q == p;
        const bool dma = op.pipe == Pipe::MTE2 || op.pipe == Pipe::MTE3 || op.pipe == Pipe::FIX;
        if (self && op.pipe != Pipe::V && !(a.write ? dma : op.overtakes || a.mem == Mem::FB)) continue;
        const bool wrote = m.written[q].Check(f, know[q], &c);
        const bool read = !wrote && a.write && !self && m.read[q].Check(f, know[q], &c);
        if (!wrote && !read) continue;
        if (AutoSynced(op, op.pipe, Pipe(q))) {
            judged->auto_barrier = true;
            judged->auto_from = Pipe(q);
            if (!self) Join(know, b.know[q]);
            know[q] = self ? b.clock[q] - 1 : b.clock[q];
            continue;
        }
        ReportRace(b, op, a, wrote ? (a.write ? "race.waw" : "race.raw") : "race.war",
                   wrote ? "write" : "read", Pipe(q), c);
        know[q] = std::max(know[q], c.epoch);
    }
    if (a.write || a.carries) return;
    if (!m.init.Check(f, &c)) {
        const Allocation* home = FindAllocation(b, a.mem, c.begin);
        const uint64_t origin = home ? home->begin : 0;
        Hazard h;
        h.rule = "uninit.local";
        h.site = {op.name, op.loc.file, op.loc.line};
        h.pipe = PipeName(op.pipe);
        h.tensor = LocalName(b, a.mem, c.begin);
        h.begin = c.begin - origin;
        h.end = c.end - origin;
        h.core = b.core.core_id;
        h.message = std::string(op.name) + ": " + a.operand + ": reads " + h.tensor + " bytes [" +
                    std::to_string(h.begin) + ", " + std::to_string(h.end) +
                    "), which nothing has written (local memory holds stale data); fill it " +
                    "with Duplicate or copy the whole range";
        g_launch->reporter.Add(std::move(h));
        m.init.Set(f);  // said once; `used` makes the next launch forget it
        m.used = std::max(m.used, f.end());
    }
}

}  // namespace

void KeepRecord(const Op& op, bool auto_barrier, Pipe auto_from) {
    Record r{};
    r.name = op.name;
    r.cost = op.work.cost;
    r.kind = op.kind;
    r.pipe = op.pipe;
    r.peer = op.peer;
    r.from = op.work.from;
    r.to = op.work.to;
    r.auto_barrier = auto_barrier;
    r.auto_from = auto_from;
    r.event = op.event;
    r.repeats = op.work.repeats;
    r.bursts = op.work.bursts;
    r.bytes = op.work.bytes;
    r.bank_conflicts = op.pipe == Pipe::V ? BankConflicts(op) : 0;
    r.loc = op.loc;
    for (int i = 0; i < op.accesses; ++i) {
        if (op.access[i].mem != Mem::GM) continue;
        const Foot f = Reduce(op.access[i]);
        r.gm = f.base;
        r.gm_span = f.end() - f.base;
        break;
    }
    g_block->records.push_back(r);
}

bool Issue(Op& op) {
    Block& b = *g_block;
    ++b.progress;
    if (op.kind == OpKind::SetFlag || op.kind == OpKind::WaitFlag || op.kind == OpKind::Barrier) {
        IssueSync(op);
        return true;
    }
    Foot foot[Op::kMaxAccesses];
    bool any = op.accesses == 0;
    for (int i = 0; i < op.accesses; ++i) {
        const Access& a = op.access[i];
        foot[i] = Reduce(a);
        if (!foot[i].bytes) continue;
        any = true;
        if (a.mem == Mem::GM)
            g_launch->gm.Bounds(op, a, foot[i]);
        else
            LocalBounds(op, a, foot[i]);
        if (a.write && a.mem != Mem::GM) {
            Memory& m = b.local->mem[int(a.mem)];
            m.used = std::max(m.used, foot[i].end());
        }
    }
    if (!any) return false;
    Judged judged;
    if (g_soc.checks) {
        for (int i = 0; i < op.accesses; ++i) {
            const Access& a = op.access[i];
            if (a.freed && foot[i].bytes)
                Report(Severity::Warning, op, "queue.freed",
                       "%s: %s a tensor after FreeTensor (line %u): its buffer may belong to the next "
                       "AllocTensor",
                       a.operand, a.write ? "writes" : "reads", a.freed->line);
        }
        const int p = int(op.pipe);
        const uint32_t epoch = ++b.clock[p];
        b.sites[p].push_back({op.name, op.loc.file, op.loc.line});
        if (op.pipe != Pipe::S) {  // dispatched by S in program order: what S waited for has happened
            const uint32_t own_s = b.know[p][int(Pipe::S)];
            Join(b.know[p], b.know[int(Pipe::S)]);
            b.know[p][int(Pipe::S)] = own_s;
        }
        for (int pass = 0; pass < 2; ++pass) {
            for (int i = 0; i < op.accesses; ++i) {
                const Access& a = op.access[i];
                if (a.write != (pass == 1) || !foot[i].bytes) continue;
                if (a.mem == Mem::GM) {
                    CheckDirtyLinesIfAny(b, op, a, foot[i]);
                    g_launch->gm.Track(b, op, a, foot[i], epoch);
                    continue;
                }
                JudgeLocal(b, op, a, foot[i], &judged);
                Memory& m = b.local->mem[int(a.mem)];
                if (pass == 0) {
                    m.read[p].Mark(foot[i], epoch);
                } else {
                    m.written[p].Mark(foot[i], epoch);
                    m.init.Set(foot[i]);
                    if (m.tagged) ForgetFractals(m, foot[i]);
                }
            }
        }
    }
    if (g_soc.record) KeepRecord(op, judged.auto_barrier, judged.auto_from);
    if (op.pipe == Pipe::S && op.kind == OpKind::Scalar) NoteScalar(op);
    return true;
}

void MarkUndefined(Mem mem, uint64_t byte_offset, uint64_t bytes) {
    Memory& m = g_block->local->mem[int(mem)];
    m.used = std::max(m.used, byte_offset + bytes);
    std::memset(m.data + byte_offset, 0xff, bytes);
    if (g_soc.checks) m.init.Unset(byte_offset, byte_offset + bytes);
}

bool AllDefined(Mem mem, uint64_t byte_offset, uint64_t bytes) {
    if (!g_soc.checks) return true;
    Foot f;
    f.base = byte_offset;
    f.bytes = bytes;
    Conflict hole;
    return g_block->local->mem[int(mem)].init.Check(f, &hole);
}

double Config(const char* key, double fallback) {
    return g_launch ? g_launch->config.Number(key, fallback) : fallback;
}

}  // namespace ascsim
