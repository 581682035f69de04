// State behind the engine: one Launch, its blocks, the pooled local memories.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/abi.h"
#include "core/config.h"
#include "core/engine.h"
#include "core/fractal.h"
#include "core/gm.h"
#include "core/report.h"
#include "core/shadow.h"

namespace ascsim {

// Vector clock: lane q = latest epoch of pipe q known to have finished. Eight lanes fill one AVX register.
using Clock = uint32_t __attribute__((vector_size(32)));

inline void Join(Clock& into, const Clock& other) { into = into > other ? into : other; }

struct Memory {
    uint8_t* data = nullptr;
    uint64_t capacity = 0;
    uint64_t used = 0;  // bytes below this offset may have been written since the last poisoning
    InitMap init;
    Plane written[kPipes], read[kPipes];
    std::vector<FractalTag> tags;  // one per 512 bytes of L1, L0A, L0B, L0C; empty until first used
    bool tagged = false;
};

// Local memories of one resident core, reused by one block after the other.
struct LocalSet {
    Memory mem[kMems];
    uint32_t epoch = 0;  // no epoch in its shadow is above this
};

struct Flag {
    bool set = false;
    Clock know{};
    SourceSite site;
};

struct Allocation {
    Mem mem;
    uint32_t begin, end;
    std::string label;  // "TQue<VECIN> buffer 1"
    Loc loc;
};

enum class Wait : uint8_t { None, SyncAll, Signal, Spin };

using Seen = std::vector<Clock>;
void Merge(Seen& into, const Seen& other);

// One increment of a cross-core flag counter.
struct Token {
    Seen seen;
    int32_t event;  // the timing replay's name of it
};

struct Block {
    CoreState core;
    std::unique_ptr<LocalSet> local;
    uint32_t base = 0;  // epochs at or below belong to earlier blocks
    uint32_t clock[8] = {};
    Clock know[kPipes];
    std::vector<SourceSite> sites[kPipes];
    Flag flags[kPipes][kPipes][16];
    std::vector<Record> records;
    std::vector<Allocation> allocations;
    // Order between blocks: pipe epochs of each other block this one is ordered after; empty = none yet.
    Seen seen;
    std::deque<Token> tokens[16];  // CrossCoreSetFlag: per flag id, what the setters knew
    DataCache dcache;
    Wait wait = Wait::None;
    std::string waiting_for;
    Loc wait_loc{"", 0};
    bool started = false, done = false;
    uint64_t spin_address = 0;
    uint64_t spin_progress = 0;
    uint32_t spins = 0;
    uint64_t progress = 0;  // ops issued, to tell a spinning block from a working one
    uint32_t open_flags = 0;
};

// Blocks of a group that have set a cross-core flag, by core id: their tokens in order.
struct Arrival {
    std::unordered_map<uint32_t, std::deque<Seen>> of;
};

struct Launch {
    const AscsimLaunch* request = nullptr;
    ConfigText config;
    GlobalMemory gm;
    Reporter reporter;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::string> prints;
    std::string error;
    uint32_t base = 0;
    uint32_t epoch = 0;  // highest epoch handed out by finished blocks
    bool stopped = false;
    bool scalar_writes = false;  // some block wrote GM through its scalar cache
    bool mixed = false;          // cube and vector cores are blocks of their own
    uint32_t vectors_per_cube = 0;
    void (*cube_kernel)(void**) = nullptr;
    std::unordered_map<uint64_t, Seen> signals;   // software flags: key -> what the setter knew
    std::unordered_map<uint64_t, Arrival> flags;  // cross-core flags waiting for their last setter
    std::vector<uint32_t> sync_all[2];  // core ids waiting in SyncAll: of all cores, of vector cores
};

struct KernelStop {};  // thrown through the kernel when it cannot continue

extern Launch* g_launch;
extern Block* g_block;

const SourceSite& SiteOf(const Block& block, Pipe pipe, uint32_t epoch);
const Allocation* FindAllocation(const Block& block, Mem mem, uint64_t offset);
std::string LocalName(const Block& block, Mem mem, uint64_t offset);

inline void CheckDirtyLinesIfAny(Block& block, const Op& op, const Access& a, const Foot& f) {
    if (op.pipe != Pipe::S && g_launch->scalar_writes) CheckDirtyLines(block, op, a, f);
}

std::string CoreName(const Block& block);  // "core 3", in a mixed launch "AIC 1" or "AIV 3"

// engine.cpp
void KeepRecord(const Op& op, bool auto_barrier, Pipe auto_from);
// sync.cpp
Seen Snapshot(Block& b, Pipe pipe);
void IssueSync(Op& op);
void FinishFlags(Block& block);
void NoteScalar(const Op& op);  // lets a block that polls GM give way to the others
// cross_core.cpp
void FinishCrossFlags();
// fractal.cpp
void ForgetFractals(Memory& m, const Foot& f);
// fiber.cpp
void RunBlocks(const std::function<void()>& body);
void Yield(Wait wait, std::string what, Loc loc);
// local_memory.cpp
std::unique_ptr<LocalSet> TakeLocalSet();
void ReturnLocalSet(std::unique_ptr<LocalSet> set);

}  // namespace ascsim
