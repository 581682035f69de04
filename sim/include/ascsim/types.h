// Qualifiers, positions, events and small enums, spelled as CANN's headers spell them.
#pragma once
#include <cstdint>
#include <type_traits>

#include "core/engine.h"

#define __aicore__
#define __global__
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __vector__
#define __cube__
#define __mix__(...)
#define __forceinline__
#define __inout_pipe__(...)
#define __in_pipe__(...)
#define __out_pipe__(...)
#define __sync_alias__
#define __sync_noalias__
#define __check_sync_alias__
#define __WORKGROUP_LOCAL__

using GM_ADDR = uint8_t*;

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

namespace AscendC {

struct int4b_t {
    uint8_t storage;
};

enum class TPosition : uint8_t {
    GM,
    A1,
    A2,
    B1,
    B2,
    C1,
    C2,
    CO1,
    CO2,
    VECIN,
    VECOUT,
    VECCALC,
    LCM = VECCALC,
    SPM,
    SHM = SPM,
    TSCM,
    C2PIPE2GM,
    C2PIPE2LOCAL,
    MAX,
};
using QuePosition = TPosition;
enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };

enum class HardEvent : uint8_t {
    MTE2_MTE1,
    MTE1_MTE2,
    MTE1_M,
    M_MTE1,
    MTE2_V,
    V_MTE2,
    MTE3_V,
    V_MTE3,
    M_V,
    V_M,
    V_V,
    MTE3_MTE1,
    MTE1_MTE3,
    MTE1_V,
    MTE2_M,
    M_MTE2,
    V_MTE1,
    M_FIX,
    FIX_M,
    MTE3_MTE2,
    MTE2_MTE3,
    S_V,
    V_S,
    S_MTE2,
    MTE2_S,
    S_MTE3,
    MTE3_S,
    MTE2_FIX,
    FIX_MTE2,
    FIX_S,
    M_S,
    FIX_MTE3,
    MTE1_FIX,
    FIX_MTE1,
    FIX_FIX,
    MAX,
};

// TPosition -> physical memory; the two SoCs differ (CO2, C1, C2, SPM).
constexpr ascsim::Mem MemOf(TPosition p) {
    using ascsim::Mem;
    switch (p) {
        case TPosition::GM:
            return Mem::GM;
        case TPosition::A1:
        case TPosition::B1:
        case TPosition::TSCM:
            return Mem::L1;
        case TPosition::A2:
            return Mem::L0A;
        case TPosition::B2:
            return Mem::L0B;
        case TPosition::CO1:
            return Mem::L0C;
#if defined(ASCSIM_SOC_310P)
        case TPosition::SPM:
            return Mem::L1;
        case TPosition::C2:
            return Mem::L0C;
        case TPosition::C1:
        case TPosition::CO2:
            return Mem::UB;
#else
        case TPosition::C1:
            return Mem::L1;
        case TPosition::C2:
            return Mem::BT;
        case TPosition::CO2:
            return Mem::GM;
        case TPosition::C2PIPE2GM:
            return Mem::FB;
#endif
        default:
            return Mem::UB;
    }
}

constexpr const char* PositionName(TPosition p) {
    constexpr const char* names[] = {"GM",  "A1",   "A2",        "B1",          "B2",     "C1",
                                     "C2",  "CO1",  "CO2",       "VECIN",       "VECOUT", "VECCALC",
                                     "SPM", "TSCM", "C2PIPE2GM", "C2PIPE2LOCAL"};
    return p < TPosition::MAX ? names[int(p)] : "?";
}

struct EventPipes {
    ascsim::Pipe from, to;
};
constexpr EventPipes PipesOf(HardEvent e) {
    using enum ascsim::Pipe;
    constexpr EventPipes table[] = {
        {MTE2, MTE1}, {MTE1, MTE2}, {MTE1, M}, {M, MTE1},   {MTE2, V},    {V, MTE2},    {MTE3, V},
        {V, MTE3},    {M, V},       {V, M},    {V, V},      {MTE3, MTE1}, {MTE1, MTE3}, {MTE1, V},
        {MTE2, M},    {M, MTE2},    {V, MTE1}, {M, FIX},    {FIX, M},     {MTE3, MTE2}, {MTE2, MTE3},
        {S, V},       {V, S},       {S, MTE2}, {MTE2, S},   {S, MTE3},    {MTE3, S},    {MTE2, FIX},
        {FIX, MTE2},  {FIX, S},     {M, S},    {FIX, MTE3}, {MTE1, FIX},  {FIX, MTE1},  {FIX, FIX}};
    return table[int(e)];
}

// Bytes of n elements; int4b_t packs two per byte.
template <typename T>
constexpr uint64_t BytesOf(uint64_t n) {
    if constexpr (std::is_same_v<T, int4b_t>)
        return n / 2;
    else
        return n * sizeof(T);
}

using TBufHandle = uint8_t*;
using TEventID = int8_t;
using TTagType = int32_t;

// Local address as kernels may see it: `bufferAddr` is a byte offset in the memory of `logicPos`.
struct TBuffAddr {
    uint32_t dataLen = 0;
    uint32_t bufferAddr = 0;
    TBufHandle bufferHandle = nullptr;
    uint8_t logicPos = uint8_t(TPosition::VECCALC);
};

}  // namespace AscendC
