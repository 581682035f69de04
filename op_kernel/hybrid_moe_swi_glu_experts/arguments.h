// Tensors of a call as both paths see them, and the barrier between its phases.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ARGUMENTS_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ARGUMENTS_H_

#include "../hybrid_moe_swi_glu_experts_tiling.h"

#include "../common/buffers.h"

namespace hybrid_ops {
namespace moe_experts {

using Data = HybridMoeSwiGluExpertsTilingData;

struct Arguments {
    GM_ADDR x;
    GM_ADDR gate;
    GM_ADDR down;
    GM_ADDR offsets;
    GM_ADDR up;
    GM_ADDR y;
    GM_ADDR workspace;
};

template <typename T>
struct Tensors {
    AscendC::GlobalTensor<T> x, gate, up, down, y, act, other;  // act, other: [R, I] in the workspace
    uint64_t projection, matrix;                                // elements per expert: of gate, of one matrix

    __aicore__ inline void Init(const Data& t, const Arguments& a) {
        x.SetGlobalBuffer((__gm__ T*)a.x);
        gate.SetGlobalBuffer((__gm__ T*)a.gate);
        down.SetGlobalBuffer((__gm__ T*)a.down);
        y.SetGlobalBuffer((__gm__ T*)a.y);
        act.SetGlobalBuffer((__gm__ T*)(a.workspace + t.syncBytes));
        other = act[uint64_t(t.rows) * t.inner];  // on the cube path only
        matrix = uint64_t(t.hidden) * t.inner;
        projection = t.fused != 0 ? 2 * matrix : matrix;
        if (t.fused != 0) {
            up = gate[matrix];
        } else {
            up.SetGlobalBuffer((__gm__ T*)a.up);
        }
    }
    // Gate (0) or up (1) of one expert, [I, H].
    __aicore__ inline AscendC::GlobalTensor<T> Projection(uint32_t expert, uint32_t which) const {
        return which == 0 ? gate[expert * projection] : up[expert * projection];
    }
    __aicore__ inline AscendC::GlobalTensor<T> Down(uint32_t expert) const { return down[expert * matrix]; }
};

// All vector cores, once per launch. 310P has it in software: eight words per core in global memory that must
// be zero before the first core arrives: each clears its own in Init, the whole first phase earlier.
template <bool kHardware = Soc::kHardwareBarrier>
class CoreBarrier {
 public:
    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR workspace) {
        if constexpr (!kHardware) {
            const uint32_t words = uint32_t(AscendC::GetBlockNum()) * kWords;
            global_.SetGlobalBuffer((__gm__ int32_t*)workspace, words);
            Reserve(pipe, buffer_, local_, words);
            AscendC::Duplicate(local_, int32_t(0), int32_t(words));
            Order<AscendC::HardEvent::V_MTE3>();
            AscendC::DataCopy(global_[AscendC::GetBlockIdx() * kWords], local_, kWords);
        }
    }
    __aicore__ inline void Wait() {
        if constexpr (kHardware) {
            AscendC::PipeBarrier<PIPE_ALL>();
            AscendC::SyncAll();
        } else {
            AscendC::SyncAll(global_, local_);
        }
    }

 private:
    static constexpr uint32_t kWords = 8;
    AscendC::GlobalTensor<int32_t> global_;
    AscendC::LocalTensor<int32_t> local_;
    Buffer buffer_;
};

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ARGUMENTS_H_
