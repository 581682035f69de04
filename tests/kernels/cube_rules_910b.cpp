// One rule of split cores per entry: `name` keeps it, `name_bad` breaks it and is alike otherwise. Arguments:
// a, b, out, extra.
#include "mini.h"

#define PAIR(name)                         \
    MINI(name) { name##_rule<true>(arg); } \
    MINI(name##_bad) { name##_rule<false>(arg); }

namespace {

constexpr uint32_t M = 16, K = 16, N = 32;

template <HardEvent e>
void Order(int32_t id = 0) {
    SetFlag<e>(id);
    WaitFlag<e>(id);
}

template <TPosition position, uint32_t capacity, bool good>
void Capacity() {
    if ASCEND_IS_AIC {
        TPipe pipe;
        TBuf<position> buffer;
        pipe.InitBuffer(buffer, good ? capacity : capacity + 128);
    }
}

// A product in L0C, its operands still in L1; done when `wait`.
struct Product {
    LocalTensor<half> a1{TPosition::A1, 0, M * K}, b1{TPosition::B1, 8192, K * N};
    LocalTensor<half> a2{TPosition::A2, 0, M * K}, b2{TPosition::B2, 0, K * N};
    LocalTensor<float> c{TPosition::CO1, 0, M * N};

    explicit Product(MiniArgs arg, bool wait = true) {
        DataCopy(a1, arg.gm<half>(0), Nd2NzParams(1, M, K, 0, K, M, 1, 0));
        DataCopy(b1, arg.gm<half>(1), Nd2NzParams(1, N, K, 0, K, N, 1, 0));
        Order<HardEvent::MTE2_MTE1>();
        LoadData(a2, a1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
        LoadData(b2, b1, LoadData2DParams(0, N / 16, 1, 0, 0, false, 0));
        Order<HardEvent::MTE1_M>();
        Multiply();
        if (wait) Order<HardEvent::M_FIX>();
    }
    void Multiply() { Mmad(c, a2, b2, MmadParams(M, N, K, 0, false, true)); }
};
FixpipeParamsV220 Rows(QuantMode_t quant = NoQuant) {
    return FixpipeParamsV220(N, M, M, N, false, quant, 0, 1, 0, 0, 0);
}
FixpipeParamsV220 Fractals(uint32_t columns) {
    return FixpipeParamsV220(uint16_t(columns), M, M, M, false, F322F16, 0, 1, 0, 0, 0);
}
const LocalTensor<half> Again() { return LocalTensor<half>(TPosition::A1, 16384, M * N); }

// --- sizes
template <bool good>
void l1_capacity_rule(MiniArgs) {
    Capacity<TPosition::A1, 524288, good>();
}
template <bool good>
void l0c_capacity_rule(MiniArgs) {
    Capacity<TPosition::CO1, 131072, good>();
}
template <bool good>
void bias_table_rule(MiniArgs arg) {  // 1 KB: 256 columns
    if ASCEND_IS_AIC {
        const uint32_t columns = 32, at = good ? 896 : 960;
        LocalTensor<float> bias1(TPosition::C1, 131072, columns), bias2(TPosition::C2, at, columns);
        DataCopy(bias1, arg.gm<float>(3), columns);
        Order<HardEvent::MTE2_MTE1>();
        DataCopy(bias2, bias1, DataCopyParams(1, columns * 4 / 64, 0, 0));
    }
}
template <bool good>
void fixpipe_buffer_rule(MiniArgs arg) {  // 7 KB
    if ASCEND_IS_AIC {
        LocalTensor<uint64_t> words1(TPosition::C1, 131072, N);
        LocalTensor<uint64_t> words2(TPosition::C2PIPE2GM, good ? 6912 : 7040, N);
        DataCopy(words1, arg.gm<uint64_t>(3), N);
        Order<HardEvent::MTE2_FIX>();
        DataCopy(words2, words1, DataCopyParams(1, N * 8 / 128, 0, 0));
    }
}

// --- order
template <bool good>
void result_reuse_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        Fixpipe(arg.gm<float>(2), p.c, Rows());
        if (good) Order<HardEvent::FIX_M>();
        p.Multiply();
    }
}
template <bool good>
void result_in_l1_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        Fixpipe(Again(), p.c, Fractals(N));
        Order<HardEvent::M_MTE1>();
        if (good) Order<HardEvent::FIX_MTE1>();
        LoadData(p.a2, Again(), LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    }
}
template <bool good>
void operands_reuse_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        if (good) Order<HardEvent::MTE1_MTE2>();
        DataCopy(p.a1, arg.gm<half>(0), Nd2NzParams(1, M, K, 0, K, M, 1, 0));
    }
}
template <bool loaded, bool barrier>
void Quantised(MiniArgs arg) {
    if ASCEND_IS_AIC {
        LocalTensor<uint64_t> words1(TPosition::C1, 131072, N), words2(TPosition::C2PIPE2GM, 0, N);
        Product p(arg);
        DataCopy(words1, arg.gm<uint64_t>(3), N);
        if (loaded) Order<HardEvent::MTE2_FIX>(1);
        DataCopy(words2, words1, DataCopyParams(1, N * 8 / 128, 0, 0));
        if (barrier) PipeBarrier<PIPE_FIX>();
        Fixpipe(arg.gm<int8_t>(2), p.c, words2, Rows(VQF322B8_PRE));
    }
}
template <bool good>
void words_loaded_rule(MiniArgs arg) {
    Quantised<good, true>(arg);
}
template <bool good>
void words_copied_rule(MiniArgs arg) {
    Quantised<true, good>(arg);
}
template <bool good>
void bias_copied_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        LocalTensor<float> bias1(TPosition::C1, 131072, N), bias2(TPosition::C2, 0, N);
        Product p(arg);
        DataCopy(bias1, arg.gm<float>(3), N);
        Order<HardEvent::MTE2_MTE1>();
        DataCopy(bias2, bias1, DataCopyParams(1, N * 4 / 64, 0, 0));
        if (good) Order<HardEvent::MTE1_M>();
        Mmad(p.c, p.a2, p.b2, bias2, MmadParams(M, N, K, 0, false, false));
    }
}

