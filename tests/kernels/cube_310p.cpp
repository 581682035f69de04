// Products on a combined core: every path into and out of the cube, and one fault per broken entry beside its
// twin. Arguments: a, b, out, extra.
#include "mini.h"

namespace {

constexpr uint32_t M = 32, K = 48, N = 64;

enum Flaw {
    kNone,
    kNoLoadWait,      // LoadData does not wait for L1
    kMte2LoadWait,    // none: LoadData waits for MTE2, which itself waited for the move into L1
    kNoProductWait,   // Mmad does not wait for L0
    kNoResultWait,    // the vector unit does not wait for Mmad
    kNoReuseWait,     // L0A is filled again while Mmad reads it
    kStraightB,       // B stays untransposed in a grid that needs it transposed
    kTransposedA,     // A's fractals are transposed, their grid is not
    kMissingFractal,  // the last fractal of A is never loaded
    kWrongColumns,    // L0A in columns of fractals
};

template <typename T, typename C>
struct Buffers {
    TPipe pipe;
    TBuf<TPosition::A1> a1;
    TBuf<TPosition::B1> b1;
    TBuf<TPosition::A2> a2;
    TBuf<TPosition::B2> b2;
    TBuf<TPosition::CO1> c1;
    TBuf<TPosition::VECOUT> out;
    Buffers() {
        pipe.InitBuffer(a1, 32768);
        pipe.InitBuffer(b1, 32768);
        pipe.InitBuffer(a2, 32768);
        pipe.InitBuffer(b2, 16384);
        pipe.InitBuffer(c1, 65536);
        pipe.InitBuffer(out, 65536);
    }
};

template <HardEvent e>
void Order(int32_t id = 0) {
    SetFlag<e>(id);
    WaitFlag<e>(id);
}

// A in rows of fractals, from columns of fractals in L1.
template <typename T>
void LoadA(const LocalTensor<T>& a2, const LocalTensor<T>& a1, uint32_t m, uint32_t k, int flaw = kNone) {
    const uint32_t depth = k * sizeof(T) / 32;
    for (uint32_t i = 0; i < m / 16; ++i) {
        uint8_t repeat = depth;
        if (flaw == kMissingFractal && i + 1 == m / 16) --repeat;
        const uint32_t at = flaw == kWrongColumns ? i : i * depth;
        LoadData(a2[at * 512 / sizeof(T)], a1[i * 512 / sizeof(T)],
                 LoadData2DParams(0, repeat, m / 16, 0, flaw == kWrongColumns ? m / 16 - 1 : 0,
                                  flaw == kTransposedA, 0));
    }
}
// B[k, n] row-major in the kernel's view: 16-bit elements are transposed on the way.
void LoadB(const LocalTensor<half>& b2, const LocalTensor<half>& b1, uint32_t k, uint32_t n,
           int flaw = kNone) {
    for (uint32_t i = 0; i < k / 16; ++i)
        LoadData(b2[i * n * 16], b1[i * 256],
                 LoadData2DParams(0, n / 16, k / 16, 0, 0, flaw != kStraightB, 0));
}
Nd2NzParams Rows(uint32_t rows, uint32_t columns) {
    return Nd2NzParams(1, rows, columns, 0, columns, rows, 1, 0);
}

// L0C -> UB -> GM, in columns of fractals.
template <typename D, typename C>
void Out(const GlobalTensor<D>& z, const LocalTensor<D>& out, const LocalTensor<C>& c, uint32_t m, uint32_t n,
         DeqScale scale = DeqScale::DEQ_NONE, uint64_t word = 0, bool relu = false) {
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    e.deqScale = scale;
    e.deqValue = word;
    e.sidStoreMode = 2;
    e.isRelu = relu;
    DataCopy(out, c, DataCopyParams(1, m * n / 256, 0, 0), e);
    Order<HardEvent::V_MTE3>();
    DataCopy(z, out, m * n);
}

template <typename D, typename C>
void Product(MiniArgs arg, int flaw = kNone) {
    Buffers<half, C> s;
    auto a1 = s.a1.template Get<half>(), b1 = s.b1.template Get<half>(), a2 = s.a2.template Get<half>(),
         b2 = s.b2.template Get<half>();
    auto c = s.c1.template Get<C>();
    DataCopy(a1, arg.gm<half>(0), Rows(M, K));
    DataCopy(b1, arg.gm<half>(1), Rows(K, N));
    if (flaw == kMte2LoadWait)
        Order<HardEvent::MTE2_MTE1>();
    else if (flaw != kNoLoadWait)
        Order<HardEvent::MTE3_MTE1>();
    LoadA(a2, a1, M, K, flaw);
    LoadB(b2, b1, K, N, flaw);
    if (flaw != kNoProductWait) Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(M, N, K, 0, false, true));
    if (flaw == kNoReuseWait) LoadA(a2, a1, M, K);
    if (flaw != kNoResultWait) Order<HardEvent::M_V>();
    Out(arg.gm<D>(2), s.out.template Get<D>(), c, M, N);
}

}  // namespace

