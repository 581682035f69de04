// What the steps of the cube path share on ascend310p: items, chunks, their matrices in unified buffer, L1
// and L0C, and vector calls on squares in columns of fractals.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_PARTS_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_PARTS_H_

#include "../chunk_gated_delta_rule_tiling.h"
#include "../common/buffers.h"
#include "../common/cube_310p.h"
#include "../common/sequence_walk.h"

namespace hybrid_ops {
namespace cgdr {

using Data = ChunkGatedDeltaRuleTilingData;
using AscendC::HardEvent;
using AscendC::LocalTensor;
using AscendC::PipeBarrier;
using HalfTensor = LocalTensor<half>;

constexpr uint32_t kSquare = kChunkSquare;
constexpr uint32_t kColumn = kChunkTokens * kFractal;  // elements of a column of fractals of a chunk
constexpr uint32_t kDiagonalStep = 160;  // 32-byte blocks between diagonal fractals of an fp32 square
constexpr uint32_t kSecondBlock = 136;   // elements from the first 8 x 8 block of such a fractal to the last

// A value head's columns [column, column + columns) of DV.
struct CubeItem {
    uint32_t head, key, column, columns;
    __aicore__ inline void Set(const Data& t, uint32_t index) {
        head = index / t.valueSteps;
        key = head / (t.valueHeads / t.keyHeads);
        column = index % t.valueSteps * t.valueStep;
        columns = t.valueDim - column < t.valueStep ? t.valueDim - column : t.valueStep;
    }
};

// Consecutive tokens of one sequence, for one item; none: count 0.
struct Chunk {
    int64_t token;
    uint32_t count;
    bool first;  // of its sequence
    CubeItem item;
};

// Unified buffer that moves to L1 or global memory read.
struct Outgoing {
    HalfTensor data;
    uint32_t moved = kNoFlag;  // MTE3_V
};

// Rows of a chunk: K and Q, one above the other, and V.
struct CubeInputs {
    CubeTile tokens, value;
};

// What a chunk needs beside its inputs once the state before it is known.
struct CubePrepared {
    CubeTile scaled;           // exp(G_n - G) K above exp(G) Q
    CubeTile attention;        // Q K^T o E
    CubeTile solveValue;       // transposed: T diag(beta)
    CubeTile solveRead;        // transposed: -T diag(beta exp(G))
    FloatTensor whole;         // exp(G_n), eight times
    FloatTensor rise, swell;   // c of CubeGates and exp(64 c), each eight times
    HalfTensor peak;           // the largest |v|
    uint32_t known = kNoFlag;  // V_S: these can be read
    float growth = 0.0f;       // c
    float kept = 1.0f;         // exp(G_n)
    float values = 0.0f;       // the largest |v|
    uint32_t forgets = 0;      // tokens up to the first one that knows nothing of the state before
};

// Matrices of chunks of 64 rows; S^T is the state [columns, DK].
struct CubeWork {
    Cube310p cube;
    FlagPool<HardEvent::MTE3_V> moved;
    FlagPool<HardEvent::V_S> known;

    FloatTensor state;       // S^T, fp32
    FloatTensor landing;     // results
    FloatTensor square[2];   // [64, 64]
    FloatTensor decay;       // [64, 64]: E, zero above the diagonal
    HalfTensor rowsOfState;  // [columns, DK]: where front and back are
    Outgoing front, back;    // halves of S^T; back: [64, columns]
    Outgoing narrow[2];      // [64, 64]: where back is
    Outgoing tokens;         // [2 * 64, DK]: K, Q
    Outgoing out;            // rows [64, columns]
    Outgoing solved;         // [64, 64] twice: where square[0] is

    CubeInputs inputs[3];
    CubePrepared prepared[2];
    CubeTile initial;                    // state of the next sequence, rows [columns, DK]
    CubeTile states, read, delta;        // S^T, K S, U
    CubeTile inverse, residual, blocks;  // of CubeInverse
    CubeTile system[2];                  // -(I + A), and what rounding it lost
    CubeSum scores, trial, readSum, deltaSum, outSum, stateSum;

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& t) {
        const uint32_t k = t.keyDim, v = t.valueStep, n = kChunkTokens;
        cube.Init(pipe, kL0cElements, CubeTileHalves(t));
        moved.Init(pipe);
        known.Init(pipe);
        Reserve(pipe, buffers_[0], state, v * k);
        Reserve(pipe, buffers_[1], landing, CubeLanding(t));
        Reserve(pipe, buffers_[2], square[0], kSquare);
        Reserve(pipe, buffers_[3], square[1], kSquare);
        solved.data = square[0].template ReinterpretCast<half>();
        Reserve(pipe, buffers_[4], decay, kSquare);
        Reserve(pipe, buffers_[5], rowsOfState, CubeFront(t) + CubeBack(t));
        front.data = rowsOfState;
        back.data = narrow[0].data = rowsOfState[CubeFront(t)];
        narrow[1].data = narrow[0].data[kSquare];
        Reserve(pipe, buffers_[6], tokens.data, 2 * n * k);
        Reserve(pipe, buffers_[7], out.data, n * v);
        Reserve(pipe, buffers_[8], factors_, 8 * kFloatBlock);
        for (uint32_t i = 0; i < 3; ++i) {
            cube.Tile(inputs[i].tokens, 2 * n, k);
            cube.Tile(inputs[i].value, n, v);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            cube.Tile(prepared[i].scaled, 2 * n, k);
            cube.Tile(prepared[i].attention, n, n);
            cube.Tile(prepared[i].solveValue, n, n);
            cube.Tile(prepared[i].solveRead, n, n);
            prepared[i].whole = factors_[i * 4 * kFloatBlock];
            prepared[i].rise = prepared[i].whole[kFloatBlock];
            prepared[i].swell = prepared[i].rise[kFloatBlock];
            prepared[i].peak = prepared[i].swell[kFloatBlock].template ReinterpretCast<half>();
            cube.Tile(system[i], n, n);
        }
        cube.Tile(states, v, k);
        cube.Tile(initial, v, k);
        cube.Tile(read, n, v);
        cube.Tile(delta, n, v);
        cube.Tile(inverse, n, n);
        cube.Tile(residual, n, n);
        cube.Tile(blocks, n, n);
        cube.Sum(scores, 2 * kSquare);
        cube.Sum(trial, kSquare);
        cube.Sum(readSum, n * v);
        cube.Sum(deltaSum, n * v);
        cube.Sum(outSum, n * v);
        cube.Sum(stateSum, v * k);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        cube.Finish(scores);
        cube.Finish(trial);
        cube.Finish(readSum);
        cube.Finish(deltaSum);
        cube.Finish(outSum);
        cube.Finish(stateSum);
        BeginRows();
        moved.Take(tokens.moved);
        moved.Take(out.moved);
        moved.Take(solved.moved);
        moved.Release(pipe);
        known.Take(prepared[0].known);
        known.Take(prepared[1].known);
        known.Release(pipe);
        cube.Release(pipe);
    }

