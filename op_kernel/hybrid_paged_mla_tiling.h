// The plan of hybrid_paged_mla is the one that both paged attention operators share.
#include "paged_attention_tiling.h"
