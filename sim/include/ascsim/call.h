// A vector call as the engine sees it: operands, footprints, parameter and overlap rules, issue.
#pragma once
#include <array>
#include <initializer_list>

#include "ascsim/mask.h"
#include "ascsim/simd.h"

namespace ascsim {

template <uint32_t N>
struct Text {
    char text[N]{};
    constexpr Text(const char (&s)[N]) {
        for (uint32_t i = 0; i < N; ++i) text[i] = s[i];
    }
};

template <typename T>
constexpr const char* TypeTag() {
    if constexpr (std::is_same_v<T, half>)
        return "f16";
    else if constexpr (std::is_same_v<T, float>)
        return "f32";
    else if constexpr (std::is_same_v<T, bfloat16_t>)
        return "bf16";
    else if constexpr (std::is_same_v<T, AscendC::int4b_t>)
        return "i4";
    else if constexpr (std::is_same_v<T, int8_t>)
        return "i8";
    else if constexpr (std::is_same_v<T, uint8_t>)
        return "u8";
    else if constexpr (std::is_same_v<T, int16_t>)
        return "i16";
    else if constexpr (std::is_same_v<T, uint16_t>)
        return "u16";
    else if constexpr (std::is_same_v<T, int32_t>)
        return "i32";
    else if constexpr (std::is_same_v<T, uint32_t>)
        return "u32";
    else if constexpr (std::is_same_v<T, int64_t>)
        return "i64";
    else
        return "u64";
}

// "<API>.<types>", the key of the cost table.
template <Text api, typename... T>
struct CostKey {
    static constexpr auto Build() {
        std::array<char, 64> key{};
        uint32_t n = 0;
        const auto put = [&](const char* s) {
            while (*s) key[n++] = *s++;
        };
        put(api.text);
        put(".");
        (put(TypeTag<T>()), ...);
        return key;
    }
    static constexpr std::array<char, 64> value = Build();
};

// One operand of a vector call.
struct VecOperand {
    const char* name;
    bool write;
    uint32_t size;  // bytes per element
    Mem mem;
    uint64_t offset;  // byte offset of lane 0 of repeat 0
    uint64_t limit;   // first byte beyond the tensor
    Stride stride;
    const Loc* freed;  // see Access

