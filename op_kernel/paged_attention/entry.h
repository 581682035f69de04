// What both paged attention kernels do between reading their tiling and returning.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_

#include "merge.h"
#include "vector_kernel.h"
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
#include "cube_kernel_310p.h"
#include "latent_kernel_310p.h"
#else
#include "stream_cube_910b.h"
#include "vector_side_910b.h"
#endif

namespace hybrid_ops {
namespace paged {

// On one of `cores` cores with a vector unit.
template <typename T, class Kernel>
__aicore__ inline void Run(const Data& data, const Arguments& a, uint32_t cores) {
    AscendC::TPipe pipe;
    if (data.merge) ClearCounter(pipe, a);
    {
        Kernel kernel(data);
        kernel.Init(pipe, a);
        kernel.Process(pipe);
    }
    pipe.Reset();
    if (data.merge) {
        Meet(pipe, a);
        Merge<T> merge(data);
        merge.Init(pipe, a);
        merge.Process(cores);
    }
    if (!data.lse) ZeroLse(pipe, data, a.lse, cores);
}

// On a cube core.
template <class Cube>
__aicore__ inline void Feed(const Data& data, const Arguments& a) {
    AscendC::TPipe pipe;
    Cube cube(data);
    cube.Init(pipe, a);
    cube.Process(pipe);
}

template <typename T, bool kLatent, Layout kLayout = Layout::kNd>
__aicore__ inline void RunVector(const Data& data, const Arguments& a) {
    Run<T, VectorKernel<T, kLatent, kLayout>>(data, a, uint32_t(AscendC::GetBlockNum()));
}

template <typename T, bool kLatent, Layout kLayout = Layout::kNd>
__aicore__ inline void RunCube(const Data& data, const Arguments& a) {
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
    const uint32_t cores = uint32_t(AscendC::GetBlockNum());
    if constexpr (kLatent) {
        Run<T, LatentKernel310p<kLayout>>(data, a, cores);
    } else {
        Run<T, CubeKernel310p<kLayout>>(data, a, cores);
    }
#else
    if constexpr (sizeof(T) == 2) {
        if ASCEND_IS_AIC {
            Feed<StreamCube910b<T, kLatent, kLayout>>(data, a);
        }
        if ASCEND_IS_AIV {
            Run<T, VectorSide910b<T>>(data, a, uint32_t(AscendC::GetBlockNum()) * kVectorCores);
        }
    }
#endif
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_
