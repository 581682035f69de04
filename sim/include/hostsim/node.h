// One call of an operator as the host side sees it; the gert contexts are views of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "exe_graph/runtime/compute_node_info.h"
#include "exe_graph/runtime/continuous_vector.h"
#include "exe_graph/runtime/runtime_attrs.h"
#include "exe_graph/runtime/tensor.h"
#include "exe_graph/runtime/tiling_data.h"

namespace fe {
class PlatFormInfos;
}

namespace hostsim {

struct Node {
    // CANN's default room for tiling bytes, and more workspaces than any operator asks for.
    static constexpr size_t kTilingCapacity = 2048;
    static constexpr size_t kMaxWorkspaces = 16;

    std::string type;
    std::string name;
    std::vector<gert::AnchorInstanceInfo> input_runs;  // one per OpDef input
    std::vector<gert::Tensor> inputs;                  // the tensors that are there, in order
    std::vector<gert::CompileTimeTensorDesc> input_descs;
    std::vector<gert::Shape> output_shapes;  // one per OpDef output
    std::vector<gert::StorageShape> output_storage;
    std::vector<gert::CompileTimeTensorDesc> output_descs;
    std::vector<ge::DataType> output_types;
    gert::RuntimeAttrs attrs;
    fe::PlatFormInfos* platform = nullptr;
    std::string error;  // what the operator refused, empty = nothing

    gert::TilingData tiling{kTilingCapacity};
    gert::TypedContinuousVector<size_t> workspaces{kMaxWorkspaces};
    uint64_t tiling_key = 0;
    uint32_t block_dim = 0;
    bool block_dim_set = false;
    uint32_t schedule_mode = 0;
    uint32_t local_memory = 0;
    int32_t tiling_cond = 0;
    int32_t deterministic = 0;
    bool need_atomic = false;
};

}  // namespace hostsim
