// HybridCausalConv1d: depthwise causal convolution over packed sequences, prefill and decode, with a pool of
// convolution states updated in place.
#include "../op_kernel/hybrid_causal_conv1d_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"x", kRequired, "T D", "float16 | bfloat16 float16", "rows of all sequences, packed; channels last"},
    {"weight", kRequired, "W D", "float16 | bfloat16 float16",
     "tap W - 1 meets the row itself; transposed against torch's [D, W]"},
    {"conv_states", kRequired, "S L D", "float16 | bfloat16 float16",
     "S lines of L past rows, updated in place; a line belongs to one sequence"},
    {"query_start_loc", kRequired, "B+1", "int32", "cumulative: sequence b has rows [b] to [b + 1]"},
    {"bias", kOptional, "D", "float16 | bfloat16 float16", "added before the activation"},
    {"cache_indices", kOptional, "B", "int32",
     "line per sequence; negative, pad_slot_id or beyond S: padded sequence, nothing read or written, zero "
     "output; absent: line b"},
    {"initial_state_mode", kOptional, "B", "int32",
     "0: zeros before the sequence, else its line; absent: zeros in prefill, the line in update"},
    {"num_accepted_tokens", kOptional, "B", "int32",
     "update only: tokens the previous step accepted, 1 to L - W + 2, chooses the window of the line; at "
     "most 0: padded sequence"},
};

constexpr Arg kOutputs[] = {
    {"y", kRequired, "T D", "float16 | bfloat16 float16", "rows of no active sequence are zero"},
    {"conv_states", kRequired, "S L D", "float16 | bfloat16 float16", "the input of this name, updated"},
};

constexpr Attr kAttrs[] = {
    {"activation", AttrType::kInt, kOptional, "0", "0 none, 1 SiLU"},
    {"pad_slot_id", AttrType::kInt, kOptional, "-1", "line number that marks a padded sequence"},
    {"run_mode", AttrType::kInt, kOptional, "0", "0 prefill, 1 update (decode)"},
};

constexpr LimitRule kLimits[] = {
    {"2 <= W <= 4", "W out of range"},
    {"D % 16 == 0", "D must be a multiple of 16"},
    {"16 <= D <= 65536", "D out of range"},
    {"L >= W - 1", "lines too short for W"},
    {"L <= 4096", "L out of range"},
    {"B >= 0", "offsets of B sequences are B + 1"},
    {"0 <= activation <= 1", "not a known activation"},
    {"0 <= run_mode <= 1", "not a known mode"},
    {"not num_accepted_tokens or run_mode == 1", "only update knows accepted tokens"},
    {"cache_indices or S >= B", "fewer lines than sequences, and nothing says which is whose"},
};

constexpr Operator kOperator = {
    "HybridCausalConv1d",
    "Depthwise causal convolution over packed sequences, prefill and decode, updating a pool of states.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    HybridCausalConv1dShape shape{};
    shape.tokens = call.Size("T");
    shape.channels = call.Size("D");
    shape.width = call.Size("W");
    shape.lines = call.Size("S");
    shape.lineRows = call.Size("L");
    shape.sequences = call.Size("B");
    shape.hasBias = call.Has("bias");
    shape.hasIndices = call.Has("cache_indices");
    shape.hasMode = call.Has("initial_state_mode");
    shape.hasAccepted = call.Has("num_accepted_tokens");
    shape.activation = call.Int("activation") != 0;
    shape.update = call.Int("run_mode") != 0;
    shape.padLine = call.Int("pad_slot_id");
    const Chip& chip = call.chip();
    const HybridCausalConv1dPlan plan =
        PlanHybridCausalConv1d(shape, {chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes)});
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridCausalConv1d : public OpDef {
 public:
    explicit HybridCausalConv1d(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridCausalConv1d);

}  // namespace ops
