// What the latent attention operators share: rows of their tables and the tiling. Their caches differ.
#pragma once
#include "../op_kernel/paged_latent_tiling.h"
#include "paged_attention.h"

namespace hybrid_ops {

constexpr Arg kLatentQuery = {"query", kRequired, "N H R", kPagedFloats,
                              "packed queries, already multiplied by the absorbed key projection"};
constexpr Arg kLatentQueryRope = {"query_rope", kRequired, "N H RP", kPagedFloats,
                                  "rotary part of the queries, rotated by the caller"};
constexpr Arg kLatentOutputs[] = {
    {"attention_out", kRequired, "N H R", kPagedFloats,
     "compressed context, before the value projection; zero for a query that sees no slot"},
    {"softmax_lse", kRequired, "N H", "float32", kLseNote},
};
constexpr Attr kLatentAttrs[] = {
    {"scale_value", AttrType::kFloat, kRequired, "",
     "the model's own scale, (nope + rope) ** -0.5 with its corrections; above 0"},
    kCausal,
    kNumSplits,
    kLseFlag,
};

template <const Operator& kOperator>
ge::graphStatus LatentTiling(gert::TilingContext* context) {
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

}  // namespace hybrid_ops
