// The plan of hybrid_paged_attention is the one that both paged attention operators share.
#include "paged_attention_tiling.h"
