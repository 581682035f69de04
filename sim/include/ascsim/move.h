// The one move behind DataCopy and DataCopyPad: rows of bytes from one memory to another on the pipe that
// owns the path.
#pragma once
#include <cstring>

#include "ascsim/bf16.h"
#include "ascsim/copy_params.h"
#include "ascsim/half.h"
#include "ascsim/tensor.h"

namespace ascsim {

enum class AtomicKind : uint8_t { None, Add, Max, Min };
enum class AtomicType : uint8_t { F32, F16, I16, I32, I8, BF16 };

struct Rows {
    uint32_t count = 1;
    uint32_t bytes = 0;                   // per row
    uint64_t src_step = 0, dst_step = 0;  // start to start
};

// Pipe of a path; S where the hardware has none.
constexpr Pipe PathPipe(Mem from, Mem to) {
    if (from == Mem::GM) return Pipe::MTE2;
#if defined(ASCSIM_SOC_310P)
    if (to == Mem::GM) return from == Mem::UB ? Pipe::MTE3 : Pipe::S;
    if (from == Mem::UB && to == Mem::UB) return Pipe::V;
    if (from == Mem::UB && to == Mem::L1) return Pipe::MTE3;
    if (from == Mem::L1 && to == Mem::UB) return Pipe::MTE1;
#else  // cube and vector cores share no memory but GM
    if (to == Mem::GM) return from == Mem::L0C ? Pipe::FIX : Pipe::MTE3;
    if (from == Mem::UB && to == Mem::UB) return Pipe::V;
    if (from == Mem::L1 && to == Mem::BT) return Pipe::MTE1;
    if (from == Mem::L1 && to == Mem::FB) return Pipe::FIX;
#endif
    return Pipe::S;
}

inline const char* PathCost(Mem from, Mem to) {
    if (from == Mem::GM)
        return to == Mem::UB ? "GM2UB" : to == Mem::L1 ? "GM2L1" : to == Mem::L0A ? "GM2L0A" : "GM2L0B";
    if (to == Mem::GM) return from == Mem::UB ? "UB2GM" : from == Mem::L1 ? "L12GM" : "L0C2GM";
    if (from == Mem::UB) return to == Mem::UB ? "UB2UB" : to == Mem::L1 ? "UB2L1" : "UB2L0C";
    if (from == Mem::L1)
        return to == Mem::UB    ? "L12UB"
               : to == Mem::L0A ? "L12L0A"
               : to == Mem::L0B ? "L12L0B"
               : to == Mem::BT  ? "L12BT"
                                : "L12FB";
    return to == Mem::UB ? "L0C2UB" : "L0C2L1";
}

template <typename T>
void CombineAs(uint8_t* dst, const uint8_t* src, uint64_t bytes, AtomicKind kind) {
    for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
        T a, b;
        std::memcpy(&a, dst + i, sizeof(T));
        std::memcpy(&b, src + i, sizeof(T));
        if constexpr (std::is_integral_v<T>) {
            const int64_t wide = int64_t(a) + int64_t(b);
            const int64_t low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
            a = kind == AtomicKind::Add   ? T(std::clamp(wide, low, high))
                : kind == AtomicKind::Max ? std::max(a, b)
                                          : std::min(a, b);
        } else {
            const float x = static_cast<float>(a), y = static_cast<float>(b);
            a = static_cast<T>(kind == AtomicKind::Add   ? x + y
                               : kind == AtomicKind::Max ? std::max(x, y)
                                                         : std::min(x, y));
        }
        std::memcpy(dst + i, &a, sizeof(T));
    }
}
inline void Combine(uint8_t* dst, const uint8_t* src, uint64_t bytes, AtomicKind kind, AtomicType type) {
    switch (type) {
        case AtomicType::F32:
            return CombineAs<float>(dst, src, bytes, kind);
        case AtomicType::F16:
            return CombineAs<half>(dst, src, bytes, kind);
        case AtomicType::BF16:
            return CombineAs<bfloat16_t>(dst, src, bytes, kind);
        case AtomicType::I16:
            return CombineAs<int16_t>(dst, src, bytes, kind);
        case AtomicType::I32:
            return CombineAs<int32_t>(dst, src, bytes, kind);
        case AtomicType::I8:
            return CombineAs<int8_t>(dst, src, bytes, kind);
    }
}

