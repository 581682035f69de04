// HybridMoeGatingTopK: scores of a router's logits, and the k best experts of each row.
#include "../op_kernel/hybrid_moe_gating_top_k_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"x", kRequired, "T E", "float16 float32 | bfloat16 float16 float32", "logits of the router"},
    {"bias", kOptional, "E", "float32", "correction added to the scores for selection only; absent: none"},
};

constexpr Arg kOutputs[] = {
    {"y", kRequired, "T k", "float16 float32 | bfloat16 float16 float32",
     "weights of the selected experts, best first, rounded once; NaN in a row without a valid score"},
    {"expert_idx", kRequired, "T k", "int32",
     "the experts, distinct and in range in every row; equal scores: lower number first"},
};

constexpr Attr kAttrs[] = {
    {"k", AttrType::kInt, kOptional, "0", "experts per row; must be given"},
    {"k_group", AttrType::kInt, kOptional, "1", "groups that experts are selected from"},
    {"group_count", AttrType::kInt, kOptional, "1", "groups of E / group_count adjacent experts"},
    {"group_select_mode", AttrType::kInt, kOptional, "0",
     "score of a group: 0 its best expert, 1 the sum of its best two"},
    {"norm_type", AttrType::kInt, kOptional, "0", "0 softmax over all experts, 1 sigmoid"},
    {"norm_topk_prob", AttrType::kBool, kOptional, "false", "divide the selected scores by their sum"},
    {"routed_scaling_factor", AttrType::kFloat, kOptional, "1.0", "multiplies the weights, above 0"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= E <= 2048", "E out of range"},
    {"1 <= k <= E", "k out of range"},
    {"k <= 1024", "k out of range"},
    {"0 <= norm_type <= 1", "not a known kind of score"},
    {"norm_type == 1 or not bias", "only sigmoid scores are corrected"},
    {"0 <= group_select_mode <= 1", "not a known kind of group score"},
    {"1 <= group_count <= 128", "group_count out of range"},
    {"E % group_count == 0", "E must be a multiple of group_count"},
    {"1 <= k_group <= group_count", "k_group out of range"},
    {"k <= k_group * (E // group_count)", "more than the selected groups have"},
    {"group_select_mode == 0 or E // group_count >= 2",
     "a group needs two experts for the sum of its best two"},
    {"E <= 1024 or norm_type == 0 and group_count == 1", "E out of range with sigmoid or groups"},
    {"k <= 64 or norm_type == 0 and group_count == 1", "k out of range with sigmoid or groups"},
    {"T <= 2147483647", "too many rows"},
};

constexpr Operator kOperator = {
    "HybridMoeGatingTopK",
    "Routing of a mixture of experts: softmax or sigmoid scores in float32, the k best experts of each row.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    const float scale = call.Float("routed_scaling_factor");
    if (!(scale > 0.0f)) {
        char got[32];
        std::snprintf(got, sizeof(got), "%g", static_cast<double>(scale));
        return call.Refuse({"routed_scaling_factor", "not above 0", got, "> 0", ""});
    }
    HybridMoeGatingTopKShape shape{};
    shape.rows = call.Size("T");
    shape.experts = call.Size("E");
    shape.k = call.Int("k");
    shape.groups = call.Int("group_count");
    shape.selectedGroups = call.Int("k_group");
    shape.bestTwo = call.Int("group_select_mode") != 0;
    shape.sigmoid = call.Int("norm_type") != 0;
    shape.normalise = call.Bool("norm_topk_prob");
    shape.hasBias = call.Has("bias");
    shape.scale = scale;
    shape.logitBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("x")));
    const Chip& chip = call.chip();
    const HybridMoeGatingTopKPlan plan = PlanHybridMoeGatingTopK(
        shape, {chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes), chip.soc == "ascend910b"});
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridMoeGatingTopK : public OpDef {
 public:
    explicit HybridMoeGatingTopK(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridMoeGatingTopK);

}  // namespace ops
