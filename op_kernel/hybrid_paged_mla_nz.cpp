// Latent attention over NZ pages, as over ND ones, with the same bits. How the pages lie:
// paged_attention/pages.h.
#include "paged_attention/entry.h"

#include "hybrid_paged_mla_nz_tiling.h"

extern "C" __global__ __aicore__ void hybrid_paged_mla_nz(GM_ADDR query, GM_ADDR query_rope, GM_ADDR kv_cache,
                                                          GM_ADDR key_rope_cache, GM_ADDR sequence_ids,
                                                          GM_ADDR positions, GM_ADDR context_lens,
                                                          GM_ADDR block_tables, GM_ADDR attention_out,
                                                          GM_ADDR softmax_lse, GM_ADDR workspace,
                                                          GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridPagedMlaNzTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    KERNEL_TASK_TYPE(1, KERNEL_TYPE_MIX_AIC_1_2);
#endif
    const hybrid_ops::paged::Arguments arguments{
        query,        query_rope,    kv_cache,    key_rope_cache,
        kv_cache,     sequence_ids,  positions,   context_lens,
        block_tables, attention_out, softmax_lse, AscendC::GetUserWorkspace(workspace)};
    // Keys as in paged_attention_tiling.h.
    if (TILING_KEY_IS(0)) {
        hybrid_ops::paged::RunVector<DTYPE_QUERY, true, hybrid_ops::paged::Layout::kNz>(data, arguments);
    } else if (TILING_KEY_IS(1)) {
        hybrid_ops::paged::RunCube<DTYPE_QUERY, true, hybrid_ops::paged::Layout::kNz>(data, arguments);
    }
}
