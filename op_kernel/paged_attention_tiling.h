// Work split and buffer plan of the paged attention operators, shared by host, kernel and simulator: plain
// data, no CANN.
//
// An item is one part of the history of one query for one block of query heads that share a kv head. Items
// are dealt out to the cores in turn, because causal histories grow with the query. A core walks the slots of
// an item in tiles of at most `tile` slots. With more than one part, or when the log-sum-exp is asked for,
// items leave partial results in the workspace, all cores meet, and every core merges some rows (query,
// head).
#ifndef HYBRID_OPS_PAGED_ATTENTION_TILING_H_
#define HYBRID_OPS_PAGED_ATTENTION_TILING_H_

#include <cstdint>

struct PagedAttentionTilingData {
    uint64_t partialBytes;   // of the workspace: partial results, and what the meeting of cores needs
    uint64_t sharedBytes;    // of the workspace, behind them: what the cores of an AI Core exchange
    uint32_t queries;        // N
    uint32_t heads;          // query heads
    uint32_t kvHeads;        // kv heads, 1 for latent attention
    uint32_t keyDim;         // D, or R
    uint32_t ropeDim;        // rotary dims kept in a cache of their own, 0 but for latent attention
    uint32_t valueDim;       // DV, or R
    uint32_t pages;          // P
    uint32_t pageSize;       // slots of a page
    uint32_t sequences;      // B
    uint32_t tableWidth;     // W
    uint32_t splits;         // parts of a history
    uint32_t causal;         // a query stops at its own position
    uint32_t lse;            // softmax_lse is asked for
    uint32_t merge;          // results pass through the workspace
    uint32_t headBlock;      // most query heads of an item
    uint32_t headBlocks;     // items of one query and kv head
    uint32_t tile;           // most slots of a tile
    uint32_t piece;          // matrix units of ascend910b: most slots of a move to L1
    uint32_t pieces;         // and how many of these L1 holds
    uint32_t queryBlock;     // matrix units: most packed queries of a block
    uint32_t blockRows;      // matrix units: rows (query, head) of a block, a multiple of 16
    uint32_t stageElements;  // matrix units of ascend310p: of each of four buffers on the way to L1
    uint32_t rowFloats;      // of a partial result: sums, then maximum and denominator, eight times each
    uint32_t syncFloats;     // of the workspace in front of the partial results, for the meeting of cores
    float scale;
};

// Tiling keys: which units do the products.
constexpr uint64_t kPagedVector = 0;
constexpr uint64_t kPagedCube = 1;

struct PagedAttentionShape {
    int64_t queries, heads, kvHeads, keyDim, ropeDim, valueDim;
    int64_t pages, pageSize, sequences, tableWidth, splits;
    uint32_t elementBytes;
    bool causal, lse;
    float scale;
};

struct PagedAttentionPlatform {
    uint32_t cores;       // vector cores
    uint32_t cubeCores;   // on ascend910b each with two vector cores
    uint32_t localBytes;  // unified buffer
    uint32_t l1Bytes;
    bool paddedMoves;  // DataCopyPad exists (ascend910b)
};

struct PagedAttentionPlan {
    PagedAttentionTilingData data;
    uint32_t blockDim;
    uint64_t tilingKey;
    uint64_t workspaceBytes;
    bool fits;  // false: not even one slot of one head fits into local memory
};

