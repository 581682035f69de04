// 310P: L0C -> UB on the vector pipe, fractal by fractal, with conversion; UB -> L0C broadcast of a bias.
// Docs: "DataCopy (L0C to UB)", "BroadCastVecToMM".
#pragma once
#include "ascsim/data_copy.h"
#include "ascsim/fractal.h"
#include "ascsim/quant.h"

namespace ascsim {

#if defined(ASCSIM_SOC_310P)

template <typename D, typename S>
constexpr bool L0cTypes() {
    constexpr bool same = std::is_same_v<D, S> && sizeof(S) != 1 && sizeof(S) != 8;
    constexpr bool narrow = std::is_same_v<S, int32_t> && (sizeof(D) == 1 || std::is_same_v<D, int16_t>);
    return same || narrow ||
           (std::is_same_v<D, half> && (std::is_same_v<S, float> || std::is_same_v<S, int32_t>));
}

// One element under the deqScale mode; `word` is the scale word, or a half for DEQ and VDEQ.
template <typename D, typename S>
D Dequantise(S value, AscendC::DeqScale mode, uint64_t word, bool relu) {
    using AscendC::DeqScale;
    const bool clip = relu || (mode != DeqScale::DEQ && mode != DeqScale::VDEQ && (word >> 47 & 1));
    if (mode == DeqScale::DEQ_NONE) {
        if (clip && value < S(0)) value = S(0);
        if constexpr (std::is_same_v<D, S>)
            return value;
        else
            return ToHalfLike<D>(float(value));
    }
    if constexpr (std::is_same_v<D, int16_t>) {
        const int32_t shifted = int32_t(value) >> (int(word >> 32 & 15) + 1);
        return D(std::clamp(clip ? std::max(shifted, 0) : shifted, -32768, 32767));
    } else if constexpr (sizeof(D) == 1) {
        const QuantWord q = QuantWord::From(word, ~0u);
        float v = float(value);
        if (q.shift_first) v = float(std::clamp(int32_t(value) >> q.shift, -32768, 32767));
        const D out = ToInt8<D>(v, q);
        return clip && out < D(0) ? D(0) : out;
    } else {
        const bool is_half = mode == DeqScale::DEQ || mode == DeqScale::VDEQ;
        float v = float(value);
        const QuantWord q = QuantWord::From(word, ~0u);
        if (!is_half && q.shift_first) v = float(std::clamp(int32_t(value) >> q.shift, -32768, 32767));
        v *= is_half ? HalfBitsToFloat(uint16_t(word)) : q.scale;
        return ToHalfLike<D>(clip && v < 0 ? 0.0f : v);
    }
}

template <typename D, typename S>
void RunL0cToUb(const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src,
                const AscendC::DataCopyParams& p, const AscendC::DataCopyEnhancedParams& e, Loc loc) {
    using AscendC::BlockMode;
    using AscendC::DeqScale;
    static_assert(L0cTypes<D, S>(),
                  "DataCopy from L0C: allowed half, float, int32_t, uint32_t unchanged, float to half, "
                  "int32_t to int8_t, uint8_t, int16_t and half");
    if (!p.blockCount || !p.blockLen) return;
    Op op = CallSite("DataCopy", loc, Pipe::V);
    op.kind = OpKind::Move;
    const bool matrix = e.blockMode == BlockMode::BLOCK_MODE_MATRIX;
    if (!matrix && e.blockMode != BlockMode::BLOCK_MODE_VECTOR)
        Fail(op, "param.range", "blockMode %d from L0C; allowed BLOCK_MODE_MATRIX and BLOCK_MODE_VECTOR",
             int(e.blockMode));
    CheckRange(op, "blockCount", p.blockCount, 1, 4095);
    const bool per_column =
        e.deqScale == DeqScale::VDEQ || e.deqScale == DeqScale::VDEQ8 || e.deqScale == DeqScale::VDEQ16;
    if (e.deqScale == DeqScale::DEQ_NONE && std::is_same_v<S, int32_t> && !std::is_same_v<D, S>)
        Fail(op, "param.quant", "int32_t to %s needs a deqScale", TypeTag<D>());
    if (e.sidStoreMode > 2)
        Report(Severity::Error, op, "param.range", "sidStoreMode %u; allowed 0 … 2", e.sidStoreMode);
    const uint32_t unit = matrix ? 256 : 16;  // elements of a unit of blockLen
    const uint32_t elements = p.blockLen * unit;
    const uint32_t src_bytes = elements * sizeof(S), stride_unit = 256 * sizeof(S);
    // 8-bit results fill one half of each block of 32 bytes, or all of it.
    const bool halves = sizeof(D) == 1 && e.sidStoreMode != 2;
    const uint32_t dst_bytes = elements * (halves ? 2 : uint32_t(sizeof(D)));
    const uint64_t src_step = src_bytes + uint64_t(p.srcStride) * stride_unit;
    const uint64_t dst_step = dst_bytes + p.dstStride * 32ull;
    op.work = {"L0C2UB",
               CeilTo(p.blockCount * src_bytes, 256),
               uint64_t(p.blockCount) * src_bytes,
               p.blockCount,
               Mem::L0C,
               Mem::UB};
    Access read = Operand(src, false, "src", Shape{src_bytes, p.blockCount, src_step});
    read.carries = true;
    op.Add(read);
    const uint32_t word_bytes = e.deqScale == DeqScale::VDEQ ? 32 : 128;
    if (per_column)
        op.Add(LocalAccess(Mem::UB, e.deqTensorAddr, Core().local_bytes[int(Mem::UB)], false, "deqTensorAddr",
                           {word_bytes * (e.deqScale == DeqScale::VDEQ ? 1u : p.blockCount)}));
    if (halves)
        op.Add(LocalAccess(Mem::UB, dst.offset() + (e.sidStoreMode == 1 ? 16 : 0), dst.limit(), true, "dst",
                           {16, elements / 16, 32, p.blockCount, dst_step}));
    else
        op.Add(Operand(dst, true, "dst", Shape{dst_bytes, p.blockCount, dst_step}));
    if (src.offset() % (matrix ? stride_unit : 16 * sizeof(S)))
        Report(Severity::Error, op, "param.align", "src: L0C address %llu is not a multiple of %zu bytes",
               (unsigned long long)src.offset(), matrix ? size_t(stride_unit) : 16 * sizeof(S));
    RequireAligned(op, "dst", Mem::UB, dst.offset(), 2);
    if (!Issue(op)) return;
    for (uint32_t b = 0; b < p.blockCount; ++b) {
        const bool defined = AllDefined(Mem::L0C, src.offset() + b * src_step, src_bytes);
        for (uint32_t i = 0; i < elements; ++i) {
            const uint64_t from = src.offset() + b * src_step + i * sizeof(S);
            const uint64_t to =
                dst.offset() + b * dst_step +
                (halves ? i / 16 * 32 + i % 16 + (e.sidStoreMode == 1 ? 16 : 0) : i * sizeof(D));
            uint64_t word = e.deqValue;
            if (per_column) {
                const bool short_words = e.deqScale == DeqScale::VDEQ;
                word = 0;
                std::memcpy(
                    &word,
                    Local(Mem::UB, e.deqTensorAddr + (short_words ? i % 16 * 2 : b * 128ull + i % 16 * 8)),
                    short_words ? 2 : 8);
            }
            S value;
            std::memcpy(&value, Local(Mem::L0C, from), sizeof(S));
            const D out = Dequantise<D, S>(value, e.deqScale, word, e.isRelu);
            std::memcpy(Local(Mem::UB, to), &out, sizeof(D));
            if (!defined && !AllDefined(Mem::L0C, from, sizeof(S))) MarkUndefined(Mem::UB, to, sizeof(D));
        }
    }
}

#endif

}  // namespace ascsim

