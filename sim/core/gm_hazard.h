// Reports about a range of one argument, shared by the order checks and the scalar cache.
#pragma once
#include <string>

#include "core/state.h"

namespace ascsim {

inline std::string OtherCore(uint32_t core) { return CoreName(*g_launch->blocks[core]); }

inline Hazard GmHazard(const Block& block, const Op& op, const Segment& s, const char* rule, uint64_t b,
                       uint64_t e) {
    Hazard h;
    h.rule = rule;
    h.site = {op.name, op.loc.file, op.loc.line};
    h.pipe = PipeName(op.pipe);
    h.tensor = s.name;
    h.begin = s.origin + b - s.begin;
    h.end = s.origin + e - s.begin;
    h.core = block.core.core_id;
    return h;
}

inline std::string Range(const Hazard& h) {
    return "'" + h.tensor + "' bytes [" + std::to_string(h.begin) + ", " + std::to_string(h.end) + ")";
}

}  // namespace ascsim
