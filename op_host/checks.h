// Checks of one call against its contract, in the order and wording of python/hybrid_ops/check.py.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/shape.h"
#include "parsed.h"
#include "refusal.h"

namespace hybrid_ops {

// What is known of one input; an absent optional has present == false.
struct Given {
    bool present = false;
    std::vector<int64_t> shape;
    ge::DataType dtype = ge::DT_UNDEFINED;
    ge::Format format = ge::FORMAT_ND;
};

inline std::vector<int64_t> Dims(const gert::Shape& shape) {
    std::vector<int64_t> dims(shape.GetDimNum());
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = shape.GetDim(i);
    return dims;
}

inline bool CheckPresent(const Contract& contract, const std::vector<Given>& given, size_t soc,
                         Fault* fault) {
    for (size_t i = 0; i < given.size(); ++i) {
        const ParsedArg& arg = contract.inputs[i];
        if (!arg.required || given[i].present) continue;
        *fault = {arg.name, "required input is missing", "None",
                  Words(arg.dtypes[soc]) + " " + RuleText(arg.rules), ""};
        return false;
    }
    return true;
}

namespace detail {

inline std::string Elsewhere(const Contract& contract, const ParsedArg& arg, size_t soc, ge::DataType type) {
    std::vector<std::string> others;
    for (size_t other = 0; other < contract.socs.size(); ++other) {
        if (other == soc) continue;
        for (ge::DataType known : arg.types[other]) {
            if (known == type) others.push_back(contract.socs[other]);
        }
    }
    return others.empty() ? "" : Words(others) + " also has " + DtypeText(type);
}

inline Fault CombinationFault(const Contract& contract, const std::vector<Given>& given, size_t soc) {
    std::vector<std::string> names;
    std::string got;
    std::vector<std::string> combinations(contract.inputs[0].types[soc].size());
    for (size_t i = 0; i < given.size(); ++i) {
        if (!given[i].present) continue;
        const ParsedArg& arg = contract.inputs[i];
        const std::string label = (names.empty() ? "" : " + ") + std::string(arg.name) + " ";
        for (size_t c = 0; c < combinations.size(); ++c) combinations[c] += label + arg.dtypes[soc][c];
        got += label + DtypeText(given[i].dtype);
        names.push_back(arg.name);
    }
    std::string allowed;
    for (const std::string& text : combinations) allowed += (allowed.empty() ? "" : " | ") + text;
    return {Words(names), "dtypes do not go together", got, allowed, ""};
}

// What the note says an input is and is not ("lengths, not offsets"), for a shape that tells of the mistake.
inline std::string Contrast(const char* note) {
    const std::string text = note == nullptr ? "" : note, clause = text.substr(0, text.find(';'));
    return clause.find(", not ") == std::string::npos ? "" : clause;
}

}  // namespace detail

inline bool CheckDtypes(const Contract& contract, const std::vector<Given>& given, size_t soc, Fault* fault) {
    std::vector<bool> legal(contract.inputs[0].types[soc].size(), true);
    for (size_t i = 0; i < given.size(); ++i) {
        if (!given[i].present) continue;
        const ParsedArg& arg = contract.inputs[i];
        const ge::DataType type = given[i].dtype;
        bool known = false;
        for (size_t c = 0; c < legal.size(); ++c) {
            known = known || arg.types[soc][c] == type;
            legal[c] = legal[c] && arg.types[soc][c] == type;
        }
        if (!known) {
            *fault = {arg.name, "dtype not available", DtypeText(type), Words(arg.dtypes[soc]),
                      detail::Elsewhere(contract, arg, soc, type)};
            return false;
        }
    }
    for (bool combination : legal) {
        if (combination) return true;
    }
    *fault = detail::CombinationFault(contract, given, soc);
    return false;
}

// Kernels address memory row by row. Formats that only name the axes of plain memory pass: frameworks label
// 3-D and 4-D tensors NCL or NCHW without meaning it.
inline bool CheckFormats(const Contract& contract, const std::vector<Given>& given, Fault* fault) {
    constexpr ge::Format kPlain[] = {ge::FORMAT_ND,    ge::FORMAT_NCHW,  ge::FORMAT_NHWC, ge::FORMAT_HWCN,
                                     ge::FORMAT_NDHWC, ge::FORMAT_NCDHW, ge::FORMAT_NCL};
    for (size_t i = 0; i < given.size(); ++i) {
        const int32_t format = ge::GetPrimaryFormat(given[i].format);
        bool plain = !given[i].present;
        for (ge::Format known : kPlain) plain = plain || format == known;
        if (plain) continue;
        const std::string name = format == ge::FORMAT_FRACTAL_NZ  ? "FRACTAL_NZ"
                                 : format == ge::FORMAT_NC1HWC0   ? "NC1HWC0"
                                 : format == ge::FORMAT_FRACTAL_Z ? "FRACTAL_Z"
                                                                  : "ge::Format " + std::to_string(format);
        *fault = {contract.inputs[i].name, "format not available", name, "ND", ""};
        return false;
    }
    return true;
}

// First input whose rules name the axis; else the name is an attribute's or an input's own.
inline const char* HolderOf(const Contract& contract, const std::string& axis) {
    for (const ParsedArg& arg : contract.inputs) {
        for (const Rule& rule : arg.rules) {
            for (const Word& word : rule) {
                if (word.axis == axis) return arg.name;
            }
        }
    }
    for (const ParsedArg& arg : contract.inputs) {
        if (arg.name == axis) return arg.name;
    }
    for (const Attr& attr : contract.op->attrs) {
        if (attr.name == axis) return attr.name;
    }
    return "contract";
}

inline bool CheckLimits(const Contract& contract, const Axes& axes, Fault* fault) {
    for (const Limit& limit : contract.limits) {
        if (limit.malformed()) {
            *fault = {"contract", "limit is malformed", limit.rule(), "a Python expression over axis letters",
                      ""};
            return false;
        }
        if (!limit.Applies(axes) || limit.Holds(axes)) continue;
        std::vector<std::string> sizes;
        for (const std::string& letter : limit.letters()) {
            sizes.push_back(letter + "=" + std::to_string(axes.Size(letter)));
        }
        *fault = {HolderOf(contract, limit.letters()[0]), limit.wrong(), Words(sizes), limit.rule(), ""};
        return false;
    }
    return true;
}

// Whole-number attributes, for limits to name.
inline void BindAttrs(const Contract& contract, const gert::RuntimeAttrs* attrs, Axes* axes) {
    const Table<Attr>& table = contract.op->attrs;
    for (size_t i = 0; attrs != nullptr && i < table.size; ++i) {
        const int64_t* value = table[i].type == AttrType::kInt ? attrs->GetInt(i) : nullptr;
        if (value != nullptr) axes->Set(table[i].name, *value);
    }
}

// Ranks, agreement of axes, limits. Unknown dimensions and ranks (-1, -2 of a dynamic graph) say nothing.
inline bool CheckShapes(const Contract& contract, const std::vector<Given>& given, Axes* axes, Fault* fault) {
    for (size_t i = 0; i < given.size(); ++i) {
        const bool unknown_rank = given[i].shape.size() == 1 && given[i].shape[0] == -2;
        if (!given[i].present || unknown_rank) continue;
        if (axes->Bind(contract.inputs[i].name, contract.inputs[i].rules, given[i].shape, fault)) continue;
        fault->hint = detail::Contrast(contract.op->inputs[i].note);
        return false;
    }
    for (size_t i = 0; i < given.size(); ++i) axes->Set(contract.inputs[i].name, given[i].present ? 1 : 0);
    return CheckLimits(contract, *axes, fault);
}

inline bool CheckAttrs(const Contract& contract, const gert::RuntimeAttrs* attrs, Fault* fault) {
    const Table<Attr>& table = contract.op->attrs;
    for (size_t i = 0; i < table.size; ++i) {
        if (table[i].type != AttrType::kFloat) continue;
        const float* value = attrs == nullptr ? nullptr : attrs->GetFloat(i);
        if (value == nullptr) {
            *fault = {table[i].name, "required attribute is missing", "None", "float", ""};
            return false;
        }
        if (!std::isfinite(*value)) {
            const char* text = std::isnan(*value) ? "nan" : *value > 0 ? "inf" : "-inf";
            *fault = {table[i].name, "not finite", text, "a finite float", ""};
            return false;
        }
    }
    return true;
}

}  // namespace hybrid_ops
