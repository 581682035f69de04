// HybridGatedDeltaGate: log decay and step size of the gated delta rule from a layer's raw projections.
#include "../op_kernel/hybrid_gated_delta_gate_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"a", kRequired, "T NV", "float16 | bfloat16 float16", "decay projection per token and value head"},
    {"b", kRequired, "T NV", "float16 | bfloat16 float16", "step size projection, before its sigmoid"},
    {"A_log", kRequired, "NV", "float32", "logarithm of the decay rate of a head"},
    {"dt_bias", kRequired, "NV", "float32", "added to a"},
};

constexpr Arg kOutputs[] = {
    {"g", kRequired, "T NV", "float32", "log decay, -exp(A_log) * softplus(a + dt_bias), at most 0"},
    {"beta", kRequired, "T NV", "float16 | bfloat16 float16", "step size, sigmoid(b), rounded once"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= NV <= 256", "NV out of range"},
};

constexpr Operator kOperator = {
    "HybridGatedDeltaGate",
    "Log decay and step size of the gated delta rule from raw projections, computed in float32.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    {},
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    const Chip& chip = call.chip();
    const HybridGatedDeltaGatePlan plan = PlanHybridGatedDeltaGate(
        call.Size("T"), call.Size("NV"), chip.vector_cores, chip.soc == "ascend910b");
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridGatedDeltaGate : public OpDef {
 public:
    explicit HybridGatedDeltaGate(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridGatedDeltaGate);

}  // namespace ops
