"""Paged attention: estimated cycles against the floors, decode and prefill, with and without splits.

    python benchmarks/paged_attention.py [--lengths 1024 4096] [--batches 1 16] [--prefill 2048] [--chips 310P3] [--models …]

Nothing is printed for an operator whose cases fail (--gate ID takes fewer of them). Cycles come from the timing replay; on
ascend310p they are uncalibrated and only rank variants. Floors: python/hybrid_ops/ops/_paged_attention.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from rich.console import Console
from rich.table import Table

from hybrid_ops import contract, dtypes, profile, selftest
from hybrid_ops import soc as platform

CHIPS = ("Ascend310P3", "Ascend910B3")
PAGE = 128
MOST_BYTES = 1 << 29  # caches beyond this are left out
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
        "query": rng.standard_normal((rows, shape.heads, shape.dim)),
        "sequence_ids": np.repeat(np.arange(batch), queries),
        "positions": np.tile(np.arange(length - queries, length), batch),
        "context_lens": np.full(batch, length),
        "block_tables": rng.permutation(pages).reshape(batch, per),
    }
    if shape.rope:
        arrays["query_rope"] = rng.standard_normal((rows, shape.heads, shape.rope))
        arrays |= {"kv_cache": cache(shape.dim), "key_rope_cache": cache(shape.rope)}
    else:
        arrays |= {"key_cache": cache(shape.dim), "value_cache": cache(shape.dim)}
    return {name: np.ascontiguousarray(arrays[name].astype(kind)) for name, kind in kinds.items()}


def workloads(options: argparse.Namespace) -> Iterator[tuple[str, int, int, int, tuple[int, ...]]]:
    """(name, batch, length, queries, splits to try)."""
    for length in options.lengths:
        for batch in options.batches:
            yield f"decode {length}, batch {batch}", batch, length, 1, tuple(options.splits)
    for length in options.prefill:
        yield f"prefill {length}", 1, length, length, (1,)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 32768])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048])
    parser.add_argument("--splits", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--chips", nargs="*", default=list(CHIPS))
    parser.add_argument("--models", nargs="*", default=[m.model for m in MODELS])
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    options = parser.parse_args()
    for op in dict.fromkeys(m.op for m in MODELS):
        outcomes = list(selftest.run(op, only=options.gate))
        faults = [o for o in outcomes if o.fault]
        for outcome in faults:
            console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
        console.print(f"gate {op}: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
        if faults:
            return 1
    table = Table(
        "model", "chip", "work", "splits", "cycles", "µs", "memory floor", "cube floor", "vector floor",
        "cycles / floor", "bound",
        title="paged attention, pages of 128, first dtype of each SoC", title_justify="left",
    )  # fmt: skip
    for shape in (m for m in MODELS if m.model in options.models):
        for chip in map(platform.load, options.chips):
            for name, batch, length, queries, splits in workloads(options):
                size = (
                    batch * length * shape.kv_heads * (shape.dim * (1 if shape.rope else 2) + shape.rope) * 2
                )
                if size > MOST_BYTES:
                    continue
                arrays = inputs(shape, batch, length, queries, chip.family)
                for parts in splits:
                    attrs = {
                        "scale_value": shape.scale or shape.dim**-0.5,
                        "causal": True,
                        "num_splits": parts,
                    }
                    made = profile.run(shape.op, arrays, attrs, soc=f"Ascend{chip.variant}")
                    floors, mark = made.floors, " *" if chip.uncalibrated else ""
                    assert floors is not None
                    table.add_row(
                        shape.model, chip.variant, name, str(parts), f"{made.cycles:,.0f}",
                        f"{made.timing['us']:.1f}{mark}", f"{floors.memory_cycles:,.0f}", f"{floors.cube_cycles:,.0f}",
                        f"{floors.vector_cycles:,.0f}", f"{made.ratio or 0:.2f}", str(made.timing["bound"]),
                    )  # fmt: skip
    console.print(table)
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
