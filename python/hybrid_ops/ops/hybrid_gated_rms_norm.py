"""Gated RMS norm: the last step of a gated delta net before its output projection.

Per row of x [N, D], one row per token and head, norm before gate (transformers' `Qwen3_5RMSNormGated`,
`Qwen3NextRMSNormGated`):

    out = x / sqrt(mean(x^2) + eps) * weight * silu(z)          silu(z) = z / (1 + exp(-z))

Everything is computed in float32 and rounded once, to the dtype of x; transformers rounds the normalised row to that dtype
before the weight too, so that the two differ by one rounding.

Values saturate: beyond a bound, infinite ones included, they count as the bound, 65504 for float16 and 2^59 for bfloat16
(whose squares would overflow float32). A row that the readout overflowed to infinity thus keeps its direction, where the
formula as written gives inf * 0 = NaN (https://github.com/vllm-project/vllm/issues/54308); silu(-inf) is 0. NaN in x
makes its row NaN, NaN in z its element. A row of zeros gives zeros, also with eps = 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_gated_rms_norm"
BOUND = {"float16": 65504.0, "bfloat16": 2.0**59}


def _saturated(array: np.ndarray) -> np.ndarray:
    bound = BOUND[dtypes.name_of(array.dtype)]
    return np.clip(array.astype(np.float64), -bound, bound)


def _refuse_negative(eps: float) -> None:
    if eps < 0:
        raise check.refuse(OP, "eps", "negative", got=f"{eps:g}", allowed=">= 0", soc="every SoC")


def meaning(x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> dict[str, np.ndarray]:
    """The operator in float64.

    Args:
        x, z: [N, D], float16 or bfloat16; weight: [D], float32 or the dtype of x.
        eps: added to the mean of squares.

    Returns:
        {"out": [N, D] in the dtype of x}.

    Raises:
        HybridOpsError: eps below 0.
    """
    _refuse_negative(eps)
    wide, gate = _saturated(x), _saturated(z)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        root = np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + eps)
        normed = np.where(root == 0, 0.0, wide / root)
        out = normed * weight.astype(np.float64) * (gate / (1 + np.exp(-gate)))
        return {"out": out.astype(x.dtype)}


def second_formula(
    x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float = 1e-6
) -> dict[str, np.ndarray]:
    """The same operator by way of unit vectors and the hyperbolic tangent, row by row.

    With r = |x| the length of a row and u its direction, x / sqrt(r^2 / D + eps) is u / hypot(1, sqrt(D eps) / r) * sqrt(D);
    silu(z) is z (1 + tanh(z / 2)) / 2.
    """
    _refuse_negative(eps)
    dim = x.shape[-1]
    gate = _saturated(z)
    silu = gate * (1 + np.tanh(gate / 2)) / 2
    out = np.zeros(x.shape, x.dtype)
    for row, wide in enumerate(_saturated(x)):
        with np.errstate(over="ignore", invalid="ignore"):
            length = float(np.linalg.norm(wide))
            if length == 0:
                continue
            unit = wide / length * math.sqrt(dim) / math.hypot(1.0, math.sqrt(dim * eps) / length)
            out[row] = (unit * weight.astype(np.float64) * silu[row]).astype(x.dtype)
    return {"out": out}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse NaN and infinities, which the operator hands on or saturates. Raises HybridOpsError naming the first."""
    for name in ("x", "z", "weight"):
        data = arrays[name].astype(np.float32)
        bad = np.argwhere(~np.isfinite(data))
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            raise check.refuse(
                OP, name, "not finite", got=f"{float(data[at])} at {list(at)}", allowed="finite", soc=soc
            )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    rows: int,
    dim: int,
    scale: float,
    edits: list[Edit],
) -> Arrays:
    """Inputs as a layer gives them: readouts and gates around 1, weights around 1."""
    arrays = {
        "x": rng.standard_normal((rows, dim)) * scale,
        "z": rng.standard_normal((rows, dim)) * 2,
        "weight": 1 + rng.standard_normal(dim) * 0.2,
    }
    with np.errstate(over="ignore"):
        return edited(arrays, edits, rng, types)


def _expect_finite(inputs: Arrays, outputs: Arrays) -> None:
    assert np.isfinite(outputs["out"].astype(np.float32)).all(), "infinite readout became infinite or NaN"


