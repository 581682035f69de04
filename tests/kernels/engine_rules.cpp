// One fault per entry, and beside it the twin that does it right. Arguments: x (input), z (output), w
// (workspace).
#include "mini.h"

namespace {

constexpr uint32_t N = 64;  // floats per tile: one 256-byte repeat

struct Tiles {
    TBuf<TPosition::VECCALC> a, b, c;
    LocalTensor<float> x, y, z;
    explicit Tiles(TPipe& pipe, uint32_t bytes = N * 4) {
        pipe.InitBuffer(a, bytes);
        pipe.InitBuffer(b, bytes);
        pipe.InitBuffer(c, bytes);
        x = a.Get<float>();
        y = b.Get<float>();
        z = c.Get<float>();
    }
};

template <HardEvent event>
void Sync(int id = 0) {
    SetFlag<event>(id);
    WaitFlag<event>(id);
}

}  // namespace

// --- races between pipes
MINI(raw_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    Adds(t.z, t.x, 1.0f, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(raw_good) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Adds(t.z, t.x, 1.0f, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(war_bad) {  // the next tile arrives while V may still read the last
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Adds(t.z, t.x, 1.0f, N);
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Add(t.z, t.z, t.x, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(war_good) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Adds(t.z, t.x, 1.0f, N);
    Sync<HardEvent::V_MTE2>();
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Add(t.z, t.z, t.x, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(waw_bad) {  // padding by V, payload by MTE2
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 0.0f, N);
    DataCopy(t.x, arg.gm<float>(0), N / 2);
    Sync<HardEvent::MTE2_MTE3>();
    Sync<HardEvent::V_MTE3>(1);
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(waw_good) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 0.0f, N);
    Sync<HardEvent::V_MTE2>();
    DataCopy(t.x, arg.gm<float>(0), N / 2);
    Sync<HardEvent::MTE2_MTE3>();
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(disjoint_halves) {  // two pipes in one buffer, never in one byte
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 0.0f, N / 2);
    DataCopy(t.x[N / 2], arg.gm<float>(0), N / 2);
    Sync<HardEvent::MTE2_MTE3>();
    Sync<HardEvent::V_MTE3>(1);
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(transitive) {  // MTE2 -> V -> MTE3: MTE3 knows MTE2 through V
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    Sync<HardEvent::MTE2_V>();
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.x, N);
}

// --- within a pipe
MINI(vector_bad) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
    Adds(t.z, t.x, 1.0f, N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(vector_good) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
    PipeBarrier<PIPE_V>();
    Adds(t.z, t.x, 1.0f, N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(mte2_overlap_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    DataCopy(t.x[8], arg.gm<float>(0), 8);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(mte2_overlap_good) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N);
    PipeBarrier<PIPE_MTE2>();
    DataCopy(t.x[8], arg.gm<float>(0), 8);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(scalar_bad) {  // a hazard only where the compiler's automatic synchronisation is off
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
    const float first = t.x.GetValue(0);
    t.y.SetValue(0, first);
    PipeBarrier<PIPE_ALL>();
    Duplicate(t.z, first, N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(scalar_good) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
    Sync<HardEvent::V_S>();
    const float first = t.x.GetValue(0);
    PipeBarrier<PIPE_ALL>();
    Duplicate(t.z, first, N);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1), t.z, N);
}

// --- initialisation
MINI(uninit_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N / 2);
    Sync<HardEvent::MTE2_V>();
    Adds(t.z, t.x, 1.0f, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N);
}
MINI(uninit_last) {  // the highest bytes of the unified buffer that this kernel touches
    TPipe pipe;
    TBuf<TPosition::VECCALC> a;
    pipe.InitBuffer(a, N * 4);
    LocalTensor<float> x = a.Get<float>();
    Duplicate(x, 1.0f, 8);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), x, N);
}
MINI(uninit_good) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), N / 2);
    Sync<HardEvent::MTE2_V>();
    Adds(t.z, t.x, 1.0f, N / 2);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(1), t.z, N / 2);
}
MINI(uninit_gm_bad) {  // workspace holds stale data
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(2), N);
    Sync<HardEvent::MTE2_MTE3>();
    DataCopy(arg.gm<float>(1), t.x, N);
}
MINI(uninit_gm_good) {
    TPipe pipe;
    Tiles t(pipe);
    InitOutput(arg.gm<float>(2), N, 2.0f);
    DataCopy(t.x, arg.gm<float>(2), N);
    Sync<HardEvent::MTE2_MTE3>();
    DataCopy(arg.gm<float>(1), t.x, N);
}

