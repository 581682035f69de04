// y = down (silu(gate x) * (up x)) for the rows of every expert, in two phases: act = silu(gate x) * (up x)
// goes to the workspace, all cores meet, then y = down act. Weights of experts without rows are not read.
#include "hybrid_moe_swi_glu_experts/vector_path.h"

extern "C" __global__ __aicore__ void hybrid_moe_swi_glu_experts(GM_ADDR expanded_x, GM_ADDR gate,
                                                                 GM_ADDR down, GM_ADDR expert_offsets,
                                                                 GM_ADDR up, GM_ADDR expanded_y,
                                                                 GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridMoeSwiGluExpertsTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    const hybrid_ops::moe_experts::Arguments arguments{
        expanded_x, gate, down, expert_offsets, up, expanded_y, AscendC::GetUserWorkspace(workspace)};
    AscendC::TPipe pipe;
    hybrid_ops::moe_experts::VectorPath<DTYPE_EXPANDED_X> path(data);
    path.Init(pipe, arguments);
    path.Process();
}
