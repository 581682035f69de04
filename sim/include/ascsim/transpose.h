// Transpose of one 16 x 16 matrix and TransDataTo5HD. Docs: "数据排布转换/Transpose",
// "数据排布转换/TransDataTo5HD".
#pragma once
#include "ascsim/gather.h"

namespace ascsim {

// Sixteen rows of one block each; repeats move all addresses by the same number of blocks.
struct RowList {
    uint64_t offset[16];  // byte offsets in the unified buffer
    uint64_t repeat;      // bytes between repeats
};

inline Access RowAccess(uint64_t offset, bool write, const char* name, uint32_t bytes, uint32_t repeats,
                        uint64_t repeat) {
    Access a;
    a.mem = Mem::UB;
    a.write = write;
    a.base = offset;
    a.block_bytes = bytes;
    a.repeats = repeat ? repeats : 1;
    a.repeat_stride = repeat;
    a.operand = name;
    return a;
}

// Rows that follow one another at a fixed distance are one footprint; an irregular list is issued row by row,
// because an operation holds few footprints.
inline bool IssueRows(Op op, const RowList& dst, const RowList& src, uint32_t dst_bytes, uint32_t src_bytes,
                      uint32_t repeats) {
    const auto step = [](const RowList& rows) -> int64_t {
        const int64_t d = static_cast<int64_t>(rows.offset[1]) - static_cast<int64_t>(rows.offset[0]);
        for (int i = 2; i < 16; ++i) {
            if (static_cast<int64_t>(rows.offset[i]) - static_cast<int64_t>(rows.offset[i - 1]) != d)
                return -1;
        }
        return d;
    };
    for (int i = 0; i < 16; ++i) {
        if (dst.offset[i] % kBlock || src.offset[i] % kBlock) {
            Report(Severity::Error, op, "param.align",
                   "address %d of the lists: not aligned; allowed multiples of %u bytes", i, kBlock);
            break;
        }
    }
    const int64_t dst_step = step(dst), src_step = step(src);
    if (dst_step >= 0 && src_step >= 0) {
        Access d = RowAccess(dst.offset[0], true, "dst", dst_bytes, repeats, dst.repeat),
               s = RowAccess(src.offset[0], false, "src", src_bytes, repeats, src.repeat);
        d.blocks = dst_step ? 16 : 1;
        d.block_stride = static_cast<uint64_t>(dst_step);
        s.blocks = src_step ? 16 : 1;
        s.block_stride = static_cast<uint64_t>(src_step);
        op.Add(s);
        op.Add(d);
        return Issue(op);
    }
    bool compute = true;
    const Work work = op.work;
    for (const bool write : {false, true}) {
        for (int half_list = 0; half_list < 2; ++half_list) {
            op.accesses = 0;
            op.work = Work{};  // priced once, with the last part
            if (write && half_list) op.work = work;
            for (int i = half_list * 8; i < half_list * 8 + 8; ++i) {
                op.Add(write ? RowAccess(dst.offset[i], true, "dst", dst_bytes, repeats, dst.repeat)
                             : RowAccess(src.offset[i], false, "src", src_bytes, repeats, src.repeat));
            }
            compute = Issue(op) && compute;
        }
    }
    return compute;
}

// 16-bit: out row i, column j = in row j, column i. 32-bit: rows hold 8 elements, so in column i fills the
// two output rows 2i and 2i + 1. 8-bit: 16 elements of a row's high or low half.
template <typename T>
void RunRows(Site site, const RowList& dst, const RowList& src, uint32_t repeats, bool dst_high,
             bool src_high) {
    if (repeats == 0) return;
    Op op = VectorOp(site, CostKey<"TransDataTo5HD", T>::value.data(), repeats);
    if (!IssueRows(op, dst, src, sizeof(T) == 1 && !dst_high ? 16 : kBlock,
                   sizeof(T) == 1 && !src_high ? 16 : kBlock, repeats))
        return;
    constexpr uint32_t columns = sizeof(T) == 4 ? 8 : 16;
    for (uint32_t r = 0; r < repeats; ++r) {
        T in[16][columns];
        for (uint32_t i = 0; i < 16; ++i) {
            std::memcpy(
                in[i], Local(Mem::UB, src.offset[i] + r * src.repeat) + (sizeof(T) == 1 && src_high ? 16 : 0),
                sizeof in[i]);
        }
        for (uint32_t i = 0; i < 16; ++i) {
            T out[columns];
            for (uint32_t j = 0; j < columns; ++j) {
                if constexpr (sizeof(T) == 4)
                    out[j] = in[(i % 2) * 8 + j][i / 2];
                else
                    out[j] = in[j][i];
            }
            std::memcpy(
                Local(Mem::UB, dst.offset[i] + r * dst.repeat) + (sizeof(T) == 1 && dst_high ? 16 : 0), out,
                sizeof out);
        }
    }
}

// Kernels hand over what GetPhyAddr returned: here a host address inside the unified buffer.
inline uint64_t UbOffset(Site site, uint64_t address) {
    const uint64_t base = reinterpret_cast<uint64_t>(Local(Mem::UB, 0));
    if (address < base || address - base >= Core().local_bytes[int(Mem::UB)]) {
        Fail(CallSite(site.api, site.loc, Pipe::V), "bounds",
             "address list: not an address of the unified buffer: got 0x%llx",
             static_cast<unsigned long long>(address));
    }
    return address - base;
}

}  // namespace ascsim

