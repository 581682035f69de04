// printf, assert, DumpTensor: into the prints of the launch while a kernel runs, plain stdio outside of one
// (.asc files hold host code too).
#pragma once
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ascsim/bf16.h"
#include "ascsim/half.h"
#include "ascsim/tensor.h"
#include "core/frame.h"

namespace ascsim {

// Variadic arguments must be plain: 16-bit floats and element references are widened.
template <typename T>
auto Plain(const T& v) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>)
        return double(static_cast<float>(v));
    else if constexpr (std::is_enum_v<T>)
        return static_cast<std::underlying_type_t<T>>(v);
    else if constexpr (std::is_array_v<T>)
        return static_cast<const std::remove_extent_t<T>*>(v);
    else
        return v;
}

template <typename... Args>
int KernelPrintf(const char* format, const Args&... args) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (!g_core) return std::printf(format, Plain(args)...);
    const int n = std::snprintf(nullptr, 0, format, Plain(args)...);
    std::string text(n > 0 ? n : 0, '\0');
    std::snprintf(text.data(), text.size() + 1, format, Plain(args)...);
#pragma GCC diagnostic pop
    while (!text.empty() && text.back() == '\n') text.pop_back();
    Print(text.c_str());
    return n;
}

template <typename... Args>
void AssertFailed(Loc loc, const char* expression, const char* format = "", const Args&... args) {
    char text[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    std::snprintf(text, sizeof text, format, Plain(args)...);
#pragma GCC diagnostic pop
    if (!g_core) {
        std::fprintf(stderr, "%s:%u: assertion failed: %s %s\n", loc.file, loc.line, expression, text);
        std::abort();
    }
    Fail(CallSite("assert", loc), "assert", "%s is false %s", expression, text);
}

// "desc=7 half[2 x 4]: 1 2 3 4 | …"; no footprint: a dump is no instruction of the kernel.
template <typename T>
void DumpValues(const char* where, const T* data, uint32_t desc, uint32_t count,
                const AscendC::ShapeInfo& shape) {
    std::string text = std::string("DumpTensor ") + where + " desc=" + std::to_string(desc) +
                       " count=" + std::to_string(count) + ":";
    const uint32_t row = shape.shapeDim > 1 ? shape.shape[shape.shapeDim - 1] : 0;
    for (uint32_t i = 0; i < count; ++i) {
        if (row && i && i % row == 0) text += " |";
        char value[32];
        if constexpr (std::is_integral_v<T>)
            std::snprintf(value, sizeof value, " %lld", static_cast<long long>(data[i]));
        else
            std::snprintf(value, sizeof value, " %.6g", double(static_cast<float>(data[i])));
        text += value;
    }
    Print(text.c_str());
}

}  // namespace ascsim

namespace AscendC {

template <class... Args>
void PRINTF(const char* format, Args&&... args) {
    ascsim::KernelPrintf(format, args...);
}

template <typename T>
void DumpTensor(const LocalTensor<T>& t, uint32_t desc, uint32_t count, const ShapeInfo& shape = {},
                Loc loc = Loc::Here()) {
    if (t.offset() + BytesOf<T>(count) > ascsim::Core().local_bytes[int(t.mem())])
        ascsim::Fail(ascsim::CallSite("DumpTensor", loc), "bounds.memory", "%u elements leave %s", count,
                     ascsim::MemName(t.mem()));
    ascsim::DumpValues(ascsim::MemName(t.mem()), t.Ptr(), desc, count, shape);
}
template <typename T>
void DumpTensor(const GlobalTensor<T>& t, uint32_t desc, uint32_t count, const ShapeInfo& shape = {},
                Loc loc = Loc::Here()) {
    if (ascsim::TilingBytes(t.Ptr()) < BytesOf<T>(count))
        ascsim::Fail(ascsim::CallSite("DumpTensor", loc), "bounds.gm", "%u elements leave the tensor", count);
    ascsim::DumpValues("GM", t.Ptr(), desc, count, shape);
}
template <typename Tensor>
void DumpAccChkPoint(const Tensor& t, uint32_t index, uint32_t offset, uint32_t count,
                     Loc loc = Loc::Here()) {
    DumpTensor(t[offset], index, count, ShapeInfo{}, loc);
}

}  // namespace AscendC

// One function under every name a kernel may reach it by, so that qualified and unqualified calls agree.
template <typename... Args>
int ascsim_printf(const char* format, const Args&... args) {
    return ascsim::KernelPrintf(format, args...);
}
namespace AscendC {
using ::ascsim_printf;
}
namespace std {
using ::ascsim_printf;
}
#define printf(...) ascsim_printf(__VA_ARGS__)

#undef assert
#define ASCSIM_ASSERT(expression, ...) \
    ((expression) ? (void)0            \
                  : ::ascsim::AssertFailed(::ascsim::Loc::Here(), #expression __VA_OPT__(, ) __VA_ARGS__))
#define assert(...) ASCSIM_ASSERT(__VA_ARGS__)
#define ascendc_assert(...) ASCSIM_ASSERT(__VA_ARGS__)
#define ASSERT(...) ASCSIM_ASSERT(__VA_ARGS__)
#define ASCENDC_ASSERT(cond, behavior)                            \
    do {                                                          \
        if (!(cond)) {                                            \
            behavior;                                             \
            ::ascsim::AssertFailed(::ascsim::Loc::Here(), #cond); \
        }                                                         \
    } while (0)
#define ASCENDC_DEBUG_ASSERT(cond, ...) ASCSIM_ASSERT(cond, __VA_ARGS__)
#define KERNEL_LOG(level, ...) ::ascsim::KernelPrintf(#level ": " __VA_ARGS__)
