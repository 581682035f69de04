// Work of the matrix units: blocks of queries that share a sequence, so that their products share what they
// read. A block is a matrix of rows (query, head), heads running fastest.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_BLOCK_WALK_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_BLOCK_WALK_H_

#include "walk.h"

namespace hybrid_ops {
namespace paged {

struct Block {
    Item item;         // of the first query; `end` is the largest of the block
    uint32_t queries;  // packed queries from item.query on, all of one sequence
    uint32_t rows;     // queries * item.heads
    int64_t ends[kQueries];
};

class BlockWalk {
 public:
    // Core `core` of `cores` takes every `cores`-th item.
    __aicore__ inline void Init(const Data& data, const Arguments& a, uint32_t core, uint32_t cores) {
        t_ = &data;
        pages_.Init(data, a);
        groups_ = (data.queries + data.queryBlock - 1) / data.queryBlock;
        items_ = uint64_t(groups_) * data.kvHeads * data.headBlocks * data.splits;
        next_ = core;
        cores_ = cores;
        query_ = stop_ = 0;
    }

    // The next block of this core; false when there is none.
    __aicore__ inline bool Next(Block& block) {
        if (query_ == stop_) {
            if (next_ >= items_) return false;
            Open(next_);
            next_ += cores_;
        }
        block.item = item_;
        Item& item = block.item;
        item.query = query_;
        block.ends[0] = pages_.Visible(item);
        int64_t end = block.ends[0];
        block.queries = 1;
        for (++query_; query_ < stop_; ++query_) {
            Item other = item;
            other.query = query_;
            const int64_t next = pages_.Visible(other);
            if (next == 0 || end == 0 || other.row != item.row) break;
            if (next > end) end = next;
            block.ends[block.queries++] = next;
        }
        block.rows = block.queries * item.heads;
        pages_.Cut(item, end);
        return true;
    }

    __aicore__ inline const Walk& Pages() const { return pages_; }

    // The tile that begins at `begin`, or the first after it with a slot that the pool has; false when there
    // is none up to the end of the block.
    __aicore__ inline bool Find(const Block& block, int64_t begin, Tile& tile) const {
        for (; begin < block.item.end; begin += tile.count) {
            const int64_t left = block.item.end - begin;
            tile.begin = begin;
            tile.count = left < int64_t(t_->tile) ? uint32_t(left) : t_->tile;
            tile.rows = Known(block, begin, tile.count);
            if (tile.rows != 0) return true;
        }
        return false;
    }

    // Loaded slots of a tile that a query sees: slots of the tile are logical, [begin, begin + count), those
    // of pages that the pool has not were left out.
    __aicore__ inline uint32_t Seen(const Block& block, uint32_t query, const Tile& tile) const {
        const int64_t left = block.ends[query] - tile.begin;
        const uint32_t most = left <= 0 ? 0 : left < int64_t(tile.count) ? uint32_t(left) : tile.count;
        return tile.rows == tile.count ? most : Known(block, tile.begin, most);
    }

    // Of the slots [begin, begin + count): those in pages that the pool has.
    __aicore__ inline uint32_t Known(const Block& block, int64_t begin, uint32_t count) const {
        uint32_t known = 0;
        for (uint32_t done = 0, run = 0; done < count; done += run) {
            if (pages_.Run(block.item, begin + done, count - done, run) >= 0) known += run;
        }
        return known;
    }

 private:
    // Blocks of heads first, then of queries: neighbours share what they read.
    __aicore__ inline void Open(uint64_t index) {
        const uint32_t block = uint32_t(index % t_->headBlocks);
        index /= t_->headBlocks;
        // The longest causal histories first, so that short ones fill the gaps at the end.
        query_ = uint32_t(index % groups_);
        query_ = (groups_ - 1 - query_) * t_->queryBlock;
        index /= groups_;
        item_.part = uint32_t(index % t_->splits);
        item_.kvHead = uint32_t(index / t_->splits);
        pages_.Heads(item_, block);
        stop_ = t_->queries - query_ < t_->queryBlock ? t_->queries : query_ + t_->queryBlock;
    }

    const Data* t_;
    Walk pages_;
    Item item_;
    uint64_t items_, next_;
    uint32_t groups_, cores_, query_, stop_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_BLOCK_WALK_H_
