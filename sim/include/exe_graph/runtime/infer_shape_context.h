#pragma once
#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class InferShapeContext : public ExtendedKernelContext {
 public:
    using ExtendedKernelContext::ExtendedKernelContext;

    const Shape* GetInputShape(size_t index) const { return ShapeOf(InputAt(index)); }
    const Shape* GetOptionalInputShape(size_t ir_index) const { return ShapeOf(InputOf(ir_index, 0)); }
    const Shape* GetRequiredInputShape(size_t ir_index) const { return ShapeOf(InputOf(ir_index, 0)); }
    const Shape* GetDynamicInputShape(size_t ir_index, size_t relative) const {
        return ShapeOf(InputOf(ir_index, relative));
    }
    const Tensor* GetInputTensor(size_t index) const { return InputAt(index); }
    const Tensor* GetOptionalInputTensor(size_t ir_index) const { return InputOf(ir_index, 0); }
    const Tensor* GetRequiredInputTensor(size_t ir_index) const { return InputOf(ir_index, 0); }
    Shape* GetOutputShape(size_t index) {
        return index < node_->output_shapes.size() ? &node_->output_shapes[index] : nullptr;
    }

 private:
    static const Shape* ShapeOf(const Tensor* tensor) {
        return tensor == nullptr ? nullptr : &tensor->GetOriginShape();
    }
};

}  // namespace gert
