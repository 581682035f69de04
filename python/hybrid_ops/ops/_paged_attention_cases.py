"""Settings of the cases that the attention operators over key and value caches share, and their arrays in ND pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..case import Arrays, Case, Edit, columns, edited, put
from ._paged_attention import expect_close, poison, schedule_arrays

CACHES = ("key_cache", "value_cache")


def make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    lengths: Sequence[int],
    queries: Any,
    page: int,
    heads: tuple[int, int],
    dims: tuple[int, int],
    spare: int,
    width: int | None,
    spread: float,
    edits: Sequence[Edit],
) -> Arrays:
    """Caches with random pages, NaN wherever no sequence counts a slot."""
    arrays = schedule_arrays(rng, lengths, queries, page, spare, width)
    pages = arrays.pop("pages")
    arrays["query"] = rng.standard_normal((len(arrays["positions"]), heads[0], dims[0])) * spread
    arrays["key_cache"] = rng.standard_normal((pages, page, heads[1], dims[0]))
    arrays["value_cache"] = rng.standard_normal((pages, page, heads[1], dims[1]))
    made = edited(arrays, edits, rng, types)
    poison(made, CACHES)
    return {name: made[name] for name in types}


def _mix(arrays: Arrays, rng: np.random.Generator) -> None:
    """Pages shared at different logical places, queries unsorted and repeated, a sequence without slots."""
    arrays["block_tables"] = np.array([[2, 5], [0, 2], [-1, -1]])


def _permuted(order: Sequence[int]) -> Edit:
    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        for name in ("query", "sequence_ids", "positions"):
            arrays[name] = arrays[name][list(order)]

    return edit


def _values(name: str, array: Any) -> Edit:
    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays[name] = np.asarray(array, np.float64)

    return edit


def _expect(array: Any) -> Any:
    def expect(inputs: Arrays, outputs: Arrays) -> None:
        got = outputs["attention_out"].astype(np.float64)
        np.testing.assert_allclose(got, np.broadcast_to(array, got.shape), rtol=2e-3, atol=1e-6)

    return expect


MIX = {
    "lengths": (6, 7, 0), "queries": [(1, 6), (0, 5), (0, 0), (2, 9), (1, 2), (0, 5), (1, 4)], "page": 4,
    "edits": [_mix], "width": 2, "spare": 2,
}  # fmt: skip
_LN3 = math.log(3)
_TWO_KEYS = [_values("key_cache", [[[[0, 0]], [[_LN3, 0]]]]), _values("value_cache", [[[[1]], [[5]]]]),
             _values("query", [[[1, 0]], [[1, 0]]])]  # fmt: skip
ANALYTIC = {"lengths": (2,), "page": 2, "heads": (1, 1), "dims": (2, 1), "queries": [(0, 1), (0, 0)], "scale": 1.0,
            "spare": 0, "edits": _TWO_KEYS}  # fmt: skip


def settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is decode of lengths 37 and 64 over pages of 16, 4 heads on 2, dims 64."""
    return {
        "analytic-causal": {**ANALYTIC, "expect": _expect([[[4.0]], [[1.0]]])},
        "analytic-all": {**ANALYTIC, "causal": False, "expect": _expect(4.0)},
        "group-map": {"lengths": (5,), "heads": (4, 2), "dims": (32, 32),
                      "edits": [put("key_cache", 0.0), put("value_cache", 10.0, (..., 0, slice(None))),
                                put("value_cache", 20.0, (..., 1, slice(None)))],
                      "expect": _expect(np.array([10, 10, 20, 20])[:, None])},
        "empty-causal": {"lengths": (0, 3), "queries": [(0, 9), (1, 2)]},
        "empty-all": {"lengths": (0, 3), "queries": [(0, 9), (1, 2)], "causal": False},
        "no-pages": {"lengths": (0, 0), "queries": [(0, 3), (1, 0)], "spare": 1},
        "mix": {**MIX, "dims": (5, 7)},
        "mix-permuted": {**MIX, "dims": (5, 7), "edits": [_mix, _permuted([3, 6, 0, 5, 1, 4, 2])]},
        "mix-64": {**MIX, "dims": (64, 64)},
        "mix-all": {**MIX, "dims": (64, 32), "causal": False},
        "padded-table": {"width": 9, "edits": [put("block_tables", 0, (0, slice(4, 6)))]},
        "mha": {"heads": (3, 3)},
        "gqa-6-3": {"heads": (6, 3)},
        "mqa": {"heads": (5, 1)},
        "mqa-24": {"heads": (24, 1), "dims": (32, 32)},
        # A block of 48 rows: each of two vector cores has 24, not a multiple of a fractal.
        "mqa-48": {"heads": (48, 1), "dims": (16, 16), "lengths": (25,), "queries": {"prefill": 22}},
        **{f"dims-{d}-{dv}": {"dims": (d, dv), "lengths": (19, 33)}
           for d, dv in ((16, 16), (5, 129), (129, 257), (80, 80), (192, 128), (96, 24), (17, 15), (256, 256))},
        "dims-1024-1": {"dims": (1024, 1), "lengths": (9, 3), "heads": (2, 1)},
        "dims-1024": {"dims": (1024, 1024), "lengths": (21, 3), "heads": (2, 1)},
        **{f"page-{p}": {"page": p, "lengths": (2 * p, 2 * p + 1, p - 1, 1), "heads": (2, 1), "dims": (32, 48)}
           for p in (1, 3, 16, 64, 128)},
        "page-256": {"page": 256, "lengths": (257, 256), "heads": (2, 1), "dims": (32, 32)},
        "large-scores": {"spread": 1200.0},
        "equal-scores": {"edits": [put("key_cache", 0.0)]},
        "packed": {"lengths": (7, 21, 3), "queries": [*((0, p) for p in range(7)), (1, 20)]},
        "prefill": {"lengths": (70,), "queries": {"prefill": 70}, "dims": (32, 32)},
        "chunked-prefill": {"lengths": (90, 41), "queries": {"prefill": 25}, "page": 32},
        "no-query": {"queries": []},
        "lse": {"lse": True},
        "lse-empty": {"lse": True, "lengths": (0, 5, 17), "heads": (3, 1), "dims": (16, 16)},
        "lse-prefill": {"lse": True, "lengths": (21, 9), "queries": {"prefill": 8}},
        **{f"splits-{n}": {"splits": n, "lengths": (67, 3, 0)} for n in (2, 3, 7, 32)},
        "splits-lse": {"splits": 4, "lse": True, "lengths": (130, 18), "heads": (6, 2)},
        "splits-mix": {**MIX, "splits": 3, "dims": (5, 7), "lse": True},
        "bad-page": {"edits": [put("block_tables", 99, (1, 1))]},
        "bad-sequence": {"edits": [put("sequence_ids", 7, 0)]},
        "bad-length": {"edits": [put("context_lens", -4, 0)]},
        "bad-position": {"edits": [put("positions", -2, 0), put("positions", 400, 1)]},
        "qwen3-30b": {"heads": (32, 4), "dims": (128, 128), "page": 128, "lengths": (150,)},
        "qwen3-next": {"heads": (16, 2), "dims": (256, 256), "page": 64, "lengths": (70,)},
        "mixtral": {"heads": (32, 8), "dims": (128, 128), "page": 16, "lengths": (33,)},
    }  # fmt: skip