    template <typename T>
    Lane<sizeof(T)> Host() const {
        return {Local(mem, offset), stride};
    }
};

template <typename T>
VecOperand MakeOperand(const AscendC::LocalTensor<T>& t, const char* name, bool write, uint64_t block = 1,
                       uint64_t repeat = 8) {
    return {
        name,       write,     static_cast<uint32_t>(sizeof(T)),  t.mem(),
        t.offset(), t.limit(), {block * kBlock, repeat * kBlock}, AscendC::GivenBack(t.GetBufferHandle())};
}
template <typename T>
VecOperand Dst(const AscendC::LocalTensor<T>& t, uint64_t block = 1, uint64_t repeat = 8) {
    return MakeOperand(t, "dst", true, block, repeat);
}
template <typename T>
VecOperand Src(const AscendC::LocalTensor<T>& t, const char* name, uint64_t block = 1, uint64_t repeat = 8) {
    return MakeOperand(t, name, false, block, repeat);
}

// Adds the bytes of `operand` that `lanes` activates to the op. Defined once; not a template to keep kernels
// small.
inline void Footprint(Op& op, const VecOperand& operand, const Lanes& lanes) {
    const uint32_t per_block = kBlock / operand.size;
    const auto add = [&](uint64_t at, uint32_t bytes, uint32_t blocks, uint64_t block_stride,
                         uint32_t repeats) {
        if (bytes == 0 || blocks == 0 || repeats == 0) return;
        Access a;
        a.mem = operand.mem;
        a.write = operand.write;
        a.base = operand.offset + at;
        a.block_bytes = bytes;
        a.blocks = block_stride == 0 ? 1 : blocks;
        a.block_stride = block_stride;
        a.repeats = operand.stride.repeat == 0 ? 1 : repeats;
        a.repeat_stride = operand.stride.repeat;
        const bool empty = operand.limit <= operand.offset;  // an empty extent must not read as "unknown"
        a.tensor_base = empty ? ~uint64_t{0} - 1 : operand.offset;
        a.tensor_bytes = empty ? 1 : operand.limit - operand.offset;
        a.operand = operand.name;
        a.freed = operand.freed;
        op.Add(a);
    };
    const auto prefix = [&](uint32_t n, uint32_t first, uint32_t repeats) {
        const uint64_t at = first * operand.stride.repeat;
        if (n <= per_block || operand.stride.block == kBlock) {
            const uint32_t bytes = n * operand.size;
            if (operand.stride.repeat == bytes && repeats)
                add(at, bytes * repeats, 1, 0, 1);
            else
                add(at, bytes, 1, 0, repeats);
            return;
        }
        add(at, kBlock, n / per_block, operand.stride.block, repeats);
        add(at + (n / per_block) * operand.stride.block, (n % per_block) * operand.size, 1, 0, repeats);
    };
    if (lanes.repeats == 0) return;
    if (lanes.prefix) {
        if (lanes.active == lanes.last) return prefix(lanes.active, 0, lanes.repeats);
        const uint32_t bytes = lanes.lanes * operand.size;
        if (operand.stride.block == kBlock && operand.stride.repeat == bytes && lanes.active == lanes.lanes) {
            return add(0, static_cast<uint32_t>(lanes.Total() * operand.size), 1, 0, 1);
        }
        prefix(lanes.active, 0, lanes.repeats - 1);
        return prefix(lanes.last, lanes.repeats - 1, 1);
    }
    // Bit mask: runs of active bytes; equal runs at equal distances share one footprint.
    struct Span {
        uint64_t at;
        uint32_t bytes;
    };
    Span spans[128];
    uint32_t n = 0;
    for (uint32_t lane = 0; lane < lanes.lanes; ++lane) {
        if (!lanes.On(0, lane)) continue;
        const uint64_t at = (lane / per_block) * operand.stride.block + (lane % per_block) * operand.size;
        if (n && spans[n - 1].at + spans[n - 1].bytes == at)
            spans[n - 1].bytes += operand.size;
        else
            spans[n++] = {at, operand.size};
    }
    constexpr uint32_t kGroups = 7;  // four operands and a few more fit into an operation
    for (uint32_t i = 0, group = 1; i < n; ++group) {
        uint32_t count = 1;
        const uint64_t step = i + 1 < n ? spans[i + 1].at - spans[i].at : 0;
        while (i + count < n && spans[i + count].bytes == spans[i].bytes &&
               spans[i + count].at - spans[i + count - 1].at == step)
            ++count;
        if (group == kGroups && i + count < n) {  // irregular pattern: one range from here on
            const uint64_t end = spans[n - 1].at + spans[n - 1].bytes;
            return add(spans[i].at, static_cast<uint32_t>(end - spans[i].at), 1, 0, lanes.repeats);
        }
        add(spans[i].at, spans[i].bytes, count, step, lanes.repeats);
        i += count;
    }
}

inline uint64_t SpanBytes(const VecOperand& o, const Lanes& lanes) {
    const uint64_t blocks = (static_cast<uint64_t>(lanes.lanes) * o.size + kBlock - 1) / kBlock;
    return (lanes.repeats - 1) * o.stride.repeat + (blocks - 1) * o.stride.block + kBlock;
}

struct Rules {
    bool overlap_free = false;  // Gather, Brcb, …: source and destination may not meet at all
    bool accumulate = false;  // dst of repeat N may be a source of repeat N + 1 (dst == src, repeat stride 0)
    uint32_t align = kBlock;  // of the operands' start
    uint32_t dst_align = kBlock;
};

// Docs "通用说明和约束": within one iteration source and destination are the same or disjoint; the
// destination of an iteration is not the source of the next.
inline void CheckOverlap(const Op& op, const VecOperand& dst, const VecOperand& src, const Lanes& lanes,
                         Rules rules) {
    if (dst.mem != src.mem || lanes.repeats == 0) return;
    if (dst.offset + SpanBytes(dst, lanes) <= src.offset || src.offset + SpanBytes(src, lanes) <= dst.offset)
        return;
    const uint64_t dst_blocks = (static_cast<uint64_t>(lanes.lanes) * dst.size + kBlock - 1) / kBlock;
    const uint64_t src_blocks = (static_cast<uint64_t>(lanes.lanes) * src.size + kBlock - 1) / kBlock;
    const bool same = dst.offset == src.offset && dst.size == src.size &&
                      dst.stride.block == src.stride.block && dst.stride.repeat == src.stride.repeat;
    if (same && dst.stride.repeat >= dst_blocks * dst.stride.block && !rules.overlap_free) return;
    const auto active = [&](const VecOperand& o, uint32_t repeat,
                            uint64_t block) -> uint32_t {  // bytes from block start
        const uint32_t per_block = kBlock / o.size;
        uint32_t end = 0;
        for (uint32_t i = 0; i < per_block; ++i) {
            const uint64_t lane = block * per_block + i;
            if (lane < lanes.lanes && lanes.On(repeat, static_cast<uint32_t>(lane))) end = (i + 1) * o.size;
        }
        return end;
    };
    const auto meet = [&](uint32_t dst_repeat, uint32_t src_repeat, bool allow_identical) {
        for (uint64_t i = 0; i < dst_blocks; ++i) {
            const uint64_t d = dst.offset + dst_repeat * dst.stride.repeat + i * dst.stride.block;
            const uint32_t dn = active(dst, dst_repeat, i);
            for (uint64_t j = 0; j < src_blocks; ++j) {
                const uint64_t s = src.offset + src_repeat * src.stride.repeat + j * src.stride.block;
                const uint32_t sn = active(src, src_repeat, j);
                if (dn == 0 || sn == 0 || d + dn <= s || s + sn <= d) continue;
                if (allow_identical && d == s && i == j && dst.size == src.size) continue;
                return true;
            }
        }
        return false;
    };
    // Narrowing in place reads every element before its bytes are overwritten; common, yet not documented as
    // allowed.
    const bool narrowing = dst.offset == src.offset && dst.size < src.size && !rules.overlap_free;
    const Severity severity = narrowing ? Severity::Note : Severity::Error;
    const uint32_t repeats =
        lanes.repeats < 3 ? lanes.repeats : 3;  // the pattern is the same in every repeat
    for (uint32_t r = 0; r < repeats; ++r) {
        if (meet(r, r, !rules.overlap_free)) {
            return Report(severity, op, "param.overlap",
                          "%s overlaps dst within one repeat: must be the same addresses or disjoint%s",
                          src.name, rules.overlap_free ? " (this call allows no overlap)" : "");
        }
        const bool idiom = rules.accumulate && dst.stride.repeat == 0 && dst.offset == src.offset;
        if (r + 1 < lanes.repeats && !idiom && meet(r, r + 1, false)) {
            return Report(Severity::Error, op, "param.overlap_repeat",
                          "%s of repeat %u overlaps dst of repeat %u", src.name, r + 1, r);
        }
    }
}

inline void CheckOperands(const Op& op, std::initializer_list<VecOperand> operands, const Lanes& lanes,
                          Rules rules) {
    const VecOperand& dst = *operands.begin();
    for (const VecOperand& o : operands) {
        if (o.mem != Mem::UB)
            Fail(op, "param.position",
                 "%s: not in the unified buffer: got %s; allowed VECIN, VECOUT, VECCALC", o.name,
                 MemName(o.mem));
        const uint32_t align = o.write ? rules.dst_align : rules.align;
        if (o.offset % align) {
            Op named = CallSite(op.name, op.loc, op.pipe);
            Access& at = named.Add({});
            at.mem = o.mem;
            at.base = o.offset;
            at.block_bytes = kBlock;
            at.operand = o.name;
            Report(Severity::Error, named, "param.align",
                   "%s: start address not aligned: got byte offset %llu; allowed multiples of %u", o.name,
                   static_cast<unsigned long long>(o.offset), align);
        }
        if (o.write && o.stride.block == 0 && static_cast<uint64_t>(lanes.lanes) * o.size > kBlock) {
            Report(Severity::Error, op, "param.dst_blk_stride",
                   "dstBlkStride: undefined for a destination: got 0; allowed 1 and above");
        }
        if (dst.write && !o.write && o.name != dst.name) CheckOverlap(op, dst, o, lanes, rules);
    }
}

// Prepares a call: false when there is nothing to compute. operands[0] is the destination.
inline bool Begin(Site site, const char* cost, const Lanes& lanes, std::initializer_list<VecOperand> operands,
                  Rules rules = {}) {
    if (lanes.Nothing()) return false;
    const SocInfo& soc = Soc();
    if (!soc.checks && !soc.record) {
        bool inside = true;
        for (const VecOperand& o : operands) {
            inside = inside && o.mem == Mem::UB &&
                     o.offset + SpanBytes(o, lanes) <= Core().local_bytes[int(Mem::UB)];
        }
        if (inside) return true;
    }
    Op op;
    op.name = site.api;
    op.kind = OpKind::Compute;
    op.pipe = Pipe::V;
    op.loc = site.loc;
    op.work.cost = cost;
    op.work.repeats = lanes.repeats;
    if (soc.checks) CheckOperands(op, operands, lanes, rules);
    for (const VecOperand& o : operands) Footprint(op, o, lanes);
    return Issue(op);
}

// Same for calls whose source and destination advance by different element counts (Brcb, reductions).
inline bool BeginReduced(Site site, const char* cost, const Lanes& dst_lanes, const VecOperand& dst,
                         const Lanes& src_lanes, const VecOperand& src, Rules rules = {}) {
    if (src_lanes.Nothing() || dst_lanes.Nothing()) return false;
    const SocInfo& soc = Soc();
    if (!soc.checks && !soc.record) {
        const uint64_t room = Core().local_bytes[int(Mem::UB)];
        if (dst.mem == Mem::UB && src.mem == Mem::UB && dst.offset + SpanBytes(dst, dst_lanes) <= room &&
            src.offset + SpanBytes(src, src_lanes) <= room) {
            return true;
        }
    }
    Op op;
    op.name = site.api;
    op.kind = OpKind::Compute;
    op.pipe = Pipe::V;
    op.loc = site.loc;
    op.work.cost = cost;
    op.work.repeats = src_lanes.lanes > dst_lanes.lanes ? src_lanes.repeats : dst_lanes.repeats;
    if (soc.checks) {
        CheckOperands(op, {dst}, dst_lanes, rules);
        CheckOperands(op, {src}, src_lanes, rules);
        if (rules.overlap_free && dst.mem == src.mem && dst.offset < src.offset + SpanBytes(src, src_lanes) &&
            src.offset < dst.offset + SpanBytes(dst, dst_lanes)) {
            Report(Severity::Error, op, "param.overlap", "src overlaps dst: this call allows no overlap");
        }
    }
    Footprint(op, dst, dst_lanes);
    Footprint(op, src, src_lanes);
    return Issue(op);
}

inline void CheckTruncated(Site site, int64_t given) {
    if (given) {
        WarnAt(site, Severity::Error, "param.stride",
               "repeatParams: a stride does not fit its field: got %lld; allowed 0..255",
               static_cast<long long>(given));
    }
}

}  // namespace ascsim
