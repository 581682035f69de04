"""Mixture of experts at the sizes of real models: estimated cycles of all four operators against their floors, one table.

    python benchmarks/moe.py [--model NAME …] [--tokens N …] [--operator NAME …] [--chip NAME …] [--budget MACS] [--gate ID]
                             [--gating-peer KERNEL.cpp TILING.json] [--dispatch-peer KERNEL.cpp TILING.json]

Nothing is printed for operators whose cases fail. Gating takes float32 logits; rows are float16 on ascend310p, bfloat16 on
ascend910b; tokens go at random to top_k distinct experts each; experts run with strategy Auto. Gating, dispatch and
combination are simulated whole. Experts are whole as far as the budget of multiply-adds reaches, a weight counting as four;
beyond it the first of the hit experts with all their rows, how many of how many is said, and cycles and floors are those of
that part. Floors: see python/hybrid_ops/ops; memory is the bytes that must move over the peak rate (experts: their weights), the
other is the vector units' (experts: the cube's). Cycles come from the timing replay, so two runs print the same; on ascend310p
they are uncalibrated and only rank variants. Peers are kernels for ascend910b (see benchmarks/peer.py), cases of their tiling
files named `<model>x<tokens>`; the dispatch peer leaves its rows in expanded_x and their places in expanded_row_idx.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from peer import Peer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hybrid_ops import case, check, dtypes, profile, selftest
from hybrid_ops import soc as platform

GATING, DISPATCH, COMBINE = "hybrid_moe_gating_top_k", "hybrid_moe_init_routing", "hybrid_moe_combine"
EXPERTS = "hybrid_moe_swi_glu_experts"
CHIPS = {"Ascend310P3": "float16", "Ascend910B3": "bfloat16"}  # chip, dtype of rows
AUTO, CUBE = 2, 1
PEER_SOC = "ascend910b"
console = Console(soft_wrap=True, highlight=False, width=172)


@dataclass(frozen=True)
class Model:
    """As in the model's config.json; without `inner` only its routing is measured."""

    name: str
    experts: int
    top_k: int
    hidden: int
    inner: int | None = None
    gating: dict[str, Any] = field(default_factory=dict)


MODELS = [
    Model("Qwen3-30B-A3B", 128, 8, 2048, 768),
    Model("Qwen3-Next-80B-A3B", 512, 10, 2048, 512),
    Model("DeepSeek-V3", 256, 8, 7168, None,
          {"group_count": 8, "k_group": 4, "group_select_mode": 1, "norm_type": 1, "routed_scaling_factor": 2.5}),
    Model("Mixtral-8x7B", 8, 2, 4096, 14336),
]  # fmt: skip


@dataclass
class Call:
    """One launch, and what of the model's step it is."""

    op: str
    arrays: Mapping[str, np.ndarray | None]
    attrs: dict[str, Any]
    part: str = "whole"
    hit: int = 0  # experts with rows


def chosen(model: Model, tokens: int) -> np.ndarray:
    """Experts of every token, int32 [T, top_k]."""
    rng = np.random.default_rng(tokens)
    return rng.random((tokens, model.experts)).argsort(axis=1)[:, : model.top_k].astype(np.int32)


def filled(kind: np.dtype, *sizes: int) -> np.ndarray:
    """Values around 0 that repeat: cycles do not depend on them, and random ones by the billion take longer than the launch."""
    return np.resize((np.random.default_rng(1).standard_normal(65521) / 50).astype(kind), sizes)


def gating(model: Model, tokens: int, kind: np.dtype, budget: float) -> Call:
    rng = np.random.default_rng(1)
    x, bias = rng.standard_normal((tokens, model.experts)), rng.standard_normal(model.experts) * 0.1
    arrays = {"x": x.astype(np.float32), "bias": bias.astype(np.float32) if model.gating else None}
    return Call(GATING, arrays, {"k": model.top_k, "norm_topk_prob": True, **model.gating})


def dispatch(model: Model, tokens: int, kind: np.dtype, budget: float) -> Call:
    arrays = {"x": filled(kind, tokens, model.hidden), "expert_idx": chosen(model, tokens)}
    return Call(DISPATCH, arrays, {"expert_num": model.experts})


def experts(model: Model, tokens: int, kind: np.dtype, budget: float) -> Call:
    assert model.inner is not None
    rows = np.bincount(chosen(model, tokens).reshape(-1), minlength=model.experts)
    hit = rows[rows > 0]
    cost = np.cumsum((hit + 4.0) * 3 * model.hidden * model.inner)
    rows = hit[: max(1, int(np.searchsorted(cost, budget, side="right")))]
    arrays = {
        "expanded_x": filled(kind, int(rows.sum()), model.hidden),
        "gate": filled(kind, len(rows), 2 * model.inner, model.hidden),
        "down": filled(kind, len(rows), model.hidden, model.inner),
        "expert_offsets": np.concatenate([[0], np.cumsum(rows)]).astype(np.int32),
        "up": None,
    }
    part = "whole" if len(rows) == len(hit) else f"{len(rows)}/{len(hit)} experts"
    return Call(EXPERTS, arrays, {"strategy": AUTO}, part, len(rows))


def combine(model: Model, tokens: int, kind: np.dtype, budget: float) -> Call:
    slots, rng = tokens * model.top_k, np.random.default_rng(1)
    arrays = {
        "expanded_y": filled(kind, slots, model.hidden),
        "expanded_row_idx": rng.permutation(slots).reshape(tokens, -1).astype(np.int32),
        "scales": rng.random((tokens, model.top_k)).astype(kind),
    }
    return Call(COMBINE, arrays, {})


