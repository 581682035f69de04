// Words a failed launch as check.hazards does in Python.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "mindspore_call.h"
#include "mindspore_json.h"

namespace hybrid_ops {

inline int Rank(const Json& hazard) {
    const std::string& severity = hazard["severity"].text;
    return severity == "error" ? 0 : severity == "warning" ? 1 : severity == "note" ? 2 : 3;
}

inline std::string DescribeHazard(const Json& hazard) {
    const std::string& tensor = hazard["tensor"].text;
    std::string what = hazard["message"].text;
    if (what.empty() || hazard["message"].IsNull()) what = hazard["api"].text + " breaks the rule";
    const std::vector<Json>& bytes = hazard["bytes"].items;
    if (bytes.size() == 2 && !tensor.empty() && !hazard["tensor"].IsNull()) {
        const std::string range = "[" + bytes[0].text + ", " + bytes[1].text + ")";
        if (what.find(range) == std::string::npos) what += ": tensor " + tensor + " bytes " + range;
    }
    if (hazard["count"].Unsigned() > 1) what += ", " + hazard["count"].text + " times";
    return hazard["kernel_file"].text + ":" + hazard["line"].text + ": " + hazard["rule"].text + ": " + what;
}

inline std::string Describe(const Operator& op, const Chip& chip, const Json& report) {
    constexpr size_t kShown = 5;
    std::string text = std::string(op.name) + ": kernel: ";
    text += report["error"].IsNull() ? "breaks rules of the hardware" : report["error"].text;
    std::vector<Json> hazards = report["hazards"].items;
    std::stable_sort(hazards.begin(), hazards.end(),
                     [](const Json& a, const Json& b) { return Rank(a) < Rank(b); });
    for (size_t i = 0; i < std::min(kShown, hazards.size()); ++i) text += "\n  " + DescribeHazard(hazards[i]);
    if (hazards.size() > kShown) text += "\n  and " + std::to_string(hazards.size() - kShown) + " more";
    return text + " (on " + chip.family + ")";
}

}  // namespace hybrid_ops
