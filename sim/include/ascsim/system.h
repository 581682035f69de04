// Block numbering, cross-core synchronisation, atomics, caches, workspace.
#pragma once
#include "ascsim/event.h"
#include "ascsim/move.h"
#include "ascsim/queue.h"
#include "ascsim/support.h"

namespace AscendC {

constexpr int32_t MIX = 0;
constexpr int32_t AIC = 1;
constexpr int32_t AIV = 2;

}  // namespace AscendC

#if defined(__DAV_C220_CUBE__)
constexpr int32_t g_coreType = AscendC::AIC;
#elif defined(__DAV_C220_VEC__)
constexpr int32_t g_coreType = AscendC::AIV;
#else
constexpr int32_t g_coreType = AscendC::MIX;
#endif
#define ASCEND_IS_AIV constexpr(g_coreType == AscendC::AIV)
#define ASCEND_IS_AIC constexpr(g_coreType == AscendC::AIC)
#define ASCEND_IS_NOT_AIV constexpr(g_coreType != AscendC::AIV)
#define ASCEND_IS_NOT_AIC constexpr(g_coreType != AscendC::AIC)

// The raw number counts AI Cores; GetBlockIdx counts cores of its kind.
inline int64_t get_block_idx() {
    return ascsim::Core().kind == ascsim::CoreKind::Combined ? ascsim::Core().block_idx
                                                             : ascsim::Core().group;
}
inline int64_t get_block_num() { return ascsim::Core().block_num; }
// Builtin variable of the device compiler.
struct AscsimBlockIndex {
    operator int64_t() const { return get_block_idx(); }
};
inline constexpr AscsimBlockIndex block_idx{};

namespace ascsim {

inline void RequireSplitCores(const char* api, Loc loc) {
    if (Core().kind == CoreKind::Combined && Soc().is_310p)
        Fail(CallSite(api, loc), "support",
             "not available on ascend310p (ascend910b has it): its core has cube and vector unit, order them "
             "by "
             "SetFlag and WaitFlag");
}

}  // namespace ascsim

namespace AscendC {

inline int64_t GetBlockIdx() { return ascsim::Core().block_idx; }
inline int64_t GetBlockNum() { return ascsim::Core().block_num; }
// Cores of this kind per AI Core.
inline int64_t GetTaskRation() {
    return ascsim::Core().kind == ascsim::CoreKind::Vector ? ascsim::Core().sub_block_num : 1;
}
inline int64_t GetTaskRatio() { return GetTaskRation(); }
// A combined core is the only one of its AI Core: 0 of 1 (CANN's dav_m200 headers say the same).
inline int64_t GetSubBlockIdx() { return ascsim::Core().sub_block_idx; }
inline int64_t GetSubBlockNum() { return ascsim::Core().sub_block_num; }
inline void GetArchVersion(uint32_t& version) { version = ascsim::Soc().is_310p ? 200 : 220; }
inline int64_t GetProgramCounter() { return 0; }
inline void Trap(Loc loc = Loc::Here()) {
    ascsim::Fail(ascsim::CallSite("Trap", loc), "trap", "the kernel trapped");
}

// Workspace: `GetUserWorkspace` skips the system part; here the launch passes the user part only.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR) {}
inline void SetSysWorkspaceForce(GM_ADDR) {}
template <typename T>
void InitSocState(const T&) {}
inline void InitSocState() {}

// Hardware SyncAll; 310P only has the form with workspaces.
template <bool isAIVOnly = true, typename... None>
void SyncAll(Loc loc = Loc::Here()) {
#if defined(ASCSIM_SOC_310P)
    static_assert(ascsim::support::kNever<None...>,
                  "SyncAll without workspaces is not available on ascend310p (ascend910b has it); pass "
                  "gmWorkspace and ubWorkspace");
#endif
    ascsim::SyncAllBlocks("SyncAll", 0, isAIVOnly, loc);
}
// Software SyncAll: gmWorkspace holds 8 zeroed int32 per core, ubWorkspace as many.
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace,
             const int32_t usedCores = 0, Loc loc = Loc::Here()) {
    const uint32_t cores = usedCores ? uint32_t(usedCores) : ascsim::Core().block_num;
    ascsim::Op op = ascsim::CallSite("SyncAll", loc);
    if (ubWorkspace.GetSize() < cores * 8)
        ascsim::Report(ascsim::Severity::Error, op, "sync.workspace",
                       "ubWorkspace has %u int32, %u cores need %u", ubWorkspace.GetSize(), cores, cores * 8);
    if (ascsim::TilingBytes(gmWorkspace.Ptr()) < cores * 32u)
        ascsim::Fail(op, "sync.workspace", "gmWorkspace has %llu bytes, %u cores need %u",
                     (unsigned long long)ascsim::TilingBytes(gmWorkspace.Ptr()), cores, cores * 32u);
    ascsim::SyncAllBlocks("SyncAll", uint32_t(usedCores), isAIVOnly, loc);
}

// One core tells others that it is done: IBSet by `blockIdx` itself, IBWait by whoever needs it.
template <bool isAIVOnly = true>
void IBSet(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>&, int32_t blockIdx,
           int32_t eventID, Loc loc = Loc::Here()) {
    ascsim::RaiseSignal("IBSet", ascsim::SignalKey(gmWorkspace.Ptr(), blockIdx, eventID), loc);
}
template <bool isAIVOnly = true>
void IBWait(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>&, int32_t blockIdx,
            int32_t eventID, Loc loc = Loc::Here()) {
    char text[64];
    std::snprintf(text, sizeof text, "for block %d, event %d", blockIdx, eventID);
    ascsim::AwaitSignal("IBWait", ascsim::SignalKey(gmWorkspace.Ptr(), blockIdx, eventID), text, loc);
}

