// A few tokens of one sequence on an item's rows, products on the vector unit.
//
// The chunk form of the rule for n <= kStepTokens tokens. With E_ij the decay from j to i, a product of
// single decays that is 1 for i = j and needs no sum of gates, and S the state before the step:
//   d_i = beta_i (v_i - E_i S k_i - sum_{j<i} E_ij (k_i . k_j) d_j)       E_i: from S to i
//   out_i = scale (E_i S q_i + sum_{j<=i} E_ij (q_i . k_j) d_j)
//   S <- E_n S + sum_j E_nj d_j k_j^T
// so that S is decayed once for n tokens. The products of two matrices are ReadState (S K^T, S Q^T),
// WriteState (D^T K) and Tokens::PreparePairs (K K^T, Q K^T); Solve is what lies between them. A decay of
// exactly 0 assigns: what it forgets may be infinite, and 0 * inf is not 0.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_STEP_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_STEP_H_

#include "tokens.h"

namespace hybrid_ops {
namespace cgdr {

template <typename T, bool kTail>
class VectorStep {
 public:
    __aicore__ inline VectorStep(const Data& t, const Rows& rows, const Item& item, Workspace& work,
                                 Tokens<T, kTail>& tokens)
        : t_(t), rows_(rows), item_(item), work_(work), tokens_(tokens) {}

    // Rows of the item by value head and by key head.
    __aicore__ inline void SetItem() {
        const uint32_t share = t_.valueHeads / t_.keyHeads, end = item_.row + item_.rows;
        headCount_ = 0;
        keyCount_ = 0;
        prepared_ = -1;
        for (uint32_t row = item_.row; row < end;) {
            const uint32_t head = row / t_.valueDim, headEnd = (head + 1) * t_.valueDim;
            Segment& s = heads_[headCount_++];
            s.row = row - item_.row;
            s.rows = (headEnd < end ? headEnd : end) - row;
            s.head = head;
            s.key = head / share - item_.key;
            row += s.rows;
            if (keyCount_ != 0 && keys_[keyCount_ - 1].key == s.key) {
                keys_[keyCount_ - 1].rows += s.rows;
            } else {
                keys_[keyCount_++] = s;
            }
        }
    }

    // Reads the scalars of n tokens of the current block, ahead of their Run or of the end of the Run before.
    __aicore__ inline void Prepare(int64_t token, uint32_t n) {
        if (n == 0 || prepared_ == token) return;
        prepared_ = token;
        parity_ ^= 1;
        for (uint32_t h = 0; h < headCount_; ++h) SetFactors(factors_[parity_][h], heads_[h], token, n);
    }

    // work_.state <- the state after n tokens, which are prepared; work_.readQuery [n, rowPitch] <- their out
    // rows. Meanwhile what comes next is prepared: `following` tokens of the same block, or the next block.
    __aicore__ inline void Run(int64_t token, uint32_t n, uint32_t following) {
        token_ = token;
        count_ = n;
        current_ = factors_[parity_];
        for (uint32_t h = 0; h < headCount_; ++h) {
            const Segment& s = heads_[h];
            for (uint32_t i = 0; i < n; ++i) {
                AscendC::Muls(work_.delta[At(i, s)], tokens_.Values(token + i)[s.row], current_[h].beta[i],
                              int32_t(s.rows));
            }
        }
        ReadState();
        if (token + n == tokens_.EndOf(token)) tokens_.Ahead();
        Prepare(token + n, following);
        AddOld();
        for (uint32_t stage = 0; stage < n + 3; ++stage) {
            if (stage < n) Solve(stage);
            WriteState(stage);
            PipeBarrier<PIPE_V>();
        }
        // Columns stood where sums expect zero in the lanes of absent blocks.
        if (rows_.slots * kFloatLanes == t_.keyPitch) return;
        for (uint32_t i = 0; i < 2; ++i) Workspace::Zero(work_.partial[i]);
        PipeBarrier<PIPE_V>();
    }

