// High-level shape calls: Broadcast, ReduceSum with a pattern.
// Docs: "高阶API/张量变换/Broadcast", "高阶API/归约操作/ReduceSum".
#pragma once
#include "ascsim/reduce_all.h"
#include "ascsim/tpipe.h"

namespace ascsim {

// Least temporary bytes, from the loops of the library's implementations for the two SoCs.
template <typename T>
uint64_t BroadcastTmpBytes(int axis, uint64_t rows, uint64_t columns) {
    if (axis == 0) return kBlock;  // one block of zeros
#if defined(ASCSIM_SOC_310P)
    static_cast<void>(rows);
    return kBlock + kBlock * ((columns + 7) / 8) +
           sizeof(T);  // zeros, then more than one strip of the transposed copy
#else
    const uint64_t per_block = kBlock / sizeof(T);
    const uint64_t blocks = RoundUpTo(rows, 8) * kBlock;  // one block per row, written eight at a time
    return columns % per_block == 0 ? blocks
                                    : rows * kBlock + rows * RoundUpTo(columns, per_block) * sizeof(T);
#endif
}

}  // namespace ascsim

namespace AscendC {

// dst[dstShape] = src[srcShape] repeated along the axis of length 1. dim 1 or 2; shapes in elements.
template <typename T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[dim],
               const uint32_t srcShape[dim], const LocalTensor<uint8_t>& sharedTmpBuffer,
               Loc loc = Loc::Here()) {
    ascsim::support::Broadcast<T>();
    static_assert(dim == 1 || dim == 2, "Broadcast: dim: allowed 1, 2");
    static_assert(axis == 0 || axis == 1, "Broadcast: axis: allowed 0, 1");
    const ascsim::Site site{"Broadcast", loc};
    const uint64_t rows = dim == 2 ? dstShape[0] : 1, columns = dstShape[dim - 1];
    const uint64_t src_rows = dim == 2 ? srcShape[0] : 1, src_columns = srcShape[dim - 1];
    const uint64_t dst_size = rows * columns, src_size = src_rows * src_columns;
    ascsim::Op op = ascsim::VectorOp(
        site, ascsim::CostKey<"Broadcast", T>::value.data(),
        static_cast<uint32_t>((dst_size * sizeof(T) + ascsim::kRepeatBytes - 1) / ascsim::kRepeatBytes));
    const auto refuse = [&](const char* what) {
        ascsim::Fail(op, "param.shape", "srcShape: %s on %s", what, ascsim::support::kSoc);
    };
    if ((src_rows != rows && src_rows != 1) || (src_columns != columns && src_columns != 1))
        refuse("neither equal to dstShape nor 1 along an axis");
    const bool spread = src_size != dst_size && src_size != 1;
    if (spread && axis == 0 && src_columns * sizeof(T) % ascsim::kBlock)
        refuse("srcShape[1] is not a multiple of 32 bytes (axis 0)");
    if (spread && axis == 1 && ascsim::Soc().is_310p && src_rows * sizeof(T) % ascsim::kBlock)
        refuse("srcShape[0] is not a multiple of 32 bytes (axis 1)");
    if (dst_size == 0) return;
    op.Add(ascsim::Operand(src, false, "src", src_size * sizeof(T)));
    op.Add(ascsim::Operand(dst, true, "dst", dst_size * sizeof(T)));
    if (spread) {
        const uint64_t need = ascsim::BroadcastTmpBytes<T>(axis, rows, columns);
        if (sharedTmpBuffer.GetSize() < need) {
            ascsim::Report(ascsim::Severity::Error, op, "param.tmp_size",
                           "sharedTmpBuffer: too small: got %u bytes; allowed %llu and above",
                           sharedTmpBuffer.GetSize(), static_cast<unsigned long long>(need));
        } else {
            op.Add(ascsim::Operand(sharedTmpBuffer, true, "sharedTmpBuffer", need));
        }
    }
    if (src.offset() < dst.offset() + dst_size * sizeof(T) &&
        dst.offset() < src.offset() + src_size * sizeof(T)) {
        ascsim::Report(ascsim::Severity::Error, op, "param.overlap",
                       "src overlaps dst: this call allows no overlap");
    }
    ascsim::WriteMask(site, false, ~uint64_t{0}, ~uint64_t{0});
    if (!ascsim::Issue(op)) return;
    const T* in = src.Ptr();
    T* out = dst.Ptr();
    for (uint64_t r = 0; r < rows; ++r) {
        const T* row = in + (src_rows == 1 ? 0 : r * src_columns);
        for (uint64_t c = 0; c < columns; ++c) out[r * columns + c] = row[src_columns == 1 ? 0 : c];
    }
    PipeBarrier<PIPE_V>(loc);  // every path of CANN's ends with one
}
template <typename T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t dstShape[dim],
               const uint32_t srcShape[dim], Loc loc = Loc::Here()) {
    LocalTensor<uint8_t> rest;
    PopStackBuffer<uint8_t, TPosition::LCM>(rest);
    Broadcast<T, dim, axis, isReuseSource>(dst, src, dstShape, srcShape, rest, loc);
}

