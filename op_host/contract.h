// An operator is declared once, as a table of constants (struct Operator of table.h). Declare() makes from it
// the OpDef that CANN's opbuild reads and contract.json is recorded from; inference (infer.h) and checks
// (checks.h) read the table.
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "infer.h"
#include "register/op_def_registry.h"
#include "parsed.h"

namespace hybrid_ops {
namespace detail {

// Facts that CANN's OpDef has no call for travel through a call only the recorder's OpDef has.
template <class Def>
auto Note(Def& def, const char* kind, const char* name, const char* key, const char* text, int)
    -> decltype(def.Note(kind, name, key, text), void()) {
    def.Note(kind, name, key, text);
}
template <class Def>
void Note(Def&, const char*, const char*, const char*, const char*, long) {}

// Comment() exists from some CANN release on and ends up in generated headers; without it nothing is lost.
template <class Def>
auto Comment(Def& def, const char* text, int) -> decltype(def.Comment(text), void()) {
    if (*text != '\0') def.Comment(text);
}
template <class Def>
void Comment(Def&, const char*, long) {}

inline void DeclareParam(ops::OpParamDef& param, const ParsedArg& arg, size_t soc, bool in_place) {
    const std::vector<ge::Format> formats(arg.types[soc].size(), ge::FORMAT_ND);
    param.ParamType(arg.required ? ops::REQUIRED : ops::OPTIONAL)
        .DataType(arg.types[soc])
        .Format(formats)
        .UnknownShapeFormat(formats);
    // A copy made to get contiguous memory would take the update of an in-place tensor with it.
    if (!in_place) param.AutoContiguous();
}

// Def: ops::OpDef for what all SoCs share, ops::OpAICoreConfig for one SoC's own dtypes.
template <class Def>
void DeclareParams(Def& def, const Contract& contract, size_t soc) {
    for (const ParsedArg& arg : contract.inputs) {
        DeclareParam(def.Input(arg.name), arg, soc, contract.InPlace(arg.name));
    }
    for (const ParsedArg& arg : contract.outputs) {
        DeclareParam(def.Output(arg.name), arg, soc, contract.InPlace(arg.name));
    }
}

inline void DeclareAttr(ops::OpAttrDef& def, const Attr& attr) {
    const std::string text = attr.fallback == nullptr ? "" : attr.fallback;
    def.AttrType(attr.need == Need::kRequired ? ops::REQUIRED : ops::OPTIONAL);
    const bool plain = attr.need == Need::kRequired;
    switch (attr.type) {
        case AttrType::kFloat:
            plain ? def.Float() : def.Float(std::strtof(text.c_str(), nullptr));
            break;
        case AttrType::kInt:
            plain ? def.Int() : def.Int(std::strtoll(text.c_str(), nullptr, 10));
            break;
        case AttrType::kBool:
            plain ? def.Bool() : def.Bool(text == "true");
            break;
        case AttrType::kString:
            plain ? def.String() : def.String(text.c_str());
            break;
        case AttrType::kListInt: {
            std::vector<int64_t> values;
            for (const std::string& item : Split(text, ','))
                values.push_back(std::strtoll(item.c_str(), nullptr, 10));
            plain ? def.ListInt() : def.ListInt(values);
            break;
        }
        case AttrType::kListFloat: {
            std::vector<float> values;
            for (const std::string& item : Split(text, ','))
                values.push_back(std::strtof(item.c_str(), nullptr));
            plain ? def.ListFloat() : def.ListFloat(values);
            break;
        }
    }
}

inline void DeclareNotes(ops::OpDef& def, const Operator& op) {
    Note(def, "op", "", "summary", op.summary, 0);
    for (const Arg& arg : op.inputs) {
        Note(def, "input", arg.name, "axes", arg.axes, 0);
        Note(def, "input", arg.name, "note", arg.note, 0);
        Comment(def.Input(arg.name), arg.note, 0);
    }
    for (const Arg& arg : op.outputs) {
        Note(def, "output", arg.name, "axes", arg.axes, 0);
        Note(def, "output", arg.name, "note", arg.note, 0);
        Comment(def.Output(arg.name), arg.note, 0);
    }
    for (const Attr& attr : op.attrs) {
        Note(def, "attr", attr.name, "note", attr.note, 0);
        Comment(def.Attr(attr.name), attr.note, 0);
    }
    for (const LimitRule& limit : op.limits) Note(def, "limit", limit.rule, "text", limit.wrong, 0);
}

}  // namespace detail

// Fills an OpDef: call it in the constructor of the class that OP_ADD names.
template <const Operator& kOp>
void Declare(ops::OpDef& def, gert::OpImplRegisterV2::TilingKernelFunc tiling) {
    const Contract& contract = ContractOf<kOp>();
    detail::DeclareParams(def, contract, 0);
    for (const Attr& attr : kOp.attrs) detail::DeclareAttr(def.Attr(attr.name), attr);
    detail::DeclareNotes(def, kOp);
    def.SetInferShape(InferShape<kOp>);
    def.SetInferDataType(InferDataType<kOp>);
    def.AICore().SetTiling(tiling);
    for (size_t soc = 0; soc < contract.socs.size(); ++soc) {
        ops::OpAICoreConfig config;
        detail::DeclareParams(config, contract, soc);
        config.DynamicCompileStaticFlag(true)
            .DynamicFormatFlag(true)
            .DynamicRankSupportFlag(true)
            .DynamicShapeSupportFlag(true)
            .NeedCheckSupportFlag(false)
            .ExtendCfgInfo("softsync.flag", "true");
        def.AICore().AddConfig(contract.socs[soc].c_str(), config);
    }
}

}  // namespace hybrid_ops
