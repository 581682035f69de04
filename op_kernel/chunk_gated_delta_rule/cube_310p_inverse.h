// T^T, T = (I + A)^-1 of a chunk, A [64, 64] strictly lower.
//
// Blocks of 8 x 8 on the diagonal by forward substitution in fp32, all eight at once: lane b of a vector
// belongs to block b. From there Newton steps X <- (2 I - X (I + A)) X on the cube unit, each of which
// doubles the blocks that are exact. A is split into two halves; of X one rounding is enough, since a step
// corrects what the one before lost.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_INVERSE_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_INVERSE_H_

#include "cube_310p_parts.h"

namespace hybrid_ops {
namespace cgdr {

class CubeInverse {
 public:
    static constexpr uint32_t kSteps = 4;

    __aicore__ inline explicit CubeInverse(CubeWork& work) : work_(work) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        Reserve(pipe, buffers_[0], gatherBlocks_, kLanes8);
        Reserve(pipe, buffers_[1], gatherRows_, kLanes8);
        Reserve(pipe, buffers_[2], strict_, 64);
        Reserve(pipe, buffers_[3], minusOne_, 64);
        Reserve(pipe, buffers_[4], two_, kFractalElements);
        FillTables();
        // Fractals off the diagonal stay zero.
        AscendC::Duplicate(work_.BeginSquare(0), half(0), int32_t(kSquare));
        work_.Send(work_.blocks, work_.narrow[0], kSquare);
    }

    // square[0]: -A with anything on the diagonal.
    __aicore__ inline void Start() {
        const FloatTensor minus = work_.square[0];
        Diagonal<OnDiagonal::kMul>(minus, strict_);
        PipeBarrier<PIPE_V>();
        Diagonal<OnDiagonal::kAdd>(minus, minusOne_);
        HalfTensor& high = work_.BeginSquare(0);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(high, minus, AscendC::RoundMode::CAST_NONE, kSquare);
        work_.Send(work_.system[0], work_.narrow[0], kSquare);
        work_.BeginSquare(1);
    }
    // The blocks on the diagonal, from what Start left, and between their steps, which are short, what
    // rounding lost. Uses square[1].
    __aicore__ inline void Substitute() {
        const FloatTensor minus = work_.square[0], a = work_.square[1], t = a[kLanes8], fractals = t[kLanes8];
        PipeBarrier<PIPE_V>();
        AscendC::Gather(a, minus, gatherBlocks_, uint32_t(0), kLanes8);  // [row, column, block]
        AscendC::Duplicate(t, 0.0f, int32_t(kLanes8));
        AscendC::Duplicate(fractals, 0.0f, int32_t(kColumn));
        Lose(0);
        PipeBarrier<PIPE_V>();
        Lose(1);
        AscendC::Duplicate(t, 1.0f, uint64_t(kFloatLanes), uint8_t(1), uint16_t(9), uint8_t(8));
        for (uint32_t j = 0; j < 7; ++j) {
            PipeBarrier<PIPE_V>();
            Lose(j + 2);
            const uint32_t row = (j + 1) * kFloatLanes;
            AscendC::MulAddDst(t[row], a[row + j * kFloatBlock], t[j * kFloatLanes],
                               uint64_t((j + 1) * kFloatBlock), uint8_t(7 - j),
                               AscendC::BinaryRepeatParams(1, 0, 1, 8, 8, 0));
        }
        PipeBarrier<PIPE_V>();
        AscendC::Gather(a, t, gatherRows_, uint32_t(0), kLanes8);  // [64 rows, 8]
        PipeBarrier<PIPE_V>();
        for (uint32_t odd = 0; odd < 2; ++odd) {
            AscendC::Adds(fractals[odd * kSecondBlock], a[odd * kFloatLanes], 0.0f, uint64_t(kFloatLanes),
                          uint8_t(4), AscendC::UnaryRepeatParams(2, 1, 32, 16));
        }
        work_.Send(work_.system[1], work_.narrow[1], kSquare);
        HalfTensor& rounded = work_.BeginSquare(0);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(rounded, fractals, AscendC::RoundMode::CAST_NONE, kColumn);
        work_.cube.FillDiagonal(work_.blocks, rounded);
        work_.narrow[0].moved = work_.moved.Raise();
    }

