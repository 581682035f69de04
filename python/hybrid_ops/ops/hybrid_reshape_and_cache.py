"""Rows of new tokens into a paged cache: the meaning in NumPy, a second formula, value checks, cases.

    slot = slot_mapping[t],  page = slot // page_size,  offset = slot % page_size
    ND:  key_cache[page, offset, h, d]              = key[t, h, d]
    NZ:  key_cache[page, c // 16, offset, c % 16]   = key[t, h, d],  c = h * D + d

and the same for value. A token whose slot is negative or beyond the pool is left out. Two tokens of one slot leave its
content open (validate="values" refuses them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_reshape_and_cache"
COLUMN = 16  # elements of an NZ column


def page_size_of(cache: np.ndarray, cache_mode: int) -> int:
    """Tokens of a page: ND [P, page, H, D], NZ [P, H * D / 16, page, 16]."""
    return int(cache.shape[2] if cache_mode else cache.shape[1])


def meaning(
    key: np.ndarray,
    value: np.ndarray,
    key_cache: np.ndarray,
    value_cache: np.ndarray,
    slot_mapping: np.ndarray,
    cache_mode: int = 0,
) -> dict[str, np.ndarray]:
    """The operator, token by token.

    Args:
        key: [T, H, D]; value: [T, H, DV].
        key_cache, value_cache: ND [P, page, H, D] or NZ [P, H * D / 16, page, 16]; not modified, new ones are returned.
        slot_mapping: [T], page * page_size + offset; outside the pool: the token is left out.
        cache_mode: 0 ND, 1 NZ.

    Returns:
        {"key_cache", "value_cache"} as given, updated.
    """
    size = page_size_of(key_cache, cache_mode)
    made = {"key_cache": key_cache.copy(), "value_cache": value_cache.copy()}
    for t, slot in enumerate(slot_mapping.tolist()):
        if not 0 <= slot < len(key_cache) * size:
            continue
        page, offset = divmod(slot, size)
        for cache, rows in zip(made.values(), (key, value), strict=True):
            if cache_mode:
                cache[page, :, offset] = rows[t].reshape(-1, COLUMN)
            else:
                cache[page, offset] = rows[t]
    return made


def second_formula(
    key: np.ndarray,
    value: np.ndarray,
    key_cache: np.ndarray,
    value_cache: np.ndarray,
    slot_mapping: np.ndarray,
    cache_mode: int = 0,
) -> dict[str, np.ndarray]:
    """Slot by slot through the flat memory: element ((page * columns + c // w) * size + offset) * w + c % w, w a column.

    ND is the layout of one column per page, as wide as a row.
    """
    made = {}
    for name, cache, rows in (("key_cache", key_cache, key), ("value_cache", value_cache, value)):
        width = COLUMN if cache_mode else max(1, int(np.prod(rows.shape[1:])))
        size = page_size_of(cache, cache_mode)
        pages, row = len(cache), max(1, int(np.prod(rows.shape[1:])))
        writer = {int(s): t for t, s in enumerate(slot_mapping) if 0 <= s < pages * size}
        flat = cache.reshape(-1).copy()
        c = np.arange(row)
        for slot, t in writer.items():
            at = ((slot // size * (row // width) + c // width) * size + slot % size) * width + c % width
            flat[at] = rows[t].reshape(-1)
        made[name] = flat.reshape(cache.shape)
    return made


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse slots that the kernel leaves out although the caller can hardly mean it, and two tokens of one slot.

    -1, the padding of captured batches, stays legal. Raises HybridOpsError naming the first bad element.
    """
    slots = arrays["slot_mapping"]
    tokens = len(slots)
    pool = int(np.prod(arrays["key_cache"].shape)) // max(1, int(np.prod(arrays["key"].shape[1:])))
    used: dict[int, int] = {}
    for t in range(tokens):
        slot = int(slots[t])
        if slot < -1 or slot >= pool:
            raise check.refuse(
                OP, "slot_mapping", "slot beyond the pool", got=f"{slot} at [{t}]", allowed=f"0..{pool - 1}, or -1 for padding",
                soc=soc,
            )  # fmt: skip
        other = t if slot < 0 else used.setdefault(slot, t)
        if other != t:
            raise check.refuse(
                OP, "slot_mapping", "two tokens use one slot", got=f"slot {slot} of tokens {other} and {t}",
                allowed="a slot of its own for each", soc=soc,
            )  # fmt: skip


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of a constant slot in an exported graph: every call would write the same place."""
    slots = constants.get("slot_mapping")
    if slots is not None and (slots >= 0).any():
        got = slots.ravel()[:8].tolist()
        yield (
            "slot_mapping",
            f"constant {got}: every call writes the same slots",
            "wire an input or what follows the length",
        )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, np.dtype],
    tokens: int,
    heads: int,
    dims: tuple[int, int],
    pages: int,
    page: int,
    slots: Sequence[int] | None,
    nz: int,
    edits: Sequence[Edit],
) -> Arrays:
    """Rows and caches N(0, 1), so that a slot written by mistake shows; slots in random order unless given."""
    arrays: Arrays = {}
    for name, dim in zip(("key", "value"), dims, strict=True):
        arrays[name] = rng.standard_normal((tokens, heads, dim))
        shape = (pages, heads * dim // COLUMN, page, COLUMN) if nz else (pages, page, heads, dim)
        arrays[f"{name}_cache"] = rng.standard_normal(shape)
    picked = rng.permutation(pages * page)[:tokens] if slots is None else np.array(slots)
    arrays["slot_mapping"] = picked.astype(np.int64)
    return edited(arrays, edits, rng, types)


def _expect_untouched(inputs: Arrays, outputs: Arrays) -> None:
    for name in ("key_cache", "value_cache"):
        assert outputs[name].tobytes() == inputs[name].tobytes(), f"{name} changed"


def _nan(name: str, rows: Sequence[int]) -> Edit:
    return put(name, np.nan, list(rows))


def _settings(padded: bool) -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 tokens, 2 heads of 32, 4 pages of 16, scattered slots, ND."""
    outside = [-1, 3, 64, 2**31 - 1, 17, -(2**31)]
    found: dict[str, dict[str, Any]] = {
        "decode-4b": {"tokens": 4, "heads": 4, "dims": (256, 256), "page": 128},
        "run": {"slots": range(14, 19)},
        "run-backwards": {"slots": range(18, 13, -1)},
        "runs": {"tokens": 9, "slots": [5, 6, 7, 40, 41, 8, 60, 61, 62]},
        "prefill": {"tokens": 70, "heads": 1, "dims": (48, 16), "pages": 3, "page": 64, "slots": range(60, 130)},
        "no-tokens": {"tokens": 0, "expect": _expect_untouched},
        "one-token": {"tokens": 1, "slots": [63]},
        "padded": {"slots": [-1, 9, -1, 10, -1], "edits": [_nan("key", [0, 2, 4]), _nan("value", [0, 2, 4])]},
        "padded-all": {"slots": [-1] * 5, "expect": _expect_untouched},
        "outside": {"tokens": 6, "slots": outside},
        "special": {"slots": range(5), "edits": [put("key", np.nan, 1), put("value", -np.inf, 2), put("key", -0.0, 3)]},
        "d-not-dv": {"dims": (192, 128), "heads": 1},
        "mla": {"dims": (512, 64), "heads": 1, "page": 128},
        "d1024": {"dims": (1024, 16), "heads": 1, "tokens": 3},
        "long-row": {"dims": (1024, 512), "heads": 20, "tokens": 3, "pages": 1, "page": 16},
    }  # fmt: skip
    nz = {f"nz-{name}": {**setting, "nz": 1} for name, setting in found.items()}
    nz |= {
        f"nz-page{p}": {"nz": 1, "page": p, "tokens": 40, "slots": range(5, 45)} for p in (16, 32, 64, 128)
    }
    tails: dict[str, dict[str, Any]] = {
        f"page{p}": {"page": p, "pages": 9, "tokens": 7, "slots": range(1, 8)} for p in (1, 3, 256)
    }
    tails |= {
        f"row{h * d}": {"heads": h, "dims": (d, d + 1), "tokens": 6}
        for h, d in ((2, 5), (2, 7), (1, 15), (1, 17), (3, 11))
    }
    tails |= {
        "row17-run": {"heads": 1, "dims": (17, 31), "slots": range(20, 25)},
        "row2-run": {"heads": 1, "dims": (2, 1), "tokens": 12, "slots": [*range(6), 9, 8, 63, 62, 30, 31]},
        "row1-few": {"heads": 1, "dims": (1, 1), "tokens": 3, "pages": 1 if padded else 2},
        "piece-tail": {"heads": 1, "dims": (683, 683), "tokens": 18, "slots": range(3, 21)},
    }
    return {**found, **tails, **nz}


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family; dtype columns after the first take those that move memory in another way."""
    some = ("decode-4b", "runs", "padded", "row10", "row17", "nz-runs", "nz-prefill")
    listed = []
    for column in columns(OP, soc):
        prefix = column.prefix("cache")
        for name, setting in _settings(soc != "ascend310p").items():
            if column.index and name not in some:
                continue
            s = {"tokens": 5, "heads": 2, "dims": (32, 32), "pages": 4, "page": 16, "slots": None, "nz": 0, "edits": [],
                 **setting}  # fmt: skip
            extra = {k: s.pop(k) for k in ("expect",) if k in s}
            attrs = {"cache_mode": s["nz"]}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(
    specs: Mapping[str, check.Spec], soc: str, attrs: Mapping[str, Any] | None = None
) -> roofline.Floors:
    """Cycles that no kernel of this operator can beat: every row read once and written once; no arithmetic."""
    rows = roofline.size(specs["key"]) + roofline.size(specs["value"])
    return roofline.floors(rows + roofline.size(specs["slot_mapping"]), rows, [], soc)
