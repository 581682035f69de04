// Whole-tensor operators: dst = src0 + src1 computes as many elements as dst holds. An operator cannot carry
// a call site, so reports name the operation only. Docs: "基础算术/Add" and following, "整个tensor参与计算".
#pragma once
#include "ascsim/elementwise.h"

namespace ascsim {

template <Text api, typename Fn, typename T>
struct WholeTensorCall {
    using WholeTensor = T;
    AscendC::LocalTensor<T> a, b;
    void Assign(const AscendC::LocalTensor<T>& dst) const {
        const Site site{api.text, Loc{"", 0}};
        const Lanes lanes = CountForm(site, LanesPerRepeat(sizeof(T)), dst.GetSize());
        RunBinary<api, Fn>(site, lanes, dst, a, b, {});
    }
};

}  // namespace ascsim

namespace AscendC {

#define ASCSIM_OPERATOR(symbol, Name)                                                                 \
    template <typename T>                                                                             \
    ascsim::WholeTensorCall<#Name, ascsim::Name##Fn, T> operator symbol(const LocalTensor<T>& src0,   \
                                                                        const LocalTensor<T>& src1) { \
        ascsim::support::Name<T>();                                                                   \
        return {src0, src1};                                                                          \
    }
ASCSIM_OPERATOR(+, Add)
ASCSIM_OPERATOR(-, Sub)
ASCSIM_OPERATOR(*, Mul)
ASCSIM_OPERATOR(/, Div)
ASCSIM_OPERATOR(&, And)
ASCSIM_OPERATOR(|, Or)
#undef ASCSIM_OPERATOR

}  // namespace AscendC
