"""Paged attention and MLA against a float64 gather and against other projects' reference functions: errors, one table.

    python benchmarks/paged_references.py [--flashinfer FOLDER] [--sgl-kernel-npu FOLDER] [--vllm-ascend FOLDER]
                                          [--backend sim|reference]

Folders are checkouts of those projects. Single functions are taken out of their test files by name and run as they stand, so
neither the project nor what its tests import must be installed. Each gets the same data as our kernel, in the dtype of
the call. An error is the largest |ours - theirs| over the largest |float64|; the last column is theirs against float64.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional
from references import checkouts
from rich.console import Console
from rich.table import Table

from hybrid_ops import paged

CHIPS = {"ascend310p": ("float16",), "ascend910b": ("float16", "bfloat16", "float32")}
FILES = {
    "flashinfer": (
        "tests/attention/test_trtllm_gen_attention_decode.py",
        "tests/attention/test_deepseek_mla.py",
    ),
    "sgl-kernel-npu": ("tests/python/sgl_kernel_npu/test_decode_attention.py",),
    "vllm-ascend": ("tests/ut/attention/a2/test_attention_v1_precision.py",),
}
console = Console(soft_wrap=True, highlight=False, width=150)


def function(folder: Path, name: str, **more: Any) -> Callable[..., Any]:
    """The function `name` of the project's test files, alone; `more` are names that it looks up besides torch's."""
    for file in (f for files in FILES.values() for f in files):
        path = folder / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
        if found is not None:
            found.decorator_list = []
            space = {"torch": torch, "np": np, "math": math, "F": torch.nn.functional, **more}
            exec(compile(ast.Module([found], []), str(path), "exec"), space)
            return space[name]
    raise SystemExit(
        f"paged_references: {folder}: no function {name} in {', '.join(sum(FILES.values(), ()))}"
    )


@dataclass(frozen=True)
class Call:
    """One batch: sequences with `lengths` tokens, the last `queries` of each are asked."""

    name: str
    lengths: tuple[int, ...]
    queries: tuple[int, ...]
    heads: tuple[int, int]
    dims: tuple[int, int]
    page: int = 16
    rope: int = 0

    def tables(self) -> list[list[int]]:
        """Pages of each sequence, all pages of the pool in mixed order."""
        needed = [-(-n // self.page) for n in self.lengths]
        pages = np.random.default_rng(1).permutation(sum(needed)).tolist()
        return [[pages.pop() for _ in range(n)] for n in needed]

    def plan(self) -> paged.HostPlan:
        tables = self.tables()
        ids = [s for s, n in enumerate(self.queries) for _ in range(n)]
        positions = [
            length - n + i for length, n in zip(self.lengths, self.queries, strict=True) for i in range(n)
        ]
        return paged.HostPlan(self.page, sum(map(len, tables)), tables, self.lengths, ids, positions)

    def data(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        made, plan = torch.Generator().manual_seed(2), self.plan()
        pool, rows = (plan.pages, self.page, self.heads[1]), (plan.queries, self.heads[0])
        sizes = {"query": (*rows, self.dims[0]), "key": (*pool, self.dims[0]), "value": (*pool, self.dims[1])}
        if self.rope:
            sizes |= {"rope": (*rows, self.rope), "turned": (*pool, self.rope)}
        data = {name: torch.randn(*size, generator=made).to(dtype) for name, size in sizes.items()}
        return data | ({"value": data["key"]} if self.rope else {})

    @property
    def scale(self) -> float:
        return float((self.dims[0] + self.rope) ** -0.5)

    def padded_tables(self) -> torch.Tensor:
        tables = self.tables()
        width = max(map(len, tables))
        return torch.tensor([t + [0] * (width - len(t)) for t in tables], dtype=torch.int32)


GROUPED = [
    Call("decode, Qwen3.5-4B heads", (37, 1, 64, 150), (1, 1, 1, 1), (16, 4), (256, 256)),
    Call("prefill and decode", (23, 40), (23, 1), (8, 2), (64, 64)),
]
LATENT = [
    Call("MLA decode, 512 and 64", (37, 37), (1, 1), (16, 1), (512, 512), rope=64),
    Call("MLA chunk, 512 and 64", (11, 11), (3, 3), (4, 1), (512, 512), rope=64),
]


def gathered(call: Call, x: dict[str, torch.Tensor]) -> torch.Tensor:
    """float64, query by query."""
    plan, out = call.plan(), []
    for i, (s, position) in enumerate(zip(plan.sequence_ids.tolist(), plan.positions.tolist(), strict=True)):
        at = [int(plan.tables[s][t // call.page]) * call.page + t % call.page for t in range(position + 1)]
        share = call.heads[0] // call.heads[1]

        def rows(name: str, at: list[int] = at, share: int = share) -> torch.Tensor:
            return x[name].flatten(0, 1)[at].double().repeat_interleave(share, 1)

        scores = torch.einsum("hd,thd->ht", x["query"][i].double(), rows("key"))
        if call.rope:
            scores += torch.einsum("hd,thd->ht", x["rope"][i].double(), rows("turned"))
        out.append(torch.einsum("ht,thd->hd", (scores * call.scale).softmax(-1), rows("value")))
    return torch.stack(out)


def ours(call: Call, x: dict[str, torch.Tensor], soc: str, backend: str) -> torch.Tensor:
    """Our operator through a plan."""
    plan = paged.DevicePlan.upload(call.plan(), x["query"])
    options = {"backend": backend, "soc": soc}
    if call.rope:
        return paged.mla(plan, x["query"], x["rope"], x["key"], x["turned"], call.scale, True, **options)
    return paged.attention(plan, x["query"], x["key"], x["value"], call.scale, True, **options)


def flashinfer(folder: Path, call: Call, x: dict[str, torch.Tensor]) -> torch.Tensor:
    if call.rope:
        length, asked = call.lengths[0], call.queries[0]
        expand = function(folder, "generate_kv_from_cache")
        tables, per = call.padded_tables(), -(-length // call.page)
        latent, turned = (x[n][tables.flatten()[: per * len(tables)].long(), :, 0] for n in ("key", "turned"))
        k, v = expand(latent, turned, length, len(tables), call.heads[0])
        query = torch.cat([x["query"], x["rope"]], -1)
        v = v.reshape(-1, call.heads[0], call.dims[1])
        out, _ = function(folder, "attention_ref")(len(call.lengths), query, k, v, asked > 0, call.scale)
        return out
    pool = torch.stack([x["key"], x["value"]], 1)
    return function(folder, "sdpa_paged_reference")(
        x["query"], pool, torch.tensor(call.queries), torch.tensor(call.lengths), call.padded_tables(), call.page, *call.heads,
        call.dims[0], "NHD", -1,
    )  # fmt: skip


def sgl_kernel_npu(folder: Path, call: Call, x: dict[str, torch.Tensor]) -> torch.Tensor | None:
    if max(call.queries) > 1:  # its golden has no mask: every query sees the whole sequence
        return None
    asked, lengths, tables = list(call.queries), list(call.lengths), call.padded_tables()
    if call.rope:
        query = torch.cat([x["query"], x["rope"]], -1)
        golden = function(folder, "decode_mla_golden")
        return golden(query, x["key"], x["value"], x["turned"], asked, lengths, tables, call.scale)
    golden = function(folder, "decode_gqa_golden")
    return golden(x["query"].clone(), x["key"], x["value"], asked, lengths, tables, call.scale)


def vllm_ascend(folder: Path, call: Call, x: dict[str, torch.Tensor]) -> torch.Tensor | None:
    if call.rope:  # its MLA reference includes the model's projections
        return None
    names = SimpleNamespace(DECODER=0, ENCODER_ONLY=1)
    reference = function(folder, "compute_sdpa_reference", BatchSpec=object, AttentionType=names)
    rows: dict[str, list[torch.Tensor]] = {"key": [], "value": []}
    for length, table in zip(call.lengths, call.tables(), strict=True):
        for name in rows:
            rows[name].append(x[name][table].flatten(0, 1)[:length])
    old = {
        name: [r[: len(r) - n] for r, n in zip(part, call.queries, strict=True)]
        for name, part in rows.items()
    }
    new = {
        name: torch.cat([r[len(r) - n :] for r, n in zip(part, call.queries, strict=True)])
        for name, part in rows.items()
    }
    spec = SimpleNamespace(batch_size=len(call.lengths), seq_lens=call.lengths, query_lens=call.queries)
    return reference(
        x["query"], new["key"], new["value"], old["key"], old["value"], spec, *call.heads, call.dims[0], call.scale, x["query"].device,
        names.DECODER,
    )  # fmt: skip


PEERS: dict[str, Callable[..., Any]] = {
    "flashinfer": flashinfer,
    "sgl-kernel-npu": sgl_kernel_npu,
    "vllm-ascend": vllm_ascend,
}


def error(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max() / scale.abs().max())


def rows(folders: dict[str, Path], backend: str) -> Iterator[tuple[str, ...]]:
    for soc, kinds in CHIPS.items():
        for kind in kinds:
            for call in GROUPED + LATENT:
                x = call.data(getattr(torch, kind))
                exact, mine = gathered(call, x), ours(call, x, soc, backend)
                yield soc, kind, call.name, "float64 gather", f"{error(mine, exact, exact):.1e}", ""
                for name, folder in folders.items():
                    theirs = PEERS[name](folder, call, x)
                    if theirs is not None:
                        found = error(mine, theirs, exact), error(theirs, exact, exact)
                        yield soc, kind, call.name, name, *(f"{e:.1e}" for e in found)


def main() -> None:
    folders, backend = checkouts(__doc__ or "", PEERS)
    table = Table("SoC", "dtype", "call", "truth", "ours - truth", "truth - float64")
    for row in rows(folders, backend):
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
