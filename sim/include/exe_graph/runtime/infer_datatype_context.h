#pragma once
#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class InferDataTypeContext : public ExtendedKernelContext {
 public:
    using ExtendedKernelContext::ExtendedKernelContext;

    ge::DataType GetInputDataType(size_t index) const { return TypeOf(InputAt(index)); }
    ge::DataType GetOptionalInputDataType(size_t ir_index) const { return TypeOf(InputOf(ir_index, 0)); }
    ge::DataType GetRequiredInputDataType(size_t ir_index) const { return TypeOf(InputOf(ir_index, 0)); }
    ge::DataType GetDynamicInputDataType(size_t ir_index, size_t relative) const {
        return TypeOf(InputOf(ir_index, relative));
    }
    ge::DataType GetOutputDataType(size_t index) const {
        return index < node_->output_types.size() ? node_->output_types[index] : ge::DT_UNDEFINED;
    }
    ge::graphStatus SetOutputDataType(size_t index, ge::DataType type) {
        if (index >= node_->output_types.size()) return ge::GRAPH_FAILED;
        node_->output_types[index] = type;
        return ge::GRAPH_SUCCESS;
    }

 private:
    static ge::DataType TypeOf(const Tensor* tensor) {
        return tensor == nullptr ? ge::DT_UNDEFINED : tensor->GetDataType();
    }
};

}  // namespace gert