MINI(product_f32) { Product<float, float>(arg); }
MINI(product_f16) { Product<half, half>(arg); }
MINI(product_f32_to_f16) { Product<half, float>(arg); }
MINI(no_load_wait) { Product<float, float>(arg, kNoLoadWait); }
MINI(load_waits_for_mte2) { Product<float, float>(arg, kMte2LoadWait); }
MINI(modes_and_numbers) {
    SetHF32Mode(false);
    SetMMLayoutTransform(true);
    if (GetSubBlockIdx() != 0 || GetSubBlockNum() != 1) Trap();
    Product<float, float>(arg);
    SetMMLayoutTransform(false);
}
MINI(hf32) { SetHF32Mode(true); }
MINI(cross_core) { CrossCoreWaitFlag(0); }
MINI(no_product_wait) { Product<float, float>(arg, kNoProductWait); }
MINI(no_result_wait) { Product<float, float>(arg, kNoResultWait); }
MINI(no_reuse_wait) { Product<float, float>(arg, kNoReuseWait); }
MINI(straight_b) { Product<float, float>(arg, kStraightB); }
MINI(transposed_a) { Product<float, float>(arg, kTransposedA); }
MINI(missing_fractal) { Product<float, float>(arg, kMissingFractal); }
MINI(wrong_columns) { Product<float, float>(arg, kWrongColumns); }

// K in three steps of 16 into one accumulator, L0A and L0B filled anew each time.
MINI(accumulate) {
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), b1 = s.b1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>();
    DataCopy(a1, arg.gm<half>(0), Rows(M, K));
    DataCopy(b1, arg.gm<half>(1), Rows(K, N));
    Order<HardEvent::MTE3_MTE1>();
    for (uint32_t k = 0; k < K; k += 16) {
        if (k) WaitFlag<HardEvent::M_MTE1>(1);
        for (uint32_t i = 0; i < M / 16; ++i)
            LoadData(a2[i * 256], a1[(k / 16 * M / 16 + i) * 256], LoadData2DParams(0, 1, 1, 0, 0, false, 0));
        LoadData(b2, b1[k / 16 * 256], LoadData2DParams(0, N / 16, K / 16, 0, 0, true, 0));
        Order<HardEvent::MTE1_M>();
        Mmad(c, a2, b2, MmadParams(M, N, 16, 0, false, k == 0));
        PipeBarrier<PIPE_M>();
        if (k + 16 < K) SetFlag<HardEvent::M_MTE1>(1);
    }
    Order<HardEvent::M_V>();
    Out(arg.gm<float>(2), s.out.Get<float>(), c, M, N);
}

// B given as [n, k]: its fractals already have their rows along n. m, n, k off the fractal grid.
MINI(tails) {
    constexpr uint32_t m = 21, n = 37, k = 48;
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), b1 = s.b1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>();
    DataCopy(a1, arg.gm<half>(0), Nd2NzParams(1, m, k, 0, k, 32, 1, 0));
    DataCopy(b1, arg.gm<half>(1), Nd2NzParams(1, n, k, 0, k, 48, 1, 0));
    Order<HardEvent::MTE3_MTE1>();
    LoadA(a2, a1, 32, 48);
    LoadData(b2, b1, LoadData2DParams(0, 9, 1, 0, 0, false, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(m, n, k, 0, false, true));
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_VECTOR;  // rows in use of each column of fractals
    auto out = s.out.Get<float>();
    for (uint32_t j = 0; j < 2; ++j)
        for (uint32_t r = 0; r < m; ++r)
            DataCopy(out[(j * m + r) * 16], c[(j * 2 * 16 + r) * 16], DataCopyParams(1, 1, 0, 0), e);
    Order<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(2), out, 2 * m * 16);
}

