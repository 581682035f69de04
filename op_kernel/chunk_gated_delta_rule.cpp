// Chunk gated delta rule: whole sequences, packed, from initial to final states. Per token, with state S of
// one value head ([DV, DK], V first):
//   S <- exp(g) S;  m = S k;  d = (v - m) beta;  S <- S + d k^T;  out = S (scale q)
//
// The vector path (tiling keys 0 and 1) keeps an item's rows of S in local memory, fp32, over all tokens of a
// sequence and takes kStepTokens tokens at a time (vector_step.h). Chunks of 64 would cost the vector unit
// more: every product with S stays the same work, 2 cycles per 64 multiply-adds, and those inside a chunk
// come on top.
//
// Every sequence has a final state, also one without tokens; lengths may be wrong, and one bad sequence
// leaves the others alone: rows beyond T do not exist, rows that no sequence covers are zero.
#include "chunk_gated_delta_rule/vector_path.h"
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
#include "chunk_gated_delta_rule/cube_910b.h"
#elif defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
#include "chunk_gated_delta_rule/cube_310p.h"
#endif

namespace hybrid_ops {
namespace cgdr {

template <bool kTail>
__aicore__ inline void Run(const Data& data, const Arguments& arguments) {
    AscendC::TPipe pipe;
    VectorPath<DTYPE_QUERY, DTYPE_INITIAL_STATE, kTail> kernel(data);
    kernel.Init(pipe, arguments);
    kernel.Process();
    kernel.Release(pipe);
}

#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
__aicore__ inline void RunCube(const Data& data, const Arguments& arguments) {
    AscendC::TPipe pipe;
    CubeKernel kernel(data);
    kernel.Init(pipe, arguments);
    kernel.Process();
    kernel.Release(pipe);
}
#endif

}  // namespace cgdr
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void chunk_gated_delta_rule(GM_ADDR query, GM_ADDR key, GM_ADDR value,
                                                             GM_ADDR beta, GM_ADDR initial_state,
                                                             GM_ADDR actual_seq_lengths, GM_ADDR g,
                                                             GM_ADDR out, GM_ADDR final_state,
                                                             GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(ChunkGatedDeltaRuleTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    KERNEL_TASK_TYPE(2, KERNEL_TYPE_MIX_AIC_1_2);
#endif
    const hybrid_ops::cgdr::Arguments arguments{
        query, key, value, beta, initial_state, actual_seq_lengths, g, out, final_state};
    // Keys as in chunk_gated_delta_rule_tiling.h: bit 0 a tail, bit 1 the cube path.
    if (TILING_KEY_IS(0)) {
        hybrid_ops::cgdr::Run<false>(data, arguments);
    } else if (TILING_KEY_IS(1)) {
        hybrid_ops::cgdr::Run<true>(data, arguments);
    }
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    if (TILING_KEY_IS(2)) {
        hybrid_ops::cgdr::split::RunCube<DTYPE_QUERY, DTYPE_INITIAL_STATE>(
            data, arguments, AscendC::GetUserWorkspace(workspace));
    }
#elif defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
    if (TILING_KEY_IS(2)) hybrid_ops::cgdr::RunCube(data, arguments);
#endif
}
