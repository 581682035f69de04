// Gives the MindSpore Lite 2.0.0 converter a parser for ONNX `Custom` nodes (later releases have their own).
//
// Loaded through the converter's config file: [registry] plugin_path=<this library>. What arrives in the
// primitive is what the parser of 2.4 and later makes of it: `type` also becomes reg_op_name, the STRINGs
// true/True/false/False become bool, lists become tuples. A node that parser refuses ends the process with
// its message and code 70: the converter reads the result of Parse unchecked and would crash.

#include <cstdio>
#include <cstdlib>
#include <set>

#include "lite_abi.h"
#include "wire.h"

namespace hybrid_ops {
namespace {

namespace api = mindspore::api;
constexpr int kRefused = 70;

[[noreturn]] void Refuse(const std::string& node, const std::string& why) {
    std::fprintf(stderr, "[ERROR] hybrid_ops plugin: node %s: %s\n", node.c_str(), why.c_str());
    std::_Exit(kRefused);
}

template <typename Imm, typename T>
api::ValuePtr Make(const T& value) {
    return api::ValuePtr(std::make_shared<Imm>(value));
}

template <typename Imm, typename T>
api::ValuePtr Tuple(const std::vector<T>& values) {
    std::vector<api::ValuePtr> elements;
    for (const T& value : values) elements.push_back(Make<Imm>(value));
    return Make<api::ValueTuple>(elements);
}

api::ValuePtr Convert(const Attribute& attribute, const std::string& node) {
    switch (static_cast<Kind>(attribute.kind)) {
        case Kind::kFloat:
            return Make<api::FP32Imm>(attribute.f);
        case Kind::kInt:
            return Make<api::Int64Imm>(attribute.i);
        case Kind::kString:
            if (attribute.name != "type") {
                if (attribute.s == "true" || attribute.s == "True") return Make<api::BoolImm>(true);
                if (attribute.s == "false" || attribute.s == "False") return Make<api::BoolImm>(false);
            }
            return Make<api::StringImm>(attribute.s);
        case Kind::kFloats:
            return Tuple<api::FP32Imm>(attribute.floats);
        case Kind::kInts:
            return Tuple<api::Int64Imm>(attribute.ints);
        case Kind::kStrings:
            return Tuple<api::StringImm>(attribute.strings);
        default:
            Refuse(node, "ONNX Datatype: " + std::to_string(attribute.kind) +
                             " is not supported! (attribute " + attribute.name + ")");
    }
}

void CheckKind(const Attribute& attribute, const char* name, Kind kind, const char* word,
               const std::string& node) {
    if (attribute.name == name && attribute.kind != static_cast<int>(kind)) {
        Refuse(node, std::string("For attribute name: ") + name + ", AttributeType should be " + word +
                         ", please check!");
    }
}

void CheckNode(const Node& node) {
    const Attribute none;
    auto find = [&](const char* name) -> const Attribute& {
        for (const Attribute& attribute : node.attributes) {
            if (attribute.name == name) return attribute;
        }
        return none;
    };
    for (const Attribute& attribute : node.attributes) {
        CheckKind(attribute, "type", Kind::kString, "String", node.name);
        CheckKind(attribute, "input_names", Kind::kStrings, "String[]", node.name);
        CheckKind(attribute, "output_names", Kind::kStrings, "String[]", node.name);
        CheckKind(attribute, "output_num", Kind::kInt, "int", node.name);
    }
    if (find("type").s.empty())
        Refuse(node.name, "For custom, attr of type must be not empty, please set it!");
    for (const char* list : {"input_names", "output_names"}) {
        if (find(list).strings.empty()) {
            Refuse(node.name,
                   std::string("For custom, attr of ") + list + " must be not empty, please set it!");
        }
    }
    const auto& names = find("input_names").strings;
    const std::set<std::string> known(names.begin(), names.end());
    for (const std::string& name : find("optional_input_names").strings) {
        if (!known.count(name)) {
            Refuse(node.name, "optional_input_name: " + name + " is not in input_names, please check!");
        }
    }
}

class CustomParser : public mindspore::converter::NodeParser {
 public:
    using NodeParser::Parse;
    Result Parse(const onnx::GraphProto&, const onnx::NodeProto& proto) override {
        std::string bytes(proto.ByteSizeLong(), '\0');
        auto* begin = reinterpret_cast<uint8_t*>(&bytes[0]);
        // An end this far away makes every "is there room" test of the generated code true.
        google::protobuf::io::EpsCopyOutputStream stream(begin + bytes.size() + (1 << 20));
        proto._InternalSerialize(begin, &stream);
        Node node;
        try {
            node = ReadNode(bytes);
        } catch (const std::exception& error) {
            Refuse("?", error.what());
        }
        CheckNode(node);
        auto op = std::make_shared<mindspore::ops::BaseOperator>("Custom");
        for (const Attribute& attribute : node.attributes) {
            const api::ValuePtr value = Convert(attribute, node.name);
            op->AddAttr(attribute.name, value);
            if (attribute.name == "type") op->AddAttr("reg_op_name", value);
        }
        return op;
    }
};

const std::vector<char> kCustom = {'C', 'u', 's', 't', 'o', 'm'};
const mindspore::registry::NodeParserRegistry registered(mindspore::converter::kFmkTypeOnnx, kCustom,
                                                         std::make_shared<CustomParser>());

}  // namespace
}  // namespace hybrid_ops
