// Copies 24 bytes by moves of 32: the last 8 of the read are the allocator's padding.
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void over_read(GM_ADDR x, GM_ADDR y) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 32);
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float*)x, 6);
    to.SetGlobalBuffer((__gm__ float*)y, 8);
    LocalTensor<float> tile = buffer.Get<float>();
    DataCopy(tile, from, 8);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(to, tile, 8);
}
