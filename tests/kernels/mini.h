// Entries of mini kernels: MINI(name) { … } sees its GM arguments as arg(0), arg(1), … in launch order.
#pragma once
#include "kernel_operator.h"

using namespace AscendC;

struct MiniArgs {
    void** pointers;
    GM_ADDR operator()(int i) const { return static_cast<GM_ADDR>(pointers[i]); }
    template <typename T>
    GlobalTensor<T> gm(int i, uint64_t elements = 0) const {
        GlobalTensor<T> t;
        if (elements)
            t.SetGlobalBuffer(reinterpret_cast<T*>(pointers[i]), elements);
        else
            t.SetGlobalBuffer(reinterpret_cast<T*>(pointers[i]));
        return t;
    }
};

#define MINI(name)                                                             \
    static void name##_body(MiniArgs arg);                                     \
    extern "C" void name(void** pointers) { name##_body(MiniArgs{pointers}); } \
    static void name##_body([[maybe_unused]] MiniArgs arg)
