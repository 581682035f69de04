// The plan of the latent attention operators, whose keys are the values too, on top of the one that all paged
// attention operators share.
#ifndef HYBRID_OPS_PAGED_LATENT_TILING_H_
#define HYBRID_OPS_PAGED_LATENT_TILING_H_

#include "paged_attention_tiling.h"

namespace hybrid_ops {
namespace paged {

constexpr uint32_t kLatentTiles = 4;    // tiles of keys in L1 (latent_kernel_310p.h)
constexpr uint32_t kLatentSlots = 128;  // most slots of a tile

// Bytes of unified buffer on ascend310p (latent_kernel_310p.h).
inline uint64_t LatentBytes(const PagedAttentionTilingData& t) {
    const uint64_t rows = t.blockRows, lanes = RoundUp(uint32_t(rows), kLanes);
    const uint64_t weights = rows * t.tile, results = 16 * uint64_t(t.valueDim);
    return (rows * t.valueDim + rows * t.tile) * 4 + (weights > results ? weights : results) * 2 +
           (6 * lanes + rows * 8 + kLanes + rows * 16 * 4) * 4 + 3 * uint64_t(t.stageElements) * 2 + 1024;
}
// Bytes of L1 on ascend310p: queries, tiles of keys, two of weights.
inline uint64_t LatentL1Bytes(const PagedAttentionTilingData& t) {
    const uint64_t keys = t.keyDim + t.ropeDim;
    return 2 * (t.blockRows * keys + kLatentTiles * t.tile * keys + 2 * uint64_t(t.blockRows) * t.tile);
}

// False: the vector units do it.
inline bool PlanLatent(PagedAttentionTilingData& t, const PagedAttentionShape& s,
                       const PagedAttentionPlatform& p) {
    if (p.paddedMoves) return PlanFractals(t, s, p);
    if (s.elementBytes != 2 || t.keyDim % 16 != 0 || t.ropeDim % 16 != 0 || t.keyDim > 1008) return false;
    PlanBlock(t, p.cubeCores, kBlockRows);
    if (t.queryBlock * t.headBlock < 2) return false;
    t.blockRows = RoundUp(t.queryBlock * t.headBlock, 16);
    const uint32_t columns = t.keyDim > t.ropeDim ? t.keyDim : t.ropeDim;
    t.stageElements = 16 * columns;
    const auto fits = [&] {
        return LatentBytes(t) + kReservedBytes <= p.localBytes &&
               LatentL1Bytes(t) + kReservedBytes <= p.l1Bytes;
    };
    for (t.tile = kLatentSlots; t.tile >= 32 && !fits(); t.tile -= 16) {
    }
    if (t.tile < 32) return false;
    do {
        t.stageElements += 16 * columns;
    } while (t.stageElements <= 64 * columns && fits());
    t.stageElements -= 16 * columns;
    t.sharedBytes = 0;
    return true;
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_PAGED_LATENT_TILING_H_
