// One vector call per launch on a 64 KB image of the unified buffer: image in, call, image out. The call and
// all its arguments come from the tiling block, so that one library serves every test case.
#include <cstring>
#include <string_view>

#include "kernel_operator.h"

using namespace AscendC;

struct Case {
    char call[32];
    int32_t form;  // 0 count, 1 lane count, 2 bit mask, 3 mask register, 4 mask register in counter mode
    int32_t count;
    uint64_t mask[2];
    int32_t repeat;
    int32_t dst, src0, src1;  // byte offsets
    int32_t dst_blk, src0_blk, src1_blk, dst_rep, src0_rep, src1_rep;
    float scalar;
    int32_t mode, extra;
};

constexpr uint32_t kImage = 65536;

template <typename T>
LocalTensor<T> At(int32_t offset) {
    return LocalTensor<T>(TPosition::VECCALC, offset, (kImage - offset) / sizeof(T));
}
template <typename T>
struct Operands {
    explicit Operands(const Case& c) : d(At<T>(c.dst)), a(At<T>(c.src0)), b(At<T>(c.src1)) {}
    LocalTensor<T> d, a, b;
};
inline UnaryRepeatParams Unary(const Case& c) { return {c.dst_blk, c.src0_blk, c.dst_rep, c.src0_rep}; }
inline BinaryRepeatParams Binary(const Case& c) {
    return {c.dst_blk, c.src0_blk, c.src1_blk, c.dst_rep, c.src0_rep, c.src1_rep};
}

// The spellings of one call: `inside` takes (count) or (mask, repeat, params); `outside` reads the mask
// register.
template <typename T, typename Params, typename Inside, typename Outside>
void Spell(const Case& c, const Params& params, Inside inside, Outside outside) {
    uint64_t bits[2] = {c.mask[0], c.mask[1]};
    switch (c.form) {
        case 0:
            inside(c.count);
            break;
        case 1:
            inside(c.mask[0], c.repeat, params);
            break;
        case 2:
            inside(bits, c.repeat, params);
            break;
        case 3:
            SetVectorMask<T, MaskMode::NORMAL>(c.mask[1], c.mask[0]);
            outside(MASK_PLACEHOLDER, c.repeat, params);
            ResetMask();
            break;
        default:
            SetMaskCount();
            SetVectorMask<T, MaskMode::COUNTER>(c.count);
            outside(MASK_PLACEHOLDER, 1, params);
            SetMaskNorm();
            ResetMask();
    }
}

