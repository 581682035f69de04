// AddDeqRelu: half = max(0, (int32 + int32) * scale), the scale set by SetDeqScale. Lanes count int32
// elements. Docs: "复合计算/AddDeqRelu".
#pragma once
#include "ascsim/cast.h"

namespace ascsim {

inline void RunAddDeqRelu(Site site, const Lanes& lanes, const AscendC::LocalTensor<half>& dst,
                          const AscendC::LocalTensor<int32_t>& src0,
                          const AscendC::LocalTensor<int32_t>& src1, const AscendC::BinaryRepeatParams& p) {
    CheckTruncated(site, p.truncated);
    const VecOperand d = Dst(dst, p.dstBlkStride, p.dstRepStride),
                     a = Src(src0, "src0", p.src0BlkStride, p.src0RepStride),
                     b = Src(src1, "src1", p.src1BlkStride, p.src1RepStride);
    if (!Begin(site, CostKey<"AddDeqRelu", half>::value.data(), lanes, {d, a, b})) return;
    const double scale = Core().deq_scale;
    const HalfLimit limit(Soc().fp16_saturate);
    const auto out = d.Host<half>();
    const auto left = a.Host<int32_t>(), right = b.Host<int32_t>();
    for (uint32_t r = 0; r < lanes.repeats; ++r)
        for (uint32_t l = 0; l < lanes.lanes; ++l) {
            if (!lanes.On(r, l)) continue;
            const int64_t sum = int64_t(*reinterpret_cast<const int32_t*>(left.At(r, l))) +
                                *reinterpret_cast<const int32_t*>(right.At(r, l));
            const float scaled = DoubleToFloatOdd(double(int32_t(sum)) * scale);
            *reinterpret_cast<half*>(out.At(r, l)) = half(limit(scaled > 0 ? scaled : 0.0f));
        }
}

}  // namespace ascsim

namespace AscendC {

template <bool isSetMask = true>
void AddDeqRelu(const LocalTensor<half>& dst, const LocalTensor<int32_t>& src0,
                const LocalTensor<int32_t>& src1, uint64_t mask[], int64_t repeatTime,
                const BinaryRepeatParams& p, Loc loc = Loc::Here()) {
    const ascsim::Site site{"AddDeqRelu", loc};
    ascsim::RunAddDeqRelu(site, ascsim::LanesOf<isSetMask>(site, 64, mask, repeatTime), dst, src0, src1, p);
}
template <bool isSetMask = true>
void AddDeqRelu(const LocalTensor<half>& dst, const LocalTensor<int32_t>& src0,
                const LocalTensor<int32_t>& src1, uint64_t mask, int64_t repeatTime,
                const BinaryRepeatParams& p, Loc loc = Loc::Here()) {
    const ascsim::Site site{"AddDeqRelu", loc};
    ascsim::RunAddDeqRelu(site, ascsim::LanesOf<isSetMask>(site, 64, mask, repeatTime), dst, src0, src1, p);
}
inline void AddDeqRelu(const LocalTensor<half>& dst, const LocalTensor<int32_t>& src0,
                       const LocalTensor<int32_t>& src1, const int32_t& count, Loc loc = Loc::Here()) {
    const ascsim::Site site{"AddDeqRelu", loc};
    ascsim::RunAddDeqRelu(site, ascsim::CountForm(site, 64, count), dst, src0, src1,
                          BinaryRepeatParams(1, 1, 1, 4, 8, 8));
}

}  // namespace AscendC
