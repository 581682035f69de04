// What the API headers see of the engine: issue an operation, reach local memory, report a fault.
// The kernel library (compiled per op and SoC) includes this; the definitions live in libascsim.so.
#pragma once
#include <cstdarg>
#include <cstdint>

#include "core/op.h"

namespace ascsim {

enum class Severity : uint8_t { Note, Warning, Error };

// Run-time figures of the SoC of this launch, read from the flattened soc_config text.
struct SocInfo {
    char name[32] = "";
    bool is_310p = false;
    uint64_t bytes[int(Mem::COUNT)] = {};  // of each local memory (GM: 0)
    uint64_t ub_reserved = 0;              // of UB, at its end: messages of the framework between cores
    uint32_t max_block_dim = 0;            // blocks that are resident at once
    uint32_t event_ids = 8;
    uint32_t queue_depth_limit = 8;  // tensors per TPosition
    bool fp16_saturate = true;       // [numerics] half overflow: saturate instead of inf
    bool checks = true;
    bool record = false;
    bool auto_sync = true;
};

// Vector mask registers. Normal mode: one bit per lane of a repeat; counter mode: `lo` is an element total.
struct MaskState {
    bool counter = false;
    uint64_t lo = ~0ull, hi = ~0ull;
    bool set_by_kernel = false;     // SetVectorMask put it there
    const char* lost_to = nullptr;  // call that overwrote a mask set by the kernel
    Loc lost_at{"", 0};
};

// Registers of the cube side.
struct FeatureMap {  // FMATRIX: the feature map behind a three-dimensional LoadData
    uint16_t height = 0, width = 0;
    uint8_t pad[4] = {};  // left, right, top, bottom
};
struct CubeState {
    FeatureMap fmatrix[2];                                         // left, right
    uint64_t padding_value = 0;                                    // SetLoadDataPaddingValue, raw bits
    uint32_t repeat_stride = 0, repeat_time = 1, repeat_mode = 0;  // SetLoadDataRepeat
    uint32_t load_boundary = 0;                                    // SetLoadDataBoundary; 0 = none
    uint16_t nd_count = 1, nd_src_stride = 0, nd_dst_stride = 0;   // SetFixpipeNz2ndFlag
    uint64_t quant_scalar = 0;                                     // SetFixpipePreQuantFlag
    uint32_t quant_tensor = 0, relu_tensor = 0;                    // SetFixPipeConfig: byte offsets in FB
    bool unit_flag = false;
};

// What a block runs on: a combined core, or one half of a split one (cube core AIC, vector core AIV).
enum class CoreKind : uint8_t { Combined, Cube, Vector };

// State of the block that is running now.
struct CoreState {
    uint8_t* local[int(Mem::COUNT)] = {};
    uint64_t local_bytes[int(Mem::COUNT)] = {};
    uint32_t core_id = 0;    // position among all blocks of the launch
    uint32_t block_idx = 0;  // as the kernel sees it: counted within its kind of core
    uint32_t block_num = 1;
    uint32_t sub_block_idx = 0;
    uint32_t sub_block_num = 1;
    CoreKind kind = CoreKind::Combined;
    uint32_t group = 0;  // AI Core a cube or vector core belongs to
    MaskState mask;
    uint64_t cmp_mask[4] = {};      // CMPMASK register
    float deq_scale = 1.0f;         // SetDeqScale
    uint32_t pad_value = 0;         // SetPadValue, raw bits
    uint8_t atomic = 0;             // AtomicKind of MTE3 writes to GM
    uint8_t atomic_type = 0;        // AtomicType of the element
    void* user = nullptr;           // frame state (TPipe instance)
    uint64_t reduce_value[2] = {};  // GetReduceMaxMinCount and friends: value, index (raw bits)
    uint64_t acc_value = 0;         // accumulator register of the counted ReduceSum (raw bits)
    uint64_t gather_count = 0;      // RSVDCNT of GatherMask
    uint64_t ctrl = 0;              // CTRL special register
    CubeState cube;
    void* impl = nullptr;  // engine private
};

extern CoreState* g_core;
extern SocInfo g_soc;

inline CoreState& Core() { return *g_core; }
inline const SocInfo& Soc() { return g_soc; }
// Bytes that are the kernel's to use.
inline uint64_t UsableBytes(Mem mem) {
    return g_soc.bytes[int(mem)] - (mem == Mem::UB ? g_soc.ub_reserved : 0);
}

// Host pointer of a byte offset in a local memory of the running block. Only after Issue() accepted the
// access.
inline uint8_t* Local(Mem mem, uint64_t byte_offset) { return g_core->local[int(mem)] + byte_offset; }

// Checks (hazards, bounds, initialisation), records, advances the clocks. False: nothing is to be computed.
// An access that leaves memory stops the launch (it does not return).
bool Issue(Op& op);

// Reports a fault of `op`; the message is "<api>: <text>". Error makes the launch fail, but it runs on.
void Report(Severity severity, const Op& op, const char* rule, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Reports an error and stops the launch.
[[noreturn]] void Fail(const Op& op, const char* rule, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Whether every byte was written (true when checks are off).
bool AllDefined(Mem mem, uint64_t byte_offset, uint64_t bytes);
// Declares bytes of a local memory undefined again (padding of DataCopyPad without pad value and the like).
void MarkUndefined(Mem mem, uint64_t byte_offset, uint64_t bytes);

// One figure of the flattened config ("numerics.exp_ulp"); `fallback` when the key is absent or not a number.
double Config(const char* key, double fallback);

// A bare op for Report/Fail where the call has no footprint.
inline Op CallSite(const char* api, Loc loc, Pipe pipe = Pipe::S) {
    Op op;
    op.name = api;
    op.loc = loc;
    op.pipe = pipe;
    return op;
}

inline const char* PipeName(Pipe p) {
    constexpr const char* names[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "?"};
    return names[int(p)];
}
inline const char* MemName(Mem m) {
    constexpr const char* names[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "?"};
    return names[int(m)];
}

}  // namespace ascsim