    // out is free to be written by the vector unit.
    __aicore__ inline HalfTensor& Begin(Outgoing& buffer) {
        moved.Take(buffer.moved);
        return buffer.data;
    }
    __aicore__ inline HalfTensor& BeginBack() {
        moved.Take(narrow[0].moved);
        moved.Take(narrow[1].moved);
        return Begin(back);
    }
    __aicore__ inline HalfTensor& BeginSquare(uint32_t i) {
        moved.Take(back.moved);
        return Begin(narrow[i]);
    }
    __aicore__ inline HalfTensor& BeginRows() {
        Begin(front);
        BeginBack();
        return rowsOfState;
    }
    // tile, from element `at` on <- `elements` of the buffer, which the vector unit has written
    __aicore__ inline void Send(CubeTile& tile, Outgoing& buffer, uint32_t elements, uint32_t at = 0) {
        cube.Fill(tile, buffer.data, elements, at);
        buffer.moved = moved.Raise();
    }
    // tile <- a square, rounded
    __aicore__ inline void SendSquare(CubeTile& tile, uint32_t i, const FloatTensor& src) {
        HalfTensor& to = BeginSquare(i);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(to, src, AscendC::RoundMode::CAST_NONE, kSquare);
        Send(tile, narrow[i], kSquare);
    }
    // tile, from element `at` on <- at most CubeBack elements, rounded
    __aicore__ inline void SendBack(CubeTile& tile, const FloatTensor& src, uint32_t elements,
                                    uint32_t at = 0) {
        HalfTensor& to = BeginBack();
        PipeBarrier<PIPE_V>();
        AscendC::Cast(to, src, AscendC::RoundMode::CAST_NONE, elements);
        Send(tile, back, elements, at);
    }
    // tile <- at most CubeBack elements of a sum, rounded
    __aicore__ inline void SendSum(CubeTile& tile, CubeSum& sum, uint32_t elements) {
        HalfTensor& to = BeginBack();
        cube.Fetch(to, sum, elements);
        Send(tile, back, elements);
    }

 private:
    FloatTensor factors_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffers_[9];
};

// m [64, 64] *= column [64, 16], each row by its value.
__aicore__ inline void ScaleRows(const FloatTensor& m, const FloatTensor& column) {
    for (uint32_t c = 0; c < kSquare; c += kColumn) {
        AscendC::Mul(m[c], m[c], column, uint64_t(kFloatLanes), uint8_t(kColumn / kFloatLanes),
                     AscendC::BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    }
}
// dst [64, 64] <- m [64, 64], each row by its value in column [64, 16].
__aicore__ inline void ScaleRows(const HalfTensor& dst, const HalfTensor& m, const HalfTensor& column) {
    for (uint32_t c = 0; c < kSquare; c += kColumn) {
        AscendC::Mul(dst[c], m[c], column, int32_t(kColumn));
    }
}
enum class OnDiagonal { kMin, kMul, kAdd };
// The 8 x 8 blocks on the diagonal of m [64, 64] <- call(block, other [8, 8])
template <OnDiagonal call>
__aicore__ inline void Diagonal(const FloatTensor& m, const FloatTensor& other) {
    const AscendC::BinaryRepeatParams repeat(2, 2, 1, kDiagonalStep, kDiagonalStep, 0);
    for (uint32_t i = 0; i <= kSecondBlock; i += kSecondBlock) {
        if constexpr (call == OnDiagonal::kMin) {
            AscendC::Min(m[i], m[i], other, uint64_t(kFloatLanes), uint8_t(4), repeat);
        } else if constexpr (call == OnDiagonal::kMul) {
            AscendC::Mul(m[i], m[i], other, uint64_t(kFloatLanes), uint8_t(4), repeat);
        } else {
            AscendC::Add(m[i], m[i], other, uint64_t(kFloatLanes), uint8_t(4), repeat);
        }
    }
}
// block [8, 8] <- below, on and above its diagonal
__aicore__ inline void FillBlock(const FloatTensor& block, float below, float on, float above) {
    for (uint32_t r = 0; r < 8; ++r) {
        for (uint32_t c = 0; c < 8; ++c) block.SetValue(r * 8 + c, c < r ? below : c == r ? on : above);
    }
}

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_310P_PARTS_H_
