// The plan of hybrid_paged_attention is the one that both paged attention operators share.
#ifndef HYBRID_OPS_HYBRID_PAGED_ATTENTION_TILING_H_
#define HYBRID_OPS_HYBRID_PAGED_ATTENTION_TILING_H_

#include "paged_attention_tiling.h"

using HybridPagedAttentionTilingData = PagedAttentionTilingData;

#endif  // HYBRID_OPS_HYBRID_PAGED_ATTENTION_TILING_H_
