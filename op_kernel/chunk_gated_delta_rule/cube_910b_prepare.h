// A vector core's part of a chunk before the state is known: gates, masks, the triangular inverse, operands.
//
// Sums G of gates would lose small gates beside big ones, so each gate is an integer plus a fraction, summed
// apart: differences of the integer sums are exact. Differences are formed before Exp and masked before it
// (sums of both signs would overflow), gates are bounded below so that -inf stays a number.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PREPARE_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PREPARE_H_

#include "cube_910b_local.h"

namespace hybrid_ops {
namespace cgdr {
namespace split {

template <typename T>
class Prepare {
 public:
    __aicore__ inline Prepare(const Data& t, const Layout& layout, GM_ADDR workspace, Local<T>& local,
                              const Arguments& a)
        : t_(t), layout_(layout), workspace_(workspace), local_(local) {
        beta_.SetGlobalBuffer((__gm__ T*)a.beta);
        if (t.hasGate) gate_.SetGlobalBuffer((__gm__ float*)a.g);
    }

    // Operands of a chunk of `head` to the workspace, for the cube core; `place`: parity of the chunk. The
    // scores have been awaited.
    __aicore__ inline void Run(const Chunk& c, uint32_t head, uint32_t place, uint32_t unit,
                               uint32_t scores) {
        Load(c, head, place, scores);
        Rates();
        Gates(local_.last[place]);
        Decay();
        Order<HardEvent::MTE2_V>();
        Scores();
        const GlobalTensor<T> operands = Shared<T>(layout_.Operands(place, unit));
        PipeBarrier<PIPE_MTE3>();  // the operands of the chunk before the last are overwritten
        local_.StoreSplit(operands[2 * kScoreOperand * kMatrix], kMatrix, local_.cross, local_.decay,
                          kMatrix);
        PipeBarrier<PIPE_V>();
        AscendC::Axpy(local_.seen, local_.cross, 0.0f, int32_t(kChunk));  // products with the first key
        StoreDiagonals(operands[2 * kOperands * kMatrix], local_.last[place]);
        Invert(c.count);
        const uint64_t lanes = kFloatLanes;
        AscendC::Mul(local_.scores, local_.inverse, local_.row[kBeta], lanes, kChunk, Repeats::ByColumn());
        AscendC::Mul(local_.cross, local_.inverse, local_.row[kBetaDecay], lanes, kChunk,
                     Repeats::ByColumn());
        PipeBarrier<PIPE_V>();
        static_assert(kReadOperand == kValueOperand + 1, "stored together");
        local_.StoreSplitTwo(operands[2 * kValueOperand * kMatrix], local_.scores, local_.decay);
        PipeBarrier<PIPE_V>();
    }

 private:
    // Rows of the workspace, [64] each.
    enum Row {
        kBeta,
        kNegativeBeta,
        kBetaDecay,
        kQueryScale,
        kToEnd,
        kWhole,
        kFraction,
        kSumWhole,
        kSumFraction,
        kTemp
    };
    static constexpr float kLeastGate = -100.0f;  // exp of it is 0 beside any other number of the state
    static constexpr uint32_t kPair = 16;         // lanes of whole and fraction, eight times each

    template <typename U>
    __aicore__ inline GlobalTensor<U> Shared(uint64_t bytes) const {
        GlobalTensor<U> tensor;
        tensor.SetGlobalBuffer((__gm__ U*)(workspace_ + bytes));
        return tensor;
    }

    // Betas and gates of the chunk, its scores on their way; rows and columns beyond it are 0.
    __aicore__ inline void Load(const Chunk& c, uint32_t head, uint32_t place, uint32_t unit) {
        const uint32_t n = c.count;
        if (n != kChunk) {
            AscendC::Duplicate(local_.scratch, 0.0f, int32_t(2 * kMatrix));
            AscendC::Duplicate(local_.gateStage, 0.0f, int32_t(kChunk * 8));
            AscendC::Duplicate(local_.betaStage.template ReinterpretCast<float>(), 0.0f, int32_t(kChunk * 8));
        }
        Order<HardEvent::V_MTE2>();
        const uint64_t first = uint64_t(c.token) * t_.valueHeads + head;
        LoadRows(local_.betaStage, beta_[first], n, 1, t_.valueHeads, 16);
        if (t_.hasGate) LoadRows(local_.gateStage, gate_[first], n, 1, t_.valueHeads, 8);
        const event_t gates = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_V));
        AscendC::SetFlag<HardEvent::MTE2_V>(gates);
        const GlobalTensor<float> scores = Shared<float>(layout_.Scores(place, unit));
        LoadRows(local_.scores, scores, n, n, kChunk, kChunk);
        LoadRows(local_.cross, scores[kMatrix], n, n, kChunk, kChunk);
        AscendC::WaitFlag<HardEvent::MTE2_V>(gates);
    }