OPERATORS: dict[str, Callable[[Model, int, np.dtype, float], Call]] = {
    "gating": gating, "dispatch": dispatch, "experts": experts, "combine": combine,
}  # fmt: skip


def gate(operators: list[str], only: str) -> bool:
    """Run the operators' cases; False, with the faults on the console, when one fails or none ran."""
    named = {"gating": GATING, "dispatch": DISPATCH, "experts": EXPERTS, "combine": COMBINE}
    outcomes = [o for name in operators for o in selftest.run(named[name], only=only)]
    faults = [o for o in outcomes if o.fault]
    for outcome in faults:
        console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    return bool(outcomes) and not faults


def peer_cycles(peer: Peer, call: Call, key: str, chip: str, broken: set[str]) -> float:
    """The peer's cycles; its experts, rows and places must be the meaning's, its weights agree within 1e-4.

    A peer that breaks rules is timed all the same; `broken` takes what they are.
    """
    result = peer.launch(call.op, call.arrays, key, chip, attrs=call.attrs, record=True, despite_reports=True)
    wanted = case.module(call.op).meaning(**call.arrays, **call.attrs)
    for name in ("expert_idx", "expanded_x", "expanded_row_idx"):
        if name in wanted:
            np.testing.assert_array_equal(result.outputs[name].reshape(wanted[name].shape), wanted[name])
    if "y" in wanted:
        np.testing.assert_allclose(result.outputs["y"], wanted["y"], rtol=1e-4)
    assert result.timing is not None
    broken.update(
        f"{peer.label}: {h['rule']} of {h['api']}" for h in result.hazards if h["severity"] == "error"
    )
    return result.timing["cycles"]


def line(
    model: Model,
    tokens: int,
    name: str,
    operator: str,
    budget: float,
    peers: dict[str, Peer],
    broken: set[str],
) -> list[str]:
    chip = platform.load(name)
    call = OPERATORS[operator](model, tokens, dtypes.NUMPY[CHIPS[name]], budget)
    ran = profile.run(call.op, call.arrays, call.attrs, soc=name)
    floors = ran.floors
    if call.op == EXPERTS:
        specs = {
            n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in call.arrays.items() if a is not None
        }
        floors = case.module(EXPERTS).floors(specs, chip.family, {"strategy": CUBE}, hit=call.hit)
    assert floors is not None
    other = floors.cube_cycles if call.op == EXPERTS else floors.vector_cycles
    unit = "cube" if call.op == EXPERTS and ran.timing["busy"].get("M") else "vector"
    cells = [
        chip.variant + (" *" if chip.uncalibrated else ""), model.name, operator, str(tokens), call.part, unit,
        f"{ran.cycles:,.0f}", f"{floors.memory_cycles:,.0f}", f"{other:,.0f}",
        f"{ran.cycles / max(floors.memory_cycles, other):,.2f}",
    ]  # fmt: skip
    peer, key = peers.get(operator), f"{model.name}x{tokens}"
    if peer and peer.soc == chip.family and key in peer.cases:
        given = peer_cycles(peer, call, key, name, broken)
        cells += [f"{given:,.0f}", f"{ran.cycles / given:.2f}"]
    return cells


def lines(options: argparse.Namespace, peers: dict[str, Peer], broken: set[str]) -> Iterator[list[str]]:
    wanted = [
        (model, tokens, chip, operator)
        for chip in options.chip
        for model in MODELS
        for operator in options.operator
        for tokens in options.tokens
        if model.name in options.model and (operator != "experts" or model.inner)
    ]
    columns = (TextColumn("{task.description:50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(wanted))
        for model, tokens, chip, operator in wanted:
            bar.update(task, description=f"{chip} {model.name} {operator} T={tokens}")
            yield line(model, tokens, chip, operator, options.budget, peers, broken)
            bar.advance(task)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [model.name for model in MODELS]
    parser.add_argument("--model", nargs="+", default=names, choices=names)
    parser.add_argument("--operator", nargs="+", default=list(OPERATORS), choices=list(OPERATORS))
    parser.add_argument("--chip", nargs="+", default=list(CHIPS), choices=list(CHIPS))
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16, 256, 4096])
    parser.add_argument(
        "--budget", type=float, default=5e10, help="multiply-adds of experts to simulate per line"
    )
    parser.add_argument("--gate", default="", help="only cases whose id contains this")
    for name in ("gating", "dispatch"):
        parser.add_argument(f"--{name}-peer", type=Path, nargs=2, metavar=("KERNEL", "TILING"))
    options = parser.parse_args()
    given = {"gating": options.gating_peer, "dispatch": options.dispatch_peer}
    peers = {name: Peer.read(files[0], files[1], PEER_SOC) for name, files in given.items() if files}
    if not gate(options.operator, options.gate):
        return 1
    table = Table(
        "chip", "model", "operator", "T", "simulated", "unit", "cycles", "memory floor", "vector / cube floor",
        "cycles / larger", *(("peer", "ours / peer") if peers else ()),
    )  # fmt: skip
    broken: set[str] = set()
    for cells in lines(options, peers, broken):
        table.add_row(*cells)
    console.print(table)
    for text in sorted(broken):
        console.print(f"rule broken by {text}", markup=False)
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
