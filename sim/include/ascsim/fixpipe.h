// Fixpipe and DataCopy out of L0C on 910B: fractals become rows (ND) or stay in columns (NZ), with
// conversion, relu and atomic accumulation. Docs: "Fixpipe", "DataCopy (L0C to GM)", "SetFixpipeNz2ndFlag",
// "SetFixPipeConfig".
#pragma once
#include "ascsim/fractal.h"
#include "ascsim/quant.h"
#include "ascsim/support.h"

namespace ascsim {

struct FixpipeJob {
    const char* api;
    uint32_t n, m;
    uint64_t src_column;  // bytes from column of fractals to column
    uint64_t dst_stride;  // ND: bytes from row to row; NZ: bytes from column to column
    bool nd;
    uint32_t matrices = 1;
    uint64_t src_matrix = 0, dst_matrix = 0;  // bytes
    QuantMode_t quant = NoQuant;
    uint64_t scalar = 0;
    int64_t words = -1;  // byte offset of the quantisation words, -1: none
    Mem words_in = Mem::FB;
    bool relu = false;
    uint8_t unit_flag = 0;
    bool split = false;
};

// All fractals that one Mmad wrote must be read as it wrote them.
inline void CheckColumns(const Op& op, uint64_t base, const FixpipeJob& j, uint32_t block) {
    const FractalTag first = TagAt(Mem::L0C, base);
    if (!first.source) return;
    for (uint32_t c = 0; c * 16 < j.n; ++c)
        for (uint32_t r = 0; r * 16 < j.m; ++r) {
            const FractalTag t = TagAt(Mem::L0C, base + c * j.src_column + uint64_t(r) * block);
            if (t.source != first.source || (t.row == first.row + r * 16 && t.col == first.col + c * 16))
                continue;
            Report(Severity::Error, op, "fractal.layout",
                   "src: fractal (%u, %u) holds rows from %u and columns from %u of the product; it must be "
                   "rows from "
                   "%u and columns from %u: srcStride is the rows of the product rounded up to 16",
                   r, c, t.row, t.col, first.row + r * 16, first.col + c * 16);
            return;
        }
}

template <typename Dst, typename S>
void RunFixpipe(const Dst& dst, const AscendC::LocalTensor<S>& src, const FixpipeJob& j, Loc loc) {
    using D = typename Dst::PrimType;
    static_assert(sizeof(S) == 4, "L0C holds float or int32_t on ascend910b");
    if (!j.n || !j.m || !j.matrices) return;
    const Mem to = MemOfTensor(dst);
    Op op = CallSite(j.api, loc, Pipe::FIX);
    op.kind = OpKind::Move;
    op.unit_flag = j.unit_flag != 0;
    if (src.mem() != Mem::L0C || (to != Mem::GM && to != Mem::L1))
        Fail(op, "path", "no such path from %s to %s; allowed L0C to GM or L1", MemName(src.mem()),
             MemName(to));
    if (!QuantFits<D, S>(j.quant))
        Fail(op, "param.quant",
             "quantPre %d does not turn %s into %s; allowed NoQuant (same type), F322F16, F322BF16, "
             "QF322B8_PRE and VQF322B8_PRE from float, DEQF16, VDEQF16, REQ8 and VREQ8 from int32_t",
             int(j.quant), TypeTag<S>(), TypeTag<D>());
    if (PerColumn(j.quant) && j.words < 0)
        Fail(op, "param.quant", "quantPre %d needs a tensor of quantisation words", int(j.quant));
    if (j.unit_flag && j.unit_flag != 2 && j.unit_flag != 3)
        Report(Severity::Error, op, "param.range", "unitFlag %u; allowed 0, 2, 3", j.unit_flag);
    CheckRange(op, "nSize", j.n, 1, 4095);
    CheckRange(op, "mSize", j.m, 1, j.nd ? 8192 : 65535);
    const uint32_t group = j.nd ? 0 : sizeof(D) == 1 ? 32 : j.split ? 8 : 16;  // columns that lie together
    if (j.split && (j.nd || sizeof(D) != 4))
        Report(Severity::Error, op, "param.range",
               "isChannelSplit; allowed with NZ output of 32-bit elements");
    if (group && j.n % group)
        Report(Severity::Error, op, "param.range", "nSize %u; allowed multiples of %u for NZ output of %s",
               j.n, group, TypeTag<D>());
    op.work = {PathCost(Mem::L0C, to),
               0,
               uint64_t(j.matrices) * j.m * j.n * sizeof(D),
               j.nd ? j.m * j.matrices : CeilTo(j.n, group),
               Mem::L0C,
               to};
    if (j.n / 16) {
        Access a =
            Operand(src, false, "src", Shape{j.m * 64, j.n / 16, j.src_column, j.matrices, j.src_matrix});
        op.Add(a);
    }
    if (j.n % 16) {
        Access a = Operand(src, false, "src", Shape{j.n % 16 * 4, j.m, 64, j.matrices, j.src_matrix});
        a.base += j.n / 16 * j.src_column;
        a.tensor_bytes = 0;
        op.Add(a);
    }
    if (PerColumn(j.quant))
        op.Add(LocalAccess(j.words_in, uint64_t(j.words), Core().local_bytes[int(j.words_in)], false,
                           "quantisation words", {j.n * 8}));
    const uint32_t size = sizeof(D);
    if (j.nd)
        op.Add(Operand(dst, true, "dst", Shape{j.n * size, j.m, j.dst_stride, j.matrices, j.dst_matrix}));
    else
        op.Add(Operand(dst, true, "dst", Shape{j.m * group * size, CeilTo(j.n, group), j.dst_stride}));
    RequireAligned(op, "src", Mem::L0C, src.offset(), 2);
    RequireAligned(op, "dst", to, op.access[op.accesses - 1].base, size);
    if (!Issue(op)) return;
    if (Soc().checks) CheckColumns(op, src.offset(), j, 1024);
    // The words pass through the fixpipe buffer before anything is written: dst may lie where they lay in L1.
    std::vector<QuantWord> words(PerColumn(j.quant) ? j.n : 0);
    for (uint32_t c = 0; c < words.size(); ++c) {
        uint64_t word;
        std::memcpy(&word, Local(j.words_in, uint64_t(j.words) + c * 8), 8);
        words[c] = QuantWord::From(word);
    }
    const QuantWord scalar = QuantWord::From(j.scalar);
    const auto atomic = to == Mem::GM ? AtomicKind(Core().atomic) : AtomicKind::None;
    std::vector<D> row(j.nd ? j.n : group);
    for (uint32_t x = 0; x < j.matrices; ++x)
        for (uint32_t r = 0; r < j.m; ++r)
            for (uint32_t c0 = 0; c0 < j.n; c0 += uint32_t(row.size())) {
                const uint32_t count = std::min<uint32_t>(uint32_t(row.size()), j.n - c0);
                for (uint32_t i = 0; i < count; ++i) {
                    const uint32_t c = c0 + i;
                    S v;
                    std::memcpy(
                        &v, Bytes(src) + x * j.src_matrix + c / 16 * j.src_column + r * 64ull + c % 16 * 4,
                        4);
                    const QuantWord& q = words.empty() ? scalar : words[c];
                    row[i] = Convert<D, S>(v, j.quant, q, j.relu);
                }
                uint8_t* out =
                    Bytes(dst) + x * j.dst_matrix +
                    (j.nd ? r * j.dst_stride : c0 / group * j.dst_stride + uint64_t(r) * group * size);
                if (atomic == AtomicKind::None)
                    std::memcpy(out, row.data(), count * size);
                else
                    Combine(out, reinterpret_cast<const uint8_t*>(row.data()), count * size, atomic,
                            AtomicType(Core().atomic_type));
            }
}

template <typename D>
FixpipeJob JobOf(const AscendC::FixpipeParamsV220& p, bool nd) {
    FixpipeJob j{"Fixpipe", p.nSize, p.mSize, p.srcStride * 64ull, p.dstStride * (nd ? sizeof(D) : 32ull),
                 nd};
    if (nd) {
        j.matrices = p.ndNum;
        j.src_matrix = p.srcNdStride * 1024ull;
        j.dst_matrix = uint64_t(p.dstNdStride) * sizeof(D);
    }
    j.quant = p.quantPre;
    j.scalar = p.deqScalar;
    j.relu = p.reluEn;
    j.unit_flag = p.unitFlag;
    j.split = p.isChannelSplit;
    return j;
}

}  // namespace ascsim

