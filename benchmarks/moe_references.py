"""Routing, dispatch and experts against float64 and against other projects' reference functions: ids and errors, one table.

    python benchmarks/moe_references.py [--vllm FOLDER] [--flashinfer FOLDER] [--vllm-ascend FOLDER] [--backend sim|reference]

Folders are checkouts of those projects. Single functions are taken out of their files by name and run as they stand, so
neither the project nor what its tests import must be installed. All get the same data. Ids are compared exactly, as the sets of a
token where a reference names them in no order; maps of the dispatch exactly; an error of weights or outputs is the largest
|ours - theirs| over the largest |float64|, the last column theirs against float64. References round elsewhere than our operators:
experts in 16 bit differ by that.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy
import torch
import torch.nn.functional as F
from references import checkouts
from rich.console import Console
from rich.table import Table

from hybrid_ops import moe

CHIPS = {"ascend310p": ("float16",), "ascend910b": ("float16", "bfloat16", "float32")}
_ASCEND = "tests/e2e/nightly/single_node/ops/singlecard_ops"
FILES = {
    "vllm": ("tests/kernels/moe/test_routing.py", "tests/kernels/moe/test_cpu_fused_moe.py"),
    "flashinfer": ("tests/moe/trtllm_gen_fused_moe_utils.py", "tests/moe/test_unified_moe.py",
                   "tests/model_optimizations/test_dsv3_fused_routing.py"),
    "vllm-ascend": (f"{_ASCEND}/test_npu_moe_gating_top_k.py", f"{_ASCEND}/test_fused_moe.py"),
}  # fmt: skip
Routed = tuple[torch.Tensor, torch.Tensor]  # weights, ids [T, k]
console = Console(soft_wrap=True, highlight=False, width=150)


def named(folder: Path, name: str, **more: Any) -> Callable[..., Any]:
    """The function or class `name` of the project's files, alone; `more` are names that it looks up besides torch's."""
    for file in (f for files in FILES.values() for f in files):
        path = folder / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = next((n for n in tree.body if isinstance(n, kinds) and n.name == name), None)
        if found is not None:
            found.decorator_list = []
            space = {"torch": torch, "numpy": numpy, "F": F, **more}
            exec(compile(ast.Module([found], []), str(path), "exec"), space)
            return space[name]
    raise SystemExit(f"moe_references: {folder}: no {name} in {', '.join(sum(FILES.values(), ()))}")


@dataclass(frozen=True)
class Router:
    """Rows of logits and how a model routes them; groups: sigmoid with bias, as DeepSeek-V3 does it."""

    name: str
    experts: int
    top_k: int
    groups: tuple[int, int] | None = None
    norm: bool = True
    scale: float = 1.0
    tokens: int = 193

    def data(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits [T, E], distinct in every row after rounding, so that no reference has ties to break; float32 bias [E]."""
        draw = torch.Generator().manual_seed(3)
        steps = torch.stack([torch.randperm(self.experts, generator=draw) for _ in range(self.tokens)])
        logits = (steps / self.experts * 2 - 1).to(dtype)
        return logits, torch.randn(self.experts, generator=draw) * 0.1 if self.groups else None

    def ours(self, x: torch.Tensor, bias: torch.Tensor | None, **options: Any) -> moe.RoutingPlan:
        if self.groups is None:
            return moe.route(x, moe.SoftmaxOptions(self.top_k, self.norm), **options)
        groups, selected = self.groups
        how = moe.SigmoidGroupedOptions(self.top_k, groups, selected, groups > 1, self.norm, self.scale)
        return moe.route_sigmoid_grouped(x, bias, how, **options)

    def exact(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Weights of `ids` in float64."""
        wide = x.double()
        scores = torch.sigmoid(wide) if self.groups else torch.softmax(wide, -1)
        chosen = scores.gather(1, ids.long())
        return (chosen / chosen.sum(1, keepdim=True) if self.norm else chosen) * self.scale


ROUTERS = (
    Router("Qwen3-30B", 128, 8),
    Router("Qwen3-Next", 512, 10),
    Router("Qwen1.5-MoE, raw", 60, 4, norm=False),
    Router("Mixtral", 8, 2),
    Router("DeepSeek-V3", 256, 8, (8, 4), scale=2.5),
    Router("Kimi-K2", 384, 8, (1, 1), scale=2.827),
)


def of_dense(scores: torch.Tensor, k: int) -> Routed:
    """Weights and ids of a dense [T, E] result, 0 where not selected."""
    return torch.topk(scores.float(), k, dim=-1)


def vllm(
    folder: Path, router: Router, x: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[tuple[str, Routed]]:
    if router.groups is None:
        yield "baseline_fused_topk", named(folder, "baseline_fused_topk")(x, router.top_k, router.norm)
        return
    arguments = (x, router.top_k, *router.groups, "sigmoid", router.norm, bias, router.scale)
    yield "baseline_grouped_topk", named(folder, "baseline_grouped_topk")(*arguments)


def flashinfer(
    folder: Path, router: Router, x: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[tuple[str, Routed]]:
    wide, k = x.float(), router.top_k
    if router.groups is None:
        names = ("routing_reference_renormalize", "routing_reference_renormalize_naive")
        for name in names if router.norm else ("routing_reference_default",):
            permute = named(folder, "routing_reference")
            found = named(folder, name, routing_reference=permute)(wide, k, router.experts, 1)
            yield name, of_dense(found[1], k)
        return
    yield (
        "noaux_tc_ref",
        of_dense(named(folder, "noaux_tc_ref")(wide, bias, *router.groups, k, router.scale), k),
    )
    truth = named(folder, "DSv3RoutingGroundTruth")(x, bias, *router.groups, k, router.scale, x.dtype)
    yield "DSv3RoutingGroundTruth", (truth.ref_expert_values, truth.ref_expert_indices)


def vllm_ascend(
    folder: Path, router: Router, x: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[tuple[str, Routed]]:
    reference = named(folder, "moe_gating_top_k_numpy_ref", softmax_func=named(folder, "softmax_func"))
    groups, selected = router.groups or (1, 1)
    y, ids, _ = reference(
        x.float(), router.top_k, bias, selected, groups, int(groups > 1), int(router.norm),
        int(router.groups is not None), False, router.scale,
    )  # fmt: skip
    yield "moe_gating_top_k_numpy_ref", (y, torch.from_numpy(ids))


PEERS: dict[str, Callable[..., Iterator[tuple[str, Routed]]]] = {
    "vllm": vllm, "flashinfer": flashinfer, "vllm-ascend": vllm_ascend,
}  # fmt: skip


def by_expert(weights: torch.Tensor, ids: torch.Tensor) -> Routed:
    order = ids.long().argsort(1)
    return weights.double().gather(1, order), ids.long().gather(1, order)


def error(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> str:
    return f"{float((a.double() - b.double()).abs().max() / scale.abs().max()):.1e}"


def routing(folders: dict[str, Path], kind: str, options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for router in ROUTERS:
        x, bias = router.data(getattr(torch, kind))
        plan = router.ours(x, bias, **options)
        mine, ids = by_expert(plan.weights(), plan.expert_indices())
        exact = router.exact(x, ids)
        yield router.name, "float64", "-", error(mine, exact, exact), ""
        for project, folder in folders.items():
            for name, found in PEERS[project](folder, router, x, bias):
                theirs, other = by_expert(*found)
                same = (
                    "equal" if torch.equal(ids, other) else f"{int((ids != other).any(1).sum())} rows differ"
                )
                yield (
                    router.name,
                    f"{project} {name}",
                    same,
                    error(mine, theirs, exact),
                    error(theirs, exact, exact),
                )


def dispatch(folders: dict[str, Path], kind: str, options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """flashinfer permutes by the order of its own top-k: that of our plan, best first."""
    if "flashinfer" not in folders:
        return
    for router in ROUTERS[:4]:
        x, _ = router.data(getattr(torch, kind))
        plan = router.ours(x, None, **options)
        made = plan.dispatch(torch.zeros(router.tokens, 16, dtype=x.dtype))
        found = named(folders["flashinfer"], "routing_reference")(x.float(), router.top_k, 1)
        pairs = (
            (made.slot_rows.reshape(-1), found["expandedTokenIdxToPermutedIdx"]),
            (made.sorted_slots, found["permutedIdxToExpandedIdx"]),
            (made.offsets, found["paddedTokensPerExpertPrefixSum"]),
        )
        same = all(torch.equal(a.long(), b.long()) for a, b in pairs)
        yield (
            f"dispatch of {router.name}",
            "flashinfer routing_reference",
            "equal" if same else "differ",
            "",
            "",
        )


def references(
    folders: dict[str, Path],
    x: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
) -> Iterator[tuple[str, torch.Tensor]]:
    inner = w2.shape[2]

    def activation(rows: torch.Tensor) -> torch.Tensor:
        return F.silu(rows[..., :inner]) * rows[..., inner:]

    if "vllm" in folders:
        known = {"silu": SimpleNamespace(forward_native=activation)}
        reference = named(folders["vllm"], "ref_fused_moe", _CPU_MOE_ACT=known)
        yield "vllm ref_fused_moe", reference(x, w13, w2, None, None, weights.float(), ids, "silu")
    if "vllm-ascend" in folders:
        reference = named(folders["vllm-ascend"], "torch_moe", SiluAndMul=lambda: activation)
        yield "vllm-ascend torch_moe", reference(x, w13, w2, weights, ids, ids.shape[1], None)
    if "flashinfer" in folders and x.dtype == torch.bfloat16:
        turned = torch.cat([w13[:, inner:], w13[:, :inner]], 1)  # its first half is the linear one
        yield (
            "flashinfer _bf16_dense_reference",
            named(folders["flashinfer"], "_bf16_dense_reference")(x, turned, w2, ids.long(), weights, inner),
        )


def experts(folders: dict[str, Path], kind: str, options: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    torch.manual_seed(4)
    dtype, (count, hidden, inner, tokens) = getattr(torch, kind), (16, 128, 96, 37)
    w13 = (torch.randn(count, 2 * inner, hidden) * hidden**-0.5).to(dtype)
    w2 = (torch.randn(count, hidden, inner) * inner**-0.5).to(dtype)
    x, logits = torch.randn(tokens, hidden).to(dtype), torch.randn(tokens, count).to(dtype)
    plan = moe.route(logits, moe.SoftmaxOptions(4, True), **options)
    weights, ids = plan.weights(), plan.expert_indices()
    both = torch.einsum("th,eih->tei", x.double(), w13.double())
    every = torch.einsum("tei,ehi->teh", F.silu(both[..., :inner]) * both[..., inner:], w2.double())
    exact = (every.gather(1, ids.long()[..., None].expand(-1, -1, hidden)) * weights.double()[..., None]).sum(
        1
    )
    for strategy in ("scalar", "cube"):
        if strategy == "cube" and kind == "float32":
            continue
        mine = moe.fused_experts(x, w13, w2, weights, ids, strategy=strategy, **options)
        yield f"experts, {strategy}", "float64", "-", error(mine, exact, exact), ""
        for name, theirs in references(folders, x, w13, w2, weights, ids):
            yield f"experts, {strategy}", name, "-", error(mine, theirs, exact), error(theirs, exact, exact)


def main() -> None:
    folders, backend = checkouts(__doc__ or "", PEERS)
    table = Table("SoC", "dtype", "call", "truth", "ids, maps", "ours - truth", "truth - float64")
    for soc, kinds in CHIPS.items():
        where = {"soc": soc, "backend": backend}
        for kind in kinds:
            for part in (routing, dispatch, experts):
                for row in part(folders, kind, where):
                    table.add_row(soc, kind, *row)
    console.print(table)


if __name__ == "__main__":
    main()
