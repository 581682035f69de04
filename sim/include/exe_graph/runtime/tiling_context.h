#pragma once
#include <limits>

#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class TilingContext : public ExtendedKernelContext {
 public:
    using ExtendedKernelContext::ExtendedKernelContext;

    const StorageShape* GetInputShape(size_t index) const { return ShapeOf(InputAt(index)); }
    const StorageShape* GetOptionalInputShape(size_t ir_index) const { return ShapeOf(InputOf(ir_index, 0)); }
    const StorageShape* GetRequiredInputShape(size_t ir_index) const { return ShapeOf(InputOf(ir_index, 0)); }
    const StorageShape* GetDynamicInputShape(size_t ir_index, size_t relative) const {
        return ShapeOf(InputOf(ir_index, relative));
    }
    const Tensor* GetInputTensor(size_t index) const { return InputAt(index); }
    const Tensor* GetOptionalInputTensor(size_t ir_index) const { return InputOf(ir_index, 0); }
    const Tensor* GetRequiredInputTensor(size_t ir_index) const { return InputOf(ir_index, 0); }
    const StorageShape* GetOutputShape(size_t index) const {
        return index < node_->output_storage.size() ? &node_->output_storage[index] : nullptr;
    }
    const void* GetCompileInfo() const { return nullptr; }
    template <typename T>
    const T* GetCompileInfo() const {
        return nullptr;
    }

    ge::graphStatus SetTilingKey(uint64_t key) {
        node_->tiling_key = key;
        return ge::GRAPH_SUCCESS;
    }
    uint64_t GetTilingKey() const { return node_->tiling_key; }
    ge::graphStatus SetBlockDim(uint32_t block_dim) {
        node_->block_dim = block_dim;
        node_->block_dim_set = true;
        return ge::GRAPH_SUCCESS;
    }
    uint32_t GetBlockDim() const { return node_->block_dim; }
    ge::graphStatus SetScheduleMode(uint32_t mode) {
        node_->schedule_mode = mode;
        return ge::GRAPH_SUCCESS;
    }
    uint32_t GetScheduleMode() const { return node_->schedule_mode; }
    ge::graphStatus SetTilingCond(int32_t cond) {
        node_->tiling_cond = cond;
        return ge::GRAPH_SUCCESS;
    }
    int32_t GetTilingCond() const { return node_->tiling_cond; }
    ge::graphStatus SetNeedAtomic(bool atomic) {
        node_->need_atomic = atomic;
        return ge::GRAPH_SUCCESS;
    }
    bool NeedAtomic() const { return node_->need_atomic; }
    ge::graphStatus SetLocalMemorySize(uint32_t bytes) {
        node_->local_memory = bytes;
        return ge::GRAPH_SUCCESS;
    }
    uint32_t GetLocalMemorySize() const { return node_->local_memory; }

    template <typename T>
    T* GetTilingData() {
        if (node_->tiling.GetCapacity() < sizeof(T)) return nullptr;
        node_->tiling.SetDataSize(sizeof(T));
        return static_cast<T*>(node_->tiling.GetData());
    }
    TilingData* GetRawTilingData() { return &node_->tiling; }
    size_t* GetWorkspaceSizes(size_t count) {
        if (node_->workspaces.SetSize(count) != ge::GRAPH_SUCCESS) return nullptr;
        return node_->workspaces.MutableData();
    }
    size_t GetWorkspaceNum() const { return node_->workspaces.GetSize(); }
    fe::PlatFormInfos* GetPlatformInfo() const { return node_->platform; }
    int32_t GetDeterministic() const { return node_->deterministic; }

 private:
    static const StorageShape* ShapeOf(const Tensor* tensor) {
        return tensor == nullptr ? nullptr : &tensor->GetShape();
    }
};

}  // namespace gert
