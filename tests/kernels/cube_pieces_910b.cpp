// op_kernel/common/cube_910b.h in use, for comparison with NumPy. Arguments: a, b, out, extra, sizes (m, n, k
// as int32).
#include "mini.h"
#include "../../op_kernel/common/cube_910b.h"

using namespace hybrid_ops;

namespace {

struct Sizes {
    uint32_t m, n, k;
    explicit Sizes(const MiniArgs& arg) {
        const auto* p = reinterpret_cast<const int32_t*>(arg(4));
        m = uint32_t(p[0]), n = uint32_t(p[1]), k = uint32_t(p[2]);
    }
};

template <typename T, bool kLeft, bool kRight>
void Product(MiniArgs arg) {
    if ASCEND_IS_AIV
        return;
    const Sizes s(arg);
    TPipe pipe;
    CubeUnit unit;
    unit.Init(pipe);
    TBuf<TPosition::A1> l1;
    pipe.InitBuffer(l1, 262144);
    const uint32_t ra = kLeft ? s.k : s.m, ca = kLeft ? s.m : s.k, rb = kRight ? s.k : s.n,
                   cb = kRight ? s.n : s.k;
    const CubeMatrix<T> a{l1.Get<T>(), RoundUp(ra, 16)};
    const CubeMatrix<T> b{l1.Get<T>()[MatrixElements<T>(a.height, ca)], RoundUp(rb, 16) + 16};
    LoadMatrix(a, arg.gm<T>(0), ra, ca, ca);
    LoadMatrix(b, arg.gm<T>(1), rb, cb, cb);
    Order<HardEvent::MTE2_MTE1>();
    const auto c = unit.Begin();
    unit.Add<kLeft, kRight>(c, a, b, s.m, s.n, s.k, true);
    unit.Add<kLeft, kRight>(c, a, b, s.m, s.n, s.k);
    unit.Ready(c);
    unit.StoreRows(arg.gm<float>(2), c, s.m, s.n, s.n);
    unit.StoreRows(arg.gm<bfloat16_t>(3), c, s.m, s.n, s.n);
    unit.End(c);
    unit.Release(pipe);
}

// (A B^T) C^T, the first product rounded to T and back in L1; C [m, n] in extra.
template <typename T>
void Chained(MiniArgs arg) {
    if ASCEND_IS_AIV
        return;
    const Sizes s(arg);
    TPipe pipe;
    CubeUnit unit;
    unit.Init(pipe);
    TBuf<TPosition::A1> l1;
    pipe.InitBuffer(l1, 4 * 65536);
    auto place = [&](uint32_t i, uint32_t rows) {
        return CubeMatrix<T>{l1.Get<T>()[i * 32768], RoundUp(rows, 16)};
    };
    const CubeMatrix<T> a = place(0, s.m), b = place(1, s.n), c = place(2, s.m), high = place(3, s.m);
    LoadMatrix(a, arg.gm<T>(0), s.m, s.k, s.k);
    LoadMatrix(b, arg.gm<T>(1), s.n, s.k, s.k);
    LoadMatrix(c, arg.gm<T>(3), s.m, s.n, s.n);
    Order<HardEvent::MTE2_MTE1>();
    const auto r = unit.Begin();
    unit.Add<false, false>(r, a, b, s.m, s.n, s.k, true);
    unit.Ready(r);
    unit.StoreMatrix(high, r, s.m, s.n);
    Order<HardEvent::FIX_MTE1>();
    const auto second = unit.Begin();
    unit.Add<false, false>(second, high, c, s.m, s.m, s.n, true);
    unit.Ready(second);
    unit.StoreRows(arg.gm<float>(2), second, s.m, s.m, s.m);
    unit.End(second);
    unit.End(r);
    unit.Release(pipe);
}

template <typename T, bool kRight>
void Long(MiniArgs arg) {
    if ASCEND_IS_AIV
        return;
    const Sizes s(arg);
    TPipe pipe;
    CubeUnit unit;
    unit.Init(pipe);
    LongProduct<T, kRight> product;
    product.Init(pipe, s.m, s.n, 64);
    for (uint32_t i = 0; i < 2; ++i) {
        const auto c = unit.Begin();
        product.Run(unit, c, arg.gm<T>(0), s.k, arg.gm<T>(1), kRight ? s.n : s.k, s.m, s.n, s.k);
        unit.Ready(c);
        unit.StoreRows(arg.gm<float>(2)[i * s.m * s.n], c, s.m, s.n, s.n);
        unit.End(c);
    }
    product.Release(pipe);
    unit.Release(pipe);
}

// The vector cores give rows to the cube core, add one to its products, and give the next rows once the last
// products are read: three rounds through one buffer of GM each way (extra: 2 x 64 x 64 halves, 64 x 64
// floats).
template <bool waits>
void Handshake(MiniArgs arg) {
    constexpr uint32_t kRows = 64, kElements = kRows * kRows, kGiven = 1, kDone = 2;
    const auto given = arg.gm<half>(3);
    const auto done = arg.gm<float>(3)[kElements / 2];
    if ASCEND_IS_AIV {
        const uint32_t share = kElements / 2, at = uint32_t(GetSubBlockIdx()) * share;
        TPipe pipe;
        TBuf<TPosition::VECCALC> rows, sums;
        pipe.InitBuffer(rows, share * sizeof(half));
        pipe.InitBuffer(sums, share * sizeof(float));
        const LocalTensor<half> x = rows.Get<half>();
        const LocalTensor<float> y = sums.Get<float>();
        for (uint32_t i = 0; i < 3; ++i) {
            if (i) Order<HardEvent::V_MTE2>();
            DataCopy(x, arg.gm<half>(0)[i * kElements + at], share);
            Order<HardEvent::MTE2_MTE3>();
            PipeBarrier<PIPE_MTE3>();
            DataCopy(given[at], x, share);
            Signal<PIPE_MTE3>(kGiven);
            Await(kDone);
            DataCopy(y, done[at], share);
            Order<HardEvent::MTE2_V>();
            Adds(y, y, 1.0f, share);
            Order<HardEvent::V_MTE3>();
            DataCopy(arg.gm<float>(2)[i * kElements + at], y, share);
            Order<HardEvent::MTE3_MTE2>();
        }
    } else {
        TPipe pipe;
        CubeUnit unit;
        unit.Init(pipe);
        TBuf<TPosition::A1> l1;
        pipe.InitBuffer(l1, 4 * kElements);
        const CubeMatrix<half> a{l1.Get<half>(), kRows}, b{l1.Get<half>()[kElements], kRows};
        LoadMatrix(b, arg.gm<half>(1), kRows, kRows, kRows);
        for (uint32_t i = 0; i < 3; ++i) {
            if (waits || i != 1) Await(kGiven);
            LoadMatrix(a, given, kRows, kRows, kRows);
            Order<HardEvent::MTE2_MTE1>();
            const auto c = unit.Begin();
            unit.Add<false, false>(c, a, b, kRows, kRows, kRows, true);
            Order<HardEvent::MTE1_MTE2>();
            unit.Ready(c);
            PipeBarrier<PIPE_FIX>();  // the buffer of the round before
            unit.StoreRows(done, c, kRows, kRows, kRows);
            unit.End(c);
            Signal<PIPE_FIX>(kDone);
        }
        if (!waits) Await(kGiven);
        unit.Release(pipe);
    }
}

}  // namespace

MINI(bf16_straight) { Product<bfloat16_t, false, false>(arg); }
MINI(bf16_left) { Product<bfloat16_t, true, false>(arg); }
MINI(bf16_right) { Product<bfloat16_t, false, true>(arg); }
MINI(bf16_both) { Product<bfloat16_t, true, true>(arg); }
MINI(f16_both) { Product<half, true, true>(arg); }
MINI(f32_straight) { Product<float, false, false>(arg); }
MINI(chained) { Chained<half>(arg); }
MINI(long_f16) { Long<half, false>(arg); }
MINI(long_bf16_right) { Long<bfloat16_t, true>(arg); }
MINI(long_f32) { Long<float, false>(arg); }
MINI(handshake) { Handshake<true>(arg); }
MINI(handshake_broken) { Handshake<false>(arg); }
