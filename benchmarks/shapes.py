"""Shapes of real models, and inputs of the operators at these shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybrid_ops import contract, dtypes


@dataclass(frozen=True)
class GatedDelta:
    """Heads and head dims of a gated delta layer, as in the model's config.json."""

    model: str
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int


# linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim
QWEN35_4B = GatedDelta("Qwen3.5-4B", 16, 32, 128, 128)
QWEN35_08B = GatedDelta("Qwen3.5-0.8B", 16, 16, 128, 128)
QWEN3_NEXT_80B = GatedDelta("Qwen3-Next-80B-A3B", 16, 32, 128, 128)
QWEN35_397B = GatedDelta("Qwen3.5-397B-A17B", 16, 64, 128, 128)
SHAPES = {shape.model: shape for shape in (QWEN35_4B, QWEN35_08B, QWEN3_NEXT_80B, QWEN35_397B)}


def decode(shape: GatedDelta, batch: int, tokens: int, soc: str, column: int) -> dict[str, np.ndarray | None]:
    """Inputs of `recurrent_gated_delta_rule` for one decode step.

    Args:
        shape: model.
        batch: sequences; each has `tokens` rows and a slot per row.
        tokens: rows per sequence (more than 1: speculative decoding).
        soc: family.
        column: dtype column of the contract.
    """
    rng = np.random.default_rng(1)
    rows = batch * tokens
    nk, nv, dk, dv = shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim
    op = contract.load()["recurrent_gated_delta_rule"]
    kinds = {t.name: dtypes.NUMPY[t.dtypes[soc][column]] for t in op.inputs}

    def unit(*dims: int) -> np.ndarray:
        x = rng.standard_normal(dims)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    arrays = {
        "query": unit(rows, nk, dk),
        "key": unit(rows, nk, dk),
        "value": rng.standard_normal((rows, nv, dv)),
        "beta": rng.random((rows, nv)),
        "state": rng.standard_normal((rows, nv, dv, dk)) * 0.3,
        "actual_seq_lengths": np.full(batch, tokens),
        "ssm_state_indices": rng.permutation(rows),
        "g": -rng.random((rows, nv)),
    }
    filled: dict[str, np.ndarray | None] = dict.fromkeys(kinds)
    filled.update({name: np.ascontiguousarray(a.astype(kinds[name])) for name, a in arrays.items()})
    return filled


def prefill(shape: GatedDelta, tokens: int, soc: str, column: int) -> dict[str, np.ndarray]:
    """Inputs of `chunk_gated_delta_rule` for one sequence of `tokens` rows; arguments as for `decode`."""
    rng = np.random.default_rng(1)
    nk, nv, dk, dv = shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim
    op = contract.load()["chunk_gated_delta_rule"]

    def unit(*dims: int) -> np.ndarray:
        x = rng.standard_normal(dims)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    arrays = {
        "query": unit(tokens, nk, dk),
        "key": unit(tokens, nk, dk),
        "value": rng.standard_normal((tokens, nv, dv)),
        "beta": rng.random((tokens, nv)),
        "initial_state": rng.standard_normal((1, nv, dv, dk)) * 0.3,
        "actual_seq_lengths": np.array([tokens]),
        "g": -rng.random((tokens, nv)),
    }
    kinds = {t.name: dtypes.NUMPY[t.dtypes[soc][column]] for t in op.inputs}
    return {name: array.astype(kinds[name]) for name, array in arrays.items()}
