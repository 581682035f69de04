// Sorting: Sort32 and MrgSort on 8-byte (score, index) records; RpSort16, MrgSort4, ProposalConcat and
// ProposalExtract on region proposals of 8 elements. Docs: "排序组合（ISASI）/*". Larger scores first, the
// earlier of equal ones first.
#pragma once
#include <algorithm>
#include <vector>

#include "ascsim/gather.h"

namespace AscendC {

constexpr int32_t MRG_SORT_ELEMENT_LEN = 4;

struct MrgSort4Info {
    MrgSort4Info() {}
    MrgSort4Info(const uint16_t lengths[MRG_SORT_ELEMENT_LEN], const bool suspend, const uint16_t valid,
                 const uint16_t repeat)
        : ifExhaustedSuspension(suspend), validBit(valid), repeatTimes(static_cast<uint8_t>(repeat)) {
        std::copy_n(lengths, MRG_SORT_ELEMENT_LEN, elementLengths);
    }
    uint16_t elementLengths[MRG_SORT_ELEMENT_LEN] = {0};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    uint8_t repeatTimes = 1;
};

template <typename T>
struct MrgSortSrcList {
    MrgSortSrcList() {}
    MrgSortSrcList(const LocalTensor<T>& a, const LocalTensor<T>& b, const LocalTensor<T>& c,
                   const LocalTensor<T>& d)
        : src1(a), src2(b), src3(c), src4(d) {}
    LocalTensor<T> src1, src2, src3, src4;
};

}  // namespace AscendC