#define BINARY(Name)                                                     \
    if (call == #Name)                                                   \
        return Spell<T>(                                                 \
            c, Binary(c), [&](auto... t) { Name(o.d, o.a, o.b, t...); }, \
            [&](auto... t) { Name<T, false>(o.d, o.a, o.b, t...); });
#define UNARY(Name)                                                \
    if (call == #Name)                                             \
        return Spell<T>(                                           \
            c, Unary(c), [&](auto... t) { Name(o.d, o.a, t...); }, \
            [&](auto... t) { Name<T, false>(o.d, o.a, t...); });
#define SCALAR(Name)                                                                         \
    if (call == #Name)                                                                       \
        return Spell<T>(                                                                     \
            c, Unary(c), [&](auto... t) { Name(o.d, o.a, static_cast<T>(c.scalar), t...); }, \
            [&](auto... t) { Name<T, false>(o.d, o.a, static_cast<T>(c.scalar), t...); });

template <typename T>
void Arithmetic(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    BINARY(Add);
    BINARY(Sub);
    BINARY(Mul);
    BINARY(Max);
    BINARY(Min);
    SCALAR(Adds);
    SCALAR(Muls);
    SCALAR(Maxs);
    SCALAR(Mins);
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, float>) {
        BINARY(Div);
        BINARY(AddRelu);
        BINARY(SubRelu);
        BINARY(FusedMulAdd);
        BINARY(FusedMulAddRelu);
        UNARY(Abs);
        UNARY(Exp);
        UNARY(Ln);
        UNARY(Sqrt);
        UNARY(Rsqrt);
        UNARY(Reciprocal);
        UNARY(Relu);
        SCALAR(LeakyRelu);
    }
}

template <typename T>
void Bits(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    BINARY(And);
    BINARY(Or);
    UNARY(Not);
}

template <typename T, typename U>
void Fused(std::string_view call, const Case& c) {
    const auto d = At<T>(c.dst);
    const auto a = At<U>(c.src0), b = At<U>(c.src1);
    if (call == "Axpy") {
        Spell<T>(
            c, Unary(c), [&](auto... t) { Axpy(d, a, static_cast<U>(c.scalar), t...); },
            [&](auto... t) { Axpy<T, U, false>(d, a, static_cast<U>(c.scalar), t...); });
    }
    if (call == "MulAddDst") {
        Spell<T>(
            c, Binary(c), [&](auto... t) { MulAddDst(d, a, b, t...); },
            [&](auto... t) { MulAddDst<T, U, false>(d, a, b, t...); });
    }
}

template <typename T, typename U>
void Convert(const Case& c) {
    const auto d = At<T>(c.dst);
    const auto a = At<U>(c.src0);
    const RoundMode mode = static_cast<RoundMode>(c.mode);
    if constexpr (std::is_same_v<U, int32_t> && std::is_same_v<T, half>)
        SetDeqScale(static_cast<half>(c.scalar));
    Spell<T>(
        c, Unary(c), [&](auto... t) { Cast(d, a, mode, t...); },
        [&](auto... t) { Cast<T, U, false>(d, a, mode, t...); });
}

template <typename T>
void Moves(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    uint64_t bits[2] = {c.mask[0], c.mask[1]};
    const auto offsets = At<uint32_t>(c.src1);
    if (call == "Duplicate") {
        const T value = static_cast<T>(c.scalar);
        if (c.form == 0)
            Duplicate(o.d, value, c.count);
        else if (c.form == 1)
            Duplicate(o.d, value, c.mask[0], c.repeat, c.dst_blk, c.dst_rep);
        else
            Duplicate(o.d, value, bits, c.repeat, c.dst_blk, c.dst_rep);
    }
    if (call == "Brcb")
        Brcb(o.d, o.a, c.repeat, {static_cast<uint16_t>(c.dst_blk), static_cast<uint16_t>(c.dst_rep)});
    if (call == "Gather") {
        if (c.form == 0)
            Gather(o.d, o.a, offsets, static_cast<uint32_t>(c.extra), static_cast<uint32_t>(c.count));
        else if (c.form == 1)
            Gather(o.d, o.a, offsets, static_cast<uint32_t>(c.extra), c.mask[0], c.repeat, c.dst_rep);
        else
            Gather(o.d, o.a, offsets, static_cast<uint32_t>(c.extra), bits, c.repeat, c.dst_rep);
    }
    if (call == "GatherMask") {
        uint64_t kept = 0;
        const GatherMaskParams p(c.src0_blk, c.repeat, c.src0_rep, c.src1_rep);
        using Pattern = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
        if (c.mode)
            GatherMask(o.d, o.a, static_cast<uint8_t>(c.mode), c.extra, static_cast<uint32_t>(c.count), p,
                       kept);
        else
            GatherMask(o.d, o.a, At<Pattern>(c.src1), c.extra, static_cast<uint32_t>(c.count), p, kept);
        At<uint32_t>(0).SetValue(0, static_cast<uint32_t>(kept));
    }
#if defined(ASCSIM_SOC_310P)
    if (call == "Scatter")
        Scatter(o.d, o.a, offsets, static_cast<uint32_t>(c.extra), static_cast<uint32_t>(c.count));
#else
    if (call == "Gatherb")
        Gatherb(o.d, o.a, offsets, c.repeat,
                {static_cast<uint8_t>(c.dst_blk), static_cast<uint8_t>(c.dst_rep)});
#endif
}

template <typename T>
void Index(const Case& c) {
    auto d = At<T>(c.dst);
    if (c.form == 0)
        CreateVecIndex(d, static_cast<T>(c.scalar), static_cast<uint32_t>(c.count));
    else
        CreateVecIndex(d, static_cast<T>(c.scalar), c.mask[0], c.repeat, c.dst_blk, c.dst_rep);
}

#define REDUCE_BLOCK(Name)                                                                                \
    if (call == #Name) {                                                                                  \
        if (c.form == 1)                                                                                  \
            Name(o.d, o.a, c.repeat, static_cast<int32_t>(c.mask[0]), c.dst_rep, c.src0_blk, c.src0_rep); \
        else                                                                                              \
            Name(o.d, o.a, c.repeat, bits, c.dst_rep, c.src0_blk, c.src0_rep);                            \
    }
#define REDUCE_REPEAT(Name, ...)                                                             \
    if (call == #Name) {                                                                     \
        if (c.form == 1)                                                                     \
            Name(o.d, o.a, static_cast<int32_t>(c.mask[0]), c.repeat, c.dst_rep, c.src0_blk, \
                 c.src0_rep __VA_ARGS__);                                                    \
        else                                                                                 \
            Name(o.d, o.a, bits, c.repeat, c.dst_rep, c.src0_blk, c.src0_rep __VA_ARGS__);   \
    }
#define REDUCE_ALL(Name, ...)                                                                        \
    if (call == #Name) {                                                                             \
        if (c.form == 0)                                                                             \
            Name(o.d, o.a, work, c.count __VA_ARGS__);                                               \
        else if (c.form == 1)                                                                        \
            Name(o.d, o.a, work, static_cast<int32_t>(c.mask[0]), c.repeat, c.src0_rep __VA_ARGS__); \
        else                                                                                         \
            Name(o.d, o.a, work, bits, c.repeat, c.src0_rep __VA_ARGS__);                            \
    }

template <typename T>
void Reduce(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    const uint64_t bits[2] = {c.mask[0], c.mask[1]};
    const ReduceOrder order = static_cast<ReduceOrder>(c.mode);
    const LocalTensor<T> work(TPosition::VECCALC, c.src1, c.extra ? c.extra : (kImage - c.src1) / sizeof(T));
    REDUCE_BLOCK(BlockReduceSum);
    REDUCE_BLOCK(BlockReduceMax);
    REDUCE_BLOCK(BlockReduceMin);
    REDUCE_BLOCK(PairReduceSum);
    REDUCE_REPEAT(WholeReduceSum);
    REDUCE_REPEAT(WholeReduceMax, , order);
    REDUCE_REPEAT(WholeReduceMin, , order);
    REDUCE_ALL(ReduceSum);
    REDUCE_ALL(ReduceMax, , c.mode != 0);
    REDUCE_ALL(ReduceMin, , c.mode != 0);
    if (call == "ReduceDataBlock")
        ReduceDataBlock<ReduceType::MAX, T>(o.d, o.a, bits, c.repeat, c.dst_rep, c.src0_blk, c.src0_rep);
    if (call == "ReduceRepeat")
        ReduceRepeat<ReduceType::SUM, T>(o.d, o.a, bits, c.repeat, c.dst_rep, c.src0_blk, c.src0_rep);
    if (call == "RepeatReduceSum")
        RepeatReduceSum(o.d, o.a, c.repeat, static_cast<int32_t>(c.mask[0]), 0, c.src0_blk, c.dst_rep,
                        c.src0_rep);
    if (call == "vcadd")
        vcadd(o.d.GetPhyAddr(), o.a.GetPhyAddr(), c.repeat, c.dst_rep, c.src0_blk, c.src0_rep);
}

template <typename T>
void Choose(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    uint64_t bits[2] = {c.mask[0], c.mask[1]};
    const auto packed = At<uint8_t>(c.dst), selection = At<uint8_t>(c.extra);
    const CMPMODE compare = static_cast<CMPMODE>(c.mode);
    const SELMODE select = static_cast<SELMODE>(c.mode);
    if (call == "Compare") {
        if (c.form == 0)
            Compare(packed, o.a, o.b, compare, static_cast<uint32_t>(c.count));
        else
            Compare(packed, o.a, o.b, compare, c.mask[0], c.repeat, Binary(c));
    }
    if (call == "CompareScalar") {
        if (c.form == 0)
            CompareScalar(packed, o.a, static_cast<T>(c.scalar), compare, static_cast<uint32_t>(c.count));
        else
            CompareScalar(packed, o.a, static_cast<T>(c.scalar), compare, bits, c.repeat, Unary(c));
    }
    if constexpr (!std::is_same_v<T, int32_t>) {
        if (call == "Select") {
            if (c.form == 0)
                Select(o.d, selection, o.a, o.b, select, static_cast<uint32_t>(c.count));
            else if (c.form == 1)
                Select(o.d, selection, o.a, o.b, select, c.mask[0], c.repeat, Binary(c));
            else
                Select(o.d, selection, o.a, o.b, select, bits, c.repeat, Binary(c));
        }
        if (call == "SelectScalar")
            Select(o.d, selection, o.a, static_cast<T>(c.scalar), select, static_cast<uint32_t>(c.count));
        if (call == "CompareRegister") {
            Compare(o.a, o.b, compare, static_cast<uint64_t>(256 / sizeof(T)), BinaryRepeatParams());
            PipeBarrier<PIPE_V>();
            ResetMask();
            Select<T, SELMODE::VSEL_CMPMASK_SPR>(o.d, o.a, o.b, c.repeat, BinaryRepeatParams());
        }
    }
}

template <typename T>
void Rows(std::string_view call, const Case& c) {
    LocalTensor<T> dst[16], src[16];
    for (int i = 0; i < 16; ++i) {
        dst[i] = At<T>(c.dst + i * c.dst_blk * 32);
        src[i] = At<T>(c.src0 + i * c.src0_blk * 32);
    }
    const TransDataTo5HDParams p(c.mode & 1, c.mode & 2, c.repeat, c.dst_rep, c.src0_rep);
    if (call == "TransDataTo5HD") TransDataTo5HD<T>(dst, src, p);
    if constexpr (sizeof(T) == 2) {
        if (call == "Transpose") Transpose(At<T>(c.dst), At<T>(c.src0));
    }
}

template <typename T>
void HighLevel(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    const LocalTensor<uint8_t> tmp(TPosition::VECCALC, c.src1, c.extra);
    const uint32_t full[2] = {static_cast<uint32_t>(c.mask[0]), static_cast<uint32_t>(c.mask[1])};
    const uint32_t column[2] = {full[0], 1}, row[2] = {1, full[1]};
    if (call == "Sigmoid") Sigmoid(o.d, o.a, tmp, static_cast<uint32_t>(c.count));
    if (call == "SigmoidOwn") Sigmoid(o.d, o.a, static_cast<uint32_t>(c.count));
    if (call == "Silu") Silu(o.d, o.a, static_cast<uint32_t>(c.count));
    if (call == "BroadcastLast") Broadcast<T, 2, 1>(o.d, o.a, full, column, tmp);
    if (call == "BroadcastFirst") Broadcast<T, 2, 0>(o.d, o.a, full, row, tmp);
#if defined(ASCSIM_SOC_910B)
    if constexpr (std::is_same_v<T, float>) {
        if (call == "ReduceSumAR") ReduceSum<float, Pattern::Reduce::AR>(o.d, o.a, tmp, full, true);
        if (call == "ReduceSumRA") ReduceSum<float, Pattern::Reduce::RA>(o.d, o.a, tmp, full, true);
    }
#endif
}

template <typename T>
void Sorts(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    MrgSort4Info info;
    MrgSortSrcList<T> list;
    const int32_t record = call == "MrgSort4" ? 8 * sizeof(T) : 8;
    for (int i = 0; i < 4; ++i) info.elementLengths[i] = c.count;
    info.validBit = c.mode;
    info.repeatTimes = c.repeat;
    list.src1 = o.a, list.src2 = At<T>(c.src0 + c.count * record),
    list.src3 = At<T>(c.src0 + 2 * c.count * record), list.src4 = At<T>(c.src0 + 3 * c.count * record);
#if defined(ASCSIM_SOC_310P)
    if (call == "RpSort16") RpSort16(o.d, o.a, c.repeat);
    if (call == "ProposalConcat") ProposalConcat(o.d, o.a, c.repeat, c.extra);
    if (call == "ProposalExtract") ProposalExtract(o.d, o.a, c.repeat, c.extra);
    if (call == "MrgSort4") MrgSort4(o.d, list, info);
#else
    if (call == "Sort32") Sort32(o.d, o.a, At<uint32_t>(c.src1), c.repeat);
    if (call == "MrgSort") MrgSort(o.d, list, info);
#endif
}

#if defined(ASCSIM_SOC_910B)
template <typename T>
void Shifts(std::string_view call, const Case& c) {
    const Operands<T> o(c);
    if (call == "ShiftLeft") ShiftLeft(o.d, o.a, static_cast<T>(c.extra), c.count);
    if (call == "ShiftRight") ShiftRight(o.d, o.a, static_cast<T>(c.extra), c.count);
    if (call == "ShiftRightRound")
        ShiftRight(o.d, o.a, static_cast<T>(c.extra), c.mask[0], c.repeat, Unary(c), true);
}
#endif

// A mask set by the kernel, then a count form, then a call that relies on the register.
void LosesItsMask() {
    const auto x = At<float>(0), y = At<float>(4096);
    SetVectorMask<float, MaskMode::NORMAL>(0, 0xff);
    Add(y, x, x, 64);
    Adds<float, false>(x, x, 1.0f, MASK_PLACEHOLDER, 1, UnaryRepeatParams());
}

template <typename T>
bool Typed(std::string_view call, std::string_view type, std::string_view name, const Case& c) {
    if (type != name) return false;
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, int16_t> ||
                  std::is_same_v<T, int32_t>) {
        Arithmetic<T>(call, c);
        if (call == "CreateVecIndex") Index<T>(c);
    }
    if constexpr (std::is_same_v<T, int16_t> || std::is_same_v<T, uint16_t>) Bits<T>(call, c);
    if constexpr (sizeof(T) > 1) Moves<T>(call, c);
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, float>) {
        Reduce<T>(call, c);
        HighLevel<T>(call, c);
        Sorts<T>(call, c);
        Choose<T>(call, c);
    }
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, int8_t> ||
                  std::is_same_v<T, uint16_t>)
        Rows<T>(call, c);