namespace AscendC {

// DataCopy with DataCopyEnhancedParams between local memories: out of L0C the modes count, elsewhere it is
// the plain move of blocks.
template <typename D, typename S>
void DataCopy(const LocalTensor<D>& dst, const LocalTensor<S>& src, const DataCopyParams& p,
              const DataCopyEnhancedParams& e, Loc loc = Loc::Here()) {
#if defined(ASCSIM_SOC_310P)
    if (src.mem() == ascsim::Mem::L0C) return ascsim::RunL0cToUb(dst, src, p, e, loc);
#endif
    if constexpr (std::is_same_v<D, S>)
        CopyBlocks(dst, src, p, sizeof(D), loc);
    else
        ascsim::Fail(ascsim::CallSite("DataCopy", loc), "path",
                     "a converting move starts in L0C, and only on 310P");
}

// Every 16 elements become a 16 x 16 fractal whose rows are all these 16: the bias of a product. dstGap
// counts fractals, srcGap 32-byte units.
template <typename T, typename U>
void BroadCastVecToMM(const LocalTensor<T>& dst, const LocalTensor<U>& src, const int32_t blockCount,
                      const uint8_t blockLen, const uint8_t srcGap, const uint8_t dstGap,
                      Loc loc = Loc::Here()) {
    ascsim::support::BroadCastVecToMM<T>();
#if defined(ASCSIM_SOC_310P)
    using namespace ascsim;
    static_assert(std::is_same_v<T, U> &&
                      (std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, int32_t>),
                  "BroadCastVecToMM: allowed half, float, int32_t, src and dst alike");
    Op op = CallSite("BroadCastVecToMM", loc, Pipe::V);
    op.kind = OpKind::Move;
    CheckRange(op, "blockCount", uint64_t(int64_t(blockCount)), 1, 255);
    CheckRange(op, "blockLen", blockLen, 1, 255);
    if (src.mem() != Mem::UB || dst.mem() != Mem::L0C)
        Fail(op, "path", "from %s to %s; allowed UB to L0C", MemName(src.mem()), MemName(dst.mem()));
    constexpr uint32_t row = 16 * sizeof(T), fractal = 256 * sizeof(T);
    const uint64_t src_step = blockLen * row + srcGap * 32ull,
                   dst_step = (uint64_t(blockLen) + dstGap) * fractal;
    const uint32_t count = uint32_t(blockCount);
    op.work = {"UB2L0C",
               CeilTo(count * blockLen * fractal, 256),
               uint64_t(count) * blockLen * fractal,
               count,
               Mem::UB,
               Mem::L0C};
    op.Add(Operand(src, false, "src", Shape{blockLen * row, count, src_step}));
    op.Add(Operand(dst, true, "dst", Shape{blockLen * fractal, count, dst_step}));
    if (dst.offset() % fractal)
        Report(Severity::Error, op, "param.align", "dst: L0C address %llu is not a multiple of 256 elements",
               (unsigned long long)dst.offset());
    RequireAligned(op, "src", Mem::UB, src.offset(), 2);
    if (!Issue(op)) return;
    for (uint32_t b = 0; b < count; ++b)
        for (uint32_t f = 0; f < blockLen; ++f)
            for (uint32_t r = 0; r < 16; ++r)
                std::memcpy(Bytes(dst) + b * dst_step + f * fractal + r * row,
                            Bytes(src) + b * src_step + f * row, row);
#endif
}

}  // namespace AscendC
