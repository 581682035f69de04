"""What the paged attention operators share: attention over pages in NumPy by two formulas, value checks, floors, cases' parts.

A query sees slots 0..end-1 of its sequence, end = min(length, position + 1) when causal, else length; lengths count at
most the slots a table row can name. Slot t lies in page block_tables[sequence, t // page_size]. Nothing else is read.
A query of no sequence, and one that sees nothing, is zero with a log-sum-exp of -inf; a page outside the pool is not seen
(host plans refuse it; a kernel must not read it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import check, dtypes, roofline
from ..case import Arrays
from ..check import Spec

PADDING = -1  # of a table row; the contract's packed metadata spells it 0xFFFFFFFF


class Schedule:
    """Metadata of one call: which cache slots a query sees.

    Args:
        sequence_ids, positions: int32 [N]; context_lens: int32 [B]; block_tables: int32 [B, W].
        pool: (pages, page_size) of the caches.
        causal: whether a query stops at its own position.
    """

    def __init__(
        self,
        sequence_ids: np.ndarray,
        positions: np.ndarray,
        context_lens: np.ndarray,
        block_tables: np.ndarray,
        pool: tuple[int, ...],
        causal: bool,
    ) -> None:
        self.ids, self.positions = sequence_ids.astype(np.int64), positions.astype(np.int64)
        self.lengths, self.tables = context_lens.astype(np.int64), block_tables.astype(np.int64)
        self.pages, self.page_size = pool
        self.causal = causal

    def end(self, query: int) -> int:
        """Length of the prefix that a query sees."""
        sequence = self.ids[query]
        if not 0 <= sequence < len(self.lengths):
            return 0
        length = min(self.lengths[sequence], self.tables.shape[1] * self.page_size)
        return max(0, int(min(length, self.positions[query] + 1) if self.causal else length))

    def slots(self, query: int, begin: int, end: int) -> np.ndarray:
        """Flat slot numbers (page * page_size + offset) of logical slots begin..end-1, in order."""
        at = np.arange(begin, end)
        page = self.tables[self.ids[query], at // self.page_size] if len(at) else at
        known = (page >= 0) & (page < self.pages)
        return (page * self.page_size + at % self.page_size)[known]


Attend = Callable[
    [np.ndarray, np.ndarray, np.ndarray, Schedule, float, int], tuple[np.ndarray, np.ndarray]
]  # `dense` or `online`


def dense(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, schedule: Schedule, scale: float, splits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Attention through a gather, in float64: softmax over all visible slots at once.

    Args:
        query: [N, H, D]; keys: [P, page, HKV, D]; values: [P, page, HKV, DV].
        splits: parts of a history, of no consequence here.

    Returns:
        (out [N, H, DV], log-sum-exp [N, H]), both float64.
    """
    heads, groups = query.shape[1], keys.shape[2]
    keys, values = (x.reshape(-1, *x.shape[2:]) for x in (keys, values))
    out = np.zeros((*query.shape[:2], values.shape[-1]))
    lse = np.full(query.shape[:2], -np.inf)
    for i in range(len(query)):
        slots = schedule.slots(i, 0, schedule.end(i))
        if not len(slots):
            continue
        k, v = (np.repeat(x[slots].astype(np.float64), heads // groups, axis=1) for x in (keys, values))
        scores = np.einsum("hd,thd->ht", query[i].astype(np.float64), k) * scale
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        out[i] = np.einsum("ht,thd->hd", weights / total, v)
        lse[i] = (top + np.log(total))[:, 0]
    return out, lse


def partitions(end: int, splits: int) -> Iterator[tuple[int, int]]:
    """The parts of a prefix: end // splits slots each, the first end % splits one more."""
    base, longer = divmod(end, splits)
    begin = 0
    for j in range(splits):
        count = base + (j < longer)
        yield begin, begin + count
        begin += count


def online(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, schedule: Schedule, scale: float, splits: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same by running maximum and sum, slot after slot, each partition on its own and then merged.

    Arguments and results as `dense`. The maximum starts at the first visible score, not at -inf.
    """
    heads, share = query.shape[1], query.shape[1] // keys.shape[2]
    keys, values = (x.reshape(-1, *x.shape[2:]) for x in (keys, values))
    out = np.zeros((*query.shape[:2], values.shape[-1]))
    lse = np.full(query.shape[:2], -np.inf)
    of_head = np.arange(heads) // share
    for i in range(len(query)):
        parts = []
        q = query[i].astype(np.float64) * scale
        for begin, end in partitions(schedule.end(i), splits):
            state = None
            for slot in schedule.slots(i, begin, end):
                score = (q * keys[slot][of_head].astype(np.float64)).sum(axis=1)
                value = values[slot][of_head].astype(np.float64)
                if state is None:
                    state = (score, np.ones(heads), value)
                    continue
                top, total, acc = state
                new = np.maximum(top, score)
                old_share, share_now = np.exp(top - new), np.exp(score - new)
                state = (
                    new, total * old_share + share_now, acc * old_share[:, None] + share_now[:, None] * value
                )  # fmt: skip
            if state is not None:
                parts.append(state)
        if not parts:
            continue
        top = np.max([part[0] for part in parts], axis=0)
        total = sum(part[1] * np.exp(part[0] - top) for part in parts)
        out[i] = sum(part[2] * np.exp(part[0] - top)[:, None] for part in parts) / total[:, None]
        lse[i] = top + np.log(total)
    return out, lse


def results(out: np.ndarray, lse: np.ndarray, dtype: np.dtype, lse_flag: bool) -> dict[str, np.ndarray]:
    """The operator's outputs: rounded once, softmax_lse zero unless asked for."""
    lse = lse if lse_flag else np.zeros_like(lse)
    return {"attention_out": out.astype(dtype), "softmax_lse": lse.astype(np.float32)}


def refuse_scale(op: str, scale: float) -> None:
    """Raises HybridOpsError for a scale that is not above 0."""
    if not np.float32(scale) > 0:
        raise check.refuse(op, "scale_value", "not above 0", got=f"{scale:g}", allowed="> 0", soc="every SoC")


def check_metadata(op: str, arrays: Arrays, pool: tuple[int, ...], soc: str) -> None:
    """Refuse metadata that a schedule could not mean. Raises HybridOpsError naming the first bad element.

    Per sequence: 0 <= length <= W * page_size; every page it needs inside the pool and named once; further entries
    inside the pool or negative. Per query: a sequence there is; unless that has length 0, a position inside it.
    """
    pages, page_size = pool
    lengths, tables = arrays["context_lens"], arrays["block_tables"]

    def no(argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
        return check.refuse(op, argument, wrong, got=got, allowed=allowed, soc=soc)

    width = tables.shape[1]
    for b, length in enumerate(lengths.tolist()):
        if length < 0:
            raise no("context_lens", "negative length", f"{length} at [{b}]", ">= 0")
        required = -(-length // page_size)
        if required > width:
            rule = f"<= {width * page_size}, {width} pages of {page_size}"
            raise no("context_lens", "longer than its pages", f"{length} at [{b}]", rule)
        seen: set[int] = set()
        for w, page in enumerate(tables[b].tolist()):
            if page >= pages or (page < 0 and w < required):
                raise no("block_tables", "page outside the pool", f"{page} at [{b}, {w}]", f"0..{pages - 1}")
            if w < required and page in seen:
                raise no(
                    "block_tables", "page twice in one sequence", f"{page} at [{b}, {w}]", "distinct pages"
                )
            seen.add(page)
    for i, (sequence, position) in enumerate(
        zip(arrays["sequence_ids"].tolist(), arrays["positions"].tolist(), strict=True)
    ):
        if not 0 <= sequence < len(lengths):
            raise no("sequence_ids", "no such sequence", f"{sequence} at [{i}]", f"0..{len(lengths) - 1}")
        length = int(lengths[sequence])
        if position < 0 or (length > 0 and position >= length):
            allowed = f"0..{length - 1}" if length else ">= 0"
            raise no("positions", "outside its sequence", f"{position} at [{i}]", allowed)


def check_finite(op: str, arrays: Arrays, queries: Sequence[str], caches: Sequence[str], soc: str) -> None:
    """Refuse infinities and NaN in queries, and in slots that some sequence counts. Raises HybridOpsError."""
    schedule = Schedule(
        np.arange(len(arrays["context_lens"])), np.zeros(len(arrays["context_lens"])), arrays["context_lens"],
        arrays["block_tables"], arrays[caches[0]].shape[:2], False,
    )  # fmt: skip
    used = [schedule.slots(b, 0, schedule.end(b)) for b in range(len(schedule.lengths))]
    for name in (*queries, *caches):
        data = arrays[name].astype(np.float32)
        if name in caches:
            keep = np.zeros(data.shape[0] * data.shape[1], bool)
            keep[np.concatenate(used)] = True
            data = np.where(keep.reshape(*data.shape[:2], 1, 1), data, 0)
        bad = np.argwhere(~np.isfinite(data))
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            raise check.refuse(
                op, name, "not finite", got=f"{float(data[at])} at {list(at)}", allowed="finite", soc=soc
            )


def floors(
    specs: Mapping[str, Spec],
    soc: str,
    *,
    heads: int,
    score_dims: int,
    value_dims: int,
    caches: Sequence[str],
) -> roofline.Floors:
    """Cycles no kernel can beat when every slot of the pool belongs to one sequence and is seen by all its queries.

    Memory: queries, tables and each cache read once, the output written once. Cube: q k and p v of every query, slot
    and head; half of it where a causal prefill fills the whole cache. Vector, per score in fp32: one subtraction, one
    exponential, one cast. Lengths are data and not known here: a pool that is not full has lower floors.
    """
    pages, page_size = (int(n) for n in specs[caches[0]].shape[:2])
    queries, sequences = int(specs["query"].shape[0]), int(specs["context_lens"].shape[0])
    slots = pages * page_size / max(sequences, 1)
    # A prefill of n queries into n slots sees (n + 1) / 2 of them on average, a decode step all.
    each = queries / max(sequences, 1)
    seen = max(slots - (each - 1) / 2, slots / 2)
    scores = queries * heads * seen
    dtype = specs["query"].dtype
    passes = [roofline.Pass("Sub.f32", scores), roofline.Pass("Exp.f32", scores)]
    if dtype != "float32":
        passes.append(roofline.Pass("Cast.f16f32", scores))
    products = [roofline.Product(queries * heads, score_dims + value_dims, seen, dtype)]
    read = sum(roofline.size(spec) for spec in specs.values())
    written = queries * heads * (value_dims * dtypes.NUMPY[dtype].itemsize + 4)
    return roofline.floors(read, written, passes, soc, products)


def schedule_arrays(
    rng: np.random.Generator,
    lengths: Sequence[int],
    queries: Any,
    page_size: int,
    spare: int,
    width: int | None,
) -> dict[str, Any]:
    """Metadata of a call: pages of each sequence at random places of a pool with `spare` pages that nobody uses.

    `queries`: "decode" (one per sequence at its end), {"prefill": n} (the last n positions of each), or a list of
    (sequence, position). Returns the four int tensors and the number of pages under "pages".
    """
    needs = [-(-n // page_size) for n in lengths]
    pages = sum(needs) + spare
    order = rng.permutation(pages).tolist()
    tables = np.full((len(lengths), max(needs) if width is None else width), PADDING)
    for b, need in enumerate(needs):
        tables[b, :need] = [order.pop() for _ in range(need)]
    if queries == "decode":
        queries = [(b, max(n - 1, 0)) for b, n in enumerate(lengths)]
    elif isinstance(queries, dict):
        queries = [(b, p) for b, n in enumerate(lengths) for p in range(max(0, n - queries["prefill"]), n)]
    flat = np.array(queries, np.int64).reshape(-1, 2)
    return {
        "sequence_ids": flat[:, 0], "positions": flat[:, 1], "context_lens": np.array(lengths, np.int64),
        "block_tables": tables, "pages": pages,
    }  # fmt: skip


def poison(arrays: Arrays, caches: Sequence[str]) -> None:
    """NaN in every slot that no sequence counts, so that reading one shows."""
    pool = arrays[caches[0]].shape[:2]
    tables, lengths = arrays["block_tables"], arrays["context_lens"]
    everything = Schedule(np.arange(len(lengths)), lengths, lengths, tables, pool, False)
    unused = np.ones(pool[0] * pool[1], bool)
    for b in range(len(lengths)):
        unused[everything.slots(b, 0, everything.end(b))] = False
    for name in caches:
        arrays[name].reshape(-1, *arrays[name].shape[2:])[unused] = np.nan


def expect_close(inputs: Arrays, outputs: Arrays, *, meaning: Any, attrs: Mapping[str, Any]) -> None:
    """Element by element: 2e-5 in fp32, 1e-3 absolute and relative in fp16, 8e-3 and 1.6e-2 in bf16."""
    got = outputs["attention_out"]
    want = meaning(**inputs, **attrs)["attention_out"].astype(np.float64)
    absolute, relative = {"float32": (2e-5, 2e-5), "float16": (1e-3, 1e-3), "bfloat16": (8e-3, 1.6e-2)}[
        dtypes.name_of(got.dtype)
    ]
    np.testing.assert_allclose(got.astype(np.float64), want, atol=absolute, rtol=relative)
