// Lists of (score, number) records sorted by the sort unit: larger scores first and, as CANN's guide states
// for every call used here, the earlier of equal ones first. A NaN score has no place in that order: keep it
// out.
#ifndef HYBRID_OPS_KERNEL_SORT_RECORDS_H_
#define HYBRID_OPS_KERNEL_SORT_RECORDS_H_

#include "soc.h"

namespace hybrid_ops {

template <bool kFirst, typename A, typename B>
struct Either {
    using Type = A;
};
template <typename A, typename B>
struct Either<false, A, B> {
    using Type = B;
};

// Records are 8 bytes on ascend910b; on ascend310p eight floats (region proposals), whose number is a float.
struct Records {
    static constexpr bool kShort = Soc::kPaddedMoves;
    static constexpr uint32_t kList = kShort ? 32 : 16;  // keys that are sorted at once
    static constexpr uint32_t kFloats = kShort ? 2 : 8;
    static constexpr uint32_t kScore = kShort ? 0 : 4;
    static constexpr uint32_t kNumber = kScore + 1;
    static constexpr uint32_t kBytes = kFloats * sizeof(float);
    using Number = typename Either<kShort, int32_t, float>::Type;

    static constexpr uint32_t kMostRepeats = 255;
};

template <typename Number>
__aicore__ inline void NumbersAsFloat(const AscendC::LocalTensor<float>& dst,
                                      const AscendC::LocalTensor<Number>& numbers, uint32_t count) {
    if constexpr (AscendC::IsSameType<Number, float>::value) {
        AscendC::Adds(dst, numbers, 0.0f, int32_t(count));
    } else {
        AscendC::Cast(dst, numbers, AscendC::RoundMode::CAST_NONE, count);
    }
}

// dst: `lists` sorted lists of Records::kList keys each; scratch: as large as dst, initialised.
template <typename T>
__aicore__ inline void SortLists(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& scratch,
                                 const AscendC::LocalTensor<T>& keys,
                                 const AscendC::LocalTensor<Records::Number>& numbers, uint32_t lists) {
    for (uint32_t at = 0; at < lists; at += Records::kMostRepeats) {
        const uint32_t n = lists - at < Records::kMostRepeats ? lists - at : Records::kMostRepeats;
        const uint32_t key = at * Records::kList, record = key * Records::kFloats;
        if constexpr (Records::kShort) {
            AscendC::Sort32<T>(dst[record], keys[key], numbers[key].template ReinterpretCast<uint32_t>(),
                               int32_t(n));
        } else {
            AscendC::ProposalConcat(scratch[record], keys[key], int32_t(n), int32_t(Records::kScore));
            AscendC::ProposalConcat(scratch[record], numbers[key], int32_t(n), int32_t(Records::kNumber));
            AscendC::PipeBarrier<PIPE_V>();
            AscendC::RpSort16(dst[record], scratch[record], int32_t(n));
        }
    }
    AscendC::PipeBarrier<PIPE_V>();
}

// One merge of up to four lists that begin `apart` records apart; `repeats` of them, which need four lists.
template <typename T>
__aicore__ inline void MergeOnce(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                 uint32_t lists, uint32_t apart, uint32_t length, uint32_t repeats) {
    const uint32_t step = apart * Records::kFloats;
    const uint32_t third = lists > 2 ? 2 * step : 0, fourth = lists > 3 ? 3 * step : 0;
    const AscendC::MrgSortSrcList<T> from(src, src[step], src[third], src[fourth]);
    const uint16_t lengths[4] = {uint16_t(length), uint16_t(length), uint16_t(lists > 2 ? length : 0),
                                 uint16_t(lists > 3 ? length : 0)};
    const AscendC::MrgSort4Info info(lengths, false, uint16_t((1 << lists) - 1), uint16_t(repeats));
    if constexpr (Records::kShort) {
        AscendC::MrgSort<T>(dst, from, info);
    } else {
        AscendC::MrgSort4<T>(dst, from, info);
    }
}

// Merges the `lists` adjoining lists of `length` records of each of `rows` rows to one; `lists` is a power of
// four, twice or three times one. The result, in `src` again, is exact in its first `keep` records; `other`
// is as large.
template <typename T>
__aicore__ inline void MergeLists(AscendC::LocalTensor<T>& src, AscendC::LocalTensor<T>& other, uint32_t rows,
                                  uint32_t lists, uint32_t length, uint32_t keep) {
    for (; lists > 1; lists = lists > 3 ? lists / 4 : 1, length *= 4) {
        if (lists > 3) {
            const uint32_t merges = rows * lists / 4;
            for (uint32_t at = 0; at < merges; at += Records::kMostRepeats) {
                const uint32_t n = merges - at < Records::kMostRepeats ? merges - at : Records::kMostRepeats;
                const uint32_t record = at * 4 * length * Records::kFloats;
                MergeOnce(other[record], src[record], 4, length, length, n);
            }
        } else {
            const uint32_t row = lists * length * Records::kFloats;
            for (uint32_t r = 0; r < rows; ++r) {
                MergeOnce(other[r * row], src[r * row], lists, length, length < keep ? length : keep, 1);
            }
        }
        AscendC::PipeBarrier<PIPE_V>();
        const AscendC::LocalTensor<T> swap = src;
        src = other;
        other = swap;
    }
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_SORT_RECORDS_H_
