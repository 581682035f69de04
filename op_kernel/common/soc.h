// What differs between the SoCs, as constants: kernels branch on these, never on macros.
#ifndef HYBRID_OPS_KERNEL_SOC_H_
#define HYBRID_OPS_KERNEL_SOC_H_

#include "kernel_operator.h"

namespace hybrid_ops {

struct Soc {
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 200
    static constexpr bool kPaddedMoves = false;      // DataCopyPad exists
    static constexpr bool kHardwareBarrier = false;  // SyncAll needs no memory
    static constexpr bool kBroadcast =
        false;  // Brcb is one instruction, not two and two barriers per eight rows
    static constexpr AscendC::RoundMode kNarrow =
        AscendC::RoundMode::CAST_NONE;  // the only fp32 -> fp16 here but ODD
#else
    static constexpr bool kPaddedMoves = true;
    static constexpr bool kHardwareBarrier = true;
    static constexpr bool kBroadcast = true;
    static constexpr AscendC::RoundMode kNarrow = AscendC::RoundMode::CAST_RINT;
#endif
};

constexpr uint32_t kBlockBytes = 32;  // granularity of local memory and of unpadded moves
constexpr uint32_t kFloatLanes = 64;  // fp32 lanes of one repeat
constexpr uint32_t kFloatBlock = 8;   // fp32 lanes of one block

template <AscendC::HardEvent event>
__aicore__ inline void Order() {
    const event_t id = static_cast<event_t>(GetTPipePtr()->FetchEventID(event));
    AscendC::SetFlag<event>(id);
    AscendC::WaitFlag<event>(id);
}

__aicore__ inline uint32_t RoundUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// Widening, narrowing or, between equal types, an exact copy.
template <typename Dst, typename Src>
__aicore__ inline void Convert(const AscendC::LocalTensor<Dst>& dst, const AscendC::LocalTensor<Src>& src,
                               uint32_t count) {
    if constexpr (AscendC::IsSameType<Dst, Src>::value) {
        AscendC::Muls(dst, src, static_cast<Src>(1), static_cast<int32_t>(count));
    } else if constexpr (sizeof(Dst) > sizeof(Src)) {
        AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, count);
    } else {
        AscendC::Cast(dst, src, Soc::kNarrow, count);
    }
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_SOC_H_
