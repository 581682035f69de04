// Products on split cores: cube and vector cores in one launch, Fixpipe, bias and quantisation, flags between
// cores; one fault per broken entry beside its twin. The file is compiled once per kind of core. Arguments:
// a, b, out, extra.
#include "mini.h"

namespace {

constexpr uint32_t M = 32, K = 64, N = 48;

template <HardEvent e>
void Order(int32_t id = 0) {
    SetFlag<e>(id);
    WaitFlag<e>(id);
}

// Hand-placed tensors of one product.
template <typename T, typename C>
struct Tiles {
    LocalTensor<T> a1{TPosition::A1, 0, M * K}, b1{TPosition::B1, 65536, K * N};
    LocalTensor<T> a2{TPosition::A2, 0, M * K}, b2{TPosition::B2, 0, K * N};
    LocalTensor<C> c{TPosition::CO1, 0, M * N};
};

// A and B in GM row-major, B as [n, k]: no transposition in any type.
template <typename T, typename C>
Tiles<T, C> Load(const GlobalTensor<T>& a, const GlobalTensor<T>& b) {
    Tiles<T, C> t;
    constexpr uint32_t depth = K * sizeof(T) / 32;
    DataCopy(t.a1, a, Nd2NzParams(1, M, K, 0, K, M, 1, 0));
    DataCopy(t.b1, b, Nd2NzParams(1, N, K, 0, K, N, 1, 0));
    Order<HardEvent::MTE2_MTE1>();
    for (uint32_t i = 0; i < M / 16; ++i)
        LoadData(t.a2[i * depth * 512 / sizeof(T)], t.a1[i * 512 / sizeof(T)],
                 LoadData2DParams(0, depth, M / 16, 0, 0, false, 0));
    LoadData(t.b2, t.b1, LoadData2DParams(0, depth * N / 16, 1, 0, 0, false, 0));
    Order<HardEvent::MTE1_M>();
    return t;
}
template <typename T, typename C>
Tiles<T, C> Multiply(const GlobalTensor<T>& a, const GlobalTensor<T>& b) {
    Tiles<T, C> t = Load<T, C>(a, b);
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 0, false, true));
    Order<HardEvent::M_FIX>();
    return t;
}
FixpipeParamsV220 Rows(QuantMode_t quant = NoQuant, bool relu = false, uint64_t scalar = 0) {
    return FixpipeParamsV220(N, M, M, N, relu, quant, int64_t(scalar), 1, 0, 0, 0);
}

}  // namespace

MINI(product_bf16) {
    auto t = Multiply<bfloat16_t, float>(arg.gm<bfloat16_t>(0), arg.gm<bfloat16_t>(1));
    Fixpipe(arg.gm<bfloat16_t>(2), t.c, Rows(F322BF16, true));
}
MINI(product_f32) {
    auto t = Multiply<float, float>(arg.gm<float>(0), arg.gm<float>(1));
    Fixpipe(arg.gm<float>(2), t.c, Rows());
}
// A in windows of one fractal along one axis, moved by one call that repeats.
template <int mode>
void Repeated(MiniArgs arg) {
    auto t = Load<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    Order<HardEvent::M_MTE1>();
    LoadDataRepeatParam repeat(1, mode ? K / 16 : M / 16, mode);
    SetLoadDataRepeat(repeat);
    const uint8_t none[4] = {};
    LoadData(t.a2, t.a1,
             LoadData3DParamsV2<half>(none, 1, M, K, mode ? 16 : K, mode ? M : 16, 0, 0, 1, 1, 1, 1, 1, 1,
                                      false, false, half(0)));
    SetLoadDataRepeat(LoadDataRepeatParam(0, 1, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 0, false, true));
    Order<HardEvent::M_FIX>();
    Fixpipe(arg.gm<float>(2), t.c, Rows());
}
MINI(repeated_rows) { Repeated<0>(arg); }
MINI(repeated_columns) { Repeated<1>(arg); }
MINI(no_fix_wait) {
    auto t = Load<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 0, false, true));
    Fixpipe(arg.gm<half>(2), t.c, Rows(F322F16));
}
MINI(unit_flag) {  // the hardware orders Mmad and Fixpipe
    auto t = Load<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 3, false, true));
    auto p = Rows(F322F16);
    p.unitFlag = 3;
    Fixpipe(arg.gm<half>(2), t.c, p);
}
MINI(wrong_stride) {  // columns of fractals are M apart, not M - 16
    auto t = Multiply<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    auto p = Rows(F322F16);
    p.srcStride = M - 16;
    Fixpipe(arg.gm<half>(2), t.c, p);
}
MINI(wrong_quant) {
    auto t = Multiply<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    Fixpipe(arg.gm<half>(2), t.c, Rows());
}
// Small products that accumulate: the second may read what the first has not written.
template <bool barrier>
void Twice(MiniArgs arg) {
    auto t = Load<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 0, false, true));
    if (barrier) PipeBarrier<PIPE_M>();
    Mmad(t.c, t.a2, t.b2, MmadParams(M, N, K, 0, false, false));
    Order<HardEvent::M_FIX>();
    Fixpipe(arg.gm<half>(2), t.c, Rows(F322F16));
}
MINI(twice) { Twice<true>(arg); }
MINI(twice_bad) { Twice<false>(arg); }

