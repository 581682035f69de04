// Rounds of work on the matrix units that overlap, also over blocks: a round is a tile of a block, or all of
// a block that has none.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_ROUND_WALK_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_ROUND_WALK_H_

#include "block_walk.h"

namespace hybrid_ops {
namespace paged {

struct Round {
    const Block* block;
    Tile tile;
    uint32_t number;  // of the rounds that have a tile
    uint32_t state;   // 0 or 1, from block to block
    bool first, empty;

    // Which of two places the round uses.
    __aicore__ inline uint32_t Turn() const { return number % 2; }
};

class RoundWalk {
 public:
    __aicore__ inline void Init(const Data& data, const Arguments& a, uint32_t core, uint32_t cores) {
        blocks_.Init(data, a, core, cores);
    }
    __aicore__ inline const BlockWalk& Blocks() const { return blocks_; }

    // The next round of this core; false when there is none. The blocks of the two rounds before stay.
    __aicore__ inline bool Next(Round& round) {
        const bool more = inside_ && blocks_.Find(open_[place_], at_, round.tile);
        if (!more) {
            place_ = (place_ + 1) % 3;
            state_ ^= 1;
            if (!blocks_.Next(open_[place_])) return false;
            inside_ = blocks_.Find(open_[place_], open_[place_].item.begin, round.tile);
        }
        round.first = !more;
        round.empty = !inside_;
        round.block = &open_[place_];
        round.state = state_;
        round.number = rounds_;
        if (round.empty) return true;
        at_ = round.tile.begin + round.tile.count;
        ++rounds_;
        return true;
    }

 private:
    BlockWalk blocks_;
    Block open_[3];
    int64_t at_ = 0;  // slot of the block at which its next tile begins
    uint32_t place_ = 0, state_ = 0, rounds_ = 0;
    bool inside_ = false;
};

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_ROUND_WALK_H_