// --- bounds and parameters
MINI(tensor_bad) {  // 8 floats past the end of its buffer
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N + 8);
}
MINI(tensor_good) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
}
MINI(declared_bad) {  // inside the buffer, beyond what the tensor declares
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 512);
    Duplicate(buf.Get<float>(N), 1.0f, N + 8);
}
MINI(memory_bad) { Duplicate(LocalTensor<float>(TPosition::VECCALC, 256 * 1024 - 128, N), 1.0f, N); }
MINI(never_allocated) {
    LocalTensor<float> t;
    Duplicate(t, 1.0f, N);
}
MINI(gm_bad) {
    TPipe pipe;
    Tiles t(pipe, 2048);
    DataCopy(t.x, arg.gm<float>(0), 272);  // x has 256 floats, the allocator adds 8
}
MINI(gm_over_read) {
    TPipe pipe;
    Tiles t(pipe, 2048);
    DataCopy(t.x, arg.gm<float>(0), 264);
}
MINI(gm_good) {
    TPipe pipe;
    Tiles t(pipe, 2048);
    DataCopy(t.x, arg.gm<float>(0), 256);
}
MINI(null_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(3), N);
}
MINI(input_written) {
    TPipe pipe;
    Tiles t(pipe);
    Duplicate(t.x, 1.0f, N);
    Sync<HardEvent::V_MTE3>();
    DataCopy(arg.gm<float>(0), t.x, N);
}
MINI(align_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x[4], arg.gm<float>(0), 8);
}
MINI(count_bad) {  // 12 bytes: the hardware moves nothing
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), 3);
}
MINI(short_row_bad) {  // the second of two rows of 16 bytes
    TPipe pipe;
    Tiles t(pipe);
    DataCopy(t.x, arg.gm<float>(0), 8);
    PipeBarrier<PIPE_ALL>();
    DataCopy(arg.gm<float>(1)[4], t.x, 4);
}
MINI(blocks_bad) {
    TPipe pipe;
    Tiles t(pipe);
    DataCopyParams params(5000, 0, 0, 0);
    DataCopy(t.x, arg.gm<float>(0), params);
}
MINI(capacity_bad) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf, more;
    pipe.InitBuffer(buf, 200 * 1024);
    pipe.InitBuffer(more, 100 * 1024);
}
MINI(capacity_good) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf, more;
    pipe.InitBuffer(buf, 100 * 1024);
    pipe.InitBuffer(more, 80 * 1024);
}
MINI(offset_bad) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buf;
    pipe.InitBuffer(buf, 1024);
    buf.GetWithOffset<float>(8, 20);
}

// --- events
MINI(set_twice) {
    SetFlag<HardEvent::V_MTE3>(0);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
}
MINI(wait_unset) { WaitFlag<HardEvent::V_MTE3>(1); }
MINI(unpaired) { SetFlag<HardEvent::V_MTE3>(2); }
MINI(event_reserved) { Sync<HardEvent::V_MTE3>(7); }
MINI(event_id) { Sync<HardEvent::V_MTE3>(8); }
MINI(events_good) {
    for (int id = 0; id < 6; ++id) Sync<HardEvent::V_MTE3>(id);
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    pipe_barrier(PIPE_ALL);
}
MINI(event_exhausted) {
    TPipe pipe;
    for (int i = 0; i < 9; ++i) pipe.AllocEventID<HardEvent::V_S>();
}
MINI(event_pool_good) {
    TPipe pipe;
    for (int i = 0; i < 9; ++i) {
        const auto id = pipe.AllocEventID<HardEvent::V_S>();
        if (pipe.FetchEventID(HardEvent::V_S) == id) Trap();
        pipe.ReleaseEventID<HardEvent::V_S>(id);
    }
}
MINI(event_release_bad) {
    TPipe pipe;
    pipe.ReleaseEventID<HardEvent::V_S>(3);
}
