// Queue protocol, cross-core order, scalar cache, prints and tiling: one fault per entry beside its twin.
#include "mini.h"

namespace {

constexpr uint32_t N = 64;
using In = TQue<TPosition::VECIN, 2>;
using Out = TQue<TPosition::VECOUT, 2>;

struct SumTiling {
    uint32_t count;
    float bias;
};

}  // namespace

// --- queues
MINI(queue_good) {
    TPipe pipe;
    In in;
    Out out;
    pipe.InitBuffer(in, 2, N * 4);
    pipe.InitBuffer(out, 2, N * 4);
    for (uint32_t i = 0; i < 4; ++i) {
        auto a = in.AllocTensor<float>();
        DataCopy(a, arg.gm<float>(0)[i * N], N);
        in.EnQue(a);
        a = in.DeQue<float>();
        auto z = out.AllocTensor<float>();
        Adds(z, a, 1.0f, N);
        out.EnQue(z);
        in.FreeTensor(a);
        z = out.DeQue<float>();
        DataCopy(arg.gm<float>(1)[i * N], z, N);
        out.FreeTensor(z);
    }
}
MINI(queue_no_buffer) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    for (int i = 0; i < 3; ++i) in.AllocTensor<float>();
}
MINI(queue_depth) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    auto b = in.AllocTensor<float>();
    in.EnQue(a);
    in.EnQue(b);
}
MINI(queue_empty) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    in.DeQue<float>();
}
MINI(queue_free_twice) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    in.EnQue(a);
    a = in.DeQue<float>();
    in.FreeTensor(a);
    in.FreeTensor(a);
}
MINI(queue_enqueued_twice) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    in.EnQue(a);
    in.EnQue(a);
}
static void UseInput(MiniArgs arg, bool early) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(in, 1, N * 4);
    pipe.InitBuffer(buf, N * 4);
    auto x = in.AllocTensor<float>();
    DataCopy(x, arg.gm<float>(0), N);
    in.EnQue(x);
    x = in.DeQue<float>();
    auto z = buf.Get<float>();
    if (early) in.FreeTensor(x);
    Adds(z, x[8], 1.0f, N - 8);
    if (!early) in.FreeTensor(x);
}
MINI(queue_freed) { UseInput(arg, true); }
MINI(queue_used_then_freed) { UseInput(arg, false); }
MINI(queue_foreign) {
    TPipe pipe;
    In in, other;
    pipe.InitBuffer(in, 2, N * 4);
    pipe.InitBuffer(other, 2, N * 4);
    auto a = in.AllocTensor<float>();
    other.EnQue(a);
}
MINI(queue_leak) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    in.EnQue(a);
    in.DeQue<float>();
}
MINI(queue_left_inside) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    in.EnQue(a);
}
MINI(queue_unqueued) {
    TPipe pipe;
    In in;
    pipe.InitBuffer(in, 2, N * 4);
    auto a = in.AllocTensor<float>();
    in.FreeTensor(a);
}
MINI(queue_uninit) {
    TPipe pipe;
    In in;
    in.AllocTensor<float>();
}
MINI(queue_in_flight) {  // nine freed buffers hold nine ids of one event
    TPipe pipe;
    TQue<TPosition::VECIN, 9> in;
    pipe.InitBuffer(in, 9, N * 4);
    LocalTensor<float> t[9];
    for (auto& x : t) x = in.AllocTensor<float>();
    for (auto& x : t) in.EnQue(x);
}
MINI(queue_bind) {  // copy through one buffer: MTE2 -> MTE3
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q;
    pipe.InitBuffer(q, 1, N * 4);
    for (uint32_t i = 0; i < 4; ++i) {
        auto a = q.AllocTensor<float>();
        DataCopy(a, arg.gm<float>(0)[i * N], N);
        q.EnQue(a);
        a = q.DeQue<float>();
        DataCopy(arg.gm<float>(1)[i * N], a, N);
        q.FreeTensor(a);
    }
}
MINI(no_pipe) {
    In in;
    in.AllocTensor<float>();
}

