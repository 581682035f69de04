// One rule of the matrix unit per entry: `name` keeps it, `name_bad` breaks it and is alike otherwise. Rules
// that both SoCs share are here; cube_rules_910b.cpp has those of split cores. Arguments: a, b, out, extra.
#include "mini.h"

#define PAIR(name)                         \
    MINI(name) { name##_rule<true>(arg); } \
    MINI(name##_bad) { name##_rule<false>(arg); }

namespace {

constexpr uint32_t M = 32, K = 48, N = 64;

template <HardEvent e>
void Order(int32_t id = 0) {
    SetFlag<e>(id);
    WaitFlag<e>(id);
}

// Every kind of memory; all of it in use from the first byte on.
struct Memory {
    TPipe pipe;
    TBuf<TPosition::A1> a1;
    TBuf<TPosition::A2> a2;
    TBuf<TPosition::B2> b2;
    TBuf<TPosition::CO1> c1;
    TBuf<TPosition::VECOUT> ub;
    LocalTensor<half> l1, l0a, l0b, out;
    LocalTensor<float> l0c;
    Memory() {
        pipe.InitBuffer(a1, 65536);
        pipe.InitBuffer(a2, 32768);
        pipe.InitBuffer(b2, 32768);
        pipe.InitBuffer(c1, 65536);
        pipe.InitBuffer(ub, 65536);
        l1 = a1.Get<half>();
        l0a = a2.Get<half>();
        l0b = b2.Get<half>();
        l0c = c1.Get<float>();
        out = ub.Get<half>();
    }
    // Defined bytes wherever a product of M x N x K reads; `wait`: and the loads of L0 are done.
    void Fill(MiniArgs arg, bool wait = true) {
        DataCopy(l1, arg.gm<half>(3), 8192);
        Order<HardEvent::MTE2_MTE1>();
        LoadData(l0a, l1, LoadData2DParams(0, M * K / 256, 1, 0, 0, false, 0));
        LoadData(l0b, l1, LoadData2DParams(0, N * K / 256, 1, 0, 0, false, 0));
        if (wait) Order<HardEvent::MTE1_M>();
    }
    // All zeros in `extra`, so that it does not matter which fractal is which.
    void Multiply(MiniArgs arg, const MmadParams& p = MmadParams(16, 16, 16, 0, false, true)) {
        Fill(arg);
        Mmad(l0c, l0a, l0b, p);
    }
};

template <TPosition position, uint32_t capacity, bool good>
void Capacity() {
    TPipe pipe;
    TBuf<position> buffer;
    pipe.InitBuffer(buffer, good ? capacity : capacity + 512);
}

// --- sizes
template <bool good>
void l1_capacity_rule(MiniArgs) {
    Capacity<TPosition::A1, 1048576, good>();
}
template <bool good>
void l0b_capacity_rule(MiniArgs) {
    Capacity<TPosition::B2, 65536, good>();
}
template <bool good>
void l0c_capacity_rule(MiniArgs) {
    Capacity<TPosition::CO1, 262144, good>();
}

// --- order
template <bool good>
void l1_reuse_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    if (good) Order<HardEvent::MTE1_MTE2>();
    DataCopy(m.l1, arg.gm<half>(3), 256);
}
template <bool good>
void l0b_reuse_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg);
    if (good) Order<HardEvent::M_MTE1>();
    LoadData(m.l0b, m.l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}
template <bool good>
void l0c_reuse_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg);
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    DataCopy(m.out.ReinterpretCast<float>(), m.l0c, DataCopyParams(1, 1, 0, 0), e);
    if (good) Order<HardEvent::V_M>();
    Mmad(m.l0c, m.l0a, m.l0b, MmadParams(16, 16, 16, 0, false, true));
}
template <bool good>
void l1_from_ub_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.out, arg.gm<half>(3), 256);
    Order<HardEvent::MTE2_MTE3>();
    DataCopy(m.l1, m.out, 256);
    if (good) Order<HardEvent::MTE3_MTE1>();
    LoadData(m.l0a, m.l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}

// --- moves into L1 and L0
template <bool good>
void nd2nz_place_rule(MiniArgs arg) {
    Memory m;
    DataCopy(good ? m.l1 : m.out, arg.gm<half>(0), Nd2NzParams(1, 32, 48, 0, 48, 32, 1, 0));
}
template <bool good>
void nd2nz_rows_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.l1, arg.gm<half>(0), Nd2NzParams(1, 16, 48, 0, good ? 48 : 32, 16, 1, 0));
}
template <bool good>
void nd2nz_count_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.l1, arg.gm<half>(0), Nd2NzParams(1, good ? 16 : 16385, 16, 0, 16, 16384, 1, 0));
}
template <bool good>
void nd2nz_stride_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.l1, arg.gm<half>(0), Nd2NzParams(1, 16, 16, 0, 16, 32, good ? 1 : 2, 0));
}
template <bool good>
void fill_place_rule(MiniArgs) {
    Memory m;
    InitConstValue(good ? m.l1 : m.out, InitConstValueParams<half>(1, half(0)));
}
template <bool good>
void load_address_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Order<HardEvent::M_MTE1>();
    LoadData(m.l0a, m.l1[512], LoadData2DParams(0, 1, 1, 0, 0, false, good ? 0 : 1));
}
template <bool good>
void load_place_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    DataCopy(m.out, arg.gm<half>(3), 256);
    PipeBarrier<PIPE_ALL>();
    LoadData(m.l0a, good ? m.l1 : m.out, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}
