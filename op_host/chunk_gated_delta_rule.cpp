// ChunkGatedDeltaRule: prefill of the gated delta rule over packed sequences, from initial to final states.
#include "../op_kernel/chunk_gated_delta_rule_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

// Order and names are those of exported models and must not change.
constexpr Arg kInputs[] = {
    {"query", kRequired, "T NK DK", "float16 | bfloat16",
     "rows of all sequences, packed; normalised by the caller"},
    {"key", kRequired, "T NK DK", "float16 | bfloat16", "packed like query; normalised by the caller"},
    {"value", kRequired, "T NV DV", "float16 | bfloat16", "value head h belongs to key head h // (NV / NK)"},
    {"beta", kRequired, "T NV", "float16 | bfloat16", "step size, 0 to 1, after the sigmoid"},
    {"initial_state", kRequired, "B NV DV DK", "float16 | bfloat16 float32",
     "state before the first token of each sequence; not overwritten"},
    {"actual_seq_lengths", kRequired, "B", "int32",
     "lengths that sum to T, not offsets; 0: the final state is the initial one"},
    {"g", kOptional, "T NV", "float32",
     "log decay per token and value head, at most 0, not summed up; absent: no decay"},
};

constexpr Arg kOutputs[] = {
    {"out", kRequired, "T NV DV", "float16 | bfloat16", "readout of the updated state"},
    {"final_state", kRequired, "B NV DV DK", "float16 | bfloat16 float32",
     "state after the last token of each sequence, in the dtype of initial_state"},
};

constexpr Attr kAttrs[] = {
    {"scale_value", AttrType::kFloat, kOptional, "1.0", "multiplies query; usually 1 / sqrt(DK)"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= NK <= 256", "NK out of range"},           {"1 <= NV <= 256", "NV out of range"},
    {"NV % NK == 0", "NV must be a multiple of NK"}, {"16 <= DK <= 256", "DK out of range"},
    {"16 <= DV <= 256", "DV out of range"},          {"B >= 1 or T == 0", "rows without a sequence"},
};

constexpr Operator kOperator = {
    "ChunkGatedDeltaRule",
    "Prefill of the gated delta rule: whole sequences, packed, from their initial to their final states.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    ChunkGatedDeltaRuleShape shape{};
    shape.tokens = call.Size("T");
    shape.sequences = call.Size("B");
    shape.keyHeads = call.Size("NK");
    shape.valueHeads = call.Size("NV");
    shape.keyDim = call.Size("DK");
    shape.valueDim = call.Size("DV");
    shape.hasGate = call.Has("g");
    shape.stateBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("initial_state")));
    shape.scale = call.Float("scale_value");
    const Chip& chip = call.chip();
    const ChunkGatedDeltaRulePlatform platform{chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes),
                                               chip.soc == "ascend910b",
                                               chip.soc == "ascend910b" ? chip.cube_cores : 0};
    ChunkGatedDeltaRulePlan plan = PlanChunkGatedDeltaRule(shape, platform);
    if (!plan.fits) {
        return call.Refuse({"initial_state", "one group of state rows does not fit into local memory",
                            "DK=" + std::to_string(shape.keyDim) + ", NV=" + std::to_string(shape.valueHeads),
                            std::to_string(chip.ub_bytes) + " bytes",
                            "fewer heads or a smaller DK need less"});
    }
    // Nothing to do is still a launch, of one core: frameworks expect one per node.
    if (shape.sequences == 0) plan.blockDim = 1;
    const uint64_t library = plan.tilingKey == kChunkGatedDeltaRuleCube ? chip.library_workspace : 0;
    return call.Launch(plan.data, plan.tilingKey, plan.blockDim, plan.workspace + library);
}

}  // namespace

namespace ops {

class ChunkGatedDeltaRule : public OpDef {
 public:
    explicit ChunkGatedDeltaRule(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(ChunkGatedDeltaRule);

}  // namespace ops
