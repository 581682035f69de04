// Definitions behind register/*.h: the list of operators and the functions registered for them.
#include "register/op_def_registry.h"

#include <map>
#include <memory>
#include <mutex>

namespace ops {
namespace {

struct Functions {
    gert::OpImplRegisterV2::InferShapeKernelFunc infer_shape = nullptr;
    gert::OpImplRegisterV2::InferDataTypeKernelFunc infer_type = nullptr;
    gert::OpImplRegisterV2::TilingKernelFunc tiling = nullptr;
};

struct Entry {
    OpDefCreator creator;
    std::unique_ptr<OpDef> def;  // made on first use: constructors of other files may still be to run
};

std::map<std::string, Entry>& Entries() {
    static std::map<std::string, Entry> entries;
    return entries;
}

std::map<std::string, Functions>& Separate() {
    static std::map<std::string, Functions> functions;
    return functions;
}

OpParamDef Merged(const OpParamDef& base, const std::deque<OpParamDef>& overrides) {
    OpParamDef result = base;
    for (const OpParamDef& other : overrides) {
        if (other.name() == base.name()) result.Merge(other);
    }
    return result;
}

}  // namespace

void OpParamDef::Merge(const OpParamDef& other) {
    if (other.type_ != IGNORE) type_ = other.type_;
    if (other.value_depend_ != IGNORE) value_depend_ = other.value_depend_;
    if (!other.types_.empty() || !other.type_list_.empty()) {
        types_ = other.types_;
        type_list_ = other.type_list_;
    }
    if (!other.follow_.empty()) follow_ = other.follow_;
    if (!other.formats_.empty()) formats_ = other.formats_;
    if (!other.unknown_shape_formats_.empty()) unknown_shape_formats_ = other.unknown_shape_formats_;
    ignore_contiguous_ = ignore_contiguous_ || other.ignore_contiguous_;
    auto_contiguous_ = auto_contiguous_ || other.auto_contiguous_;
}

OpParamDef& OpAICoreConfig::Find(std::deque<OpParamDef>& params, const char* name) {
    for (OpParamDef& param : params) {
        if (param.name() == name) return param;
    }
    return params.emplace_back(name);
}

OpAICoreDef& OpAICoreDef::AddConfig(const char* soc) {
    OpAICoreConfig config;
    return AddConfig(soc, config);
}

OpAICoreDef& OpAICoreDef::AddConfig(const char* soc, OpAICoreConfig& config) {
    configs_.emplace_back(soc, config);
    return *this;
}

OpAttrDef& OpDef::Attr(const char* name) {
    for (OpAttrDef& attr : attrs_) {
        if (attr.name() == name) return attr;
    }
    return attrs_.emplace_back(name);
}

OpParamDef OpDef::MergedInput(size_t index, const OpAICoreConfig& config) const {
    return Merged(inputs_[index], config.inputs());
}

OpParamDef OpDef::MergedOutput(size_t index, const OpAICoreConfig& config) const {
    return Merged(outputs_[index], config.outputs());
}

int OpDefFactory::OpDefRegister(const char* type, OpDefCreator creator) {
    Entries()[type].creator = std::move(creator);
    return 0;
}

std::vector<std::string> OpDefFactory::AllTypes() {
    std::vector<std::string> types;
    for (const auto& [type, entry] : Entries()) types.push_back(type);
    return types;
}

OpDef* OpDefFactory::Find(const std::string& type) {
    static std::mutex mutex;  // Python calls in from any thread
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = Entries().find(type);
    if (found == Entries().end()) return nullptr;
    Entry& entry = found->second;
    if (entry.def == nullptr) {
        entry.def = std::make_unique<OpDef>(entry.creator(type.c_str()));
        const Functions& separate = Separate()[type];
        if (separate.infer_shape != nullptr) entry.def->SetInferShape(separate.infer_shape);
        if (separate.infer_type != nullptr) entry.def->SetInferDataType(separate.infer_type);
        if (separate.tiling != nullptr) entry.def->AICore().SetTiling(separate.tiling);
    }
    return entry.def.get();
}

}  // namespace ops

namespace gert {

OpImplRegisterV2& OpImplRegisterV2::InferShape(InferShapeKernelFunc function) {
    ops::Separate()[op_type_].infer_shape = function;
    return *this;
}

OpImplRegisterV2& OpImplRegisterV2::InferDataType(InferDataTypeKernelFunc function) {
    ops::Separate()[op_type_].infer_type = function;
    return *this;
}

OpImplRegisterV2& OpImplRegisterV2::Tiling(TilingKernelFunc function, size_t) {
    ops::Separate()[op_type_].tiling = function;
    return *this;
}

}  // namespace gert
