// Local memory of a vector core on the cube path, and moves of 64 x 64 matrices through it.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_LOCAL_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_LOCAL_H_

#include "../common/buffers.h"
#include "cube_910b_walk.h"

namespace hybrid_ops {
namespace cgdr {
namespace split {

// One row of a 64-column fp32 matrix is one repeat of eight blocks.
struct Repeats {
    // dst = a op b, rows
    __aicore__ static inline AscendC::BinaryRepeatParams Rows() { return {1, 1, 1, 8, 8, 8}; }
    // dst[r, :] = a[r, :] op row[:]
    __aicore__ static inline AscendC::BinaryRepeatParams ByColumn() { return {1, 1, 1, 8, 8, 0}; }
    // dst[r, :] = a[r, :] op column[r], which holds every value eight times, `stride` blocks apart
    __aicore__ static inline AscendC::BinaryRepeatParams ByRow(uint8_t stride) {
        return {1, 1, 0, 8, 8, stride};
    }
};

template <typename T>
class Local {
 public:
    // fp32 [64, 64], used one after the other as the comments at their uses say.
    FloatTensor scores, cross, decay, inverse;
    FloatTensor
        product;        // of the inverse: the one of them that is free then and read beside it in no conflict
    FloatTensor state;  // [rows, keyPitch]
    FloatTensor scratch;    // room for the four matrices as one piece
    FloatTensor column[2];  // [64], each in a block of its own
    uint32_t columnStride;  // blocks: apart from the rows that they are multiplied with, where there is room
    static constexpr uint32_t kRows = 10;
    static constexpr uint32_t kStagger = 64;
    FloatTensor row[kRows];         // [64]
    FloatTensor last[2];            // [8]: exp(G_last), by parity of the chunk
    FloatTensor seen;               // [64]: NaN where a query of the unit's item was not finite, else 0
    FloatTensor gateStage;          // [64, 8]: g in lane 0
    LocalTensor<T> betaStage;       // [64, 16]: beta in lane 0
    LocalTensor<T> diagonal;        // [16, 64]: 1 in row r, columns r, r + 16, r + 32, r + 48
    LocalTensor<T> mask, identity;  // [64, 64]: 0 where column >= row, else far below 0; 1 on the diagonal

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Data& t, uint32_t stateElements, bool resident) {
        Reserve(pipe, matrices_, scratch, 4 * kMatrix + kStagger);
        scores = scratch;
        cross = scratch[kMatrix];
        Reserve(pipe, staged_, parts_, 2 * kPartElements);
        // Operands half the banks' period apart are read without conflicts.
        decay = scratch[2 * kMatrix + kStagger];
        inverse = scratch[3 * kMatrix + kStagger];
        Reserve(pipe, state_, state, resident ? 4 * kMatrix : stateElements);
        if (resident) {
            // Its memory is free, and far enough away that what is read beside does not hold up writes.
            decay = state[2 * kMatrix];
            inverse = scratch[2 * kMatrix];
        }
        product = resident ? decay : cross;
        Reserve(pipe, constants_, mask, 2 * kMatrix + kDiagonal);
        identity = mask[kMatrix];
        diagonal = mask[2 * kMatrix];
        FloatTensor small;
        Reserve(pipe, small_, small, 2 * kChunk * 8 + kRows * kChunk + 64 + kChunk * 8 + kChunk);
        columnStride = resident ? 16 : 1;
        column[0] = resident ? state : small;
        column[1] = resident ? state[kStagger] : small[kChunk * 8];
        for (uint32_t i = 0; i < kRows; ++i) row[i] = small[2 * kChunk * 8 + i * kChunk];
        for (uint32_t i = 0; i < 2; ++i) last[i] = small[2 * kChunk * 8 + kRows * kChunk + i * 8];
        gateStage = small[2 * kChunk * 8 + kRows * kChunk + 64];
        seen = gateStage[kChunk * 8];
        Reserve(pipe, betas_, betaStage, kChunk * 16);
        for (uint32_t i = 0; i < 2; ++i) {
            free_[i] = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE3_V>());
            AscendC::SetFlag<HardEvent::MTE3_V>(free_[i]);
        }
        FillConstants();
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < 2; ++i) {
            AscendC::WaitFlag<HardEvent::MTE3_V>(free_[i]);
            pipe.ReleaseEventID<HardEvent::MTE3_V>(free_[i]);
        }
    }
    // dst: GM of two bfloat16 parts, `apart` elements apart <- src, count elements; `back` is overwritten
    __aicore__ inline void StoreSplit(const GlobalTensor<T>& dst, uint32_t apart, const FloatTensor& src,
                                      const FloatTensor& back, uint32_t count) {
        turn_ ^= 1;
        const LocalTensor<T> high = parts_[turn_ * kPartElements], low = high[kPartElements / 2];
        AscendC::WaitFlag<HardEvent::MTE3_V>(free_[turn_]);
        Split(high, low, src, back, count);
        AscendC::DataCopy(dst, high, count);
        AscendC::DataCopy(dst[apart], low, count);
        AscendC::SetFlag<HardEvent::MTE3_V>(free_[turn_]);
    }
    // As StoreSplit for two matrices, one behind the other as their parts in GM: high, low, high, low.
    __aicore__ inline void StoreSplitTwo(const GlobalTensor<T>& dst, const FloatTensor& src,
                                         const FloatTensor& back) {
        const LocalTensor<T> high = parts_, low = parts_[kPartElements];
        for (uint32_t i = 0; i < 2; ++i) AscendC::WaitFlag<HardEvent::MTE3_V>(free_[i]);
        Split(high, low, src, back, 2 * kMatrix);
        const AscendC::DataCopyParams move(2, kMatrix * sizeof(T) / kBlockBytes, 0,
                                           kMatrix * sizeof(T) / kBlockBytes);
        AscendC::DataCopy(dst, high, move);
        AscendC::DataCopy(dst[kMatrix], low, move);
        for (uint32_t i = 0; i < 2; ++i) AscendC::SetFlag<HardEvent::MTE3_V>(free_[i]);
    }
    // dst <- src, count elements, rounded to U, by way of the parts' memory; rows of `pitch` elements
    template <typename U>
    __aicore__ inline void StoreRounded(const GlobalTensor<U>& dst, const FloatTensor& src, uint32_t rows,
                                        uint32_t n, uint32_t to, uint32_t pitch) {
        turn_ ^= 1;
        const LocalTensor<U> stage = parts_[turn_ * kPartElements].template ReinterpretCast<U>();
        AscendC::WaitFlag<HardEvent::MTE3_V>(free_[turn_]);
        Convert(stage, src, rows * pitch);
        Order<HardEvent::V_MTE3>();
        StoreRows(dst, stage, rows, n, to, pitch);
        AscendC::SetFlag<HardEvent::MTE3_V>(free_[turn_]);
    }
    // Elements that one StoreSplit or StoreRounded can take.
    static constexpr uint32_t kPiece = kMatrix;