namespace Pattern::Reduce {
struct AR {};
struct RA {};
}  // namespace Pattern::Reduce

// Sums of a 2-D tensor srcShape[0] x srcShape[1]: AR over the last axis, RA over the first. The order of the
// additions is not documented: rows are summed repeat by repeat as the counted ReduceSum does, columns in row
// order.
template <typename T, typename pattern, bool isReuseSource = false>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src,
               const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t srcShape[], bool srcInnerPad,
               Loc loc = Loc::Here()) {
    ascsim::support::ReduceSumPattern<T>();
    constexpr bool last = std::is_same_v<pattern, Pattern::Reduce::AR>;
    static_assert(last || std::is_same_v<pattern, Pattern::Reduce::RA>, "ReduceSum: pattern: allowed AR, RA");
    const uint64_t rows = srcShape[0], columns = srcShape[1];
    const uint64_t pitch = ascsim::RoundUpTo(columns, ascsim::kBlock / sizeof(T));
    ascsim::Op op = ascsim::VectorOp(
        {"ReduceSum", loc}, ascsim::CostKey<"ReduceSum", T>::value.data(),
        static_cast<uint32_t>((rows * pitch * sizeof(T) + ascsim::kRepeatBytes - 1) / ascsim::kRepeatBytes));
    if (!srcInnerPad)
        ascsim::Fail(op, "param.src_inner_pad", "srcInnerPad: got false; allowed true on %s",
                     ascsim::support::kSoc);
    if (rows == 0 || columns == 0) return;
    op.Add(ascsim::Operand(src, false, "src",
                           ascsim::Shape{static_cast<uint32_t>(columns * sizeof(T)), 1, 0,
                                         static_cast<uint32_t>(rows), pitch * sizeof(T)}));
    op.Add(ascsim::Operand(dst, true, "dst", (last ? rows : columns) * sizeof(T)));
    if (sharedTmpBuffer.GetSize())
        op.Add(ascsim::Operand(sharedTmpBuffer, true, "sharedTmpBuffer", ascsim::kBlock));
    if (!ascsim::Issue(op)) return;
    const ascsim::HalfLimit limit(ascsim::Soc().fp16_saturate);
    constexpr uint32_t per_repeat = ascsim::kRepeatBytes / sizeof(T);
    const T* in = src.Ptr();
    T* out = dst.Ptr();
    if constexpr (last) {
        for (uint64_t r = 0; r < rows; ++r) {
            const ascsim::Lane<sizeof(T)> row{reinterpret_cast<uint8_t*>(const_cast<T*>(in + r * pitch)), {}};
            const ascsim::Lanes lanes = ascsim::CountLanes(per_repeat, columns);
            float sum = ascsim::RepeatSum<T>(row, lanes, 0, limit);
            for (uint32_t i = 1; i < lanes.repeats; ++i)
                sum = ascsim::Node<T>(sum, ascsim::RepeatSum<T>(row, lanes, i, limit), limit);
            out[r] = static_cast<T>(sum);
        }
    } else {
        for (uint64_t c = 0; c < columns; ++c) {
            float sum = static_cast<float>(in[c]);
            for (uint64_t r = 1; r < rows; ++r)
                sum = ascsim::Node<T>(sum, static_cast<float>(in[r * pitch + c]), limit);
            out[c] = static_cast<T>(sum);
        }
    }
}

template <typename T, typename pattern, bool isReuseSource = false>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t srcShape[],
               bool srcInnerPad, Loc loc = Loc::Here()) {
    LocalTensor<uint8_t> rest;
    PopStackBuffer<uint8_t, TPosition::LCM>(rest);
    ReduceSum<T, pattern, isReuseSource>(dst, src, rest, srcShape, srcInnerPad, loc);
}

}  // namespace AscendC