def _expect_direction(inputs: Arrays, outputs: Arrays) -> None:
    """One infinite element: the row is that axis, length sqrt(D), whatever the others are."""
    _expect_finite(inputs, outputs)
    x, out = inputs["x"].astype(np.float64), outputs["out"].astype(np.float64)
    silu = inputs["z"].astype(np.float64) / (1 + np.exp(-inputs["z"].astype(np.float64)))
    want = np.sign(x[1, 3]) * math.sqrt(x.shape[1]) * inputs["weight"].astype(np.float64)[3] * silu[1, 3]
    np.testing.assert_allclose(out[1, 3], want, rtol=0.01)


def _expect_nan_stays_in_place(inputs: Arrays, outputs: Arrays) -> None:
    bad = np.isnan(outputs["out"].astype(np.float32))
    want = np.isnan(inputs["z"].astype(np.float32)) | np.isnan(inputs["x"].astype(np.float32)).any(
        axis=1, keepdims=True
    )
    assert (bad == want).all(), "NaN spread, or was lost"


def _expect_zero(inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["out"][1].astype(np.float32).any()


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 rows of 128, eps 1e-6."""
    return {
        "decode-4b": {"rows": 32},
        "prefill": {"rows": 700},
        **{f"N{n}": {"rows": n} for n in (1, 7, 8, 9, 15, 16, 17, 65)},
        **{f"D{d}": {"dim": d, "rows": 19} for d in (16, 32, 48, 64, 80, 96, 112, 144, 192, 256, 272, 384, 496, 512)},
        "D16-many": {"dim": 16, "rows": 2500},
        "D512-many": {"dim": 512, "rows": 150},
        "eps-large": {"eps": 0.5},
        "eps-zero": {"eps": 0.0, "edits": [put("x", 0.0, 1)], "expect": _expect_zero},
        "row-zero": {"edits": [put("x", 0.0, 1)], "expect": _expect_zero},
        "row-tiny": {"scale": 1e-4},
        "row-large": {"scale": 1e4},
        "row-inf": {"edits": [put("x", np.inf, 1)], "expect": _expect_finite},
        "element-inf": {"edits": [put("x", -np.inf, (1, 3))], "expect": _expect_direction},
        "elements-inf": {"edits": [put("x", np.inf, (slice(None), slice(0, 5))), put("x", -np.inf, (2, 7))],
                         "expect": _expect_finite},
        "gate-zero": {"edits": [put("z", 0.0, 1)], "expect": _expect_zero},
        "gate-minus-inf": {"edits": [put("z", -np.inf, 1)], "expect": _expect_zero},
        "gate-large": {"edits": [put("z", 300.0, 1), put("z", -300.0, 2)]},
        "gate-inf": {"edits": [put("z", np.inf, (1, 3))], "overflows": True},
        "nan": {"edits": [put("x", np.nan, (1, 3)), put("z", np.nan, (3, 4))], "expect": _expect_nan_stays_in_place},
        "out-overflows": {"edits": [put("weight", 6e4, 5), put("z", 100.0, (2, 5))], "overflows": True},
    }  # fmt: skip


# A column that differs from an earlier one only in the dtype of the weight reads it differently and nothing else.
_WEIGHT_CASES = ("decode-4b", "prefill", "N17", "D16", "D80", "D512", "element-inf")


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family and dtype of x with a float32 weight, some with a weight in the dtype of x."""
    listed = []
    for column in columns(OP, soc):
        kind, weight = (column.short(n) for n in ("x", "weight"))
        prefix = column.prefix("gnorm") + (f"-{weight}weight" if weight != kind else "")
        for name, setting in _settings().items():
            if weight == kind and name not in _WEIGHT_CASES:
                continue
            s = {"rows": 5, "dim": 128, "scale": 1.0, "edits": [], **setting}
            attrs = {"eps": s.pop("eps", 1e-6)}
            extra = {k: s.pop(k) for k in ("expect", "overflows") if k in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat.

    Memory: x, z and the weight read once, out written once. Vector, per element in fp32: two casts in and one out; products
    for the square, the gate, the row's factor and the weight; one block reduction; exp, one addition, one negation
    and one division for SiLU. Saturation (half width in fp16) and steps on one value per row are left out.
    """
    x = specs["x"]
    n = math.prod(int(size) for size in x.shape)
    passes = [
        roofline.Pass("Cast.f16f32", 3 * n),
        roofline.Pass("Mul.f32", 4 * n),
        roofline.Pass("BlockReduceSum.f32", n),
        roofline.Pass("Exp.f32", n),
        roofline.Pass("Adds.f32", n),
        roofline.Pass("Muls.f32", n),
        roofline.Pass("Div.f32", n),
    ]
    read = sum(roofline.size(specs[name]) for name in ("x", "z", "weight"))
    return roofline.floors(read, roofline.size(x), passes, soc)
