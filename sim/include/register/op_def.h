// Operator definitions under CANN's names and signatures, kept in plain fields so that they can be written to
// contract.json. Calls CANN has and no operator here needs are absent: a use of one is a compile error naming
// it.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/types.h"
#include "register/op_impl_registry.h"

namespace ops {

enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3, VIRTUAL = 4 };

enum class DependScope : uint32_t { ALL = 0, TILING = 1 };

class OpParamDef {
 public:
    explicit OpParamDef(const char* name) : name_(name) {}
    OpParamDef& ParamType(Option type) { return Set(type_, type); }
    OpParamDef& DataType(std::vector<ge::DataType> types) { return Set(types_, std::move(types)); }
    OpParamDef& DataTypeList(std::vector<ge::DataType> types) { return Set(type_list_, std::move(types)); }
    OpParamDef& Format(std::vector<ge::Format> formats) { return Set(formats_, std::move(formats)); }
    OpParamDef& FormatList(std::vector<ge::Format> formats) { return Set(formats_, std::move(formats)); }
    OpParamDef& UnknownShapeFormat(std::vector<ge::Format> formats) {
        return Set(unknown_shape_formats_, std::move(formats));
    }
    OpParamDef& ValueDepend(Option depend) { return Set(value_depend_, depend); }
    OpParamDef& ValueDepend(Option depend, DependScope) { return Set(value_depend_, depend); }
    OpParamDef& IgnoreContiguous() { return Set(ignore_contiguous_, true); }
    OpParamDef& AutoContiguous() { return Set(auto_contiguous_, true); }
    // Without dtypes of its own the parameter has those of `name`.
    OpParamDef& Follow(const char* name) { return Set(follow_, std::string(name)); }
    OpParamDef& Version(uint32_t) { return *this; }
    OpParamDef& Comment(const char* comment) { return Set(comment_, std::string(comment)); }

    // Not in CANN: what the recorder reads.
    const std::string& name() const { return name_; }
    Option type() const { return type_; }
    const std::string& follow() const { return follow_; }
    const std::vector<ge::DataType>& types() const { return types_; }
    const std::vector<ge::DataType>& type_list() const { return type_list_; }
    const std::vector<ge::Format>& formats() const { return formats_; }
    // Fields set in `other` (a per-SoC override) replace those here.
    void Merge(const OpParamDef& other);

 private:
    template <typename T>
    OpParamDef& Set(T& field, T value) {
        field = std::move(value);
        return *this;
    }
    std::string name_;
    std::string comment_;
    std::string follow_;
    Option type_ = IGNORE;
    Option value_depend_ = IGNORE;
    bool ignore_contiguous_ = false;
    bool auto_contiguous_ = false;
    std::vector<ge::DataType> types_;      // columns, parallel over all parameters
    std::vector<ge::DataType> type_list_;  // every one combines with every column
    std::vector<ge::Format> formats_;
    std::vector<ge::Format> unknown_shape_formats_;
};

class OpAttrDef {
 public:
    using Value = std::variant<std::monostate, bool, double, int64_t, std::string, std::vector<bool>,
                               std::vector<double>, std::vector<int64_t>>;
    enum class Kind { kNone, kBool, kFloat, kInt, kString, kListBool, kListFloat, kListInt };

    explicit OpAttrDef(const char* name) : name_(name) {}
    OpAttrDef& AttrType(Option type) {
        required_ = type == REQUIRED;
        return *this;
    }
    OpAttrDef& Bool() { return Set(Kind::kBool, {}); }
    OpAttrDef& Bool(bool value) { return Set(Kind::kBool, value); }
    OpAttrDef& Float() { return Set(Kind::kFloat, {}); }
    OpAttrDef& Float(float value) { return Set(Kind::kFloat, static_cast<double>(value)); }
    OpAttrDef& Int() { return Set(Kind::kInt, {}); }
    OpAttrDef& Int(int64_t value) { return Set(Kind::kInt, value); }
    OpAttrDef& String() { return Set(Kind::kString, {}); }
    OpAttrDef& String(const char* value) { return Set(Kind::kString, std::string(value)); }
    OpAttrDef& ListBool() { return Set(Kind::kListBool, {}); }
    OpAttrDef& ListBool(std::vector<bool> value) { return Set(Kind::kListBool, std::move(value)); }
    OpAttrDef& ListFloat() { return Set(Kind::kListFloat, {}); }
    OpAttrDef& ListFloat(std::vector<float> value) {
        return Set(Kind::kListFloat, std::vector<double>(value.begin(), value.end()));
    }
    OpAttrDef& ListInt() { return Set(Kind::kListInt, {}); }
    OpAttrDef& ListInt(std::vector<int64_t> value) { return Set(Kind::kListInt, std::move(value)); }
    OpAttrDef& Version(uint32_t) { return *this; }
    OpAttrDef& Comment(const char* comment) {
        comment_ = comment;
        return *this;
    }

    // Not in CANN: what the recorder reads.
    const std::string& name() const { return name_; }
    bool required() const { return required_; }
    Kind kind() const { return kind_; }
    const Value& value() const { return value_; }

 private:
    OpAttrDef& Set(Kind kind, Value value) {
        kind_ = kind;
        value_ = std::move(value);
        return *this;
    }
    std::string name_;
    std::string comment_;
    bool required_ = true;
    Kind kind_ = Kind::kNone;
    Value value_;
};

