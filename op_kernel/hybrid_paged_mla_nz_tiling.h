// The plan of hybrid_paged_mla_nz is that of hybrid_paged_mla.
#ifndef HYBRID_OPS_HYBRID_PAGED_MLA_NZ_TILING_H_
#define HYBRID_OPS_HYBRID_PAGED_MLA_NZ_TILING_H_

#include "hybrid_paged_mla_tiling.h"

using HybridPagedMlaNzTilingData = PagedAttentionTilingData;

#endif  // HYBRID_OPS_HYBRID_PAGED_MLA_NZ_TILING_H_