// The bias of each column from the bias table, L1 -> BT; extra holds N floats.
MINI(bias) {
    auto t = Load<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    LocalTensor<float> bias1(TPosition::C1, 131072, N), bias2(TPosition::C2, 0, N);
    DataCopy(bias1, arg.gm<float>(3), N);
    Order<HardEvent::MTE2_MTE1>();
    DataCopy(bias2, bias1, DataCopyParams(1, N * 4 / 64, 0, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(t.c, t.a2, t.b2, bias2, MmadParams(M, N, K, 0, false, false));
    Order<HardEvent::M_FIX>();
    Fixpipe(arg.gm<half>(2), t.c, Rows(F322F16));
}
// int8, one scale word per column out of the fixpipe buffer; extra holds N words.
MINI(quantised) {
    auto t = Multiply<int8_t, int32_t>(arg.gm<int8_t>(0), arg.gm<int8_t>(1));
    LocalTensor<uint64_t> words1(TPosition::C1, 131072, N), words2(TPosition::C2PIPE2GM, 0, N);
    DataCopy(words1, arg.gm<uint64_t>(3), N);
    Order<HardEvent::MTE2_FIX>();
    DataCopy(words2, words1, DataCopyParams(1, N * 8 / 128, 0, 0));
    PipeBarrier<PIPE_FIX>();
    Fixpipe(arg.gm<half>(2), t.c, words2, Rows(VDEQF16));
}
// [k, n] bytes: pairs of fractals are transposed as blocks of 32 x 32. n = 64 here.
template <bool good>
void TransposeI8(MiniArgs arg) {
    constexpr uint32_t n = 64;
    LocalTensor<int8_t> a1(TPosition::A1, 0, M * K), b1(TPosition::B1, 65536, K * n),
        a2(TPosition::A2, 0, M * K), b2(TPosition::B2, 0, K * n);
    LocalTensor<int32_t> c(TPosition::CO1, 0, M * n);
    DataCopy(a1, arg.gm<int8_t>(0), Nd2NzParams(1, M, K, 0, K, M, 1, 0));
    DataCopy(b1, arg.gm<int8_t>(1), Nd2NzParams(1, K, n, 0, n, K, 1, 0));
    Order<HardEvent::MTE2_MTE1>();
    for (uint32_t i = 0; i < M / 16; ++i)
        LoadData(a2[i * 2 * 512], a1[i * 512], LoadData2DParams(0, 2, M / 16, 0, 0, false, 0));
    for (uint32_t i = 0; i < K / 32; ++i)
        LoadDataWithTranspose(b2[i * n * 32], b1[i * 1024],
                              LoadData2dTransposeParams(0, n / 32, good ? K / 32 : 1, 1, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(M, n, K, 0, false, true));
    Order<HardEvent::M_FIX>();
    Fixpipe(arg.gm<int32_t>(2), c, FixpipeParamsV220(n, M, M, n, false));
}
MINI(transpose_i8) { TransposeI8<true>(arg); }
MINI(transpose_i8_bad) { TransposeI8<false>(arg); }

// The product goes back to L1 as half and is multiplied again: (A B^T) C, C [n2 = 16, k = N] in extra.
MINI(chained) {
    auto t = Multiply<half, float>(arg.gm<half>(0), arg.gm<half>(1));
    LocalTensor<half> again(TPosition::A1, 131072, M * N), c1(TPosition::B1, 196608, 16 * N);
    Fixpipe(again, t.c, FixpipeParamsV220(N, M, M, M, false, F322F16, 0, 1, 0, 0, 0));
    DataCopy(c1, arg.gm<half>(3), Nd2NzParams(1, 16, N, 0, N, 16, 1, 0));
    Order<HardEvent::FIX_MTE1>();
    Order<HardEvent::MTE2_MTE1>();
    Order<HardEvent::M_MTE1>();
    for (uint32_t i = 0; i < M / 16; ++i)
        LoadData(t.a2[i * N * 16], again[i * 256], LoadData2DParams(0, N / 16, M / 16, 0, 0, false, 0));
    LoadData(t.b2, c1, LoadData2DParams(0, N / 16, 1, 0, 0, false, 0));
    Order<HardEvent::MTE1_M>();
    Order<HardEvent::FIX_M>();
    Mmad(t.c, t.a2, t.b2, MmadParams(M, 16, N, 0, false, true));
    Order<HardEvent::M_FIX>();
    Fixpipe(arg.gm<float>(2), t.c, FixpipeParamsV220(16, M, M, 16, false));
}

// --- cube and vector cores together

// The cube core writes a product to the workspace (extra), its vector cores add one to a half of the rows
// each.
template <pipe_t pipe, bool waits>
void Relay(MiniArgs arg) {
    if ASCEND_IS_AIC {
        auto t = Multiply<half, float>(arg.gm<half>(0), arg.gm<half>(1));
        Fixpipe(arg.gm<float>(3)[GetBlockIdx() * M * N], t.c, Rows());
        CrossCoreSetFlag<2, pipe>(3);
    }
    if ASCEND_IS_AIV {
        const uint32_t share = M * N / GetSubBlockNum(), at = GetBlockIdx() * share;
        LocalTensor<float> x(TPosition::VECIN, 0, M * N);
        if (waits) CrossCoreWaitFlag(3);
        DataCopy(x, arg.gm<float>(3)[at], share);
        Order<HardEvent::MTE2_V>();
        Adds(x, x, 1.0f, share);
        Order<HardEvent::V_MTE3>();
        DataCopy(arg.gm<float>(2)[at], x, share);
    }
}
MINI(relay) { Relay<PIPE_FIX, true>(arg); }
MINI(relay_wrong_pipe) { Relay<PIPE_MTE2, true>(arg); }
MINI(relay_no_wait) { Relay<PIPE_FIX, false>(arg); }
MINI(relay_deadlock) {
    if ASCEND_IS_AIV
        CrossCoreWaitFlag(5);
}
MINI(flag_id) {
    if ASCEND_IS_AIC
        CrossCoreSetFlag<0, PIPE_FIX>(16);
}
MINI(flag_overflow) {
    if ASCEND_IS_AIC
        for (int i = 0; i < 17; ++i) CrossCoreSetFlag<2, PIPE_FIX>(1);
}
MINI(numbers) {  // who am I: kind, block, sub-block, blocks, ratio
    LocalTensor<float> x(TPosition::VECCALC, 0, 8);
    if ASCEND_IS_AIV {
        x.SetValue(0, float(GetBlockIdx()));
        x.SetValue(1, float(GetSubBlockIdx()));
        x.SetValue(2, float(GetSubBlockNum()));
        x.SetValue(3, float(GetBlockNum()));
        x.SetValue(4, float(GetTaskRation()));
        for (int i = 5; i < 8; ++i) x.SetValue(i, 0.0f);
        Order<HardEvent::S_MTE3>();
        DataCopy(arg.gm<float>(2)[GetBlockIdx() * 8], x, 8);
        SyncAll();
    }
    SyncAll<false>();
}
// Bookkeeping only: either kind of core may lay out both kinds of memory.
MINI(whole_memory) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    TBuf<TPosition::A1> l1;
    pipe.InitBuffer(ub, 192 * 1024);
    pipe.InitBuffer(l1, 512 * 1024);
}
MINI(too_much_memory) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 192 * 1024 + 32);
}
MINI(vector_core_has_no_cube) {
    if ASCEND_IS_AIV {
        LocalTensor<half> a1(TPosition::A1, 0, M * K);
        DataCopy(a1, arg.gm<half>(0), Nd2NzParams(1, M, K, 0, K, M, 1, 0));
    }
}
MINI(cube_core_has_no_ub) {
    if ASCEND_IS_AIC {
        LocalTensor<half> x(TPosition::VECIN, 0, 64);
        DataCopy(x, arg.gm<half>(0), 64);
    }
}
