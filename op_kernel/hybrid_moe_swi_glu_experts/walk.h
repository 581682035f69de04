// Experts that have rows, and the share of their work that belongs to this core. Offsets come from the
// caller's tensor and may be wrong: rows outside the tensors are never named.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_WALK_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_WALK_H_

#include "../hybrid_moe_swi_glu_experts_tiling.h"

#include "../common/sequence_walk.h"

namespace hybrid_ops {
namespace moe_experts {

using Data = HybridMoeSwiGluExpertsTilingData;

// Rows [begin, begin + rows) of one expert, rows > 0. `before`: cost of the experts in front of it.
struct Expert {
    uint32_t index, begin, rows;
    uint64_t before, cost;
};

class ExpertWalk {
 public:
    __aicore__ inline explicit ExpertWalk(const Data& data) : t_(data) {}

    // A core without unified buffer reads the offsets where they are.
    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR offsets, bool local_memory = true) {
        const bool cached = local_memory && t_.entries != 0;
        AscendC::LocalTensor<int32_t> local;
        if (cached) {
            pipe.InitBuffer(buffer_, (RoundUp(t_.entries, 8) + 8) * sizeof(int32_t));
            local = buffer_.Get<int32_t>();
        }
        table_.Load(offsets, local, uint64_t(t_.experts) + 1, cached ? t_.entries : 0);
        if (cached) Order<AscendC::HardEvent::MTE2_S>();
        first_ = Offset(0);
        Expert e;
        known_ = 0;
        Rewind();
        while (Search(e)) {
            if (known_ < kKnown) list_[known_] = e;
            ++known_;
        }
        total_ = cost_;
        end_ = row_;
        Rewind();
    }
    // Cost of all experts, first row of the first and row behind the last.
    __aicore__ inline uint64_t Total() const { return total_; }
    __aicore__ inline uint32_t First() const { return first_; }
    __aicore__ inline uint32_t End() const { return end_; }

    __aicore__ inline void Rewind() {
        expert_ = 0;
        row_ = first_;
        cost_ = 0;
        next_ = 0;
    }
    // The next expert with rows; false when there is none.
    __aicore__ inline bool Next(Expert& e) {
        if (known_ > kKnown) return Search(e);
        if (next_ == known_) return false;
        e = list_[next_++];
        return true;
    }

 private:
    static constexpr uint32_t kKnown = 32;  // as many experts as are kept from the first walk

    __aicore__ inline uint32_t Offset(uint32_t i) const {
        const int64_t value = table_.Get(i);
        return value <= 0 ? 0 : value < int64_t(t_.rows) ? uint32_t(value) : t_.rows;
    }

    // Steps that double, then halve: few reads where few of many experts have rows.
    __aicore__ inline bool Search(Expert& e) {
        uint32_t low = expert_, high = expert_, step = 1, bound = row_;
        do {
            if (low >= t_.experts) return false;
            high = t_.experts - low < step ? t_.experts : low + step;
            bound = Offset(high);
            if (bound <= row_) low = high;
            step *= 2;
        } while (bound <= row_);
        while (high - low > 1) {
            const uint32_t middle = low + (high - low) / 2, at = Offset(middle);
            if (at > row_) {
                high = middle;
                bound = at;
            } else {
                low = middle;
            }
        }
        e.index = high - 1;
        e.begin = row_;
        e.rows = bound - row_;
        e.before = cost_;
        e.cost = ExpertCost(e.rows, t_);
        expert_ = high;
        row_ = bound;
        cost_ += e.cost;
        return true;
    }

    const Data& t_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    IntTable table_;
    Expert list_[kKnown];
    uint64_t cost_, total_;
    uint32_t expert_, row_, first_, end_, known_, next_;
};

// One product of a weight tile with some rows of its expert.
struct Tile {
    Expert expert;
    uint32_t row, rows;        // of the weight matrix
    uint32_t token, tokens;    // of expanded_x
    uint32_t column, columns;  // of both
    uint32_t matrix;           // 0: gate, or down; 1: up
    bool ends;                 // its sum over the columns
    bool last;                 // the sums of all matrices
};

// All tiles of this core's share of `matrices` products [tokens, depth] x [height, depth] per expert, cut
// into kRows of the height, kTokens of the tokens and kColumns of the depth. kTogether: all matrices of a
// piece of columns follow each other, else all columns of a matrix.
template <uint32_t kRows, uint32_t kTokens, uint32_t kColumns, bool kTogether>
class TileWalk {
 public:
    __aicore__ inline TileWalk(const ExpertWalk& experts, uint32_t height, uint32_t depth, uint32_t matrices)
        : experts_(experts), height_(height), depth_(depth), matrices_(matrices) {
        const uint64_t cores = AscendC::GetBlockNum(), core = AscendC::GetBlockIdx();
        from_ = experts_.Total() * core / cores;
        to_ = experts_.Total() * (core + 1) / cores;
        units_ = (height + kRows - 1) / kRows;
        live_ = NextExpert();
    }
    __aicore__ inline bool Live() const { return live_; }
    __aicore__ inline Tile Now() const {
        Tile t;
        t.expert = expert_;
        t.row = unit_ * kRows;
        t.rows = Least(height_ - t.row, kRows);
        t.token = expert_.begin + token_;
        t.tokens = Least(expert_.rows - token_, kTokens);
        t.column = column_;
        t.columns = Least(depth_ - column_, kColumns);
        t.matrix = matrix_;
        t.ends = depth_ - column_ <= kColumns;
        t.last = t.ends && matrix_ + 1 == matrices_;
        return t;
    }
    __aicore__ inline void Advance() {
        if (kTogether ? NextMatrix() || NextColumns() : NextColumns() || NextMatrix()) return;
        token_ += kTokens;
        if (token_ < expert_.rows) return;
        token_ = 0;
        if (++unit_ < unitEnd_) return;
        live_ = NextExpert();
    }

 private:
    __aicore__ static inline uint32_t Least(uint32_t a, uint32_t b) { return a < b ? a : b; }

    __aicore__ inline bool NextMatrix() {
        if (++matrix_ < matrices_) return true;
        matrix_ = 0;
        return false;
    }
    __aicore__ inline bool NextColumns() {
        if (depth_ - column_ > kColumns) {
            column_ += kColumns;
            return true;
        }
        column_ = 0;
        return false;
    }
    __aicore__ inline bool NextExpert() {
        while (experts_.Next(expert_)) {
            const uint64_t end = expert_.before + expert_.cost;
            if (end <= from_) continue;
            if (expert_.before >= to_) return false;
            unit_ = expert_.before >= from_ ? 0 : uint32_t((from_ - expert_.before) * units_ / expert_.cost);
            unitEnd_ = end <= to_ ? units_ : uint32_t((to_ - expert_.before) * units_ / expert_.cost);
            token_ = column_ = matrix_ = 0;
            if (unit_ < unitEnd_) return true;
        }
        return false;
    }

    ExpertWalk experts_;
    const uint32_t height_, depth_, matrices_;
    Expert expert_;
    uint64_t from_, to_;
    uint32_t units_, unit_, unitEnd_, token_, column_, matrix_;
    bool live_;
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_WALK_H_
