// Names of dtypes and formats as Python and contract.json spell them.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "graph/types.h"

namespace hostsim {

constexpr std::pair<std::string_view, ge::DataType> kDtypeNames[] = {
    {"float16", ge::DT_FLOAT16}, {"bfloat16", ge::DT_BF16}, {"float32", ge::DT_FLOAT},
    {"float64", ge::DT_DOUBLE},  {"int8", ge::DT_INT8},     {"int16", ge::DT_INT16},
    {"int32", ge::DT_INT32},     {"int64", ge::DT_INT64},   {"uint8", ge::DT_UINT8},
    {"uint16", ge::DT_UINT16},   {"uint32", ge::DT_UINT32}, {"uint64", ge::DT_UINT64},
    {"bool", ge::DT_BOOL},       {"int4", ge::DT_INT4},     {"complex64", ge::DT_COMPLEX64},
};

constexpr std::pair<std::string_view, ge::Format> kFormatNames[] = {
    {"ND", ge::FORMAT_ND},           {"NCHW", ge::FORMAT_NCHW},
    {"NHWC", ge::FORMAT_NHWC},       {"NCL", ge::FORMAT_NCL},
    {"NCDHW", ge::FORMAT_NCDHW},     {"NDHWC", ge::FORMAT_NDHWC},
    {"HWCN", ge::FORMAT_HWCN},       {"FRACTAL_NZ", ge::FORMAT_FRACTAL_NZ},
    {"NC1HWC0", ge::FORMAT_NC1HWC0}, {"FRACTAL_Z", ge::FORMAT_FRACTAL_Z},
};

inline std::string DtypeName(ge::DataType type) {
    for (const auto& [name, value] : kDtypeNames) {
        if (value == type) return std::string(name);
    }
    return "undefined";
}

inline ge::DataType DtypeFrom(std::string_view name) {
    for (const auto& [known, value] : kDtypeNames) {
        if (known == name) return value;
    }
    return ge::DT_UNDEFINED;
}

inline std::string FormatName(ge::Format format) {
    for (const auto& [name, value] : kFormatNames) {
        if (value == format) return std::string(name);
    }
    return "undefined";
}

inline ge::Format FormatFrom(std::string_view name) {
    for (const auto& [known, value] : kFormatNames) {
        if (known == name) return value;
    }
    return ge::FORMAT_END;
}

}  // namespace hostsim
