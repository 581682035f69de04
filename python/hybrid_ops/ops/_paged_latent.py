"""What the latent attention operators share over ND pages: the formula, floors, settings of the cases and their arrays.

Keys are a latent and a rotary part side by side; values are the latent again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Edit, edited, put
from . import _paged_attention as paged
from . import _paged_attention_cases as parts

CACHES = ("kv_cache", "key_rope_cache")


def _joined(latent: np.ndarray, rope: np.ndarray) -> np.ndarray:
    return np.concatenate([latent, rope], axis=-1)


def attended(
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
    num_splits: int,
    softmax_lse_flag: bool,
    *,
    attend: paged.Attend,
) -> dict[str, np.ndarray]:
    """Outputs of a latent attention operator over caches [P, page, 1, R] and [P, page, 1, RP], by the formula `attend`."""
    schedule = paged.Schedule(sequence_ids, positions, context_lens, block_tables, kv_cache.shape[:2], causal)
    keys = _joined(kv_cache, key_rope_cache)
    out, lse = attend(_joined(query, query_rope), keys, kv_cache, schedule, scale_value, num_splits)
    return paged.results(out, lse, query.dtype, softmax_lse_flag)


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat, see `_paged_attention.floors`."""
    heads, latent, rope = (int(n) for n in (*specs["query"].shape[1:], specs["query_rope"].shape[-1]))
    return paged.floors(specs, soc, heads=heads, score_dims=latent + rope, value_dims=latent, caches=CACHES)


def make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    lengths: Sequence[int],
    queries: Any,
    page: int,
    heads: int,
    dims: tuple[int, int],
    edits: Sequence[Edit],
) -> Arrays:
    """Caches with random pages, NaN wherever no sequence counts a slot."""
    arrays = paged.schedule_arrays(rng, lengths, queries, page, 3, None)
    pages, n = arrays.pop("pages"), len(arrays["positions"])
    for part, dim in (("", dims[0]), ("_rope", dims[1])):
        arrays[f"query{part}"] = rng.standard_normal((n, heads, dim))
    arrays["kv_cache"] = rng.standard_normal((pages, page, 1, dims[0]))
    arrays["key_rope_cache"] = rng.standard_normal((pages, page, 1, dims[1]))
    made = edited(arrays, edits, rng, types)
    paged.poison(made, CACHES)
    return {name: made[name] for name in types}


def _analytic(arrays: Arrays, rng: np.random.Generator) -> None:
    """Scores 0 and ln 3 by the rotary part alone, latents 1 and 5: a quarter of one and three of the other."""
    page = arrays["block_tables"][0, 0]
    arrays["query"][:] = 0.0
    arrays["query_rope"][:] = 1.0
    arrays["key_rope_cache"][page, :, 0, 0] = 0.0, math.log(3)
    arrays["kv_cache"][page, :, 0, 0] = 1.0, 5.0


def _growing(arrays: Arrays, rng: np.random.Generator) -> None:
    """Scores that grow along the history, from tile to tile by more than any slack of a kernel's maxima."""
    slots = paged.Schedule(
        np.arange(len(arrays["context_lens"])), arrays["context_lens"], arrays["context_lens"], arrays["block_tables"],
        arrays["kv_cache"].shape[:2], False,
    )  # fmt: skip
    flat = arrays["key_rope_cache"].reshape(-1, arrays["key_rope_cache"].shape[-1])
    arrays["query_rope"][:, :, 0] = 1.0
    for b, length in enumerate(arrays["context_lens"]):
        flat[slots.slots(b, 0, int(length)), 0] = np.arange(length) * 2.0


def _expect_four(inputs: Arrays, outputs: Arrays) -> None:
    np.testing.assert_allclose(outputs["attention_out"].astype(np.float64), 4.0, rtol=2e-3)


def settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is decode of lengths 19 and 32 over pages of 16, 4 heads, 128 + 64."""
    return {
        "analytic": {"lengths": (2,), "page": 2, "heads": 1, "dims": (1, 1), "scale": 1.0, "edits": [_analytic],
                     "expect": _expect_four},
        **{f"dims-{r}-{p}": {"dims": (r, p), "lengths": (9, 17)}
           for r, p in ((5, 3), (128, 64), (512, 64), (512, 256), (80, 32), (129, 24))},
        "dims-1024": {"dims": (1024, 1), "lengths": (5, 2), "heads": 2},
        **{f"heads-{h}": {"heads": h, "dims": (64, 32)} for h in (1, 7, 16, 40)},
        "page-1": {"page": 1, "lengths": (3, 1)},
        "page-128": {"page": 128, "lengths": (128, 129), "dims": (64, 32)},
        "empty": {"lengths": (0, 3), "queries": [(0, 4), (1, 2)]},
        "all": {"causal": False, "queries": [(0, 3), (1, 0)]},
        "prefill": {"lengths": (40, 11), "queries": {"prefill": 21}, "dims": (64, 32)},
        "no-query": {"queries": []},
        "lse": {"lse": True, "heads": 3},
        # More tiles than a core keeps: maxima that hardly move, and ones that always do.
        "long": {"lengths": (601, 530), "page": 64, "heads": 32, "dims": (64, 32)},
        "growing": {"lengths": (530, 7), "page": 64, "heads": 32, "dims": (64, 32), "scale": 0.125, "edits": [_growing]},
        "growing-prefill": {"lengths": (420,), "queries": {"prefill": 9}, "page": 128, "heads": 16, "dims": (64, 16),
                            "scale": 0.125, "lse": True, "edits": [_growing]},
        "splits": {"splits": 4, "lengths": (67, 3, 0)},
        "splits-lse": {"splits": 3, "lse": True, "heads": 12},
        "bad-page": {"edits": [put("block_tables", 99, (1, 1))]},
        "deepseek-v3": {"heads": 128, "dims": (512, 64), "page": 128, "lengths": (40,), "scale": 192**-0.5},
        "v2-lite": {"heads": 16, "dims": (512, 64), "page": 64, "lengths": (70,), "scale": 192**-0.5},
    }  # fmt: skip


def arranged(setting: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of `make` (and "expect" where a case has its own), and attributes, of a setting."""
    s = {"lengths": (19, 32), "queries": "decode", "page": 16, "heads": 4, "dims": (128, 64), "edits": [],
         **setting}  # fmt: skip
    attrs = parts.attributes(s, sum(s["dims"]) ** -0.5)
    return s, attrs
