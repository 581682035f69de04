// What MindSpore passes to an ahead-of-time compiled custom operator, and how an operator describes itself.
// Compile with -D_GLIBCXX_USE_CXX11_ABI=0: MindSpore passes std::string by value.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "host/abi.h"

// What MindSpore passes as `extra`. The order of the virtual functions is the interface.
class AotExtra {
 public:
    virtual ~AotExtra() = default;
    virtual bool HasAttr(std::string name) = 0;
    virtual bool GetAttrBool(std::string name) = 0;
    virtual int64_t GetAttrInt(std::string name) = 0;
    virtual float GetAttrFloat(std::string name) = 0;
    virtual std::string GetAttrStr(std::string name) = 0;
    virtual std::vector<int64_t> GetAttrIntVec(std::string name) = 0;
    virtual std::vector<float> GetAttrFloatVec(std::string name) = 0;
};

namespace hybrid_ops {

struct AttrRule {
    const char* name;
    char kind;  // f float, i int, b bool, s string, I list of int, F list of float
};

struct OutputRule {
    const char* name;
    int in_place;  // index of the input that the kernel overwrites, -1: none
};

struct Cores {  // of one AI Core; no cube core: the kernel runs on cores of one kind
    uint32_t cubes, vectors;
};

struct Column {  // one legal combination of dtypes, and the libraries of its kernel
    const char* family;
    std::vector<const char*> dtypes;  // of the inputs
    const char* kernel;
    const char* cube;  // the same kernel compiled for cube cores, where it has mixed variants
    Cores usual;
    std::vector<std::pair<uint64_t, Cores>> by_key;  // variants whose cores differ from the usual ones

    const Cores& OfKey(uint64_t key) const {
        for (const auto& variant : by_key) {
            if (variant.first == key) return variant.second;
        }
        return usual;
    }
};

struct Chip {
    const char* name;  // lower case, without "ascend"
    const char* family;
    const char* figures;  // for the simulator core
    const char* tiling;   // for the tiling function
};

struct Operator {
    const char* name;
    const char* type;
    std::vector<const char*> inputs;
    std::vector<OutputRule> outputs;
    std::vector<AttrRule> attrs;
    std::vector<Column> columns;
    std::vector<Chip> chips;
    std::vector<std::pair<const char*, const char*>> default_chip;  // dtype of the first input -> chip
    const char* core;
    const char* host;
};

struct Call {  // what MindSpore passed
    int nparam;
    void** params;
    int* ndims;
    int64_t** shapes;
    const char** dtypes;
    AotExtra* extra;

    bool Absent(size_t i) const { return std::strcmp(dtypes[i], "none") == 0; }
    uint64_t Bytes(size_t i) const;
};

inline uint64_t ItemSize(const std::string& dtype) {
    if (dtype == "float16" || dtype == "bfloat16" || dtype == "int16" || dtype == "uint16") return 2;
    if (dtype == "float32" || dtype == "int32" || dtype == "uint32") return 4;
    if (dtype == "float64" || dtype == "int64" || dtype == "uint64") return 8;
    return 1;
}

inline uint64_t Call::Bytes(size_t i) const {
    uint64_t count = ItemSize(dtypes[i]);
    for (int d = 0; d < ndims[i]; ++d) count *= static_cast<uint64_t>(shapes[i][d]);
    return count;
}

inline std::string Lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

class AttrValues {  // attributes in the form of the host library
 public:
    AttrValues(const Operator& op, AotExtra* extra) {
        values_.reserve(op.attrs.size());  // `list` keeps pointers into the members
        for (const AttrRule& rule : op.attrs) {
            if (!extra->HasAttr(rule.name)) continue;
            values_.emplace_back();
            Read(rule, extra, &values_.back());
        }
        for (Value& value : values_) list.push_back(value.plain);
    }
    std::vector<HostopsAttr> list;

 private:
    struct Value {
        HostopsAttr plain{};
        std::string text;
        std::vector<int64_t> ints;
        std::vector<double> floats;
    };

    static void Read(const AttrRule& rule, AotExtra* extra, Value* value) {
        HostopsAttr& plain = value->plain;
        plain.name = rule.name;
        if (rule.kind == 'f') plain.float_value = extra->GetAttrFloat(rule.name);
        if (rule.kind == 'i') plain.int_value = extra->GetAttrInt(rule.name);
        if (rule.kind == 'b') plain.int_value = extra->GetAttrBool(rule.name);
        if (rule.kind == 's') value->text = extra->GetAttrStr(rule.name);
        if (rule.kind == 'I') value->ints = extra->GetAttrIntVec(rule.name);
        if (rule.kind == 'F') {
            const std::vector<float> read = extra->GetAttrFloatVec(rule.name);
            value->floats.assign(read.begin(), read.end());
        }
        plain.string_value = value->text.c_str();
        plain.ints = value->ints.data();
        plain.floats = value->floats.data();
        plain.count = static_cast<int32_t>(value->ints.size() + value->floats.size());
    }

    std::vector<Value> values_;
};

}  // namespace hybrid_ops
