// DataCopy with Nd2NzParams: a row-major matrix in GM laid out in fractals in L1. One MTE2 instruction on
// 910B; on 310P the framework does it with tiles of 64 x 64 bytes through the last 8 KB of UB, so that MTE3
// writes L1.
#pragma once
#include "ascsim/event.h"
#include "ascsim/fractal.h"
#include "ascsim/queue.h"

namespace ascsim {

// Lays out rows [row, row + rows) and bytes [col, col + bytes) of each row of one matrix.
template <typename T>
struct NzTile {
    uint64_t dst;        // byte offset in L1 of the matrix
    const uint8_t* src;  // first byte of the matrix
    uint64_t src_row;    // bytes from row to row
    uint64_t c0_stride;  // bytes from column of fractals to column
    uint64_t n_stride;   // bytes from row to row in L1
    void Lay(uint32_t row, uint32_t rows, uint32_t col, uint32_t bytes) const {
        for (uint32_t c = col; c < col + bytes; c += kRow) {
            const uint32_t part = std::min(kRow, col + bytes - c);
            uint8_t* out = Local(Mem::L1, dst + c / kRow * c0_stride);
            for (uint32_t r = row; r < row + rows; ++r) {
                std::memcpy(out + r * n_stride, src + r * src_row + c, part);
                if (part < kRow) std::memset(out + r * n_stride + part, 0, kRow - part);
            }
        }
    }
    void Tag(uint32_t rows, uint32_t bytes, uint32_t matrix, uint32_t first_row) const {
        if (dst % kFractalBytes || n_stride != kRow || c0_stride % kFractalBytes) return;
        for (uint32_t c = 0; c < bytes; c += kRow)
            for (uint32_t r = 0; r < rows; r += 16)
                SetTag(Mem::L1, dst + c / kRow * c0_stride + r * kRow,
                       {matrix, first_row + r, c / kRow * kC0<T>, false});
    }
};

// Footprint in L1 of rows x bytes laid out.
inline Shape NzShape(uint32_t rows, uint32_t bytes, uint64_t n_stride, uint64_t c0_stride) {
    if (n_stride == kRow) return {rows * kRow, 1, 0, CeilTo(bytes, kRow), c0_stride};
    return {kRow, rows, n_stride, CeilTo(bytes, kRow), c0_stride};
}

inline Op MoveOp(const char* api, Pipe pipe, Mem from, Mem to, uint64_t bytes, uint32_t rows, Loc loc) {
    Op op = CallSite(api, loc, pipe);
    op.kind = OpKind::Move;
    op.work = {PathCost(from, to), 0, bytes, rows, from, to};
    return op;
}

#if defined(ASCSIM_SOC_310P)
constexpr uint64_t kScratch = 248 * 1024;  // where the framework's 8 KB of UB begin

// One tile: GM -> UB, rearranged by the vector unit, UB -> L1.
template <typename T>
void EmulatedTile(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                  const NzTile<T>& tile, uint32_t row, uint32_t rows, uint32_t col, uint32_t bytes,
                  int32_t mte2_v, int32_t v_mte3, Loc loc) {
    using AscendC::HardEvent;
    const char* api = "DataCopy(nd2nz)";
    const uint32_t whole = CeilTo(bytes, kRow) * kRow;
    Op in = MoveOp(api, Pipe::MTE2, Mem::GM, Mem::UB, uint64_t(rows) * whole, rows, loc);
    Access read = Operand(src, false, "src", Shape{whole, rows, tile.src_row});
    read.base = uint64_t(tile.src) + row * tile.src_row + col;
    read.tensor_bytes = 0;
    in.Add(read);
    in.Add(LocalAccess(Mem::UB, kScratch, kScratch + 4096, true, "scratch", {rows * whole}));
    Issue(in);
    AscendC::SetQueueEvent(api, HardEvent::MTE2_V, mte2_v, loc);
    AscendC::WaitQueueEvent(api, HardEvent::MTE2_V, mte2_v, loc);
    Op turn = CallSite(api, loc, Pipe::V);
    turn.work.cost = "Adds";
    turn.work.repeats = rows * whole / kRow;  // one row of 32 bytes a repeat
    turn.Add(LocalAccess(Mem::UB, kScratch, kScratch + 4096, false, "scratch", {rows * whole}));
    turn.Add(LocalAccess(Mem::UB, kScratch + 4096, kScratch + 8192, true, "scratch", {rows * whole}));
    Issue(turn);
    AscendC::SetQueueEvent(api, HardEvent::V_MTE3, v_mte3, loc);
    AscendC::WaitQueueEvent(api, HardEvent::V_MTE3, v_mte3, loc);
    Op out = MoveOp(api, Pipe::MTE3, Mem::UB, Mem::L1, uint64_t(rows) * whole, whole / kRow, loc);
    out.Add(LocalAccess(Mem::UB, kScratch + 4096, kScratch + 8192, false, "scratch", {rows * whole}));
    Access write = Operand(dst, true, "dst", NzShape(rows, whole, kRow, tile.c0_stride));
    write.base = tile.dst + col / kRow * tile.c0_stride + row * kRow;
    out.Add(write);
    if (Issue(out)) tile.Lay(row, rows, col, bytes);
}

template <typename T>
void EmulatedMatrix(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                    const NzTile<T>& tile, uint32_t rows, uint32_t bytes, Loc loc) {
    using AscendC::HardEvent;
    const char* api = "DataCopy(nd2nz)";
    auto& events = AscendC::PipeOf(api, loc).events();
    const int32_t back = events.Alloc(api, HardEvent::MTE3_MTE2, loc);
    const int32_t mte2_v = events.Fetch(api, HardEvent::MTE2_V, loc);
    const int32_t v_mte3 = events.Fetch(api, HardEvent::V_MTE3, loc);
    constexpr uint32_t kHigh = 64 / sizeof(T), kWide = 64;
    for (uint32_t r = 0; r < rows; r += kHigh)
        for (uint32_t c = 0; c < bytes; c += kWide) {
            AscendC::SetQueueEvent(api, HardEvent::MTE3_MTE2, back, loc);
            AscendC::WaitQueueEvent(api, HardEvent::MTE3_MTE2, back, loc);
            EmulatedTile(dst, src, tile, r, std::min(kHigh, rows - r), c, std::min(kWide, bytes - c), mte2_v,
                         v_mte3, loc);
            // MTE2 also waits for the tile to be in L1, so that MTE2_MTE1 orders what loads from there.
            AscendC::SetQueueEvent(api, HardEvent::MTE3_MTE2, back, loc);
            AscendC::WaitQueueEvent(api, HardEvent::MTE3_MTE2, back, loc);
        }
    events.Release(api, HardEvent::MTE3_MTE2, AscendC::TEventID(back), loc);
    // The rearranging Adds runs under a mask of its own and leaves it behind.
    WriteMask({api, loc}, false, (1ull << (32 / sizeof(T))) - 1, 0);
}
#endif

}  // namespace ascsim

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& p,
              Loc loc = Loc::Here()) {
    using namespace ascsim;
    static_assert(sizeof(T) <= 4, "DataCopy with Nd2NzParams: allowed 8-, 16- and 32-bit elements");
    Op site = MoveOp("DataCopy", Pipe::MTE2, Mem::GM, Mem::L1, 0, 0, loc);
    if (dst.mem() != Mem::L1)
        Fail(site, "path", "Nd2NzParams: dst is in %s; allowed L1 (A1, B1, C1)", MemName(dst.mem()));
    CheckRange(site, "ndNum", p.ndNum, 0, 4095);
    CheckRange(site, "nValue", p.nValue, 0, 16384);
    if (!p.ndNum || !p.nValue || !p.dValue) return;
    CheckRange(site, "srcDValue", p.srcDValue, 1, 65535);
    CheckRange(site, "dstNzC0Stride", p.dstNzC0Stride, 1, 16384);
    CheckRange(site, "dstNzNStride", p.dstNzNStride, 1, 16384);
    if (p.srcDValue < p.dValue)
        Report(Severity::Error, site, "param.range", "srcDValue %u is below dValue %u: rows overlap",
               p.srcDValue, p.dValue);
    RequireAligned(site, "dst", Mem::L1, dst.offset(), 1);
    constexpr uint32_t kSize = sizeof(T);
    const uint32_t bytes = p.dValue * kSize, rows = p.nValue;
    const bool joined = p.srcNdMatrixStride == uint64_t(p.nValue) * p.srcDValue;
    uint32_t matrix = NewMatrix();
    auto tile = [&](uint32_t i) {
        return NzTile<T>{dst.offset() + uint64_t(i) * p.dstNzMatrixStride * kSize,
                         Bytes(src) + uint64_t(i) * p.srcNdMatrixStride * kSize,
                         uint64_t(p.srcDValue) * kSize, uint64_t(p.dstNzC0Stride) * kRow,
                         uint64_t(p.dstNzNStride) * kRow};
    };
#if defined(ASCSIM_SOC_310P)
    if (p.dstNzNStride != 1)
        Report(Severity::Error, site, "param.range",
               "dstNzNStride %u; the emulation on this part ignores all but 1", p.dstNzNStride);
    if (BufferEnd(Mem::UB, kScratch + 8191))
        Report(Severity::Error, site, "capacity.scratch",
               "the emulation on this part overwrites UB bytes [%llu, 262144), where %s lies: keep the last "
               "8 KB free",
               (unsigned long long)kScratch, "a buffer of the kernel");
    for (uint32_t i = 0; i < p.ndNum; ++i) EmulatedMatrix(dst, src, tile(i), rows, bytes, loc);
#else
    constexpr uint32_t kBatch = 15;
    for (uint32_t first = 0; first < p.ndNum; first += kBatch) {
        const uint32_t last = std::min<uint32_t>(p.ndNum, first + kBatch);
        Op op = MoveOp("DataCopy", Pipe::MTE2, Mem::GM, Mem::L1, uint64_t(last - first) * rows * bytes,
                       (last - first) * rows, loc);
        for (uint32_t i = first; i < last; ++i) {
            const NzTile<T> t = tile(i);
            Access read = Operand(src, false, "src", Shape{bytes, rows, t.src_row});
            read.base = uint64_t(t.src);
            if (read.tensor_bytes)
                read.tensor_bytes -= std::min(read.tensor_bytes - 1, read.base - read.tensor_base);
            read.tensor_base = read.tensor_bytes ? read.base : 0;
            op.Add(read);
            Access write = Operand(dst, true, "dst", NzShape(rows, bytes, t.n_stride, t.c0_stride));
            write.base = t.dst;
            op.Add(write);
        }
        if (!Issue(op)) continue;
        for (uint32_t i = first; i < last; ++i) tile(i).Lay(0, rows, 0, bytes);
    }
#endif
    for (uint32_t i = 0; i < p.ndNum; ++i) {
        if (i && !joined) matrix = NewMatrix();
        tile(i).Tag(rows, bytes, matrix, joined ? i * rows : 0);
    }
}

}  // namespace AscendC
