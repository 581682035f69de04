"""Paged attention: the meaning in NumPy, the online softmax to hold it against, value checks, cases, floors.

Query i of sequence s at position p sees the cache slots t < min(length[s], p + 1), all t < length[s] when not causal; slot t
is row t % page_size of page block_tables[s, t // page_size]. With kv head kappa = h // (HQ / HKV):

    score[t] = scale_value * <query[i, h], key_cache[slot t, kappa]>
    out[i, h] = sum_t softmax(score)[t] * value_cache[slot t, kappa]        lse[i, h] = log sum_t exp(score[t])

Scores, exponentials and sums are float32 (Milakov and Gimelshein, arXiv:1805.02867, for the online form), the result is
rounded once. `num_splits` cuts the prefix of each query into parts whose partial results are merged; it does not change the
meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case
from . import _paged_attention as paged
from . import _paged_attention_cases as parts

OP = "hybrid_paged_attention"
CACHES = parts.CACHES

# Exported graphs: attribute -> axis whose size ** -0.5 it is.
SCALES = {"scale_value": "D"}


def meaning(
    query: np.ndarray,
    key_cache: np.ndarray,
    value_cache: np.ndarray,
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
        query: [N, HQ, D]; key_cache: [P, PS, HKV, D]; value_cache: [P, PS, HKV, DV].
        sequence_ids, positions: [N]; context_lens: [B]; block_tables: [B, W], negative entries are padding.
        scale_value: factor of the scores, above 0.
        causal: whether a query stops at its own position.
        num_splits: does not change the result.
        softmax_lse_flag: fill softmax_lse.
        attend: the formula.

    Returns:
        {"attention_out": [N, HQ, DV] in the dtype of query, "softmax_lse": float32 [N, HQ]}.

    Raises:
        HybridOpsError: scale_value not above 0.
    """
    paged.refuse_scale(OP, scale_value)
    schedule = paged.Schedule(
        sequence_ids, positions, context_lens, block_tables, key_cache.shape[:2], causal
    )
    out, lse = attend(query, key_cache, value_cache, schedule, scale_value, num_splits)
    return paged.results(out, lse, query.dtype, softmax_lse_flag)


# The same by running maximum and sum, slot after slot, split and merged; arguments and results as `meaning`.
second_formula = partial(meaning, attend=paged.online)


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse metadata no schedule could mean, and values that are not finite. Raises HybridOpsError naming the first."""
    paged.check_metadata(OP, arrays, arrays["key_cache"].shape[:2], soc)
    paged.check_finite(OP, arrays, ("query",), CACHES, soc)


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat, see `_paged_attention.floors`."""
    heads, dim, value_dim = (int(n) for n in (*specs["query"].shape[1:], specs["value_cache"].shape[-1]))
    return paged.floors(specs, soc, heads=heads, score_dims=dim, value_dims=value_dim, caches=CACHES)


# A column that differs from the first only in its dtype loads and stores differently and nothing else.
_DTYPE_CASES = (
    "mix", "mix-64", "mqa", "mqa-48", "dims-129-257", "dims-96-24", "dims-1024", "chunked-prefill", "splits-3", "splits-lse",
    "lse-empty", "qwen3-next",
)  # fmt: skip


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, all of them for its first dtype."""
    return parts.listed(OP, soc, "pa", parts.settings(), parts.arranged, parts.make, meaning, _DTYPE_CASES)
