// HybridGatedRmsNorm: RMS norm of rows, times a weight, times SiLU of a gate.
#include "../op_kernel/hybrid_gated_rms_norm_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"x", kRequired, "N D", "float16 float16 | bfloat16 bfloat16 float16 float16",
     "rows to normalise, one per token and head; beyond the saturation bound, and infinite, counts as the "
     "bound"},
    {"z", kRequired, "N D", "float16 float16 | bfloat16 bfloat16 float16 float16",
     "gate before its SiLU; saturated like x"},
    {"weight", kRequired, "D", "float32 float16 | float32 bfloat16 float32 float16",
     "factor per column, in float32 or the dtype of x"},
};

constexpr Arg kOutputs[] = {
    {"out", kRequired, "N D", "float16 float16 | bfloat16 bfloat16 float16 float16",
     "x / sqrt(mean(x^2) + eps) * weight * silu(z), rounded once"},
};

constexpr Attr kAttrs[] = {
    {"eps", AttrType::kFloat, kOptional, "1e-6", "added to the mean of squares, at least 0"},
};

constexpr LimitRule kLimits[] = {
    {"16 <= D <= 512", "D out of range"},
    {"D % 16 == 0", "D must be a multiple of 16"},
    {"N <= 2147483647", "too many rows"},
};

constexpr Operator kOperator = {
    "HybridGatedRmsNorm",
    "RMS norm of rows, then times a weight and SiLU of a gate, computed in float32.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    const float eps = call.Float("eps");
    if (eps < 0.0f) {
        char got[32];
        std::snprintf(got, sizeof(got), "%g", static_cast<double>(eps));
        return call.Refuse({"eps", "negative", got, ">= 0", ""});
    }
    const Chip& chip = call.chip();
    const HybridGatedRmsNormPlan plan = PlanHybridGatedRmsNorm(
        call.Size("N"), call.Size("D"), eps, chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes));
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridGatedRmsNorm : public OpDef {
 public:
    explicit HybridGatedRmsNorm(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridGatedRmsNorm);

}  // namespace ops
