// Mmad: C[m, n] = A[m, k] * B[k, n] (+ C or bias). A lies in L0A in rows of fractals, B in L0B in rows of
// fractals whose own rows run along k, C in L0C in columns of 16 x 16 fractals. Docs: "Mmad", "GEMV",
// "UnitFlag".
#pragma once
#include <vector>

#include "ascsim/fractal.h"
#include "ascsim/support.h"
#include "core/matmul.h"

namespace ascsim {

template <typename D, typename A, typename B>
constexpr bool MmadTypes() {
    constexpr auto is = []<typename X, typename Y, typename Z>() {
        return std::is_same_v<D, X> && std::is_same_v<A, Y> && std::is_same_v<B, Z>;
    };
    if (is.template operator()<int32_t, int8_t, int8_t>() || is.template operator()<float, half, half>())
        return true;
#if defined(ASCSIM_SOC_310P)
    return is.template operator()<half, half, half>() || is.template operator()<int32_t, uint8_t, int8_t>() ||
           is.template operator()<int32_t, uint8_t, uint8_t>();
#else
    return is.template operator()<float, bfloat16_t, bfloat16_t>() ||
           is.template operator()<float, float, float>() ||
           is.template operator()<int32_t, AscendC::int4b_t, AscendC::int4b_t>();
#endif
}

// Rows x depth of fractals with rows of kC0 elements: fractal (i, j) lies at i * row_step + j * col_step.
struct Grid {
    Mem mem;
    uint64_t base, limit;
    uint32_t rows, depth;         // elements in use
    uint64_t row_step, col_step;  // bytes from fractal to fractal along rows / along the depth
};

template <typename T>
constexpr uint32_t DepthBytes(uint32_t elements) {
    return std::is_same_v<T, AscendC::int4b_t> ? (elements + 1) / 2 : elements * sizeof(T);
}

// Footprint of the elements in use: whole rows of whole fractals, and the tails along rows and depth.
template <typename T>
void AddGrid(Op& op, const Grid& g, const char* operand) {
    const uint32_t full_rows = g.rows / 16, tail_rows = g.rows % 16;
    const uint32_t full_cols = g.depth / kC0<T>, tail = DepthBytes<T>(g.depth % kC0<T>);
    const auto add = [&](uint64_t at, const Shape& s) {
        if (!s.block_bytes || !s.blocks || !s.repeats) return;
        Access a = LocalAccess(g.mem, g.base, g.limit, false, operand, s);
        a.base += at;
        op.Add(a);
    };
    add(0, {uint32_t(kFractalBytes), full_cols, g.col_step, full_rows, g.row_step});
    add(full_rows * g.row_step, {tail_rows * kRow, full_cols, g.col_step});
    if (!tail) return;
    add(full_cols * g.col_step, {tail, 16, kRow, full_rows, g.row_step});
    add(full_rows * g.row_step + full_cols * g.col_step, {tail, tail_rows, kRow});
}

// Row-major rows x depth numbers (float or int32_t) from a grid.
template <typename T, typename N>
void Unpack(const Grid& g, N* out, uint64_t out_row, uint64_t out_col) {
    constexpr uint32_t c0 = kC0<T>;
    for (uint32_t r = 0; r < g.rows; ++r)
        for (uint32_t j = 0; j * c0 < g.depth; ++j) {
            const uint8_t* in = Local(g.mem, g.base + r / 16 * g.row_step + j * g.col_step + r % 16 * kRow);
            const uint32_t count = std::min(c0, g.depth - j * c0);
            N* to = out + r * out_row + uint64_t(j) * c0 * out_col;
            for (uint32_t e = 0; e < count; ++e) {
                if constexpr (std::is_same_v<T, AscendC::int4b_t>)
                    to[e * out_col] = int8_t(uint8_t(in[e / 2] >> (e % 2 * 4)) << 4) >> 4;
                else
                    to[e * out_col] = static_cast<N>(reinterpret_cast<const T*>(in)[e]);
            }
        }
}

// All fractals of a grid that come from one matrix must lie there as they lie here.
template <typename T>
void CheckLayout(const Op& op, const Grid& g, const char* operand, const char* wanted) {
    const FractalTag first = TagAt(g.mem, g.base);
    if (!first.source) return;
    for (uint32_t i = 0; i * 16 < g.rows; ++i)
        for (uint32_t j = 0; j * kC0<T> < g.depth; ++j) {
            const FractalTag t = TagAt(g.mem, g.base + i * g.row_step + j * g.col_step);
            if (t.source != first.source) continue;
            const uint32_t along_rows = i * 16, along_depth = j * kC0<T>;
            const uint32_t row = first.row + (first.transposed ? along_depth : along_rows);
            const uint32_t col = first.col + (first.transposed ? along_rows : along_depth);
            if (t.transposed == first.transposed && t.row == row && t.col == col) continue;
            Report(Severity::Error, op, "fractal.layout",
                   "%s: fractal (%u, %u) holds rows from %u and columns from %u of its matrix, %s; for %s it "
                   "must be "
                   "rows from %u and columns from %u, %s: check ifTranspose, srcStride and the order of "
                   "LoadData",
                   operand, i, j, t.row, t.col, t.transposed ? "transposed" : "not transposed", wanted, row,
                   col, first.transposed ? "transposed" : "not transposed");
            return;
        }
}

template <typename T>
constexpr const char* MmadCost() {
    if constexpr (std::is_same_v<T, float>)
        return "Mmad.f32";
    else if constexpr (std::is_same_v<T, half>)
        return "Mmad.f16";
    else if constexpr (std::is_same_v<T, bfloat16_t>)
        return "Mmad.bf16";
    else
        return "Mmad.i8";
}

// L0C of one Mmad: columns of 16 x 16 fractals, element size 2 (half results) or 4.
template <typename D>
struct Result {
    uint64_t base;
    uint32_t m, n;
    uint32_t row_blocks() const { return CeilTo(m, 16); }
    uint32_t col_blocks() const { return CeilTo(n, 16); }
    static constexpr uint32_t kBlock = 256 * sizeof(D);
    uint64_t At(uint32_t r, uint32_t c) const {
        return base + (uint64_t(c / 16) * row_blocks() + r / 16) * kBlock +
               (r % 16 * 16 + c % 16) * sizeof(D);
    }
    Shape Used() const {  // the first n / 16 columns of fractals, rows in use
        return {m * 16 * uint32_t(sizeof(D)), n / 16, uint64_t(row_blocks()) * kBlock};
    }
    Shape UsedTail() const { return {n % 16 * uint32_t(sizeof(D)), m, 16 * sizeof(D)}; }
    // Rows and columns beyond m and n hold whatever the unit makes of the padding.
    void Undefine() const {
        const uint32_t tail_rows = row_blocks() * 16 - m;
        for (uint32_t c = 0; tail_rows && c < col_blocks(); ++c)
            MarkUndefined(Mem::L0C, At(m - 1, c * 16) + 16 * sizeof(D), uint64_t(tail_rows) * 16 * sizeof(D));
        for (uint32_t r = 0; n % 16 && r < m; ++r)
            MarkUndefined(Mem::L0C, At(r, n - 1) + sizeof(D), (16 - n % 16) * sizeof(D));
    }
    void Tag() const {
        const uint32_t matrix = NewMatrix();
        for (uint32_t c = 0; c < col_blocks(); ++c)
            for (uint32_t r = 0; r < row_blocks(); ++r)
                SetTag(Mem::L0C, At(r * 16, c * 16), {matrix, r * 16, c * 16});
    }
};

// Start values of C.
enum class Start : uint8_t { Zero, L0C, Bias };

template <typename D, typename N>
void Accumulate(const MatmulShape& shape, const N* a, const N* b, const Result<D>& c, Start start,
                uint64_t bias) {
    std::vector<N> acc(uint64_t(shape.m) * shape.n, N(0));
    for (uint32_t r = 0; start != Start::Zero && r < c.m; ++r)
        for (uint32_t j = 0; j < c.n; ++j) {
            const uint8_t* from =
                start == Start::Bias ? Local(Mem::BT, bias + j * 4) : Local(Mem::L0C, c.At(r, j));
            if (start == Start::Bias)
                std::memcpy(&acc[uint64_t(r) * shape.n + j], from, 4);
            else
                acc[uint64_t(r) * shape.n + j] = static_cast<N>(*reinterpret_cast<const D*>(from));
        }
    if constexpr (std::is_same_v<N, float>)
        MatmulF32(shape, a, b, acc.data());
    else
        MatmulI32(shape, a, b, acc.data());
    const HalfLimit limit(Soc().fp16_saturate);
    for (uint32_t r = 0; r < c.m; ++r)
        for (uint32_t j = 0; j < c.n; ++j) {
            D* to = reinterpret_cast<D*>(Local(Mem::L0C, c.At(r, j)));
            const N v = acc[uint64_t(r) * shape.n + j];
            if constexpr (std::is_same_v<D, half>)
                *to = half(limit(v));
            else
                *to = v;
        }
}

template <typename D, typename A, typename B>
void RunMmad(const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<A>& fm,
             const AscendC::LocalTensor<B>& filter, const AscendC::MmadParams& p, Start start, uint64_t bias,
             Loc loc) {
    static_assert(
        MmadTypes<D, A, B>(),
        "Mmad: these element types are not available on this SoC; ascend310p: half x half to half or float, "
        "int8_t / uint8_t to int32_t; ascend910b: half, bfloat16_t or float to float, int8_t or int4b_t to "
        "int32_t");
    Op op = CallSite("Mmad", loc, Pipe::M);
    if (dst.mem() != Mem::L0C || fm.mem() != Mem::L0A || filter.mem() != Mem::L0B)
        Fail(op, "path", "dst in %s, fm in %s, filter in %s; allowed L0C (CO1), L0A (A2), L0B (B2)",
             MemName(dst.mem()), MemName(fm.mem()), MemName(filter.mem()));
    CheckRange(op, "m", p.m, 0, 4095);
    CheckRange(op, "n", p.n, 0, 4095);
    CheckRange(op, "k", p.k, 0, 4095);
    if (p.enSsparse || p.enWinogradA || p.enWinogradB)
        Fail(op, "unsupported", "sparse and winograd forms are not modelled");
    if (p.unitFlag && p.unitFlag != 2 && p.unitFlag != 3)
        Report(Severity::Error, op, "param.range", "unitFlag %u; allowed 0, 2, 3", p.unitFlag);
    if (!p.m || !p.n || !p.k) return;
    op.unit_flag = p.unitFlag != 0;
    op.overtakes =
        (p.m / 16) * (p.n / 16) < 10;  // such products need PipeBarrier<PIPE_M> between accumulations
    const uint32_t rows = CeilTo(p.m, 16), cols = CeilTo(p.n, 16);
    uint32_t depth = CeilTo(p.k, kC0<A>);
    if (std::is_same_v<A, float> && p.kDirectionAlign) depth = (depth + 1) / 2 * 2;
    const bool vector = p.m == 1 && Config("numerics.gemv_m1", 1) != 0;
    const Grid a{Mem::L0A, fm.offset(), fm.limit(), p.m, p.k, uint64_t(depth) * kFractalBytes, kFractalBytes};
    const Grid b{
        Mem::L0B, filter.offset(), filter.limit(), p.n, p.k, kFractalBytes, uint64_t(cols) * kFractalBytes};
    const Result<D> c{dst.offset(), p.m, p.n};
    op.work.cost = MmadCost<A>();
    op.work.repeats = rows * cols * CeilTo(p.k, kC0<A>) * (std::is_same_v<A, float> ? 8 : 16) / 16;
    if (std::is_same_v<A, float>) op.work.repeats = std::max(1u, op.work.repeats);
    if (vector)
        op.Add(LocalAccess(Mem::L0A, a.base, a.limit, false, "fm", {DepthBytes<A>(p.k)}));
    else
        AddGrid<A>(op, a, "fm");
    AddGrid<B>(op, b, "filter");
    if (start == Start::L0C) {
        if (c.n / 16)
            op.Add(LocalAccess(Mem::L0C, c.base, dst.limit(), false, "dst (accumulated)", c.Used()));
        if (c.n % 16)
            op.Add(LocalAccess(Mem::L0C, c.At(0, c.n / 16 * 16), dst.limit(), false, "dst (accumulated)",
                               c.UsedTail()));
    } else if (start == Start::Bias) {
        Access a = LocalAccess(Mem::BT, bias, Core().local_bytes[int(Mem::BT)], false, "bias", {p.n * 4u});
        a.carries = true;
        op.Add(a);
    }
    op.Add(LocalAccess(Mem::L0C, c.base, dst.limit(), true, "dst", {rows * cols * Result<D>::kBlock}));
    const auto aligned = [&](const char* name, uint64_t offset, uint32_t need) {
        if (offset % need)
            Report(Severity::Error, op, "param.align", "%s: address %llu is not a multiple of %u bytes", name,
                   (unsigned long long)offset, need);
    };
    aligned("fm", a.base, 512);
    aligned("filter", b.base, 512);
    aligned("dst", c.base, Result<D>::kBlock);
    if (!Issue(op)) return;
    if (Soc().checks) {
        if (!vector) CheckLayout<A>(op, a, "fm", "rows of fractals along m");
        CheckLayout<B>(op, b, "filter", "rows of fractals along k whose own rows are n");
    }
    using N = std::conditional_t<std::is_same_v<D, int32_t>, int32_t, float>;
    MatmulShape shape;
    shape.m = p.m;
    shape.n = cols * 16;
    shape.k = p.k;
    shape.k_block = uint32_t(Config("numerics.mmad_k_block", 16));
    shape.tree = Config("numerics.mmad_block_tree", 0) != 0;
    thread_local std::vector<N> left, right;
    left.assign(uint64_t(p.m) * p.k, N(0));
    right.assign(uint64_t(p.k) * shape.n, N(0));
    if (vector) {
        for (uint32_t k = 0; k < p.k; k += kC0<A>) {
            const Grid row{
                Mem::L0A, a.base + DepthBytes<A>(k), a.limit, 1, std::min<uint32_t>(kC0<A>, p.k - k), 0, 0};
            Unpack<A>(row, left.data() + k, 0, 1);
        }
    } else {
        Unpack<A>(a, left.data(), p.k, 1);
    }
    Unpack<B>(b, right.data(), 1, shape.n);
    Accumulate<D, N>(shape, left.data(), right.data(), c, start, bias);
    if (Soc().checks) {
        c.Undefine();
        for (uint32_t j = 0; start == Start::Bias && j < p.n; ++j)
            for (uint32_t r = 0; r < p.m && !AllDefined(Mem::BT, bias + j * 4, 4); ++r)
                MarkUndefined(Mem::L0C, c.At(r, j), sizeof(D));
        c.Tag();
    }
}

}  // namespace ascsim