 private:
    struct Segment {
        uint32_t row, rows, head, key;
    };
    // Scalars of one value head; fromState[i] = E_i, toEnd[j] = E_nj, pairs by i and j < i, or j <= i.
    struct Factors {
        float beta[kStepTokens], fromState[kStepTokens], toEnd[kStepTokens];
        float solve[kStepTokens][kStepTokens];  // -beta_i E_ij (k_i . k_j)
        float read[kStepTokens][kStepTokens];   // scale E_ij (q_i . k_j)
    };
    static constexpr uint32_t kMostHeads = kMostRows / 16 + 2;

    __aicore__ inline uint32_t At(uint32_t i, const Segment& s) const { return i * t_.rowPitch + s.row; }

    __aicore__ inline void SetFactors(Factors& f, const Segment& s, int64_t first, uint32_t n) const {
        float decays[kStepTokens];  // E_ij of the current i
        float all = 1.0f;
        for (uint32_t i = 0; i < n; ++i) {
            const int64_t token = first + i;
            const float decay = tokens_.Decay(token, s.head), beta = tokens_.Beta(token, s.head);
            all *= decay;
            f.beta[i] = beta;
            f.fromState[i] = all;
            for (uint32_t j = 0; j < i; ++j) {
                decays[j] *= decay;
                const bool gone = decays[j] == 0.0f;
                f.solve[i][j] = gone ? 0.0f : -beta * decays[j] * tokens_.KeyKey(token, i - j, s.key);
                f.read[i][j] = gone ? 0.0f : t_.scale * decays[j] * tokens_.QueryKey(token, i - j, s.key);
            }
            decays[i] = 1.0f;
            f.read[i][i] = t_.scale * tokens_.QueryKey(token, 0, s.key);
        }
        for (uint32_t j = 0; j < n; ++j) f.toEnd[j] = decays[j];
    }

    // readKey_i <- S k_i, readQuery_i <- S q_i, one vector after the other. Each sweep of the state overlaps
    // with the reduction trees of the sweeps before it, one level a stage; the decay of S, with the last
    // ones.
    __aicore__ inline void ReadState() {
        const uint32_t vectors = 2 * count_, last = rows_.levels - 1;
        for (uint32_t stage = 0; stage < vectors + rows_.levels + 1; ++stage) {
            for (uint32_t level = rows_.levels; level-- > 0;) {
                const uint32_t v = stage - level - 2;  // wraps around where there is none yet
                if (v >= vectors) continue;
                const FloatTensor& sum = (v & 1) == 0 ? work_.readKey : work_.readQuery;
                rows_.SumLevel(level, level == last ? sum[v / 2 * t_.rowPitch] : work_.level[level][v & 1],
                               level == 0 ? work_.partial[v & 1] : work_.level[level - 1][v & 1], item_.rows);
            }
            if (stage - 1 < vectors) {
                rows_.SumBlocks(work_.partial[(stage - 1) & 1], work_.product, item_.rows);
            }
            if (stage < vectors) {
                const int64_t token = token_ + stage / 2;
                for (uint32_t k = 0; k < keyCount_; ++k) {
                    const Segment& s = keys_[k];
                    const uint32_t at = s.row * t_.keyPitch;
                    rows_.Scale(work_.product[at], work_.state[at],
                                (stage & 1) == 0 ? tokens_.Key(token, s.key) : tokens_.Query(token, s.key),
                                s.rows);
                }
            }
            if (stage == vectors) DecayState();
            PipeBarrier<PIPE_V>();
        }
    }

    // state <- E_n state
    __aicore__ inline void DecayState() {
        if (!t_.hasGate) return;
        for (uint32_t h = 0; h < headCount_; ++h) {
            const float decay = current_[h].fromState[count_ - 1];
            const FloatTensor state = work_.state[heads_[h].row * t_.keyPitch];
            const int32_t elements = int32_t(heads_[h].rows * t_.keyPitch);
            if (decay == 0.0f) {
                AscendC::Duplicate(state, 0.0f, elements);
            } else {
                AscendC::Muls(state, state, decay, elements);
            }
        }
    }

