// HybridMoeInitRouting: rows of a batch once per selected expert, sorted by expert.
#include "../op_kernel/hybrid_moe_init_routing_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"x", kRequired, "T H", "float16 float32 | bfloat16 float16 float32", "rows of the batch"},
    {"expert_idx", kRequired, "T K", "int32",
     "experts of each row; outside 0 to expert_num - 1: inactive slot, nothing is dispatched for it"},
};

constexpr Arg kOutputs[] = {
    {"expanded_x", kRequired, "T*K H", "float16 float32 | bfloat16 float16 float32",
     "copies of the rows, sorted by expert, slots of one expert in ascending order; behind them zero rows, "
     "one "
     "per inactive slot"},
    {"expanded_row_idx", kRequired, "T K", "int32", "expanded row of slot t * K + j; -1: inactive slot"},
    {"expert_offsets", kRequired, "expert_num+1", "int32",
     "expert e has expanded rows [e] to [e + 1]; the last one is the number of active slots"},
    {"sorted_slots", kRequired, "T*K", "int32", "slot of an expanded row; -1: a row of no slot"},
    {"row_experts", kRequired, "T*K", "int32", "expert of an expanded row; expert_num: a row of no slot"},
};

constexpr Attr kAttrs[] = {
    {"expert_num", AttrType::kInt, kOptional, "0", "number of experts; must be given"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= expert_num <= 2048", "expert_num out of range"},
    {"K >= 1", "no experts per row"},
    {"H >= 1", "rows are empty"},
    {"T * K <= 16777216", "too many slots"},
};

constexpr Operator kOperator = {
    "HybridMoeInitRouting",
    "Dispatch of a mixture of experts: rows once per selected expert, sorted by expert, in a stable order.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    HybridMoeInitRoutingShape shape{};
    shape.rows = call.Size("T");
    shape.width = call.Size("H");
    shape.perRow = call.Size("K");
    shape.experts = call.Int("expert_num");
    shape.elementBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("x")));
    const Chip& chip = call.chip();
    const HybridMoeInitRoutingPlan plan = PlanHybridMoeInitRouting(
        shape, {chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes), chip.soc == "ascend910b"});
    return call.Launch(plan.data, 0, plan.blockDim, plan.workspaceBytes + chip.library_workspace);
}

}  // namespace

namespace ops {

class HybridMoeInitRouting : public OpDef {
 public:
    explicit HybridMoeInitRouting(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridMoeInitRouting);

}  // namespace ops
