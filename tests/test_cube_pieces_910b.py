"""The building blocks of op_kernel/common/cube_910b.h against NumPy, checks full and silent."""

from __future__ import annotations

from functools import cache

import minikernel as mini
import ml_dtypes
import numpy as np
import pytest
from minikernel import INOUT, INPUT, OUTPUT, aligned, rules

BF16 = ml_dtypes.bfloat16


@cache
def split():
    return [mini.library("cube_pieces_910b", "ascend910b", core=core) for core in ("vector", "cube")]


def run(entry, a, b, out, extra, m=0, n=0, k=0, vectors=2):
    z, x = aligned(out), aligned(extra)
    sizes = aligned(np.array([m, n, k], np.int32))
    args = [
        ("a", aligned(a), INPUT),
        ("b", aligned(b), INPUT),
        ("z", z, OUTPUT),
        ("x", x, INOUT),
        ("s", sizes, INPUT),
    ]
    vector, cube = split()
    return mini.launch(vector, entry, args, soc="ascend910b", cube=cube, vectors=vectors), z, x


def silent(report):
    assert report["ok"] and not report["hazards"], (report["error"], report["hazards"])


def numbers(seed, *shape, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 128, 64), (1, 16, 16), (1, 1, 1), (17, 33, 63), (128, 112, 20)]
)
@pytest.mark.parametrize(
    ("entry", "dtype"),
    [("bf16_straight", BF16), ("bf16_left", BF16), ("bf16_right", BF16), ("bf16_both", BF16),
     ("f16_both", np.float16), ("f32_straight", np.float32)],
)  # fmt: skip
def test_products_in_every_orientation(entry, dtype, m, n, k):
    a, b = numbers(1, m, k, dtype=dtype), numbers(2, k, n, dtype=dtype)
    given = a.T if entry.split("_")[1] in ("left", "both") else a
    other = b if entry.split("_")[1] in ("right", "both") else b.T
    report, z, x = run(
        entry, np.ascontiguousarray(given), np.ascontiguousarray(other), np.zeros((m, n), np.float32),
        np.zeros((m, n), BF16), m, n, k,
    )  # fmt: skip
    silent(report)
    wanted = 2 * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_allclose(z, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x, z.astype(BF16))


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (32, 48, 80), (17, 32, 33)])
def test_result_as_operand(m, n, k):
    a, b, c = (numbers(i, *shape, dtype=np.float16) for i, shape in enumerate([(m, k), (n, k), (m, n)]))
    report, z, _ = run("chained", a, b, np.zeros((m, m), np.float32), c, m, n, k)
    silent(report)
    first = (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16)
    np.testing.assert_allclose(z, first.astype(np.float64) @ c.astype(np.float64).T, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(("m", "n", "k"), [(48, 64, 256), (16, 100, 200), (5, 7, 64)])
@pytest.mark.parametrize(
    ("entry", "dtype"), [("long_f16", np.float16), ("long_bf16_right", BF16), ("long_f32", np.float32)]
)
def test_long_sums(entry, dtype, m, n, k):
    a, b = numbers(3, m, k, dtype=dtype), numbers(4, n, k, dtype=dtype)
    other = np.ascontiguousarray(b.T) if entry.endswith("right") else b
    report, z, _ = run(entry, a, other, np.zeros((2, m, n), np.float32), np.zeros(16, np.float32), m, n, k)
    silent(report)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(z, np.stack([wanted, wanted]), rtol=1e-4, atol=1e-4)


def test_handshake_through_one_buffer_each_way():
    a, b = numbers(5, 3, 64, 64, dtype=np.float16), numbers(6, 64, 64, dtype=np.float16)
    report, z, _ = run("handshake", a, b, np.zeros((3, 64, 64), np.float32), np.zeros(16384, np.float32))
    silent(report)
    np.testing.assert_allclose(z, a.astype(np.float64) @ b.astype(np.float64).T + 1, rtol=1e-4, atol=1e-4)
    report = run("handshake_broken", a, b, np.zeros((3, 64, 64), np.float32), np.zeros(16384, np.float32))[0]
    assert not report["ok"] and any(rule.startswith("gm.cross_core") for rule in rules(report))
