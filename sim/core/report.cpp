#include "core/report.h"

#include <cstdarg>
#include <cstring>

#include "core/state.h"

namespace ascsim {

std::string CoreName(const Block& block) {
    const CoreState& c = block.core;
    const char* kind = c.kind == CoreKind::Cube ? "AIC " : c.kind == CoreKind::Vector ? "AIV " : "core ";
    return kind + std::to_string(c.block_idx);
}

void Reporter::Add(Hazard h) {
    if (h.severity == Severity::Error) ++errors_;
    // The buffers of one queue are one cause: "TQue<VECIN> buffer 1 (line 8)" counts with buffer 0.
    std::string cause = h.tensor;
    if (const auto at = cause.find(" buffer "); at != std::string::npos)
        cause.erase(
            at, cause.find(" (", at) == std::string::npos ? std::string::npos : cause.find(" (", at) - at);
    const Key key{h.rule, h.site.file, h.site.line, h.other.file, h.other.line, std::move(cause)};
    const auto [it, fresh] = index_.try_emplace(key, hazards_.size());
    if (fresh)
        hazards_.push_back(std::move(h));
    else
        ++hazards_[it->second].count;
}

void Reporter::Write(Json& out) const {
    constexpr const char* severities[] = {"note", "warning", "error"};
    out.Open('[');
    for (const Hazard& h : hazards_) {
        out.Open('{');
        out.Key("rule").Str(h.rule).Key("severity").Str(severities[int(h.severity)]);
        out.Key("kernel_file").Str(h.site.file).Key("line").Int(h.site.line).Key("api").Str(h.site.api);
        out.Key("tensor")
            .Str(h.tensor)
            .Key("bytes")
            .Open('[')
            .Int(int64_t(h.begin))
            .Int(int64_t(h.end))
            .Close(']');
        out.Key("core").Int(h.core).Key("pipe").Str(h.pipe).Key("other");
        if (h.has_other) {
            out.Open('{').Key("api").Str(h.other.api).Key("file").Str(h.other.file);
            out.Key("line").Int(h.other.line).Key("pipe").Str(h.other_pipe).Close('}');
        } else {
            out.Null();
        }
        out.Key("count").Int(int64_t(h.count)).Key("message").Str(h.message).Close('}');
    }
    out.Close(']');
}

namespace {

std::string Format(const char* format, va_list args) {
    va_list copy;
    va_copy(copy, args);
    const int n = std::vsnprintf(nullptr, 0, format, copy);
    va_end(copy);
    std::string text(n > 0 ? n : 0, '\0');
    std::vsnprintf(text.data(), text.size() + 1, format, args);
    return text;
}

// The operand that a message begins with ("dst: …"), else the first.
const Access& Named(const Op& op, const std::string& text) {
    for (uint8_t i = 0; i < op.accesses; ++i) {
        const size_t n = std::strlen(op.access[i].operand);
        if (n && text.compare(0, n, op.access[i].operand) == 0 && (text[n] == ':' || text[n] == ' '))
            return op.access[i];
    }
    return op.access[0];
}

Hazard Basic(Severity severity, const Op& op, const char* rule, std::string text) {
    Hazard h;
    h.rule = rule;
    h.severity = severity;
    h.site = {op.name, op.loc.file, op.loc.line};
    h.pipe = PipeName(op.pipe);
    h.core = g_block ? g_block->core.core_id : 0;
    h.message = std::string(op.name) + ": " + text;
    if (op.accesses) {
        const Access& a = Named(op, h.message.substr(std::strlen(op.name) + 2));
        h.tensor = a.mem == Mem::GM ? g_launch->gm.Name(a.base) : LocalName(*g_block, a.mem, a.base);
        const Segment* s = a.mem == Mem::GM ? g_launch->gm.Find(a.base) : nullptr;
        const Allocation* home = a.mem == Mem::GM ? nullptr : FindAllocation(*g_block, a.mem, a.base);
        h.begin = a.base - (s ? s->begin : home ? home->begin : 0);  // of an argument or of a buffer
        h.end = h.begin + a.block_bytes;
    }
    return h;
}

}  // namespace

void Report(Severity severity, const Op& op, const char* rule, const char* format, ...) {
    va_list args;
    va_start(args, format);
    g_launch->reporter.Add(Basic(severity, op, rule, Format(format, args)));
    va_end(args);
}

void Fail(const Op& op, const char* rule, const char* format, ...) {
    va_list args;
    va_start(args, format);
    Hazard h = Basic(Severity::Error, op, rule, Format(format, args));
    va_end(args);
    if (g_launch->error.empty()) {
        g_launch->error = std::string(op.loc.file) + ":" + std::to_string(op.loc.line) + ": " +
                          (g_block ? CoreName(*g_block) + ": " : "") + h.message;
    }
    g_launch->reporter.Add(std::move(h));
    g_launch->stopped = true;
    throw KernelStop{};
}

}  // namespace ascsim