MINI(product_i8) {
    constexpr uint32_t k = 64;
    Buffers<int8_t, int32_t> s;
    auto a1 = s.a1.Get<int8_t>(), b1 = s.b1.Get<int8_t>(), a2 = s.a2.Get<int8_t>(), b2 = s.b2.Get<int8_t>();
    auto c = s.c1.Get<int32_t>();
    DataCopy(a1, arg.gm<int8_t>(0), M * k);  // in columns of fractals already
    DataCopy(b1, arg.gm<int8_t>(1), N * k);  // [n, k]
    Order<HardEvent::MTE2_MTE1>();
    LoadA(a2, a1, M, k);
    LoadData(b2, b1, LoadData2DParams(0, N / 16 * k / 32, 1, 0, 0, false, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(M, N, k, 0, false, true));
    Order<HardEvent::M_V>();
    Out(arg.gm<int32_t>(2), s.out.Get<int32_t>(), c, M, N);
    PipeBarrier<PIPE_ALL>();
    Out(arg.gm<half>(3), s.out.Get<half>(), c, M, N, DeqScale::DEQ16, 0x3c000000, true);  // times 2^-7, relu
}

// Columns of fractals through UB, and back from L1.
MINI(through_ub) {
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), out = s.out.Get<half>();
    DataCopy(out, arg.gm<half>(0), M * K);
    Order<HardEvent::MTE2_MTE3>();
    DataCopy(a1, out, M * K);
    Order<HardEvent::MTE3_MTE1>();
    DataCopy(out[M * K], a1, M * K);
    Order<HardEvent::MTE1_V>();
    Adds(out[M * K], out[M * K], half(1), M * K);
    Order<HardEvent::V_MTE3>();
    DataCopy(arg.gm<half>(2), out[M * K], M * K);
}

// max(0, (x + y) * scale) of integers, and columns of fractals written to GM as rows.
MINI(deq_relu) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 8192);
    auto x = buf.Get<int32_t>(), y = x[512];
    auto z = buf.Get<half>()[2048];
    DataCopy(x, arg.gm<int32_t>(0), 512);
    DataCopy(y, arg.gm<int32_t>(1), 512);
    Order<HardEvent::MTE2_V>();
    SetDeqScale(half(0.25));
    AddDeqRelu(z, x, y, 512);
    Order<HardEvent::V_MTE3>();
    DataCopy(arg.gm<half>(2), z, Nz2NdParamsFull(1, 16, 32, 0, 16, 32, 0));
}

// The bias fills L0C, the product adds to it.
MINI(bias) {
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), b1 = s.b1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>(), out = s.out.Get<float>();
    DataCopy(out, arg.gm<float>(3), N);
    Order<HardEvent::MTE2_V>();
    BroadCastVecToMM(c, out, N / 16, 1, 0, 1);
    BroadCastVecToMM(c[256], out, N / 16, 1, 0, 1);
    Order<HardEvent::V_M>();
    DataCopy(a1, arg.gm<half>(0), Rows(M, K));
    DataCopy(b1, arg.gm<half>(1), Rows(K, N));
    Order<HardEvent::MTE3_MTE1>();
    LoadA(a2, a1, M, K);
    LoadB(b2, b1, K, N);
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(M, N, K, 0, false, false));
    Order<HardEvent::M_V>();
    Out(arg.gm<float>(2), out[N], c, M, N);
}

// One row: A is read as it stands, a row of K elements.
MINI(row_vector) {
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), b1 = s.b1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>();
    InitConstValue(a1, InitConstValueParams<half>(1, half(0)));
    PipeBarrier<PIPE_MTE2>();
    DataCopy(a1, arg.gm<half>(0), K);
    DataCopy(b1, arg.gm<half>(1), Rows(K, N));
    Order<HardEvent::MTE2_MTE1>();
    Order<HardEvent::MTE3_MTE1>();
    LoadData(a2, a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadB(b2, b1, K, N);
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(1, N, K, 0, false, true));
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_VECTOR;
    auto out = s.out.Get<float>();
    for (uint32_t j = 0; j < N / 16; ++j) DataCopy(out[j * 16], c[j * 256], DataCopyParams(1, 1, 0, 0), e);
    Order<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(2), out, N);
}

