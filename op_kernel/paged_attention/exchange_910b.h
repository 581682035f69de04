// Paged attention on split cores (ascend910b): what the cube core and its two vector cores exchange. Scores,
// weights and sums of a tile go through the workspace, in columns of fractals, each in places that take
// turns.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_EXCHANGE_910B_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_EXCHANGE_910B_H_

#include "../common/cube_910b.h"
#include "fractal_softmax.h"
#include "pages.h"

namespace hybrid_ops {
namespace paged {

using AscendC::GlobalTensor;
using AscendC::HardEvent;

// Flags between the cores.
constexpr uint16_t kScored = 0, kWeighed = 1, kSummed = 2;
constexpr uint32_t kVectorCores = 2;  // of an AI Core

// Workspace of one AI Core, behind the partial results.
template <typename T>
struct Shared {
    GlobalTensor<float> scores[kScorePlaces], sums[2];
    GlobalTensor<T> weights[2];
    __aicore__ inline void Init(const Data& t, GM_ADDR workspace, uint32_t core) {
        GM_ADDR at = workspace + t.partialBytes + uint64_t(core) * t.sharedBytes;
        const uint64_t scoreElements = uint64_t(t.blockRows) * t.tile;
        const uint64_t sumElements = uint64_t(t.blockRows) * t.valueDim;
        for (uint32_t i = 0; i < kScorePlaces; ++i) {
            scores[i].SetGlobalBuffer((__gm__ float*)at);
            at += scoreElements * sizeof(float);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            sums[i].SetGlobalBuffer((__gm__ float*)at);
            at += sumElements * sizeof(float);
            weights[i].SetGlobalBuffer((__gm__ T*)at);
            at += scoreElements * sizeof(T);
        }
    }
};

// Rows that the cores exchange: those of the block, but at least two, as with m = 1 the unit would read the
// left operand as a plain row.
__aicore__ inline uint32_t SharedRows(const Block& block) { return block.rows < 2 ? 2 : block.rows; }

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_EXCHANGE_910B_H_
