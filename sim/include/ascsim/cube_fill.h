// Fill (InitConstValue): one value into L1, L0A or L0B. 310P only knows the repeat count, 512 bytes each.
// Docs: "Fill" (matrix API).
#pragma once
#include "ascsim/fractal.h"

namespace AscendC {

template <typename T, typename U>
void InitConstValue(const LocalTensor<T>& dst, const InitConstValueParams<U>& p, Loc loc = Loc::Here()) {
    using namespace ascsim;
    static_assert(sizeof(T) == sizeof(U), "InitConstValue: initValue has the element type of dst");
#if defined(ASCSIM_SOC_310P)
    static_assert(sizeof(T) == 2 && !std::is_same_v<T, bfloat16_t>,
                  "InitConstValue on ascend310p: allowed half, int16_t, uint16_t");
#else
    static_assert(sizeof(T) == 2 || sizeof(T) == 4,
                  "InitConstValue on ascend910b: allowed 16- and 32-bit elements");
#endif
    const Mem mem = dst.mem();
    Op op = CallSite("InitConstValue", loc, mem == Mem::L1 ? Pipe::MTE2 : Pipe::MTE1);
    if (mem != Mem::L1 && mem != Mem::L0A && mem != Mem::L0B)
        Fail(op, "path", "dst: in %s; allowed L1, L0A, L0B", MemName(mem));
    uint32_t block = uint32_t(kFractalBytes), blocks = 1, gap = 0;
#if !defined(ASCSIM_SOC_310P)
    block = mem == Mem::L1 ? kRow : uint32_t(kFractalBytes);
    blocks = p.blockNum;
    gap = p.dstGap;
#endif
    CheckRange(op, "repeatTimes", p.repeatTimes, 0, Soc().is_310p ? 255 : 32767);
    if (!p.repeatTimes || !blocks) return;
    const uint64_t step = (uint64_t(blocks) + gap) * block;
    op.work.cost = "InitConstValue";
    op.work.repeats = p.repeatTimes * blocks * block / 256;
    op.Add(Operand(dst, true, "dst", Shape{blocks * block, p.repeatTimes, step}));
    RequireAligned(op, "dst", mem, dst.offset(), 2);
    if (!Issue(op)) return;
    for (uint32_t r = 0; r < p.repeatTimes; ++r)
        for (uint32_t b = 0; b < blocks * block; b += sizeof(T))
            std::memcpy(Bytes(dst) + r * step + b, &p.initValue, sizeof(T));
}
template <typename T, typename U>
void Fill(const LocalTensor<T>& dst, const InitConstValueParams<U>& p, Loc loc = Loc::Here()) {
    InitConstValue(dst, p, loc);
}

}  // namespace AscendC
