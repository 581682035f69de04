"""SwiGLU experts: the feed-forward of every expert on the rows that routing gave it.

For row r of expert e, expanded_x [R, H] sorted by expert (as the dispatch operator leaves them):

    y_r = down[e] (silu(gate[e] x_r) * (up[e] x_r))              silu(z) = z / (1 + exp(-z))

Sums in float32; the two projections, silu, its product with up, and the result are each rounded to the dtype (as
transformers' experts do it: `MixtralExperts`, `Qwen3MoeExperts`, `Qwen3NextExperts`, `DeepseekV3Experts`). Where a finite value
leaves the dtype's range it becomes the largest one, not infinity: an fp16 product of the two projections easily does. The cube path of
ascend910b leaves float16 sums beyond it as infinity, which is what its matrix unit hands out.
ascend310p has no infinity in fp16: where an infinite input makes a projection or a result infinite, it counts as +-65504 there.

Rows of expert e are [offsets[e], offsets[e + 1]). Rows in front of the first offset and behind the last are of no expert and
give zero rows. Offsets outside [0, R] count as the nearer end. Offsets that descend (no prefix sums) leave open which expert a
row gets, if any; no value ever names memory outside the tensors. Rows know nothing of each other: NaN stays in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_moe_swi_glu_experts"
SCALAR, CUBE, AUTO = 0, 1, 2  # attribute `strategy`


def bounds(offsets: np.ndarray, rows: int) -> np.ndarray:
    """Offsets as the operator takes them: ascending, inside [0, rows]. int64 [E + 1]."""
    return np.maximum.accumulate(np.clip(offsets.astype(np.int64), 0, rows))


def _rounded(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    return dtypes.narrow(array, kind).astype(np.float64)


def _refuse(x: np.ndarray, strategy: int) -> None:
    if strategy == CUBE and x.dtype == np.float32:
        raise check.refuse(
            OP, "strategy", "the cube path takes no float32", got="1 (Cube) with float32",
            allowed="0 (Scalar), 2 (Auto), or 16-bit inputs", soc="every SoC",
        )  # fmt: skip


def _halves(gate: np.ndarray, up: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    inner = gate.shape[1] // 2
    return (gate, up) if up is not None else (gate[:, :inner], gate[:, inner:])


def meaning(
    expanded_x: np.ndarray,
    gate: np.ndarray,
    down: np.ndarray,
    expert_offsets: np.ndarray,
    up: np.ndarray | None = None,
    strategy: int = SCALAR,
) -> dict[str, np.ndarray]:
    """The operator with float64 sums, expert after expert.

    Args:
        expanded_x: [R, H], float16, bfloat16 or float32; gate: [E, I, H], or [E, 2I, H] with up behind gate;
        down: [E, H, I]; up: [E, I, H]; all of one dtype.
        expert_offsets: int32 [E + 1].
        strategy: how it is computed, not what.

    Returns:
        {"expanded_y": [R, H] in the dtype of expanded_x}.

    Raises:
        HybridOpsError: the cube strategy with float32.
    """
    _refuse(expanded_x, strategy)
    kind = expanded_x.dtype
    gates, ups = _halves(gate, up)
    out = np.zeros(expanded_x.shape, kind)
    at = bounds(expert_offsets, len(expanded_x))
    with np.errstate(over="ignore", invalid="ignore"):
        for expert in np.flatnonzero(np.diff(at)):
            rows = slice(at[expert], at[expert + 1])
            x = expanded_x[rows].astype(np.float64)
            g = _rounded(x @ gates[expert].astype(np.float64).T, kind)
            u = _rounded(x @ ups[expert].astype(np.float64).T, kind)
            act = _rounded(_rounded(g / (1 + np.exp(-g)), kind) * u, kind)
            out[rows] = dtypes.narrow(act @ down[expert].astype(np.float64).T, kind)
    return {"expanded_y": out}


def second_formula(
    expanded_x: np.ndarray,
    gate: np.ndarray,
    down: np.ndarray,
    expert_offsets: np.ndarray,
    up: np.ndarray | None = None,
    strategy: int = SCALAR,
) -> dict[str, np.ndarray]:
    """The same operator row by row, each row looking up its expert; silu by way of the hyperbolic tangent."""
    _refuse(expanded_x, strategy)
    kind, rows = expanded_x.dtype, len(expanded_x)
    count, inner = down.shape[0], down.shape[2]
    steps = bounds(expert_offsets, rows)
    out = np.zeros(expanded_x.shape, kind)
    for r in range(rows):
        expert = int(np.searchsorted(steps, r, side="right")) - 1
        if not 0 <= expert < count:
            continue
        x = expanded_x[r].astype(np.float64)
        both = gate[expert] if up is None else np.concatenate([gate[expert], up[expert]])
        with np.errstate(over="ignore", invalid="ignore"):
            projected = _rounded((both.astype(np.float64) * x).sum(axis=1), kind)
            g, u = projected[:inner], projected[inner:]
            silu = _rounded(g * (1 + np.tanh(g / 2)) / 2, kind)
            out[r] = dtypes.narrow(
                (down[expert].astype(np.float64) * _rounded(silu * u, kind)).sum(axis=1), kind
            )
    return {"expanded_y": out}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse offsets that are no ascending prefix sums inside [0, R]. Raises HybridOpsError naming the first."""
    offsets, rows = arrays["expert_offsets"].astype(np.int64), len(arrays["expanded_x"])
    outside = np.flatnonzero((offsets < 0) | (offsets > rows))
    if len(outside):
        raise check.refuse(
            OP, "expert_offsets", "offset outside the rows", got=f"{offsets[outside[0]]} at {int(outside[0])}",
            allowed=f"0 to R={rows}", soc=soc,
        )  # fmt: skip
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if len(falls):
        at = int(falls[0]) + 1
        raise check.refuse(
            OP, "expert_offsets", "offsets descend", got=f"{offsets[at]} at {at} after {offsets[at - 1]}",
            allowed="ascending offsets", soc=soc,
        )  # fmt: skip


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of offsets that an exported graph froze."""
    if "expert_offsets" in constants:
        yield (
            "expert_offsets",
            "a constant: every call would use the routing of the example",
            "take the offsets of the dispatch operator in the graph",
        )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    counts: Sequence[int],
    hidden: int,
    inner: int,
    lead: int,
    trail: int,
    fused: bool,
    edits: list[Edit],
) -> Arrays:
    """Rows around 1, weights scaled so that each projection keeps that; `lead` and `trail` rows of no expert."""
    experts, rows = len(counts), lead + sum(counts) + trail
    arrays: Arrays = {
        "expanded_x": rng.standard_normal((rows, hidden)),
        "gate": rng.standard_normal((experts, inner, hidden)) * hidden**-0.5 * 2,
        "down": rng.standard_normal((experts, hidden, inner)) * inner**-0.5,
        "expert_offsets": lead + np.concatenate([[0], np.cumsum(counts)]).astype(np.float64),
        "up": rng.standard_normal((experts, inner, hidden)) * hidden**-0.5,
    }
    if fused:
        arrays["gate"] = np.concatenate([arrays["gate"], arrays["up"]], axis=1)
        arrays["up"] = None
    with np.errstate(over="ignore"):
        return edited(arrays, edits, rng, types)


def _expect_apart(bad: int, others: str = "finite") -> Callable[[Arrays, Arrays], None]:
    def expect(inputs: Arrays, outputs: Arrays) -> None:
        out = outputs["expanded_y"].astype(np.float32)
        assert np.isnan(out[bad]).all(), "the row of a NaN is not NaN"
        assert np.isfinite(np.delete(out, bad, axis=0)).all(), f"NaN left its row; others must be {others}"

    return expect


def _expect_zero_rows(*rows: int) -> Callable[[Arrays, Arrays], None]:
    def expect(inputs: Arrays, outputs: Arrays) -> None:
        got = outputs["expanded_y"].view(np.uint8)
        assert not got[list(rows)].any(), "a row of no expert is not zero"

    return expect


def _expect_golden(inputs: Arrays, outputs: Arrays) -> None:
    """x = 1, gate = ln 3, up = 2, down = 1 on one lane: 0.75 ln 3 * 2 (contract CB-01)."""
    np.testing.assert_allclose(outputs["expanded_y"][0, 0].astype(np.float64), 1.6479184, rtol=8e-3)


def _golden(arrays: Arrays, rng: np.random.Generator) -> None:
    for name in ("expanded_x", "gate", "up", "down"):
        value = {"expanded_x": 1.0, "gate": np.log(3), "up": 2.0, "down": 1.0}[name]
        arrays[name][...] = 0
        arrays[name][..., 0, 0] = value


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is H 64, I 48, rows of experts [2, 0, 3, 1], weights fused."""
    return {
        "golden": {"counts": [1], "hidden": 16, "inner": 16, "fused": False, "edits": [_golden], "expect": _expect_golden},
        "decode": {"counts": [0, 1, 0, 0, 1, 0, 1, 0], "hidden": 128},
        "apart": {"fused": False},
        "one-each": {"counts": [1] * 8},
        "two-empty": {"counts": [3, 3, 0, 0]},
        "contention": {"counts": [33, 32, 0, 0], "hidden": 32, "inner": 16},
        "last-only": {"counts": [0] * 127 + [9], "hidden": 16, "inner": 16},
        "many-experts": {"counts": [i % 3 for i in range(60)], "hidden": 32, "inner": 16},
        "all-one-expert": {"counts": [17]},
        "none": {"counts": [0, 0, 0]},
        **{f"n{n}": {"counts": [n], "hidden": 96, "inner": 32} for n in (1, 4, 5, 8, 15, 16)},
        **{f"H{h}": {"hidden": h} for h in (16, 48, 80, 256, 272, 528)},
        **{f"I{i}": {"inner": i} for i in (16, 32, 64, 80, 272)},
        "H16-I16": {"hidden": 16, "inner": 16},
        "qwen3-30b": {"counts": [1, 0, 2], "hidden": 2048, "inner": 768},
        "H7168": {"counts": [2], "hidden": 7168, "inner": 32},
        "I14336": {"counts": [0, 2], "hidden": 32, "inner": 14336},
        "no-expert-rows": {"lead": 2, "trail": 3, "expect": _expect_zero_rows(0, 1, 8, 9, 10)},
        "only-no-expert": {"counts": [0, 0], "trail": 5, "expect": _expect_zero_rows(*range(5))},
        "offset-beyond": {"edits": [put("expert_offsets", 1000.0, slice(3, None))]},
        "offset-negative": {"edits": [put("expert_offsets", -7.0, 1)]},
        "nan-row": {"edits": [put("expanded_x", np.nan, (2, 5))], "expect": _expect_apart(2)},
        "large": {"edits": [put("expanded_x", 200.0, 1)]},
        "gate-saturates": {"edits": [put("gate", 40.0, (2, 3)), put("gate", -40.0, (2, 4))]},
        "cube-halves": {"counts": [130, 0, 257, 15], "hidden": 272, "inner": 144},
        "cube-tall": {"counts": [300, 3, 513], "hidden": 112, "inner": 16},
        "cube-rows": {"counts": [20, 33], "hidden": 400, "inner": 160},
        "zero-weights": {"edits": [put("down", 0.0, 0)], "expect": _expect_zero_rows(0, 1)},
    }  # fmt: skip


