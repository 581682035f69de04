"""Recurrent gated delta rule: the meaning in NumPy, a closed form to hold it against, value checks.

Per token of a sequence, for value head h with key head h // (NV / NK), in this order: decay, read, delta, write,
readout of the updated state (Yang et al., Gated Delta Networks, arXiv:2412.06464; per-channel decay: Kimi Linear,
arXiv:2510.26692):

    S  <- S * exp(g[t,h]) * exp(gk[t,h,:])          S is [DV, DK]
    S  <- S + beta[t,h] * (v[t,h] - S k[t]) (x) k[t]
    out[t,h] = S (scale_value * q[t])

S keeps full precision inside a sequence and is rounded to the state dtype where it is written: after every token, to
that token's slot. Rows that no sequence covers, and rows of inactive sequences, are zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "recurrent_gated_delta_rule"

# Exported graphs: inputs of slot numbers, which a batch-1 export fixes; attribute -> axis whose size ** -0.5 it is;
# optional input -> the value that means the same as its absence.
SLOT_TABLES = frozenset({"ssm_state_indices"})
SCALES = {"scale_value": "DK"}
NEUTRAL = {"g": 0.0, "gk": 0.0}


@dataclass(frozen=True)
class Segment:
    """One active sequence: its number, the slot its state starts from, and (row, slot to write) per active row."""

    number: int
    read: int
    rows: tuple[tuple[int, int], ...]


def segments(
    lengths: np.ndarray, indices: np.ndarray, accepted: np.ndarray | None, tokens: int, slots: int
) -> Iterator[Segment]:
    """Walk the packed rows.

    Inactive, hence skipped: a sequence of length <= 0, one whose accepted count is outside its legal range (1..length
    for a flat table, 1..columns for a 2-D one), one whose starting slot is not in [0, slots); within a sequence, a row
    whose slot is not in [0, slots). A sequence that reaches beyond `tokens` ends there.
    """
    start = 0
    for b, length in enumerate(np.maximum(lengths.astype(np.int64), 0)):
        first, start = start, start + int(length)
        count = max(0, min(int(length), tokens - first))
        table = indices[b] if indices.ndim == 2 else indices[first : first + count]
        back = 1 if accepted is None else int(accepted[b])
        if count == 0 or not 1 <= back <= len(table) or not 0 <= table[back - 1] < slots:
            continue
        rows = ((first + i, int(table[i])) for i in range(min(count, len(table))))
        yield Segment(b, int(table[back - 1]), tuple((t, slot) for t, slot in rows if 0 <= slot < slots))


def _decay(
    g: np.ndarray | None, gk: np.ndarray | None, rows: list[int], shape: tuple[int, int], dtype: Any
) -> Any:
    """Log decay [rows, NV, DK]; gk of rank 2 is one figure per head, and both gates apply when both are given."""
    total = np.zeros((len(rows), *shape), dtype)
    if g is not None:
        total += g[rows].astype(dtype)[:, :, None]
    if gk is not None:
        total += gk[rows].astype(dtype).reshape(len(rows), shape[0], -1)
    return total


def meaning(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
    actual_seq_lengths: np.ndarray,
    ssm_state_indices: np.ndarray,
    g: np.ndarray | None = None,
    gk: np.ndarray | None = None,
    num_accepted_tokens: np.ndarray | None = None,
    scale_value: float = 1.0,
    *,
    precision: type = np.float64,
) -> dict[str, np.ndarray]:
    """The operator, token by token.

    Args:
        query, key: [T, NK, DK]; value: [T, NV, DV]; beta: [T, NV]; q and k normalised by the caller.
        state: pool [S, NV, DV, DK]; not modified, the new pool is returned.
        actual_seq_lengths: [B] lengths (not offsets); sequences are packed in order.
        ssm_state_indices: slot per row, [T] or [B, S_max]; negative = padded row.
        g: natural-log decay per head [T, NV]; gk: per head [T, NV] or per channel [T, NV, DK].
        num_accepted_tokens: [B], tokens accepted in the previous step: the state starts from that row's slot.
        precision: floating type of the computation.

    Returns:
        {"out": [T, NV, DV] in the dtype of value, "state": [S, NV, DV, DK] in the dtype of state}.
    """
    heads, dk = state.shape[1], state.shape[3]
    group = heads // key.shape[1]
    pool = state.copy()
    out = np.zeros(value.shape, value.dtype)
    lengths = (actual_seq_lengths, ssm_state_indices, num_accepted_tokens)
    for segment in segments(*lengths, len(query), len(state)):
        s = pool[segment.read].astype(precision)  # [NV, DV, DK]
        for t, slot in segment.rows:
            q = np.repeat(query[t].astype(precision) * precision(scale_value), group, axis=0)[:, :, None]
            k = np.repeat(key[t].astype(precision), group, axis=0)
            with np.errstate(over="ignore", invalid="ignore"):
                s *= np.exp(_decay(g, gk, [t], (heads, dk), precision)[0])[:, None, :]
                read = (s @ k[:, :, None])[:, :, 0]
                delta = (value[t].astype(precision) - read) * beta[t].astype(precision)[:, None]
                s += delta[:, :, None] * k[:, None, :]
                out[t] = (s @ q)[:, :, 0].astype(out.dtype)
                pool[slot] = s.astype(pool.dtype)
    return {"out": out, "state": pool}


def second_formula(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray,
    actual_seq_lengths: np.ndarray,
    ssm_state_indices: np.ndarray,
    g: np.ndarray | None = None,
    gk: np.ndarray | None = None,
    num_accepted_tokens: np.ndarray | None = None,
    scale_value: float = 1.0,
) -> dict[str, np.ndarray]:
    """The same operator by the closed form of a whole sequence (UT transform), with no loop over tokens.

    With D[i,j] the decay from j to i per channel: A[i,j] = beta_i <k_i, D[i,j] k_j> for j < i, the corrected values
    are u = (I + A)^-1 beta (v - S0 (D0 k)), and every state and readout is a sum over them.
    """
    heads, dk = state.shape[1], state.shape[3]
    group = heads // key.shape[1]
    pool = state.copy()
    out = np.zeros(value.shape, value.dtype)
    lengths = (actual_seq_lengths, ssm_state_indices, num_accepted_tokens)
    for segment in segments(*lengths, len(query), len(state)):
        rows = [t for t, _ in segment.rows]
        n = len(rows)
        if n == 0:
            continue
        q = np.repeat(query[rows].astype(float) * scale_value, group, axis=1)
        k = np.repeat(key[rows].astype(float), group, axis=1)
        b = beta[rows].astype(float)
        # exp(-700) is a reset in every dtype, and a difference of sums of -700 stays finite where -inf would not.
        total = np.cumsum(np.maximum(_decay(g, gk, rows, (heads, dk), float), -700.0), axis=0)
        lower = np.tril(np.ones((n, n), bool))[:, :, None, None]
        between = np.exp(np.where(lower, total[:, None] - total[None, :], -np.inf))  # [i, j, NV, DK]
        s0 = pool[segment.read].astype(float)
        old = np.einsum("nhk,hvk->nhv", np.exp(total) * k, s0)
        a = np.einsum("ihk,ijhk,jhk->hij", k, between, k) * b.T[:, :, None]
        a[:, np.triu_indices(n)[0], np.triu_indices(n)[1]] = 0.0
        rhs = (b[:, :, None] * (value[rows].astype(float) - old)).transpose(1, 0, 2)
        u = np.linalg.solve(np.eye(n) + a, rhs)  # [NV, n, DV]
        weight = np.einsum("ihk,ijhk,jhk->hij", q, between, k)
        readout = np.einsum("nhk,hvk->nhv", np.exp(total) * q, s0) + np.einsum("hij,hjv->ihv", weight, u)
        states = np.exp(total)[:, :, None, :] * s0 + np.einsum("hjv,ijhk,jhk->ihvk", u, between, k)
        with np.errstate(over="ignore"):
            out[rows] = readout.astype(out.dtype)
            for i, (_, slot) in enumerate(segment.rows):
                pool[slot] = states[i].astype(pool.dtype)
    return {"out": out, "state": pool}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse data that the kernel would treat as inactive although the caller can hardly mean it.

    Legal padding stays legal: negative slots, lengths of 0, accepted counts <= 0, and anything at all in the rows of
    inactive sequences. Raises HybridOpsError naming the first bad element.
    """
    lengths, table = arrays["actual_seq_lengths"], arrays["ssm_state_indices"]
    accepted = arrays.get("num_accepted_tokens")
    tokens, slots = axes["T"], axes["S"]

    def no(argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
        return check.refuse(OP, argument, wrong, got=got, allowed=allowed, soc=soc)

    for b, length in enumerate(lengths.tolist()):
        if length < 0:
            raise no("actual_seq_lengths", "negative length", f"{length} at [{b}]", ">= 0")
        if table.ndim == 2 and length > table.shape[1]:
            rule = f"<= {table.shape[1]}, the columns of ssm_state_indices"
            raise no("actual_seq_lengths", "longer than the slot table", f"{length} at [{b}]", rule)
    if int(lengths.sum(dtype=np.int64)) != tokens:
        total = f"sum {int(lengths.sum(dtype=np.int64))} of {lengths.tolist()[:16]}"
        raise no("actual_seq_lengths", "lengths do not add up to T", total, f"sum {tokens}")
    beyond = np.argwhere(table >= slots)
    if len(beyond):
        at = tuple(int(i) for i in beyond[0])
        raise no(
            "ssm_state_indices",
            "slot beyond the pool",
            f"{int(table[at])} at {list(at)}",
            f"< {slots} or negative",
        )
    if accepted is not None:
        for b, (back, length) in enumerate(zip(accepted.tolist(), lengths.tolist(), strict=True)):
            most = table.shape[1] if table.ndim == 2 else length
            if length and back > most:
                raise no(
                    "num_accepted_tokens",
                    "out of range",
                    f"{back} at [{b}]",
                    f"1..{most}, or <= 0 for padding",
                )
    active = list(segments(lengths, table, accepted, tokens, slots))
    _check_shared_slots(active, no)
    rows = sorted(t for segment in active for t, _ in segment.rows)
    _check_floats(arrays, rows, no)


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of constant lengths and counts in an exported graph; `axes` has the static sizes."""
    lengths, accepted = constants.get("actual_seq_lengths"), constants.get("num_accepted_tokens")
    tokens = axes.get("T")
    if lengths is not None and tokens is not None and int(lengths.sum()) != tokens:
        yield (
            "actual_seq_lengths",
            f"constant {lengths.ravel()[:8].tolist()} adds up to {int(lengths.sum())}, T is {tokens}",
            "write lengths, not offsets, that add up to T",
        )
    most = axes.get("S_max", tokens)
    if accepted is not None and most is not None and ((accepted < 1) | (accepted > most)).any():
        yield (
            "num_accepted_tokens",
            f"constant {accepted.ravel()[:8].tolist()} outside 1..{most}: the sequence is skipped",
            "write how many tokens the previous step accepted",
        )


def _check_shared_slots(active: list[Segment], no: Any) -> None:
    """A slot that one sequence writes and another uses: defined (in batch order), but hardly ever meant."""
    writer: dict[int, int] = {}
    for segment in active:
        for _, slot in segment.rows:
            other = writer.setdefault(slot, segment.number)
            if other != segment.number:
                got = f"slot {slot} in sequences {other} and {segment.number}"
                raise no(
                    "ssm_state_indices", "two sequences write one slot", got, "a slot written by one sequence"
                )
    for segment in active:
        other = writer.get(segment.read, segment.number)
        if other != segment.number:
            got = f"slot {segment.read} of sequence {other} read by sequence {segment.number}"
            raise no("ssm_state_indices", "one sequence reads what another writes", got, "slots of its own")


def _check_floats(arrays: Arrays, rows: list[int], no: Any) -> None:
    for name in ("query", "key", "value", "beta", "g", "gk"):
        array = arrays.get(name)
        if array is None or not rows:
            continue
        data = array[rows].astype(np.float32)
        gate = name in ("g", "gk")
        bad = np.argwhere(~(data <= 0.0) if gate else ~np.isfinite(data))
        if len(bad):
            at = [rows[int(bad[0][0])], *(int(i) for i in bad[0][1:])]
            wrong = "log decay above 0 or NaN" if gate else "not finite"
            raise no(
                name,
                wrong,
                f"{float(data[tuple(bad[0])])} at {at}",
                "<= 0 (-inf resets)" if gate else "finite",
            )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    lengths: Sequence[int],
    nk: int,
    nv: int,
    dk: int,
    dv: int,
    gates: str,
    tokens: int | None,
    slots: int | None,
    columns: int,
    accepted: Sequence[int] | None,
    edits: Sequence[Edit],
) -> Arrays:
    """Inputs as models give them: unit q and k, beta = sigmoid(N), gates in (-1, 0), every row a slot of its own."""
    t = sum(lengths) if tokens is None else tokens
    used = len(lengths) * columns if columns else t
    s = used + 2 if slots is None else slots

    def unit(*shape: int) -> np.ndarray:
        x = rng.standard_normal(shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    table = rng.permutation(s)[np.arange(used) % s]
    gk_shape = (t, nv) if "gk2" in gates else (t, nv, dk)
    arrays: dict[str, Any] = {
        "query": unit(t, nk, dk),
        "key": unit(t, nk, dk),
        "value": rng.standard_normal((t, nv, dv)),
        "beta": 1 / (1 + np.exp(-rng.standard_normal((t, nv)))),
        "state": rng.standard_normal((s, nv, dv, dk)) * 0.3,
        "actual_seq_lengths": np.array(lengths),
        "ssm_state_indices": table.reshape(len(lengths), columns) if columns else table,
        "g": -rng.random((t, nv)) if gates.split("+")[0] == "g" else None,
        "gk": -rng.random(gk_shape) if "gk" in gates else None,
        "num_accepted_tokens": None if accepted is None else np.array(accepted),
    }
    return edited(arrays, edits, rng, types)


def _one_slot_per_sequence(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["ssm_state_indices"] = np.repeat(
        np.arange(len(arrays["actual_seq_lengths"])), arrays["actual_seq_lengths"]
    )


def _poison_rows(rows: Sequence[int]) -> Edit:
    """Garbage where graph padding leaves it: NaN in every float row that no active sequence covers."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        for name in ("query", "key", "value", "beta", "g"):
            arrays[name][list(rows)] = np.nan

    return edit


def _expect_out_rows_zero(rows: Sequence[int], inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["out"][list(rows)].any(), "rows of inactive sequences are not zero"


def _expect_pool_unchanged(inputs: Arrays, outputs: Arrays) -> None:
    assert outputs["state"].tobytes() == inputs["state"].tobytes(), "the pool changed"


def _expect_values_read_back(inputs: Arrays, outputs: Arrays) -> None:
    """beta = 1 and one unit key for every token: the state returns the last value written for it."""
    s, k = outputs["state"][0].astype(float), inputs["key"][-1].astype(float)
    k = np.repeat(k, s.shape[0] // k.shape[0], axis=0)
    np.testing.assert_allclose((s @ k[:, :, None])[:, :, 0], inputs["value"][-1].astype(float), atol=0.06)


def _report_layout(arrays: Arrays, rng: np.random.Generator) -> None:
    for name in ("query", "key", "value", "state"):
        arrays[name][:] = 0
    arrays["query"][..., 0] = arrays["key"][..., 0] = arrays["beta"][:] = 1
    arrays["value"][..., 0], arrays["value"][..., 1] = 1, 2


def _expect_layout(inputs: Arrays, outputs: Arrays) -> None:
    want = np.zeros(inputs["state"].shape[2:])
    want[0, 0], want[1, 0] = 1, 2
    assert (outputs["state"][inputs["ssm_state_indices"][0], 0].astype(float) == want).all(), (
        "state transposed"
    )
    assert outputs["out"][0, 0, :2].tolist() == [1, 2]


def _report_heads(arrays: Arrays, rng: np.random.Generator) -> None:
    _report_layout(arrays, rng)
    arrays["key"][:, 1, 0], arrays["value"][:] = 2, 1


def _expect_heads(inputs: Arrays, outputs: Arrays) -> None:
    state = outputs["state"][inputs["ssm_state_indices"][0], :, 0, 0].astype(float)
    assert state.tolist() == [1, 1, 2, 2], f"value heads mapped to key heads as {state}"


def _report_padding(arrays: Arrays, rng: np.random.Generator) -> None:
    _report_layout(arrays, rng)
    arrays["value"][:], arrays["ssm_state_indices"][:] = 2, [-1, 0]
    arrays["state"][0], arrays["state"][1] = 7, 9
    arrays["state"][..., 1:] = 0


def _expect_padding(inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["out"][0].any() and (outputs["out"][1] == 2).all()
    assert (outputs["state"][0, ..., 0] == 2).all() and (outputs["state"][1, ..., 0] == 9).all()


_DIMS = [(16, 16), (20, 20), (17, 33), (64, 64), (80, 80), (96, 96), (112, 112), (256, 256), (512, 512),
         (128, 64), (64, 128), (80, 96), (16, 512), (512, 16), (100, 36)]  # fmt: skip
_DECODE = {"nk": 16, "nv": 32, "dk": 128, "slots": 1, "accepted": [1]}


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 2 key heads, 4 value heads, 64 x 64, gate g, one sequence of 1."""
    unscaled: dict[str, Any] = {"attrs": {}}
    found: dict[str, dict[str, Any]] = {
        "decode-4b": _DECODE,
        "B16-L1": {"lengths": [1] * 16, "nk": 2, "nv": 4, "dk": 128},
        "B64-L2-g+gk-accepted": {"lengths": [2] * 64, "nk": 2, "nv": 2, "dk": 32, "gates": "g+gk", "accepted": [1, 2] * 32},
        "varlen": {"lengths": [1, 8, 3, 5], "slots": 64},
        "T17-gk": {"lengths": [17], "gates": "gk"},
        "L40-one-slot": {"lengths": [40], "slots": 2, "edits": [_one_slot_per_sequence]},
        "no-gate": {"lengths": [3], "gates": ""},
        "gate-zero": {"lengths": [3], "edits": [put("g", 0)]},
        "gate-inf": {"lengths": [4], "edits": [put("g", -np.inf, 2)]},
        "gate-huge": {"lengths": [4], "edits": [put("g", -1e4, 1)]},
        "gk-inf": {"lengths": [4], "gates": "gk", "edits": [put("gk", -np.inf, (2, slice(None), slice(0, 9)))]},
        "gk-per-head": {"lengths": [3], "gates": "gk2"},
        "g+gk": {"lengths": [5, 2], "gates": "g+gk"},
        "g+gk-per-head": {"lengths": [2, 3], "gates": "g+gk2"},
        "accepted": {"lengths": [4, 3, 1], "accepted": [4, 2, 1]},
        "accepted-one": {"lengths": [4], "accepted": [1]},
        "table": {"lengths": [2, 4, 1], "columns": 4},
        "table-accepted-longer": {"lengths": [2, 1, 4], "columns": 4, "accepted": [4, 3, 1]},
        "zero-length": {"lengths": [2, 0, 1], "accepted": [1, 0, 1]},
        "accepted-zero": {"lengths": [2, 2], "accepted": [0, 1], "edits": [_poison_rows([0, 1])],
                          "expect": partial(_expect_out_rows_zero, [0, 1])},
        "padded-last-slot": {"lengths": [1, 1], "slots": 5, "edits": [put("ssm_state_indices", [-1, 4]), _poison_rows([0])],
                             "expect": partial(_expect_out_rows_zero, [0])},
        "padded-row-inside": {"lengths": [5], "edits": [put("ssm_state_indices", -1, 2)],
                              "expect": partial(_expect_out_rows_zero, [2])},
        "padded-first-row": {"lengths": [3, 2], "edits": [put("ssm_state_indices", -7, 0)],
                             "expect": partial(_expect_out_rows_zero, [0, 1, 2])},
        "padded-all": {"lengths": [1] * 3, "edits": [put("ssm_state_indices", -1), _poison_rows([0, 1, 2])],
                       "expect": _expect_pool_unchanged},
        "padded-table": {"lengths": [2, 2], "columns": 3, "edits": [put("ssm_state_indices", -1, 0)],
                         "expect": partial(_expect_out_rows_zero, [0, 1])},
        "table-too-short": {"lengths": [4, 1], "columns": 3, "expect": partial(_expect_out_rows_zero, [3])},
        "slot-beyond-pool": {"lengths": [2, 2], "slots": 6, "edits": [put("ssm_state_indices", [9, 0, 1, 6])],
                             "expect": partial(_expect_out_rows_zero, [0, 1, 3])},
        "accepted-beyond": {"lengths": [2, 1], "accepted": [3, 1], "expect": partial(_expect_out_rows_zero, [0, 1])},
        "lengths-short-of-T": {"lengths": [2, 1], "tokens": 6, "edits": [_poison_rows([3, 4, 5])],
                               "expect": partial(_expect_out_rows_zero, [3, 4, 5])},
        "lengths-beyond-T": {"lengths": [2, 9, 2], "tokens": 5},
        "length-negative": {"lengths": [-3, 2], "tokens": 2},
        "empty-sequences": {"lengths": [0, 0], "tokens": 2, "expect": _expect_pool_unchanged},
        "read-shared": {"lengths": [2, 2], "slots": 8, "accepted": [1, 1],
                        "edits": [put("ssm_state_indices", [5, 1, 2, 3])]},
        "shared-slot": {"lengths": [2, 1, 2], "slots": 4, "accepted": [1, 1, 2],
                        "edits": [put("ssm_state_indices", [1, 0, 0, 3, 0])]},
        "slot-twice": {"lengths": [6], "slots": 3, "edits": [put("ssm_state_indices", [2, 0, 2, 2, 1, 0])]},
        "beta-zero": {"lengths": [3], "slots": 1, "edits": [put("beta", 0), put("g", 0), put("ssm_state_indices", 0)],
                      "expect": _expect_pool_unchanged},
        "beta-one-same-key": {"lengths": [4], "slots": 1, "expect": _expect_values_read_back,
                              "edits": [put("beta", 1), put("key", 1 / 8), put("ssm_state_indices", 0), put("g", 0)]},
        "beta-two": {"lengths": [6], "edits": [put("beta", 2)]},
        "key-not-unit": {"lengths": [8], "nk": 2, "nv": 2, "overflows": True,
                         "edits": [put("beta", 1), put("g", 0), lambda a, r: _scale_key(a)]},
        "state-nan-elsewhere": {"lengths": [2], "slots": 5, "edits": [
            lambda a, r: a["state"].__setitem__(np.setdiff1d(np.arange(5), a["ssm_state_indices"]), np.nan)]},
        "heads-3-9": {"lengths": [2], "nk": 3, "nv": 9, "dk": 32},
        "heads-5-5": {"lengths": [1, 1], "nk": 5, "nv": 5, "dk": 48},
        "heads-256": {"lengths": [1], "nk": 128, "nv": 256, "dk": 16},
        **{f"heads-16-{nv}": {"lengths": [1], "nk": 16, "nv": nv, "dk": 32} for nv in (16, 32, 48, 64)},
        **{f"{dk}x{dv}": {"lengths": [3], "nk": 1, "nv": 2, "dk": dk, "dv": dv, "gates": "g+gk"} for dk, dv in _DIMS},
        "report-state-layout": {"nk": 1, "nv": 1, "dk": 16, "dv": 20, "gates": "", "edits": [_report_layout],
                                "expect": _expect_layout, **unscaled,
                                "report": "https://github.com/sgl-project/sgl-kernel-npu/pull/640"},
        "report-head-map": {"nk": 2, "nv": 4, "dk": 16, "gates": "", "edits": [_report_heads], "slots": 1,
                            "expect": _expect_heads, **unscaled,
                            "report": "https://github.com/weicj/vLLM-2080Ti-Definitive/issues/99"},
        "report-padded-slot": {"lengths": [1, 1], "nk": 1, "nv": 1, "dk": 16, "gates": "", "slots": 2,
                               "edits": [_report_padding], "expect": _expect_padding, **unscaled,
                               "report": "https://github.com/vllm-project/vllm/pull/33326"},
        "report-short-rows": {"lengths": [2], "nk": 1, "nv": 1, "dk": 16, "dv": 20,
                              "report": "https://github.com/tile-ai/tilelang-ascend/issues/996"},
    }  # fmt: skip
    return found


def _scale_key(arrays: Arrays) -> None:
    arrays["key"][:, 0] *= np.sqrt(arrays["key"].shape[2])


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, each dtype column in turn."""
    listed = []
    for column in columns(OP, soc):
        kind, pool = (column.short(n) for n in ("query", "state"))
        prefix = column.prefix("rgdr") + (f"-{pool}state" if pool != kind else "")
        for name, setting in _settings().items():
            s = {"lengths": [1], "nk": 2, "nv": 4, "dk": 64, "gates": "g", "tokens": None, "slots": None, "columns": 0,
                 "accepted": None, "edits": [], **setting}  # fmt: skip
            s.setdefault("dv", s["dk"])
            attrs = s.pop("attrs", {"scale_value": s["dk"] ** -0.5})
            extra = {k: s.pop(k) for k in ("expect", "overflows", "report") if k in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec | None], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat, every row active and every sequence in slots of its own.

    Memory: the state is read once per sequence and written once per row (the contract stores it after every token), all other
    inputs are read once, out is written once.

    Vector, per state element in fp32: cast in (once per sequence) and cast out (once per row) unless the state is fp32;
    per row two multiplies and two block reductions (S k and S q), one multiply (decay) and one Axpy (update). Passes
    over single rows (q, k, v, gates, the upper levels of a reduction) are left out: they are below 1/16 of it.

    Args:
        specs: shape and dtype by input name; absent optional inputs are None or missing.
        soc: family or chip name.
    """
    given = {name: spec for name, spec in specs.items() if spec is not None}
    state, rows = given["state"], int(given["value"].shape[0])
    sequences = min(int(given["actual_seq_lengths"].shape[0]), rows)
    elements = math.prod(int(n) for n in state.shape[1:])
    slot = elements * dtypes.NUMPY[state.dtype].itemsize
    small = sum(roofline.size(spec) for name, spec in given.items() if name != "state")
    passes = [
        roofline.Pass("Mul.f32", 3 * rows * elements),
        roofline.Pass("BlockReduceSum.f32", 2 * rows * elements),
        roofline.Pass("Axpy.f32", rows * elements),
    ]
    if state.dtype != "float32":
        passes.append(roofline.Pass("Cast.f16f32", (sequences + rows) * elements))
    return roofline.floors(sequences * slot + small, rows * slot + roofline.size(given["value"]), passes, soc)
