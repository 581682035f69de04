// One recorded device operation. Every AscendC call lowers to an Op: the engine checks it (hazards, bounds,
// initialisation), records it for the timing model, then the call computes on plain memory.
#pragma once
#include <cstdint>

namespace ascsim {

enum class Pipe : uint8_t { S, V, M, MTE1, MTE2, MTE3, FIX, COUNT };
enum class Mem : uint8_t { GM, UB, L1, L0A, L0B, L0C, BT, FB, COUNT };

// Kernel call site: a distinct type, so that a trailing default argument never competes with int overloads.
struct Loc {
    const char* file;
    uint32_t line;
    static constexpr Loc Here(const char* f = __builtin_FILE(), uint32_t l = __builtin_LINE()) {
        return Loc{f, l};
    }
};

// Footprint of one operand: for each repeat r and block b the bytes
// [base + r*repeat_stride + b*block_stride, + block_bytes). All figures in bytes.
struct Access {
    Mem mem = Mem::UB;
    bool write = false;
    uint64_t base = 0;         // UB etc.: byte offset in that memory; GM: host address
    uint32_t block_bytes = 0;  // bytes really touched in each block (tail lanes of a masked repeat excluded)
    uint32_t blocks = 1;
    uint64_t block_stride = 0;
    uint32_t repeats = 1;
    uint64_t repeat_stride = 0;
    uint64_t tensor_base =
        0;  // declared extent of the tensor the operand names (fat pointer), same address space
    uint64_t tensor_bytes = 0;   // 0 = unknown
    const char* operand = "";    // "dst", "src0", … as the API documents them
    const Loc* freed = nullptr;  // FreeTensor call that gave the operand's buffer back to its queue
    bool carries = false;        // reads bytes nobody wrote without harm: the call hands them on as undefined
};

enum class OpKind : uint8_t {
    Compute,
    Move,
    Scalar,
    SetFlag,
    WaitFlag,
    Barrier,
    CrossSet,
    CrossWait,
    SyncAll
};

// What the timing model prices. `cost` is a key into [cost] of sim/soc/*.toml, e.g. "Add.f32"; `repeats`
// counts 256-byte repeats of the wider operand; `bytes` counts bytes moved (Move) and `bursts` separate GM
// rows of a Move.
struct Work {
    const char* cost = "";
    uint32_t repeats = 0;
    uint64_t bytes = 0;
    uint32_t bursts = 0;
    Mem from = Mem::UB, to = Mem::UB;
};

struct Op {
    const char* name = "";  // API name as the kernel spells it
    OpKind kind = OpKind::Compute;
    Pipe pipe = Pipe::S;
    Pipe peer =
        Pipe::S;  // Set/WaitFlag: the other pipe (src = pipe, dst = peer for SetFlag; reverse for WaitFlag)
    int32_t event = -1;  // Set/WaitFlag, CrossSet/CrossWait id
    Work work;
    bool unit_flag = false;  // the hardware orders M and FIX on L0C by itself (unitFlag of Mmad and Fixpipe)
    bool overtakes =
        false;  // may start before the call ahead of it on its pipe has ended, other than V and DMA do
    uint8_t accesses = 0;
    Loc loc{"", 0};
    static constexpr uint8_t kMaxAccesses = 32;
    union {  // left uninitialised: only the first `accesses` entries mean anything
        Access access[kMaxAccesses];
    };
    Op() {}
    Access& Add(const Access& a) { return access[accesses++] = a; }
};

// What the engine keeps per op for the replay (in program order, per block).
struct Record {
    const char* name;
    const char* cost;
    OpKind kind;
    Pipe pipe, peer;
    Mem from, to;
    bool auto_barrier;  // the compiler's auto-sync would stall here (dependency within V, or S <-> V/MTE)
    Pipe auto_from;     // … on this pipe
    int32_t event;
    uint32_t repeats;
    uint32_t bursts;
    uint64_t bytes;
    uint64_t gm;              // first GM host address of a Move (L2 model), 0 if none
    uint64_t gm_span;         // bytes between first and last GM byte touched
    uint32_t bank_conflicts;  // repeats that hit a UB bank conflict
    Loc loc;
};

}  // namespace ascsim