 private:
    static constexpr uint32_t kPartElements = 2 * kMatrix;
    // exp of it is 0, whatever the gates; its sum with them stays far from the range of fp32.
    static constexpr float kMasked = -1e9f;

    __aicore__ inline void Split(const LocalTensor<T>& high, const LocalTensor<T>& low,
                                 const FloatTensor& src, const FloatTensor& back, uint32_t count) {
        AscendC::Cast(high, src, AscendC::RoundMode::CAST_RINT, count);
        PipeBarrier<PIPE_V>();
        AscendC::Cast(back, high, AscendC::RoundMode::CAST_NONE, count);
        PipeBarrier<PIPE_V>();
        AscendC::Sub(back, src, back, int32_t(count));
        PipeBarrier<PIPE_V>();
        AscendC::Cast(low, back, AscendC::RoundMode::CAST_RINT, count);
        Order<HardEvent::V_MTE3>();
    }
    __aicore__ inline void FillConstants() {
        // Lane masks of 64 columns: [r, 64) and r.
        AscendC::Duplicate(scores, kMasked, int32_t(kMatrix));
        AscendC::Duplicate(cross, 0.0f, int32_t(kMatrix));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < kChunk; ++r) {
            uint64_t from[2] = {~0ull << r, 0}, one[2] = {1ull << r, 0};
            AscendC::Duplicate(scores[r * kChunk], 0.0f, from, 1, 1, 8);
            AscendC::Duplicate(cross[r * kChunk], 1.0f, one, 1, 1, 8);
        }
        PipeBarrier<PIPE_V>();
        AscendC::Cast(mask, scores, AscendC::RoundMode::CAST_RINT, kMatrix);
        AscendC::Cast(identity, cross, AscendC::RoundMode::CAST_RINT, kMatrix);
        AscendC::Duplicate(decay, 0.0f, int32_t(kDiagonal));
        PipeBarrier<PIPE_V>();
        for (uint32_t r = 0; r < 16; ++r) {
            uint64_t four[2] = {0x0001000100010001ull << r, 0};
            AscendC::Duplicate(decay[r * kChunk], 1.0f, four, 1, 1, 8);
        }
        PipeBarrier<PIPE_V>();
        AscendC::Cast(diagonal, decay, AscendC::RoundMode::CAST_RINT, kDiagonal);
        PipeBarrier<PIPE_V>();
    }

    Buffer matrices_, state_, staged_, constants_, small_, betas_;
    LocalTensor<T> parts_;
    event_t free_[2];
    uint32_t turn_ = 0;
};

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_LOCAL_H_