namespace AscendC {

template <typename D, typename S, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<D>& dst, const LocalTensor<S>& src, const FixpipeParamsV220& p,
             Loc loc = Loc::Here()) {
    ascsim::support::Fixpipe<D>();
    static_assert(config.format != CO2Layout::COLUMN_MAJOR,
                  "Fixpipe: column-major output is not on ascend910b");
    ascsim::RunFixpipe(dst, src, ascsim::JobOf<D>(p, config.format == CO2Layout::ROW_MAJOR), loc);
}
// With one quantisation word per column; they lie in L1 and pass through the fixpipe buffer.
template <typename D, typename S, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<D>& dst, const LocalTensor<S>& src, const LocalTensor<uint64_t>& words,
             const FixpipeParamsV220& p, Loc loc = Loc::Here()) {
    ascsim::support::Fixpipe<D>();
    ascsim::FixpipeJob j = ascsim::JobOf<D>(p, config.format == CO2Layout::ROW_MAJOR);
    j.words = int64_t(words.offset());
    j.words_in = words.mem();
    ascsim::RunFixpipe(dst, src, j, loc);
}
template <typename D, typename S, const FixpipeConfig& config = CFG_NZ>
void Fixpipe(const LocalTensor<D>& dst, const LocalTensor<S>& src, const FixpipeParamsV220& p,
             Loc loc = Loc::Here()) {
    ascsim::support::Fixpipe<D>();
    ascsim::RunFixpipe(dst, src, ascsim::JobOf<D>(p, false), loc);
}
template <typename D, typename S, const FixpipeConfig& config = CFG_NZ>
void Fixpipe(const LocalTensor<D>& dst, const LocalTensor<S>& src, const LocalTensor<uint64_t>& words,
             const FixpipeParamsV220& p, Loc loc = Loc::Here()) {
    ascsim::support::Fixpipe<D>();
    ascsim::FixpipeJob j = ascsim::JobOf<D>(p, false);
    j.words = int64_t(words.offset());
    j.words_in = words.mem();
    ascsim::RunFixpipe(dst, src, j, loc);
}