namespace hybrid_ops {
namespace paged {

constexpr uint32_t kReservedBytes = 8192 + 512;  // scratch of emulated calls and the framework's own
constexpr uint32_t kLanes = 64;                  // fp32 lanes of a repeat
constexpr uint32_t kHeads = 8;                   // most heads of an item: their maxima fill one block
constexpr uint32_t kTile = 64;                   // most slots of a tile: their scores fill one repeat
constexpr uint32_t kBlockBytes = 32;
constexpr uint32_t kBlockRows = 64;        // most rows of a block on the matrix units
constexpr uint32_t kQueries = kBlockRows;  // most queries of a block
constexpr uint32_t kFractalTile = 256;     // most slots of a tile on the matrix units
constexpr uint32_t kSumElements = 2048;    // of each of two buffers for sums of the cube core, at least
constexpr uint32_t kStageElements = 8192;  // of a buffer on the way to L1, at least
constexpr uint32_t kPieces = 5;            // most pieces in L1: what is left of eight events
constexpr uint32_t kPiece = 128;           // most slots of a piece
constexpr uint32_t kScorePlaces = 3;       // of the workspace, for scores of a tile
constexpr uint32_t kRound = 1024;          // most slots of a tile that is loaded in pieces
constexpr uint32_t kLoadRows = 64;         // rows whose work on a slot takes as long as loading it

inline uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// Elements of a row in local memory: whole blocks.
inline uint32_t Pitch(uint32_t dim, uint32_t elementBytes) {
    return RoundUp(dim, kBlockBytes / elementBytes);
}

// Bytes of local memory: what Kernel::Init reserves, tile by tile and head by head.
inline uint64_t LocalBytes(const PagedAttentionTilingData& t, uint32_t elementBytes) {
    const uint64_t key = Pitch(t.keyDim, elementBytes), value = Pitch(t.valueDim, elementBytes);
    const uint64_t rope = t.ropeDim == 0 ? 0 : Pitch(t.ropeDim, elementBytes);
    const uint64_t keyLanes = RoundUp(uint32_t(key), kLanes) + RoundUp(uint32_t(rope), kLanes);
    const uint64_t valueLanes = RoundUp(uint32_t(value), kLanes);
    const bool latent = t.ropeDim != 0;
    uint64_t slot = 2 * (key + rope + (latent ? 0 : value)) * elementBytes;   // queues
    if (elementBytes != 4) slot += ((key > value ? key : value) + rope) * 4;  // widened
    slot += (keyLanes > value ? keyLanes : value) * 4;                        // products
    slot += 8 * 4 + 8 * 4 + 8 * 4;                                            // sums, column, broadcast table
    uint64_t head = 2 * (key + rope) * elementBytes + keyLanes * 4;           // queries
    head += valueLanes * 4 + 2 * value * elementBytes;                        // sums, results
    uint64_t fixed = kHeads * kLanes * 4 + 10 * kLanes * 4 + 4 * kLanes * 4;  // scores, statistics, margins
    if (t.merge) fixed += 2 * uint64_t(t.rowFloats) * 4;
    return t.tile * slot + t.headBlock * head + fixed + 1024;
}

// Largest blocks of heads first, as all heads of a group read the same slots; then the longest tiles.
inline bool PlanVector(PagedAttentionTilingData& t, uint32_t elementBytes, const PagedAttentionPlatform& p) {
    const uint32_t share = t.heads / t.kvHeads;
    t.queryBlock = 1;
    t.blockRows = t.stageElements = 0;
    for (t.headBlock = share < kHeads ? share : kHeads; t.headBlock >= 1; --t.headBlock) {
        t.headBlocks = (share + t.headBlock - 1) / t.headBlock;
        const uint32_t least = t.headBlock == 1 ? 1 : 8;
        for (t.tile = kTile; t.tile >= least; --t.tile) {
            if (LocalBytes(t, elementBytes) + kReservedBytes <= p.localBytes) return true;
        }
    }
    return false;
}

// Bytes of unified buffer that the matrix path takes: of the one core (cube_kernel_310p.h), or of each of two
// vector cores (vector_side_910b.h), which hold half of the rows.
inline uint64_t FractalBytes(const PagedAttentionTilingData& t, bool split) {
    const uint64_t rows = split ? t.blockRows / 2 : t.blockRows, lanes = RoundUp(uint32_t(rows), kLanes);
    uint64_t bytes = rows * t.valueDim * 4 + (6 * lanes + rows * 8 + kLanes + rows * 16 * 4) * 4;
    if (split) {
        const uint64_t sums = rows * 16 > kSumElements ? rows * 16 : kSumElements;
        const uint64_t weights = rows * t.tile, results = 16 * uint64_t(t.valueDim);
        bytes += rows * t.tile * 4 + (weights > results ? weights : results) * 2 + 2 * sums * 4;
    } else {
        bytes += rows * t.tile * (4 + 2) + 4 * uint64_t(t.stageElements) * 2;
    }
    return bytes + 1024;
}
// Bytes of L1 on ascend310p: queries of two blocks, two tiles of keys and values, two of weights.
inline uint64_t FractalL1Bytes(const PagedAttentionTilingData& t) {
    return 2 * (2 * t.blockRows * uint64_t(t.keyDim) + 2 * t.tile * uint64_t(t.keyDim + t.valueDim) +
                2 * uint64_t(t.blockRows) * t.tile);
}

// Rows of a block, at most `most`: of all those that halving the largest one leads to, the one whose items,
// dealt out to the cores in rounds, take the least time. A slot of an item costs its load, as much as
// kLoadRows rows, and what each row costs.
inline void PlanBlock(PagedAttentionTilingData& t, uint32_t cores, uint32_t most) {
    const uint32_t share = t.heads / t.kvHeads;
    // Host and kernel do not see the lengths: queries are taken as spread evenly over the sequences.
    const uint32_t each = t.queries / t.sequences;
    uint32_t heads = share < most ? share : most;
    uint32_t queries = t.splits > 1 ? 1 : most / heads;
    if (queries > each) queries = each < 1 ? 1 : each;
    for (uint64_t least = ~uint64_t(0);;) {
        const uint32_t blocks = (share + heads - 1) / heads;
        const uint64_t groups = (t.queries + queries - 1) / queries;
        const uint64_t items = groups * t.kvHeads * blocks * t.splits;
        const uint64_t cost = (items + cores - 1) / cores * (kLoadRows + RoundUp(queries * heads, 16));
        if (cost < least) {
            least = cost;
            t.queryBlock = queries;
            t.headBlock = heads;
            t.headBlocks = blocks;
        }
        if (queries > 1) {
            queries /= 2;
        } else if (heads > 16) {
            heads = RoundUp(heads / 2, 16);
        } else {
            return;
        }
    }
}

// Tiles that are loaded in pieces (stream_cube_910b.h): the longest pieces of which L1 holds enough, then the
// longest tile.
inline bool PlanPieces(PagedAttentionTilingData& t, const PagedAttentionPlatform& p) {
    constexpr uint32_t kFewPieces = 3;
    const uint32_t keys = t.keyDim + t.ropeDim, widest = keys > t.valueDim ? keys : t.valueDim;
    for (t.piece = kPiece; t.piece >= 16; t.piece /= 2) {
        const uint64_t bytes = 2 * uint64_t(t.piece) * widest;
        for (t.tile = kRound; t.tile >= t.piece; t.tile -= t.piece) {
            const uint64_t others = 2 * uint64_t(t.blockRows) * (keys + 2 * t.tile) + kReservedBytes;
            if (FractalBytes(t, true) + kReservedBytes > p.localBytes) continue;
            if (others + kFewPieces * bytes > p.l1Bytes) continue;
            t.pieces = uint32_t((p.l1Bytes - others) / bytes);
            if (t.pieces > kPieces) t.pieces = kPieces;
            return true;
        }
    }
    return false;
}

// False: the vector units do it.
inline bool PlanFractals(PagedAttentionTilingData& t, const PagedAttentionShape& s,
                         const PagedAttentionPlatform& p) {
    const uint32_t widest = t.keyDim > t.valueDim ? t.keyDim : t.valueDim;
    const bool split = p.paddedMoves;
    if (s.elementBytes != 2) return false;
    if (t.keyDim % 16 != 0 || t.valueDim % 16 != 0 || t.ropeDim % 16 != 0 || t.valueDim > 1008) return false;
    if (uint64_t(t.kvHeads) * widest > 65535) return false;  // distance between rows of a move
    // Sums of a tile on ascend910b stay in L0C: rows * dims <= 32768.
    PlanBlock(t, p.cubeCores, split && t.valueDim > 512 ? kBlockRows / 2 : kBlockRows);
    if (t.queryBlock * t.headBlock < 2) return false;
    t.blockRows = RoundUp(t.queryBlock * t.headBlock, 16);
    t.stageElements = 16 * widest < kStageElements ? kStageElements / 16 * 16 : 16 * widest;
    if (split) {
        if (!PlanPieces(t, p)) return false;
        t.sharedBytes =
            t.blockRows * (uint64_t(t.tile) * (kScorePlaces * 4 + 2 * s.elementBytes) + 2 * t.valueDim * 4);
        return true;
    }
    for (t.tile = kFractalTile; t.tile >= 32; t.tile -= 16) {
        if (FractalBytes(t, split) + kReservedBytes <= p.localBytes &&
            FractalL1Bytes(t) + kReservedBytes <= p.l1Bytes) {
            return true;
        }
    }
    return false;
}

// Blocks and tiles of the matrix units; false: the vector units do it.
using PlanOfUnits = bool (*)(PagedAttentionTilingData&, const PagedAttentionShape&,
                             const PagedAttentionPlatform&);

}  // namespace paged
}  // namespace hybrid_ops

