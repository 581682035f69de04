// Blocks as fibers on one host thread, in block order: deterministic. A block gives way only where it waits
// for another.
#include <sys/mman.h>
#include <ucontext.h>

#include <exception>
#include <new>

#include "core/state.h"

namespace ascsim {
namespace {

constexpr uint64_t kStack = 4 << 20;  // virtual; pages are backed when touched
constexpr uint64_t kGuard = 4096;

struct Fiber {
    ucontext_t context;
    uint8_t* stack = nullptr;
};

ucontext_t g_scheduler;
std::vector<uint8_t*> g_stacks;
const std::function<void()>* g_body = nullptr;
std::vector<Fiber> g_fibers;
uint32_t g_current = 0;

uint8_t* TakeStack() {
    if (!g_stacks.empty()) {
        uint8_t* s = g_stacks.back();
        g_stacks.pop_back();
        return s;
    }
    void* p =
        mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, kGuard, PROT_NONE);
    return static_cast<uint8_t*>(p);
}

void Enter() {
    Block& b = *g_launch->blocks[g_current];
    try {
        (*g_body)();
    } catch (const KernelStop&) {
    } catch (const std::exception& e) {
        if (g_launch->error.empty()) g_launch->error = std::string("kernel threw: ") + e.what();
        g_launch->stopped = true;
    }
    b.done = true;
    swapcontext(&g_fibers[g_current].context, &g_scheduler);
}

void Start(Block& b) {
    b.started = true;
    b.local = TakeLocalSet();
    b.base = std::max(b.local->epoch, g_launch->epoch);
    for (int p = 0; p < kPipes; ++p) {
        b.clock[p] = b.base;
        for (int q = 0; q < 8; ++q) b.know[p][q] = b.base;
        b.sites[p].clear();
    }
    for (int m = 0; m < kMems; ++m) {
        b.core.local[m] = b.local->mem[m].data;
        const bool ub = m == int(Mem::UB);
        const bool absent = (b.core.kind == CoreKind::Cube && ub) || (b.core.kind == CoreKind::Vector && !ub);
        b.core.local_bytes[m] = absent ? 0 : g_soc.bytes[m];
    }
    Fiber& f = g_fibers[b.core.core_id];
    f.stack = TakeStack();
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack + kGuard;
    f.context.uc_stack.ss_size = kStack - kGuard;
    f.context.uc_link = &g_scheduler;
    makecontext(&f.context, Enter, 0);
}

void Resume(Block& b) {
    g_current = b.core.core_id;
    g_block = &b;
    g_core = &b.core;
    if (!b.started) Start(b);
    swapcontext(&g_scheduler, &g_fibers[g_current].context);
}

void Finish(Block& b) {
    uint32_t top = b.base;
    for (int p = 0; p < kPipes; ++p) top = std::max(top, b.clock[p]);
    b.local->epoch = top;
    g_launch->epoch = std::max(g_launch->epoch, top);
    g_stacks.push_back(g_fibers[b.core.core_id].stack);
    ReturnLocalSet(std::move(b.local));
}

void Deadlock() {
    Op op;
    std::string text = "deadlock: no block can go on;";
    for (const auto& b : g_launch->blocks) {
        if (b->done) continue;
        if (!op.loc.line) {
            op = CallSite("launch", b->wait_loc);
            g_block = b.get();
        }
        const std::string name = g_launch->mixed ? CoreName(*b) : "block " + std::to_string(b->core.core_id);
        text +=
            " " + name + " waits in " + b->waiting_for + " at line " + std::to_string(b->wait_loc.line) + ";";
    }
    uint32_t finished = 0;
    for (const auto& b : g_launch->blocks) finished += b->done;
    if (finished) text += " " + std::to_string(finished) + " blocks have finished without arriving there";
    Report(Severity::Error, op, "sync.deadlock", "%s", text.c_str());
    g_launch->error = text;
    g_launch->stopped = true;
}

}  // namespace

void Yield(Wait wait, std::string what, Loc loc) {
    Block& b = *g_block;
    b.wait = wait;
    b.waiting_for = std::move(what);
    b.wait_loc = loc;
    swapcontext(&g_fibers[b.core.core_id].context, &g_scheduler);
    if (g_launch->stopped) throw KernelStop{};  // another block failed while this one waited: unwind
}

void RunBlocks(const std::function<void()>& body) {
    g_body = &body;
    g_fibers.assign(g_launch->blocks.size(), Fiber{});
    size_t open = g_launch->blocks.size();
    uint32_t idle_rounds = 0;
    while (open) {
        bool moved = false;
        for (const auto& b : g_launch->blocks) {
            if (b->done) continue;
            if (g_launch->stopped && !b->started) {
                b->done = true;
                --open;
                continue;
            }
            if (b->wait == Wait::SyncAll && !g_launch->stopped) continue;
            const uint64_t before = b->progress;
            const Wait was = b->wait;
            b->wait = Wait::None;
            Resume(*b);
            // A poll that goes on polling, a wait that goes on waiting, is no progress.
            moved |= b->done || b->wait != was || (was != Wait::Spin && b->progress != before);
            if (b->done) {
                Finish(*b);
                --open;
            }
        }
        idle_rounds = moved ? 0 : idle_rounds + 1;
        if (idle_rounds > 2 && !g_launch->stopped) Deadlock();
    }
    g_block = nullptr;
    g_core = nullptr;
}

}  // namespace ascsim
