"""Paged multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, absorbed form): meaning, second formula, cases.

As paged attention with one kv head whose key is (latent, rotary key) and whose value is the latent:

    score[t] = scale_value * (<query[i, h], kv_cache[slot t]> + <query_rope[i, h], key_rope_cache[slot t]>)
    out[i, h] = sum_t softmax(score)[t] * kv_cache[slot t]

The caller absorbs the key projection into the query, rotates, and projects the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from ..case import Arrays, Case
from . import _paged_attention as paged
from . import _paged_attention_cases as parts
from . import _paged_latent as latent

OP = "hybrid_paged_mla"
floors = latent.floors


def meaning(
    query: np.ndarray,
    query_rope: np.ndarray,
    kv_cache: np.ndarray,
    key_rope_cache: np.ndarray,
    sequence_ids: np.ndarray,
    positions: np.ndarray,
    context_lens: np.ndarray,
    block_tables: np.ndarray,
    scale_value: float,
    causal: bool,
    num_splits: int = 1,
    softmax_lse_flag: bool = False,
    *,
    attend: paged.Attend = paged.dense,
) -> dict[str, np.ndarray]:
    """The operator in float64, by default through a gather.

    Args:
        query: [N, H, R]; query_rope: [N, H, RP]; kv_cache: [P, PS, 1, R]; key_rope_cache: [P, PS, 1, RP].
        sequence_ids, positions: [N]; context_lens: [B]; block_tables: [B, W], negative entries are padding.
        scale_value: factor of the scores, above 0: the model's own, not R ** -0.5.
        causal: whether a query stops at its own position.
        num_splits: does not change the result.
        softmax_lse_flag: fill softmax_lse.
        attend: the formula.

    Returns:
        {"attention_out": [N, H, R] in the dtype of query, "softmax_lse": float32 [N, H]}.

    Raises:
        HybridOpsError: scale_value not above 0.
    """
    paged.refuse_scale(OP, scale_value)
    return latent.attended(
        query, query_rope, kv_cache, key_rope_cache, sequence_ids, positions, context_lens, block_tables, scale_value, causal,
        num_splits, softmax_lse_flag, attend=attend,
    )  # fmt: skip


# The same by running maximum and sum, slot after slot, split and merged; arguments and results as `meaning`.
second_formula = partial(meaning, attend=paged.online)


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse metadata no schedule could mean, and values that are not finite. Raises HybridOpsError naming the first."""
    paged.check_metadata(OP, arrays, arrays["kv_cache"].shape[:2], soc)
    paged.check_finite(OP, arrays, ("query", "query_rope"), latent.CACHES, soc)


_DTYPE_CASES = ("dims-5-3", "dims-512-64", "dims-1024", "prefill", "splits-lse", "v2-lite")


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, all of them for its first dtype."""
    return parts.listed(
        OP, soc, "mla", latent.settings(), latent.arranged, latent.make, meaning, _DTYPE_CASES
    )
