// RecurrentGatedDeltaRule: decode steps of the gated delta rule, updating a pool of recurrent states in
// place.
#include "../op_kernel/recurrent_gated_delta_rule_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

// Order and names are those of exported models and must not change.
constexpr Arg kInputs[] = {
    {"query", kRequired, "T NK DK", "float16 | bfloat16 bfloat16 float16",
     "rows of all sequences, packed; normalised by the caller"},
    {"key", kRequired, "T NK DK", "float16 | bfloat16 bfloat16 float16",
     "packed like query; normalised by the caller"},
    {"value", kRequired, "T NV DV", "float16 | bfloat16 bfloat16 float16",
     "value head h belongs to key head h // (NV / NK)"},
    {"beta", kRequired, "T NV", "float16 | bfloat16 bfloat16 float16",
     "step size, 0 to 1, after the sigmoid"},
    {"state", kRequired, "S NV DV DK", "float16 | bfloat16 float32 float32",
     "pool of S states, updated in place"},
    {"actual_seq_lengths", kRequired, "B", "int32",
     "lengths that sum to T, not offsets; 0 leaves the state alone"},
    {"ssm_state_indices", kRequired, "T | B S_max", "int32",
     "slot per row, or per sequence and step; negative: padded row, nothing read or written, zero output"},
    {"g", kOptional, "T NV", "float32", "log decay per value head, at most 0; absent: no decay"},
    {"gk", kOptional, "T NV | T NV DK", "float32",
     "log decay per value head, or per value head and key channel"},
    {"num_accepted_tokens", kOptional, "B", "int32",
     "tokens the previous step accepted: the state is read at that step's slot; at most 0: padded sequence"},
};

constexpr Arg kOutputs[] = {
    {"out", kRequired, "T NV DV", "float16 | bfloat16 bfloat16 float16", "readout of the updated state"},
    {"state", kRequired, "S NV DV DK", "float16 | bfloat16 float32 float32",
     "the input of this name, updated"},
};

constexpr Attr kAttrs[] = {
    {"scale_value", AttrType::kFloat, kOptional, "1.0", "multiplies query; usually 1 / sqrt(DK)"},
};

constexpr LimitRule kLimits[] = {
    {"1 <= NK <= 256", "NK out of range"},           {"1 <= NV <= 256", "NV out of range"},
    {"NV % NK == 0", "NV must be a multiple of NK"}, {"16 <= DK <= 512", "DK out of range"},
    {"16 <= DV <= 512", "DV out of range"},          {"S_max * B >= T", "table too small for T rows"},
    {"B >= 1 or T == 0", "rows without a sequence"},
};

constexpr Operator kOperator = {
    "RecurrentGatedDeltaRule",
    "One or more decode steps of the gated delta rule per sequence, updating a pool of recurrent states.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    RecurrentGatedDeltaRuleShape shape{};
    shape.tokens = call.Size("T");
    shape.sequences = call.Size("B");
    shape.slots = call.Size("S");
    shape.tableWidth = call.Size("S_max");
    shape.keyHeads = call.Size("NK");
    shape.valueHeads = call.Size("NV");
    shape.keyDim = call.Size("DK");
    shape.valueDim = call.Size("DV");
    shape.channelGate = static_cast<int64_t>(call.Rank("gk"));
    shape.hasGate = call.Has("g");
    shape.hasAccepted = call.Has("num_accepted_tokens");
    shape.stateBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("state")));
    shape.scale = call.Float("scale_value");
    const Chip& chip = call.chip();
    const RecurrentGatedDeltaRulePlatform platform{chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes),
                                                   chip.soc == "ascend910b"};
    RecurrentGatedDeltaRulePlan plan = PlanRecurrentGatedDeltaRule(shape, platform);
    if (!plan.fits) {
        return call.Refuse({"state", "one group of state rows does not fit into local memory",
                            "DK=" + std::to_string(shape.keyDim) + ", NV=" + std::to_string(shape.valueHeads),
                            std::to_string(chip.ub_bytes) + " bytes",
                            "fewer heads or a smaller DK need less"});
    }
    // Nothing to do is still a launch, of one core: frameworks expect one per node.
    if (shape.tokens == 0) plan.blockDim = 1;
    return call.Launch(plan.data, plan.tilingKey, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class RecurrentGatedDeltaRule : public OpDef {
 public:
    explicit RecurrentGatedDeltaRule(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(RecurrentGatedDeltaRule);

}  // namespace ops
