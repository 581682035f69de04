"""Building blocks of products on a combined core (op_kernel/common/cube_310p.h) against NumPy, no hazard reported."""

from __future__ import annotations

import minikernel as mini
import numpy as np
import pytest
from minikernel import INPUT, OUTPUT, aligned

RNG = np.random.default_rng(11)
M, K, N = 48, 80, 64


def halves(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def run(
    entry: str, a: np.ndarray, b: np.ndarray, m: int, n: int, extra: np.ndarray | None = None
) -> np.ndarray:
    z, x = aligned(np.zeros(m * n, np.float32)), aligned(np.zeros(8, np.float32) if extra is None else extra)
    args = [("a", aligned(a), INPUT), ("b", aligned(b), INPUT), ("z", z, OUTPUT), ("x", x, INPUT)]
    report = mini.launch(mini.library("cube_pieces_310p"), entry, args, auto_sync=False)
    assert report["ok"] and not report["hazards"], (report["error"], report["hazards"])
    return z.reshape(m, n)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(("entry", "left", "right"), [
    ("plain", 0, 0), ("left_transposed", 1, 0), ("right_transposed", 0, 1), ("both_transposed", 1, 1)
])  # fmt: skip
def test_either_factor_may_lie_transposed(entry, left, right):
    a, b = halves(M, K), halves(K, N)
    z = run(entry, a.T.copy() if left else a, b.T.copy() if right else b, M, N)
    np.testing.assert_allclose(z, exact(a, b), atol=1e-4)


def test_k_in_parts_and_a_second_product_added():
    a, b = halves(128, 256), halves(256, 128)
    np.testing.assert_allclose(run("parts_and_sum", a, b, 128, 128), 2 * exact(a, b), atol=1e-3)


def test_blocks_of_larger_matrices():
    a, b = halves(M, K), halves(K, N)
    np.testing.assert_allclose(
        run("blocks", a, b, 32, 48), exact(a[16:48, 32:64], b[16:48, 16:64]), atol=1e-4
    )


def test_a_tile_filled_again_and_a_sum_read_in_pieces():
    a, b = halves(M, K), halves(K, N)
    np.testing.assert_allclose(run("reuse", a, b, M, N), 2 * exact(a, b), atol=1e-3)


def test_rows_of_global_memory():
    a, b = halves(M, 2 * K), halves(K, N)
    np.testing.assert_allclose(run("from_global", a, b, M, N), exact(a[:, :K], b), atol=1e-4)


def test_two_halves_hold_a_float():
    a, b = RNG.standard_normal((M, K)).astype(np.float32), halves(K, N)
    columns = a.reshape(M, K // 16, 16).transpose(1, 0, 2).copy()
    z = run("split", halves(M, K), b, M, N, columns)
    np.testing.assert_allclose(z, exact(a, b), atol=2e-5)
    assert np.abs(exact(a.astype(np.float16), b) - exact(a, b)).max() > 1e-3
