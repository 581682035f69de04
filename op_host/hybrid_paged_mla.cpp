// HybridPagedMla: absorbed multi-head latent attention over a paged cache of latents and rotary keys.
#include "../op_kernel/hybrid_paged_mla_tiling.h"
#include "paged_attention.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"query", kRequired, "N H R", kPagedFloats,
     "packed queries, already multiplied by the absorbed key projection"},
    {"query_rope", kRequired, "N H RP", kPagedFloats, "rotary part of the queries, rotated by the caller"},
    {"kv_cache", kRequired, "P PS 1 R", kPagedFloats, "P pages of PS latents, key and value of every head"},
    {"key_rope_cache", kRequired, "P PS 1 RP", kPagedFloats, "pages of rotated keys, shared by every head"},
    kSequenceIds,
    kPositions,
    kContextLens,
    kBlockTables,
};

constexpr Arg kOutputs[] = {
    {"attention_out", kRequired, "N H R", kPagedFloats,
     "compressed context, before the value projection; zero for a query that sees no slot"},
    {"softmax_lse", kRequired, "N H", "float32", kLseNote},
};

constexpr Attr kAttrs[] = {
    {"scale_value", AttrType::kFloat, kRequired, "",
     "the model's own scale, (nope + rope) ** -0.5 with its corrections; above 0"},
    kCausal,
    kNumSplits,
    kLseFlag,
};

constexpr LimitRule kLimits[] = {
    {"1 <= R <= 1024", "R out of range"},
    {"1 <= RP <= 256", "RP out of range"},
    {"H >= 1", "no head"},
    {"P >= 1", "no page"},
    {"PS >= 1", "pages without slots"},
    {"B >= 1", "no sequence"},
    {"1 <= num_splits <= 32", "num_splits out of range"},
    {"num_splits == 1 or N * H * num_splits * (R + 2) <= 16777216", "partial results exceed 64 MiB"},
    {"N * H <= 2147483647", "too many queries"},
    {"B * W <= 2147483647", "too many pages"},
    {"P <= 2147483647", "too many pages"},
    {"PS * W <= 2147483647", "sequences too long"},
};

constexpr Operator kOperator = {
    "HybridPagedMla",
    "Multi-head latent attention of packed queries over a paged cache, prefill and decode in one call.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    PagedAttentionShape shape = PagedShape(call);
    shape.heads = call.Size("H");
    shape.kvHeads = 1;
    shape.keyDim = call.Size("R");
    shape.ropeDim = call.Size("RP");
    shape.valueDim = call.Size("R");
    return LaunchPaged(call, shape, paged::PlanLatent);
}

}  // namespace

namespace ops {

class HybridPagedMla : public OpDef {
 public:
    explicit HybridPagedMla(const char* name) : OpDef(name) { hybrid_ops::Declare<kOperator>(*this, Tiling); }
};

OP_ADD(HybridPagedMla);

}  // namespace ops
