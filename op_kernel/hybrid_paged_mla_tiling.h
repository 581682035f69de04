// The plan of hybrid_paged_mla is the one that the latent attention operators share.
#ifndef HYBRID_OPS_HYBRID_PAGED_MLA_TILING_H_
#define HYBRID_OPS_HYBRID_PAGED_MLA_TILING_H_

#include "paged_latent_tiling.h"

using HybridPagedMlaTilingData = PagedAttentionTilingData;

#endif  // HYBRID_OPS_HYBRID_PAGED_MLA_TILING_H_
