// HybridPagedAttentionNz: attention of packed queries over caches in NZ pages, whose columns of 16 elements
// the matrix unit takes as they are.
#include "paged_attention.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"query", kRequired, "N HQ D", kPagedFloats, "packed queries, any order, prefill and decode mixed"},
    {"key_cache", kRequired, "P KB PS 16", kPagedFloats,
     "NZ: element d of kv head k of a slot is [page, (k * D + d) // 16, offset, d % 16]; HKV = 16 KB / D"},
    {"value_cache", kRequired, "P KB PS 16", kPagedFloats, "as key_cache"},
    kSequenceIds,
    kPositions,
    kContextLens,
    kBlockTables,
};

constexpr Arg kOutputs[] = {
    {"attention_out", kRequired, "N HQ D", kPagedFloats, "zero for a query that sees no slot"},
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
    {"D % 16 == 0", "heads are no whole NZ columns"},
    {"KB >= 1", "no head"},
    {"KB * 16 % D == 0", "not a whole number of heads"},
    {"HQ >= 1", "no head"},
    {"HQ * D % (KB * 16) == 0", "HQ must be a multiple of HKV = 16 KB / D"},
    {"P >= 1", "no page"},
    {"1 <= PS <= 32768", "page size out of range"},
    {"PS % 16 == 0", "NZ pages hold a multiple of 16 tokens"},
    {"B >= 1", "no sequence"},
    {"1 <= num_splits <= 32", "num_splits out of range"},
    {"num_splits == 1 or N * HQ * num_splits * (D + 2) <= 16777216", "partial results exceed 64 MiB"},
    {"N * HQ <= 2147483647", "too many queries"},
    {"B * W <= 2147483647", "too many pages"},
    {"P <= 2147483647", "too many pages"},
    {"PS * W <= 2147483647", "sequences too long"},
};

constexpr Operator kOperator = {
    "HybridPagedAttentionNz",
    "Attention (MHA, GQA, MQA) of packed queries over a cache in NZ pages; values as wide as keys.",
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
    shape.kvHeads = call.Size("KB") * 16 / call.Size("D");
    shape.keyDim = call.Size("D");
    shape.valueDim = call.Size("D");
    return LaunchPaged(call, shape);
}

}  // namespace

namespace ops {

class HybridPagedAttentionNz : public OpDef {
 public:
    explicit HybridPagedAttentionNz(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridPagedAttentionNz);

}  // namespace ops
