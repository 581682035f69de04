// Walk over a core's rows in parts: rows of one active sequence, or rows that become zero. Every value comes
// from the caller's tensors and may be wrong: nothing outside the tensors is ever named.
#ifndef HYBRID_OPS_HYBRID_CAUSAL_CONV1D_PARTS_H_
#define HYBRID_OPS_HYBRID_CAUSAL_CONV1D_PARTS_H_

#include "../common/sequence_walk.h"
#include "../hybrid_causal_conv1d_tiling.h"

namespace hybrid_ops {
namespace conv1d {

using Data = HybridCausalConv1dTilingData;

struct Part {
    int64_t begin, end;   // rows
    int64_t first, last;  // rows of the whole sequence
    int64_t line;         // of conv_states; negative: the rows become zero
    int64_t window;       // row of the line where the W - 1 rows before the sequence begin; negative: zeros
    bool keep;            // the line keeps every row of the sequence, for the next step to choose from
};

class Parts {
 public:
    __aicore__ inline explicit Parts(const Data& t) : t_(t) {}

    // Values can be read after Wait.
    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR offsets, GM_ADDR indices, GM_ADDR mode,
                                GM_ADDR accepted) {
        const uint32_t room = t_.tableEntries + 8;
        pipe.InitBuffer(buffer_, 4 * room * sizeof(int32_t));
        const AscendC::LocalTensor<int32_t> tables = buffer_.Get<int32_t>();
        const uint64_t n = t_.sequences;
        offsets_.Load(offsets, tables, n + 1, t_.tableEntries);
        if (t_.hasIndices) indices_.Load(indices, tables[room], n, t_.tableEntries);
        if (t_.hasMode) mode_.Load(mode, tables[2 * room], n, t_.tableEntries);
        if (t_.hasAccepted) accepted_.Load(accepted, tables[3 * room], n, t_.tableEntries);
        loaded_ = static_cast<event_t>(GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S));
        AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(loaded_);
    }
    __aicore__ inline void Wait() { AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(loaded_); }

    // Starts over on rows from `low` to `high`. A bound within the first W - 1 rows of a sequence counts as
    // the sequence's begin: rows before a bound are then rows of x, never of a line that another core writes.
    __aicore__ inline void Begin(int64_t low, int64_t high) {
        low_ = low;
        row_ = low;
        high_ = high;
        covered_ = 0;
        next_ = 0;
        waiting_ = false;
    }

    __aicore__ inline bool Next(Part& part) {
        if (!waiting_) waiting_ = Find();
        const int64_t until = waiting_ ? found_.begin : high_;
        if (row_ < until) {
            part.begin = row_;
            part.end = until;
            part.line = -1;
            row_ = until;
            return true;
        }
        if (!waiting_) return false;
        part = found_;
        row_ = part.end;
        waiting_ = false;
        return true;
    }

 private:
    // found_ <- the next active sequence's rows of this core
    __aicore__ inline bool Find() {
        while (next_ < t_.sequences && row_ < high_) {
            const uint32_t index = next_++;
            const int64_t first = offsets_.Get(index), last = offsets_.Get(index + 1);
            if (first < covered_ || last < first || last > int64_t(t_.tokens)) continue;
            covered_ = last;
            if (first == last || last <= low_) continue;
            if (first >= high_) break;
            if (!Describe(index, first, last)) continue;
            found_.begin = Bound(low_);
            found_.end = high_ >= last ? last : Bound(high_);
            if (found_.begin >= found_.end) {
                // The next core has these rows too.
                high_ = first < row_ ? row_ : first;
                break;
            }
            if (found_.begin < row_) row_ = found_.begin;
            if (found_.end < last) high_ = found_.end;
            return true;
        }
        next_ = t_.sequences;
        return false;
    }
    __aicore__ inline int64_t Bound(int64_t row) const {
        return row - found_.first < int64_t(t_.width) - 1 ? found_.first : row;
    }
    // False: padded sequence.
    __aicore__ inline bool Describe(uint32_t index, int64_t first, int64_t last) {
        const int64_t line = t_.hasIndices ? indices_.Get(index) : index;
        if (line < 0 || line >= int64_t(t_.lines) || (t_.hasIndices && line == t_.padLine)) return false;
        found_.first = first;
        found_.last = last;
        found_.line = line;
        found_.window = 0;
        found_.keep = false;
        if (t_.hasAccepted) {
            const int64_t accepted = accepted_.Get(index);
            if (accepted <= 0 || accepted > int64_t(t_.lineRows) - t_.width + 2) return false;
            found_.window = accepted - 1;
            found_.keep = last - first + t_.width - 2 <= t_.lineRows;
        }
        if (!(t_.hasMode ? mode_.Get(index) != 0 : t_.update != 0)) found_.window = -1;
        return true;
    }

    const Data& t_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    IntTable offsets_, indices_, mode_, accepted_;
    event_t loaded_;
    int64_t low_, high_, row_, covered_;
    uint32_t next_;
    bool waiting_;  // found_ stands behind rows that become zero
    Part found_;
};

}  // namespace conv1d
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_CAUSAL_CONV1D_PARTS_H_
