// Calls that ascend910b has and ascend310p lacks, one per macro.
#include "mini.h"

MINI(absent) {
#if defined(USE_DATACOPYPAD)  // two rows of five floats from columns 1 and 11, padded with 9 on the left and
                              // twice right
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 512);
    auto a = buf.Get<float>();
    DataCopyPad(a, arg.gm<float>(0)[1], DataCopyExtParams(2, 20, 20, 0, 0),
                DataCopyPadExtParams<float>(true, 1, 2, 9.0f));
    PipeBarrier<PIPE_ALL>();
    DataCopyPad(arg.gm<float>(1), a, DataCopyExtParams(1, 32, 0, 0, 0));
    DataCopyPad(arg.gm<float>(1)[8], a[8], DataCopyExtParams(1, 24, 0, 0, 0));
#elif defined(USE_SETATOMICMAX)
    SetAtomicMax<float>();
#elif defined(USE_GETSYSTEMCYCLE)
    if (GetSystemCycle() != 0) Trap();
#elif defined(USE_SYNCALL)
    SyncAll();
#endif
}