    // A step is Try, Turn, Take, each with the product that the next one waits for; other vector work may
    // come between them. Uses square[0].
    __aicore__ inline void Try(uint32_t step) {
        constexpr uint32_t n = kChunkTokens;
        // What rounding A lost counts in the last step, which corrects the others.
        const bool last = step + 1 == kSteps;
        work_.cube.Multiply(work_.trial, {&work_.system[0], true}, {&Current(step), true}, n, n, n, false,
                            !last);
        if (!last) return;
        work_.cube.Multiply(work_.trial, {&work_.system[1], true}, {&Current(step), true}, n, n, n, true);
    }
    __aicore__ inline void Turn(uint32_t step) {
        constexpr uint32_t n = kChunkTokens;
        HalfTensor& square = work_.BeginSquare(step & 1);
        work_.cube.Fetch(square, work_.trial, kSquare);
        PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < kFractalElements; i += 2 * kFloatLanes) {
            AscendC::Add(square[i], square[i], two_[i], uint64_t(2 * kFloatLanes), uint8_t(4),
                         AscendC::BinaryRepeatParams(1, 1, 1, kDiagonalStep / 2, kDiagonalStep / 2, 0));
        }
        work_.Send(work_.residual, work_.narrow[step & 1], kSquare);
        if (step + 1 < kSteps) {
            work_.cube.Multiply(work_.trial, {&work_.residual, true}, {&Current(step), false}, n, n, n,
                                false);
        } else {
            work_.cube.Multiply(work_.trial, {&Current(step), true}, {&work_.residual, false}, n, n, n,
                                false);
        }
    }
    // The last one leaves T^T in solved.
    __aicore__ inline void Take(uint32_t step) {
        if (step + 1 < kSteps) {
            HalfTensor& to = work_.BeginSquare(~step & 1);
            work_.cube.Fetch(to, work_.trial, kSquare);
            work_.Send(work_.inverse, work_.narrow[~step & 1], kSquare);
        } else {
            work_.cube.Fetch(work_.solved.data, work_.trial, kSquare);
        }
    }

 private:
    static constexpr uint32_t kLanes8 = 512;  // 8 x 8 blocks, a lane each

    // narrow[1] <- what rounding square[0] to narrow[0] lost: three steps for each half of it.
    __aicore__ inline void Lose(uint32_t step) const {
        constexpr uint32_t n = kSquare / 2;
        if (step >= 6) return;
        const uint32_t at = step / 3 * n;
        const FloatTensor rest = work_.square[1][n];
        if (step % 3 == 0) {
            AscendC::Cast(rest, work_.narrow[0].data[at], AscendC::RoundMode::CAST_NONE, n);
        } else if (step % 3 == 1) {
            AscendC::Sub(rest, work_.square[0][at], rest, int32_t(n));
        } else {
            AscendC::Cast(work_.narrow[1].data[at], rest, AscendC::RoundMode::CAST_NONE, n);
        }
    }
    __aicore__ inline CubeTile& Current(uint32_t step) const {
        return step == 0 ? work_.blocks : work_.inverse;
    }

    __aicore__ inline void FillTables() {
        const LocalTensor<int32_t> blocks = gatherBlocks_.template ReinterpretCast<int32_t>();
        const LocalTensor<int32_t> rows = gatherRows_.template ReinterpretCast<int32_t>();
        for (uint32_t b = 0; b < 8; ++b) {
            // First element of block b of the diagonal, bytes, in columns of fractals.
            blocks.SetValue(b, int32_t((b / 2 * 1280 + b % 2 * kSecondBlock) * sizeof(float)));
            rows.SetValue(b, int32_t(b * kBlockBytes));
        }
        FillBlock(strict_, 1.0f, 0.0f, 0.0f);
        FillBlock(minusOne_, 0.0f, -1.0f, 0.0f);
        for (uint32_t i = 0; i < kFractalElements; ++i) {
            two_.SetValue(i, i % (kFractal + 1) == 0 ? half(2) : half(0));
        }
        Order<HardEvent::S_V>();
        FillTable(blocks, 8, 8, sizeof(float));
        FillTable(blocks, 64, 8, int32_t(kFractal * sizeof(float)));
        FillTable(rows, 8, 8, 8 * kBlockBytes);
        FillTable(rows, 64, 8, sizeof(float));
    }

    CubeWork& work_;
    LocalTensor<uint32_t> gatherBlocks_, gatherRows_;  // bytes
    FloatTensor strict_, minusOne_;                    // 8 x 8: 1 below the diagonal; on it -1
    HalfTensor two_;                                   // 2 I, a fractal
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffers_[5];
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_INVERSE_H_
