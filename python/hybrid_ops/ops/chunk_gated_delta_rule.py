"""Chunk gated delta rule: the meaning in NumPy, the chunk form to hold it against, value checks, cases.

Whole sequences from an initial to a final state. Per token, for value head h with key head h // (NV / NK), in this
order: decay, read, delta, write, readout of the updated state (Yang et al., Gated Delta Networks, arXiv:2412.06464):

    S  <- S * exp(g[t,h])                                       S is [DV, DK]
    S  <- S + beta[t,h] * (v[t,h] - S k[t]) (x) k[t]
    out[t,h] = S (scale_value * q[t])

S keeps full precision inside a sequence and is rounded once, to final_state. Sequences are packed one behind the other;
one without tokens has its initial state as its final one. Rows that no sequence covers are zero.

What is not finite stays in its value head (a key: in the value heads that share it) and its sequence. On ascend910b it
reaches the tokens from its own on, up to one that forgets the state (a query: its own token). On ascend310p, calls that
pass chunks of 64 tokens (DK and DV multiples of 16, about 16 or more tokens per sequence on average) differ: NaN in a
value, and what is not finite in a key, beta or g, also reaches the tokens of its chunk before its own, and no later
token of the sequence forgets it; an infinite value counts as a finite one, since fp16 saturates there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "chunk_gated_delta_rule"
CHUNK = 64
# Exported graphs: attribute -> axis whose size ** -0.5 it is; nodes of this type carry dtype, but neither output_types nor
# outputs_shape (so the models exported elsewhere have them).
SCALES = {"scale_value": "DK"}
UNTYPED_OUTPUTS = True
# exp of it is below every normal float32, and sums of it stay finite where -inf would not.
LEAST_LOG_DECAY = -100.0


def spans(lengths: np.ndarray, tokens: int) -> Iterator[tuple[int, int]]:
    """(first row, row behind the last) per sequence; negative lengths count as 0, sequences end at `tokens`."""
    start = 0
    for length in np.maximum(lengths.astype(np.int64), 0).tolist():
        first, start = start, min(start + length, tokens)
        yield first, start


def meaning(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    beta: np.ndarray,
    initial_state: np.ndarray,
    actual_seq_lengths: np.ndarray,
    g: np.ndarray | None = None,
    scale_value: float = 1.0,
    *,
    precision: type = np.float64,
) -> dict[str, np.ndarray]:
    """The operator, token by token.

    Args:
        query, key: [T, NK, DK]; value: [T, NV, DV]; beta: [T, NV]; q and k normalised by the caller.
        initial_state: [B, NV, DV, DK]; not modified.
        actual_seq_lengths: [B] lengths (not offsets); sequences are packed in order.
        g: natural-log decay per head [T, NV], not summed up.
        precision: floating type of the computation.

    Returns:
        {"out": [T, NV, DV] in the dtype of value, "final_state": [B, NV, DV, DK] in the dtype of initial_state}.
    """
    group = value.shape[1] // key.shape[1]
    final = initial_state.copy()
    out = np.zeros(value.shape, value.dtype)
    for b, (first, end) in enumerate(spans(actual_seq_lengths, len(query))):
        if first == end:
            continue
        s = initial_state[b].astype(precision)  # [NV, DV, DK]
        with np.errstate(over="ignore", invalid="ignore"):
            for t in range(first, end):
                q = np.repeat(query[t].astype(precision) * precision(scale_value), group, axis=0)[:, :, None]
                k = np.repeat(key[t].astype(precision), group, axis=0)
                if g is not None:
                    decay = np.exp(g[t].astype(precision))
                    s *= decay[:, None, None]
                    s[decay == 0] = 0  # forgotten, whatever it was
                read = (s @ k[:, :, None])[:, :, 0]
                delta = (value[t].astype(precision) - read) * beta[t].astype(precision)[:, None]
                s += delta[:, :, None] * k[:, None, :]
                out[t] = (s @ q)[:, :, 0].astype(out.dtype)
            final[b] = s.astype(final.dtype)
    return {"out": out, "final_state": final}


def second_formula(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    beta: np.ndarray,
    initial_state: np.ndarray,
    actual_seq_lengths: np.ndarray,
    g: np.ndarray | None = None,
    scale_value: float = 1.0,
    *,
    chunk_size: int = CHUNK,
) -> dict[str, np.ndarray]:
    """The same operator chunk by chunk, with no loop over tokens (WY form, section 3.3 of the paper).

    With G the sum of gates inside a chunk and E[i,j] = exp(G_i - G_j) for j <= i, the corrected values are
    u = (I + strict_lower(beta K K^T E))^-1 beta (v - exp(G) K S), and readout and new state are sums over them. A row whose
    gate forgets begins a chunk: 0 times what an infinite state left behind would not be 0. Products tell no rows apart once
    one is not finite, so chunks of a sequence that has such a row are single rows, read from the state behind them.
    """
    tokens, heads = value.shape[:2]
    group = heads // key.shape[1]
    final = initial_state.copy()
    out = np.zeros(value.shape, value.dtype)
    raw = np.zeros((tokens, heads)) if g is None else g.astype(float)
    gates, forgets = np.maximum(raw, LEAST_LOG_DECAY), np.exp(raw) == 0

    def rows(x: np.ndarray, chunk: slice, repeats: int = 1) -> np.ndarray:
        return np.repeat(x[chunk].astype(float), repeats, axis=1).swapaxes(0, 1)  # [NV, n, …]

    for b, (first, end) in enumerate(spans(actual_seq_lengths, tokens)):
        if first == end:
            continue
        s = initial_state[b].astype(float).swapaxes(1, 2)  # [NV, DK, DV]
        finite = all(np.isfinite(x[first:end].astype(float)).all() for x in (query, key, value, beta))
        size = chunk_size if finite else 1
        begins = sorted({*range(first, end, size), *(first + np.flatnonzero(forgets[first:end].any(axis=1)))})
        for begin, following in zip(begins, [*begins[1:], end], strict=True):
            chunk = slice(begin, following)
            s[forgets[begin]] = 0
            q, k = rows(query, chunk, group) * scale_value, rows(key, chunk, group)
            v, rate = rows(value, chunk), rows(beta, chunk)[:, :, None]
            total = np.cumsum(rows(gates, chunk), axis=1)[:, :, None]  # [NV, n, 1]
            n = total.shape[1]
            lower = np.tril(np.ones((n, n), bool))
            with np.errstate(over="ignore", invalid="ignore"):
                between = np.exp(np.where(lower, total - total.swapaxes(1, 2), -np.inf))
                system = np.tril(rate * (k @ k.swapaxes(1, 2)) * between, -1) + np.eye(n)
                u = np.linalg.solve(system, rate * (v - (np.exp(total) * k) @ s))
                last = total[:, -1:]
                behind = np.exp(last) * s + (np.exp(last - total) * k).swapaxes(1, 2) @ u
                if size == 1:
                    read = q @ behind
                else:
                    read = (np.exp(total) * q) @ s + ((q @ k.swapaxes(1, 2)) * between) @ u
                out[chunk] = read.swapaxes(0, 1).astype(out.dtype)
                s = behind
        with np.errstate(over="ignore"):
            final[b] = s.swapaxes(1, 2).astype(final.dtype)
    return {"out": out, "final_state": final}


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse data that the caller can hardly mean: lengths that do not sum to T, rows that are not finite, gates above 0.

    Legal: lengths of 0, g = -inf. Raises HybridOpsError naming the first bad element.
    """
    lengths, tokens = arrays["actual_seq_lengths"], axes["T"]
    refuse = partial(check.refuse, OP, soc=soc)
    for b, length in enumerate(lengths.tolist()):
        if length < 0:
            raise refuse("actual_seq_lengths", "negative length", got=f"{length} at [{b}]", allowed=">= 0")
    total = int(lengths.sum(dtype=np.int64))
    if total != tokens:
        offsets = len(lengths) > 1 and lengths[-1] == tokens and (np.diff(lengths) >= 0).all()
        raise refuse(
            "actual_seq_lengths", "lengths do not add up to T", got=f"sum {total} of {lengths.tolist()[:16]}",
            allowed=f"sum {tokens}", hint="these look like offsets; lengths are their differences" if offsets else "",
        )  # fmt: skip
    for name in ("query", "key", "value", "beta", "g"):
        array = arrays.get(name)
        if array is None:
            continue
        data = array.astype(np.float32)
        bad = np.argwhere(~(data <= 0.0) if name == "g" else ~np.isfinite(data))
        if len(bad):
            at = [int(i) for i in bad[0]]
            wrong = "log decay above 0 or NaN" if name == "g" else "not finite"
            allowed = "<= 0 (-inf resets)" if name == "g" else "finite"
            raise refuse(name, wrong, got=f"{float(data[tuple(bad[0])])} at {at}", allowed=allowed)


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of constant lengths in an exported graph; `axes` has the static sizes."""
    lengths, tokens = constants.get("actual_seq_lengths"), axes.get("T")
    if lengths is None:
        return
    shown, total = lengths.ravel()[:8].tolist(), int(lengths.sum())
    if tokens is None:
        yield (
            "actual_seq_lengths",
            f"constant {shown} although T is dynamic",
            "derive it from the shape of query",
        )
    elif total != tokens:
        fault = f"constant {shown} adds up to {total}, T is {tokens}"
        yield "actual_seq_lengths", fault, "write lengths, not offsets, that add up to T"


def _token_form(given: Mapping[str, check.Spec]) -> list[roofline.Pass]:
    """Sweeps of a kernel that multiplies with the state on the vector units, token by token, in fp32.

    Per row and state element two multiplies and two block reductions (S k and S q), a multiply and an addition (update); the
    state is cast once per sequence and way unless it is fp32.
    """
    state, rows = given["initial_state"], int(given["value"].shape[0])
    elements = int(np.prod(state.shape[1:], dtype=np.int64))
    passes = [
        roofline.Pass("Mul.f32", 3 * rows * elements),
        roofline.Pass("BlockReduceSum.f32", 2 * rows * elements),
        roofline.Pass("Add.f32", rows * elements),
    ]
    if state.dtype != "float32":
        passes.append(roofline.Pass("Cast.f16f32", 2 * int(state.shape[0]) * elements))
    return passes


def _chunk_form(given: Mapping[str, check.Spec]) -> tuple[list[roofline.Pass], list[roofline.Product]]:
    """Sweeps and products of a kernel that takes CHUNK tokens at a time, operands of the products in the input's dtype.

    Products: k k^T and q k^T per key head, the inverse and the weights applied to the values, all four triangular, so half
    of them; S k, S q and the update of S per value head. Sweeps: decays between the tokens of a chunk and their two uses; the
    state scaled and cast once per chunk; values less what the state gives for them, scaled and cast. Neither the inverse itself
    nor a second product for precision is counted.
    """
    state, query = given["initial_state"], given["query"]
    rows, key_heads, key_dim = (int(n) for n in query.shape)
    heads, value_dim = (int(n) for n in given["value"].shape[1:])
    chunk = min(CHUNK, rows)
    elements = -(-rows // CHUNK) * int(np.prod(state.shape[1:], dtype=np.int64))
    pairs, values = rows * chunk / 2 * heads, rows * heads * value_dim
    passes = [
        roofline.Pass("Exp.f32", pairs),
        roofline.Pass("Mul.f32", 2 * pairs + elements + values),
        roofline.Pass("Sub.f32", values),
        roofline.Pass("Cast.f16f32", elements + values),
    ]
    products = [
        roofline.Product(rows, key_dim, chunk / 2, query.dtype, 2 * key_heads),
        roofline.Product(rows, chunk / 2, value_dim, query.dtype, 2 * heads),
        roofline.Product(rows, key_dim, value_dim, query.dtype, 3 * heads),
    ]
    return passes, products


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles that no kernel can beat, every length full: of the token form or of the chunk form, whose floor is lower.

    Memory: every tensor is moved once.
    """
    given = {name: spec for name, spec in specs.items() if spec is not None}
    read = sum(roofline.size(spec) for spec in given.values())
    written = roofline.size(given["value"]) + roofline.size(given["initial_state"])
    passes, products = _chunk_form(given)
    forms = (
        roofline.floors(read, written, _token_form(given), soc),
        roofline.floors(read, written, passes, soc, products),
    )
    return min(forms, key=lambda form: form.cycles)


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    lengths: Sequence[int],
    nk: int,
    nv: int,
    dk: int,
    dv: int,
    gated: bool,
    tokens: int | None,
    edits: Sequence[Edit],
) -> Arrays:
    """Inputs as models give them: unit q and k, beta = sigmoid(N), gates in (-1, 0), a state of its own per sequence."""
    t = sum(lengths) if tokens is None else tokens

    def unit(*shape: int) -> np.ndarray:
        x = rng.standard_normal(shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    arrays: dict[str, Any] = {
        "query": unit(t, nk, dk),
        "key": unit(t, nk, dk),
        "value": rng.standard_normal((t, nv, dv)),
        "beta": 1 / (1 + np.exp(-rng.standard_normal((t, nv)))),
        "initial_state": rng.standard_normal((len(lengths), nv, dv, dk)) * 0.3,
        "actual_seq_lengths": np.array(lengths),
        "g": -rng.random((t, nv)) if gated else None,
    }
    return edited(arrays, edits, rng, types)


def _similar_keys(arrays: Arrays, rng: np.random.Generator) -> None:
    key = arrays["key"]
    near = key[:1] + 0.02 * rng.standard_normal(key.shape)
    key[:] = near / np.linalg.norm(near, axis=-1, keepdims=True)


def _long_keys(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["key"][:, 0] *= np.sqrt(arrays["key"].shape[2])


def _large_state(arrays: Arrays, rng: np.random.Generator) -> None:
    """Elements near the end of float16, read by the first key with one sign: only the sum leaves the range."""
    state = arrays["initial_state"]
    state[:] = np.sign(arrays["key"][0])[None, :, None, :] * rng.uniform(1e4, 3e4, state.shape)


def _infinite_rows(arrays: Arrays, rng: np.random.Generator) -> None:
    state = arrays["initial_state"]
    state[0, 0, 3, 5], state[0, 0, 7, 1], state[0, -1, 0, 0] = np.inf, -np.inf, np.nan


def _infinite_tokens(arrays: Arrays, rng: np.random.Generator) -> None:
    """One element each, in heads of their own of the first sequence; what they reach is forgotten later."""
    tokens = int(arrays["actual_seq_lengths"][0])
    at = dict(zip(("query", "key", "value"), rng.permutation(tokens // 2)[:3], strict=True))
    arrays["query"][at["query"], 0, 5], arrays["key"][at["key"], 1, 0] = np.nan, np.inf
    arrays["value"][at["value"], -1, 3] = -np.inf
    arrays["g"][[at["key"] + 2, at["value"] + tokens // 4]] = -np.inf


def _small(factor: float) -> Edit:
    """Values and states as small as what follows a norm with small weights."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays["value"] *= factor
        arrays["initial_state"] *= factor

    return edit


def _large_values(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["value"] *= 6e3


def _growing_head(arrays: Arrays, rng: np.random.Generator) -> None:
    arrays["g"][:, 0] = 0.2


def _poison_rows(rows: Sequence[int]) -> Edit:
    """Garbage where padding leaves it: NaN in every float row that no sequence covers."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        for name in ("query", "key", "value", "beta", "g"):
            arrays[name][list(rows)] = np.nan

    return edit


def _expect_out_rows_zero(rows: Sequence[int], inputs: Arrays, outputs: Arrays) -> None:
    assert not outputs["out"][list(rows)].any(), "rows without a sequence are not zero"


def _expect_states_copied(sequences: Sequence[int], inputs: Arrays, outputs: Arrays) -> None:
    got, want = (x[list(sequences)].tobytes() for x in (outputs["final_state"], inputs["initial_state"]))
    assert got == want, "a sequence without tokens changed its state"


def _expect_values_read_back(inputs: Arrays, outputs: Arrays) -> None:
    """beta = 1 and one unit key for every token: the state returns the last value written for it."""
    s, k = outputs["final_state"][0].astype(float), inputs["key"][-1].astype(float)
    k = np.repeat(k, s.shape[0] // k.shape[0], axis=0)
    np.testing.assert_allclose((s @ k[:, :, None])[:, :, 0], inputs["value"][-1].astype(float), atol=0.06)


def _report_decay(gate: float) -> Edit:
    """GC2: with beta = 1 and one unit key, reading it back gives the value just written, however strong the decay."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        for name in ("query", "key", "initial_state"):
            arrays[name][:] = 0
        arrays["query"][..., 0] = arrays["key"][..., 0] = arrays["beta"][:] = 1
        arrays["value"][0::2], arrays["value"][1::2] = 3, 5
        arrays["initial_state"][..., 0] = 8
        arrays["g"][:] = gate

    return edit


def _expect_decay(inputs: Arrays, outputs: Arrays) -> None:
    out, state = outputs["out"].astype(float), outputs["final_state"].astype(float)
    assert (out[0::2] == 3).all() and (out[1::2] == 5).all()
    last = inputs["value"].astype(float)[-1, 0, 0]
    np.testing.assert_allclose(state[..., 0], last, rtol=1e-5)  # of 16 bits: exactly
    assert not state[..., 1:].any()


_LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 79, 127, 128, 129, 200)
_TAIL_LENGTHS = (1, 15, 16, 17, 63, 64, 65, 79)
_DIMS = [(16, 16), (20, 20), (17, 33), (80, 80), (96, 96), (112, 112), (128, 128), (256, 256), (255, 17),
         (128, 64), (64, 128), (80, 96), (16, 256), (256, 16), (100, 36), (144, 40)]  # fmt: skip


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 1 key head, 2 value heads, 64 x 64, gate g, one sequence, every SoC.

    On ascend310p the products of whole chunks spread what is not finite in tokens over their head.
    """
    unscaled: dict[str, Any] = {"attrs": {}}
    reset, mixed = slice(None, None, 3), [1, 64, 7, 0, 129]
    found: dict[str, dict[str, Any]] = {
        **{f"T{n}": {"lengths": [n]} for n in _LENGTHS},
        "prefill-4b": {"lengths": [67], "nk": 16, "nv": 32, "dk": 128},
        "prefill-4b-packed": {"lengths": [3, 0, 18, 1], "nk": 16, "nv": 32, "dk": 128},
        "packed": {"lengths": mixed, "expect": partial(_expect_states_copied, [3])},
        "packed-short": {"lengths": [1, 2, 3, 4, 5, 1, 1, 1, 9, 2]},
        "packed-300": {"lengths": [1, 0, 2] * 100, "dk": 16, "nv": 1},
        "no-gate": {"lengths": [21], "gated": False},
        "gate-zero": {"lengths": [21], "edits": [put("g", 0)]},
        "gate-inf": {"lengths": [70], "edits": [put("g", -np.inf, 33)]},
        "gate-inf-often": {"lengths": [70], "edits": [put("g", -np.inf, reset)]},
        "gate-1e4": {"lengths": [70], "edits": [put("g", -1e4, 30)]},
        "gate-6e4": {"lengths": [70], "edits": [put("g", -6e4, 30)]},
        "gate-1e30": {"lengths": [70], "edits": [put("g", -1e30, 30)]},
        "gate-strong": {"lengths": [70], "edits": [put("g", -1.4)]},
        "gate-positive": {"lengths": [64], "edits": [_growing_head], "overflows": True},
        "beta-zero": {"lengths": [19], "gated": False, "edits": [put("beta", 0)],
                      "expect": partial(_expect_states_copied, [0])},
        "beta-one-same-key": {"lengths": [19], "expect": _expect_values_read_back,
                              "edits": [put("beta", 1), put("key", 1 / 8), put("g", 0)]},
        "beta-two": {"lengths": [19], "edits": [put("beta", 2)]},
        "keys-similar": {"lengths": [64], "dk": 128, "edits": [_similar_keys, put("beta", 0.5), put("g", 0)]},
        "keys-similar-beta-one": {"lengths": [128], "dk": 128, "edits": [_similar_keys, put("beta", 1), put("g", 0)]},
        "keys-long": {"lengths": [8], "nk": 2, "overflows": True, "edits": [put("beta", 1), put("g", 0), _long_keys]},
        **{f"state-large-T{n}": {"lengths": [n], "nk": 2, "edits": [_large_state]} for n in (5, 65)},
        **{f"values-{scale:g}": {"lengths": [70, 5], "edits": [_small(scale)]} for scale in (1e-2, 1e-3)},
        "values-large": {"lengths": [70, 5], "edits": [_large_values]},
        "state-infinite-forgotten": {"lengths": [12, 3], "edits": [_infinite_rows, put("g", -np.inf, 0)]},
        **{f"state-infinite-forgotten-at-{at}-T{n}": {
               "lengths": [n, 3], "edits": [_infinite_rows, put("g", -np.inf, at)]}
           for n, at in [(70, 0), (70, 33), (70, 64), (150, 140)]},
        **{f"tokens-infinite-{n}": {"lengths": [n, 5], "nk": 3, "nv": 6, "edits": [_infinite_tokens], "soc": "ascend910b"}
           for n in (100, 12)},
        "zero-length": {"lengths": [0, 2, 0, 0, 5, 0], "expect": partial(_expect_states_copied, [0, 2, 3, 5])},
        "zero-length-all": {"lengths": [0, 0], "tokens": 0, "expect": partial(_expect_states_copied, [0, 1])},
        "lengths-short-of-T": {"lengths": [5, 1], "tokens": 40, "edits": [_poison_rows(range(6, 40))],
                               "expect": partial(_expect_out_rows_zero, range(6, 40))},
        "lengths-beyond-T": {"lengths": [2, 90, 2], "tokens": 20, "expect": partial(_expect_states_copied, [2])},
        "length-negative": {"lengths": [-3, 20], "tokens": 20, "expect": partial(_expect_states_copied, [0])},
        "lengths-none": {"lengths": [0, 0], "tokens": 3, "expect": partial(_expect_out_rows_zero, range(3))},
        "heads-3-9": {"lengths": [6], "nk": 3, "nv": 9, "dk": 32},
        "heads-5-5": {"lengths": [3, 3], "nk": 5, "nv": 5, "dk": 48},
        "heads-256": {"lengths": [5], "nk": 128, "nv": 256, "dk": 16},
        "heads-64-16x32": {"lengths": [18], "nk": 64, "nv": 64, "dk": 16, "dv": 32},
        **{f"heads-16-{nv}": {"lengths": [5], "nk": 16, "nv": nv, "dk": 32} for nv in (16, 32, 48, 64)},
        **{f"{dk}x{dv}": {"lengths": [6, 3], "nv": 2, "dk": dk, "dv": dv} for dk, dv in _DIMS},
        "80x96-T130": {"lengths": [130], "dk": 80, "dv": 96},
        "17x20-T66": {"lengths": [66], "dk": 17, "dv": 20},
        **{f"{dk}x{dv}-T70": {"lengths": [70], "nv": 1, "dk": dk, "dv": dv} for dk, dv in [(256, 256), (255, 17), (16, 256), (144, 40)]},
        **{f"report-tail-T{n}": {"lengths": [n], "nv": 1, "dk": 16,
                                 "report": "https://github.com/flashserve/flash-linear-attention-npu/issues/407"}
           for n in _TAIL_LENGTHS},
        **{f"report-decay{gate:g}-T{n}": {
               "lengths": [n], "nv": 1, "dk": 16, "edits": [_report_decay(gate)], "expect": _expect_decay, **unscaled,
               "report": f"https://github.com/{link}"}
           for gate, link in [(-60, "pytorch/executorch/issues/21417"), (-6, "fla-org/flash-linear-attention/issues/99")]
           for n in (2, 66)},
        "report-empty-between": {"lengths": [9, 0, 9], "expect": partial(_expect_states_copied, [1]),
                                 "report": "https://github.com/vllm-project/vllm-ascend/pull/11807"},
    }  # fmt: skip
    return found


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, each dtype column in turn."""
    listed = []
    for column in columns(OP, soc):
        kind, state = (column.short(n) for n in ("query", "initial_state"))
        prefix = column.prefix("cgdr") + (f"-{state}state" if state != kind else "")
        for name, setting in _settings().items():
            if setting.get("soc", soc) != soc:
                continue
            s = {"nk": 1, "nv": 2, "dk": 64, "gated": True, "tokens": None, "edits": [], **setting}
            s.setdefault("dv", s["dk"])
            s.pop("soc", None)
            attrs = s.pop("attrs", {"scale_value": s["dk"] ** -0.5})
            extra = {k: s.pop(k) for k in ("expect", "overflows", "report") if k in s}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed
