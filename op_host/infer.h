// Generic shape and dtype inference from a contract.
#pragma once
#include <string>
#include <vector>

#include "checks.h"
#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"

namespace hybrid_ops {

// Output shapes from the bound axes; a dimension nobody knows yet stays unknown.
template <const Operator& kOp>
ge::graphStatus InferShape(gert::InferShapeContext* context) {
    std::vector<Given> given(kOp.inputs.size);
    for (size_t i = 0; i < kOp.inputs.size; ++i) {
        const gert::Shape* shape = context->GetOptionalInputShape(i);
        if (shape != nullptr) given[i] = {true, Dims(*shape)};
    }
    Axes axes;
    Fault fault;
    if (!CheckPresent(kOp, given, 0, &fault) || !CheckShapes(kOp, given, &axes, &fault)) {
        return Refuse(context, SnakeName(kOp.type), fault, "");
    }
    for (size_t i = 0; i < kOp.outputs.size; ++i) {
        gert::Shape* shape = context->GetOutputShape(i);
        if (shape == nullptr) return ge::GRAPH_FAILED;
        const std::vector<int64_t> dims = axes.Shape(Split(kOp.outputs[i].axes, '|')[0]);
        shape->SetDimNum(dims.size());
        for (size_t d = 0; d < dims.size(); ++d) shape->SetDim(d, dims[d]);
    }
    return ge::GRAPH_SUCCESS;
}

namespace detail {

inline bool SameColumns(const Operator& op, const Arg& a, const Arg& b) {
    for (size_t soc = 0; soc < Split(op.socs, ' ').size(); ++soc) {
        if (Columns(op, a, soc) != Columns(op, b, soc)) return false;
    }
    return true;
}

// The dtype an argument has in every combination, or "" when it varies.
inline std::string ConstantDtype(const Operator& op, const Arg& arg) {
    const std::string first = Columns(op, arg, 0)[0];
    for (size_t soc = 0; soc < Split(op.socs, ' ').size(); ++soc) {
        for (const std::string& name : Columns(op, arg, soc)) {
            if (name != first) return "";
        }
    }
    return first;
}

}  // namespace detail

// An output follows the input of its name, else has its one dtype, else follows the first input with the same
// dtype columns. Nothing is refused here: graph engines infer dtypes before they insert the casts that make
// them legal.
template <const Operator& kOp>
ge::graphStatus InferDataType(gert::InferDataTypeContext* context) {
    for (size_t o = 0; o < kOp.outputs.size; ++o) {
        const Arg& output = kOp.outputs[o];
        ge::DataType type = DtypeOf(detail::ConstantDtype(kOp, output));
        for (size_t i = 0; i < kOp.inputs.size && type == ge::DT_UNDEFINED; ++i) {
            const bool same = detail::SameColumns(kOp, kOp.inputs[i], output);
            if (same && kOp.inputs[i].need == Need::kRequired) type = context->GetOptionalInputDataType(i);
        }
        for (size_t i = 0; i < kOp.inputs.size; ++i) {
            const bool same = std::string(kOp.inputs[i].name) == output.name;
            if (same) type = context->GetOptionalInputDataType(i);
        }
        if (context->SetOutputDataType(o, type) != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    }
    return ge::GRAPH_SUCCESS;
}

}  // namespace hybrid_ops
