// HybridPagedMlaNz: latent attention over caches in NZ pages, whose columns of 16 elements the matrix unit
// takes as they are.
#include "../op_kernel/hybrid_paged_mla_nz_tiling.h"
#include "paged_latent.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    kLatentQuery,
    kLatentQueryRope,
    {"kv_cache", kRequired, "P RB PS 16", kPagedFloats,
     "NZ: element d of the latent of a slot is [page, d // 16, offset, d % 16]; key and value of every head"},
    {"key_rope_cache", kRequired, "P RPB PS 16", kPagedFloats,
     "rotated keys as kv_cache, shared by every head"},
    kSequenceIds,
    kPositions,
    kContextLens,
    kBlockTables,
};

constexpr LimitRule kLimits[] = {
    {"1 <= R <= 1024", "R out of range"},
    {"R % 16 == 0", "latents are no whole NZ columns"},
    {"RB * 16 == R", "other latents than the query's"},
    {"1 <= RP <= 256", "RP out of range"},
    {"RP % 16 == 0", "rotary keys are no whole NZ columns"},
    {"RPB * 16 == RP", "other rotary keys than the query's"},
    {"H >= 1", "no head"},
    {"P >= 1", "no page"},
    {"1 <= PS <= 32768", "page size out of range"},
    {"PS % 16 == 0", "NZ pages hold a multiple of 16 tokens"},
    {"B >= 1", "no sequence"},
    {"1 <= num_splits <= 32", "num_splits out of range"},
    {"num_splits == 1 or N * H * num_splits * (R + 2) <= 16777216", "partial results exceed 64 MiB"},
    {"N * H <= 2147483647", "too many queries"},
    {"B * W <= 2147483647", "too many pages"},
    {"P <= 2147483647", "too many pages"},
    {"PS * W <= 2147483647", "sequences too long"},
};

constexpr Operator kOperator = {
    "HybridPagedMlaNz",
    "Multi-head latent attention of packed queries over a cache in NZ pages, prefill and decode in one call.",
    "ascend310p ascend910b",
    kInputs,
    kLatentOutputs,
    kLatentAttrs,
    kLimits,
};

}  // namespace

namespace ops {

class HybridPagedMlaNz : public OpDef {
 public:
    explicit HybridPagedMlaNz(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, LatentTiling<kOperator>);
    }
};

OP_ADD(HybridPagedMlaNz);

}  // namespace ops
