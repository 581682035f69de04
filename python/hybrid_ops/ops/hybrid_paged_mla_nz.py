"""Paged latent attention over NZ pages: the meaning in NumPy, a second formula, value checks, cases, floors.

What the operator over ND pages computes, over caches [P, R / 16, page, 16] of latents and [P, RP / 16, page, 16] of rotary
keys: element d of slot t is cache[page, d // 16, t % page_size, d % 16], the layout of CANN's FRACTAL_NZ. The result has the
bits of the ND operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case
from . import _nz_pages as layout
from . import _paged_attention as paged
from . import _paged_attention_cases as parts
from . import _paged_latent as nd

OP = "hybrid_paged_mla_nz"
CACHES = nd.CACHES


def to_nd(cache: np.ndarray) -> np.ndarray:
    """[P, R / 16, page, 16] as [P, page, 1, R]."""
    return layout.to_nd(cache, cache.shape[1] * layout.COLUMN)


def _gathered(cache: np.ndarray) -> np.ndarray:
    return layout.gathered(cache, cache.shape[1] * layout.COLUMN)


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
    rows: Callable[[np.ndarray], np.ndarray] = to_nd,
) -> dict[str, np.ndarray]:
    """The operator in float64, by default through a gather.

    Args:
        query: [N, H, R]; query_rope: [N, H, RP].
        kv_cache: [P, R / 16, page, 16]; key_rope_cache: [P, RP / 16, page, 16].
        sequence_ids, positions: [N]; context_lens: [B]; block_tables: [B, W], negative entries are padding.
        scale_value: factor of the scores, above 0: the model's own, not R ** -0.5.
        causal: whether a query stops at its own position.
        num_splits: does not change the result.
        softmax_lse_flag: fill softmax_lse.
        attend: the formula; rows: how caches are brought to [P, page, 1, R].

    Returns:
        {"attention_out": [N, H, R] in the dtype of query, "softmax_lse": float32 [N, H]}.

    Raises:
        HybridOpsError: scale_value not above 0.
    """
    paged.refuse_scale(OP, scale_value)
    return nd.attended(
        query, query_rope, rows(kv_cache), rows(key_rope_cache), sequence_ids, positions, context_lens, block_tables,
        scale_value, causal, num_splits, softmax_lse_flag, attend=attend,
    )  # fmt: skip


# The same by flat addresses and running maximum and sum; arguments and results as `meaning`.
second_formula = partial(meaning, attend=paged.online, rows=_gathered)


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse metadata no schedule could mean, and values that are not finite: HybridOpsError naming the first.

    Elements of caches are named as [page, offset, 0, d].
    """
    rows = {**arrays, **{name: to_nd(arrays[name]) for name in CACHES}}
    paged.check_metadata(OP, rows, rows["kv_cache"].shape[:2], soc)
    paged.check_finite(OP, rows, ("query", "query_rope"), CACHES, soc)


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat, those of the operator over ND pages."""
    rows = {}
    for name in CACHES:
        pages, blocks, size, _ = (int(n) for n in specs[name].shape)
        rows[name] = check.Spec((pages, size, 1, blocks * layout.COLUMN), specs[name].dtype)
    return nd.floors({**specs, **rows}, soc)


# Shared settings whose pages and dims are whole columns, and some of this layout's own.
_SHARED = (
    "dims-128-64", "dims-512-64", "dims-512-256", "dims-80-32", "heads-1", "heads-7", "heads-16", "heads-40", "page-128",
    "empty", "all", "prefill", "no-query", "lse", "long", "growing", "growing-prefill", "splits", "splits-lse", "bad-page",
    "deepseek-v3", "v2-lite",
)  # fmt: skip
_OWN: Mapping[str, Mapping[str, Any]] = {
    "page-48": {"page": 48, "lengths": (95, 13), "dims": (32, 16)},
    "dims-1024": {"dims": (1024, 16), "lengths": (21, 3), "heads": 2},
}
_DTYPE_CASES = ("heads-16", "dims-512-64", "page-48", "prefill", "splits-lse", "v2-lite")
_make = layout.in_nz(nd.make, CACHES)


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, all of them for its first dtype."""
    known = nd.settings()
    settings = {**{n: known[n] for n in _SHARED}, **_OWN}
    return parts.listed(OP, soc, "mla-nz", settings, nd.arranged, _make, meaning, _DTYPE_CASES)
