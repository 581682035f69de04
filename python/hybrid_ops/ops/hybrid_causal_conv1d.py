"""Depthwise causal convolution over packed sequences: the meaning in NumPy, a second formula, value checks, cases.

For row t of a sequence, with window = W - 1 rows before the sequence followed by its rows (x_j is row j of it):

    y[t] = act(bias + sum_j weight[j] * window[t + j])            act(a) = a, or a * sigmoid(a)

The rows before the sequence are zeros, or rows 0 .. W-2 of its line in conv_states. The line then takes, as rows
0 .. W-2, the last W - 1 rows of the window; its other rows stay. With num_accepted_tokens (speculative decoding, where a step
offers several rows and a later one says how many were right) the rows before the sequence are rows n-1 .. n+W-3 of the
line, n the accepted count, and the line takes the window without its first row, W - 2 + length rows, if it is long enough.

Layouts differ from torch: channels last, weight [W, D] where Conv1d has [D, 1, W], lines [L, D] where torch code has
[D, L]. A line longer than W - 1 has its history in its first rows, transformers' causal_conv1d_update in its last ones.
A sequence whose begin lies before the end of an earlier one, whose end lies before its begin or beyond T, counts as padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_causal_conv1d"

SLOT_TABLES = frozenset(
    {"cache_indices"}
)  # exported graphs: inputs of line numbers, which a batch-1 export fixes


@dataclass(frozen=True)
class Active:
    """One active sequence: number, rows, line, first row of the window in the line (None: zeros), whether all rows stay."""

    number: int
    begin: int
    end: int
    line: int
    window: int | None
    keep: bool


def active(
    offsets: np.ndarray,
    indices: np.ndarray | None,
    mode: np.ndarray | None,
    accepted: np.ndarray | None,
    sizes: Mapping[str, int],
    pad_slot_id: int,
    update: bool,
) -> Iterator[Active]:
    """Walk the sequences; `sizes` has T, W, S and L. Skipped: misplaced, empty and padded ones."""
    covered = 0
    for b in range(len(offsets) - 1):
        begin, end = int(offsets[b]), int(offsets[b + 1])
        if not covered <= begin <= end <= sizes["T"]:
            continue
        covered = end
        line = b if indices is None else int(indices[b])
        padded = indices is not None and line == pad_slot_id
        if begin == end or padded or not 0 <= line < sizes["S"]:
            continue
        window, keep = 0, False
        if accepted is not None:
            if not 1 <= accepted[b] <= sizes["L"] - sizes["W"] + 2:
                continue
            window = int(accepted[b]) - 1
            keep = sizes["W"] - 2 + end - begin <= sizes["L"]
        known = update if mode is None else bool(mode[b])
        yield Active(b, begin, end, line, window if known else None, keep)


def _activated(a: np.ndarray, activation: int) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return a / (1 + np.exp(-a)) if activation else a


def meaning(
    x: np.ndarray,
    weight: np.ndarray,
    conv_states: np.ndarray,
    query_start_loc: np.ndarray,
    bias: np.ndarray | None = None,
    cache_indices: np.ndarray | None = None,
    initial_state_mode: np.ndarray | None = None,
    num_accepted_tokens: np.ndarray | None = None,
    activation: int = 0,
    pad_slot_id: int = -1,
    run_mode: int = 0,
    *,
    precision: type = np.float64,
) -> dict[str, np.ndarray]:
    """The operator, sequence by sequence.

    Args:
        x: [T, D], rows of all sequences; weight: [W, D]; bias: [D].
        conv_states: [S, L, D]; not modified, the new pool is returned.
        query_start_loc: [B+1] cumulative; cache_indices: line per sequence [B], None: line b.
        initial_state_mode: [B], 0 = zeros before the sequence; None: zeros in prefill, the line in update.
        num_accepted_tokens: [B], tokens the previous step accepted; only with run_mode 1.
        activation: 0 none, 1 SiLU; pad_slot_id: line that marks a padded sequence; run_mode: 0 prefill, 1 update.
        precision: floating type of the computation.

    Returns:
        {"y": [T, D], "conv_states": [S, L, D]} in the dtype of x.
    """
    width, lines = len(weight), conv_states.copy()
    y = np.zeros_like(x)
    sizes = {"T": len(x), "W": width, "S": len(lines), "L": lines.shape[1]}
    controls = (query_start_loc, cache_indices, initial_state_mode, num_accepted_tokens)
    for s in active(*controls, sizes, pad_slot_id, run_mode == 1):
        before = np.zeros((width - 1, x.shape[1]), x.dtype)
        if s.window is not None:
            before = lines[s.line, s.window : s.window + width - 1]
        window = np.concatenate([before, x[s.begin : s.end]])
        total: Any = np.zeros((s.end - s.begin, x.shape[1]), precision)
        for j in range(width):
            total += weight[j].astype(precision) * window[j : j + len(total)].astype(precision)
        if bias is not None:
            total += bias.astype(precision)
        y[s.begin : s.end] = _activated(total, activation).astype(y.dtype)
        kept = window[1:] if s.keep else window[len(window) - (width - 1) :]
        lines[s.line, : len(kept)] = kept
    return {"y": y, "conv_states": lines}


def second_formula(
    x: np.ndarray,
    weight: np.ndarray,
    conv_states: np.ndarray,
    query_start_loc: np.ndarray,
    bias: np.ndarray | None = None,
    cache_indices: np.ndarray | None = None,
    initial_state_mode: np.ndarray | None = None,
    num_accepted_tokens: np.ndarray | None = None,
    activation: int = 0,
    pad_slot_id: int = -1,
    run_mode: int = 0,
) -> dict[str, np.ndarray]:
    """The same operator token by token, each token shifting a register of W rows, as hardware for it would."""
    width, lines = len(weight), conv_states.copy()
    y = np.zeros_like(x)
    sizes = {"T": len(x), "W": width, "S": len(lines), "L": lines.shape[1]}
    controls = (query_start_loc, cache_indices, initial_state_mode, num_accepted_tokens)
    for s in active(*controls, sizes, pad_slot_id, run_mode == 1):
        register = np.zeros((width, x.shape[1]), x.dtype)
        if s.window is not None:
            register[1:] = conv_states[s.line, s.window : s.window + width - 1]
        lines[s.line, : width - 2] = register[2:] if s.keep else lines[s.line, : width - 2]
        for step, t in enumerate(range(s.begin, s.end)):
            register = np.concatenate([register[1:], x[t : t + 1]])
            total = np.einsum("wd,wd->d", register.astype(float), weight.astype(float))
            total += 0 if bias is None else bias.astype(float)
            y[t] = (0.5 * total * (1 + np.tanh(total / 2)) if activation else total).astype(y.dtype)
            if s.keep:
                lines[s.line, width - 2 + step] = x[t]
        if not s.keep:
            lines[s.line, : width - 1] = register[1:]
    return {"y": y, "conv_states": lines}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse data that the kernel treats as padding, or leave unspecified, although the caller can hardly mean it.

    Legal padding stays legal: negative lines and pad_slot_id, empty sequences, accepted counts <= 0, rows behind the last
    sequence. Raises HybridOpsError naming the first bad element.
    """
    offsets, indices = arrays["query_start_loc"], arrays.get("cache_indices")
    accepted = arrays.get("num_accepted_tokens")

    def no(argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
        return check.refuse(OP, argument, wrong, got=got, allowed=allowed, soc=soc)

    if offsets[0] != 0:
        raise no("query_start_loc", "does not begin with 0", f"{int(offsets[0])} at [0]", 0)
    for b, length in enumerate(np.diff(offsets.astype(np.int64)).tolist()):
        if length < 0:
            got = f"{int(offsets[b])} then {int(offsets[b + 1])} at [{b}]"
            raise no("query_start_loc", "decreases", got, "cumulative offsets, not lengths")
    if offsets[-1] > axes["T"]:
        raise no("query_start_loc", "ends beyond T", int(offsets[-1]), f"<= {axes['T']}")
    used: dict[int, int] = {}
    for b in range(len(offsets) - 1):
        line = b if indices is None else int(indices[b])
        if line >= axes["S"]:
            rule = f"< {axes['S']} or negative"
            raise no("cache_indices", "line beyond the pool", f"{line} at [{b}]", rule)
        if line < 0 or offsets[b] == offsets[b + 1]:
            continue
        other = used.setdefault(line, b)
        if other != b:
            got = f"line {line} in sequences {other} and {b}"
            raise no("cache_indices", "two sequences use one line", got, "a line of its own for each")
        most = axes["L"] - axes["W"] + 2
        if accepted is not None and accepted[b] > most:
            rule = f"1..{most}, or <= 0 for padding"
            raise no("num_accepted_tokens", "out of range", f"{int(accepted[b])} at [{b}]", rule)


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of constant offsets and counts in an exported graph; `axes` has the static sizes."""
    offsets, accepted = constants.get("query_start_loc"), constants.get("num_accepted_tokens")
    tokens, width, rows = axes.get("T"), axes.get("W"), axes.get("L")
    if offsets is not None:
        steps = np.diff(offsets.ravel())
        whole = offsets.size and offsets.ravel()[0] == 0 and (tokens is None or offsets.ravel()[-1] == tokens)
        if not whole or (steps < 0).any():
            yield (
                "query_start_loc",
                f"constant {offsets.ravel()[:8].tolist()}, T is {'not known' if tokens is None else tokens}",
                "write offsets from 0 to T that never decrease, not lengths",
            )
    if accepted is not None and width is not None and rows is not None:
        most = rows - width + 2
        if ((accepted < 1) | (accepted > most)).any():
            yield (
                "num_accepted_tokens",
                f"constant {accepted.ravel()[:8].tolist()} outside 1..{most}: the sequence is skipped",
                "write how many tokens the previous step accepted",
            )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    lengths: Sequence[int],
    dim: int,
    width: int,
    rows: int,
    bias: bool,
    indices: bool,
    mode: Sequence[int] | None,
    accepted: Sequence[int] | None,
    tail: int,
    edits: Sequence[Edit],
) -> Arrays:
    """Packed rows N(0, 1), weights of unit gain, lines of two more sequences than there are, in random order."""
    total, b = sum(lengths) + tail, len(lengths)
    s = b + 2 if indices else b
    arrays: dict[str, Any] = {
        "x": rng.standard_normal((total, dim)),
        "weight": rng.standard_normal((width, dim)) * width**-0.5,
        "conv_states": rng.standard_normal((s, rows, dim)),
        "query_start_loc": np.concatenate([[0], np.cumsum(lengths)]),
        "bias": rng.standard_normal(dim) if bias else None,
        "cache_indices": rng.permutation(s)[:b] if indices else None,
        "initial_state_mode": None if mode is None else np.array(mode),
        "num_accepted_tokens": None if accepted is None else np.array(accepted),
    }
    return edited(arrays, edits, rng, types)


def _expect_zero_rows(rows: Sequence[int], inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["y"][list(rows)].any(), "rows of no active sequence are not zero"


def _expect_lines_unchanged(inputs: Arrays, outputs: Arrays) -> None:
    assert outputs["conv_states"].tobytes() == inputs["conv_states"].tobytes(), "the pool changed"


def _count_up(arrays: Arrays, rng: np.random.Generator) -> None:
    """Row t holds t + 1, the line's rows -3, -2, -1: sums and the slid line can be read off."""
    arrays["x"][:] = np.arange(1, len(arrays["x"]) + 1)[:, None]
    arrays["weight"][:] = 1
    arrays["conv_states"][:] = np.arange(-arrays["conv_states"].shape[1], 0)[:, None]


def _expect_count(inputs: Arrays, outputs: Arrays) -> None:
    assert outputs["y"][:, 0].astype(float).tolist() == [-5, 0], "taps or history are in the wrong order"
    line = outputs["conv_states"][inputs["cache_indices"][0], :, 0].astype(float)
    assert line.tolist() == [-1, 1, 2], f"the line slid to {line}"


def _overlap(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["query_start_loc"][:] = [0, 5, 3, 9]


def _nan_rows(rows: Sequence[int]) -> Edit:
    """Garbage where graph padding leaves it."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays["x"][list(rows)] = np.nan

    return edit


def _nan_lines_elsewhere(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["conv_states"][np.setdiff1d(np.arange(len(arrays["conv_states"])), arrays["cache_indices"])] = (
        np.nan
    )


def _speculative(lines: int) -> dict[str, dict[str, Any]]:
    """Accepted counts 1 .. lines of steps that offered as many rows; lines of W - 1 + (lines - 1) rows."""
    step = {"lengths": [lines] * lines, "accepted": list(range(1, lines + 1)), "rows": 3 + lines - 1}
    return {f"spec-{lines}": step, f"spec-{lines}-bias-silu": {**step, "bias": True, "silu": True}}


_UPDATE: dict[str, Any] = {"run_mode": 1}


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 32 channels, 4 taps, lines of 3 rows, one sequence of 5 rows, prefill."""
    found: dict[str, dict[str, Any]] = {
        "decode-4b": {"lengths": [1], "dim": 8192, "silu": True, "rows": 3, **_UPDATE},
        "prefill": {"lengths": [5]},
        "prefill-state": {"lengths": [5, 7], "mode": [1, 0]},
        "prefill-silu-bias": {"lengths": [17, 3], "bias": True, "silu": True},
        "no-indices": {"lengths": [4, 2, 9], "indices": False, "mode": [1, 1, 0]},
        "update": {"lengths": [1] * 5, **_UPDATE},
        "update-no-indices": {"lengths": [1] * 3, "indices": False, **_UPDATE},
        "update-mode": {"lengths": [1, 2, 1], "mode": [0, 1, 0], **_UPDATE},
        "short": {"lengths": [1, 2, 3, 4], "mode": [1, 1, 0, 0]},
        "count": {"lengths": [2], "mode": [1], "edits": [_count_up], "expect": _expect_count},
        "long-line": {"lengths": [2, 6], "rows": 7, **_UPDATE},
        "zero-length": {"lengths": [3, 0, 1, 0], "mode": [1] * 4},
        "empty-sequences": {"lengths": [0, 0], "tail": 3, "edits": [_nan_rows([0, 1, 2])], "expect": _expect_lines_unchanged},
        "padded": {"lengths": [2, 3, 1], "edits": [put("cache_indices", -1, 1), _nan_rows([2, 3, 4])], **_UPDATE,
                   "expect": partial(_expect_zero_rows, [2, 3, 4])},
        "padded-first": {"lengths": [1, 1, 1], "edits": [put("cache_indices", -7, 0), _nan_rows([0])], **_UPDATE,
                         "expect": partial(_expect_zero_rows, [0])},
        "padded-all": {"lengths": [4, 4], "edits": [put("cache_indices", -1)], "expect": _expect_lines_unchanged},
        "pad-slot-id": {"lengths": [1, 2, 1], "edits": [put("cache_indices", [3, 0, 1]), _nan_rows([1, 2])],
                        "pad_slot_id": 0, **_UPDATE, "expect": partial(_expect_zero_rows, [1, 2])},
        "line-beyond": {"lengths": [1, 2, 1], "edits": [put("cache_indices", [5, 0, 6])], **_UPDATE,
                        "expect": partial(_expect_zero_rows, [0, 3])},
        "tail-rows": {"lengths": [3, 1], "tail": 4, "edits": [_nan_rows([4, 5, 6, 7])], **_UPDATE,
                      "expect": partial(_expect_zero_rows, [4, 5, 6, 7])},
        "rows-in-front": {"lengths": [3, 4], "edits": [put("query_start_loc", [2, 3, 7])],
                          "expect": partial(_expect_zero_rows, [0, 1])},
        "offsets-decrease": {"lengths": [3, 3, 3], "edits": [_overlap], "mode": [1] * 3,
                             "expect": partial(_expect_zero_rows, [5, 6, 7, 8])},
        "offsets-beyond": {"lengths": [3, 3], "edits": [put("query_start_loc", [-4, 3, 99])],
                           "expect": _expect_lines_unchanged},
        "lines-nan-elsewhere": {"lengths": [2, 2], "edits": [_nan_lines_elsewhere], **_UPDATE},
        "line-unread": {"lengths": [2, 5], "edits": [put("conv_states", np.nan)], "rows": 3},
        "accepted-zero": {"lengths": [2, 2], "accepted": [0, 1], "rows": 5, "edits": [_nan_rows([0, 1])],
                          "expect": partial(_expect_zero_rows, [0, 1])},
        "accepted-beyond": {"lengths": [2, 2], "accepted": [4, 3], "rows": 5, "expect": partial(_expect_zero_rows, [0, 1])},
        "accepted-longer-than-step": {"lengths": [1, 2], "accepted": [4, 3], "rows": 6},
        "spec-mode": {"lengths": [3, 3], "accepted": [2, 3], "mode": [0, 1], "rows": 5},
        "spec-line-too-short": {"lengths": [4, 2], "accepted": [2, 1], "rows": 4},
        "spec-padded": {"lengths": [3, 3], "accepted": [2, 1], "rows": 5, "edits": [put("cache_indices", -1, 0)]},
        "spec-w2": {"lengths": [3, 1], "accepted": [3, 2], "rows": 4, "width": 2},
        "spec-w3": {"lengths": [3, 1], "accepted": [3, 2], "rows": 5, "width": 3},
        "spec-long": {"lengths": [60, 1], "accepted": [2, 1], "rows": 70, "dim": 1536},
        "spec-long-zeros": {"lengths": [60, 60], "accepted": [2, 1], "mode": [0, 0], "rows": 70, "dim": 1536},
        **_speculative(4),
        **{f"w{w}": {"lengths": [1, 2, 6], "width": w, "rows": w - 1, "mode": [1, 0, 1], "bias": w == 3} for w in (2, 3, 4)},
        **{f"w{w}-update": {"lengths": [1, 2], "width": w, "rows": w, "silu": True, **_UPDATE} for w in (2, 3, 4)},
        **{f"d{d}": {"lengths": [9], "dim": d, "silu": True} for d in (16, 48, 80, 6144, 8192, 10240, 12288)},
        **{f"d{d}-update": {"lengths": [1, 1], "dim": d, "silu": True, **_UPDATE} for d in (16, 208, 6144, 10240, 12288)},
        "one-unit-long": {"lengths": [200], "dim": 16, "mode": [1], "silu": True},
        "rows-split": {"lengths": [40, 2, 1, 61, 3], "dim": 64, "mode": [1, 1, 0, 1, 0], "silu": True, "bias": True},
        "rows-split-tail": {"lengths": [100, 30], "dim": 128, "mode": [1, 0], "tail": 9},
        "long-4b": {"lengths": [150, 70], "dim": 8192, "mode": [1, 0], "silu": True},
        "batch-4b": {"lengths": [1] * 24, "dim": 8192, "silu": True, **_UPDATE},
        "large-values": {"lengths": [6], "edits": [lambda a, r: a["x"].__imul__(1000)], "silu": True},
    }  # fmt: skip
    return found


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, each dtype column in turn."""
    listed = []
    for column in columns(OP, soc):
        prefix = column.prefix("conv1d")
        for name, setting in _settings().items():
            s = {"lengths": [5], "dim": 32, "width": 4, "rows": 3, "bias": False, "indices": True, "mode": None,
                 "accepted": None, "tail": 0, "edits": [], **setting}  # fmt: skip
            attrs = {"activation": int(s.pop("silu", False)), "pad_slot_id": s.pop("pad_slot_id", -1)}
            attrs["run_mode"] = s.pop("run_mode", int(s["accepted"] is not None))
            extra = {k: s.pop(k) for k in ("expect",) if k in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(
    specs: Mapping[str, check.Spec], soc: str, attrs: Mapping[str, Any] | None = None
) -> roofline.Floors:
    """Cycles that no kernel of this operator can beat, every sequence active.

    Memory: x in, y out, taps and offsets once; per sequence W - 1 rows of its line out, in update also in. Vector, per element of
    y in fp32: a cast in and out (in update also of the rows before), W multiplies, W - 1 additions; for SiLU an exponential,
    an addition and a division.
    """
    given = {name: spec for name, spec in specs.items() if spec is not None}
    attrs = attrs or {}
    (rows, channels), width = (int(n) for n in given["x"].shape), int(given["weight"].shape[0])
    sequences = min(int(given["query_start_loc"].shape[0]) - 1, rows)
    history = sequences * (width - 1) * channels
    size = dtypes.NUMPY[given["x"].dtype].itemsize
    small = sum(roofline.size(spec) for name, spec in given.items() if name != "conv_states")
    loaded = history if attrs.get("run_mode") else 0
    elements = rows * channels
    passes = [
        roofline.Pass("Cast.f16f32", 2 * elements + loaded),
        roofline.Pass("Mul.f32", width * elements),
        roofline.Pass("Add.f32", (width - 1 + ("bias" in given)) * elements),
    ]
    if attrs.get("activation"):
        passes += [roofline.Pass(f"{call}.f32", elements) for call in ("Exp", "Add", "Div")]
    return roofline.floors(small + loaded * size, roofline.size(given["x"]) + history * size, passes, soc)
