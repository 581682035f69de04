"""The kernel of the recurrent gated delta rule beyond the operator's case list: random walks, plans, shared slots."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hybrid_ops import check, host, sim
from hybrid_ops.ops import recurrent_gated_delta_rule as rgdr

COLUMNS = {
    "310p": ("ascend310p", np.float16, np.float16),
    "910b": ("ascend910b", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "910b-f32": ("ascend910b", ml_dtypes.bfloat16, np.float32),
}
NRMSE = {"310p": 1e-3, "910b": 8e-3, "910b-f32": 8e-3}


def _unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _random_call(rng: np.random.Generator, column: str) -> dict[str, np.ndarray]:
    """Any heads and tails, lengths that need not add up, slots that repeat, are padded or out of range, -inf gates."""
    _, dtype, state = COLUMNS[column]
    nk, share = (int(n) for n in rng.integers(1, 4, 2))
    nv = nk * share
    dk, dv = (
        int(rng.choice([16, 17, 31, 64, 80, 100, 130, 144])),
        int(rng.choice([16, 17, 20, 40, 64, 96, 100])),
    )
    sequences = int(rng.integers(1, 6))
    lengths = rng.integers(-1, int(rng.choice([2, 4, 20])), sequences)
    t = max(1, int(np.maximum(lengths, 0).sum()) + int(rng.integers(-1, 3)))
    slots = int(rng.integers(1, 2 * t + 2))
    width = int(rng.integers(1, 8))
    table = (sequences, width) if rng.random() < 0.4 and width * sequences >= t else (t,)
    call = {
        "query": _unit(rng, t, nk, dk).astype(dtype),
        "key": _unit(rng, t, nk, dk).astype(dtype),
        "value": rng.standard_normal((t, nv, dv)).astype(dtype),
        "beta": rng.random((t, nv)).astype(dtype),
        "state": (0.3 * rng.standard_normal((slots, nv, dv, dk))).astype(state),
        "actual_seq_lengths": lengths.astype(np.int32),
        "ssm_state_indices": rng.integers(-1, slots + 1, table).astype(np.int32),
    }
    gates = {"g": (t, nv), "gk": (t, nv, dk) if rng.random() < 0.5 else (t, nv)}
    for name, shape in gates.items():
        if rng.random() < 0.6:
            gate = -rng.random(shape).astype(np.float32)
            gate[rng.random(shape) < 0.05] = -np.inf
            call[name] = gate
    if rng.random() < 0.4:
        call["num_accepted_tokens"] = rng.integers(0, width + 2, sequences).astype(np.int32)
    return call


def _hold(call: dict[str, np.ndarray], column: str) -> None:
    """Launch, no report, agreement with the meaning, untouched slots bit-identical."""
    scale = call["query"].shape[-1] ** -0.5
    result = sim.launch(rgdr.OP, call, {"scale_value": scale}, soc=COLUMNS[column][0])
    assert [h for h in result.hazards if h["severity"] != "note"] == []
    wanted = rgdr.meaning(**call, scale_value=scale)
    for name in ("out", "state"):
        got, want = result.outputs[name].astype(float), wanted[name].astype(float)
        error, size = np.sqrt(np.mean((got - want) ** 2)), np.sqrt(np.mean(want**2))
        assert error <= NRMSE[column] * max(1e-6, size), name
    untouched = np.setdiff1d(np.arange(len(call["state"])), call["ssm_state_indices"])
    assert result.outputs["state"][untouched].tobytes() == call["state"][untouched].tobytes()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(25))
def test_random_calls(column: str, seed: int) -> None:
    rng = np.random.default_rng([seed, list(COLUMNS).index(column)])
    _hold(_random_call(rng, column), column)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(("heads", "tokens", "dv"), [(64, 1, 128), (96, 2, 128), (160, 1, 112), (256, 3, 64)])
def test_one_sequence_of_many_groups(column: str, heads: int, tokens: int, dv: int) -> None:
    """A single sequence is worked on by pieces at both edges of a core's walk, and each core walks several groups."""
    _, dtype, state = COLUMNS[column]
    rng = np.random.default_rng([heads, tokens, dv])
    call = {
        "query": _unit(rng, tokens, heads, 128).astype(dtype),
        "key": _unit(rng, tokens, heads, 128).astype(dtype),
        "value": rng.standard_normal((tokens, heads, dv)).astype(dtype),
        "beta": rng.random((tokens, heads)).astype(dtype),
        "state": (0.3 * rng.standard_normal((3, heads, dv, 128))).astype(state),
        "actual_seq_lengths": np.array([tokens], np.int32),
        "ssm_state_indices": np.arange(tokens, dtype=np.int32)[::-1] % 2 + 1,
        "g": -rng.random((tokens, heads)).astype(np.float32),
    }
    _hold(call, column)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_legal_head_has_a_plan(column: str) -> None:
    """The host side refuses nothing inside the contract's ranges: the largest and oddest heads fit local memory."""
    soc, dtype, state = COLUMNS[column]
    kind, pool = (np.dtype(d).name for d in (dtype, state))
    for dk in (16, 17, 255, 511, 512):
        for dv in (16, 31, 511, 512):
            for nk, nv in ((1, 1), (16, 48), (256, 256)):
                for rank in (None, 2, 3):
                    t = 64
                    specs = {
                        "query": check.Spec((t, nk, dk), kind),
                        "key": check.Spec((t, nk, dk), kind),
                        "value": check.Spec((t, nv, dv), kind),
                        "beta": check.Spec((t, nv), kind),
                        "state": check.Spec((4, nv, dv, dk), pool),
                        "actual_seq_lengths": check.Spec((t,), "int32"),
                        "ssm_state_indices": check.Spec((t,), "int32"),
                        "g": check.Spec((t, nv), "float32"),
                    }
                    if rank:
                        specs["gk"] = check.Spec((t, nv, dk)[:rank], "float32")
                    bound = check.call(rgdr.OP, soc, specs, {})
                    assert host.tiling(bound.op, soc, specs, bound.attrs).block_dim >= 1


def test_widest_heads_run_in_bands() -> None:
    """Ranges too wide for local memory are walked one after the other by the same core."""
    rng = np.random.default_rng(5)
    nk, nv, dk, dv = 16, 16, 511, 511
    call = {
        "query": _unit(rng, 1, nk, dk).astype(np.float16),
        "key": _unit(rng, 1, nk, dk).astype(np.float16),
        "value": rng.standard_normal((1, nv, dv)).astype(np.float16),
        "beta": rng.random((1, nv)).astype(np.float16),
        "state": (0.3 * rng.standard_normal((1, nv, dv, dk))).astype(np.float16),
        "actual_seq_lengths": np.array([1], np.int32),
        "ssm_state_indices": np.array([0], np.int32),
        "gk": -rng.random((1, nv, dk)).astype(np.float32),
    }
    result = sim.launch(rgdr.OP, call, {"scale_value": dk**-0.5}, soc="ascend310p")
    wanted = rgdr.meaning(**call, scale_value=dk**-0.5)
    for name in ("out", "state"):
        got, want = result.outputs[name].astype(float), wanted[name].astype(float)
        assert np.sqrt(np.mean((got - want) ** 2)) <= 1e-3 * np.sqrt(np.mean(want**2)), name
