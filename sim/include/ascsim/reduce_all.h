// Reductions over all elements: ReduceSum, ReduceMax, ReduceMin with their work tensor.
// Docs: "归约计算/ReduceSum", "ReduceMax", "ReduceMin".
#pragma once
#include <vector>

#include "ascsim/gather.h"
#include "ascsim/reduce.h"

namespace ascsim {

constexpr uint64_t RoundUpTo(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Elements the work tensor needs; the formulas of the pages' key features.
inline uint64_t WorkForSum(uint64_t repeats, uint32_t size) { return RoundUpTo(repeats, kBlock / size); }
inline uint64_t WorkForExtreme(uint64_t repeats, uint32_t size, bool index) {
    const uint64_t per_block = kBlock / size, per_repeat = kRepeatBytes / size;
    const uint64_t first = RoundUpTo(repeats * 2, per_block);
    if (!index) return first;
    const uint64_t second_count = (repeats * 2 + per_repeat - 1) / per_repeat * 2;
    const uint64_t second = RoundUpTo(second_count, per_block);
    if (second_count <= 2) return first + second;
    return first + second + RoundUpTo((second_count + per_repeat - 1) / per_repeat * 2, per_block);
}

// Accesses and checks that all of them share; false when there is nothing to compute.
template <typename T>
bool BeginAll(Site site, const char* cost, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
              const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, uint64_t src_rep,
              uint32_t dst_elements, uint64_t work_elements) {
    if (lanes.Nothing()) return false;
    Op op = VectorOp(site, cost, lanes.repeats);
    const VecOperand s = Src(src, "src", 1, src_rep);
    CheckOperands(op, {s}, lanes, {});
    Footprint(op, s, lanes);
    if (work_elements) {
        const uint64_t have = (work.limit() > work.offset() ? work.limit() - work.offset() : 0) / sizeof(T);
        if (have < work_elements) {
            Report(Severity::Error, op, "param.tmp_size",
                   "sharedTmpBuffer: too small: got %llu elements; allowed %llu and above",
                   static_cast<unsigned long long>(have), static_cast<unsigned long long>(work_elements));
            work_elements = have;
        }
        op.Add(Operand(work, true, "sharedTmpBuffer", work_elements * sizeof(T)));
    }
    op.Add(Operand(dst, true, "dst", dst_elements * sizeof(T)));
    return Issue(op);
}

// Tree over any number of values, one repeat's lanes at a time, as the repeated hardware passes do.
template <typename T>
float TreePasses(float* v, uint64_t n, HalfLimit limit) {
    constexpr uint32_t lanes = kRepeatBytes / sizeof(T);
    while (n > 1) {
        const uint64_t groups = (n + lanes - 1) / lanes;
        for (uint64_t g = 0; g < groups; ++g) {
            float part[lanes] = {};
            for (uint32_t i = 0; i < lanes && g * lanes + i < n; ++i) part[i] = v[g * lanes + i];
            v[g] = TreeSum<T>(part, lanes, limit);
        }
        n = groups;
    }
    return v[0];
}

// Sums of the repeats are summed by tree as well ("way 2"); the work tensor holds them.
template <typename T>
float SumByTree(const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, const Lanes& lanes,
                uint64_t src_rep, HalfLimit limit) {
    const Lane<sizeof(T)> in{reinterpret_cast<uint8_t*>(src.Ptr()), {kBlock, src_rep * kBlock}};
    std::vector<float> sums(lanes.repeats);
    for (uint32_t r = 0; r < lanes.repeats; ++r) sums[r] = RepeatSum<T>(in, lanes, r, limit);
    const uint64_t room = work.limit() > work.offset() ? (work.limit() - work.offset()) / sizeof(T) : 0;
    for (uint32_t r = 0; r < lanes.repeats && r < room && lanes.repeats > 1; ++r)
        work.Ptr()[r] = static_cast<T>(sums[r]);
    return TreePasses<T>(sums.data(), lanes.repeats, limit);
}

// Mask forms: repeat may exceed 255, the call splits it.
template <typename Mask>
Lanes WideLanes(Site site, uint32_t lanes, Mask mask, int64_t repeat) {
    Lanes r = LanesOf<true>(site, lanes, mask, repeat > 0 ? 1 : 0);
    if (repeat > 0 && !Core().mask.counter) r.repeats = static_cast<uint32_t>(repeat);
    return r;
}

template <typename T>
void SumMasked(Site site, const Lanes& lanes, const AscendC::LocalTensor<T>& dst,
               const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, uint64_t src_rep) {
    const uint64_t need = lanes.repeats > 1 ? WorkForSum(lanes.repeats, sizeof(T)) : 0;
    if (!BeginAll(site, CostKey<"ReduceSum", T>::value.data(), lanes, dst, src, work, src_rep, 1, need))
        return;
    *dst.Ptr() = static_cast<T>(SumByTree(src, work, lanes, src_rep, HalfLimit(Soc().fp16_saturate)));
}

template <bool isSetMask, typename T>
void SumCounted(Site site, int32_t count, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work) {
    constexpr uint32_t per_repeat = kRepeatBytes / sizeof(T);
    const HalfLimit limit(Soc().fp16_saturate);
    const char* cost = CostKey<"ReduceSum", T>::value.data();
#if defined(ASCSIM_SOC_310P)
    // Whole repeats by tree, then the tail repeat's sum on top; isSetMask has no effect here.
    const Lanes lanes = CountForm(site, per_repeat, count);
    const uint32_t whole = static_cast<uint32_t>(count) / per_repeat;
    const uint64_t need = whole > 1 ? WorkForSum(whole, sizeof(T)) : 0;
    if (!BeginAll(site, cost, lanes, dst, src, work, 8, 1, need)) return;
    const uint32_t tail = static_cast<uint32_t>(count) % per_repeat;
    float sum = whole ? SumByTree(src, work, PrefixLanes(per_repeat, per_repeat, whole), 8, limit) : 0.0f;
    if (tail) {
        const Lane<sizeof(T)> rest{
            reinterpret_cast<uint8_t*>(src.Ptr() + static_cast<uint64_t>(whole) * per_repeat), {}};
        const float last = RepeatSum<T>(rest, PrefixLanes(per_repeat, tail, 1), 0, limit);
        sum = whole ? Node<T>(sum, last, limit) : last;
    }
#else
    // Sums of the repeats are added one after the other ("way 1"); the work tensor is not used.
    const Lanes lanes = CountForm<isSetMask>(site, per_repeat, count);
    if (!BeginAll(site, cost, lanes, dst, src, work, 8, 1, 0)) return;
    const Lane<sizeof(T)> in{reinterpret_cast<uint8_t*>(src.Ptr()), {}};
    float sum = RepeatSum<T>(in, lanes, 0, limit);
    for (uint32_t r = 1; r < lanes.repeats; ++r) sum = Node<T>(sum, RepeatSum<T>(in, lanes, r, limit), limit);
#endif
    const T result = static_cast<T>(sum);
    *dst.Ptr() = result;
    std::memcpy(&Core().acc_value, &result, sizeof(T));
}

// `whole_repeats` sizes the work tensor; the index counts elements of src at its repeat stride.
template <Text api, ReduceType type, typename T>
void RunExtreme(Site site, const Lanes& lanes, uint64_t whole_repeats, const AscendC::LocalTensor<T>& dst,
                const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, uint64_t src_rep,
                bool index) {
    const uint64_t need =
        index && lanes.repeats <= 1 ? 0 : WorkForExtreme(whole_repeats ? whole_repeats : 1, sizeof(T), index);
    if (!BeginAll(site, CostKey<api, T>::value.data(), lanes, dst, src, work, src_rep, index ? 2 : 1, need))
        return;
    const Lane<sizeof(T)> in{reinterpret_cast<uint8_t*>(src.Ptr()), {kBlock, src_rep * kBlock}};
    Extreme<type> best;
    std::vector<T> passes;
    for (uint32_t r = 0; r < lanes.repeats; ++r) {
        const Extreme<type> e = RepeatExtreme<type, T>(in, lanes, r);
        if (!e.any) continue;
        best.Take(e.value, r * src_rep * (kBlock / sizeof(T)) + e.index);
        passes.push_back(ValueBits<T>(e.value));
        passes.push_back(IndexBits<T>(e.index));
    }
    const uint64_t room = work.limit() > work.offset() ? (work.limit() - work.offset()) / sizeof(T) : 0;
    if (need) std::copy_n(passes.begin(), std::min<uint64_t>(passes.size(), room), work.Ptr());
    dst.Ptr()[0] = ValueBits<T>(best.value);
    if (index) dst.Ptr()[1] = IndexBits<T>(best.index);
}

}  // namespace ascsim

namespace AscendC {

template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               const int32_t mask, const int32_t repeatTime, const int32_t srcRepStride,
               Loc loc = Loc::Here()) {
    ascsim::support::ReduceSum<T>();
    const ascsim::Site site{"ReduceSum", loc};
    ascsim::SumMasked(
        site,
        ascsim::WideLanes(site, ascsim::LanesPerRepeat(sizeof(T)), static_cast<uint64_t>(mask), repeatTime),
        dst, src, sharedTmpBuffer, srcRepStride);
}
template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               const uint64_t mask[], const int32_t repeatTime, const int32_t srcRepStride,
               Loc loc = Loc::Here()) {
    ascsim::support::ReduceSum<T>();
    const ascsim::Site site{"ReduceSum", loc};
    ascsim::SumMasked(site, ascsim::WideLanes(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime), dst,
                      src, sharedTmpBuffer, srcRepStride);
}
template <typename T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,
               const int32_t count, Loc loc = Loc::Here()) {
    ascsim::support::ReduceSum<T>();
    ascsim::SumCounted<isSetMask>(ascsim::Site{"ReduceSum", loc}, count, dst, src, sharedTmpBuffer);
}