namespace AscendC {

template <typename D, typename A, typename B>
void Mmad(const LocalTensor<D>& dst, const LocalTensor<A>& fm, const LocalTensor<B>& filter,
          const MmadParams& p, Loc loc = Loc::Here()) {
    const bool zero = p.cmatrixInitVal && !p.isBias;
#if defined(ASCSIM_SOC_310P)
    if (p.cmatrixSource)
        ascsim::Fail(ascsim::CallSite("Mmad", loc, ascsim::Pipe::M), "unsupported",
                     "cmatrixSource: start values from the bias table; this part has none");
#endif
    ascsim::RunMmad(dst, fm, filter, p,
                    zero              ? ascsim::Start::Zero
                    : p.cmatrixSource ? ascsim::Start::Bias
                                      : ascsim::Start::L0C,
                    0, loc);
}

// The bias, one value per column, starts every row; it lies in the bias table (C2) or, as another result, in
// L0C.
template <typename D, typename A, typename B, typename C>
void Mmad(const LocalTensor<D>& dst, const LocalTensor<A>& fm, const LocalTensor<B>& filter,
          const LocalTensor<C>& bias, const MmadParams& p, Loc loc = Loc::Here()) {
#if defined(ASCSIM_SOC_310P)
    static_assert(sizeof(D) == 0,
                  "Mmad with a bias tensor is not available on ascend310p (ascend910b has it)");
#endif
    static_assert(sizeof(C) == 4, "Mmad: the bias has the element type of dst");
    if (bias.mem() != ascsim::Mem::BT)
        ascsim::Fail(ascsim::CallSite("Mmad", loc, ascsim::Pipe::M), "path",
                     "bias: in %s; allowed the bias table (C2)", ascsim::MemName(bias.mem()));
    ascsim::RunMmad(dst, fm, filter, p, p.cmatrixInitVal ? ascsim::Start::Zero : ascsim::Start::Bias,
                    bias.offset(), loc);
}

}  // namespace AscendC
