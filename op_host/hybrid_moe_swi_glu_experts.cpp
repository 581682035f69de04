// HybridMoeSwiGluExperts: SwiGLU feed-forward of every expert on the rows dispatched to it.
#include "../op_kernel/hybrid_moe_swi_glu_experts_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr char kFloats[] = "float16 | float16 bfloat16 float32";

constexpr Arg kInputs[] = {
    {"expanded_x", kRequired, "R H", kFloats, "dispatched rows, those of one expert next to each other"},
    {"gate", kRequired, "E G H", kFloats,
     "gate projections; without `up` G is 2I: rows of the gate first, then those of up, as gate_up_proj and "
     "w13 stand in checkpoints"},
    {"down", kRequired, "E H I", kFloats, "down projections, as w2 stands in checkpoints"},
    {"expert_offsets", kRequired, "E+1", "int32",
     "rows of expert e are [offsets[e], offsets[e + 1]), ascending from 0; rows outside of them are of no "
     "expert"},
    {"up", kOptional, "E I H", kFloats, "up projections where they stand on their own"},
};

constexpr Arg kOutputs[] = {
    {"expanded_y", kRequired, "R H", kFloats,
     "down (silu(gate x) * (up x)), each factor rounded; zero in rows of no expert"},
};

constexpr Attr kAttrs[] = {
    {"strategy", AttrType::kInt, kOptional, "0",
     "0: vector units (Scalar); 1: cube units (Cube), not float32; 2: whichever suits the rows per expert "
     "(Auto)"},
};

constexpr LimitRule kLimits[] = {
    {"E >= 1", "no expert"},
    {"E <= 65536", "too many experts"},
    {"G == I * (2 - up)", "gate rows do not fit I of down: I with up, 2I without"},
    {"16 <= H <= 65536", "H out of range"},
    {"16 <= I <= 65536", "I out of range"},
    {"H % 16 == 0", "H must be a multiple of 16"},
    {"I % 16 == 0", "I must be a multiple of 16"},
    {"R <= 2147483647", "too many rows"},
    {"0 <= strategy <= 2", "unknown strategy"},
};

constexpr Operator kOperator = {
    "HybridMoeSwiGluExperts",
    "SwiGLU feed-forward of every expert on the rows dispatched to it; experts without rows cost nothing.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    const bool wide = call.Dtype("expanded_x") == ge::DT_FLOAT;
    const int64_t strategy = call.Int("strategy");
    if (strategy == 1 && wide) {
        return call.Refuse({"strategy", "the cube path takes no float32", "1 (Cube) with float32",
                            "0 (Scalar), 2 (Auto), or 16-bit inputs", ""});
    }
    const Chip& chip = call.chip();
    HybridMoeSwiGluExpertsShape shape{};
    shape.rows = call.Size("R");
    shape.experts = call.Size("E");
    shape.hidden = call.Size("H");
    shape.inner = call.Size("I");
    shape.fused = !call.Has("up");
    shape.bytes = wide ? 4 : 2;
    shape.strategy = uint32_t(strategy);
    const HybridMoeSwiGluExpertsPlan plan =
        PlanHybridMoeSwiGluExperts(shape, {chip.vector_cores, chip.cube_cores, chip.soc == "ascend910b"});
    return call.Launch(plan.data, plan.tilingKey, plan.blockDim, plan.workspace + chip.library_workspace);
}

}  // namespace

namespace ops {

class HybridMoeSwiGluExperts : public OpDef {
 public:
    explicit HybridMoeSwiGluExperts(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridMoeSwiGluExperts);

}  // namespace ops
