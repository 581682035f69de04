"""Routing of a mixture of experts: scores of the router's logits and the k best experts of each row.

    score = softmax(x) over all experts, or sigmoid(x)          in float32
    key   = score, + bias for selection only (sigmoid)
    the k_group best of group_count groups of adjacent experts, by their best key or the sum of their best two,
    then the k best experts in them, best first; equal keys: lower number first
    y     = scores of the selected experts, / their sum if norm_topk_prob, * routed_scaling_factor, rounded once

Softmax scores are compared before their common division, as exp(x - max): two of them are equal exactly where float32 cannot
tell the exponentials apart, so also where both are 0. The bias counts as at most a quarter of the
largest float32 in size, so that -inf bars an expert from all but an empty field.

A row with NaN, with infinity, or of -inf only (softmax), with NaN in its logits or in the bias (sigmoid), has NaN weights
and the experts 0 to k - 1: distinct and in range, so that nothing behind it goes astray. No epsilon is added to a sum:
where every selected sigmoid is 0, norm_topk_prob gives 0 / 0 = NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_moe_gating_top_k"
F32 = np.float32
MOST_BIAS = F32(np.finfo(F32).max / 4)  # two keys still add up


def _refuse_scale(scale: float) -> None:
    if not F32(scale) > 0:
        raise check.refuse(
            OP, "routed_scaling_factor", "not above 0", got=f"{scale:g}", allowed="> 0", soc="every SoC"
        )


def _exp(x: np.ndarray) -> np.ndarray:
    """exp in float32, rounded once."""
    return np.exp(x.astype(np.float64)).astype(F32)


def _scores(x: np.ndarray, sigmoid: bool) -> np.ndarray:
    """Scores in float32: exp(x - max) for softmax, in (0, 1) for sigmoid."""
    wide = x.astype(F32)
    if not sigmoid:
        return _exp(wide - wide.max(axis=1, keepdims=True))
    small = _exp(-np.abs(wide))
    return np.where(wide >= 0, F32(1), small) / (F32(1) + small)


def _stable_best(keys: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest keys of each row, lower index first among equals."""
    return np.argsort(-keys, axis=1, kind="stable")[:, :count]


def _group_scores(keys: np.ndarray, groups: int, best_two: bool) -> np.ndarray:
    ordered = -np.sort(-keys.reshape(len(keys), groups, -1), axis=2)
    return ordered[:, :, 0] + ordered[:, :, 1] if best_two else ordered[:, :, 0]