template <bool good>
void l0b_grid_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Order<HardEvent::M_MTE1>();
    LoadData(m.l0b[good ? 256 : 128], m.l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
}
LoadData3DParamsV2<half> Map(uint8_t stride, uint16_t first) {
    const uint8_t none[4] = {};
    return {none, 1, 16, 32, 16, 16, first, 0, stride, 1, 1, 1, 1, 1, false, false, half(0)};
}
template <bool good>
void load3d_stride_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Order<HardEvent::M_MTE1>();
    LoadData(m.l0a, m.l1, Map(good ? 1 : 0, 0));
}
template <bool good>
void load3d_start_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Order<HardEvent::M_MTE1>();
    LoadData(m.l0a, m.l1, Map(1, good ? 16 : 8));
}
template <bool good>
void load3d_place_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    DataCopy(m.out, arg.gm<half>(3), 512);
    PipeBarrier<PIPE_ALL>();
    LoadData(m.l0a, good ? m.l1 : m.out, Map(1, 0));
}

// --- products
template <bool good>
void product_k_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg, MmadParams(16, 16, good ? 16 : 4096, 0, false, true));
}
template <bool good>
void product_place_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Mmad(good ? m.l0c : m.out.ReinterpretCast<float>(), m.l0a, m.l0b, MmadParams(16, 16, 16, 0, false, true));
}
template <bool good>
void product_grid_rule(MiniArgs arg) {
    Memory m;
    m.Fill(arg);
    Mmad(m.l0c[good ? 256 : 128], m.l0a, m.l0b, MmadParams(16, 16, 16, 0, false, true));
}
template <bool good>
void product_start_rule(MiniArgs arg) {  // the accumulator that is added to has never been written
    Memory m;
    m.Fill(arg);
    Mmad(m.l0c, m.l0a, m.l0b, MmadParams(16, 16, 16, 0, false, good));
}

// --- results
template <bool good>
void result_mode_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg);
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = good ? BlockMode::BLOCK_MODE_MATRIX : BlockMode::BLOCK_MODE_NORMAL;
    DataCopy(m.out.ReinterpretCast<float>(), m.l0c, DataCopyParams(1, 1, 0, 0), e);
}
template <bool good>
void result_grid_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg, MmadParams(16, 32, 16, 0, false, true));
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    DataCopy(m.out.ReinterpretCast<float>(), m.l0c[good ? 256 : 128], DataCopyParams(1, 1, 0, 0), e);
}
template <bool good>
void result_scale_rule(MiniArgs arg) {  // integers become half by a factor only
    Memory m;
    const LocalTensor<int32_t> c = m.l0c.ReinterpretCast<int32_t>();
    m.Fill(arg);
    Mmad(c, m.l0a.ReinterpretCast<int8_t>(), m.l0b.ReinterpretCast<int8_t>(),
         MmadParams(16, 16, 32, 0, false, true));
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    e.sidStoreMode = 2;
    e.deqScale = good ? DeqScale::DEQ16 : DeqScale::DEQ_NONE;
    e.deqValue = 0x3f800000;
    DataCopy(m.out, c, DataCopyParams(1, 1, 0, 0), e);
}
template <bool good>
void result_half_rule(MiniArgs arg) {
    Memory m;
    m.Multiply(arg);
    Order<HardEvent::M_V>();
    DataCopyEnhancedParams e;
    e.blockMode = BlockMode::BLOCK_MODE_MATRIX;
    e.sidStoreMode = good ? 2 : 3;
    DataCopy(m.out, m.l0c, DataCopyParams(1, 1, 0, 0), e);
}
template <bool good>
void spread_count_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.out.ReinterpretCast<float>(), arg.gm<float>(3), 64);
    Order<HardEvent::MTE2_V>();
    BroadCastVecToMM(m.l0c, m.out.ReinterpretCast<float>(), good ? 4 : 0, 1, 0, 1);
}
template <bool good>
void rows_width_rule(MiniArgs arg) {
    Memory m;
    DataCopy(m.out, arg.gm<half>(3), 1024);
    Order<HardEvent::MTE2_MTE3>();
    DataCopy(arg.gm<half>(2), m.out, Nz2NdParamsFull(1, 16, good ? 32 : 24, 0, 16, 32, 0));
}

}  // namespace

PAIR(l1_capacity)
PAIR(l0b_capacity)
PAIR(l0c_capacity)
PAIR(l1_reuse)
PAIR(l0b_reuse)
PAIR(l0c_reuse)
PAIR(l1_from_ub)
PAIR(nd2nz_place)
PAIR(nd2nz_rows)
PAIR(nd2nz_count)
PAIR(nd2nz_stride)
PAIR(fill_place)
PAIR(load_address)
PAIR(load_place)
PAIR(l0b_grid)
PAIR(load3d_stride)
PAIR(load3d_start)
PAIR(load3d_place)
PAIR(product_k)
PAIR(product_place)
PAIR(product_grid)
PAIR(product_start)
PAIR(result_mode)
PAIR(result_grid)
PAIR(result_scale)
PAIR(result_half)
PAIR(spread_count)
PAIR(rows_width)
