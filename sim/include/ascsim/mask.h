// Vector mask registers. Docs: "SIMD计算说明/掩码", "掩码操作/SetVectorMask", "SetMaskCount", "SetMaskNorm",
// "ResetMask".
#pragma once
#include "ascsim/lane.h"
#include "ascsim/params.h"

namespace ascsim {

// The call a fault is reported against.
struct Site {
    const char* api;
    Loc loc;
};

inline void WarnAt(Site site, Severity severity, const char* rule, const char* format, auto... args) {
    const Op op = CallSite(site.api, site.loc, Pipe::V);
    Report(severity, op, rule, format, args...);
}

inline void PrefixBits(uint64_t n, uint64_t& low, uint64_t& high) {
    low = n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
    high = n <= 64 ? 0 : n >= 128 ? ~uint64_t{0} : (uint64_t{1} << (n - 64)) - 1;
}

inline void WriteMask(Site site, bool counter, uint64_t low, uint64_t high) {
    MaskState& m = Core().mask;
    if (m.set_by_kernel && (m.lo != low || m.hi != high)) {
        m.lost_to = site.api;
        m.lost_at = site.loc;
        m.set_by_kernel = false;
    }
    m.counter = counter;
    m.lo = low;
    m.hi = high;
}

// repeat is an 8-bit field of the instruction: larger values lose their upper bits.
inline uint32_t CheckRepeat(Site site, int64_t repeat) {
    if (repeat >= 0 && repeat <= kMaxRepeat) return static_cast<uint32_t>(repeat);
    WarnAt(site, Severity::Error, "param.repeat",
           "repeatTime: does not fit 8 bits: got %lld, the call runs %d; allowed 0..255",
           static_cast<long long>(repeat), static_cast<int>(repeat & 0xff));
    return static_cast<uint32_t>(repeat & 0xff);
}

inline Lanes FromRegister(Site site, uint32_t lanes, uint32_t repeat) {
    MaskState& m = Core().mask;
    if (m.lost_to) {
        WarnAt(site, Severity::Error, "param.mask_lost",
               "mask: the mask set by SetVectorMask was replaced by %s (%s:%u) before this call with "
               "isSetMask=false",
               m.lost_to, m.lost_at.file, m.lost_at.line);
        m.lost_to = nullptr;
    }
    return m.counter ? CountLanes(lanes, m.lo) : BitLanes(lanes, m.lo, m.hi, repeat);
}

// Continuous mask: the first `mask` lanes of each repeat, or an element total in counter mode.
template <bool isSetMask>
Lanes LanesOf(Site site, uint32_t lanes, uint64_t mask, int64_t repeat_given) {
    const uint32_t repeat = CheckRepeat(site, repeat_given);
    if constexpr (!isSetMask) return FromRegister(site, lanes, repeat);
    if (Core().mask.counter) {
        WriteMask(site, true, mask, 0);
        return CountLanes(lanes, mask);
    }
    if (mask > lanes) {
        WarnAt(site, Severity::Warning, "param.mask",
               "mask: above the lanes of a repeat, clamped: got %llu; allowed 0..%u",
               static_cast<unsigned long long>(mask), lanes);
        mask = lanes;
    }
    uint64_t low, high;
    PrefixBits(mask, low, high);
    WriteMask(site, false, low, high);
    return PrefixLanes(lanes, static_cast<uint32_t>(mask), repeat);
}

// Bit mask, lane i = bit i of {mask[1], mask[0]}.
template <bool isSetMask>
Lanes LanesOf(Site site, uint32_t lanes, const uint64_t* mask, int64_t repeat_given) {
    const uint32_t repeat = CheckRepeat(site, repeat_given);
    if constexpr (!isSetMask) return FromRegister(site, lanes, repeat);
    if (Core().mask.counter) {
        WriteMask(site, true, mask[0], 0);
        return CountLanes(lanes, mask[0]);
    }
    const uint64_t high = lanes > 64 ? mask[1] : 0;
    const uint64_t unused = lanes > 64 ? 0 : lanes == 64 ? mask[1] : mask[1] | (mask[0] >> lanes);
    if (unused) {
        WarnAt(site, Severity::Warning, "param.mask_bits",
               "mask: bits above lane %u are set and ignored: got 0x%llx", lanes,
               static_cast<unsigned long long>(unused));
    }
    WriteMask(site, false, mask[0], high);
    return BitLanes(lanes, mask[0], high, repeat);
}

// "First n elements" form: runs in counter mode and leaves normal mode with an all-ones mask behind.
template <bool isSetMask = true>
Lanes CountForm(Site site, uint32_t lanes, int64_t count) {
    if constexpr (!isSetMask) return FromRegister(site, lanes, 1);
    if (count < 0) {
        WarnAt(site, Severity::Error, "param.count", "count: negative: got %lld; allowed 0 and above",
               static_cast<long long>(count));
        count = 0;
    }
    WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
    return CountLanes(lanes, static_cast<uint64_t>(count));
}

}  // namespace ascsim

namespace AscendC {

template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow) {
    auto& m = ascsim::Core().mask;
    m.lo = maskLow;
    m.hi = maskHigh;
    m.set_by_kernel = true;
    m.lost_to = nullptr;
}
template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len) {
    uint64_t low = static_cast<uint64_t>(len), high = 0;
    if constexpr (mode == MaskMode::NORMAL) ascsim::PrefixBits(static_cast<uint64_t>(len), low, high);
    SetVectorMask<T, mode>(high, low);
}
inline void ResetMask() {
    auto& m = ascsim::Core().mask;
    m.lo = m.hi = ~uint64_t{0};
    m.set_by_kernel = false;
    m.lost_to = nullptr;
}
inline void SetMaskCount() { ascsim::Core().mask.counter = true; }
inline void SetMaskNorm() { ascsim::Core().mask.counter = false; }

}  // namespace AscendC
