// What the paged attention operators share: rows of their tables, what they read of a call, the launch.
#pragma once
#include <cstdio>
#include <string>

#include "../op_kernel/paged_attention_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace hybrid_ops {

constexpr char kPagedFloats[] = "float16 | float16 bfloat16 float32";

// The schedule: which slots of the pool a query sees.
constexpr Arg kSequenceIds = {"sequence_ids", kRequired, "N", "int32",
                              "sequence of each query; outside 0..B-1: zero output"};
constexpr Arg kPositions = {"positions", kRequired, "N", "int32",
                            "position of each query in its sequence, from 0"};
constexpr Arg kContextLens = {"context_lens", kRequired, "B", "int32",
                              "effective length of each sequence; slots beyond are never read"};
constexpr Arg kBlockTables = {
    "block_tables", kRequired, "B W", "int32",
    "pages of each sequence in order; entries beyond its length, and negative ones, are padding"};

constexpr char kLseNote[] =
    "natural log of the sum of exp(score), -inf where no slot is seen; zero unless softmax_lse_flag";

constexpr Attr kScaleOfProducts = {"scale_value", AttrType::kFloat, kRequired, "",
                                   "multiplies the products of query and key, above 0"};
constexpr Attr kCausal = {"causal", AttrType::kBool, kRequired, "",
                          "a query sees slots 0..position, else the whole sequence"};
constexpr Attr kNumSplits = {"num_splits", AttrType::kInt, kOptional, "1",
                             "parts a history is cut into, merged in float32; 1 to 32"};
constexpr Attr kLseFlag = {"softmax_lse_flag", AttrType::kBool, kOptional, "false", "fill softmax_lse"};

// Everything but heads and dims, which the operators name differently.
inline PagedAttentionShape PagedShape(const Call& call) {
    PagedAttentionShape shape{};
    shape.queries = call.Size("N");
    shape.pages = call.Size("P");
    shape.pageSize = call.Size("PS");
    shape.sequences = call.Size("B");
    shape.tableWidth = call.Size("W");
    shape.elementBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("query")));
    shape.splits = call.Int("num_splits");
    shape.scale = call.Float("scale_value");
    shape.causal = call.Bool("causal");
    shape.lse = call.Bool("softmax_lse_flag");
    return shape;
}

inline ge::graphStatus LaunchPaged(Call& call, const PagedAttentionShape& shape,
                                   paged::PlanOfUnits units = paged::PlanFractals) {
    if (!(shape.scale > 0.0f)) {
        char got[32];
        std::snprintf(got, sizeof(got), "%g", static_cast<double>(shape.scale));
        return call.Refuse({"scale_value", "not above 0", got, "> 0", ""});
    }
    const Chip& chip = call.chip();
    const PagedAttentionPlatform platform{chip.vector_cores, chip.cube_cores,
                                          static_cast<uint32_t>(chip.ub_bytes),
                                          static_cast<uint32_t>(chip.l1_bytes), chip.soc == "ascend910b"};
    const PagedAttentionPlan plan = PlanPagedAttention(shape, platform, units);
    if (!plan.fits) {
        return call.Refuse(
            {"query", "one slot of one head does not fit into local memory",
             std::to_string(shape.keyDim) + " and " + std::to_string(shape.valueDim) + " elements",
             std::to_string(chip.ub_bytes) + " bytes", ""});
    }
    const uint64_t library = plan.workspaceBytes == 0 ? 0 : chip.library_workspace;
    return call.Launch(plan.data, plan.tilingKey, plan.blockDim, plan.workspaceBytes + library);
}

}  // namespace hybrid_ops
