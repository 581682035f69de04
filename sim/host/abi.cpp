// Builds a call from plain C data, runs the operator's own functions on it, and writes what they set as JSON.
#include "abi.h"

#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "hostsim/platform.h"
#include "json.h"
#include "names.h"
#include "record.h"
#include "register/op_def_registry.h"

namespace hostsim {
namespace {

struct Request {
    const char* op_type;
    const HostopsTensor* inputs;
    int32_t n_inputs;
    const HostopsAttr* attrs;
    int32_t n_attrs;
};

const char* Keep(const std::string& json) {
    char* copy = new char[json.size() + 1];
    std::memcpy(copy, json.c_str(), json.size() + 1);
    return copy;
}

std::string Failure(const std::string& error) {
    return Object().Add("ok", "false").Add("error", Quote(error)).str();
}

void AddInputs(const Request& request, const ops::OpDef& def, Node* node) {
    for (size_t ir = 0; ir < def.inputs().size(); ++ir) {
        const auto start = static_cast<uint32_t>(node->inputs.size());
        for (int32_t i = 0; i < request.n_inputs; ++i) {
            const HostopsTensor& given = request.inputs[i];
            if (given.ir_index != static_cast<int32_t>(ir)) continue;
            gert::StorageShape shape;
            for (int32_t d = 0; d < given.rank; ++d) {
                shape.MutableOriginShape().AppendDim(given.dims[d]);
                shape.MutableStorageShape().AppendDim(given.dims[d]);
            }
            const ge::Format storage = FormatFrom(given.format);
            const gert::StorageFormat format(ge::FORMAT_ND, storage);
            const ge::DataType type = DtypeFrom(given.dtype);
            node->inputs.emplace_back(shape, format, type);
            node->input_descs.emplace_back(type, format);
        }
        node->input_runs.emplace_back(start, static_cast<uint32_t>(node->inputs.size()) - start);
    }
}

// Appends one attribute: the given value, else the default. A required one that is missing throws.
void AddAttr(const ops::OpAttrDef& attr, const HostopsAttr* given, gert::RuntimeAttrs* attrs) {
    using Kind = ops::OpAttrDef::Kind;
    if (given == nullptr && attr.required()) {
        throw std::invalid_argument(attr.name() +
                                    ": required attribute is missing: got None; allowed a value");
    }
    switch (attr.kind()) {
        case Kind::kFloat:
            attrs->Append(static_cast<float>(given ? given->float_value : std::get<double>(attr.value())));
            break;
        case Kind::kInt:
            attrs->Append(given ? given->int_value : std::get<int64_t>(attr.value()));
            break;
        case Kind::kBool:
            attrs->Append(given ? given->int_value != 0 : std::get<bool>(attr.value()));
            break;
        case Kind::kString:
            attrs->Append(given ? std::string(given->string_value) : std::get<std::string>(attr.value()));
            break;
        case Kind::kListInt:
            attrs->AppendList(given ? std::vector<int64_t>(given->ints, given->ints + given->count)
                                    : std::get<std::vector<int64_t>>(attr.value()));
            break;
        case Kind::kListFloat: {
            const std::vector<double> values =
                given ? std::vector<double>(given->floats, given->floats + given->count)
                      : std::get<std::vector<double>>(attr.value());
            attrs->AppendList(std::vector<float>(values.begin(), values.end()));
            break;
        }
        default:
            throw std::invalid_argument(attr.name() + ": attribute type is not modelled");
    }
}

void AddAttrs(const Request& request, const ops::OpDef& def, Node* node) {
    for (const ops::OpAttrDef& attr : def.attrs()) {
        const HostopsAttr* given = nullptr;
        for (int32_t i = 0; i < request.n_attrs; ++i) {
            if (attr.name() == request.attrs[i].name) given = &request.attrs[i];
        }
        AddAttr(attr, given, &node->attrs);
    }
}

std::unique_ptr<Node> MakeNode(const Request& request, const ops::OpDef& def) {
    auto node = std::make_unique<Node>();
    node->type = def.type();
    node->name = SnakeCase(def.type());
    AddInputs(request, def, node.get());
    AddAttrs(request, def, node.get());
    const size_t outputs = def.outputs().size();
    node->output_shapes.resize(outputs);
    node->output_types.resize(outputs, ge::DT_UNDEFINED);
    return node;
}

// Runs both inference functions; returns what they refused, empty if nothing.
std::string Infer(ops::OpDef* def, Node* node) {
    if (def->GetInferShape() == nullptr || def->GetInferDataType() == nullptr) {
        return SnakeCase(def->type()) + ": no InferShape or InferDataType is registered";
    }
    gert::InferShapeContext shapes(node);
    if (def->GetInferShape()(&shapes) != ge::GRAPH_SUCCESS) {
        return node->error.empty() ? "InferShape failed without a text" : node->error;
    }
    gert::InferDataTypeContext types(node);
    if (def->GetInferDataType()(&types) != ge::GRAPH_SUCCESS) {
        return node->error.empty() ? "InferDataType failed without a text" : node->error;
    }
    for (size_t i = 0; i < node->output_shapes.size(); ++i) {
        gert::StorageShape shape;
        shape.MutableOriginShape() = node->output_shapes[i];
        shape.MutableStorageShape() = node->output_shapes[i];
        node->output_storage.push_back(shape);
        node->output_descs.emplace_back(node->output_types[i], gert::StorageFormat());
    }
    return "";
}

std::string InferJson(const Request& request) {
    ops::OpDef* def = ops::OpDefFactory::Find(request.op_type);
    if (def == nullptr) return Failure(std::string(request.op_type) + ": no such operator");
    const std::unique_ptr<Node> node = MakeNode(request, *def);
    const std::string error = Infer(def, node.get());
    if (!error.empty()) return Failure(error);
    std::vector<std::string> outputs;
    for (size_t i = 0; i < node->output_shapes.size(); ++i) {
        std::vector<std::string> dims;
        for (size_t d = 0; d < node->output_shapes[i].GetDimNum(); ++d) {
            dims.push_back(Number(node->output_shapes[i].GetDim(d)));
        }
        outputs.push_back(
            Object().Add("shape", List(dims)).Add("dtype", Quote(DtypeName(node->output_types[i]))).str());
    }
    return Object().Add("ok", "true").Add("error", "null").Add("outputs", List(outputs)).str();
}

std::string Hex(const gert::TilingData& tiling) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    const auto* bytes = static_cast<const uint8_t*>(tiling.GetData());
    for (size_t i = 0; i < tiling.GetDataSize(); ++i) {
        text += kDigits[bytes[i] >> 4];
        text += kDigits[bytes[i] & 15];
    }
    return text;
}

std::string TilingJson(const Request& request, const char* soc, const char* config) {
    ops::OpDef* def = ops::OpDefFactory::Find(request.op_type);
    if (def == nullptr) return Failure(std::string(request.op_type) + ": no such operator");
    const std::unique_ptr<Node> node = MakeNode(request, *def);
    fe::PlatFormInfos platform(soc, config);
    node->platform = &platform;
    if (def->AICore().GetTiling() == nullptr)
        return Failure(node->name + ": no tiling function is registered");
    // Output shapes as the graph would have them; what inference cannot tell, tiling itself refuses with its
    // chip.
    const std::string untold = Infer(def, node.get());
    node->error.clear();
    gert::TilingContext context(node.get());
    const bool done = def->AICore().GetTiling()(&context) == ge::GRAPH_SUCCESS;
    if (!done)
        return Failure(node->error.empty() ? node->name + ": tiling failed without a text" : node->error);
    if (!untold.empty()) return Failure(untold);
    if (!node->block_dim_set || node->block_dim == 0)
        return Failure(node->name + ": tiling set no block dim");
    std::vector<std::string> workspaces;
    for (size_t i = 0; i < node->workspaces.GetSize(); ++i) {
        workspaces.push_back(std::to_string(node->workspaces.GetData()[i]));
    }
    return Object()
        .Add("ok", "true")
        .Add("error", "null")
        .Add("tiling", Quote(Hex(node->tiling)))
        .Add("tiling_key", std::to_string(node->tiling_key))
        .Add("block_dim", std::to_string(node->block_dim))
        .Add("workspaces", List(workspaces))
        .Add("schedule_mode", std::to_string(node->schedule_mode))
        .str();
}

template <typename Function>
const char* Guarded(Function function) {
    try {
        return Keep(function());
    } catch (const std::exception& error) {
        return Keep(Failure(error.what()));
    }
}

}  // namespace
}  // namespace hostsim

extern "C" {

const char* hostops_list() {
    return hostsim::Guarded([] {
        std::vector<std::string> types;
        for (const std::string& type : ops::OpDefFactory::AllTypes()) types.push_back(hostsim::Quote(type));
        return hostsim::List(types);
    });
}

const char* hostops_contract() {
    return hostsim::Guarded([] { return hostsim::ContractJson(); });
}

const char* hostops_infer(const char* op_type, const HostopsTensor* inputs, int32_t n_inputs,
                          const HostopsAttr* attrs, int32_t n_attrs) {
    return hostsim::Guarded([&] { return hostsim::InferJson({op_type, inputs, n_inputs, attrs, n_attrs}); });
}

const char* hostops_tiling(const char* op_type, const char* soc, const char* config,
                           const HostopsTensor* inputs, int32_t n_inputs, const HostopsAttr* attrs,
                           int32_t n_attrs) {
    return hostsim::Guarded(
        [&] { return hostsim::TilingJson({op_type, inputs, n_inputs, attrs, n_attrs}, soc, config); });
}

void hostops_free(const char* json) { delete[] json; }
}
