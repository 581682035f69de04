// The tables an operator is declared with. parsed.h reads them.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "graph/types.h"

namespace hybrid_ops {

template <class T>
struct Table {
    const T* data = nullptr;
    size_t size = 0;
    constexpr Table() = default;
    template <size_t N>
    constexpr Table(const T (&rows)[N]) : data(rows), size(N) {}
    const T* begin() const { return data; }
    const T* end() const { return data + size; }
    const T& operator[](size_t i) const { return data[i]; }
};

enum class Need { kRequired, kOptional };
constexpr Need kRequired = Need::kRequired;
constexpr Need kOptional = Need::kOptional;

// One input or output. `dtypes`: one group per SoC in the order of Operator::socs, groups separated by '|';
// words in a group are parallel columns (column i of every argument is one legal combination). A single group
// serves every SoC, a single word every column. An output named like an input is that input, updated in
// place.
struct Arg {
    const char* name;
    Need need;
    const char* axes;
    const char* dtypes;
    const char* note;
};

enum class AttrType { kFloat, kInt, kBool, kString, kListInt, kListFloat };

struct Attr {
    const char* name;
    AttrType type;
    Need need;
    const char* fallback;  // as text; list items separated by ','
    const char* note;
};

struct LimitRule {
    const char* rule;   // over axes, int attributes, and inputs as 1 (given) or 0
    const char* wrong;  // what is wrong when it does not hold
};

struct Operator {
    const char* type;
    const char* summary;
    const char* socs;  // separated by blanks, as CANN spells them
    Table<Arg> inputs;
    Table<Arg> outputs;
    Table<Attr> attrs;
    Table<LimitRule> limits;
};

// PagedAttention -> paged_attention
inline std::string SnakeName(const char* type) {
    std::string name;
    for (const char* c = type; *c != '\0'; ++c) {
        const bool upper = *c >= 'A' && *c <= 'Z';
        if (upper && c != type) name += '_';
        name += upper ? static_cast<char>(*c - 'A' + 'a') : *c;
    }
    return name;
}

struct DtypeName {
    const char* name;
    ge::DataType type;
};
constexpr DtypeName kDtypes[] = {
    {"float16", ge::DT_FLOAT16}, {"bfloat16", ge::DT_BF16}, {"float32", ge::DT_FLOAT},
    {"int32", ge::DT_INT32},     {"int64", ge::DT_INT64},   {"int8", ge::DT_INT8},
    {"uint8", ge::DT_UINT8},     {"bool", ge::DT_BOOL},
};

inline ge::DataType DtypeOf(const std::string& name) {
    for (const DtypeName& entry : kDtypes) {
        if (name == entry.name) return entry.type;
    }
    return ge::DT_UNDEFINED;
}

inline std::string DtypeText(ge::DataType type) {
    for (const DtypeName& entry : kDtypes) {
        if (type == entry.type) return entry.name;
    }
    return "ge::DataType " + std::to_string(static_cast<int>(type));
}

}  // namespace hybrid_ops