template <typename... None>
void SetFixpipeNz2ndFlag(uint16_t ndNum, uint16_t srcNdStride, uint16_t dstNdStride) {
    ascsim::support::SetFixpipeNz2ndFlag<None...>();
    auto& c = ascsim::Core().cube;
    c.nd_count = ndNum;
    c.nd_src_stride = srcNdStride;
    c.nd_dst_stride = dstNdStride;
}
template <typename... None>
void SetFixpipePreQuantFlag(uint64_t config) {
    ascsim::support::SetFixpipePreQuantFlag<None...>();
    ascsim::Core().cube.quant_scalar = config;
}
template <typename T, bool setRelu = false>
void SetFixPipeConfig(const LocalTensor<T>& preTensor, bool isUnitFlag = false) {
    ascsim::support::SetFixPipeConfig<T>();
    auto& c = ascsim::Core().cube;
    (setRelu ? c.relu_tensor : c.quant_tensor) = uint32_t(preTensor.offset());
    c.unit_flag = isUnitFlag;
}
template <typename T>
void SetFixPipeConfig(const LocalTensor<T>& reluPre, const LocalTensor<T>& quantPre,
                      bool isUnitFlag = false) {
    ascsim::support::SetFixPipeConfig<T>();
    auto& c = ascsim::Core().cube;
    c.relu_tensor = uint32_t(reluPre.offset());
    c.quant_tensor = uint32_t(quantPre.offset());
    c.unit_flag = isUnitFlag;
}

// The older form: numbers of matrices, scale and quantisation words come from registers.
template <typename Dst, typename S>
    requires requires(const Dst& d) { ascsim::MemOfTensor(d); }
void DataCopy(const Dst& dst, const LocalTensor<S>& src, const DataCopyCO12DstParams& p,
              Loc loc = Loc::Here()) {
    using D = typename Dst::PrimType;
    ascsim::support::Fixpipe<D>();
    const auto& c = ascsim::Core().cube;
    const bool nd = p.nz2ndEn && ascsim::MemOfTensor(dst) == ascsim::Mem::GM;
    ascsim::FixpipeJob j{
        "DataCopy", p.nSize, p.mSize, p.srcStride * 64ull, p.dstStride * (nd ? sizeof(D) : 32ull), nd};
    if (nd) {
        j.matrices = c.nd_count;
        j.src_matrix = c.nd_src_stride * 1024ull;
        j.dst_matrix = uint64_t(c.nd_dst_stride) * sizeof(D);
    }
    if (p.reluPre > 1 || p.clipReluPre || p.eltWiseOp)
        ascsim::Fail(ascsim::CallSite("DataCopy", loc, ascsim::Pipe::FIX), "unsupported",
                     "DataCopyCO12DstParams: reluPre above 1, clipReluPre and eltWiseOp are not modelled");
    j.quant = p.quantPre;
    j.scalar = c.quant_scalar;
    j.words = c.quant_tensor;
    j.relu = p.reluPre == 1;
    j.unit_flag = p.unitFlag;
    j.split = p.channelSplit;
    ascsim::RunFixpipe(dst, src, j, loc);
}

}  // namespace AscendC
