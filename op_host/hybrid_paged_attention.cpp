// HybridPagedAttention: attention of packed queries over a paged key and value cache.
#include "paged_attention.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"query", kRequired, "N HQ D", kPagedFloats, "packed queries, any order, prefill and decode mixed"},
    {"key_cache", kRequired, "P PS HKV D", kPagedFloats,
     "P pages of PS slots; query head h reads kv head h // (HQ / HKV)"},
    {"value_cache", kRequired, "P PS HKV DV", kPagedFloats, "pages like key_cache"},
    kSequenceIds,
    kPositions,
    kContextLens,
    kBlockTables,
};

constexpr Arg kOutputs[] = {
    {"attention_out", kRequired, "N HQ DV", kPagedFloats, "zero for a query that sees no slot"},
    {"softmax_lse", kRequired, "N HQ", "float32", kLseNote},
};

constexpr Attr kAttrs[] = {
    kScaleOfProducts,
    kCausal,
    kNumSplits,
    kLseFlag,
};

constexpr LimitRule kLimits[] = {
    {"1 <= D <= 1024", "D out of range"},
    {"1 <= DV <= 1024", "DV out of range"},
    {"HKV >= 1", "no head"},
    {"HQ % HKV == 0", "HQ must be a multiple of HKV"},
    {"HQ >= 1", "no head"},
    {"P >= 1", "no page"},
    {"PS >= 1", "pages without slots"},
    {"B >= 1", "no sequence"},
    {"1 <= num_splits <= 32", "num_splits out of range"},
    {"num_splits == 1 or N * HQ * num_splits * (DV + 2) <= 16777216", "partial results exceed 64 MiB"},
    {"N * HQ <= 2147483647", "too many queries"},
    {"B * W <= 2147483647", "too many pages"},
    {"P <= 2147483647", "too many pages"},
    {"PS * W <= 2147483647", "sequences too long"},
};

constexpr Operator kOperator = {
    "HybridPagedAttention",
    "Attention (MHA, GQA, MQA) of packed queries over a paged cache, prefill and decode in one call.",
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
    shape.heads = call.Size("HQ");
    shape.kvHeads = call.Size("HKV");
    shape.keyDim = call.Size("D");
    shape.valueDim = call.Size("DV");
    return LaunchPaged(call, shape);
}

}  // namespace

namespace ops {

class HybridPagedAttention : public OpDef {
 public:
    explicit HybridPagedAttention(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridPagedAttention);

}  // namespace ops
