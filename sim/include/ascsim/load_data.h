// LoadData (2D) and LoadDataWithTranspose: fractals from L1 or GM to L0A and L0B.
// Docs: "LoadData_2D", "LoadDataWithTranspose".
#pragma once
#include "ascsim/fractal.h"
#include "ascsim/support.h"

namespace ascsim {

template <typename Dst, typename Src>
Op LoadOp(const char* api, const Dst& dst, const Src& src, uint32_t fractals, Loc loc) {
    const Mem from = MemOfTensor(src), to = MemOfTensor(dst);
    Op op = CallSite(api, loc, from == Mem::GM ? Pipe::MTE2 : Pipe::MTE1);
    op.kind = OpKind::Move;
    op.work = {PathCost(from, to), 0, uint64_t(fractals) * kFractalBytes, 1, from, to};
    const bool to_l0 = to == Mem::L0A || to == Mem::L0B;
    if (!(from == Mem::L1 && to_l0) && !(from == Mem::GM && (to_l0 || to == Mem::L1)))
        Fail(op, "path", "no such path from %s to %s; allowed L1 to L0A or L0B, GM to L1, L0A or L0B",
             MemName(from), MemName(to));
    return op;
}

inline void FlipTag(Mem to, uint64_t dst, Mem from, uint64_t src, bool transpose) {
    if (from == Mem::GM) return;
    FractalTag tag = TagAt(from, src);
    if (!tag.source) return;
    tag.transposed ^= transpose;
    SetTag(to, dst, tag);
}

// 16 x 16 elements of 16 bits.
inline void TransposeB16(uint8_t* dst, const uint8_t* src) {
    uint16_t in[256], out[256];
    std::memcpy(in, src, sizeof in);
    for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 16; ++c) out[c * 16 + r] = in[r * 16 + c];
    std::memcpy(dst, out, sizeof out);
}

template <typename T, typename Src>
void RunLoad2D(const AscendC::LocalTensor<T>& dst, const Src& src, const AscendC::LoadData2DParams& p,
               Loc loc) {
    if (!p.repeatTimes) return;
    Op op = LoadOp("LoadData", dst, src, p.repeatTimes, loc);
    const Mem from = op.work.from, to = op.work.to;
    if (p.ifTranspose && (sizeof(T) != 2 || from != Mem::L1))
        Report(Severity::Error, op, "param.range",
               "ifTranspose with %zu-byte elements from %s; allowed 16-bit elements from L1", sizeof(T),
               MemName(from));
    if (p.addrMode && (from != Mem::GM || to != Mem::L1))
        Report(Severity::Error, op, "param.range", "addrMode 1; allowed 0 on this path");
    const int64_t step = (p.addrMode ? -1 : 1) * int64_t(p.srcStride) * int64_t(kFractalBytes);
    const int64_t lowest =
        p.startIndex * int64_t(kFractalBytes) + (step < 0 ? step * (p.repeatTimes - 1) : 0);
    if (lowest < 0) Fail(op, "param.range", "falling addresses leave src after fractal %u", p.startIndex);
    Access read =
        Operand(src, false, "src", Shape{uint32_t(kFractalBytes), p.repeatTimes, uint64_t(std::abs(step))});
    read.base += uint64_t(lowest);
    if (read.tensor_bytes && read.tensor_base < ~0ull - 1)
        read.tensor_bytes += read.tensor_base - (read.base - uint64_t(lowest));
    read.carries = from != Mem::GM;
    op.Add(read);
    const uint64_t gap = (1ull + p.dstGap) * kFractalBytes;
    op.Add(Operand(dst, true, "dst", Shape{uint32_t(kFractalBytes), p.repeatTimes, gap}));
    RequireAligned(op, "src", from, op.access[0].base, from == Mem::GM ? sizeof(T) : 2);
    RequireAligned(op, "dst", to, dst.offset(), 2);
    if (!Issue(op)) return;
    const uint8_t* first = Bytes(src) + p.startIndex * kFractalBytes;
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        const uint64_t d = dst.offset() + r * gap;
        if constexpr (std::is_same_v<Src, AscendC::GlobalTensor<T>>) {
            std::memcpy(Local(to, d), first + int64_t(r) * step, kFractalBytes);
        } else {
            const uint64_t s = src.offset() + p.startIndex * kFractalBytes + uint64_t(int64_t(r) * step);
            if (!p.ifTranspose) {
                CopyFractal(to, d, from, s);
            } else {
                TransposeB16(Local(to, d), Local(from, s));
                if (!AllDefined(from, s, kFractalBytes))
                    for (uint32_t e = 0; e < 256; ++e)
                        if (!AllDefined(from, s + e * 2, 2))
                            MarkUndefined(to, d + (e % 16 * 16 + e / 16) * 2, 2);
            }
            FlipTag(to, d, from, s, p.ifTranspose);
        }
    }
}

