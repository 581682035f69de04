// Modes of the matrix unit, and calls that shared code names without reaching them here.
// Docs: "SetHF32Mode", "SetMMLayoutTransform", "LoadDataWithSparse".
#pragma once
#include "ascsim/img2col.h"

namespace AscendC {

// Float operands rounded to HF32 before they are multiplied.
inline void SetHF32Mode(bool hf32Mode, Loc loc = Loc::Here()) {
    if (hf32Mode)
        ascsim::Fail(ascsim::CallSite("SetHF32Mode", loc), "unsupported", "HF32 products are not modelled");
}
// How the rounding to HF32 treats ties; without HF32 it has no effect.
inline void SetHF32TransMode(bool) {}
// Whether a product walks columns or rows first: an order of work inside the unit, the result is the same.
inline void SetMMLayoutTransform(bool) {}

// What SetFmatrix does for the left matrix, under the name catlass takes from the implementation headers.
inline void Load3DSetFMatrixCal(uint16_t l1H, uint16_t l1W, const uint8_t padList[4]) {
    SetFmatrix(l1H, l1W, padList, FmatrixMode::FMATRIX_LEFT);
}

template <typename T = int8_t, typename U = uint8_t>
void LoadDataWithSparse(const LocalTensor<T>&, const LocalTensor<T>&, const LocalTensor<U>&,
                        const LoadData2DParams&, Loc loc = Loc::Here()) {
    ascsim::support::LoadDataWithSparse<T>();
    ascsim::Fail(ascsim::CallSite("LoadDataWithSparse", loc, ascsim::Pipe::MTE1), "unsupported",
                 "sparse operands are not modelled");
}

}  // namespace AscendC
