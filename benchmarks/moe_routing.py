"""Routing of a mixture of experts: estimated cycles of gating, dispatch and combination against their floors and a peer.

    python benchmarks/moe_routing.py [--tokens N …] [--model NAME …] [--peer KERNEL.cpp --peer-tiling TILING.json] [--gate ID]

Nothing is printed for operators whose cases fail. Cycles come from the timing replay, so two runs print the same; on
ascend310p they are uncalibrated and only rank variants. 4096 tokens take some minutes. A peer is a gating kernel for
ascend910b (see benchmarks/peer.py); cases of its tiling file are named `<model>x<tokens>`, logits and bias are float32 for both.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from peer import Peer
from rich.console import Console
from rich.table import Table

from hybrid_ops import dtypes, profile, selftest
from hybrid_ops import soc as platform
from hybrid_ops.case import module as meaning_of

GATING, DISPATCH, COMBINE = "hybrid_moe_gating_top_k", "hybrid_moe_init_routing", "hybrid_moe_combine"
CHIPS = {"Ascend310P3": "float16", "Ascend910B3": "bfloat16"}  # chip, dtype of hidden states
console = Console(soft_wrap=True, highlight=False, width=150)
Call = tuple[str, dict[str, np.ndarray], dict[str, Any]]


@dataclass(frozen=True)
class Experts:
    """Router of a model, as in its config.json."""

    model: str
    experts: int
    per_token: int
    width: int
    gating: dict[str, Any] = field(default_factory=dict)


SHAPES = [
    Experts("Qwen3-30B-A3B", 128, 8, 2048),
    Experts("Qwen3-Next-80B-A3B", 512, 10, 2048),
    Experts("DeepSeek-V3", 256, 8, 7168,
            {"group_count": 8, "k_group": 4, "group_select_mode": 1, "norm_type": 1, "routed_scaling_factor": 2.5}),
    Experts("Mixtral-8x7B", 8, 2, 4096),
]  # fmt: skip


def gating(shape: Experts, tokens: int, dtype: str) -> Call:
    rng = np.random.default_rng(1)
    arrays = {"x": rng.standard_normal((tokens, shape.experts)).astype(dtypes.NUMPY[dtype])}
    if shape.gating:
        arrays["bias"] = (rng.standard_normal(shape.experts) * 0.1).astype(np.float32)
    return GATING, arrays, {"k": shape.per_token, "norm_topk_prob": True, **shape.gating}


def dispatch(shape: Experts, tokens: int, dtype: str) -> Call:
    rng = np.random.default_rng(1)
    ids = rng.random((tokens, shape.experts)).argsort(axis=1)[:, : shape.per_token].astype(np.int32)
    x = rng.standard_normal((tokens, shape.width)).astype(dtypes.NUMPY[dtype])
    return DISPATCH, {"x": x, "expert_idx": ids}, {"expert_num": shape.experts}


def combine(shape: Experts, tokens: int, dtype: str) -> Call:
    rng = np.random.default_rng(1)
    slots, kind = tokens * shape.per_token, dtypes.NUMPY[dtype]
    return COMBINE, {
        "expanded_y": rng.standard_normal((slots, shape.width)).astype(kind),
        "expanded_row_idx": rng.permutation(slots).reshape(tokens, -1).astype(np.int32),
        "scales": rng.random((tokens, shape.per_token)).astype(kind),
    }, {}  # fmt: skip


def gate(only: str) -> bool:
    """Run the operators' cases; False, with the faults on the console, when one fails or none ran."""
    outcomes = [o for op in (GATING, DISPATCH, COMBINE) for o in selftest.run(op, only=only)]
    faults = [o for o in outcomes if o.fault]
    for outcome in faults:
        console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    return bool(outcomes) and not faults


def peer_cycles(peer: Peer, call: Call, name: str, chip: str) -> float:
    """The peer's cycles; its experts must be the meaning's, its weights agree within 1e-4."""
    op, arrays, attrs = call
    result = peer.launch(op, arrays, name, chip, attrs=attrs, checks="off", record=True)
    wanted = meaning_of(op).meaning(**arrays, **attrs)
    np.testing.assert_array_equal(result.outputs["expert_idx"], wanted["expert_idx"])
    np.testing.assert_allclose(result.outputs["y"], wanted["y"], rtol=1e-4)
    assert result.timing is not None
    return result.timing["cycles"]


def table(
    make: Callable[[Experts, int, str], Call], shapes: list[Experts], tokens: list[int], peer: Peer | None
) -> Table:
    made = Table(
        "chip", "model", "dtype", "T", "cycles", "µs", "memory floor", "vector floor", "cycles / floor", "bound",
        *(("peer cycles", "ours / peer") if peer else ()), title=make(shapes[0], 1, "float16")[0], title_justify="left",
    )  # fmt: skip
    for name, kind in CHIPS.items():
        chip = platform.load(name)
        dtype = "float32" if peer and peer.soc == chip.family else kind
        for shape in shapes:
            for count in tokens:
                call = make(shape, count, dtype)
                ours = profile.run(*call, soc=name)
                floors, mark = ours.floors, " *" if chip.uncalibrated else ""
                assert floors is not None
                cells = [
                    chip.variant, shape.model, dtype, str(count), f"{ours.cycles:,.0f}", f"{ours.timing['us']:.1f}{mark}",
                    f"{floors.memory_cycles:,.0f}", f"{floors.vector_cycles:,.0f}", f"{ours.ratio or 0:,.1f}",
                    str(ours.timing["bound"]),
                ]  # fmt: skip
                key = f"{shape.model}x{count}"
                if peer and peer.soc == chip.family and key in peer.cases:
                    given = peer_cycles(peer, call, key, name)
                    cells += [f"{given:,.0f}", f"{ours.cycles / given:.2f}"]
                made.add_row(*cells)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16, 256])
    names = [shape.model for shape in SHAPES]
    parser.add_argument("--model", nargs="+", default=names, choices=names)
    parser.add_argument("--peer", type=Path, help="kernel .cpp of a gating operator for ascend910b")
    parser.add_argument("--peer-tiling", type=Path, help="JSON as described in benchmarks/peer.py")
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    options = parser.parse_args()
    if bool(options.peer) != bool(options.peer_tiling):
        parser.error("--peer and --peer-tiling go together")
    peer = Peer.read(options.peer, options.peer_tiling, "ascend910b") if options.peer else None
    if not gate(options.gate):
        console.print("not benchmarked: cases do not hold")
        return 1
    shapes = [shape for shape in SHAPES if shape.model in options.model]
    console.print(table(gating, shapes, options.tokens, peer))
    for make in (dispatch, combine):
        console.print(table(make, shapes, options.tokens, None))
    console.print("cycles: timing replay of the simulator; floors: see python/hybrid_ops/ops")
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
