"""Gates of a gated delta net: log decay and step size from the raw projections of a layer.

    g    = -exp(A_log[h]) * softplus(a[t,h] + dt_bias[h])        softplus(x) = ln(1 + exp(x)), x itself above 20
    beta = sigmoid(b[t,h])

Computed in float32 whatever the projections are: exp(A_log) of a float16 parameter may be infinite (transformers' gated
delta nets say so too). g is handed on in float32, beta is rounded once to the dtype of b.

Neither factor of g counts as more than the largest float32, so that a rate of infinity times a softplus of 0, or the other
way round, is 0 and not NaN (https://github.com/ohdearquant/lattice/issues/314); a product beyond the range is -inf, which
resets the state. NaN stays where it is. g is not clamped: operators that add up g clamp it themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_gated_delta_gate"
LARGEST = float(np.finfo(np.float32).max)


def _rounded(g: np.ndarray, beta: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore"):
        return {"g": g.astype(np.float32), "beta": beta.astype(b.dtype)}


def meaning(a: np.ndarray, b: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray) -> dict[str, np.ndarray]:
    """The operator in float64.

    Args:
        a, b: [T, NV], float16 or bfloat16; A_log, dt_bias: [NV] float32.

    Returns:
        {"g": [T, NV] float32, "beta": [T, NV] in the dtype of b}.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # Summed in float32 as every implementation does: the sum's own rounding is part of the meaning.
        x = (a.astype(np.float32) + dt_bias).astype(np.float64)
        softplus = np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))
        softplus = np.minimum(softplus, LARGEST)
        rate = np.minimum(np.exp(A_log.astype(np.float64)), np.finfo(np.float64).max)
        g = np.where(softplus == 0, 0.0, -(rate * softplus))
        return _rounded(g, 1 / (1 + np.exp(-b.astype(np.float64))), b)


