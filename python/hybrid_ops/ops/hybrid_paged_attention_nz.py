"""Paged attention over NZ pages: the meaning in NumPy, a second formula, value checks, cases, floors.

What the operator over ND pages computes, over caches [P, HKV * D / 16, page, 16]: element d of kv head k of slot t is

    cache[page, c // 16, t % page_size, c % 16],    c = k * D + d

the layout of CANN's FRACTAL_NZ, in which ReshapeAndCache of the 310P keeps its pages. Values are as wide as keys. The result
has the bits of the ND operator.
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

OP = "hybrid_paged_attention_nz"
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
    rows: Callable[[np.ndarray, int], np.ndarray] = layout.to_nd,
) -> dict[str, np.ndarray]:
    """The operator in float64, by default through a gather.

    Args:
        query: [N, HQ, D]; key_cache, value_cache: [P, HKV * D / 16, page, 16].
        sequence_ids, positions: [N]; context_lens: [B]; block_tables: [B, W], negative entries are padding.
        scale_value: factor of the scores, above 0.
        causal: whether a query stops at its own position.
        num_splits: does not change the result.
        softmax_lse_flag: fill softmax_lse.
        attend: the formula; rows: how caches are brought to [P, page, HKV, D].

    Returns:
        {"attention_out": [N, HQ, D] in the dtype of query, "softmax_lse": float32 [N, HQ]}.

    Raises:
        HybridOpsError: scale_value not above 0.
    """
    paged.refuse_scale(OP, scale_value)
    keys, values = (rows(cache, query.shape[-1]) for cache in (key_cache, value_cache))
    schedule = paged.Schedule(sequence_ids, positions, context_lens, block_tables, keys.shape[:2], causal)
    out, lse = attend(query, keys, values, schedule, scale_value, num_splits)
    return paged.results(out, lse, query.dtype, softmax_lse_flag)


# The same by flat addresses and running maximum and sum; arguments and results as `meaning`.
second_formula = partial(meaning, attend=paged.online, rows=layout.gathered)


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse metadata no schedule could mean, and values that are not finite: HybridOpsError naming the first.

    Elements of caches are named as [page, offset, kv head, d].
    """
    dim = arrays["query"].shape[-1]
    rows: dict[str, Any] = {**arrays, **{name: layout.to_nd(arrays[name], dim) for name in CACHES}}
    paged.check_metadata(OP, rows, rows["key_cache"].shape[:2], soc)
    paged.check_finite(OP, rows, ("query",), CACHES, soc)


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat, see `_paged_attention.floors`."""
    heads, dim = (int(n) for n in specs["query"].shape[1:])
    rows = {}
    for name in CACHES:
        pages, columns, size, _ = (int(n) for n in specs[name].shape)
        rows[name] = check.Spec((pages, size, columns * layout.COLUMN // dim, dim), specs[name].dtype)
    return paged.floors({**specs, **rows}, soc, heads=heads, score_dims=dim, value_dims=dim, caches=CACHES)


# Shared settings whose pages and heads are whole columns, and some of this layout's own.
_SHARED = (
    "empty-causal", "empty-all", "no-pages", "padded-table", "mha", "gqa-6-3", "mqa", "mqa-24", "mqa-48", "dims-16-16",
    "dims-80-80", "dims-256-256", "large-scores", "packed", "prefill", "chunked-prefill", "no-query", "lse", "lse-empty",
    "lse-prefill", "splits-2", "splits-3", "splits-32", "splits-lse", "bad-page", "bad-sequence", "bad-length", "bad-position",
    "qwen3-30b", "qwen3-next", "mixtral",
)  # fmt: skip
_OWN: Mapping[str, Mapping[str, Any]] = {
    **{f"page-{p}-{d}": {"page": p, "dims": (d, d), "lengths": (2 * p, 2 * p + 1, p - 1, 1), "heads": (4, 2)}
       for p, d in ((16, 128), (64, 64), (128, 64))},
    "page-48": {"page": 48, "lengths": (95, 13), "heads": (4, 2), "dims": (32, 32)},
    "one-head": {"heads": (3, 3), "dims": (1024, 1024), "lengths": (21,)},
    "mix-64": {"lengths": (17, 31, 0), "width": 2, "spare": 2, "dims": (64, 64),
               "queries": [(1, 30), (0, 16), (0, 0), (2, 9), (1, 2), (0, 16), (1, 17)]},
}  # fmt: skip
_DTYPE_CASES = ("mha", "mqa-48", "mix-64", "chunked-prefill", "splits-lse", "bad-page", "page-48")
_make = layout.in_nz(parts.make, CACHES)


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family, all of them for its first dtype."""
    known = parts.settings()
    settings = {**{n: known[n] for n in _SHARED}, **_OWN}
    return parts.listed(OP, soc, "pa-nz", settings, parts.arranged, _make, meaning, _DTYPE_CASES)