// A 3 x 3 convolution of an 8 x 8 map of 16 channels, padded by one, 64 pixels x 144 columns; then version 1.
template <bool first_version>
void Unroll(MiniArgs arg) {
    Buffers<half, float> s;
    auto map = s.a1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>();
    DataCopy(map, arg.gm<half>(0), 8 * 8 * 16);
    DataCopy(s.b1.Get<half>(), arg.gm<half>(1), 144 * 16);  // [n = 16, k = 144] in columns of fractals
    Order<HardEvent::MTE2_MTE1>();
    const uint8_t pad[4] = {1, 1, 1, 1};
    if constexpr (first_version) {
        for (int16_t block = 0; block < 4; ++block)
            LoadData(a2[block * 9 * 256], map,
                     LoadData3DParamsV1<half>(pad, 8, 8, 0, 0, 0, -1, int16_t(block * 2 - 1), 1, 1, 3, 3, 1,
                                              1, 1, 0, 9, 0, half(0)));
    } else {
        LoadData(
            a2, map,
            LoadData3DParamsV2<half>(pad, 8, 8, 16, 144, 64, 0, 0, 1, 1, 3, 3, 1, 1, false, false, half(0)));
    }
    LoadData(b2, s.b1.Get<half>(), LoadData2DParams(0, 9, 1, 0, 0, false, 0));
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(64, 16, 144, 0, false, true));
    Order<HardEvent::M_V>();
    Out(arg.gm<float>(2), s.out.Get<float>(), c, 64, 16);
}
MINI(convolution) { Unroll<false>(arg); }
MINI(convolution_v1) { Unroll<true>(arg); }

// Both operands of a product through the three-dimensional load: A as it is, B transposed on the way to L0B.
MINI(product_3d) {
    Buffers<half, float> s;
    auto a1 = s.a1.Get<half>(), b1 = s.b1.Get<half>(), a2 = s.a2.Get<half>(), b2 = s.b2.Get<half>();
    auto c = s.c1.Get<float>();
    DataCopy(a1, arg.gm<half>(0), Rows(M, K));
    DataCopy(b1, arg.gm<half>(1), Rows(K, N));
    Order<HardEvent::MTE3_MTE1>();
    const uint8_t none[4] = {};
    LoadData(a2, a1,
             LoadData3DParamsV2<half>(none, 1, M, K, K, M, 0, 0, 1, 1, 1, 1, 1, 1, false, false, half(0)));
    LoadData(b2, b1,
             LoadData3DParamsV2<half>(none, 1, K, N, N, K, 0, 0, 1, 1, 1, 1, 1, 1, false, false, half(0)));
    Order<HardEvent::MTE1_M>();
    Mmad(c, a2, b2, MmadParams(M, N, K, 0, false, true));
    Order<HardEvent::M_V>();
    Out(arg.gm<float>(2), s.out.Get<float>(), c, M, N);
}

