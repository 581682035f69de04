// Work split of hybrid_reshape_and_cache, shared by host, kernel and simulator: plain data, no CANN.
//
// Units of work are the T key rows, then the T value rows; a core takes a contiguous range of units, so that
// rows of consecutive slots stay together.
#ifndef HYBRID_OPS_HYBRID_RESHAPE_AND_CACHE_TILING_H_
#define HYBRID_OPS_HYBRID_RESHAPE_AND_CACHE_TILING_H_

#include <cstdint>

struct HybridReshapeAndCacheTilingData {
    int64_t slots;          // of the pool: pages * pageSize
    uint32_t tokens;        // T
    uint32_t pageSize;      // tokens of a page
    uint32_t keyRow;        // elements of a token's key: H * D
    uint32_t valueRow;      // elements of a token's value: H * DV
    uint32_t nz;            // caches are [P, row / 16, pageSize, 16]
    uint32_t piece;         // elements of a staging buffer, a multiple of 16
    uint32_t tableEntries;  // most slots of a core to be read locally
    uint32_t cores;
};

struct HybridReshapeAndCacheShape {
    int64_t tokens, pages, pageSize, keyRow, valueRow;
    uint32_t elementBytes;
    bool nz;
};

struct HybridReshapeAndCachePlatform {
    uint32_t cores;
    uint32_t localBytes;  // unified buffer
    bool paddedMoves;     // moves of any number of bytes exist
};

struct HybridReshapeAndCachePlan {
    HybridReshapeAndCacheTilingData data;
    uint32_t blockDim;
};

namespace hybrid_ops {
namespace reshape_cache {

constexpr uint32_t kColumn = 16;  // elements of an NZ column; of fp16 also the least move without padding
constexpr uint32_t kBuffers = 4;  // staging buffers: loads in flight while stores drain
constexpr uint32_t kPieceBytes = 24576;    // of a staging buffer: long enough to hide the start of a move
constexpr uint32_t kReservedBytes = 8192;  // of the framework
constexpr uint32_t kMaxTableEntries = 4096;

}  // namespace reshape_cache
}  // namespace hybrid_ops

inline HybridReshapeAndCachePlan PlanHybridReshapeAndCache(const HybridReshapeAndCacheShape& s,
                                                           const HybridReshapeAndCachePlatform& p) {
    using namespace hybrid_ops::reshape_cache;
    HybridReshapeAndCachePlan plan{};
    HybridReshapeAndCacheTilingData& t = plan.data;
    t.tokens = uint32_t(s.tokens);
    t.slots = s.pages * s.pageSize;
    t.pageSize = uint32_t(s.pageSize);
    t.keyRow = uint32_t(s.keyRow);
    t.valueRow = uint32_t(s.valueRow);
    t.nz = s.nz;
    const uint64_t units = 2 * uint64_t(t.tokens);
    t.cores = units < p.cores ? uint32_t(units) : p.cores;
    if (t.cores == 0) t.cores = 1;
    // Rows below the least move are patched into the block around them: of one core only, in order.
    const uint32_t least = t.keyRow < t.valueRow ? t.keyRow : t.valueRow;
    if (!p.paddedMoves && least < kColumn) t.cores = 1;
    const uint64_t most = (units + t.cores - 1) / t.cores;
    t.tableEntries = most < kMaxTableEntries ? uint32_t(most + 7) / 8 * 8 + 8 : kMaxTableEntries;
    const uint32_t tables = 2 * (t.tableEntries + 8) * 4;
    const uint32_t room = (p.localBytes - kReservedBytes - tables) / kBuffers;
    t.piece = (room < kPieceBytes ? room : kPieceBytes) / s.elementBytes / kColumn * kColumn;
    plan.blockDim = t.cores;
    return plan;
}

#endif  // HYBRID_OPS_HYBRID_RESHAPE_AND_CACHE_TILING_H_
