// Host side that the two paged attention operators share: what they read of a call, and the launch.
#pragma once
#include <cstdio>
#include <string>

#include "../op_kernel/paged_attention_tiling.h"
#include "tiling.h"

namespace hybrid_ops {

// Everything but heads and dims, which the operators name differently.
inline PagedAttentionShape PagedShape(const Call& call) {
    PagedAttentionShape shape{};
    shape.queries = call.Size("N");
    shape.pages = call.Size("P");
    shape.pageSize = call.Size("PS");
    shape.sequences = call.Size("B");
    shape.tableWidth = call.Size("W");
    shape.elementBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("query")));
    shape.splits = call.Int("num_splits");
    shape.scale = call.Float("scale_value");
    shape.causal = call.Bool("causal");
    shape.lse = call.Bool("softmax_lse_flag");
    return shape;
}

inline ge::graphStatus LaunchPaged(Call& call, const PagedAttentionShape& shape) {
    if (!(shape.scale > 0.0f)) {
        char got[32];
        std::snprintf(got, sizeof(got), "%g", static_cast<double>(shape.scale));
        return call.Refuse({"scale_value", "not above 0", got, "> 0", ""});
    }
    const Chip& chip = call.chip();
    const PagedAttentionPlatform platform{chip.vector_cores, chip.cube_cores,
                                          static_cast<uint32_t>(chip.ub_bytes),
                                          static_cast<uint32_t>(chip.l1_bytes), chip.soc == "ascend910b"};
    const PagedAttentionPlan plan = PlanPagedAttention(shape, platform);
    if (!plan.fits) {
        return call.Refuse(
            {"query", "one slot of one head does not fit into local memory",
             std::to_string(shape.keyDim) + " and " + std::to_string(shape.valueDim) + " elements",
             std::to_string(chip.ub_bytes) + " bytes", ""});
    }
    const uint64_t library = plan.workspaceBytes == 0 ? 0 : chip.library_workspace;
    return call.Launch(plan.data, plan.tilingKey, plan.blockDim, plan.workspaceBytes + library);
}

}  // namespace hybrid_ops