// --- GM order within a core
MINI(gm_order_bad) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 2 * N * 4);
    auto a = buf.Get<float>();
    Duplicate(a, 1.0f, N);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(arg.gm<float>(1), a, N);
    DataCopy(a[N], arg.gm<float>(1), N);
}
MINI(gm_order_good) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 2 * N * 4);
    auto a = buf.Get<float>();
    Duplicate(a, 1.0f, N);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(arg.gm<float>(1), a, N);
    SetFlag<HardEvent::MTE3_MTE2>(0);
    WaitFlag<HardEvent::MTE3_MTE2>(0);
    DataCopy(a[N], arg.gm<float>(1), N);
}

// --- order between cores
static void WriteTile(MiniArgs arg, uint64_t at, float value, int tensor = 1) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, N * 4);
    auto a = buf.Get<float>();
    Duplicate(a, value, N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(tensor)[at], a, N);
}
MINI(cores_one_address) { WriteTile(arg, 0, float(GetBlockIdx())); }
MINI(cores_own_address) { WriteTile(arg, GetBlockIdx() * N, float(GetBlockIdx())); }
MINI(cores_half_granule) { WriteTile(arg, GetBlockIdx() * (N + 4), 1.0f); }
MINI(cores_atomic) {
    SetAtomicAdd<float>();
    WriteTile(arg, 0, 1.0f, 4);
    SetAtomicNone();
}
MINI(atomic_uninit) {  // adds to an output that nothing has zeroed
    SetAtomicAdd<float>();
    WriteTile(arg, 0, 1.0f);
    SetAtomicNone();
}
template <bool sync>
static void Neighbour(MiniArgs arg) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf, sync_buf;
    pipe.InitBuffer(buf, 2 * N * 4);
    pipe.InitBuffer(sync_buf, 8 * 32);
    auto a = buf.Get<float>();
    const uint64_t me = GetBlockIdx(), next = (me + 1) % GetBlockNum();
    Duplicate(a, float(me), N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1)[me * N], a, N);
    if (sync) SyncAll(arg.gm<int32_t>(2), sync_buf.Get<int32_t>());
    PipeBarrier<PIPE_ALL>();
    DataCopy(a[N], arg.gm<float>(1)[next * N], N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1)[(GetBlockNum() + me) * N], a[N], N);
}
MINI(neighbour_bad) { Neighbour<false>(arg); }
MINI(neighbour_good) { Neighbour<true>(arg); }
MINI(sync_deadlock) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 8 * 32);
    if (GetBlockIdx() != 1) SyncAll(arg.gm<int32_t>(2), buf.Get<int32_t>());
}
MINI(sync_workspace) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 32);
    SyncAll(arg.gm<int32_t>(2), buf.Get<int32_t>());
}
MINI(one_after_the_other) {  // block i waits for block i - 1, adds to what it left
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf, sync_buf;
    pipe.InitBuffer(buf, 32);
    pipe.InitBuffer(sync_buf, 8 * 32);
    auto a = buf.Get<float>();
    const int32_t me = int32_t(GetBlockIdx());
    if (me) {
        IBWait(arg.gm<int32_t>(2), sync_buf.Get<int32_t>(), me - 1, 0);
        DataCopy(a, arg.gm<float>(1), 8);
        PipeBarrier<PIPE_ALL>();
        Adds(a, a, 1.0f, 8);
    } else {
        Duplicate(a, 1.0f, 8);
    }
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), a, 8);
    if (me + 1 < GetBlockNum()) IBSet(arg.gm<int32_t>(2), sync_buf.Get<int32_t>(), me, 0);
}
MINI(wait_forever) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 8 * 32);
    IBWait(arg.gm<int32_t>(2), buf.Get<int32_t>(), 7, 0);
}
MINI(too_many_blocks) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 64 * 32);
    SyncAll(arg.gm<int32_t>(2), buf.Get<int32_t>());
}