// --- parameters, places, sizes
MINI(off_grid) {
    TPipe pipe;
    TBuf<TPosition::A2> a2;
    TBuf<TPosition::A1> a1;
    pipe.InitBuffer(a2, 4096);
    pipe.InitBuffer(a1, 4096);
    DataCopy(a1.Get<half>(), arg.gm<half>(0), 512);
    Order<HardEvent::MTE2_MTE1>();
    LoadData(a2.Get<half>()[16], a1.Get<half>(), LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}
MINI(l0a_capacity) {
    TPipe pipe;
    TBuf<TPosition::A2> a2;
    pipe.InitBuffer(a2, 65536 + 512);
}
MINI(l1_overrun) {
    TPipe pipe;
    TBuf<TPosition::A1> a1;
    pipe.InitBuffer(a1, 1024);
    DataCopy(a1.Get<half>(), arg.gm<half>(0), Rows(M, K));
}
MINI(scratch_taken) {
    TPipe pipe;
    TBuf<TPosition::A1> a1;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(a1, 32768);
    pipe.InitBuffer(ub, 262144);
    DataCopy(a1.Get<half>(), arg.gm<half>(0), Rows(M, K));
}
MINI(no_tpipe) {
    LocalTensor<half> a1(TPosition::A1, 0, M * K);
    DataCopy(a1, arg.gm<half>(0), Rows(M, K));
}
MINI(transpose_i8) {
    TPipe pipe;
    TBuf<TPosition::A2> a2;
    TBuf<TPosition::A1> a1;
    pipe.InitBuffer(a2, 4096);
    pipe.InitBuffer(a1, 4096);
    DataCopy(a1.Get<int8_t>(), arg.gm<int8_t>(0), 512);
    Order<HardEvent::MTE2_MTE1>();
    LoadData(a2.Get<int8_t>(), a1.Get<int8_t>(), LoadData2DParams(0, 1, 1, 0, 0, true, 0));
}
MINI(wrong_place) {
    Buffers<half, float> s;
    Mmad(s.c1.Get<float>(), s.b2.Get<half>(), s.b2.Get<half>(), MmadParams(M, N, K, 0, false, true));
}
MINI(m_too_big) {
    Buffers<half, float> s;
    Mmad(s.c1.Get<float>(), s.a2.Get<half>(), s.b2.Get<half>(), MmadParams(5000, N, K, 0, false, true));
}
MINI(no_path) {
    Buffers<half, float> s;
    DataCopy(s.a2.Get<half>(), s.out.Get<half>(), 512);
}

// A product of 1024 x 1024 x 1024, tiles of 128 x 64 x 256 out of L1, double buffered.
MINI(product_1024) {
    constexpr uint32_t S = 1024, m = 128, k = 64, n = 256;
    TPipe pipe;
    TBuf<TPosition::A1> a1;
    TBuf<TPosition::B1> b1;
    TBuf<TPosition::A2> a2;
    TBuf<TPosition::B2> b2;
    TBuf<TPosition::CO1> c1;
    TBuf<TPosition::VECOUT> ub;
    pipe.InitBuffer(a1, m * S * 2);
    pipe.InitBuffer(b1, S * n * 2);
    pipe.InitBuffer(a2, 2 * m * k * 2);
    pipe.InitBuffer(b2, 2 * k * n * 2);
    pipe.InitBuffer(c1, m * n * 4);
    pipe.InitBuffer(ub, m * n * 2);
    auto A1 = a1.Get<half>(), B1 = b1.Get<half>(), A2 = a2.Get<half>(), B2 = b2.Get<half>();
    auto C = c1.Get<float>();
    auto out = ub.Get<half>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    for (uint32_t j = GetBlockIdx(); j < S / n; j += GetBlockNum()) {
        PipeBarrier<PIPE_ALL>();
        // Inputs lie in columns of fractals in GM.
        DataCopy(B1, arg.gm<half>(1)[j * n * S], S * n);
        for (uint32_t i = 0; i < S / m; ++i) {
            PipeBarrier<PIPE_ALL>();
            DataCopy(A1, arg.gm<half>(0)[i * m * S], m * S);
            Order<HardEvent::MTE2_MTE1>();
            SetFlag<HardEvent::M_MTE1>(0);
            SetFlag<HardEvent::M_MTE1>(1);
            for (uint32_t x = 0; x < S / k; ++x) {
                const uint32_t p = x & 1;
                WaitFlag<HardEvent::M_MTE1>(p);
                for (uint32_t r = 0; r < m / 16; ++r)
                    LoadData(A2[p * m * k + r * k * 16], A1[x * k / 16 * m * 16 + r * 256],
                             LoadData2DParams(0, k / 16, m / 16, 0, 0, false, 0));
                for (uint32_t r = 0; r < k / 16; ++r)
                    LoadData(B2[p * k * n + r * n * 16], B1[(x * k / 16 + r) * 256],
                             LoadData2DParams(0, n / 16, S / 16, 0, 0, true, 0));
                Order<HardEvent::MTE1_M>(p);
                Mmad(C, A2[p * m * k], B2[p * k * n], MmadParams(m, n, k, 0, false, x == 0));
                SetFlag<HardEvent::M_MTE1>(p);
            }
            WaitFlag<HardEvent::M_MTE1>(0);
            WaitFlag<HardEvent::M_MTE1>(1);
            Order<HardEvent::M_V>();
            DataCopy(out, C, DataCopyParams(1, m * n / 256, 0, 0), e);
            Order<HardEvent::V_MTE3>();
            DataCopy(arg.gm<half>(2)[(j * S / m + i) * m * n], out, m * n);
        }
    }
}
