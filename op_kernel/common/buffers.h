// Local memory that is no queue's.
#ifndef HYBRID_OPS_KERNEL_BUFFERS_H_
#define HYBRID_OPS_KERNEL_BUFFERS_H_

#include "soc.h"

namespace hybrid_ops {

using Buffer = AscendC::TBuf<AscendC::TPosition::VECCALC>;

template <typename T>
__aicore__ inline void Reserve(AscendC::TPipe& pipe, Buffer& buffer, AscendC::LocalTensor<T>& tensor,
                               uint32_t elements) {
    pipe.InitBuffer(buffer, RoundUp(elements * sizeof(T), kBlockBytes));
    tensor = buffer.template Get<T>();
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_BUFFERS_H_
