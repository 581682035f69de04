"""Paged attention: estimated cycles against the floors, decode and prefill, with and without splits.

    python benchmarks/paged_attention.py [--lengths 1024 4096] [--batches 1 16] [--prefill 2048] [--splits 1 10]
                                         [--chips Ascend310P3] [--models …] [--most-gib 3] [--gate ID]

Nothing is printed for an operator whose cases fail (--gate ID takes fewer of them). Every call is simulated whole; a call whose
caches exceed --most-gib, or whose partial results exceed the operator's 64 MiB, stands in the table without figures. Cycles come
from the timing replay; on ascend310p they are uncalibrated and only rank variants. Floors:
python/hybrid_ops/ops/_paged_attention.py. The second table is the one published measurement of a 910-class chip that states its
shape (vllm-ascend pull request 15526: 12 heads of 64, one query, an A3 with 48 vector cores), beside ours on 40 vector cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from rich.console import Console
from rich.table import Table

from hybrid_ops import contract, dtypes, profile, selftest
from hybrid_ops import soc as platform

CHIPS = ("Ascend310P3", "Ascend910B3")
PAGE = 128
PARTIAL_BYTES = 64 * 2**20  # what the operators allow for partial results
# Slots -> (µs of the vector kernel, µs of the stock operator where it is stated), vllm-ascend pull request 15526.
PUBLISHED = {128: (4.4, 22.6), 512: (10.3, None), 1024: (17.6, None), 2048: (32.7, None), 4096: (63.0, 38.9)}
console = Console(soft_wrap=True, highlight=False, width=170)


@dataclass(frozen=True)
class Attention:
    """Heads and dims of an attention layer; `rope` is 0 but for latent attention, whose value is its latent."""

    model: str
    heads: int
    kv_heads: int
    dim: int
    rope: int = 0
    scale: float = 0.0

    @property
    def op(self) -> str:
        return "hybrid_paged_mla" if self.rope else "hybrid_paged_attention"


MODELS = (
    Attention("Qwen3.5-4B", 16, 4, 256),
    Attention("Qwen3-30B-A3B", 32, 4, 128),
    Attention("DeepSeek-V3", 128, 1, 512, 64, 192**-0.5),
)


SMALL = Attention("published", 12, 12, 64)


def inputs(shape: Attention, batch: int, length: int, queries: int, soc: str) -> dict[str, np.ndarray]:
    """One call: `batch` sequences of `length` slots in pages at random places, `queries` at the end of each."""
    rng = np.random.default_rng(1)
    per = -(-length // PAGE)
    pages = batch * per
    op = contract.load()[shape.op]
    kinds = {t.name: dtypes.NUMPY[t.dtypes[soc][0]] for t in op.inputs}
    rows = batch * queries

    def cache(dim: int) -> np.ndarray:
        # Values do not change cycles; repeating a page keeps set-up short.
        page = rng.standard_normal((1, PAGE, shape.kv_heads, dim)).astype(np.float16)
        return np.broadcast_to(page, (pages, *page.shape[1:]))

    arrays = {
        "query": rng.standard_normal((rows, shape.heads, shape.dim), np.float32),
        "sequence_ids": np.repeat(np.arange(batch), queries),
        "positions": np.tile(np.arange(length - queries, length), batch),
        "context_lens": np.full(batch, length),
        "block_tables": rng.permutation(pages).reshape(batch, per),
    }
    if shape.rope:
        arrays["query_rope"] = rng.standard_normal((rows, shape.heads, shape.rope), np.float32)
        arrays |= {"kv_cache": cache(shape.dim), "key_rope_cache": cache(shape.rope)}
    else:
        arrays |= {"key_cache": cache(shape.dim), "value_cache": cache(shape.dim)}
    return {name: np.ascontiguousarray(arrays[name].astype(kind)) for name, kind in kinds.items()}


@dataclass(frozen=True)
class Work:
    """One call to time."""

    shape: Attention
    chip: platform.Soc
    name: str
    batch: int
    length: int
    queries: int
    splits: int

    @property
    def cache_bytes(self) -> int:
        shape = self.shape
        width = shape.kv_heads * (shape.dim * (1 if shape.rope else 2) + shape.rope)
        return self.batch * self.length * width * 2

    @property
    def partial_bytes(self) -> int:
        rows = self.batch * self.queries * self.shape.heads
        return rows * self.splits * (self.shape.dim + 2) * 4 if self.splits > 1 else 0

    def left_out(self, most_gib: float) -> str:
        """Why the call is not made; empty if it is."""
        if self.cache_bytes > most_gib * 2**30:
            return f"left out: caches of {self.cache_bytes / 2**30:.1f} GiB"
        if self.partial_bytes > PARTIAL_BYTES:
            return f"refused: partial results of {self.partial_bytes / 2**20:.0f} MiB"
        return ""


def works(options: argparse.Namespace) -> list[Work]:
    """Calls of the table, in its order."""
    listed = []
    for shape in (m for m in MODELS if m.model in options.models):
        for chip in map(platform.load, options.chips):
            for length in options.lengths:
                for batch in options.batches:
                    name = f"decode {length}, batch {batch}"
                    listed += [Work(shape, chip, name, batch, length, 1, n) for n in options.splits]
            listed += [Work(shape, chip, f"prefill {n}", 1, n, n, 1) for n in options.prefill]
    return listed


def measure(work: Work) -> profile.Profile:
    shape = work.shape
    arrays = inputs(shape, work.batch, work.length, work.queries, work.chip.family)
    attrs = {"scale_value": shape.scale or shape.dim**-0.5, "causal": True, "num_splits": work.splits}
    return profile.run(shape.op, arrays, attrs, soc=f"Ascend{work.chip.variant}")


def gate(ops: Iterable[str], only: str) -> bool:
    """Whether every case of the operators holds."""
    held = True
    for op in ops:
        outcomes = list(selftest.run(op, only=only))
        faults = [o for o in outcomes if o.fault]
        for outcome in faults:
            console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
        console.print(f"gate {op}: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
        held = held and not faults
    return held


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def against_floors(options: argparse.Namespace) -> Table:
    table = Table(
        "model", "chip", "work", "splits", "cycles", "µs", "memory floor", "cube floor", "vector floor",
        "cycles / larger floor", "bound",
        title="paged attention, pages of 128, first dtype of each SoC", title_justify="left",
    )  # fmt: skip
    listed = works(options)
    for at, work in enumerate(listed, 1):
        head = (work.shape.model, work.chip.variant, work.name, str(work.splits))
        why = work.left_out(options.most_gib)
        progress(f"{at} of {len(listed)}: {', '.join(head)} splits {why}")
        if why:
            table.add_row(*head, why)
            continue
        made = measure(work)
        floors, mark = made.floors, " *" if work.chip.uncalibrated else ""
        assert floors is not None
        table.add_row(
            *head, f"{made.cycles:,.0f}", f"{made.timing['us']:.1f}{mark}", f"{floors.memory_cycles:,.0f}",
            f"{floors.cube_cycles:,.0f}", f"{floors.vector_cycles:,.0f}", f"{made.ratio or 0:.2f}", str(made.timing["bound"]),
        )  # fmt: skip
    return table


def against_published(splits: Iterable[int]) -> Table:
    chip = platform.load("Ascend910B3")
    table = Table(
        "slots", *(f"ours, splits {n}, µs" for n in splits), "published vector kernel, µs", "published stock operator, µs",
        title="12 heads of 64 over 12 kv heads, one query, Ascend910B3", title_justify="left",
    )  # fmt: skip
    for length, measured in PUBLISHED.items():
        progress(f"published shape, {length} slots")
        mine = [f"{measure(Work(SMALL, chip, '', 1, length, 1, n)).timing['us']:.1f}" for n in splits]
        table.add_row(str(length), *mine, *("" if us is None else f"{us:.1f}" for us in measured))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 32768])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048])
    parser.add_argument("--splits", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--chips", nargs="*", default=list(CHIPS))
    parser.add_argument("--models", nargs="*", default=[m.model for m in MODELS])
    parser.add_argument("--most-gib", type=float, default=3.0, help="leave out calls with larger caches")
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    options = parser.parse_args()
    began = time.monotonic()
    if not gate(dict.fromkeys(m.op for m in MODELS), options.gate):
        return 1
    console.print(against_floors(options))
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    if any("910B" in chip for chip in options.chips):
        console.print(against_published(options.splits))
    progress(f"done in {(time.monotonic() - began) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
