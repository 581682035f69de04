// The units of work of both products on ascend310p, dealt out one by one: each goes to the core with the
// least to do, so all cores work on the same expert at a time and find its tokens in L2.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_DEALT_WALK_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_DEALT_WALK_H_

#include "walk.h"

namespace hybrid_ops {
namespace moe_experts {

// A unit is `blocks` blocks of weight rows, as many as CubeShape says, by all tokens of its expert by all
// columns; a tile has kColumns of them.
template <uint32_t kBlocks, uint32_t kColumns>
class DealtWalk {
 public:
    __aicore__ inline DealtWalk(const ExpertWalk& experts, uint32_t height, uint32_t depth)
        : experts_(experts),
          height_(height),
          depth_(depth),
          cores_(uint32_t(AscendC::GetBlockNum())),
          core_(uint32_t(AscendC::GetBlockIdx())) {
        for (uint32_t i = 0; i < cores_; ++i) load_[i] = 0;
        live_ = NextUnit();
    }
    __aicore__ inline bool Live() const { return live_; }
    // Weight rows of one block of the current unit; tokens of a whole tile.
    __aicore__ inline const CubeShape& Shape() const { return shape_; }
    __aicore__ inline Tile Now() const {
        Tile t;
        t.expert = expert_;
        t.row = (unit_ - 1) * kBlocks * shape_.rows;
        t.rows = Least(height_ - t.row, kBlocks * shape_.rows);
        t.token = expert_.begin + token_;
        t.tokens = Least(expert_.rows - token_, shape_.tokens);
        t.column = column_;
        t.columns = Least(depth_ - column_, kColumns);
        t.matrix = 0;
        t.ends = t.last = depth_ - column_ <= kColumns;
        return t;
    }
    __aicore__ inline void Advance() {
        if (depth_ - column_ > kColumns) {
            column_ += kColumns;
            return;
        }
        column_ = 0;
        token_ += shape_.tokens;
        if (token_ < expert_.rows) return;
        live_ = NextUnit();
    }

 private:
    __aicore__ static inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }

    // The next unit that falls to this core, behind the one before.
    __aicore__ inline bool NextUnit() {
        token_ = column_ = 0;
        for (;;) {
            if (unit_ == units_) {
                if (!experts_.Next(expert_)) return false;
                shape_ = CubeShape(expert_.rows);
                const uint32_t rows = kBlocks * shape_.rows;
                units_ = (height_ + rows - 1) / rows;
                unit_ = 0;
            }
            uint32_t least = 0;
            for (uint32_t i = 1; i < cores_; ++i) least = load_[i] < load_[least] ? i : least;
            load_[least] += expert_.cost / units_;
            ++unit_;
            if (least == core_) return true;
        }
    }

    ExpertWalk experts_;
    const uint32_t height_, depth_, cores_, core_;
    uint64_t load_[kMostCubeCores];
    Expert expert_;
    CubeShape shape_{1};
    uint32_t unit_ = 0, units_ = 0;  // the current one is in front of unit_
    uint32_t token_ = 0, column_ = 0;
    bool live_;
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_DEALT_WALK_H_