// --- results
template <bool good>
void result_place_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        Fixpipe(arg.gm<float>(2), good ? p.c : LocalTensor<float>(TPosition::A1, 0, M * N), Rows());
    }
}
template <bool good>
void result_rows_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        FixpipeParamsV220 rows = Rows();
        if (!good) rows.nSize = 4096;
        Fixpipe(arg.gm<float>(2), p.c, rows);
    }
}
template <bool good>
void result_columns_rule(MiniArgs arg) {  // whole fractals only
    if ASCEND_IS_AIC {
        Product p(arg);
        Fixpipe(Again(), p.c, Fractals(good ? 32 : 24));
    }
}
template <bool good>
void result_words_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        Fixpipe(arg.gm<int8_t>(2), p.c, Rows(good ? QF322B8_PRE : VQF322B8_PRE));
    }
}
template <bool good>
void unit_flag_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        Product p(arg);
        FixpipeParamsV220 rows = Rows();
        rows.unitFlag = good ? 0 : 1;
        Fixpipe(arg.gm<float>(2), p.c, rows);
    }
}
template <bool good>
void bias_place_rule(MiniArgs arg) {
    if ASCEND_IS_AIC {
        LocalTensor<float> bias1(TPosition::C1, 131072, N), bias2(TPosition::C2, 0, N);
        Product p(arg);
        DataCopy(bias1, arg.gm<float>(3), N);
        Order<HardEvent::MTE2_MTE1>();
        DataCopy(bias2, bias1, DataCopyParams(1, N * 4 / 64, 0, 0));
        Order<HardEvent::MTE1_M>();
        Mmad(p.c, p.a2, p.b2, good ? bias2 : bias1, MmadParams(M, N, K, 0, false, false));
    }
}
// --- cores among each other
template <bool good>
void meeting_rule(MiniArgs) {  // every vector core comes, or none goes on
    if ASCEND_IS_AIV {
        if (good || GetBlockIdx() != 1) SyncAll();
    }
}
template <bool good>
void meeting_kind_rule(MiniArgs) {
    if ASCEND_IS_AIC {
        SyncAll<false>();
        if (!good) SyncAll();
    }
    if ASCEND_IS_AIV
        SyncAll<false>();
}
template <bool good>
void group_flag_rule(MiniArgs) {  // both vector cores of an AI Core set the flag that its cube core awaits
    if ASCEND_IS_AIV {
        if (good || GetSubBlockIdx() == 0) CrossCoreSetFlag<2, PIPE_MTE3>(4);
    }
    if ASCEND_IS_AIC
        CrossCoreWaitFlag(4);
}
template <bool good>
void flag_taken_rule(MiniArgs) {  // a flag that nobody awaits is still set for the next kernel
    if ASCEND_IS_AIC
        CrossCoreSetFlag<2, PIPE_FIX>(6);
    if ASCEND_IS_AIV {
        if (good) CrossCoreWaitFlag(6);
    }
}

}  // namespace

PAIR(l1_capacity)
PAIR(l0c_capacity)
PAIR(bias_table)
PAIR(fixpipe_buffer)
PAIR(result_reuse)
PAIR(result_in_l1)
PAIR(operands_reuse)
PAIR(words_loaded)
PAIR(words_copied)
PAIR(bias_copied)
PAIR(result_place)
PAIR(result_rows)
PAIR(result_columns)
PAIR(result_words)
PAIR(unit_flag)
PAIR(bias_place)
PAIR(meeting)
PAIR(meeting_kind)
PAIR(group_flag)
PAIR(flag_taken)