namespace AscendC {

template <typename T>
void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE], const TransDataTo5HDParams& p,
                    Loc loc = Loc::Here()) {
    ascsim::support::TransDataTo5HD<T>();
    ascsim::RowList dst{{}, p.dstRepStride * uint64_t{ascsim::kBlock}},
        src{{}, p.srcRepStride * uint64_t{ascsim::kBlock}};
    for (int i = 0; i < 16; ++i) dst.offset[i] = dstList[i].offset(), src.offset[i] = srcList[i].offset();
    ascsim::RunRows<T>({"TransDataTo5HD", loc}, dst, src, p.repeatTimes, p.dstHighHalf, p.srcHighHalf);
}
template <typename T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& p, Loc loc = Loc::Here()) {
    ascsim::support::TransDataTo5HD<T>();
    const ascsim::Site site{"TransDataTo5HD", loc};
    ascsim::RowList dst{{}, p.dstRepStride * uint64_t{ascsim::kBlock}},
        src{{}, p.srcRepStride * uint64_t{ascsim::kBlock}};
    for (int i = 0; i < 16; ++i)
        dst.offset[i] = ascsim::UbOffset(site, dstList[i]),
        src.offset[i] = ascsim::UbOffset(site, srcList[i]);
    ascsim::RunRows<T>(site, dst, src, p.repeatTimes, p.dstHighHalf, p.srcHighHalf);
}
template <typename T>
void TransDataTo5HD(const LocalTensor<uint64_t>& dst, const LocalTensor<uint64_t>& src,
                    const TransDataTo5HDParams& p, Loc loc = Loc::Here()) {
    TransDataTo5HD<T>(dst.Ptr(), src.Ptr(), p, loc);
}

// One 16 x 16 matrix of 16-bit elements, 512 bytes.
template <typename T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, Loc loc = Loc::Here()) {
    ascsim::support::Transpose<T>();
    ascsim::Op op = ascsim::VectorOp({"Transpose", loc}, ascsim::CostKey<"Transpose", T>::value.data(), 1);
    op.Add(ascsim::Operand(src, false, "src", 512));
    op.Add(ascsim::Operand(dst, true, "dst", 512));
    if (!ascsim::Issue(op)) return;
    T in[16][16], out[16][16];
    std::memcpy(static_cast<void*>(in), src.Ptr(), sizeof in);
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 16; ++j) out[i][j] = in[j][i];
    }
    std::memcpy(static_cast<void*>(dst.Ptr()), out, sizeof out);
}

}  // namespace AscendC