#define ASCSIM_EXTREME(Name, type)                                                                          \
    template <typename T>                                                                                   \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,  \
              const int32_t mask, const int32_t repeatTime, const int32_t srcRepStride,                     \
              bool calIndex = false, Loc loc = Loc::Here()) {                                               \
        ascsim::support::Name<T>();                                                                         \
        const ascsim::Site site{#Name, loc};                                                                \
        const auto lanes = ascsim::WideLanes(site, ascsim::LanesPerRepeat(sizeof(T)),                       \
                                             static_cast<uint64_t>(mask), repeatTime);                      \
        ascsim::RunExtreme<#Name, ReduceType::type>(site, lanes, lanes.repeats, dst, src, sharedTmpBuffer,  \
                                                    srcRepStride, calIndex);                                \
    }                                                                                                       \
    template <typename T>                                                                                   \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,  \
              const uint64_t mask[], const int32_t repeatTime, const int32_t srcRepStride,                  \
              bool calIndex = false, Loc loc = Loc::Here()) {                                               \
        ascsim::support::Name<T>();                                                                         \
        const ascsim::Site site{#Name, loc};                                                                \
        const auto lanes = ascsim::WideLanes(site, ascsim::LanesPerRepeat(sizeof(T)), mask, repeatTime);    \
        ascsim::RunExtreme<#Name, ReduceType::type>(site, lanes, lanes.repeats, dst, src, sharedTmpBuffer,  \
                                                    srcRepStride, calIndex);                                \
    }                                                                                                       \
    template <typename T>                                                                                   \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer,  \
              const int32_t count, bool calIndex = false, Loc loc = Loc::Here()) {                          \
        ascsim::support::Name<T>();                                                                         \
        const ascsim::Site site{#Name, loc};                                                                \
        const auto lanes = ascsim::CountForm(site, ascsim::LanesPerRepeat(sizeof(T)), count);               \
        ascsim::RunExtreme<#Name, ReduceType::type>(site, lanes, count / ascsim::LanesPerRepeat(sizeof(T)), \
                                                    dst, src, sharedTmpBuffer, 8, calIndex);                \
    }
ASCSIM_EXTREME(ReduceMax, MAX)
ASCSIM_EXTREME(ReduceMin, MIN)
#undef ASCSIM_EXTREME

}  // namespace AscendC