inline void CopyRows(uint8_t* dst, const uint8_t* src, const Rows& r, bool to_gm) {
    const auto kind = AtomicKind(Core().atomic);
    if (to_gm && kind != AtomicKind::None) {
        for (uint32_t i = 0; i < r.count; ++i)
            Combine(dst + i * r.dst_step, src + i * r.src_step, r.bytes, kind,
                    AtomicType(Core().atomic_type));
        return;
    }
    if (r.src_step == r.bytes && r.dst_step == r.bytes) {
        std::memmove(dst, src, uint64_t(r.bytes) * r.count);
        return;
    }
    for (uint32_t i = 0; i < r.count; ++i) std::memmove(dst + i * r.dst_step, src + i * r.src_step, r.bytes);
}

template <typename T>
Mem MemOfTensor(const AscendC::LocalTensor<T>& t) {
    return t.mem();
}
template <typename T>
constexpr Mem MemOfTensor(const AscendC::GlobalTensor<T>&) {
    return Mem::GM;
}

inline void RequireAligned(const Op& op, const char* operand, Mem mem, uint64_t address, uint32_t element) {
    const uint32_t need = mem == Mem::GM                                        ? element
                          : mem == Mem::L0A || mem == Mem::L0B                  ? 512
                          : mem == Mem::L0C || mem == Mem::BT || mem == Mem::FB ? 64
                                                                                : 32;
    if (need > 1 && address % need)
        Report(Severity::Error, op, "param.align", "%s: %s address %llu is not a multiple of %u bytes",
               operand, MemName(mem), (unsigned long long)(mem == Mem::GM ? address % 4096 : address), need);
}

// Marks as undefined in the destination of a copy what is undefined in its source.
inline void HandOnUndefined(Mem to, uint64_t dst, Mem from, uint64_t src, uint64_t bytes) {
    if (AllDefined(from, src, bytes)) return;
    for (uint64_t row = 0; row < bytes; row += 32) {
        const uint64_t end = std::min<uint64_t>(bytes, row + 32);
        if (AllDefined(from, src + row, end - row)) continue;
        for (uint64_t b = row; b < end; ++b)
            if (!AllDefined(from, src + b, 1)) MarkUndefined(to, dst + b, 1);
    }
}

// Moves `rows`; the written row may be longer than the read one (`written_bytes`, padding to whole blocks).
// Returns false when nothing happened.
template <typename Dst, typename Src>
bool Move(const char* api, const Dst& dst, const Src& src, const Rows& rows, uint32_t written_bytes,
          uint32_t gm_align, Loc loc) {
    if (!rows.count || !rows.bytes) return false;
    Op op;
    op.name = api;
    op.kind = OpKind::Move;
    op.loc = loc;
    const Mem from = MemOfTensor(src), to = MemOfTensor(dst);
    op.pipe = PathPipe(from, to);
    if (op.pipe == Pipe::S) Fail(op, "path", "no data path from %s to %s", MemName(from), MemName(to));
    op.work.cost = PathCost(from, to);
    op.work.from = from;
    op.work.to = to;
    op.work.bytes = uint64_t(rows.count) * rows.bytes;
    const bool dense = rows.src_step == rows.bytes && rows.dst_step == written_bytes;
    op.work.bursts = dense ? 1 : rows.count;
    if (op.pipe == Pipe::V) op.work.repeats = uint32_t((op.work.bytes + 255) / 256);
    op.Add(Operand(src, false, "src", Shape{rows.bytes, rows.count, rows.src_step}));
    op.Add(Operand(dst, true, "dst", Shape{written_bytes, rows.count, rows.dst_step}));
    op.access[0].carries = to == Mem::BT || to == Mem::FB;  // whole units, the last one padded with anything
    RequireAligned(op, "src", from, op.access[0].base, gm_align);
    RequireAligned(op, "dst", to, op.access[1].base, gm_align);
    return Issue(op);
}

template <typename T>
uint8_t* Bytes(const AscendC::LocalTensor<T>& t) {
    return reinterpret_cast<uint8_t*>(t.Ptr());
}
template <typename T>
uint8_t* Bytes(const AscendC::GlobalTensor<T>& t) {
    return reinterpret_cast<uint8_t*>(t.Ptr());
}

}  // namespace ascsim
