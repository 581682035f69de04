#include "core/sync.h"

#include "core/state.h"

namespace ascsim {
namespace {

std::string EventName(Pipe from, Pipe to) { return std::string(PipeName(from)) + "_" + PipeName(to); }

void JoinDispatch(Block& b, Pipe p) {
    if (p == Pipe::S) return;
    const uint32_t own_s = b.know[int(p)][int(Pipe::S)];
    Join(b.know[int(p)], b.know[int(Pipe::S)]);
    b.know[int(p)][int(Pipe::S)] = own_s;
}

void Set(Block& b, Op& op) {
    Flag& flag = b.flags[int(op.pipe)][int(op.peer)][op.event];
    JoinDispatch(b, op.pipe);
    if (flag.set)
        Report(Severity::Error, op, "flag.set_twice",
               "event %s id %d is set again before anyone waited for it (set by %s at line "
               "%u): the hardware hangs or loses one; WaitFlag first or take another id",
               EventName(op.pipe, op.peer).c_str(), op.event, flag.site.api, flag.site.line);
    flag.set = true;
    flag.know = b.know[int(op.pipe)];
    flag.know[int(op.pipe)] = b.clock[int(op.pipe)];
    flag.site = {op.name, op.loc.file, op.loc.line};
}

void Take(Block& b, Op& op) {
    Flag& flag = b.flags[int(op.peer)][int(op.pipe)][op.event];
    JoinDispatch(b, op.pipe);
    if (!flag.set) {
        Report(Severity::Error, op, "flag.wait_unset",
               "no SetFlag precedes this wait for event %s id %d: pipe %s stops there "
               "(deadlock unless the set comes later in program order)",
               EventName(op.peer, op.pipe).c_str(), op.event, PipeName(op.pipe));
        return;
    }
    flag.set = false;
    Join(b.know[int(op.pipe)], flag.know);
}

void Barrier(Block& b, const Op& op) {
    if (op.peer != Pipe::COUNT) {
        JoinDispatch(b, op.pipe);
        b.know[int(op.pipe)][int(op.pipe)] = b.clock[int(op.pipe)];
        return;
    }
    for (int p = 0; p < kPipes; ++p)
        for (int q = 0; q < kPipes; ++q) b.know[p][q] = b.clock[q];
}

Op SyncOp(const char* api, OpKind kind, Pipe pipe, Pipe peer, int32_t event, Loc loc) {
    Op op;
    op.name = api;
    op.kind = kind;
    op.pipe = pipe;
    op.peer = peer;
    op.event = event;
    op.loc = loc;
    return op;
}

void CheckResident(const Op& op) {
    const uint32_t blocks = g_launch->request->block_dim;
    if (blocks > g_soc.max_block_dim && g_soc.max_block_dim)
        Report(Severity::Error, op, "sync.resident",
               "%u blocks but %u cores on %s: blocks that are not resident cannot arrive "
               "(deadlock); launch at most %u",
               blocks, g_soc.max_block_dim, g_soc.name, g_soc.max_block_dim);
}

}  // namespace

void Merge(Seen& into, const Seen& other) {
    if (into.size() < other.size()) into.resize(other.size(), Clock{});
    for (size_t c = 0; c < other.size(); ++c) Join(into[c], other[c]);
}

// What the pipe (S: everything the block has issued, after a barrier) knows to be finished, on all cores.
Seen Snapshot(Block& b, Pipe pipe) {
    Seen s = b.seen;
    s.resize(g_launch->blocks.size(), Clock{});
    Clock& own = s[b.core.core_id];
    if (pipe == Pipe::S) {
        for (int p = 0; p < kPipes; ++p) own[p] = b.clock[p];
        return s;
    }
    JoinDispatch(b, pipe);
    own = b.know[int(pipe)];
    own[int(pipe)] = b.clock[int(pipe)];
    return s;
}

void IssueSync(Op& op) {
    Block& b = *g_block;
    if (op.kind != OpKind::Barrier) {
        if (op.event < 0 || op.event >= int32_t(g_soc.event_ids)) {
            Report(Severity::Error, op, "flag.id", "event id %d: allowed 0 … %u on %s", op.event,
                   g_soc.event_ids - 1, g_soc.name);
            return;
        }
        if (g_soc.checks) op.kind == OpKind::SetFlag ? Set(b, op) : Take(b, op);
    } else if (g_soc.checks) {
        Barrier(b, op);
    }
    if (g_soc.record) KeepRecord(op, false, Pipe::S);
}

void FinishFlags(Block& b) {
    for (int p = 0; p < kPipes; ++p)
        for (int q = 0; q < kPipes; ++q)
            for (Flag& flag : b.flags[p][q]) {
                if (!flag.set) continue;
                Op op = CallSite(flag.site.api, Loc{flag.site.file, flag.site.line}, Pipe(p));
                Report(Severity::Error, op, "flag.unpaired",
                       "event %s id %d is still set at the end of the kernel: the next "
                       "kernel on this core meets it; every SetFlag needs its WaitFlag",
                       EventName(Pipe(p), Pipe(q)).c_str(), int(&flag - b.flags[p][q]));
                flag.set = false;
            }
}

void SetEvent(const char* api, Pipe from, Pipe to, int32_t id, Loc loc) {
    Op op = SyncOp(api, OpKind::SetFlag, from, to, id, loc);
    Issue(op);
}
void WaitEvent(const char* api, Pipe from, Pipe to, int32_t id, Loc loc) {
    Op op = SyncOp(api, OpKind::WaitFlag, to, from, id, loc);
    Issue(op);
}
void PipeBarrierOf(const char* api, Pipe pipe, Loc loc) {
    Op op = SyncOp(api, OpKind::Barrier, pipe, pipe, -1, loc);
    Issue(op);
}
void PipeBarrierAll(const char* api, Loc loc) {
    Op op = SyncOp(api, OpKind::Barrier, Pipe::S, Pipe::COUNT, -1, loc);
    Issue(op);
}

void SyncAllBlocks(const char* api, uint32_t used_cores, bool vectors_only, Loc loc) {
    PipeBarrierAll(api, loc);
    Block& self = *g_block;
    Op op = SyncOp(api, OpKind::SyncAll, Pipe::S, Pipe::S, -1, loc);
    const bool part = g_launch->mixed && vectors_only;
    uint32_t present = 0;
    for (const auto& b : g_launch->blocks) present += !part || b->core.kind == CoreKind::Vector;
    if (part && self.core.kind == CoreKind::Cube)
        Fail(op, "sync.cores", "a cube core calls the SyncAll of the vector cores: use SyncAll<false>()");
    const uint32_t total = used_cores ? used_cores : present;
    if (total > present)
        Fail(op, "sync.cores", "waits for %u cores, the launch has %u blocks (deadlock)", total, present);
    CheckResident(op);
    if (g_soc.record) KeepRecord(op, false, Pipe::S);
    auto& arrived = g_launch->sync_all[part];
    arrived.push_back(self.core.core_id);
    if (arrived.size() < total) {
        Yield(Wait::SyncAll,
              std::string(api) + " (" + std::to_string(arrived.size()) + " of " + std::to_string(total) +
                  " arrived)",
              loc);
        return;
    }
    // The last one: everybody has seen everything up to here.
    Seen all;
    for (const uint32_t i : arrived) Merge(all, Snapshot(*g_launch->blocks[i], Pipe::S));
    for (const uint32_t i : arrived) {
        Block& block = *g_launch->blocks[i];
        Merge(block.seen, all);
        block.wait = Wait::None;
    }
    arrived.clear();
}

void RaiseSignal(const char* api, uint64_t key, Loc loc) {
    PipeBarrierAll(api, loc);
    if (g_soc.record)
        KeepRecord(SyncOp(api, OpKind::CrossSet, Pipe::S, Pipe::S, int32_t(key & 0x7fffffff), loc), false,
                   Pipe::S);
    Merge(g_launch->signals[key], Snapshot(*g_block, Pipe::S));
}

void AwaitSignal(const char* api, uint64_t key, const char* description, Loc loc) {
    while (!g_launch->signals.count(key)) Yield(Wait::Signal, std::string(api) + " " + description, loc);
    Merge(g_block->seen, g_launch->signals[key]);
    g_launch->signals.erase(key);
    if (g_soc.record)
        KeepRecord(SyncOp(api, OpKind::CrossWait, Pipe::S, Pipe::S, int32_t(key & 0x7fffffff), loc), false,
                   Pipe::S);
    PipeBarrierAll(api, loc);
}

void CleanDataCache(const char* api, uint64_t address, uint64_t bytes, Loc loc) {
    DataCache& cache = g_block->dcache;
    if (g_soc.record) {
        Op op = CallSite(api, loc);
        op.kind = OpKind::Scalar;
        op.work.cost = "Scalar.dcache_clean";
        KeepRecord(op, false, Pipe::S);
    }
    if (!bytes) {
        cache.dirty.clear();
        cache.loaded.clear();
        return;
    }
    for (uint64_t line = address / kCacheLine; line * kCacheLine < address + bytes; ++line) {
        cache.dirty.erase(line);
        cache.loaded.erase(line);
    }
}

void NoteScalar(const Op& op) {
    // A kernel that polls GM for another block's word never ends unless that block runs.
    if (!op.accesses || op.access[0].mem != Mem::GM || op.access[0].write) return;
    Block& b = *g_block;
    const bool same = b.spin_address == op.access[0].base && b.progress - b.spin_progress <= 4;
    b.spins = same ? b.spins + 1 : 0;
    b.spin_address = op.access[0].base;
    b.spin_progress = b.progress;
    if (b.spins < 64) return;
    b.spins = 0;
    Yield(Wait::Spin, "a GM word polled by GetValue", op.loc);
}

}  // namespace ascsim