inline PagedAttentionPlan PlanPagedAttention(const PagedAttentionShape& s, const PagedAttentionPlatform& p,
                                             hybrid_ops::paged::PlanOfUnits units) {
    using namespace hybrid_ops::paged;
    PagedAttentionPlan plan{};
    PagedAttentionTilingData& t = plan.data;
    t.queries = uint32_t(s.queries);
    t.heads = uint32_t(s.heads);
    t.kvHeads = uint32_t(s.kvHeads);
    t.keyDim = uint32_t(s.keyDim);
    t.ropeDim = uint32_t(s.ropeDim);
    t.valueDim = uint32_t(s.valueDim);
    t.pages = uint32_t(s.pages);
    t.pageSize = uint32_t(s.pageSize);
    t.sequences = uint32_t(s.sequences);
    t.tableWidth = uint32_t(s.tableWidth);
    t.splits = uint32_t(s.splits);
    t.causal = s.causal;
    t.lse = s.lse;
    t.scale = s.scale;
    t.merge = s.splits > 1 || s.lse;
    t.rowFloats = Pitch(t.valueDim, s.elementBytes) + 16;
    plan.tilingKey = kPagedVector;
    plan.fits = units(t, s, p);
    if (plan.fits) {
        plan.tilingKey = kPagedCube;
    } else {
        plan.fits = PlanVector(t, s.elementBytes, p);
    }
    const uint32_t groups = (t.queries + t.queryBlock - 1) / t.queryBlock;
    const uint64_t items = uint64_t(groups) * t.kvHeads * t.headBlocks * t.splits;
    const bool mixed = p.paddedMoves && plan.tilingKey == kPagedCube;
    const uint32_t cores = mixed ? p.cubeCores : p.cores;
    plan.blockDim = items < cores ? uint32_t(items) : cores;
    // Without padded moves results below a block are written by the scalar unit, whose cache lines two cores
    // must not share.
    if (!p.paddedMoves && s.valueDim * int64_t(s.elementBytes) < int64_t(kBlockBytes)) plan.blockDim = 1;
    if (plan.blockDim == 0) plan.blockDim = 1;
    t.syncFloats = t.merge && !p.paddedMoves ? RoundUp(p.cores * 8, 128) : 0;
    if (t.merge) {
        t.partialBytes =
            (uint64_t(t.queries) * t.heads * t.splits * t.rowFloats + t.syncFloats) * sizeof(float);
        t.partialBytes = (t.partialBytes + 511) / 512 * 512;
    }
    plan.workspaceBytes = t.partialBytes + plan.blockDim * t.sharedBytes;
    return plan;
}

#endif  // HYBRID_OPS_PAGED_ATTENTION_TILING_H_
