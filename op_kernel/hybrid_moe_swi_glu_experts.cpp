// y = down (silu(gate x) * (up x)) for the rows of every expert, in two phases: act = silu(gate x) * (up x)
// goes to the workspace, all cores meet, then y = down act. Weights of experts without rows are not read.
#include "hybrid_moe_swi_glu_experts/vector_path.h"
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
#include "hybrid_moe_swi_glu_experts/cube_910b_path.h"
#else
#include "hybrid_moe_swi_glu_experts/cube_310p_path.h"
#endif

extern "C" __global__ __aicore__ void hybrid_moe_swi_glu_experts(GM_ADDR expanded_x, GM_ADDR gate,
                                                                 GM_ADDR down, GM_ADDR expert_offsets,
                                                                 GM_ADDR up, GM_ADDR expanded_y,
                                                                 GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridMoeSwiGluExpertsTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);  // vector cores that meet
    KERNEL_TASK_TYPE(1, KERNEL_TYPE_MIX_AIC_1_2);
#endif
    const hybrid_ops::moe_experts::Arguments arguments{
        expanded_x, gate, down, expert_offsets, up, expanded_y, AscendC::GetUserWorkspace(workspace)};
    AscendC::TPipe pipe;
    if (TILING_KEY_IS(0)) {
        hybrid_ops::moe_experts::VectorPath<DTYPE_EXPANDED_X> path(data);
        path.Init(pipe, arguments);
        path.Process();
    }
    if (TILING_KEY_IS(1)) {
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
        if constexpr (sizeof(DTYPE_EXPANDED_X) == 2) {
            hybrid_ops::moe_experts::RunCube910b<DTYPE_EXPANDED_X>(pipe, data, arguments);
        }
#else
        hybrid_ops::moe_experts::CubePath310p path(data);
        path.Init(pipe, arguments);
        path.Process();
        path.Release(pipe);
#endif
    }
}
