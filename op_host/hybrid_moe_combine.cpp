// HybridMoeCombine: weighted sum of the experts' rows of each token.
#include "../op_kernel/hybrid_moe_combine_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"expanded_y", kRequired, "N H", "float16 float16 float32 | bfloat16 bfloat16 float16 float16 float32",
     "rows of the experts' output"},
    {"expanded_row_idx", kRequired, "T K", "int32",
     "expanded row of slot t * K + j; outside 0 to N - 1: inactive slot, nothing is read or added"},
    {"scales", kRequired, "T K", "float16 float32 float32 | bfloat16 float32 float16 float32 float32",
     "weight of a slot"},
};

constexpr Arg kOutputs[] = {
    {"y", kRequired, "T H", "float16 float16 float32 | bfloat16 bfloat16 float16 float16 float32",
     "weighted sums in float32 in ascending order of the expanded rows, rounded once; no active slot: zero"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= K <= 512", "K out of range"},
    {"H >= 1", "rows are empty"},
    {"N == T * K", "not one row per slot"},
    {"N <= 2147483647", "too many rows"},
};

constexpr Operator kOperator = {
    "HybridMoeCombine",
    "Combination of a mixture of experts: weighted sum of the experts' rows of each token, in float32.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    {},
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    HybridMoeCombineShape shape{};
    shape.rows = call.Size("T");
    shape.perRow = call.Size("K");
    shape.width = call.Size("H");
    shape.elementBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("expanded_y")));
    shape.scaleBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("scales")));
    const Chip& chip = call.chip();
    const HybridMoeCombinePlan plan = PlanHybridMoeCombine(
        shape, {chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes), chip.soc == "ascend910b"});
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridMoeCombine : public OpDef {
 public:
    explicit HybridMoeCombine(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridMoeCombine);

}  // namespace ops