# Cases of the strategies that share the walk, the barrier and the epilogue with the first.
_STRATEGY_CASES = (
    "decode", "apart", "two-empty", "contention", "last-only", "n15", "n16", "H272", "I80", "no-expert-rows",
    "offset-beyond", "nan-row", "none", "cube-halves", "cube-tall", "cube-rows", "qwen3-30b", "H7168", "I14336",
)  # fmt: skip
_WIDE_CASES = ("decode", "apart", "two-empty", "n5", "H272", "I80", "no-expert-rows", "nan-row")


def _names(kind: str, strategy: int) -> tuple[str, ...]:
    if kind == "float32":
        return _WIDE_CASES if strategy != CUBE else ()
    if strategy != SCALAR:
        return _STRATEGY_CASES
    return tuple(name for name in _settings() if not name.startswith("cube-"))


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family and 16-bit dtype by the vector path, some by the others and in float32."""
    listed = []
    for column in columns(OP, soc):
        kind = dtypes.name_of(column.types["expanded_x"])
        for strategy, label in ((SCALAR, "scalar"), (CUBE, "cube"), (AUTO, "auto")):
            prefix = f"{column.prefix('moeexp')}-{label}"
            for name in _names(kind, strategy):
                default = {"counts": [2, 0, 3, 1], "hidden": 64, "inner": 48, "lead": 0, "trail": 0}
                s = {**default, "fused": True, "edits": [], **_settings()[name]}
                extra = {k: s.pop(k) for k in ("expect", "overflows") if k in s}
                listed.append(column.case(f"{prefix}-{name}", _make, s, {"strategy": strategy}, **extra))
    return listed


def floors(
    specs: Mapping[str, check.Spec], soc: str, attrs: Mapping[str, Any], hit: int | None = None
) -> roofline.Floors:
    """Cycles no kernel of this operator can beat.

    Memory: weights of the `hit` experts that have rows (default: as many as there are rows, or all), rows read and written once.
    Vector path, in fp32: one cast per weight unless it is fp32, one product and one block reduction per weight and row.
    Cube path: three matrix products. With Auto the cheaper of the two.
    """
    x, down = specs["expanded_x"], specs["down"]
    rows, hidden = (int(n) for n in x.shape)
    experts, inner = int(down.shape[0]), int(down.shape[2])
    busy = min(rows, experts) if hit is None else hit
    weights = 3 * busy * hidden * inner
    moved = roofline.size(x)
    read = weights * dtypes.NUMPY[x.dtype].itemsize + moved
    passes = [roofline.Pass("Mul.f32", 3 * rows * hidden * inner)]
    passes.append(roofline.Pass("BlockReduceSum.f32", 3 * rows * hidden * inner))
    if x.dtype != "float32":
        passes.append(roofline.Pass("Cast.f16f32", weights))
    strategy = attrs.get("strategy", SCALAR)
    vector = roofline.floors(read, moved, passes, soc)
    if strategy == SCALAR or x.dtype == "float32":
        return vector
    cube = roofline.floors(read, moved, [], soc, [roofline.Product(rows, hidden, inner, x.dtype, 3)])
    return cube if strategy == CUBE or cube.cycles <= vector.cycles else vector
