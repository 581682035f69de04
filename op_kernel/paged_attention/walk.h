// Which slots of which pages a core reads. Every figure comes from the caller's tensors and may be wrong:
// nothing outside the tensors is ever named, and one bad query leaves the others alone.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_WALK_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_WALK_H_

#include "../paged_attention_tiling.h"

#include "../common/soc.h"

namespace hybrid_ops {
namespace paged {

using Data = PagedAttentionTilingData;

// Addresses of one call; parts an operator lacks are null. One a line: GM_ADDR is a
// macro.
struct Arguments {
    GM_ADDR query;
    GM_ADDR queryRope;
    GM_ADDR key;
    GM_ADDR keyRope;
    GM_ADDR value;
    GM_ADDR sequenceIds;
    GM_ADDR positions;
    GM_ADDR lengths;
    GM_ADDR tables;
    GM_ADDR out;
    GM_ADDR lse;
    GM_ADDR workspace;
};

// One part of the history of one query for one block of heads.
struct Item {
    uint32_t query, kvHead, firstHead, heads, part;
    int64_t row;         // of the sequence's page table
    int64_t begin, end;  // slots
};

// Slots [begin, begin + count) of an item; every item has at least one tile, if only an empty one.
struct Tile {
    Item item;
    int64_t begin;
    uint32_t count;
    uint32_t rows;  // slots that were loaded: those of pages the pool has
    bool first, last;
};

class Walk {
 public:
    __aicore__ inline void Init(const Data& data, const Arguments& a) {
        t_ = &data;
        ids_.SetGlobalBuffer((__gm__ int32_t*)a.sequenceIds);
        positions_.SetGlobalBuffer((__gm__ int32_t*)a.positions);
        lengths_.SetGlobalBuffer((__gm__ int32_t*)a.lengths);
        tables_.SetGlobalBuffer((__gm__ int32_t*)a.tables);
        items_ = uint64_t(data.queries) * data.kvHeads * data.headBlocks * data.splits;
        next_ = uint64_t(AscendC::GetBlockIdx());
        open_ = false;
    }

    // The next tile of this core; false when there is none.
    __aicore__ inline bool Next(Tile& tile) {
        if (!open_) {
            if (next_ >= items_) return false;
            Open(next_);
            next_ += uint64_t(AscendC::GetBlockNum());
        }
        const int64_t left = item_.end - at_;
        tile.item = item_;
        tile.begin = at_;
        tile.count = left < int64_t(t_->tile) ? uint32_t(left) : t_->tile;
        tile.rows = 0;
        tile.first = at_ == item_.begin;
        at_ += tile.count;
        tile.last = at_ == item_.end;
        open_ = !tile.last;
        return true;
    }

    // The run of slots from `slot` on that lies in one page, at most `most`: its first physical slot,
    // negative when the pool has no such page.
    __aicore__ inline int64_t Run(const Item& item, int64_t slot, uint32_t most, uint32_t& run) const {
        const int64_t index = slot / t_->pageSize, offset = slot - index * t_->pageSize;
        run = int64_t(t_->pageSize) - offset < int64_t(most) ? uint32_t(t_->pageSize - offset) : most;
        const int64_t page = tables_.GetValue(uint64_t(item.row * t_->tableWidth + index));
        return page >= 0 && page < int64_t(t_->pages) ? page * t_->pageSize + offset : -1;
    }

    // Block `block` of the query heads of an item's kv head.
    __aicore__ inline void Heads(Item& item, uint32_t block) const {
        const uint32_t share = t_->heads / t_->kvHeads, head = block * t_->headBlock;
        item.firstHead = item.kvHead * share + head;
        item.heads = share - head < t_->headBlock ? share - head : t_->headBlock;
    }
    // The item's part of a prefix of `end` slots.
    __aicore__ inline void Cut(Item& item, int64_t end) const {
        const int64_t base = end / t_->splits, longer = end - base * t_->splits, part = item.part;
        item.begin = part * base + (part < longer ? part : longer);
        item.end = item.begin + base + (part < longer ? 1 : 0);
    }
    // Length of the prefix that a query sees; sets the row of its pages.
    __aicore__ inline int64_t Visible(Item& item) const {
        item.row = ids_.GetValue(item.query);
        if (item.row < 0 || item.row >= int64_t(t_->sequences)) {
            item.row = 0;
            return 0;
        }
        const int64_t most = int64_t(t_->tableWidth) * t_->pageSize;
        int64_t end = lengths_.GetValue(uint64_t(item.row));
        if (end > most) end = most;
        if (t_->causal) {
            const int64_t reach = int64_t(positions_.GetValue(item.query)) + 1;
            if (reach < end) end = reach;
        }
        return end < 0 ? 0 : end;
    }

 private:
    // Parts first, then blocks of heads, kv heads, queries: neighbours share what they read.
    __aicore__ inline void Open(uint64_t index) {
        item_.part = uint32_t(index % t_->splits);
        index /= t_->splits;
        const uint32_t block = uint32_t(index % t_->headBlocks);
        index /= t_->headBlocks;
        item_.kvHead = uint32_t(index % t_->kvHeads);
        item_.query = uint32_t(index / t_->kvHeads);
        Heads(item_, block);
        Cut(item_, Visible(item_));
        at_ = item_.begin;
        open_ = true;
    }
    const Data* t_;
    AscendC::GlobalTensor<int32_t> ids_, positions_, lengths_, tables_;
    Item item_;
    uint64_t items_, next_;
    int64_t at_;
    bool open_;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_WALK_H_