    // row[kBeta] <- beta
    __aicore__ inline void Rates() {
        AscendC::Cast(local_.decay, local_.betaStage, AscendC::RoundMode::CAST_NONE, kChunk * 16);
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(local_.inverse, local_.decay, int32_t(16), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::PairReduceSum(local_.row[kBeta], local_.inverse, int32_t(2), int32_t(kFloatLanes), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(local_.row[kNegativeBeta], local_.row[kBeta], -1.0f, int32_t(kChunk));
    }

    // Sums of gates: sums_[64, 16] with the whole part eight times and the fraction eight times, and as rows.
    __aicore__ inline void Gates(const FloatTensor& decay) {
        const FloatTensor sums = local_.inverse, other = local_.inverse[kChunk * kPair];
        sums_ = sums;
        if (!t_.hasGate) {
            AscendC::Duplicate(sums, 0.0f, int32_t(kChunk * kPair));
            PipeBarrier<PIPE_V>();
            Rows(decay);
            return;
        }
        AscendC::Maxs(local_.gateStage, local_.gateStage, kLeastGate, int32_t(kChunk * 8));
        PipeBarrier<PIPE_V>();
        AscendC::BlockReduceSum(local_.row[kTemp], local_.gateStage, int32_t(8), int32_t(kFloatLanes), 1, 1,
                                8);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(local_.row[kWhole], local_.row[kTemp], AscendC::RoundMode::CAST_TRUNC, kChunk);
        PipeBarrier<PIPE_V>();
        AscendC::Sub(local_.row[kFraction], local_.row[kTemp], local_.row[kWhole], int32_t(kChunk));
        PipeBarrier<PIPE_V>();
        AscendC::Brcb(sums, local_.row[kWhole], 8, AscendC::BrcbRepeatParams(2, 16));
        AscendC::Brcb(sums[8], local_.row[kFraction], 8, AscendC::BrcbRepeatParams(2, 16));
        PipeBarrier<PIPE_V>();
        // Each step adds the sum that ends `reach` tokens before.
        for (uint32_t reach = 1, step = 0; reach < kChunk; reach *= 2, ++step) {
            const FloatTensor from = step % 2 == 0 ? sums : other, to = step % 2 == 0 ? other : sums;
            AscendC::Add(to[reach * kPair], from[reach * kPair], from, int32_t((kChunk - reach) * kPair));
            AscendC::Adds(to, from, 0.0f, int32_t(reach * kPair));
            PipeBarrier<PIPE_V>();
        }
        Rows(decay);
    }
    // What depends on G alone: rows over the tokens, and decay[8] <- exp(G_last).
    __aicore__ inline void Rows(const FloatTensor& decay) {
        const FloatTensor *row = local_.row, last = sums_[(kChunk - 1) * kPair];
        AscendC::BlockReduceMax(row[kSumWhole], sums_, int32_t(8), int32_t(kFloatLanes), 1, 2, 16);
        AscendC::BlockReduceMax(row[kSumFraction], sums_[8], int32_t(8), int32_t(kFloatLanes), 1, 2, 16);
        AscendC::Add(decay, last, last[8], int32_t(8));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(decay, decay, int32_t(8));
        AscendC::Add(row[kQueryScale], row[kSumWhole], row[kSumFraction], int32_t(kChunk));
        // last - row, one block against eight
        const AscendC::BinaryRepeatParams against(1, 0, 1, 8, 0, 8);
        AscendC::Sub(row[kToEnd], last, row[kSumWhole], uint64_t(kFloatLanes), 1, against);
        AscendC::Sub(row[kTemp], last[8], row[kSumFraction], uint64_t(kFloatLanes), 1, against);
        PipeBarrier<PIPE_V>();
        AscendC::Add(row[kToEnd], row[kToEnd], row[kTemp], int32_t(kChunk));
        AscendC::Exp(row[kQueryScale], row[kQueryScale], int32_t(kChunk));
        PipeBarrier<PIPE_V>();
        AscendC::Exp(row[kToEnd], row[kToEnd], int32_t(kChunk));
        AscendC::Mul(row[kBetaDecay], row[kNegativeBeta], row[kQueryScale], int32_t(kChunk));
        PipeBarrier<PIPE_V>();
        AscendC::Muls(row[kQueryScale], row[kQueryScale], t_.scale, int32_t(kChunk));
    }

    // decay[j, i] <- exp(G_i - G_j) for j <= i, else 0
    __aicore__ inline void Decay() {
        const FloatTensor &decay = local_.decay, *row = local_.row;
        // inverse beyond the sums is free, but smaller than a matrix: two halves.
        constexpr uint32_t kHalf = kChunk / 2;
        AscendC::Cast(decay, local_.mask, AscendC::RoundMode::CAST_NONE, kMatrix);
        PipeBarrier<PIPE_V>();
        AscendC::Add(decay, decay, row[kSumWhole], uint64_t(kFloatLanes), kChunk, Repeats::ByColumn());
        PipeBarrier<PIPE_V>();
        AscendC::Sub(decay, decay, sums_, uint64_t(kFloatLanes), kChunk, Repeats::ByRow(2));
        for (uint32_t half = 0; half < 2; ++half) {
            const FloatTensor fraction = local_.inverse[kMatrix / 2], part = decay[half * kHalf * kChunk];
            PipeBarrier<PIPE_V>();
            // row - column: -(column - row)
            AscendC::Sub(fraction, row[kSumFraction], sums_[half * kHalf * kPair + 8], uint64_t(kFloatLanes),
                         kHalf, AscendC::BinaryRepeatParams(1, 1, 0, 8, 0, 2));
            PipeBarrier<PIPE_V>();
            AscendC::Add(part, part, fraction, int32_t(kHalf * kChunk));
        }
        PipeBarrier<PIPE_V>();
        AscendC::Exp(decay, decay, int32_t(kMatrix));
        PipeBarrier<PIPE_V>();
    }

    // scores[j, i] <- -beta_i k_i . k_j decay, cross[j, i] <- scale q_i . k_j decay
    __aicore__ inline void Scores() {
        AscendC::Mul(local_.scores, local_.scores, local_.decay, int32_t(kMatrix));
        AscendC::Mul(local_.cross, local_.cross, local_.decay, int32_t(kMatrix));
        PipeBarrier<PIPE_V>();
        AscendC::Mul(local_.scores, local_.scores, local_.row[kNegativeBeta], uint64_t(kFloatLanes), kChunk,
                     Repeats::ByColumn());
        AscendC::Muls(local_.cross, local_.cross, t_.scale, int32_t(kMatrix));
        PipeBarrier<PIPE_V>();
    }

    // inverse <- (I - A)^-1, A[i, j] = scores[j, i] for j < i: row j, once final, is added to all rows below
    // it.
    __aicore__ inline void Invert(uint32_t n) {
        AscendC::Cast(local_.inverse, local_.identity, AscendC::RoundMode::CAST_NONE, kMatrix);
        Broadcast(0);
        PipeBarrier<PIPE_V>();
        for (uint32_t j = 0; j + 1 < n; ++j) {
            const uint32_t below = j + 1, rows = n - below, first = below / 8 * 8;
            const FloatTensor column = local_.column[j & 1][(below - first) * local_.columnStride * 8],
                              product = local_.product[below * kChunk];
            AscendC::Mul(product, local_.inverse[j * kChunk], column, uint64_t(kFloatLanes), uint8_t(rows),
                         AscendC::BinaryRepeatParams(1, 1, 0, 8, 0, uint8_t(local_.columnStride)));
            if (below + 1 < n) Broadcast(below);
            PipeBarrier<PIPE_V>();
            AscendC::Add(local_.inverse[below * kChunk], local_.inverse[below * kChunk], product,
                         int32_t(rows * kChunk));
            PipeBarrier<PIPE_V>();
        }
    }
    // column[j & 1] <- A[i, j] for the rows below j, from the block of eight rows on that holds the first of
    // them
    __aicore__ inline void Broadcast(uint32_t j) {
        const uint32_t first = (j + 1) / 8 * 8;
        AscendC::Brcb(
            local_.column[j & 1], local_.scores[j * kChunk + first], uint8_t((kChunk - first) / 8),
            AscendC::BrcbRepeatParams(uint16_t(local_.columnStride), uint16_t(local_.columnStride * 8)));
    }

    __aicore__ inline void StoreDiagonals(const GlobalTensor<T>& diagonals, const FloatTensor& last) {
        const FloatTensor &blocks = local_.cross, &ones = local_.decay;
        AscendC::Cast(ones, local_.diagonal, AscendC::RoundMode::CAST_NONE, kDiagonal);
        PipeBarrier<PIPE_V>();
        AscendC::Mul(blocks[kQueryDiagonal * kDiagonal], ones, local_.row[kQueryScale], uint64_t(kFloatLanes),
                     16, Repeats::ByColumn());
        AscendC::Mul(blocks[kDecayDiagonal * kDiagonal], ones, local_.row[kToEnd], uint64_t(kFloatLanes), 16,
                     Repeats::ByColumn());
        AscendC::Mul(blocks[kStateDiagonal * kDiagonal], ones, last, uint64_t(kFloatLanes), 16,
                     AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
        PipeBarrier<PIPE_V>();
        local_.StoreSplit(diagonals, kDiagonals * kDiagonal, blocks, ones, kDiagonals * kDiagonal);
        PipeBarrier<PIPE_V>();
    }

    const Data& t_;
    const Layout layout_;
    GM_ADDR workspace_;
    Local<T>& local_;
    GlobalTensor<T> beta_;
    GlobalTensor<float> gate_;
    FloatTensor sums_;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_PREPARE_H_
