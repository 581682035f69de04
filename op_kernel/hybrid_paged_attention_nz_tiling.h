// The plan of hybrid_paged_attention_nz is the one that the paged attention operators share.
#ifndef HYBRID_OPS_HYBRID_PAGED_ATTENTION_NZ_TILING_H_
#define HYBRID_OPS_HYBRID_PAGED_ATTENTION_NZ_TILING_H_

#include "paged_attention_tiling.h"

using HybridPagedAttentionNzTilingData = PagedAttentionTilingData;

#endif  // HYBRID_OPS_HYBRID_PAGED_ATTENTION_NZ_TILING_H_
