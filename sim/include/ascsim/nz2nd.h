// DataCopy with Nz2NdParamsFull: columns of 16 x 16 fractals in UB become rows in GM, one strided move per
// column (one per row where the rows of GM are not whole blocks apart). Docs: "DataCopy", on-the-fly
// conversion.
#pragma once
#include "ascsim/cube_params.h"
#include "ascsim/data_copy.h"

namespace AscendC {

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const Nz2NdParamsFull& p,
              Loc loc = Loc::Here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4,
                  "DataCopy with Nz2NdParamsFull: allowed 16- and 32-bit elements");
    if (p.dValue % 16)
        ascsim::Fail(ascsim::CallSite("DataCopy", loc, ascsim::Pipe::MTE3), "param.range",
                     "dValue %u; allowed multiples of 16", p.dValue);
    constexpr uint32_t row = 16 * sizeof(T);
    const uint64_t stride = p.dstDStride * sizeof(T);
    const uint32_t together = stride % 32 ? 1 : std::max<uint32_t>(1, std::min<uint32_t>(p.nValue, 4095));
    for (uint32_t i = 0; i < p.ndNum; ++i)
        for (uint32_t c = 0; c < p.dValue; c += 16)
            for (uint32_t r = 0; r < p.nValue; r += together) {
                const ascsim::Rows rows{std::min<uint32_t>(together, p.nValue - r), row, row, stride};
                const auto to = dst[uint64_t(i) * p.dstNdMatrixStride + uint64_t(r) * p.dstDStride + c];
                const auto from = src[i * p.srcNdMatrixStride * 256u + c * p.srcNStride + r * 16];
                if (ascsim::Move("DataCopy", to, from, rows, row, sizeof(T), loc))
                    ascsim::CopyRows(ascsim::Bytes(to), ascsim::Bytes(from), rows, true);
            }
}

}  // namespace AscendC
