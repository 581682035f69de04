// silu(gate) * up with the rounding points of the contract: both projections, silu, and the product.
#ifndef HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ACTIVATION_H_
#define HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ACTIVATION_H_

#include "../common/rows.h"

namespace hybrid_ops {
namespace moe_experts {

// x <- x rounded to T and widened again; narrow: room for n elements of T. In fp32 nothing.
template <typename T>
__aicore__ inline void RoundTo(const FloatTensor& x, const AscendC::LocalTensor<T>& narrow, uint32_t n) {
    if constexpr (sizeof(T) == 2) {
        AscendC::Cast(narrow, x, Soc::kNarrow, n);
        AscendC::PipeBarrier<PIPE_V>();
        AscendC::Cast(x, narrow, AscendC::RoundMode::CAST_NONE, n);
    }
}

// out <- silu(gate) * up for n elements of projections that are rounded already; gate, up and work (n
// elements of fp32) are overwritten.
template <typename T>
__aicore__ inline void SwiGluRounded(const AscendC::LocalTensor<T>& out, const FloatTensor& gate,
                                     const FloatTensor& up, const FloatTensor& work, uint32_t n) {
    const int32_t count = int32_t(n);
    AscendC::Muls(work, gate, -1.0f, count);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Exp(work, work, count);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(work, work, 1.0f, count);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Div(gate, gate, work, count);
    AscendC::PipeBarrier<PIPE_V>();
    RoundTo(gate, work.template ReinterpretCast<T>(), n);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Mul(up, up, gate, count);
    AscendC::PipeBarrier<PIPE_V>();
    Convert(out, up, n);
}

// The same of projections as they were summed.
template <typename T>
__aicore__ inline void SwiGlu(const AscendC::LocalTensor<T>& out, const FloatTensor& gate,
                              const FloatTensor& up, const FloatTensor& work, uint32_t n) {
    RoundTo(gate, work.template ReinterpretCast<T>(), n);
    RoundTo(up, out, n);
    AscendC::PipeBarrier<PIPE_V>();
    SwiGluRounded(out, gate, up, work, n);
}

}  // namespace moe_experts
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_HYBRID_MOE_SWI_GLU_EXPERTS_ACTIVATION_H_
