// What both paged attention kernels do between reading their tiling and returning.
#ifndef HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_
#define HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_

#include "merge.h"
#include "vector_kernel.h"
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
#include "cube_kernel_310p.h"
#endif

namespace hybrid_ops {
namespace paged {

template <typename T, class Kernel>
__aicore__ inline void Run(const Data& data, const Arguments& a) {
    AscendC::TPipe pipe;
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
        merge.Process();
    }
    if (!data.lse) ZeroLse(pipe, data, a.lse);
}

}  // namespace paged
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_PAGED_ATTENTION_ENTRY_H_
