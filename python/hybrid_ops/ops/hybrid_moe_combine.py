"""Combination of a mixture of experts: for each token the weighted sum of its experts' rows.

    y[t] = sum over j of scales[t, j] * expanded_y[expanded_row_idx[t, j]]

Products and sums are float32, the rows of a token are added in ascending order (which is that of their experts where the
rows were dispatched sorted by expert, so the result does not depend on the order in which the router named them), and the
sum is rounded once. A row number outside 0 to N - 1 makes its slot inactive: nothing is read or added; a token without an
active slot gives zeros. NaN in a weight or a row makes its token NaN and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_moe_combine"


def meaning(
    expanded_y: np.ndarray, expanded_row_idx: np.ndarray, scales: np.ndarray
) -> dict[str, np.ndarray]:
    """The operator in float64.

    Args:
        expanded_y: [N, H], N = T * K; expanded_row_idx: [T, K] int32; scales: [T, K].

    Returns:
        {"y": [T, H] in the dtype of expanded_y}.
    """
    total = np.full((len(scales), expanded_y.shape[1]), -0.0)  # neutral: -0 + -0 is -0
    order = np.argsort(expanded_row_idx, axis=1, kind="stable")
    rows = np.take_along_axis(expanded_row_idx, order, axis=1)
    weights = np.take_along_axis(scales, order, axis=1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(rows.shape[1]):
            active = (rows[:, j] >= 0) & (rows[:, j] < len(expanded_y))
            total[active] += weights[active, j, None] * expanded_y[rows[active, j]].astype(np.float64)
        idle = ((expanded_row_idx < 0) | (expanded_row_idx >= len(expanded_y))).all(axis=1)
        total[idle] = 0.0
        return {"y": dtypes.narrow(total, expanded_y.dtype)}


def second_formula(
    expanded_y: np.ndarray, expanded_row_idx: np.ndarray, scales: np.ndarray
) -> dict[str, np.ndarray]:
    """The same operator as a product of a [1, K] and a [K, H] matrix per token, inactive slots left out."""
    made = np.zeros((len(scales), expanded_y.shape[1]), expanded_y.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for token, rows in enumerate(expanded_row_idx):
            active = np.flatnonzero((rows >= 0) & (rows < len(expanded_y)))
            total = scales[token, active].astype(np.float64) @ expanded_y[rows[active]].astype(np.float64)
            made[token] = dtypes.narrow(total, made.dtype)
    return {"y": made}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse a row number outside the rows, and one that two slots share."""
    data, rows = arrays["expanded_row_idx"], int(axes["N"])
    bad = np.argwhere((data < 0) | (data >= rows))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise check.refuse(
            OP, "expanded_row_idx", "no such row", got=f"{int(data[at])} at {list(at)}", allowed=f"0..{rows - 1}", soc=soc
        )  # fmt: skip
    numbers, counts = np.unique(data, return_counts=True)
    if (counts > 1).any():
        raise check.refuse(
            OP, "expanded_row_idx", "two slots share a row", got=f"row {int(numbers[counts > 1][0])}",
            allowed="each row once", soc=soc,
        )  # fmt: skip


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of a routing that an exported graph froze."""
    if "expanded_row_idx" in constants:
        yield (
            "expanded_row_idx",
            "a constant: every call would use the routing of the example",
            "take the rows of the dispatch operator in the graph",
        )


def _make(
    rng: np.random.Generator, *, types: Mapping[str, Any], rows: int, k: int, width: int, edits: list[Edit]
) -> Arrays:
    weights = rng.random((rows, k)) + 0.1
    arrays = {
        "expanded_y": rng.standard_normal((rows * k, width)),
        "expanded_row_idx": rng.permutation(rows * k).reshape(rows, k),
        "scales": weights / weights.sum(axis=1, keepdims=True),
    }
    return edited(arrays, edits, rng, types)


def _large_and_ones(arrays: Arrays, rng: np.random.Generator) -> None:
    """2048 + 1 + 1: rounded after each sum float16 stays at 2048."""
    arrays["expanded_row_idx"] = np.array([[0, 1, 2], [4, 5, 3], [7, 6, 8]])
    arrays["expanded_y"][:] = 1.0
    arrays["expanded_y"][::3] = 2048.0


def _expect_2050(inputs: Arrays, outputs: Arrays) -> None:
    exact = {"float16": 2050, "bfloat16": 2048, "float32": 2050}[outputs["y"].dtype.name]
    assert (outputs["y"].astype(np.float64) == exact).all()


def _expect_weights(inputs: Arrays, outputs: Arrays) -> None:
    want = inputs["scales"].astype(np.float64).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        outputs["y"].astype(np.float64), np.broadcast_to(want, outputs["y"].shape), rtol=5e-3
    )


def _expect_zero(rows: Any, inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["y"][rows].astype(np.float32).any()


def _expect_nan(rows: list[int], inputs: Arrays, outputs: Arrays) -> None:
    lost = np.isnan(outputs["y"].astype(np.float32))
    assert lost[rows].all() and not np.delete(lost, rows, axis=0).any()


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 tokens of 32 columns, 2 experts each."""
    far = 2**31 - 1
    return {
        "sum-once": {"rows": 3, "k": 3, "edits": [put("scales", 1.0), _large_and_ones], "expect": _expect_2050},
        **{f"sum-beyond-H{h}": {"width": h, "edits": [put("expanded_y", 6e4), put("scales", 1.0)]} for h in (5, 32)},
        "ones": {"rows": 9, "k": 8, "edits": [put("expanded_y", 1.0)], "expect": _expect_weights},
        **{f"T{t}": {"rows": t} for t in (0, 1, 16, 193)},
        "T4096": {"rows": 4096, "width": 16},
        "T600-K6": {"rows": 600, "k": 6, "width": 16},
        **{f"K{k}": {"k": k} for k in (1, 3, 5, 7, 8, 10, 17, 64)},
        "K300": {"rows": 2, "k": 300},
        "T1-K1-H1": {"rows": 1, "k": 1, "width": 1},
        **{f"H{h}": {"rows": 7, "width": h, "k": 3} for h in (1, 5, 8, 15, 16, 17, 31, 100, 2048, 7168)},
        "H5-T1": {"rows": 1, "width": 5},
        "H3-T40": {"rows": 40, "width": 3, "k": 3},
        "H-wide": {"rows": 2, "width": 33001},
        "qwen3-30b": {"rows": 17, "k": 8, "width": 2048},
        "inactive": {"rows": 6, "edits": [put("expanded_row_idx", -1, (2, slice(None))), put("expanded_row_idx", 12, (4, 1)),
                                          put("expanded_row_idx", far, (5, 0)), put("expanded_row_idx", -far - 1, (0, 0))],
                     "expect": partial(_expect_zero, 2), "report": "https://github.com/ROCm/aiter/issues/4530"},
        "inactive-nan": {"edits": [put("expanded_row_idx", -1, (slice(None), 1)), put("scales", np.nan, (slice(None), 1))],
                         "expect": partial(_expect_nan, [])},
        "inactive-all": {"edits": [put("expanded_row_idx", -1)], "expect": partial(_expect_zero, slice(None))},
        "nan-weight": {"edits": [put("scales", np.nan, 3)], "expect": partial(_expect_nan, [3])},
        "weight-zero": {"edits": [put("scales", 0.0)], "expect": partial(_expect_zero, slice(None))},
    }  # fmt: skip


