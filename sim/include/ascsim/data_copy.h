// DataCopy (count, DataCopyParams, slices) and DataCopyPad. asc-devkit: API pages DataCopy, DataCopyPad
// (ISASI).
#pragma once
#include "ascsim/event.h"
#include "ascsim/move.h"
#include "ascsim/support.h"

namespace AscendC {

// Unit of blockLen and dstStride: 32 bytes, 64 into the bias table, 128 into the fixpipe buffer.
constexpr uint32_t BlockUnit(ascsim::Mem to) {
    return to == ascsim::Mem::BT ? 64 : to == ascsim::Mem::FB ? 128 : 32;
}
template <typename Dst, typename Src>
void CopyBlocks(const Dst& dst, const Src& src, const DataCopyParams& p, uint32_t element, Loc loc) {
    if (p.blockCount > 4095)
        ascsim::Report(ascsim::Severity::Error, ascsim::CallSite("DataCopy", loc), "param.range",
                       "blockCount %u; allowed 0 … 4095", p.blockCount);
    const uint32_t unit = BlockUnit(ascsim::MemOfTensor(dst)), bytes = p.blockLen * unit;
    const ascsim::Rows rows{p.blockCount, bytes, bytes + p.srcStride * 32ull,
                            bytes + uint64_t(p.dstStride) * unit};
    if (!ascsim::Move("DataCopy", dst, src, rows, bytes, element, loc)) return;
    ascsim::CopyRows(ascsim::Bytes(dst), ascsim::Bytes(src), rows,
                     ascsim::MemOfTensor(dst) == ascsim::Mem::GM);
    if constexpr (requires {
                      dst.mem();
                      src.mem();
                  }) {
        if (unit == 32) return;
        for (uint32_t i = 0; i < rows.count; ++i)
            ascsim::HandOnUndefined(dst.mem(), dst.offset() + i * rows.dst_step, src.mem(),
                                    src.offset() + i * rows.src_step, bytes);
    }
}

// `count` elements in one stretch; the hardware moves whole 32-byte blocks and drops the rest.
template <typename Dst, typename Src>
void CopyCount(const Dst& dst, const Src& src, uint64_t bytes, uint32_t element, Loc loc) {
    if (bytes % 32) {
        const bool in = ascsim::MemOfTensor(src) == ascsim::Mem::GM;  // what is said of the side in GM
        ascsim::Op op = ascsim::CallSite("DataCopy", loc);
        op.Add(in ? ascsim::Operand(src, false, "src", bytes) : ascsim::Operand(dst, true, "dst", bytes));
        ascsim::Report(
            ascsim::Severity::Error, op, "param.count_not_block",
            "%s: %llu bytes are not a multiple of 32: the hardware copies %llu and leaves the last %llu; %s",
            op.access[0].operand, (unsigned long long)bytes, (unsigned long long)(bytes / 32 * 32),
            (unsigned long long)(bytes % 32), ascsim::Soc().is_310p ? "pad the row" : "use DataCopyPad");
    }
    const uint32_t whole = uint32_t(bytes / 32 * 32);
    const ascsim::Rows rows{1, whole, whole, whole};
    if (ascsim::Move("DataCopy", dst, src, rows, whole, element, loc))
        ascsim::CopyRows(ascsim::Bytes(dst), ascsim::Bytes(src), rows,
                         ascsim::MemOfTensor(dst) == ascsim::Mem::GM);
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
              Loc loc = Loc::Here()) {
    CopyBlocks(dst, src, p, sizeof(T), loc);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              Loc loc = Loc::Here()) {
    CopyBlocks(dst, src, p, sizeof(T), loc);
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              Loc loc = Loc::Here()) {
    CopyBlocks(dst, src, p, sizeof(T), loc);
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, Loc loc = Loc::Here()) {
    CopyCount(dst, src, BytesOf<T>(count), sizeof(T), loc);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Loc loc = Loc::Here()) {
    CopyCount(dst, src, BytesOf<T>(count), sizeof(T), loc);
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Loc loc = Loc::Here()) {
    CopyCount(dst, src, BytesOf<T>(count), sizeof(T), loc);
}

// The enhanced form with GM on one side is the plain one (docs: the modes count on the way out of L0C only).
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams&, Loc loc = Loc::Here()) {
    CopyBlocks(dst, src, p, sizeof(T), loc);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams&, Loc loc = Loc::Here()) {
    CopyBlocks(dst, src, p, sizeof(T), loc);
}
// half to float on the way into the bias table.
inline void DataCopy(const LocalTensor<float>& dst, const LocalTensor<half>& src, const DataCopyParams& p,
                     Loc loc = Loc::Here()) {
    using namespace ascsim;
    Op op = CallSite("DataCopy", loc, Pipe::MTE1);
    op.kind = OpKind::Move;
    if (src.mem() != Mem::L1 || dst.mem() != Mem::BT)
        Fail(op, "path", "half to float from %s to %s; allowed L1 to the bias table", MemName(src.mem()),
             MemName(dst.mem()));
    const uint32_t elements = p.blockLen * 64u / 4;
    if (!elements || !p.blockCount) return;
    const uint64_t src_step = elements * 2ull + p.srcStride * 32ull,
                   dst_step = (p.blockLen + p.dstStride) * 64ull;
    op.work = {"L12BT", 0, uint64_t(p.blockCount) * elements * 2, p.blockCount, Mem::L1, Mem::BT};
    op.Add(Operand(src, false, "src", Shape{elements * 2, p.blockCount, src_step}));
    op.Add(Operand(dst, true, "dst", Shape{elements * 4, p.blockCount, dst_step}));
    if (!Issue(op)) return;
    for (uint32_t b = 0; b < p.blockCount; ++b)
        for (uint32_t i = 0; i < elements; ++i)
            reinterpret_cast<float*>(Bytes(dst) + b * dst_step)[i] =
                float(reinterpret_cast<const half*>(Bytes(src) + b * src_step)[i]);
}