def second_formula(
    a: np.ndarray, b: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray
) -> dict[str, np.ndarray]:
    """The same operator by logarithms of sums and the hyperbolic tangent, head by head.

    softplus(x) = logaddexp(0, x); g = -exp(A_log + ln softplus); sigmoid(b) = (1 + tanh(b / 2)) / 2.
    """
    g = np.zeros(a.shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for head in range(a.shape[1]):
            x = (a[:, head].astype(np.float32) + dt_bias[head]).astype(np.float64)
            power = np.log(np.minimum(np.logaddexp(0.0, x), LARGEST))
            dead = np.isneginf(power) | np.isneginf(A_log[head])
            g[:, head] = np.where(dead, 0.0, -np.exp(float(A_log[head]) + np.where(dead, 0.0, power)))
        return _rounded(g, (1 + np.tanh(b.astype(np.float64) / 2)) / 2, b)


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse NaN, and infinities where they are hardly meant: anywhere. Raises HybridOpsError naming the first."""
    for name in ("a", "b", "A_log", "dt_bias"):
        data = arrays[name].astype(np.float32)
        bad = np.argwhere(~np.isfinite(data))
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            raise check.refuse(
                OP, name, "not finite", got=f"{float(data[at])} at {list(at)}", allowed="finite", soc=soc
            )


def _make(
    rng: np.random.Generator, *, types: Mapping[str, np.dtype], tokens: int, heads: int, edits: list[Edit]
) -> Arrays:
    """Inputs as models give them: A_log = ln(uniform(0.01, 16)), dt_bias around 1, projections around 0."""
    arrays = {
        "a": rng.standard_normal((tokens, heads)) * 3,
        "b": rng.standard_normal((tokens, heads)) * 2,
        "A_log": np.log(rng.uniform(0.01, 16, heads)),
        "dt_bias": 1 + rng.standard_normal(heads),
    }
    return edited(arrays, edits, rng, types)


def _ramp(arrays: Arrays, rng: np.random.Generator) -> None:
    """Every regime of softplus: from exp(x) lost beside 1, by the threshold of 20, to far above it."""
    arrays["dt_bias"][:] = 0
    arrays["a"][:] = np.linspace(-60, 60, arrays["a"].size).reshape(arrays["a"].shape)


def _expect_small_softplus(inputs: Arrays, outputs: Arrays) -> None:
    """Far below 0 softplus(x) is exp(x), not 0: relative accuracy, which the root mean square of all would not see."""
    x = inputs["a"].astype(np.float64)
    want = -np.exp(inputs["A_log"].astype(np.float64) + x)
    far = x < -18
    np.testing.assert_allclose(outputs["g"][far], want[far], rtol=2e-5)


def _expect_above_threshold(inputs: Arrays, outputs: Arrays) -> None:
    x = inputs["a"].astype(np.float32) + inputs["dt_bias"]
    want = -np.exp(inputs["A_log"].astype(np.float64)) * x
    far = x > 20
    assert far.any()
    np.testing.assert_allclose(outputs["g"][far], want[far], rtol=1e-6)


def _expect_no_nan(inputs: Arrays, outputs: Arrays) -> None:
    assert not np.isnan(outputs["g"]).any() and not np.isnan(outputs["beta"].astype(np.float32)).any()
    assert (outputs["g"] <= 0).all()


def _expect_dead(head: int, inputs: Arrays, outputs: Arrays) -> None:
    _expect_no_nan(inputs, outputs)
    assert not outputs["g"][:, head].any(), "inf * 0"


def _expect_resets(head: int, inputs: Arrays, outputs: Arrays) -> None:
    _expect_no_nan(inputs, outputs)
    assert (outputs["g"][:, head] == -np.inf).all()


def _expect_nan_stays_in_place(inputs: Arrays, outputs: Arrays) -> None:
    for name, source in (("g", "a"), ("beta", "b")):
        bad = np.isnan(outputs[name].astype(np.float32))
        assert (bad == np.isnan(inputs[source].astype(np.float32))).all(), (
            f"NaN of {source} spread, or was lost"
        )


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 tokens of 32 heads."""
    huge, minus = np.float32(120.0), -np.inf
    return {
        "decode-4b": {"tokens": 1},
        "decode-B64": {"tokens": 64},
        "prefill": {"tokens": 1500},
        **{f"NV{nv}": {"heads": nv} for nv in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 48, 64, 96, 128,
                                              200, 255, 256)},
        **{f"T1-NV{nv}": {"tokens": 1, "heads": nv} for nv in (1, 2, 4, 6, 8, 12, 15, 16, 17, 24, 31, 33, 40, 255)},
        **{f"T{t}-NV{nv}": {"tokens": t, "heads": nv}
           for t, nv in ((7, 2), (8, 2), (17, 1), (300, 1), (129, 3), (1001, 6), (33, 17), (47, 255), (16, 255), (17, 255),
                         (3001, 2), (2048, 17), (900, 33))},
        "ramp": {"tokens": 40, "heads": 24, "edits": [_ramp, put("A_log", 0.0)], "expect": _expect_small_softplus},
        "linear": {"edits": [put("dt_bias", 25.0)], "expect": _expect_above_threshold},
        "rate-large": {"edits": [put("A_log", 40.0, 3), put("A_log", -40.0, 4)], "expect": _expect_no_nan},
        "rate-overflows-softplus-zero": {"edits": [put("A_log", huge, 3), put("a", minus, (slice(None), 3))],
                                         "expect": partial(_expect_dead, 3),
                                         "report": "https://github.com/ohdearquant/lattice/issues/314"},
        "rate-inf-softplus-zero": {"edits": [put("A_log", np.inf, 3), put("a", minus, (slice(None), 3))],
                                   "expect": partial(_expect_dead, 3)},
        "rate-zero-softplus-inf": {"edits": [put("A_log", minus, 3), put("a", np.inf, (slice(None), 3))],
                                   "expect": partial(_expect_dead, 3)},
        "rate-overflows": {"edits": [put("A_log", huge, 3), put("a", 2.0, (slice(None), 3))],
                           "expect": partial(_expect_resets, 3)},
        "rate-overflows-product-does-not": {"edits": [put("A_log", 100.0), put("dt_bias", 0.0), put("a", -60.0)],
                                            "expect": _expect_no_nan},
        "a-inf": {"edits": [put("a", np.inf, (1, 3)), put("A_log", 1.0, 3)], "expect": _expect_no_nan},
        "b-inf": {"edits": [put("b", np.inf, (1, 3)), put("b", minus, (2, 3))], "expect": _expect_no_nan},
        "nan": {"edits": [put("a", np.nan, (1, 3)), put("b", np.nan, (3, 4))], "expect": _expect_nan_stays_in_place},
    }  # fmt: skip


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, each dtype column in turn."""
    listed = []
    for column in columns(OP, soc):
        prefix = column.prefix("ggate")
        for name, setting in _settings().items():
            s = {"tokens": 5, "heads": 32, "edits": [], **setting}
            extra = {k: s.pop(k) for k in ("expect", "report") if k in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat.

    Memory: everything read and written once. Vector, per element in fp32: two casts in and one out; two exp; two
    divisions and the four other steps that a sigmoid and a softplus cannot do without (negate and add 1, add the
    bias, maximum and sum), one product. The polynomial is a choice, an instruction for ln would take its place: it is
    counted as one Ln.
    """
    shape, heads = specs["a"].shape, specs["A_log"]
    n = math.prod(int(size) for size in shape)
    passes = [
        roofline.Pass("Cast.f16f32", 3 * n),
        roofline.Pass("Exp.f32", 2 * n),
        roofline.Pass("Ln.f32", n),
        roofline.Pass("Div.f32", n),
        roofline.Pass("Adds.f32", 4 * n),
        roofline.Pass("Add.f32", 2 * n),
        roofline.Pass("Mul.f32", n),
    ]
    small = roofline.size(specs["a"])
    return roofline.floors(2 * small + 2 * roofline.size(heads), small + 4 * n, passes, soc)