# On every dtype column: what depends on the width of a row in bytes, or on rounding.
_EVERY_COLUMN = (
    "sum-once",
    "sum-beyond-H5",
    "sum-beyond-H32",
    "H17",
    "H5-T1",
    "K5",
    "T193",
    "inactive",
    "qwen3-30b",
)


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family; the first dtype column has them all, the others what depends on the dtype."""
    listed = []
    for column in columns(OP, soc):
        kinds = [column.short(n) for n in ("expanded_y", "scales")]
        prefix = column.prefix("combine", "-".join(dict.fromkeys(kinds)))
        for name, setting in _settings().items():
            if column.index and name not in _EVERY_COLUMN:
                continue
            s = {"rows": 5, "k": 2, "width": 32, "edits": [], **setting}
            extra = {n: s.pop(n) for n in ("expect", "report") if n in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat.

    Memory: every expanded row read once, tokens written once. Vector, per element of an expanded row in fp32: a cast in unless
    it is fp32 and one multiply-add; a cast out per element of a token.
    """
    wide = specs["expanded_y"]
    elements = int(wide.shape[0]) * int(wide.shape[1])
    per_row = max(1, int(specs["scales"].shape[1]))
    passes = [roofline.Pass("Axpy.f32", elements)]
    if wide.dtype != "float32":
        passes.append(roofline.Pass("Cast.f16f32", elements + elements // per_row))
    maps = roofline.size(specs["expanded_row_idx"]) + roofline.size(specs["scales"])
    return roofline.floors(roofline.size(wide) + maps, roofline.size(wide) // per_row, passes, soc)
