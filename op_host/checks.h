// Checks of one call against its contract, in the order and wording of python/hybrid_ops/check.py.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/shape.h"
#include "limits.h"
#include "refusal.h"
#include "table.h"

namespace hybrid_ops {

// What is known of one input; an absent optional has present == false.
struct Given {
    bool present = false;
    std::vector<int64_t> shape;
    ge::DataType dtype = ge::DT_UNDEFINED;
    ge::Format format = ge::FORMAT_ND;
};

inline std::vector<int64_t> Dims(const gert::Shape& shape) {
    std::vector<int64_t> dims;
    for (size_t i = 0; i < shape.GetDimNum(); ++i) dims.push_back(shape.GetDim(i));
    return dims;
}

inline bool CheckPresent(const Operator& op, const std::vector<Given>& given, size_t soc, Fault* fault) {
    for (size_t i = 0; i < op.inputs.size; ++i) {
        const Arg& arg = op.inputs[i];
        if (arg.need == Need::kRequired && !given[i].present) {
            *fault = {arg.name, "required input is missing", "None",
                      Words(Columns(op, arg, soc)) + " " + RuleText(arg.axes), ""};
            return false;
        }
    }
    return true;
}

inline std::string ElsewhereText(const Operator& op, const Arg& arg, size_t soc, const std::string& dtype) {
    const std::vector<std::string> socs = Split(op.socs, ' ');
    std::vector<std::string> others;
    for (size_t other = 0; other < socs.size(); ++other) {
        if (other == soc) continue;
        for (const std::string& name : Columns(op, arg, other)) {
            if (name == dtype) others.push_back(socs[other]);
        }
    }
    return others.empty() ? "" : Words(others) + " also has " + dtype;
}

// `column` receives the first legal dtype combination.
inline bool CheckDtypes(const Operator& op, const std::vector<Given>& given, size_t soc, size_t* column,
                        Fault* fault) {
    std::vector<std::string> names;
    std::string got;
    std::vector<std::string> combinations(Columns(op, op.inputs[0], soc).size());
    std::vector<bool> legal(combinations.size(), true);
    for (size_t i = 0; i < op.inputs.size; ++i) {
        if (!given[i].present) continue;
        const Arg& arg = op.inputs[i];
        const std::vector<std::string> columns = Columns(op, arg, soc);
        const std::string dtype = DtypeText(given[i].dtype);
        bool known = false;
        for (size_t c = 0; c < columns.size(); ++c) {
            known = known || columns[c] == dtype;
            legal[c] = legal[c] && columns[c] == dtype;
            combinations[c] +=
                (combinations[c].empty() ? "" : " + ") + std::string(arg.name) + " " + columns[c];
        }
        if (!known) {
            *fault = {arg.name, "dtype not available", dtype, Words(columns),
                      ElsewhereText(op, arg, soc, dtype)};
            return false;
        }
        names.push_back(arg.name);
        got += (got.empty() ? "" : " + ") + std::string(arg.name) + " " + dtype;
    }
    for (size_t c = 0; c < legal.size(); ++c) {
        if (legal[c]) {
            *column = c;
            return true;
        }
    }
    std::string allowed;
    for (const std::string& text : combinations) allowed += (allowed.empty() ? "" : " | ") + text;
    *fault = {Words(names), "dtypes do not go together", got, allowed, ""};
    return false;
}

// Kernels address memory row by row. Formats that only name the axes of plain memory pass: frameworks label
// 3-D and 4-D tensors NCL or NCHW without meaning it.
inline bool CheckFormats(const Operator& op, const std::vector<Given>& given, Fault* fault) {
    constexpr ge::Format kPlain[] = {ge::FORMAT_ND,    ge::FORMAT_NCHW,  ge::FORMAT_NHWC, ge::FORMAT_HWCN,
                                     ge::FORMAT_NDHWC, ge::FORMAT_NCDHW, ge::FORMAT_NCL};
    for (size_t i = 0; i < op.inputs.size; ++i) {
        const int32_t format = ge::GetPrimaryFormat(given[i].format);
        bool plain = !given[i].present;
        for (ge::Format known : kPlain) plain = plain || format == known;
        if (plain) continue;
        const std::string name = format == ge::FORMAT_FRACTAL_NZ  ? "FRACTAL_NZ"
                                 : format == ge::FORMAT_NC1HWC0   ? "NC1HWC0"
                                 : format == ge::FORMAT_FRACTAL_Z ? "FRACTAL_Z"
                                                                  : "ge::Format " + std::to_string(format);
        *fault = {op.inputs[i].name, "format not available", name, "ND", ""};
        return false;
    }
    return true;
}

inline const char* HolderOf(const Operator& op, const std::string& axis) {
    for (const Arg& arg : op.inputs) {
        for (const std::string& rule : Split(arg.axes, '|')) {
            for (const std::string& word : Split(rule, ' ')) {
                if (word == axis) return arg.name;
            }
        }
    }
    return "axes";
}

inline bool CheckLimits(const Operator& op, const Axes& axes, Fault* fault) {
    for (const LimitRule& row : op.limits) {
        const Limit limit(row.rule, axes);
        if (limit.malformed()) {
            *fault = {"contract", "limit is malformed", row.rule, "a Python expression over axis letters",
                      ""};
            return false;
        }
        if (!limit.applies() || limit.holds()) continue;
        std::vector<std::string> sizes;
        for (const std::string& letter : limit.letters())
            sizes.push_back(letter + "=" + std::to_string(axes.Size(letter)));
        *fault = {HolderOf(op, limit.letters()[0]), row.wrong, Words(sizes), row.rule, ""};
        return false;
    }
    return true;
}

// Ranks, agreement of axes, limits. Unknown dimensions and ranks (-1, -2 of a dynamic graph) say nothing.
inline bool CheckShapes(const Operator& op, const std::vector<Given>& given, Axes* axes, Fault* fault) {
    for (size_t i = 0; i < op.inputs.size; ++i) {
        const bool unknown_rank = given[i].shape.size() == 1 && given[i].shape[0] == -2;
        if (!given[i].present || unknown_rank) continue;
        if (!axes->Bind(op.inputs[i].name, op.inputs[i].axes, given[i].shape, fault)) return false;
    }
    return CheckLimits(op, *axes, fault);
}

inline bool CheckAttrs(const Operator& op, const gert::RuntimeAttrs* attrs, Fault* fault) {
    for (size_t i = 0; i < op.attrs.size; ++i) {
        if (op.attrs[i].type != AttrType::kFloat) continue;
        const float* value = attrs == nullptr ? nullptr : attrs->GetFloat(i);
        if (value == nullptr) {
            *fault = {op.attrs[i].name, "required attribute is missing", "None", "float", ""};
            return false;
        }
        if (!std::isfinite(*value)) {
            const char* text = std::isnan(*value) ? "nan" : *value > 0 ? "inf" : "-inf";
            *fault = {op.attrs[i].name, "not finite", text, "a finite float", ""};
            return false;
        }
    }
    return true;
}

}  // namespace hybrid_ops
