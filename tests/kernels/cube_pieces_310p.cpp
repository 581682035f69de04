// The pieces of op_kernel/common/cube_310p.h, each on its own. Arguments: a, b, out.
#include "../../op_kernel/common/buffers.h"
#include "../../op_kernel/common/cube_310p.h"
#include "mini.h"

using namespace hybrid_ops;

namespace {

constexpr uint32_t M = 48, K = 80, N = 64;

struct Parts {
    TPipe pipe;
    Cube310p cube;
    hybrid_ops::Buffer aBuffer, bBuffer, outBuffer, rowBuffer;
    LocalTensor<half> a, b;
    FloatTensor out, rows;
    CubeTile at, bt;
    CubeSum sum;
    Parts(MiniArgs arg, uint32_t aRows, uint32_t aColumns, uint32_t bRows, uint32_t bColumns) {
        cube.Init(pipe, kL0cElements, 262144);
        Reserve(pipe, aBuffer, a, 32768);
        Reserve(pipe, bBuffer, b, 32768);
        Reserve(pipe, outBuffer, out, 16384);
        Reserve(pipe, rowBuffer, rows, 16384);
        cube.Tile(at, aRows, aColumns);
        cube.Tile(bt, bRows, bColumns);
        cube.Sum(sum, 16384);
        DataCopy(a, arg.gm<half>(0), aRows * aColumns);
        DataCopy(b, arg.gm<half>(1), bRows * bColumns);
        hybrid_ops::Order<HardEvent::MTE2_V>();
        hybrid_ops::Order<HardEvent::MTE2_MTE3>();
        cube.FillRows(at, a, aRows, aColumns, aColumns);
        cube.FillRows(bt, b, bRows, bColumns, bColumns);
    }
    void Out(MiniArgs arg, uint32_t m, uint32_t n) {
        cube.Fetch(out, sum, m * n);
        PipeBarrier<PIPE_V>();
        ToRows(rows, out, m, n, n);
        hybrid_ops::Order<HardEvent::V_MTE3>();
        DataCopy(arg.gm<float>(2), rows, m * n);
        cube.Finish(sum);
        cube.Release(pipe);
    }
};

void Product(MiniArgs arg, bool aTransposed, bool bTransposed) {
    Parts p(arg, aTransposed ? K : M, aTransposed ? M : K, bTransposed ? N : K, bTransposed ? K : N);
    p.cube.Multiply(p.sum, {&p.at, aTransposed}, {&p.bt, bTransposed}, M, N, K, false);
    p.Out(arg, M, N);
}

}  // namespace

MINI(plain) { Product(arg, false, false); }
MINI(left_transposed) { Product(arg, true, false); }
MINI(right_transposed) { Product(arg, false, true); }
MINI(both_transposed) { Product(arg, true, true); }

// K in parts that take turns in L0, then added to what is there: A [128, 256], B [256, 128], 2 A B.
MINI(parts_and_sum) {
    Parts p(arg, 128, 256, 256, 128);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, 128, 128, 256, false);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, 128, 128, 256, true);
    p.Out(arg, 128, 128);
}

// Blocks of larger matrices: A[16:48, 32:64] B[16:48, 16:64]
MINI(blocks) {
    Parts p(arg, M, K, K, N);
    p.cube.Multiply(p.sum, {&p.at, false, 16, 32}, {&p.bt, false, 16, 16}, 32, 48, 32, false);
    p.Out(arg, 32, 48);
}

// A tile is filled again while the product that reads it may still run, a sum is read in two pieces.
MINI(reuse) {
    Parts p(arg, M, K, K, N);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, M, N, K, false);
    hybrid_ops::Order<HardEvent::MTE3_V>();
    Muls(p.a, p.a, half(2), M * K);
    p.cube.FillRows(p.at, p.a, M, K, K);
    p.cube.Fetch(p.out, p.sum, M * 32, 0, false);
    p.cube.Fetch(p.out[M * 32], p.sum, M * 32, M * 32);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, M, N, K, false);
    PipeBarrier<PIPE_V>();
    p.Out(arg, M, N);
}

// From global memory, past unified buffer: rows [M, K] of a matrix [M, 2 K].
MINI(from_global) {
    Parts p(arg, M, K, K, N);
    p.cube.FillRows(p.at, arg.gm<half>(0), M, K, 2 * K);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, M, N, K, false);
    p.Out(arg, M, N);
}

// (high + low) B of an fp32 matrix [M, K] in columns of fractals; the halves take the room of b.
MINI(split) {
    Parts p(arg, M, K, K, N);
    CubeTile low;
    p.cube.Tile(low, M, K);
    DataCopy(p.out, arg.gm<float>(3), M * K);
    hybrid_ops::Order<HardEvent::MTE2_V>();
    hybrid_ops::Order<HardEvent::MTE3_V>();
    SplitHalves(p.a, p.a[M * K], p.out, p.rows, M * K);
    p.cube.Fill(p.at, p.a, M * K);
    p.cube.Fill(low, p.a[M * K], M * K);
    p.cube.Multiply(p.sum, {&p.at, false}, {&p.bt, false}, M, N, K, false);
    p.cube.Multiply(p.sum, {&low, false}, {&p.bt, false}, M, N, K, true);
    p.Out(arg, M, N);
}
