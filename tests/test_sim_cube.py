"""The matrix unit: values on both SoCs, and one named fault per rule beside a silent twin (kernels/cube_*.cpp)."""

from __future__ import annotations

import time
from functools import cache

import minikernel as mini
import ml_dtypes
import numpy as np
import pytest
from minikernel import INOUT, INPUT, OUTPUT, aligned, rules

RNG = np.random.default_rng(7)


def fractals(x: np.ndarray, c0: int = 16) -> np.ndarray:
    """Columns of fractals of 16 rows and c0 columns."""
    rows, columns = x.shape
    return x.reshape(rows // 16, 16, columns // c0, c0).transpose(2, 0, 1, 3).ravel()


def from_columns(z: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return z[: rows * columns].reshape(columns // 16, rows, 16).transpose(1, 0, 2).reshape(rows, columns)


def halves(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


A, B = halves(32, 48), halves(48, 64)  # of cube_310p.cpp
C, D = halves(32, 64), halves(48, 64)  # of cube_910b.cpp, D as [n, k]


def on_310p(entry, a=A, b=B, out=(2048, np.float32), extra=None, **settings):
    z, x = aligned(np.zeros(*out)), aligned(np.zeros(4096, np.float32) if extra is None else extra)
    args = [("a", aligned(a), INPUT), ("b", aligned(b), INPUT), ("z", z, OUTPUT), ("x", x, INOUT)]
    return mini.launch(mini.library("cube_310p"), entry, args, **settings), z, x


@cache
def split():
    return [mini.library("cube_910b", "ascend910b", core=core) for core in ("vector", "cube")]


def on_910b(entry, a=C, b=D, out=(2048, np.float32), extra=None, vectors=0, **settings):
    z, x = aligned(np.zeros(*out)), aligned(np.zeros(16384, np.float32) if extra is None else extra)
    args = [("a", aligned(a), INPUT), ("b", aligned(b), INPUT), ("z", z, OUTPUT), ("x", x, INOUT)]
    vector, cube = split()
    return (
        mini.launch(vector, entry, args, soc="ascend910b", cube=cube, vectors=vectors, **settings),
        z,
        x,
    )


def silent(report):
    assert report["ok"] and not report["hazards"], (report["error"], report["hazards"])


# --- 310P


@pytest.mark.parametrize(("entry", "dtype", "rtol"), [
    ("product_f32", np.float32, 1e-5), ("product_f16", np.float16, 2e-3), ("product_f32_to_f16", np.float16, 2e-3),
    ("load_waits_for_mte2", np.float32, 1e-5), ("modes_and_numbers", np.float32, 1e-5),
    ("accumulate", np.float32, 1e-5), ("product_3d", np.float32, 1e-5),
])  # fmt: skip
def test_products(entry, dtype, rtol):
    report, z, _ = on_310p(entry, out=(2048, dtype))
    silent(report)
    np.testing.assert_allclose(from_columns(z, 32, 64), product(A, B), rtol=rtol, atol=rtol * 8)


def test_tails_row_vector_bias():
    a, b = halves(21, 48), halves(37, 48)
    report, z, _ = on_310p("tails", a, b)
    silent(report)
    np.testing.assert_allclose(
        z[: 2 * 21 * 16].reshape(2, 21, 16).transpose(1, 0, 2).reshape(21, 32), product(a, b.T)[:, :32], atol=1e-4
    )  # fmt: skip
    report, z, _ = on_310p("row_vector", A[:1])
    silent(report)
    np.testing.assert_allclose(z[:64], product(A[:1], B)[0], atol=1e-4)
    bias = RNG.standard_normal(64).astype(np.float32)
    report, z, _ = on_310p("bias", extra=bias)
    silent(report)
    np.testing.assert_allclose(from_columns(z, 32, 64), product(A, B) + bias, atol=1e-4)


def test_integers_and_dequantisation():
    a, b = bytes_of(32, 64), bytes_of(64, 64)
    report, z, x = on_310p("product_i8", fractals(a, 32), fractals(b, 32), out=(2048, np.int32))
    silent(report)
    exact = a.astype(int) @ b.T.astype(int)
    np.testing.assert_array_equal(from_columns(z, 32, 64), exact)
    scaled = (np.maximum(exact, 0).astype(np.float32) * np.float32(2.0**-7)).astype(np.float16)
    np.testing.assert_array_equal(from_columns(x.view(np.float16), 32, 64), scaled)


def test_l1_and_ub_exchange():
    report, z, _ = on_310p("through_ub", out=(32 * 48, np.float16))
    silent(report)
    np.testing.assert_array_equal(z, A.ravel() + np.float16(1))


def test_added_integers_scaled_and_fractals_written_as_rows():
    x, y = (RNG.integers(-4000, 4000, 512).astype(np.int32) for _ in range(2))
    report, z, _ = on_310p("deq_relu", x, y, out=(512, np.float16))
    silent(report)
    wanted = (np.maximum(x + y, 0) * 0.25).astype(np.float16)
    np.testing.assert_array_equal(z.reshape(16, 32), from_columns(wanted, 16, 32))


@pytest.mark.parametrize("entry", ["convolution", "convolution_v1"])
def test_unrolled_convolution(entry):
    image, weights = halves(8, 8, 16), halves(16, 144)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    columns = np.stack([padded[r : r + 8, c : c + 8] for r in range(3) for c in range(3)], 2).reshape(64, 144)
    report, z, _ = on_310p(entry, image, fractals(weights))
    silent(report)
    np.testing.assert_allclose(from_columns(z, 64, 16), product(columns, weights.T), atol=1e-4)


def in_blocks(a, b, block, tree):
    """fp32 sums of `block` products each, added one block after the other."""
    terms = a[:, :, None].astype(np.float32) * b[None].astype(np.float32)
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], block):
        part = [terms[:, i] for i in range(k, min(k + block, a.shape[1]))]
        while tree and len(part) > 1:
            part = [part[i] + part[i + 1] if i + 1 < len(part) else part[i] for i in range(0, len(part), 2)]
        total = np.zeros_like(acc)
        for p in part:
            total = total + p
        acc = acc + total
    return acc


@pytest.mark.parametrize(("block", "tree"), [(16, 0), (48, 0), (4, 0), (16, 1)])
def test_order_of_accumulation_is_a_parameter(block, tree):
    figures = {"numerics.mmad_k_block": block, "numerics.mmad_block_tree": tree}
    report, z, _ = on_310p("product_f32", figures=figures)
    silent(report)
    np.testing.assert_array_equal(from_columns(z, 32, 64), in_blocks(A, B, block, tree))


BROKEN = [
    ("no_load_wait", "race.raw", "missing MTE3_MTE1"),
    ("no_product_wait", "race.raw", "missing MTE1_M"),
    ("no_result_wait", "race.raw", "missing M_V"),
    ("no_reuse_wait", "race.war", "missing M_MTE1"),
    ("straight_b", "fractal.layout", "filter: fractal (0, 1) holds rows from 16"),
    ("transposed_a", "fractal.layout", "fm: fractal (0, 1)"),
    ("wrong_columns", "fractal.layout", "check ifTranspose, srcStride and the order of LoadData"),
    ("missing_fractal", "uninit.local", "[2560, 3072), which nothing has written"),
    ("off_grid", "param.align", "L0A address 32 is not a multiple of 512"),
    ("l0a_capacity", "capacity", "do not fit into L0A: 0 of 65536"),
    ("l1_overrun", "bounds.tensor", "1024 bytes past the end of TBuf<A1>"),
    ("scratch_taken", "capacity.scratch", "keep the last 8 KB free"),
    ("no_tpipe", "tpipe.none", "no TPipe"),
    ("transpose_i8", "param.range", "ifTranspose with 1-byte elements"),
    ("wrong_place", "path", "fm in L0B"),
    ("m_too_big", "param.range", "m 5000; allowed 0 … 4095"),
    ("hf32", "unsupported", "HF32 products are not modelled"),
    ("cross_core", "support", "not available on ascend310p (ascend910b has it)"),
    ("no_path", "path", "no data path from UB to L0A"),
]


@pytest.mark.parametrize(("entry", "rule", "part"), BROKEN, ids=[b[0] for b in BROKEN])
def test_each_fault_is_named(entry, rule, part):
    report = on_310p(entry)[0]
    assert not report["ok"]
    found = [h for h in report["hazards"] if h["rule"] == rule]
    assert found, rules(report)
    assert part in found[0]["message"], found[0]["message"]


def test_product_of_1024_runs_in_seconds_and_is_timed():
    a, b = halves(1024, 1024), halves(1024, 1024)
    args = [
        ("a", aligned(np.concatenate([fractals(a[i : i + 128]) for i in range(0, 1024, 128)])), INPUT),
        ("b", aligned(np.concatenate([fractals(b[:, i : i + 256]) for i in range(0, 1024, 256)])), INPUT),
        ("z", aligned(np.zeros(1024 * 1024, np.float16)), OUTPUT),
    ]  # fmt: skip
    begin = time.monotonic()
    report = mini.launch(mini.library("cube_310p"), "product_1024", args, blocks=4, record=True)
    assert time.monotonic() - begin < 5
    silent(report)
    z = args[2][1].reshape(4, 8, 16, 128, 16).transpose(1, 3, 0, 2, 4).reshape(1024, 1024)
    np.testing.assert_allclose(z, a.astype(np.float32) @ b.astype(np.float32), atol=0.1)
    busy = report["timing"]["busy"]
    assert busy["M"] == pytest.approx(1024**3 / 4096 / 4, rel=0.05)  # 4096 products a cycle, four cores
    assert busy["MTE1"] > 0 and not report["timing"]["unpriced"]


# --- 910B


def test_bf16_relu_and_f32():
    a, b = C.astype(ml_dtypes.bfloat16), D.astype(ml_dtypes.bfloat16)
    report, z, _ = on_910b("product_bf16", a, b, out=(32 * 48, ml_dtypes.bfloat16))
    silent(report)
    wanted = np.maximum(product(a, b.T), 0)
    np.testing.assert_allclose(z.reshape(32, 48).astype(float), wanted, rtol=8e-3, atol=1e-3)
    a, b = C.astype(np.float32), D.astype(np.float32)
    report, z, _ = on_910b("product_f32", a, b)
    silent(report)
    np.testing.assert_allclose(z[: 32 * 48].reshape(32, 48), product(a, b.T), atol=1e-4)


@pytest.mark.parametrize("entry", ["repeated_rows", "repeated_columns"])
def test_windows_repeated_along_either_axis(entry):
    report, z, _ = on_910b(entry)
    silent(report)
    np.testing.assert_allclose(z[: 32 * 48].reshape(32, 48), product(C, D.T), atol=1e-4)


def test_unit_flag_bias_chain():
    report, z, _ = on_910b("unit_flag", out=(2048, np.float16), record=True)
    silent(report)
    np.testing.assert_allclose(z[: 32 * 48].reshape(32, 48), product(C, D.T), rtol=2e-3, atol=1e-2)
    assert report["timing"]["busy"]["FIX"] > 0
    bias = RNG.standard_normal(48).astype(np.float32)
    report, z, _ = on_910b("bias", out=(2048, np.float16), extra=bias)
    silent(report)
    np.testing.assert_allclose(z[: 32 * 48].reshape(32, 48), product(C, D.T) + bias, rtol=2e-3, atol=1e-2)
    last = halves(16, 48)
    report, z, _ = on_910b("chained", extra=last)
    silent(report)
    first = product(C, D.T).astype(np.float32).astype(np.float16)
    np.testing.assert_allclose(z[: 32 * 16].reshape(32, 16), product(first, last.T), rtol=1e-3, atol=0.1)


def test_scale_per_column_and_transposed_bytes():
    a, b = bytes_of(32, 64), bytes_of(48, 64)
    scales = (2.0 ** -RNG.integers(5, 12, 48)).astype(np.float32)
    report, z, _ = on_910b(
        "quantised", a, b, out=(2048, np.float16), extra=scales.view(np.uint32).astype(np.uint64)
    )
    silent(report)
    wanted = ((a.astype(int) @ b.T.astype(int)).astype(np.float32) * scales).astype(np.float16)
    np.testing.assert_array_equal(z[: 32 * 48].reshape(32, 48), wanted)
    b = bytes_of(64, 64)
    report, z, _ = on_910b("transpose_i8", a, b, out=(2048, np.int32))
    silent(report)
    np.testing.assert_array_equal(z.reshape(32, 64), a.astype(int) @ b.astype(int))


SPLIT_BROKEN = [
    ("no_fix_wait", 0, "race.raw", "missing M_FIX"),
    ("wrong_stride", 0, "fractal.layout", "srcStride is the rows of the product"),
    ("wrong_quant", 0, "param.quant", "does not turn f32 into f16"),
    ("transpose_i8_bad", 0, "fractal.layout", "filter: fractal"),
    ("relay_wrong_pipe", 2, "gm.cross_core.raw", "that AIC 0 wrote (Fixpipe"),
    ("relay_no_wait", 2, "gm.cross_core.raw", "CrossCoreSetFlag on that pipe"),
    ("relay_deadlock", 2, "sync.deadlock", "AIV 1 waits in CrossCoreWaitFlag for flag 5"),
    ("flag_id", 0, "flag.id", "flag id 16; allowed 0 … 15"),
    ("flag_overflow", 2, "flag.counter", "the counter ends at 15"),
    ("vector_core_has_no_cube", 2, "bounds.memory", "which has 0 bytes on a vector core of ascend910b"),
    ("cube_core_has_no_ub", 2, "bounds.memory", "which has 0 bytes on a cube core of ascend910b"),
]


@pytest.mark.parametrize(("entry", "vectors", "rule", "part"), SPLIT_BROKEN, ids=[b[0] for b in SPLIT_BROKEN])
def test_each_fault_of_split_cores_is_named(entry, vectors, rule, part):
    report = on_910b(entry, vectors=vectors)[0]
    assert not report["ok"]
    found = [h for h in report["hazards"] if h["rule"] == rule]
    assert found, rules(report)
    assert part in found[0]["message"], found[0]["message"]


def test_small_accumulations_without_barrier_are_warned_of():
    silent(on_910b("twice")[0])
    report = on_910b("twice_bad")[0]
    assert report["ok"] and rules(report) == {"race.raw"}
    assert "missing PipeBarrier<PIPE_M>" in report["hazards"][0]["message"]


@pytest.mark.parametrize(("blocks", "vectors"), [(1, 1), (3, 1), (1, 2), (5, 2)])
def test_cube_and_vector_cores_hand_over(blocks, vectors):
    report, z, _ = on_910b(
        "relay", out=(blocks * 32 * 48, np.float32), vectors=vectors, blocks=blocks, record=True
    )
    silent(report)
    np.testing.assert_allclose(
        z.reshape(blocks, 32, 48), np.repeat(product(C, D.T)[None] + 1, blocks, 0), atol=1e-4
    )
    assert len(report["timing"]["per_core"]) == blocks * (1 + vectors)
    assert max(core["busy"]["V"] for core in report["timing"]["per_core"]) > 0


def test_a_buffer_of_all_memory_reaches_into_the_reserved_bytes():
    report = on_910b("whole_memory", vectors=1)[0]
    assert report["ok"] and rules(report) == {"capacity.reserved"}
    assert (
        "196608 bytes at 0 of UB: the framework keeps the last 256 bytes" in report["hazards"][0]["message"]
    )
    report = on_910b("too_much_memory", vectors=1)[0]
    assert not report["ok"] and rules(report) == {"capacity"}


def test_numbers_of_cores():
    report, z, _ = on_910b("numbers", vectors=2, blocks=3)
    assert report["ok"], report["hazards"]
    wanted = [[i, i % 2, 2, 3, 2, 0, 0, 0] for i in range(6)]
    np.testing.assert_array_equal(z[:48].reshape(6, 8), wanted)
