// HybridPagedMla: absorbed multi-head latent attention over a paged cache of latents and rotary keys.
#include "../op_kernel/hybrid_paged_mla_tiling.h"
#include "paged_latent.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    kLatentQuery,
    kLatentQueryRope,
    {"kv_cache", kRequired, "P PS 1 R", kPagedFloats, "P pages of PS latents, key and value of every head"},
    {"key_rope_cache", kRequired, "P PS 1 RP", kPagedFloats, "pages of rotated keys, shared by every head"},
    kSequenceIds,
    kPositions,
    kContextLens,
    kBlockTables,
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
    kLatentOutputs,
    kLatentAttrs,
    kLimits,
};

}  // namespace

namespace ops {

class HybridPagedMla : public OpDef {
 public:
    explicit HybridPagedMla(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, LatentTiling<kOperator>);
    }
};

OP_ADD(HybridPagedMla);

}  // namespace ops
