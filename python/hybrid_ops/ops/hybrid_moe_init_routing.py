"""Dispatch of a mixture of experts: every row of a batch once per selected expert, sorted by expert.

Slot s = t * K + j is the j-th expert of row t. Slots are sorted by expert, those of one expert in ascending order (a
counting sort), so that the same call always gives the same rows. An expert outside 0 to expert_num - 1 makes its slot
inactive: it has no expanded row (-1), and as many rows of no slot stand behind all others: zeros, sorted_slots -1,
row_experts expert_num.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import check, roofline
from ..case import Arrays, Case, Edit, columns, edited, put

OP = "hybrid_moe_init_routing"


def meaning(x: np.ndarray, expert_idx: np.ndarray, expert_num: int = 0) -> dict[str, np.ndarray]:
    """The operator by one stable sort.

    Args:
        x: [T, H]; expert_idx: [T, K] int32; expert_num: number of experts.

    Returns:
        {"expanded_x": [T * K, H] in the dtype of x, and int32 "expanded_row_idx" [T, K], "expert_offsets"
        [expert_num + 1], "sorted_slots" [T * K], "row_experts" [T * K]}.
    """
    slots, width = expert_idx.size, expert_idx.shape[1]
    experts = np.where((expert_idx >= 0) & (expert_idx < expert_num), expert_idx, expert_num).reshape(-1)
    order = np.argsort(experts, kind="stable")
    active = int((experts < expert_num).sum())
    expanded = np.zeros((slots, x.shape[1]), x.dtype)
    expanded[:active] = x[order[:active] // width]
    rows = np.full(slots, -1, np.int32)
    rows[order[:active]] = np.arange(active)
    return {
        "expanded_x": expanded,
        "expanded_row_idx": rows.reshape(expert_idx.shape),
        "expert_offsets": np.searchsorted(experts[order], np.arange(expert_num + 1)).astype(np.int32),
        "sorted_slots": np.where(np.arange(slots) < active, order, -1).astype(np.int32),
        "row_experts": experts[order].astype(np.int32),
    }


def second_formula(x: np.ndarray, expert_idx: np.ndarray, expert_num: int = 0) -> dict[str, np.ndarray]:
    """The same operator by collecting the slots of each expert in a list, in the order they come."""
    members: list[list[int]] = [[] for _ in range(expert_num)]
    rows = np.full(expert_idx.shape, -1, np.int32)
    for token, line in enumerate(expert_idx.tolist()):
        for j, expert in enumerate(line):
            if 0 <= expert < expert_num:
                members[expert].append(token * len(line) + j)
    offsets = [0]
    for listed in members:
        offsets.append(offsets[-1] + len(listed))
    expanded = np.zeros((expert_idx.size, x.shape[1]), x.dtype)
    slots = np.full(expert_idx.size, -1, np.int32)
    experts = np.full(expert_idx.size, expert_num, np.int32)
    for expert, listed in enumerate(members):
        for i, slot in enumerate(listed):
            at = offsets[expert] + i
            token, j = divmod(slot, expert_idx.shape[1])
            expanded[at], slots[at], experts[at], rows[token, j] = x[token], slot, expert, at
    return {
        "expanded_x": expanded,
        "expanded_row_idx": rows,
        "expert_offsets": np.array(offsets, np.int32),
        "sorted_slots": slots,
        "row_experts": experts,
    }


def check_values(arrays: Arrays, axes: Mapping[str, int], soc: str) -> None:
    """Refuse a negative expert. How many experts there are is an attribute: too large ones are inactive slots."""
    data = arrays["expert_idx"]
    bad = np.argwhere(data < 0)
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise check.refuse(
            OP, "expert_idx", "no such expert", got=f"{int(data[at])} at {list(at)}", allowed=">= 0", soc=soc
        )


def constant_faults(
    constants: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> Iterator[tuple[str, str, str]]:
    """(input, fault, remedy) of a routing that an exported graph froze."""
    if "expert_idx" in constants:
        yield (
            "expert_idx",
            "a constant: every call would use the routing of the example",
            "take the experts of the gating operator in the graph",
        )


def _make(
    rng: np.random.Generator,
    *,
    types: Mapping[str, Any],
    rows: int,
    k: int,
    width: int,
    experts: int,
    edits: list[Edit],
) -> Arrays:
    """Distinct experts per row where there are enough of them."""
    chosen = rng.random((rows, max(experts, k))).argsort(axis=1)[:, :k] % experts
    return edited({"x": rng.standard_normal((rows, width)), "expert_idx": chosen}, edits, rng, types)


def _given(ids: Any) -> Edit:
    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays["expert_idx"] = np.array(ids)

    return edit


def _expect_offsets(offsets: list[int], inputs: Arrays, outputs: Arrays) -> None:
    _expect_maps(inputs, outputs)
    assert outputs["expert_offsets"].tolist() == offsets


def _expect_maps(inputs: Arrays, outputs: Arrays) -> None:
    """The two maps are inverse to each other, rows are bit copies, experts ascend with the offsets."""
    offsets, slots = outputs["expert_offsets"], outputs["sorted_slots"]
    active, k = int(offsets[-1]), inputs["expert_idx"].shape[1]
    rows = outputs["expanded_row_idx"].reshape(-1)
    assert sorted(rows[rows >= 0].tolist()) == list(range(active)) and (slots[active:] == -1).all()
    assert (rows[slots[:active]] == np.arange(active)).all()
    assert outputs["expanded_x"][:active].tobytes() == inputs["x"][slots[:active] // k].tobytes()
    assert not outputs["expanded_x"][active:].astype(np.float32).any()
    experts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    assert (outputs["row_experts"][:active] == experts).all()
    assert (outputs["row_experts"][active:] == len(offsets) - 1).all()
    assert (inputs["expert_idx"].reshape(-1)[slots[:active]] == experts).all()


def _settings() -> dict[str, dict[str, Any]]:
    """Every case by name; what is not said is 5 rows of 32, the 2 of 4 experts."""
    far = 2**31 - 1
    return {
        "two-empty": {"rows": 3, "edits": [_given([[0, 1]] * 3)], "expect": partial(_expect_offsets, [0, 3, 6, 6, 6])},
        "contention": {"rows": 257, "width": 16, "edits": [_given([[0, 1]] * 257)],
                       "expect": partial(_expect_offsets, [0, 257, 514, 514, 514])},
        "last-only": {"rows": 4, "k": 1, "experts": 128, "edits": [_given([[127]] * 4)],
                      "expect": partial(_expect_offsets, [0] * 128 + [4])},
        "all": {"k": 4},
        "stable": {"rows": 6, "edits": [_given([[2, 0], [0, 2], [2, 0], [1, 2], [2, 1], [0, 1]])],
                   "expect": partial(_expect_offsets, [0, 4, 7, 12, 12])},
        "repeated": {"rows": 3, "edits": [_given([[1, 1], [1, 0], [3, 3]])]},
        **{f"T{t}": {"rows": t, "experts": 8} for t in (0, 1, 16, 193)},
        "T700-E64": {"rows": 700, "k": 6, "experts": 64, "width": 16},
        "T4096": {"rows": 4096, "experts": 8, "width": 8},
        "T1-K1": {"rows": 1, "k": 1, "experts": 1, "width": 1},
        **{f"H{h}": {"rows": 7, "width": h} for h in (1, 5, 8, 15, 16, 17, 31, 100, 2048, 7168)},
        "H5-T1": {"rows": 1, "width": 5},
        "H3-T40": {"rows": 40, "width": 3, "k": 3, "experts": 5},
        "H-wide": {"rows": 2, "width": 70001},
        "one-expert": {"experts": 1, "k": 1},
        "E2048": {"rows": 30, "experts": 2048, "k": 8},
        "qwen3-30b": {"rows": 17, "experts": 128, "k": 8, "width": 2048},
        "qwen3-next": {"rows": 9, "experts": 512, "k": 10, "width": 256},
        "many-slots": {"rows": 3000, "experts": 16, "k": 2, "width": 8},
        "inactive": {"rows": 6, "edits": [put("expert_idx", -1, (2, slice(None))), put("expert_idx", 4, (4, 1)),
                                          put("expert_idx", far, (5, 0)), put("expert_idx", -far - 1, (0, 0))],
                     "report": "https://github.com/ROCm/aiter/issues/4530"},
        "inactive-all": {"rows": 20, "edits": [put("expert_idx", -1)], "expect": partial(_expect_offsets, [0] * 5)},
        "inactive-odd": {"rows": 50, "width": 5, "edits": [put("expert_idx", 99, (slice(None, None, 3), 0))]},
        "bits": {"edits": [put("x", np.nan, (1, 3)), put("x", -0.0, (2, 1)), put("x", np.inf, (0, 0))]},
    }  # fmt: skip


# On every dtype column: rows are moved as they are, so only their width in bytes matters.
_EVERY_COLUMN = ("H17", "H5-T1", "T193", "inactive-odd", "qwen3-30b")


def cases(soc: str) -> list[Case]:
    """Every case for one SoC family; the first dtype column has them all, the others what depends on the width of a row."""
    listed = []
    for column in columns(OP, soc):
        prefix = column.prefix("dispatch")
        for name, setting in _settings().items():
            if column.index and name not in _EVERY_COLUMN:
                continue
            s = {"rows": 5, "k": 2, "width": 32, "experts": 4, "edits": [], "expect": _expect_maps, **setting}
            extra = {n: s.pop(n) for n in ("expect", "report") if n in s}
            attrs = {"expert_num": s["experts"]}
            listed.append(column.case(f"{prefix}-{name}", _make, s, attrs, **extra))
    return listed


def floors(specs: Mapping[str, check.Spec], soc: str) -> roofline.Floors:
    """Cycles no kernel of this operator can beat: x read once, K copies of it and four maps written once; no vector work."""
    x, ids = specs["x"], roofline.size(specs["expert_idx"])
    copies = roofline.size(x) * int(specs["expert_idx"].shape[1])
    return roofline.floors(roofline.size(x) + ids, copies + 3 * ids, [], soc)