namespace ascsim {

inline uint16_t (&MergedCounts())[4] {  // GetMrgSortResult: records taken from each queue by the last merge
    static thread_local uint16_t counts[4];
    return counts;
}

// Merges up to four descending queues of `record`-byte entries whose score of type T sits at `score_at`.
template <typename T>
void RunMerge(Site site, const char* cost, const AscendC::LocalTensor<T>& dst,
              const AscendC::MrgSortSrcList<T>& list, const AscendC::MrgSort4Info& info, uint32_t record,
              uint32_t score_at, uint32_t src_align) {
    if (info.repeatTimes == 0) return;
    const AscendC::LocalTensor<T>* queue[4] = {&list.src1, &list.src2, &list.src3, &list.src4};
    Op op = VectorOp(site, cost, info.repeatTimes);
    const uint32_t queues = info.validBit == 3 ? 2 : info.validBit == 7 ? 3 : info.validBit == 15 ? 4 : 0;
    if (!queues) Fail(op, "param.valid_bit", "validBit: got %u; allowed 3, 7, 15", info.validBit);
    uint64_t total = 0;
    for (uint32_t q = 0; q < queues; ++q) {
        const uint32_t n = info.elementLengths[q];
        if (n > 4095) Fail(op, "param.length", "elementLengths[%u]: got %u; allowed 0..4095", q, n);
        if (queue[q]->offset() % src_align) {
            Report(Severity::Error, op, "param.align",
                   "src%u: start address not aligned: allowed multiples of %u", q + 1, src_align);
        }
        total += n;
    }
    bool chained = queues == 4 && !info.ifExhaustedSuspension;
    for (uint32_t q = 1; q < 4 && chained; ++q) {
        chained = info.elementLengths[q] == info.elementLengths[0] &&
                  queue[q]->offset() ==
                      queue[q - 1]->offset() + static_cast<uint64_t>(info.elementLengths[0]) * record;
    }
    if (info.repeatTimes > 1 && !chained) {
        Fail(op, "param.repeat",
             "repeatTimes: got %u; allowed 1 unless four equally long, adjoining queues are merged without "
             "suspension",
             info.repeatTimes);
    }
    const uint32_t repeats = info.repeatTimes;
    for (uint32_t q = 0; q < queues; ++q) {
        const uint32_t bytes = info.elementLengths[q] * record;
        if (bytes) op.Add(Operand(*queue[q], false, "src", Shape{bytes, 1, 0, repeats, total * record}));
    }
    if (total)
        op.Add(Operand(dst, true, "dst",
                       Shape{static_cast<uint32_t>(total * record), 1, 0, repeats, total * record}));
    for (uint32_t q = 0; q < queues; ++q) {
        const uint64_t begin = queue[q]->offset(),
                       end = begin + (repeats - 1) * total * record + info.elementLengths[q] * record;
        if (begin < dst.offset() + repeats * total * record && dst.offset() < end) {
            Report(Severity::Error, op, "param.overlap", "src%u overlaps dst: this call allows no overlap",
                   q + 1);
        }
    }
    if (!Issue(op)) return;
    auto& taken = MergedCounts();
    for (uint32_t r = 0; r < repeats; ++r) {
        const uint8_t* in[4];
        for (uint32_t q = 0; q < queues; ++q)
            in[q] = reinterpret_cast<const uint8_t*>(queue[q]->Ptr()) + r * total * record;
        uint8_t* out = reinterpret_cast<uint8_t*>(dst.Ptr()) + r * total * record;
        uint32_t used[4] = {0, 0, 0, 0};
        for (uint64_t i = 0; i < total; ++i) {
            int best = -1;
            float best_score = 0;
            for (uint32_t q = 0; q < queues; ++q) {
                if (used[q] == info.elementLengths[q]) continue;
                T score;
                std::memcpy(static_cast<void*>(&score), in[q] + used[q] * record + score_at, sizeof score);
                if (best < 0 || static_cast<float>(score) > best_score) {
                    best = static_cast<int>(q);
                    best_score = static_cast<float>(score);
                }
            }
            std::memcpy(out + i * record, in[best] + used[best] * record, record);
            if (++used[best] == info.elementLengths[best] && info.ifExhaustedSuspension) break;
        }
        for (uint32_t q = 0; q < 4; ++q) taken[q] = static_cast<uint16_t>(used[q]);
    }
}

// Region proposal: x1, y1, x2, y2, score, label and two reserved elements.
constexpr uint32_t kProposal = 8, kProposalScore = 4, kProposalsPerRepeat = 16;

// Moves one field between 16 proposals and 16 consecutive elements.
template <Text api, bool concat, typename T>
void RunProposal(Site site, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                 int32_t repeat_given, int32_t field) {
    Op op = VectorOp(site, CostKey<api, T>::value.data(), 0);
    if (field < 0 || field > 5) Fail(op, "param.mode", "modeNumber: got %d; allowed 0..5", field);
    const uint32_t n = CheckRepeat(site, repeat_given) * kProposalsPerRepeat;
    if (n == 0) return;
    op.work.repeats = n / kProposalsPerRepeat;
    const AscendC::LocalTensor<T>& proposals = concat ? dst : src;
    Access field_access =
        Operand(proposals, concat, concat ? "dst" : "src", Shape{sizeof(T), n, kProposal * sizeof(T)});
    field_access.base += field * sizeof(T);
    op.Add(field_access);
    op.Add(Operand(concat ? src : dst, !concat, concat ? "src" : "dst", n * sizeof(T)));
    if (!Issue(op)) return;
    for (uint32_t i = 0; i < n; ++i) {
        if constexpr (concat)
            dst.Ptr()[i * kProposal + field] = src.Ptr()[i];
        else
            dst.Ptr()[i] = src.Ptr()[i * kProposal + field];
    }
}

}  // namespace ascsim

namespace AscendC {

// 32 scores and indices a repeat -> 32 records: score in the low bytes, index in the high four.
template <typename T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& src1,
            const int32_t repeatTime, Loc loc = Loc::Here()) {
    ascsim::support::Sort32<T>();
    const ascsim::Site site{"Sort32", loc};
    const uint32_t repeat = ascsim::CheckRepeat(site, repeatTime);
    if (repeat == 0) return;
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"Sort32", T>::value.data(), repeat);
    op.Add(ascsim::Operand(src0, false, "src0", repeat * 32 * sizeof(T)));
    op.Add(ascsim::Operand(src1, false, "src1", repeat * 128));
    op.Add(ascsim::Operand(dst, true, "dst", repeat * 256));
    const auto aligned = [&](const char* name, uint64_t offset, uint64_t unit) {
        if (offset % unit) {
            ascsim::Report(ascsim::Severity::Error, op, "param.align",
                           "%s: start address not aligned: got byte offset %llu; allowed multiples of %llu",
                           name, static_cast<unsigned long long>(offset),
                           static_cast<unsigned long long>(unit));
        }
    };
    aligned("src0", src0.offset(), 32 * sizeof(T));
    aligned("src1", src1.offset(), 128);
    aligned("dst", dst.offset(), 256);
    if (!ascsim::Issue(op)) return;
    for (uint32_t r = 0; r < repeat; ++r) {
        struct Entry {
            T score;
            uint32_t index;
        } entry[32];
        for (uint32_t i = 0; i < 32; ++i) entry[i] = {src0.Ptr()[r * 32 + i], src1.Ptr()[r * 32 + i]};
        std::stable_sort(entry, entry + 32, [](const Entry& a, const Entry& b) {
            return static_cast<float>(a.score) > static_cast<float>(b.score);
        });
        uint8_t* out = reinterpret_cast<uint8_t*>(dst.Ptr()) + r * 256;
        for (uint32_t i = 0; i < 32; ++i) {
            std::memset(out + i * 8, 0, 4);
            std::memcpy(out + i * 8, &entry[i].score, sizeof(T));
            std::memcpy(out + i * 8 + 4, &entry[i].index, 4);
        }
    }
}