constexpr uint32_t MAX_SLICE_SIZE = 50;

// Start offsets (elements) of all innermost rows of a slice, in the order the hardware copies them.
template <typename Tensor>
uint32_t SliceOffsets(const Tensor& t, const SliceInfo info[], uint32_t dims, bool own_shape,
                      uint32_t* offsets, Loc loc) {
    uint32_t start = 0, size = 1, rows = 1;
    offsets[0] = 0;
    for (uint32_t d = 0; d < dims; ++d) {
        if (d) {
            size *= own_shape ? info[d - 1].shapeValue : t.GetShapeInfo().shape[d - 1];
            const uint32_t step = 1 + info[d].stride;
            const uint32_t count = (info[d].endIndex - info[d].startIndex + step) / step;
            if (uint64_t(rows) * count > MAX_SLICE_SIZE)
                ascsim::Fail(ascsim::CallSite("DataCopy", loc), "param.range",
                             "slices make more than %u rows", MAX_SLICE_SIZE);
            for (uint32_t i = 1; i < count; ++i)
                for (uint32_t k = 0; k < rows; ++k) offsets[i * rows + k] = offsets[k] + i * step * size;
            rows *= count;
        }
        start += info[d].startIndex * size;
    }
    for (uint32_t i = 0; i < rows; ++i) offsets[i] += start;
    return rows;
}

template <typename T, typename Dst, typename Src>
void CopySlices(const Dst& dst, const Src& src, const SliceInfo dst_info[], const SliceInfo src_info[],
                uint32_t dims, Loc loc) {
    const bool own_shape = src_info[0].shapeValue != 0;
    uint32_t from[MAX_SLICE_SIZE], to[MAX_SLICE_SIZE];
    const uint32_t rows = SliceOffsets(src, src_info, dims, own_shape, from, loc);
    const uint32_t dst_rows = SliceOffsets(dst, dst_info, dims, own_shape, to, loc);
    if (rows != dst_rows)
        ascsim::Fail(ascsim::CallSite("DataCopy", loc), "param.range",
                     "source slices have %u rows, destination %u", rows, dst_rows);
    const uint32_t bytes = src_info[0].burstLen * 32;
    const uint32_t burst = bytes / sizeof(T) + src_info[0].stride;
    const uint32_t count = (src_info[0].endIndex - src_info[0].startIndex + 1 + src_info[0].stride) / burst;
    const ascsim::Rows r{count, bytes, bytes + src_info[0].stride * sizeof(T),
                         bytes + dst_info[0].stride * sizeof(T)};
    for (uint32_t i = 0; i < rows; ++i) {
        const auto d = dst[to[i]];
        const auto s = src[from[i]];
        if (ascsim::Move("DataCopy", d, s, r, bytes, sizeof(T), loc))
            ascsim::CopyRows(ascsim::Bytes(d), ascsim::Bytes(s), r,
                             ascsim::MemOfTensor(dst) == ascsim::Mem::GM);
    }
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const SliceInfo dst_info[],
              const SliceInfo src_info[], uint32_t dims = 1, Loc loc = Loc::Here()) {
    CopySlices<T>(dst, src, dst_info, src_info, dims, loc);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const SliceInfo dst_info[],
              const SliceInfo src_info[], uint32_t dims = 1, Loc loc = Loc::Here()) {
    CopySlices<T>(dst, src, dst_info, src_info, dims, loc);
}

