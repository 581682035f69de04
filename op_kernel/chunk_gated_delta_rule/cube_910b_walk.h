// The items of one AI Core, in the same order on its cube core and its vector cores, and what they tell each
// other.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_WALK_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_WALK_H_

#include "../common/cube_910b.h"
#include "cube_910b_plan.h"
#include "tokens.h"

namespace hybrid_ops {
namespace cgdr {
namespace split {

using AscendC::GlobalTensor;

// Chunks alternate between two places for scores and operands, over all items; states and updates have one
// each. A core that writes a place has awaited the flag that its readers set after the last read:
//   scores, operands: the cube core has awaited kPrepared, the vector cores kUpdated, of the chunk before the
//   last; state, update: kUpdated and kStateReady follow each other.
enum Flag : uint16_t {
    kScored = 0,      // cube: K K^T and K Q^T of the next chunk
    kPrepared = 1,    // vector: its operands
    kUpdated = 2,     // cube: what a chunk adds to the state; everything else of it is read. With a resident
                      // state: the operands of a chunk are read
    kStateReady = 3,  // vector: the state before a chunk, unless it is resident
    kDone = 4,        // cube: all that it stores of an item with chunks
};

struct Chunk {
    int64_t token;   // first packed row
    uint32_t count;  // tokens, 1 ... kChunk
};

// One sequence and up to two units.
struct Work {
    uint32_t sequence;
    int64_t begin, end;
    uint32_t chunks;
    uint32_t unit;   // the first one
    uint32_t units;  // 1 or 2

    // Where the second unit finds its scores: with the first one's, if they share their key head.
    __aicore__ inline bool SharedKey(const Data& t) const;
    __aicore__ inline Chunk At(uint32_t i) const {
        const int64_t token = begin + int64_t(i) * kChunk;
        return {token, uint32_t(end - token < int64_t(kChunk) ? end - token : int64_t(kChunk))};
    }
};

// A unit's place in the tensors.
struct Unit {
    uint32_t head, key;
    uint32_t row, rows;  // of the head's DV

    __aicore__ inline Unit(const Data& t, uint32_t unit)
        : head(unit / t.valueSteps),
          key(head / (t.valueHeads / t.keyHeads)),
          row(unit % t.valueSteps * t.valueStep),
          rows(t.valueDim - row < t.valueStep ? t.valueDim - row : t.valueStep) {}
    __aicore__ inline uint32_t Padded() const { return PadTo(rows, 16); }
};

__aicore__ inline bool Work::SharedKey(const Data& t) const {
    return units == kUnits && Unit(t, unit).key == Unit(t, unit + 1).key;
}

class Walk {
 public:
    __aicore__ inline Walk(const Data& t, GM_ADDR lengths, uint32_t core)
        : t_(t), units_(t.valueHeads * t.valueSteps), pairs_((units_ + kUnits - 1) / kUnits), next_(core) {
        lengths_.SetGlobalBuffer((__gm__ int32_t*)lengths);
        if (t.sequences != 0) length_ = Length();
    }
    // The next item of this core; false when there is none.
    __aicore__ inline bool Next(Work& work) {
        if (t_.sequences == 0) return false;
        const uint32_t sequence = next_ / pairs_;
        if (sequence >= t_.sequences) return false;
        while (sequence_ < sequence) Advance();
        work.sequence = sequence;
        work.begin = begin_;
        work.end = begin_ + length_;
        work.chunks = uint32_t((length_ + kChunk - 1) / kChunk);
        work.unit = next_ % pairs_ * kUnits;
        work.units = units_ - work.unit < kUnits ? units_ - work.unit : kUnits;
        next_ += uint32_t(AscendC::GetBlockNum());
        return true;
    }
    // After the last item: the first row that no sequence covers.
    __aicore__ inline int64_t Covered() {
        while (sequence_ + 1 < t_.sequences) Advance();
        return begin_ + length_;
    }
    __aicore__ inline uint32_t Units() const { return units_; }

 private:
    __aicore__ inline int64_t Length() const {
        const int64_t length = lengths_.GetValue(sequence_), left = int64_t(t_.tokens) - begin_;
        return length <= 0 ? 0 : length < left ? length : left;
    }
    __aicore__ inline void Advance() {
        begin_ += length_;
        ++sequence_;
        length_ = Length();
    }

    const Data& t_;
    GlobalTensor<int32_t> lengths_;
    uint32_t units_, pairs_, next_;
    uint32_t sequence_ = 0;
    int64_t begin_ = 0, length_ = 0;
};

// What the vector cores prepare, each as the sum of two bfloat16 matrices. With D = exp(G_last - G) and
// E[i, j] = exp(G_i - G_j) for j <= i, T = (I + strict_lower(beta K K^T E))^-1:
enum Operand : uint32_t {
    kScoreOperand = 0,  // (Q K^T E scale)^T
    kValueOperand = 1,  // T beta: times V
    kReadOperand = 2,   // -T beta exp(G): times K S
};
enum Diagonal : uint32_t {
    kQueryDiagonal = 0,  // exp(G) scale
    kDecayDiagonal = 1,  // D
    kStateDiagonal = 2,  // exp(G_last): one block is enough
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_WALK_H_