template <typename T>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params,
             Loc loc = Loc::Here()) {
    ascsim::support::MrgSort<T>();
    ascsim::RunMerge<T>({"MrgSort", loc}, ascsim::CostKey<"MrgSort", T>::value.data(), dst, src, params, 8, 0,
                        8);
}
template <typename T>
void MrgSort4(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params,
              Loc loc = Loc::Here()) {
    ascsim::support::MrgSort4<T>();
    constexpr uint32_t record = ascsim::kProposal * sizeof(T);
    ascsim::RunMerge<T>({"MrgSort4", loc}, ascsim::CostKey<"MrgSort4", T>::value.data(), dst, src, params,
                        record, ascsim::kProposalScore * sizeof(T), record);
}
template <typename = void>
void GetMrgSortResult(uint16_t& list1, uint16_t& list2, uint16_t& list3, uint16_t& list4) {
    const auto& taken = ascsim::MergedCounts();
    list1 = taken[0], list2 = taken[1], list3 = taken[2], list4 = taken[3];
}

// Each repeat sorts its own 16 proposals.
template <typename T>
void RpSort16(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,
              Loc loc = Loc::Here()) {
    ascsim::support::RpSort16<T>();
    const ascsim::Site site{"RpSort16", loc};
    const uint32_t repeat = ascsim::CheckRepeat(site, repeatTime);
    if (repeat == 0) return;
    struct Proposal {
        T field[ascsim::kProposal];
    };
    constexpr uint32_t n = ascsim::kProposalsPerRepeat;
    ascsim::Op op = ascsim::VectorOp(site, ascsim::CostKey<"RpSort16", T>::value.data(), repeat);
    op.Add(ascsim::Operand(src, false, "src", repeat * n * sizeof(Proposal)));
    op.Add(ascsim::Operand(dst, true, "dst", repeat * n * sizeof(Proposal)));
    if (!ascsim::Issue(op)) return;
    for (uint32_t r = 0; r < repeat; ++r) {
        Proposal entry[n];
        std::memcpy(static_cast<void*>(entry), src.Ptr() + r * n * ascsim::kProposal, sizeof entry);
        std::stable_sort(entry, entry + n, [](const Proposal& a, const Proposal& b) {
            return static_cast<float>(a.field[ascsim::kProposalScore]) >
                   static_cast<float>(b.field[ascsim::kProposalScore]);
        });
        std::memcpy(static_cast<void*>(dst.Ptr() + r * n * ascsim::kProposal), entry, sizeof entry);
    }
}
template <typename T>
void ProposalConcat(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,
                    const int32_t modeNumber, Loc loc = Loc::Here()) {
    ascsim::support::ProposalConcat<T>();
    ascsim::RunProposal<"ProposalConcat", true>({"ProposalConcat", loc}, dst, src, repeatTime, modeNumber);
}
template <typename T>
void ProposalExtract(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime,
                     const int32_t modeNumber, Loc loc = Loc::Here()) {
    ascsim::support::ProposalExtract<T>();
    ascsim::RunProposal<"ProposalExtract", false>({"ProposalExtract", loc}, dst, src, repeatTime, modeNumber);
}

}  // namespace AscendC
