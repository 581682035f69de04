// What all three contexts share. GetInputX(index) counts tensors that are there; GetOptionalInputX(ir_index)
// and GetRequiredInputX(ir_index) count the OpDef's inputs, so an absent optional shifts the former and not
// the latter.
#pragma once
#include "hostsim/node.h"

namespace gert {

class ExtendedKernelContext {
 public:
    explicit ExtendedKernelContext(hostsim::Node* node) : node_(node) {}

    const CompileTimeTensorDesc* GetInputDesc(size_t index) const {
        return index < node_->input_descs.size() ? &node_->input_descs[index] : nullptr;
    }
    const CompileTimeTensorDesc* GetOptionalInputDesc(size_t ir_index) const {
        return GetDynamicInputDesc(ir_index, 0);
    }
    const CompileTimeTensorDesc* GetRequiredInputDesc(size_t ir_index) const {
        return GetDynamicInputDesc(ir_index, 0);
    }
    const CompileTimeTensorDesc* GetDynamicInputDesc(size_t ir_index, size_t relative) const {
        const int64_t index = Instance(ir_index, relative);
        return index < 0 ? nullptr : &node_->input_descs[static_cast<size_t>(index)];
    }
    const CompileTimeTensorDesc* GetOutputDesc(size_t index) const {
        return index < node_->output_descs.size() ? &node_->output_descs[index] : nullptr;
    }
    const AnchorInstanceInfo* GetIrInputInstanceInfo(size_t ir_index) const {
        return ir_index < node_->input_runs.size() ? &node_->input_runs[ir_index] : nullptr;
    }
    size_t GetComputeNodeInputNum() const { return node_->inputs.size(); }
    size_t GetComputeNodeOutputNum() const { return node_->output_shapes.size(); }
    const RuntimeAttrs* GetAttrs() const { return &node_->attrs; }
    const ge::char_t* GetNodeType() const { return node_->type.c_str(); }
    const ge::char_t* GetNodeName() const { return node_->name.c_str(); }

    // Not in CANN: where refusals go instead of a log.
    void ReportError(const char* text) { node_->error = text; }

 protected:
    int64_t Instance(size_t ir_index, size_t relative) const {
        const AnchorInstanceInfo* run = GetIrInputInstanceInfo(ir_index);
        if (run == nullptr || relative >= run->GetInstanceNum()) return -1;
        return static_cast<int64_t>(run->GetInstanceStart() + relative);
    }
    const Tensor* InputAt(size_t index) const {
        return index < node_->inputs.size() ? &node_->inputs[index] : nullptr;
    }
    const Tensor* InputOf(size_t ir_index, size_t relative) const {
        const int64_t index = Instance(ir_index, relative);
        return index < 0 ? nullptr : &node_->inputs[static_cast<size_t>(index)];
    }

    hostsim::Node* node_;
};

}  // namespace gert