// A square block of 16 (b16, b32), 32 (b8) or 64 (b4) elements a side, 1, 2 or 4 fractals; b32 joins two
// fractals side by side, the others stack theirs.
template <typename T>
struct SquareBlock {
    static constexpr bool kNibble = std::is_same_v<T, AscendC::int4b_t>;
    static constexpr uint32_t kFractals = kNibble ? 4 : sizeof(T) == 2 ? 1 : 2;
    static constexpr uint32_t kSide = kNibble ? 64 : sizeof(T) == 1 ? 32 : 16;
    static constexpr bool kBeside = sizeof(T) == 4;
    // Fractal and element within it of (row, column).
    static void Place(uint32_t row, uint32_t col, uint32_t* fractal, uint32_t* element) {
        constexpr uint32_t c0 = kC0<T>;
        *fractal = kBeside ? col / c0 : row / 16;
        *element = row % 16 * c0 + col % c0;
    }
    // Transposes fractals at `src` into those at `dst` (byte offsets of each).
    static void Run(Mem to, const uint64_t* dst, Mem from, const uint64_t* src) {
        bool defined = true;
        for (uint32_t f = 0; f < kFractals; ++f) defined &= AllDefined(from, src[f], kFractalBytes);
        if constexpr (kNibble)
            for (uint32_t f = 0; f < kFractals; ++f) std::memset(Local(to, dst[f]), 0, kFractalBytes);
        for (uint32_t r = 0; r < kSide; ++r)
            for (uint32_t c = 0; c < kSide; ++c) {
                uint32_t sf, se, df, de;
                Place(r, c, &sf, &se);
                Place(c, r, &df, &de);
                if constexpr (kNibble) {
                    const uint8_t v = *Local(from, src[sf] + se / 2) >> (se % 2 * 4) & 15;
                    *Local(to, dst[df] + de / 2) |= uint8_t(v << (de % 2 * 4));
                    if (!defined && !AllDefined(from, src[sf] + se / 2, 1))
                        MarkUndefined(to, dst[df] + de / 2, 1);
                } else {
                    MoveElement(to, dst[df] + de * sizeof(T), from, src[sf] + se * sizeof(T), sizeof(T),
                                defined);
                }
            }
    }
    static void Tag(const Op& op, Mem to, const uint64_t* dst, Mem from, const uint64_t* src) {
        const FractalTag first = TagAt(from, src[0]);
        if (!first.source) return;
        for (uint32_t f = 1; f < kFractals; ++f) {
            const FractalTag t = TagAt(from, src[f]);
            if (t.source != first.source) continue;
            const uint32_t down = kBeside ? 0 : 16 * f, right = kBeside ? kC0<T> * f : 0;
            if (t.row != first.row + down || t.col != first.col + right || t.transposed != first.transposed)
                Report(Severity::Error, op, "fractal.layout",
                       "src: fractals %u and %u of one square block hold rows %u and %u, columns %u and %u "
                       "of the "
                       "matrix; they must lie %s",
                       0u, f, first.row, t.row, first.col, t.col,
                       kBeside ? "side by side" : "below each other");
        }
        for (uint32_t f = 0; f < kFractals; ++f) {
            FractalTag t = first;
            t.transposed = !first.transposed;
            (kBeside ? t.row : t.col) += f * (kBeside ? kC0<T> : 16);
            SetTag(to, dst[f], t);
        }
    }
};

// `src_step` and `src_part`: bytes from repeat to repeat, and from fractal to fractal within one.
template <typename T>
void RunLoadTranspose(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint64_t start,
                      uint32_t repeats, uint64_t src_step, uint64_t src_part, uint32_t dst_gap,
                      uint32_t part_gap, Loc loc) {
    using Block = SquareBlock<T>;
    if (!repeats) return;
    Op op = LoadOp("LoadDataWithTranspose", dst, src, repeats * Block::kFractals, loc);
    const Mem from = op.work.from, to = op.work.to;
    const uint64_t dst_step = (1ull + dst_gap) * kFractalBytes, dst_part = (1ull + part_gap) * kFractalBytes;
    Access read = Operand(src, false, "src",
                          Shape{uint32_t(kFractalBytes), Block::kFractals, src_part, repeats, src_step});
    read.base += start;
    read.carries = true;
    op.Add(read);
    op.Add(Operand(dst, true, "dst",
                   Shape{uint32_t(kFractalBytes), Block::kFractals, dst_part, repeats, dst_step}));
    RequireAligned(op, "src", from, src.offset(), 2);
    RequireAligned(op, "dst", to, dst.offset(), 2);
    if (!Issue(op)) return;
    for (uint32_t r = 0; r < repeats; ++r) {
        uint64_t s[4], d[4];
        for (uint32_t f = 0; f < Block::kFractals; ++f) {
            s[f] = src.offset() + start + r * src_step + f * src_part;
            d[f] = dst.offset() + r * dst_step + f * dst_part;
        }
        Block::Run(to, d, from, s);
        Block::Tag(op, to, d, from, s);
    }
}

}  // namespace ascsim

namespace AscendC {

template <typename T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParams& p,
              Loc loc = Loc::Here()) {
    ascsim::RunLoad2D(dst, src, p, loc);
}
template <typename T>
void LoadData(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LoadData2DParams& p,
              Loc loc = Loc::Here()) {
    ascsim::RunLoad2D(dst, src, p, loc);
}

template <typename T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                           const LoadData2dTransposeParams& p, Loc loc = Loc::Here()) {
    ascsim::support::LoadDataWithTranspose<T>();
    constexpr uint64_t block = ascsim::SquareBlock<T>::kFractals * ascsim::kFractalBytes;
    ascsim::RunLoadTranspose(dst, src, p.startIndex * block, p.repeatTimes, p.srcStride * block,
                             ascsim::kFractalBytes, p.dstGap, p.dstFracGap, loc);
}
template <typename T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src,
                           const LoadData2dTransposeParamsV2& p, Loc loc = Loc::Here()) {
    ascsim::support::LoadDataWithTranspose<T>();
    constexpr uint64_t one = ascsim::kFractalBytes;
    ascsim::RunLoadTranspose(dst, src, p.startIndex * one, p.repeatTimes, p.srcStride * one,
                             (1ull + p.srcFracGap) * one, p.dstGap, p.dstFracGap, loc);
}

}  // namespace AscendC
