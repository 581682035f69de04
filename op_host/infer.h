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
    const Contract& contract = ContractOf<kOp>();
    std::vector<Given> given(contract.inputs.size());
    for (size_t i = 0; i < given.size(); ++i) {
        const gert::Shape* shape = context->GetOptionalInputShape(i);
        if (shape == nullptr) continue;
        given[i].present = true;
        given[i].shape = Dims(*shape);
    }
    Axes axes;
    BindAttrs(contract, context->GetAttrs(), &axes);
    Fault fault;
    if (!CheckPresent(contract, given, 0, &fault) || !CheckShapes(contract, given, &axes, &fault)) {
        return Refuse(context, contract.name, fault, "");
    }
    for (size_t i = 0; i < contract.outputs.size(); ++i) {
        gert::Shape* shape = context->GetOutputShape(i);
        if (shape == nullptr) return ge::GRAPH_FAILED;
        const std::vector<int64_t> dims = axes.Shape(contract.outputs[i].rules[0]);
        shape->SetDimNum(dims.size());
        for (size_t d = 0; d < dims.size(); ++d) shape->SetDim(d, dims[d]);
    }
    return ge::GRAPH_SUCCESS;
}

namespace detail {

// The dtype an argument has in every combination, DT_UNDEFINED when it varies.
inline ge::DataType ConstantDtype(const ParsedArg& arg) {
    for (const std::vector<ge::DataType>& columns : arg.types) {
        for (ge::DataType type : columns) {
            if (type != arg.types[0][0]) return ge::DT_UNDEFINED;
        }
    }
    return arg.types[0][0];
}

}  // namespace detail

// An output follows the input of its name, else has its one dtype, else follows the first required input with
// the same dtype columns. Nothing is refused: graph engines infer dtypes before they insert the casts that
// make them legal.
template <const Operator& kOp>
ge::graphStatus InferDataType(gert::InferDataTypeContext* context) {
    const Contract& contract = ContractOf<kOp>();
    for (size_t o = 0; o < contract.outputs.size(); ++o) {
        const ParsedArg& output = contract.outputs[o];
        ge::DataType type = detail::ConstantDtype(output);
        for (size_t i = 0; i < contract.inputs.size() && type == ge::DT_UNDEFINED; ++i) {
            const ParsedArg& input = contract.inputs[i];
            if (input.required && input.types == output.types) type = context->GetOptionalInputDataType(i);
        }
        for (size_t i = 0; i < contract.inputs.size(); ++i) {
            if (std::string(contract.inputs[i].name) == output.name)
                type = context->GetOptionalInputDataType(i);
        }
        if (context->SetOutputDataType(o, type) != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    }
    return ge::GRAPH_SUCCESS;
}

}  // namespace hybrid_ops