    // What the state before the step contributes to each token.
    __aicore__ inline void AddOld() {
        for (uint32_t h = 0; h < headCount_; ++h) {
            const Segment& s = heads_[h];
            const Factors& f = current_[h];
            for (uint32_t i = 0; i < count_; ++i) {
                const FloatTensor out = work_.readQuery[At(i, s)];
                if (f.fromState[i] == 0.0f) {
                    AscendC::Duplicate(out, 0.0f, int32_t(s.rows));
                    continue;
                }
                AscendC::Axpy(work_.delta[At(i, s)], work_.readKey[At(i, s)], -f.beta[i] * f.fromState[i],
                              int32_t(s.rows));
                AscendC::Muls(out, out, t_.scale * f.fromState[i], int32_t(s.rows));
            }
        }
        PipeBarrier<PIPE_V>();
    }

    // delta_j is final: what it adds to later ones, to out and to the state.
    __aicore__ inline void Solve(uint32_t j) {
        for (uint32_t h = 0; h < headCount_; ++h) {
            const Segment& s = heads_[h];
            const Factors& f = current_[h];
            const FloatTensor delta = work_.delta[At(j, s)];
            const int32_t n = int32_t(s.rows);
            for (uint32_t i = j + 1; i < count_; ++i) {
                if (f.solve[i][j] != 0.0f) AscendC::Axpy(work_.delta[At(i, s)], delta, f.solve[i][j], n);
            }
            if (f.toEnd[j] == 0.0f) {
                AscendC::Duplicate(work_.decayed[At(j, s)], 0.0f, n);
            } else {
                AscendC::Muls(work_.decayed[At(j, s)], delta, f.toEnd[j], n);
            }
            for (uint32_t i = j; i < count_; ++i) {
                if (f.read[i][j] != 0.0f) AscendC::Axpy(work_.readQuery[At(i, s)], delta, f.read[i][j], n);
            }
        }
    }

    // state <- state + decayed_j k_j^T, a token a stage: its column, its product, its sum follow each other.
    __aicore__ inline void WriteState(uint32_t stage) {
        const uint32_t n = item_.rows;
        if (stage - 1 < count_) {
            BroadcastColumn(work_.column[(stage - 1) & 1], work_.decayed[(stage - 1) * t_.rowPitch],
                            work_.broadcast, n);
        }
        if (stage - 3 < count_) {
            AscendC::Add(work_.state, work_.state, work_.product, int32_t(n * t_.keyPitch));
        }
        if (stage - 2 < count_) {
            for (uint32_t k = 0; k < keyCount_; ++k) {
                const Segment& s = keys_[k];
                rows_.Outer(work_.product[s.row * t_.keyPitch],
                            work_.column[(stage - 2) & 1][s.row * kFloatBlock],
                            tokens_.Key(token_ + stage - 2, s.key), s.rows);
            }
            for (uint32_t h = 0; h < headCount_; ++h) {
                if (current_[h].toEnd[stage - 2] != 0.0f) continue;
                PipeBarrier<PIPE_V>();
                AscendC::Duplicate(work_.product[heads_[h].row * t_.keyPitch], 0.0f,
                                   int32_t(heads_[h].rows * t_.keyPitch));
            }
        }
    }

    const Data& t_;
    const Rows& rows_;
    const Item& item_;
    Workspace& work_;
    Tokens<T, kTail>& tokens_;
    Segment heads_[kMostHeads], keys_[kMostHeads];
    Factors factors_[2][kMostHeads];  // of the tokens under way and of those that come next
    const Factors* current_ = nullptr;
    uint32_t parity_ = 0;
    int64_t prepared_ = -1;  // first token that the younger factors belong to
    uint32_t headCount_ = 0, keyCount_ = 0;
    int64_t token_ = 0;
    uint32_t count_ = 0;
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_STEP_H_