class OpAICoreConfig {
 public:
    OpParamDef& Input(const char* name) { return Find(inputs_, name); }
    OpParamDef& Output(const char* name) { return Find(outputs_, name); }
    OpAICoreConfig& DynamicCompileStaticFlag(bool flag) { return Flag("dynamic_compile_static", flag); }
    OpAICoreConfig& DynamicFormatFlag(bool flag) { return Flag("dynamic_format", flag); }
    OpAICoreConfig& DynamicRankSupportFlag(bool flag) { return Flag("dynamic_rank_support", flag); }
    OpAICoreConfig& DynamicShapeSupportFlag(bool flag) { return Flag("dynamic_shape_support", flag); }
    OpAICoreConfig& NeedCheckSupportFlag(bool flag) { return Flag("need_check_support", flag); }
    OpAICoreConfig& PrecisionReduceFlag(bool flag) { return Flag("precision_reduce", flag); }
    OpAICoreConfig& ExtendCfgInfo(const char* key, const char* value) {
        flags_[key] = value;
        return *this;
    }

    // Not in CANN: what the recorder reads.
    const std::deque<OpParamDef>& inputs() const { return inputs_; }
    const std::deque<OpParamDef>& outputs() const { return outputs_; }
    const std::map<std::string, std::string>& flags() const { return flags_; }

    static OpParamDef& Find(std::deque<OpParamDef>& params, const char* name);

 private:
    OpAICoreConfig& Flag(const char* key, bool flag) { return ExtendCfgInfo(key, flag ? "true" : "false"); }
    std::deque<OpParamDef> inputs_;
    std::deque<OpParamDef> outputs_;
    std::map<std::string, std::string> flags_;
};

class OpAICoreDef {
 public:
    OpAICoreDef& SetTiling(gert::OpImplRegisterV2::TilingKernelFunc tiling) {
        tiling_ = tiling;
        return *this;
    }
    gert::OpImplRegisterV2::TilingKernelFunc& GetTiling() { return tiling_; }
    OpAICoreDef& AddConfig(const char* soc);
    OpAICoreDef& AddConfig(const char* soc, OpAICoreConfig& config);

    // Not in CANN: what the recorder reads, in the order of the AddConfig calls.
    const std::vector<std::pair<std::string, OpAICoreConfig>>& configs() const { return configs_; }

 private:
    gert::OpImplRegisterV2::TilingKernelFunc tiling_ = nullptr;
    std::vector<std::pair<std::string, OpAICoreConfig>> configs_;
};

// A fact that CANN's OpDef has no call for: axis rules, ranges, texts. `kind` is "op", "input", "output",
// "attr" or "limit"; `name` the argument (for a limit: the rule).
struct OpNote {
    std::string kind, name, key, text;
};

class OpDef {
 public:
    explicit OpDef(const char* type) : type_(type) {}
    OpParamDef& Input(const char* name) { return OpAICoreConfig::Find(inputs_, name); }
    OpParamDef& Output(const char* name) { return OpAICoreConfig::Find(outputs_, name); }
    OpAttrDef& Attr(const char* name);
    OpDef& SetInferShape(gert::OpImplRegisterV2::InferShapeKernelFunc function) {
        infer_shape_ = function;
        return *this;
    }
    OpDef& SetInferShapeRange(gert::OpImplRegisterV2::InferShapeRangeKernelFunc) { return *this; }
    OpDef& SetInferDataType(gert::OpImplRegisterV2::InferDataTypeKernelFunc function) {
        infer_type_ = function;
        return *this;
    }
    gert::OpImplRegisterV2::InferShapeKernelFunc& GetInferShape() { return infer_shape_; }
    gert::OpImplRegisterV2::InferDataTypeKernelFunc& GetInferDataType() { return infer_type_; }
    OpAICoreDef& AICore() { return aicore_; }

    // Not in CANN: the side channel of op_host/contract.h, and what the recorder reads.
    OpDef& Note(const char* kind, const char* name, const char* key, const char* text) {
        notes_.push_back({kind, name, key, text});
        return *this;
    }
    const std::string& type() const { return type_; }
    const std::deque<OpParamDef>& inputs() const { return inputs_; }
    const std::deque<OpParamDef>& outputs() const { return outputs_; }
    const std::deque<OpAttrDef>& attrs() const { return attrs_; }
    const OpAICoreDef& aicore() const { return aicore_; }
    const std::vector<OpNote>& notes() const { return notes_; }
    // A parameter as one SoC has it: the common declaration with that SoC's overrides on top.
    OpParamDef MergedInput(size_t index, const OpAICoreConfig& config) const;
    OpParamDef MergedOutput(size_t index, const OpAICoreConfig& config) const;

 private:
    std::string type_;
    std::deque<OpParamDef> inputs_;  // deque: references handed out must survive the next Input() call
    std::deque<OpParamDef> outputs_;
    std::deque<OpAttrDef> attrs_;
    std::vector<OpNote> notes_;
    OpAICoreDef aicore_;
    gert::OpImplRegisterV2::InferShapeKernelFunc infer_shape_ = nullptr;
    gert::OpImplRegisterV2::InferDataTypeKernelFunc infer_type_ = nullptr;
};

}  // namespace ops
