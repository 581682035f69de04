// Copy: masked move inside UB on the vector pipe. asc-devkit: API page Copy; not on dav-m200.
#pragma once
#include "ascsim/call.h"
#include "ascsim/copy_params.h"
#include "ascsim/support.h"

namespace ascsim {

template <typename T>
void RunCopy(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
             const AscendC::LocalTensor<T>& src, const AscendC::CopyRepeatParams& p) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Copy: allowed 16- and 32-bit elements");
    const VecOperand d = Dst(dst, p.dstStride, p.dstRepeatSize);
    const VecOperand s = Src(src, "src", p.srcStride, p.srcRepeatSize);
    if (!Begin(site, CostKey<"Copy", T>::value.data(), lanes, {d, s})) return;
    ForEachRun(
        lanes, [](uint32_t n, uint8_t* out, const uint8_t* in) { std::memmove(out, in, n * sizeof(T)); },
        d.Host<T>(), s.Host<T>());
}

}  // namespace ascsim

namespace AscendC {

template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask,
          const uint8_t repeatTimes, const CopyRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Copy<T>();
    const ascsim::Site site{"Copy", loc};
    ascsim::RunCopy(site,
                    ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTimes),
                    dst, src, repeatParams);
}
template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[],
          const uint8_t repeatTimes, const CopyRepeatParams& repeatParams, Loc loc = Loc::Here()) {
    ascsim::support::Copy<T>();
    const ascsim::Site site{"Copy", loc};
    ascsim::RunCopy(site,
                    ascsim::LanesOf<isSetMask>(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTimes),
                    dst, src, repeatParams);
}

}  // namespace AscendC