def meaning(
    x: np.ndarray,
    bias: np.ndarray | None = None,
    k: int = 0,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    norm_type: int = 0,
    norm_topk_prob: bool = False,
    routed_scaling_factor: float = 1.0,
) -> dict[str, np.ndarray]:
    """The operator, with its float32 steps.

    Args:
        x: [T, E] logits, float16, bfloat16 or float32; bias: [E] float32 or None.
        k, k_group, group_count, group_select_mode, norm_type, norm_topk_prob, routed_scaling_factor: as in the contract.

    Returns:
        {"y": [T, k] in the dtype of x, "expert_idx": [T, k] int32}.

    Raises:
        HybridOpsError: routed_scaling_factor not above 0.
    """
    _refuse_scale(routed_scaling_factor)
    rows, experts = x.shape
    with np.errstate(all="ignore"):
        scores = _scores(x, norm_type == 1) if rows else np.zeros(x.shape, F32)
        keys = scores if bias is None else scores + np.clip(bias, -MOST_BIAS, MOST_BIAS)
        bad = np.isnan(keys).any(axis=1)
        keys = np.where(bad[:, None], F32(0), keys)
        if group_count > 1:
            best = _stable_best(_group_scores(keys, group_count, group_select_mode == 1), k_group)
            open_ = np.zeros((rows, group_count), bool)
            np.put_along_axis(open_, best, True, axis=1)
            keys = np.where(np.repeat(open_, experts // group_count, axis=1), keys, -np.inf)
        ids = _stable_best(keys, k)
        chosen = np.take_along_axis(scores, ids, axis=1).astype(np.float64)
        if norm_topk_prob:
            chosen = chosen / chosen.sum(axis=1, keepdims=True)
        elif norm_type == 0:
            chosen = chosen / scores.sum(axis=1, keepdims=True, dtype=np.float64)
        chosen[bad] = np.nan
        y = (chosen * routed_scaling_factor).astype(x.dtype)
    return {"y": y, "expert_idx": ids.astype(np.int32)}


def second_formula(
    x: np.ndarray,
    bias: np.ndarray | None = None,
    k: int = 0,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    norm_type: int = 0,
    norm_topk_prob: bool = False,
    routed_scaling_factor: float = 1.0,
) -> dict[str, np.ndarray]:
    """The same operator by walking over candidates, row by row: the best one k times, each then taken."""
    _refuse_scale(routed_scaling_factor)
    rows, experts = x.shape
    y, ids = np.zeros((rows, k), x.dtype), np.zeros((rows, k), np.int32)
    size = experts // group_count
    poisoned = bias is not None and bool(np.isnan(bias).any())
    for row in range(rows):
        logits = [float(v) for v in x[row].astype(F32)]
        lost = poisoned or any(v != v for v in logits)
        if norm_type == 0:
            lost = lost or max(logits) in (np.inf, -np.inf)
        if lost:
            y[row], ids[row] = np.nan, np.arange(k)
            continue
        scores = [F32(v) for v in _scores(x[row : row + 1], norm_type == 1)[0]]
        keys = [s if bias is None else F32(s + F32(min(max(b, -MOST_BIAS), MOST_BIAS)))
                for s, b in zip(scores, scores if bias is None else bias, strict=True)]  # fmt: skip
        groups = list(range(group_count))
        if group_count > 1:
            width = 2 if group_select_mode == 1 else 1
            value = [sum(sorted(keys[g * size : (g + 1) * size])[-width:], F32(0)) for g in groups]
            groups = _take(value, groups, k_group)
        open_ = sorted(e for g in groups for e in range(g * size, (g + 1) * size))
        ids[row] = _take(keys, open_, k)
        chosen = np.array([scores[e] for e in ids[row]], np.float64)
        total = (
            chosen.sum() if norm_topk_prob else np.sum(scores, dtype=np.float64) if norm_type == 0 else 1.0
        )
        with np.errstate(invalid="ignore", over="ignore"):
            y[row] = (chosen / total * routed_scaling_factor).astype(x.dtype)
    return {"y": y, "expert_idx": ids}


def _take(values: list[Any], candidates: list[int], count: int) -> list[int]:
    """The best candidate, again and again; the first among equals."""
    left, taken = list(candidates), []
    for _ in range(count):
        best = left[0]
        for candidate in left[1:]:
            if values[candidate] > values[best]:
                best = candidate
        left.remove(best)
        taken.append(best)
    return taken


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse NaN anywhere and infinite logits: the rows they are in would have NaN weights. Names the first."""
    for name in ("x", "bias"):
        data = arrays.get(name)
        if data is None:
            continue
        wide = data.astype(F32)
        bad = np.argwhere(np.isnan(wide) | (np.isinf(wide) if name == "x" else False))
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            allowed = "finite" if name == "x" else "not NaN"
            raise check.refuse(
                OP,
                name,
                "not a usable value",
                got=f"{float(wide[at])} at {list(at)}",
                allowed=allowed,
                soc=soc,
            )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, Any],
    rows: int,
    experts: int,
    bias: bool,
    edits: list[Edit],
) -> Arrays:
    arrays: Arrays = {"x": rng.standard_normal((rows, experts)) * 2}
    arrays["bias"] = rng.standard_normal(experts) * 0.2 if bias else None
    return edited(arrays, edits, rng, types)


def _given(values: Any) -> Edit:
    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays["x"] = np.array(values, np.float64)

    return edit


def _coarse(arrays: Arrays, rng: np.random.Generator) -> None:
    """Few different values: ties everywhere."""
    arrays["x"] = np.round(arrays["x"])
    if arrays["bias"] is not None:
        arrays["bias"] = np.round(arrays["bias"] * 4) / 4


def _expect(ids: Any, weights: Any, inputs: Arrays, outputs: Arrays) -> None:
    np.testing.assert_array_equal(outputs["expert_idx"], np.array(ids))
    if weights is not None:
        np.testing.assert_allclose(outputs["y"].astype(F32), np.array(weights, F32), rtol=8e-3, atol=1e-7)


def _expect_legal(inputs: Arrays, outputs: Arrays) -> None:
    """Distinct experts in range in every row, whatever its logits."""
    ids = outputs["expert_idx"]
    assert ((ids >= 0) & (ids < inputs["x"].shape[1])).all()
    assert all(len(set(row)) == len(row) for row in ids.tolist())


def _expect_best(inputs: Arrays, outputs: Arrays) -> None:
    """The largest logits, lower number first among equals."""
    best = np.argsort(-inputs["x"].astype(F32), axis=1, kind="stable")
    np.testing.assert_array_equal(outputs["expert_idx"], best[:, : outputs["expert_idx"].shape[1]])


def _expect_sum(total: float, inputs: Arrays, outputs: Arrays) -> None:
    _expect_legal(inputs, outputs)
    k = outputs["y"].shape[1]
    unit = float(ml_dtypes.finfo(outputs["y"].dtype).eps) * total * k
    np.testing.assert_allclose(
        outputs["y"].astype(np.float64).sum(axis=1), total, atol=max(unit, 4e-6 * total)
    )


_LN = np.log([1, 2, 4, 8])
_V3 = {"experts": 256, "bias": True, "k": 8, "group_count": 8, "k_group": 4, "group_select_mode": 1, "norm_type": 1,
       "norm_topk_prob": True, "routed_scaling_factor": 2.5}  # fmt: skip
_SIGMOID = {"norm_type": 1}


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 rows of 8 experts, the best 2, no bias."""
    nan, inf = np.nan, np.inf
    norm = {"norm_topk_prob": True}
    return {
        "analytic": {"edits": [_given([_LN])], "expect": partial(_expect, [[3, 2]], [[8 / 15, 4 / 15]])},
        "analytic-norm": {"edits": [_given([_LN])], **norm, "expect": partial(_expect, [[3, 2]], [[2 / 3, 1 / 3]])},
        "ties-all": {"k": 3, "edits": [put("x", 0.0)], "expect": partial(_expect, [[0, 1, 2]] * 5, [[1 / 8] * 3] * 5),
                     "report": "https://github.com/vllm-project/vllm/issues/52679"},
        "ties-all-norm": {"k": 3, "edits": [put("x", 0.0)], **norm, "expect": partial(_expect, [[0, 1, 2]] * 5, [[1 / 3] * 3] * 5)},
        "ties-pair": {"edits": [_given([[0, 0, 0, 0], [1, 2, 2, 2], [1, 2, 2, 0], [-0.0, 0.0, -1, -1]])],
                      "expect": partial(_expect, [[0, 1], [1, 2], [1, 2], [0, 1]], None),
                      "report": "https://github.com/vllm-project/vllm/issues/54403"},
        "ties-best": {"k": 1, "edits": [_given([[1, 2, 2, 0]])], "expect": partial(_expect, [[1]], None)},
        "ties-many": {"rows": 40, "experts": 128, "k": 8, "edits": [_coarse], "expect": _expect_legal},
        "ties-rounded": {"edits": [_given([[1.0, 1.0001, 0.0, 0.9]])], "expect": partial(_expect, [[0, 1]], None)},
        "ties-underflow": {"k": 4, "edits": [_given([[0.0, -200.0, -150.0, -inf, -300.0]])],
                           "expect": partial(_expect, [[0, 1, 2, 3]], [[1, 0, 0, 0]])},
        "bad-rows": {"edits": [_given([[1, nan, 2, 3], [3, 2, 1, 0], [1, inf, 2, 3], [-inf] * 4, [nan] * 4, [0, 1, 2, 3]])],
                     "expect": partial(_expect, [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [3, 2]],
                                       [[nan] * 2, [0.6439142, 0.2368828], [nan] * 2, [nan] * 2, [nan] * 2,
                                        [0.6439142, 0.2368828]]),
                     "report": "https://github.com/vllm-project/vllm/issues/39391"},
        "bad-rows-wide": {"rows": 70, "experts": 128, "k": 8, "edits": [put("x", nan, (slice(3, 60, 7), 5))],
                          "expect": _expect_legal},
        "minus-infinity": {"k": 4, "edits": [_given([[1, -inf, 0, -inf]])],
                           "expect": partial(_expect, [[0, 2, 1, 3]], [[0.7310586, 0.2689414, 0, 0]])},
        "minus-infinity-k2": {"edits": [_given([[1, -inf, 0, -inf]])],
                              "expect": partial(_expect, [[0, 2]], [[0.7310586, 0.2689414]])},
        "one-expert": {"experts": 1, "k": 1, "expect": partial(_expect, [[0]] * 5, [[1.0]] * 5)},
        "all-selected": {"experts": 60, "k": 60, "expect": partial(_expect_sum, 1.0)},
        "all-of-200": {"rows": 2, "experts": 200, "k": 200, **norm, "expect": partial(_expect_sum, 1.0)},
        **{f"E{e}": {"experts": e, "k": min(8, e), "rows": 3, **norm, "expect": partial(_expect_sum, 1.0),
                     "report": "https://github.com/vllm-project/vllm-ascend/issues/5310"}
           for e in (6, 16, 17, 31, 33, 60, 64, 96, 128, 160, 256, 384, 512, 1000, 2048)},
        **{f"T{t}": {"rows": t, "experts": 64, "k": 6, **norm, "expect": partial(_expect_sum, 1.0)} for t in (0, 1, 31, 1025)},
        "T1024": {"rows": 1024, "experts": 8, **norm, "expect": partial(_expect_sum, 1.0)},
        **{f"T{t}": {"rows": t, "experts": 16, **norm, "expect": partial(_expect_sum, 1.0),
                     "report": "https://github.com/vllm-project/vllm-ascend/issues/11391"} for t in (2048, 4096)},
        "T-odd": {"rows": 131, "experts": 60, "k": 4, "expect": _expect_legal},
        "k1": {"rows": 9, "k": 1, **norm, "expect": partial(_expect_sum, 1.0)},
        # Rows too wide for tiles whose results fill a block: 310P cores must not share a cache line.
        "k1-E608": {**_SIGMOID, "rows": 40, "experts": 608, "k": 1, "group_count": 16, "k_group": 16, "expect": _expect_best},
        "k1-E2048": {"rows": 37, "experts": 2048, "k": 1, "expect": _expect_best},
        "k5-E1024": {**_SIGMOID, "rows": 31, "experts": 1024, "k": 5, "group_count": 128, "k_group": 128,
                     "edits": [_coarse], "expect": _expect_best},
        "k-wide": {"rows": 3, "experts": 500, "k": 100},
        "mixtral": {"rows": 33, "k": 2, **norm, "expect": partial(_expect_sum, 1.0)},
        "qwen3-next": {"rows": 20, "experts": 512, "k": 10, **norm, "expect": partial(_expect_sum, 1.0)},
        "scale": {"rows": 4, "experts": 64, "k": 6, "routed_scaling_factor": 16.0},
        "softmax-groups": {"rows": 12, "experts": 160, "k": 6, "group_count": 8, "k_group": 3, "expect": _expect_legal},
        "softmax-groups-zeros": {"experts": 12, "k": 8, "group_count": 4, "k_group": 3,
                                 "edits": [put("x", -inf, (slice(None), slice(1, None)))],
                                 "expect": partial(_expect, [[0, 1, 2, 3, 4, 5, 6, 7]] * 5, None)},
        "sigmoid": {**_SIGMOID, "rows": 7, "experts": 20, "k": 3, "expect": _expect_legal},
        "sigmoid-scale": {**_SIGMOID, "routed_scaling_factor": 2.5, "edits": [_given([[0, np.log(3), -1, -2]])],
                          "expect": partial(_expect, [[1, 0]], [[1.875, 1.25]])},
        "bias-selects-only": {**_SIGMOID, "bias": True, **norm, "edits": [_given([[0, 0, np.log(3), 0]]),
                                                                         put("bias", [0, 0, -1, 0.5], slice(0, 4)), _cut(4)],
                              "expect": partial(_expect, [[3, 0]], [[0.5, 0.5]])},
        "bias-fine": {**_SIGMOID, "experts": 64, "k": 4, "bias": True,
                      "edits": [put("x", 0.0), _ramp_bias], "expect": partial(_expect, [[63, 62, 61, 60]] * 5, None),
                      "report": "https://github.com/sgl-project/sglang/issues/37133"},
        "bias-infinite": {**_SIGMOID, "bias": True, "k": 7, "edits": [put("bias", -inf, 3), put("bias", inf, 5), put("x", 0.0)],
                          "expect": _expect_legal},
        "bias-nan": {**_SIGMOID, "bias": True, "edits": [put("bias", nan, 3)],
                     "expect": partial(_expect, [[0, 1]] * 5, [[nan, nan]] * 5)},
        "sigmoid-infinite": {**_SIGMOID, "k": 3, "edits": [_given([[1, -inf, 0, inf]])],
                             "expect": partial(_expect, [[3, 0, 2]], [[1, 0.7310586, 0.5]])},
        "sigmoid-nan": {**_SIGMOID, "edits": [_given([[1, 0, 2, 3], [1, nan, 2, 3]])],
                        "expect": partial(_expect, [[3, 2], [0, 1]], [[0.9525741, 0.8807970], [nan, nan]])},
        "sigmoid-zero-sum": {**_SIGMOID, **norm, "edits": [put("x", -200.0)],
                             "expect": partial(_expect, [[0, 1]] * 5, [[nan, nan]] * 5)},
        "sigmoid-far": {**_SIGMOID, "edits": [_given([[30, -30, 29, -29]])], "expect": _expect_legal},
        "group-tie": {**_SIGMOID, "group_count": 2, "edits": [put("x", 1.0)], "expect": partial(_expect, [[0, 1]] * 5, None)},
        "groups-negative": {**_SIGMOID, "bias": True, "k": 4, "group_count": 4, "k_group": 2,
                            "edits": [put("x", 0.0), put("bias", [2.5, 1.5, 0.5, -1.5, 0, -0.1, -0.2, -0.3])],
                            "expect": partial(_expect, [[0, 1, 2, 3]] * 5, None)},
        "groups-best-two": {**_SIGMOID, "k": 2, "group_count": 2, "k_group": 1, "group_select_mode": 1,
                            "edits": [_given([[3, -9, -9, -9, 1, 1, -9, -9]])], "expect": partial(_expect, [[4, 5]], None)},
        "groups-of-two": {**_SIGMOID, "rows": 9, "experts": 16, "k": 4, "bias": True, "group_count": 8, "k_group": 2,
                          "group_select_mode": 1, "expect": _expect_legal},
        "groups-bad-rows": {**_V3, "rows": 9, "edits": [put("x", nan, (4, 250))], "expect": _expect_legal},
        "groups-ties": {**_V3, "rows": 24, "edits": [_coarse], "expect": _expect_legal},
        "deepseek-v3": {**_V3, "rows": 21, "expect": partial(_expect_sum, 2.5)},
        "deepseek-v3-one": {**_V3, "rows": 1, "expect": partial(_expect_sum, 2.5)},
        "kimi-k2": {**_SIGMOID, "rows": 6, "experts": 384, "k": 8, "bias": True, **norm, "routed_scaling_factor": 2.827,
                    "expect": partial(_expect_sum, 2.827)},
        "glm-4.5": {**_SIGMOID, "rows": 6, "experts": 160, "k": 8, "bias": True, **norm, "routed_scaling_factor": 2.5,
                    "expect": partial(_expect_sum, 2.5)},
        "groups-odd": {**_SIGMOID, "rows": 6, "experts": 35, "k": 5, "bias": True, "group_count": 5, "k_group": 3,
                       "group_select_mode": 1, "expect": _expect_legal},
        "groups-128": {**_SIGMOID, "rows": 3, "experts": 1024, "k": 64, "bias": True, "group_count": 128, "k_group": 8,
                       "expect": _expect_legal},
        "groups-of-one": {**_SIGMOID, "rows": 5, "experts": 24, "k": 4, "group_count": 24, "k_group": 4, "expect": _expect_legal},
 **{f"groups-{n}": {"rows": 2, "experts": 2 * n, "k": 3, "group_count": n, "k_group": 5} for n in (65, 80, 96, 97)},
        "groups-wide": {**_SIGMOID, "rows": 4, "experts": 300, "k": 9, "bias": True, "group_count": 3, "k_group": 2,
                        "group_select_mode": 1, "expect": _expect_legal},
    }  # fmt: skip


def _cut(experts: int) -> Edit:
    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays["bias"] = arrays["bias"][:experts]

    return edit


def _ramp_bias(arrays: Arrays, rng: np.random.Generator) -> None:
    """Differences that float32 keeps and bfloat16 would not."""
    arrays["bias"][:] = 1 + np.arange(len(arrays["bias"])) * 1e-5


_ATTRS = (
    "k",
    "k_group",
    "group_count",
    "group_select_mode",
    "norm_type",
    "norm_topk_prob",
    "routed_scaling_factor",
)
# On every dtype column; the others, whose arithmetic is the same, on one column of each SoC.
_EVERY_COLUMN = (
    "analytic",
    "ties-many",
    "bad-rows",
    "T1",
    "T-odd",
    "E17",
    "E128",
    "deepseek-v3",
    "groups-odd",
    "bias-fine",
    "k1-E608",
    "k5-E1024",
)


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family; the first dtype column has them all, the others what depends on the dtype."""
    listed = []
    for column in columns(OP, soc):
        prefix = column.prefix("gating")
        for name, setting in _settings().items():
            if column.index and name not in _EVERY_COLUMN:
                continue
            s = {"rows": 5, "experts": 8, "bias": False, "edits": [], "k": 2, **setting}
            attrs = {n: s.pop(n) for n in _ATTRS if n in s}
            extra = {n: s.pop(n) for n in ("expect", "report") if n in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec], soc: str, attrs: Mapping[str, Any]) -> roofline.Floors:
    """Cycles no kernel of this operator can beat.

    Memory: logits and bias read once, k weights and experts per row written once. Vector, per logit in fp32: a cast in unless
    it is fp32, one exp, for softmax a maximum, a difference and a sum, for sigmoid a sum and a division; one comparison with
    the best k so far. Steps on one value per row are left out.
    """
    x = specs["x"]
    rows, experts = (int(n) for n in x.shape)
    n, width = rows * experts, dtypes.NUMPY[x.dtype].itemsize
    passes = [roofline.Pass("Exp.f32", n), roofline.Pass("Compare.f32", n)]
    if attrs.get("norm_type", 0) == 0:
        passes += [roofline.Pass("Max.f32", n), roofline.Pass("Sub.f32", n), roofline.Pass("Add.f32", n)]
    else:
        passes += [roofline.Pass("Adds.f32", n), roofline.Pass("Div.f32", n)]
    if width < 4:
        passes.append(roofline.Pass("Cast.f16f32", n))
    bias = roofline.size(specs["bias"]) if specs.get("bias") else 0
    return roofline.floors(roofline.size(x) + bias, rows * attrs["k"] * (width + 4), passes, soc)