// Blocks one after the other, in block order, round after round.
inline void InitDetermineComputeWorkspace(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>&,
                                          Loc loc = Loc::Here()) {
    if (GetBlockIdx() == 0)
        ascsim::RaiseSignal("InitDetermineComputeWorkspace", ascsim::SignalKey(gm.Ptr(), 0, 0x7fff), loc);
}
inline void WaitPreBlock(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>&, Loc loc = Loc::Here()) {
    ascsim::AwaitSignal("WaitPreBlock", ascsim::SignalKey(gm.Ptr(), int32_t(GetBlockIdx()), 0x7fff),
                        "for the block before", loc);
}
inline void NotifyNextBlock(GlobalTensor<int32_t>& gm, LocalTensor<int32_t>&, Loc loc = Loc::Here()) {
    const int32_t next = int32_t((GetBlockIdx() + 1) % GetBlockNum());
    ascsim::RaiseSignal("NotifyNextBlock", ascsim::SignalKey(gm.Ptr(), next, 0x7fff), loc);
}

// Mode 0: all cores of one kind; 1: the vector cores of one AI Core; 2: cube core and vector cores of one AI
// Core. 310P has neither; CANN declares them there all the same, for code that is shared and never gets
// there.
template <uint8_t modeId, pipe_t pipe>
void CrossCoreSetFlag(uint16_t flagId, Loc loc = Loc::Here()) {
    ascsim::RequireSplitCores("CrossCoreSetFlag", loc);
    static_assert(modeId <= 2, "CrossCoreSetFlag: allowed modes 0, 1, 2 on ascend910b");
    static_assert(pipe != PIPE_S && pipe != PIPE_ALL,
                  "CrossCoreSetFlag: allowed PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX");
    ascsim::CrossCoreSet("CrossCoreSetFlag", modeId, ascsim::ToPipe(pipe), flagId, loc);
}
template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t flagId, Loc loc = Loc::Here()) {
    ascsim::RequireSplitCores("CrossCoreWaitFlag", loc);
    ascsim::CrossCoreWait("CrossCoreWaitFlag", flagId, loc);
}

template <typename T>
constexpr ascsim::AtomicType AtomicTypeOf() {
    using ascsim::AtomicType;
    if constexpr (std::is_same_v<T, float>)
        return AtomicType::F32;
    else if constexpr (std::is_same_v<T, half>)
        return AtomicType::F16;
    else if constexpr (std::is_same_v<T, int16_t>)
        return AtomicType::I16;
    else if constexpr (std::is_same_v<T, int32_t>)
        return AtomicType::I32;
    else if constexpr (std::is_same_v<T, bfloat16_t>)
        return AtomicType::BF16;
    else {
        static_assert(std::is_same_v<T, int8_t>,
                      "SetAtomic*: allowed float, half, bfloat16_t, int8_t, int16_t, int32_t");
        return AtomicType::I8;
    }
}
template <typename T>
void SetAtomicOp(ascsim::AtomicKind kind) {
    ascsim::Core().atomic = uint8_t(kind);
    ascsim::Core().atomic_type = uint8_t(AtomicTypeOf<T>());
}
template <typename T>
void SetAtomicAdd() {
    SetAtomicOp<T>(ascsim::AtomicKind::Add);
}
template <typename T>
void SetAtomicMax() {
    ascsim::support::SetAtomicMax<T>();
    SetAtomicOp<T>(ascsim::AtomicKind::Max);
}
template <typename T>
void SetAtomicMin() {
    ascsim::support::SetAtomicMin<T>();
    SetAtomicOp<T>(ascsim::AtomicKind::Min);
}
template <typename T>
void SetAtomicType() {
    ascsim::Core().atomic_type = uint8_t(AtomicTypeOf<T>());
}
inline void SetAtomicNone() { ascsim::Core().atomic = uint8_t(ascsim::AtomicKind::None); }
inline void DisableDmaAtomic() { SetAtomicNone(); }

enum class CacheLine : uint64_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
template <typename T, CacheLine entire, DcciDst dst = DcciDst::CACHELINE_ALL>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& t, Loc loc = Loc::Here()) {
    ascsim::CleanDataCache("DataCacheCleanAndInvalid", uint64_t(t.Ptr()),
                           entire == CacheLine::ENTIRE_DATA_CACHE ? 0 : 1, loc);
}
template <typename T, CacheLine entire, DcciDst dst = DcciDst::CACHELINE_ALL>
void DataCacheCleanAndInvalid(const LocalTensor<T>&, Loc = Loc::Here()) {}
template <typename T>
void DataCachePreload(const GlobalTensor<uint64_t>&, const T) {}
inline void ICachePreLoad(int64_t) {}
inline int64_t GetICachePreloadStatus() { return 0; }
template <typename... None>
int64_t GetSystemCycle() {
    ascsim::support::GetSystemCycle<None...>();
    return 0;
}

// Fills `size` elements of GM with `value`, through UB, and waits.
template <typename T>
void InitOutput(GlobalTensor<T> gm, uint32_t size, T value = T(0), Loc loc = Loc::Here()) {
    ascsim::PipeBarrierAll("InitOutput", loc);
    ascsim::Op op;
    op.name = "InitOutput";
    op.kind = ascsim::OpKind::Move;
    op.pipe = ascsim::Pipe::MTE3;
    op.loc = loc;
    op.work = {"UB2GM", 0, BytesOf<T>(size), 1, ascsim::Mem::UB, ascsim::Mem::GM};
    op.Add(ascsim::Operand(gm, true, "gmWorkspaceAddr", BytesOf<T>(size)));
    if (ascsim::Issue(op)) std::fill_n(gm.Ptr(), size, value);
    ascsim::PipeBarrierAll("InitOutput", loc);
}

}  // namespace AscendC
