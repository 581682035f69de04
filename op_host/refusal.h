// The one place in C++ that gives an error its form: `op: argument: what is wrong: got …; allowed … on <soc>`
// (+ hint). python/hybrid_ops/check.py has the other; tests/test_host.py compares the two for the same
// faults.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "graph/ge_error_codes.h"

// CANN's log. Weak: libraries of a custom package are also loaded by tools that do not bring it.
extern "C" __attribute__((weak)) void DlogRecord(int32_t module, int32_t level, const char* format, ...);

namespace hybrid_ops {

struct Fault {
    std::string argument;
    std::string wrong;
    std::string got;
    std::string allowed;
    std::string hint;
};

// `soc` empty: the stage (shape inference) does not know the chip.
inline std::string RefusalText(const std::string& op, const Fault& fault, const std::string& soc) {
    std::string text = op + ": " + fault.argument + ": " + fault.wrong + ": got " + fault.got + "; allowed " +
                       fault.allowed + " on " + (soc.empty() ? "every SoC" : soc);
    if (!fault.hint.empty()) text += " (" + fault.hint + ")";
    return text;
}

namespace detail {

// The host simulator's contexts take the text; CANN's have no such call and the text goes to the log.
template <class Context>
auto Deliver(Context* context, const std::string& text, int) -> decltype(context->ReportError(text.c_str())) {
    context->ReportError(text.c_str());
}

template <class Context>
void Deliver(Context*, const std::string& text, long) {
    constexpr int32_t kModuleOp = 63;  // toolchain/log_types.h: OP
    constexpr int32_t kLevelError = 3;
    if (DlogRecord != nullptr) {
        DlogRecord(kModuleOp, kLevelError, "[hybrid_ops] %s", text.c_str());
    } else {
        std::fprintf(stderr, "%s\n", text.c_str());
    }
}

}  // namespace detail

// Reports the fault and returns what the calling stage must return.
template <class Context>
ge::graphStatus Refuse(Context* context, const std::string& op, const Fault& fault, const std::string& soc) {
    detail::Deliver(context, RefusalText(op, fault, soc), 0);
    return ge::GRAPH_FAILED;
}

// Alternatives as text: without repetition, "nothing" when empty.
inline std::string Words(const std::vector<std::string>& words) {
    std::string text;
    for (size_t i = 0; i < words.size(); ++i) {
        bool seen = false;
        for (size_t j = 0; j < i; ++j) seen = seen || words[j] == words[i];
        if (!seen) text += (text.empty() ? "" : ", ") + words[i];
    }
    return text.empty() ? "nothing" : text;
}

inline std::string ShapeText(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

}  // namespace hybrid_ops