inline void CheckPadRange(uint32_t count, uint32_t len, Loc loc) {
    if (count > 4095 || len > 2097151)
        ascsim::Report(ascsim::Severity::Error, ascsim::CallSite("DataCopyPad", loc), "param.range",
                       "blockCount %u, blockLen %u bytes; allowed 0 … 4095 and up to 2097151", count, len);
}

// GM -> UB: rows of any byte length, each starting on a 32-byte block of UB. What pads a row up to whole
// blocks is defined only where padding was asked for.
template <typename T>
void PadIn(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, uint32_t len,
           uint64_t src_gap, uint64_t dst_gap, bool pad, uint32_t left, uint32_t right, T value, Loc loc) {
    CheckPadRange(count, len, loc);
    if (!pad) left = right = 0;
    if (left * sizeof(T) > 32 || right * sizeof(T) > 32)
        ascsim::Report(ascsim::Severity::Error, ascsim::CallSite("DataCopyPad", loc), "param.range",
                       "padding of %u and %u elements; allowed 32 bytes a side", left, right);
    const uint32_t defined = len + uint32_t((left + right) * sizeof(T));
    const uint32_t row = (defined + 31) / 32 * 32;
    const ascsim::Rows rows{count, len, len + src_gap, row + dst_gap};
    if (!ascsim::Move("DataCopyPad", dst, src, rows, row, 1, loc)) return;
    for (uint32_t i = 0; i < count; ++i) {
        uint8_t* d = ascsim::Bytes(dst) + i * rows.dst_step;
        for (uint32_t k = 0; k < left; ++k) std::memcpy(d + k * sizeof(T), &value, sizeof(T));
        std::memcpy(d + left * sizeof(T), ascsim::Bytes(src) + i * rows.src_step, len);
        for (uint32_t k = 0; k < right; ++k)
            std::memcpy(d + left * sizeof(T) + len + k * sizeof(T), &value, sizeof(T));
        if (defined < row)
            ascsim::MarkUndefined(dst.mem(), dst.offset() + i * rows.dst_step + defined, row - defined);
    }
}
template <typename T>
void PadOut(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, uint32_t len,
            uint64_t src_gap, uint64_t dst_gap, Loc loc) {
    CheckPadRange(count, len, loc);
    const ascsim::Rows rows{count, len, (len + 31) / 32 * 32 + src_gap, len + dst_gap};
    if (ascsim::Move("DataCopyPad", dst, src, rows, len, 1, loc))
        ascsim::CopyRows(ascsim::Bytes(dst), ascsim::Bytes(src), rows, true);
}

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p,
                 const DataCopyPadParams& pad, Loc loc = Loc::Here()) {
    ascsim::support::DataCopyPad<T>();
    T value;
    std::memcpy(&value, &pad.paddingValue, sizeof(T));
    PadIn(dst, src, p.blockCount, p.blockLen, p.srcStride, p.dstStride * 32ull, pad.isPad, pad.leftPadding,
          pad.rightPadding, value, loc);
}
template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& p,
                 const DataCopyPadExtParams<T>& pad, Loc loc = Loc::Here()) {
    ascsim::support::DataCopyPad<T>();
    PadIn(dst, src, p.blockCount, p.blockLen, p.srcStride, p.dstStride * 32ull, pad.isPad, pad.leftPadding,
          pad.rightPadding, pad.paddingValue, loc);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
                 Loc loc = Loc::Here()) {
    ascsim::support::DataCopyPad<T>();
    PadOut(dst, src, p.blockCount, p.blockLen, p.srcStride * 32ull, p.dstStride, loc);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& p,
                 Loc loc = Loc::Here()) {
    ascsim::support::DataCopyPad<T>();
    PadOut(dst, src, p.blockCount, p.blockLen, p.srcStride * 32ull, p.dstStride, loc);
}

}  // namespace AscendC
