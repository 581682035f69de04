// Intrinsic-style spellings that older kernels still use beside the AscendC names.
#pragma once
#include "ascsim/reduce.h"

using float32_t = float;

inline void set_vector_mask(uint64_t high, uint64_t low) {
    AscendC::SetVectorMask<half, AscendC::MaskMode::NORMAL>(high, low);
}
inline void set_mask_count() { AscendC::SetMaskCount(); }
inline void set_mask_norm() { AscendC::SetMaskNorm(); }

namespace ascsim {

// Local pointer of a kernel (GetPhyAddr) back to a tensor that ends where the unified buffer ends.
template <typename T>
AscendC::LocalTensor<T> TensorAt(Site site, const T* p) {
    const uint64_t base = reinterpret_cast<uint64_t>(Local(Mem::UB, 0)), at = reinterpret_cast<uint64_t>(p);
    const uint64_t room = Core().local_bytes[int(Mem::UB)];
    if (at < base || at - base >= room) {
        Fail(CallSite(site.api, site.loc, Pipe::V), "bounds",
             "pointer: not an address of the unified buffer");
    }
    return AscendC::LocalTensor<T>(AscendC::TPosition::VECCALC, static_cast<uint32_t>(at - base),
                                   static_cast<uint32_t>((room - (at - base)) / sizeof(T)));
}

}  // namespace ascsim

// Sum of each repeat under the mask register; mode (accumulate into a register) is not modelled.
template <typename T>
void vcadd(T* dst, T* src, uint8_t repeat, uint16_t dstRepeatStride, uint16_t srcBlockStride,
           uint16_t srcRepeatStride, bool mode = false, ascsim::Loc loc = ascsim::Loc::Here()) {
    const ascsim::Site site{"vcadd", loc};
    if (mode)
        ascsim::Fail(ascsim::CallSite("vcadd", loc, ascsim::Pipe::V), "unsupported",
                     "mode: accumulation is not modelled: got true; allowed false");
    const ascsim::Lanes lanes = ascsim::FromRegister(site, ascsim::LanesPerRepeat(sizeof(T)), repeat);
    ascsim::RunRepeatReduce<"WholeReduceSum", AscendC::ReduceType::SUM, T>(
        site, lanes, ascsim::TensorAt(site, dst), ascsim::TensorAt(site, src), dstRepeatStride,
        srcBlockStride, srcRepeatStride, AscendC::ReduceOrder::ORDER_VALUE_INDEX);
}