#if defined(ASCSIM_SOC_910B)
    if constexpr (std::is_same_v<T, int32_t>) Choose<T>(call, c);
    if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint16_t>) Shifts<T>(call, c);
#endif
    return true;
}

#define CAST(d, s, D, S) \
    if (type == #d "." #s) return Convert<D, S>(c);

void Dispatch(const Case& c) {
    const std::string_view text(c.call);
    const auto dot = text.find('.');
    const std::string_view call = text.substr(0, dot), type = dot == text.npos ? text : text.substr(dot + 1);
    if (call == "LosesItsMask") return LosesItsMask();
    if (call == "Operators") {
        LocalTensor<float> d(TPosition::VECCALC, c.dst, c.count);
        d = At<float>(c.src0) - At<float>(c.src1);
        PipeBarrier<PIPE_V>();
        d = d * At<float>(c.src1);
        return;
    }
    if (call == "Cast") {
        CAST(f16, f32, half, float);
        CAST(f32, f16, float, half);
        CAST(i32, f32, int32_t, float);
        CAST(f32, i32, float, int32_t);
        CAST(i16, f16, int16_t, half);
        CAST(i32, f16, int32_t, half);
        CAST(i8, f16, int8_t, half);
        CAST(u8, f16, uint8_t, half);
        CAST(f16, i8, half, int8_t);
        CAST(f16, u8, half, uint8_t);
        CAST(f16, i16, half, int16_t);
        CAST(i16, i32, int16_t, int32_t);
        CAST(f16, i32, half, int32_t);
        CAST(i4, f16, int4b_t, half);

#if defined(ASCSIM_SOC_910B)
        CAST(f16, i4, half, int4b_t);
        CAST(f32, i16, float, int16_t);
        CAST(i32, bf16, int32_t, bfloat16_t);
        CAST(f32, bf16, float, bfloat16_t);
        CAST(bf16, f32, bfloat16_t, float);
        CAST(i64, i32, int64_t, int32_t);
        CAST(i16, f32, int16_t, float);
        CAST(f32, f32, float, float);
        CAST(i64, f32, int64_t, float);
        CAST(i32, i64, int32_t, int64_t);
        CAST(f32, i64, float, int64_t);

#endif
        return;
    }
    if (call == "Axpy" || call == "MulAddDst") {
        if (type == "f16") return Fused<half, half>(call, c);
        if (type == "f32") return Fused<float, float>(call, c);
        return Fused<float, half>(call, c);
    }
    Typed<half>(call, type, "f16", c) || Typed<float>(call, type, "f32", c) ||
        Typed<int16_t>(call, type, "i16", c) || Typed<int32_t>(call, type, "i32", c) ||
        Typed<uint16_t>(call, type, "u16", c) || Typed<int8_t>(call, type, "i8", c);
}

extern "C" __global__ __aicore__ void vector_calls(GM_ADDR image, GM_ADDR result, GM_ADDR tiling) {
    Case c;
    std::memcpy(&c, tiling, sizeof c);
    TPipe pipe;
    TBuf<TPosition::VECCALC> whole;
    pipe.InitBuffer(whole, kImage);  // calls without a temporary buffer take what lies behind
    const auto ub = At<int32_t>(0);
    GlobalTensor<int32_t> in, out;
    in.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(image), kImage / 4);
    out.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(result), kImage / 4);
    DataCopy(ub, in, kImage / 4);
    PipeBarrier<PIPE_ALL>();
    Dispatch(c);
    PipeBarrier<PIPE_ALL>();
    DataCopy(out, ub, kImage / 4);
}

// The portable conversions against the intrinsics: number of inputs that differ.
extern "C" uint64_t conversion_mismatches() {
    uint64_t wrong = 0;
    for (uint32_t h = 0; h < 65536; ++h) {
        wrong += std::bit_cast<uint32_t>(ascsim::HalfBitsToFloat(h)) !=
                 std::bit_cast<uint32_t>(ascsim::HalfBitsToFloatPortable(h));
    }
    for (uint64_t x = 0; x < (uint64_t{1} << 32); x += 521) {
        const float f = std::bit_cast<float>(static_cast<uint32_t>(x));
        wrong += ascsim::FloatToHalfBits(f) != ascsim::FloatToHalfBitsPortable(f);
    }
    return wrong;
}