// --- scalar cache
template <bool clean>
static void ScalarThenDma(MiniArgs arg) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, N * 4);
    auto z = arg.gm<float>(1);
    for (uint32_t i = 0; i < 8; ++i) z.SetValue(i, 3.0f);
    if (clean) DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(z);
    PipeBarrier<PIPE_ALL>();
    DataCopy(buf.Get<float>(), z, 8);
}
MINI(dcache_dirty) { ScalarThenDma<false>(arg); }
MINI(dcache_clean) { ScalarThenDma<true>(arg); }
template <bool clean>
static void DmaUnderScalar(MiniArgs arg) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, N * 4);
    auto w = arg.gm<float>(4);  // read and written in place
    float before = w.GetValue(0);
    Duplicate(buf.Get<float>(), before + 1.0f, 8);
    PipeBarrier<PIPE_ALL>();
    DataCopy(w, buf.Get<float>(), 8);
    PipeBarrier<PIPE_ALL>();
    if (clean) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(w);
    Duplicate(buf.Get<float>(), w.GetValue(0), 8);
}
MINI(dcache_stale) { DmaUnderScalar<false>(arg); }
MINI(dcache_reloaded) { DmaUnderScalar<true>(arg); }
MINI(dcache_shared_line) { arg.gm<float>(1).SetValue(GetBlockIdx(), 1.0f); }
MINI(dcache_unflushed) { arg.gm<float>(1).SetValue(0, 1.0f); }

// --- prints, asserts, tiling
MINI(prints) {
    printf("block %d of %ld, half %f\n", int(GetBlockIdx()), long(GetBlockNum()), half(0.5f));
    AscendC::PRINTF("twice");
    DumpTensor(arg.gm<float>(0), 7, 3);
}
MINI(asserts) {
    assert(GetBlockNum() > 0);
    assert(GetBlockNum() > 100, "blocks %d", int(GetBlockNum()));
}
MINI(tiling) {
    REGISTER_TILING_DEFAULT(SumTiling);
    GET_TILING_DATA(t, arg(5));
    GET_TILING_DATA_MEMBER(SumTiling, bias, bias, arg(5));
    GET_TILING_DATA_PTR_WITH_STRUCT(SumTiling, pointer, arg(5));
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    printf("%u %g %u key %d", t.count, bias, pointer->count, TILING_KEY_IS(3) ? 1 : 0);
}
MINI(tiling_short) { GET_TILING_DATA_WITH_STRUCT(SumTiling, t, arg(0) + 256 * 4 - 4); }
MINI(slices) {  // rows 1 and 2 of a 4 x 16 matrix, columns 8 .. 15, packed
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, N * 4);
    auto a = buf.Get<float>();
    SliceInfo from[2] = {{8, 15, 0, 1, 16}, {1, 2, 0, 1, 4}};
    SliceInfo to[2] = {{0, 7, 0, 1, 8}, {0, 1, 0, 1, 2}};
    DataCopy(a, arg.gm<float>(0), to, from, 2);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), a, 16);
}
MINI(strided) {  // every second 32-byte block of x
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, N * 4);
    DataCopy(buf.Get<float>(), arg.gm<float>(0), DataCopyParams(8, 1, 1, 0));
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), buf.Get<float>(), N);
}
MINI(pool) {  // two phases share one stretch of memory
    TPipe pipe;
    TBufPool<TPosition::VECCALC> pool;
    pipe.InitBufPool(pool, 2 * N * 4);
    for (int phase = 0; phase < 2; ++phase) {
        TBuf<TPosition::VECCALC> a, b;
        pool.InitBuffer(a, N * 4);
        pool.InitBuffer(b, N * 4);
        Duplicate(a.Get<float>(), 1.0f + phase, N);
        PipeBarrier<PIPE_ALL>();
        DataCopy(arg.gm<float>(1)[phase * N], a.Get<float>(), N);
        PipeBarrier<PIPE_ALL>();
        pool.Reset();
    }
}