def arranged(setting: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of `make` (and "expect" where a case has its own), and attributes, of a setting."""
    s = {"lengths": (37, 64), "queries": "decode", "page": 16, "heads": (4, 2), "dims": (64, 64), "spare": 3,
         "width": None, "spread": 1.0, "edits": [], **setting}  # fmt: skip
    attrs = attributes(s, s["dims"][0] ** -0.5)
    return s, attrs


def attributes(setting: dict[str, Any], scale: float) -> dict[str, Any]:
    """Attributes of a setting, taken out of it; `scale` where it has none."""
    return {
        "scale_value": setting.pop("scale", scale), "causal": setting.pop("causal", True),
        "num_splits": setting.pop("splits", 1), "softmax_lse_flag": setting.pop("lse", False),
    }  # fmt: skip


def listed(
    op: str,
    soc: str,
    stem: str,
    settings: Mapping[str, Mapping[str, Any]],
    arranged: Callable[[Mapping[str, Any]], tuple[dict[str, Any], dict[str, Any]]],
    make: Callable[..., Arrays],
    meaning: Callable[..., dict[str, np.ndarray]],
    dtype_cases: Collection[str],
) -> list[Case]:
    """Every setting as a case for the first dtype of one SoC family, `dtype_cases` of them for the others."""
    found = []
    for column in columns(op, soc):
        prefix = column.prefix(stem)
        for name, setting in settings.items():
            if column.index and name not in dtype_cases:
                continue
            s, attrs = arranged(setting)
            expect = s.pop("expect", partial(expect_close, meaning=meaning, attrs=attrs))
            found.append(column.case(f"{prefix}-{name}", make, s, attrs, expect=expect))
    return found
