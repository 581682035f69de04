"""Recurrent gated delta rule: estimated cycles against its floors and a peer, and the simulator's own speed.

    python benchmarks/rgdr.py [--peer KERNEL.cpp --peer-tiling TILING.json] [--gate ID] [--model NAME]

Nothing is printed for an operator whose cases fail. Cycles come from the timing replay, so two runs print the same; on
ascend310p they are uncalibrated and only rank variants. Seconds are wall time of this machine, best of seven, one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from peer import Peer
from rich.console import Console
from rich.table import Table
from shapes import QWEN35_4B, SHAPES, GatedDelta, decode

from hybrid_ops import compare, profile, selftest, sim
from hybrid_ops import soc as platform
from hybrid_ops.case import Case
from hybrid_ops.case import module as meaning_of

OP = "recurrent_gated_delta_rule"
CHIPS = (("Ascend310P3", 0), ("Ascend910B3", 0), ("Ascend910B3", 1))  # chip, dtype column of the contract
BATCHES = (1, 16)
REPEATS = 7
console = Console(soft_wrap=True, highlight=False, width=150)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    chip: platform.Soc
    state: str
    batch: int
    ours: profile.Profile
    peer: dict | None


def gate(only: str) -> bool:
    """Run the operator's cases; False, with the faults on the console, when one fails or none ran."""
    outcomes = list(selftest.run(OP, only=only))
    faults = [o for o in outcomes if o.fault]
    for outcome in faults:
        console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    return bool(outcomes) and not faults


def peer_timing(peer: Peer, arrays: dict, attrs: dict, batch: int, chip: platform.Soc) -> dict:
    """The peer's replay report; its results must agree with the meaning like ours."""
    result = peer.launch(OP, arrays, batch, f"Ascend{chip.variant}", record=True)
    wanted = meaning_of(OP).meaning(**arrays, **attrs)
    compare.hold(
        Case(f"peer-B{batch}", OP, chip.family, 0, lambda rng: arrays, attrs), arrays, result.outputs, wanted
    )
    assert result.timing is not None
    return result.timing


def measure(shape: GatedDelta, peer: Peer | None) -> list[Row]:
    rows = []
    for name, column in CHIPS:
        chip = platform.load(name)
        for batch in BATCHES:
            arrays = decode(shape, batch, 1, chip.family, column)
            attrs = {"scale_value": shape.key_dim**-0.5}
            ours = profile.run(OP, arrays, attrs, soc=name)
            theirs = (
                peer_timing(peer, arrays, attrs, batch, chip) if peer and peer.soc == chip.family else None
            )
            rows.append(Row(chip, arrays["state"].dtype.name, batch, ours, theirs))
    return rows


def cycles_table(shape: GatedDelta, rows: list[Row], peer: Peer | None) -> Table:
    table = Table(
        "chip", "state", "B", "cycles", "µs", "memory floor", "vector floor", "cycles / floor", "bound",
        *(("peer cycles", "ours / peer") if peer else ()),
        title=f"{OP}, {shape.model} decode, T=1 per sequence", title_justify="left",
    )  # fmt: skip
    for row in rows:
        floors, mark = row.ours.floors, " *" if row.chip.uncalibrated else ""
        assert floors is not None
        cells = [
            row.chip.variant, row.state, str(row.batch), f"{row.ours.cycles:,.0f}", f"{row.ours.timing['us']:.1f}{mark}",
            f"{floors.memory_cycles:,.0f}", f"{floors.vector_cycles:,.0f}", f"{row.ours.ratio or 0:.2f}",
            str(row.ours.timing["bound"]),
        ]  # fmt: skip
        if peer:
            given = row.peer["cycles"] if row.peer else 0
            cells += [f"{given:,.0f}", f"{row.ours.cycles / given:.2f}"] if given else ["", ""]
        table.add_row(*cells)
    return table


def best(call: Callable[[], object]) -> float:
    """Seconds of the fastest of REPEATS calls, after one to warm up."""
    call()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def torch_step(arrays: dict, scale: float) -> Callable[[], object]:
    """The same recurrence, one row per sequence, in whole-tensor fp32 torch ops."""
    import torch

    def load(name: str) -> torch.Tensor:
        return torch.from_numpy(arrays[name].astype(np.float32))

    heads = arrays["value"].shape[1] // arrays["key"].shape[1]
    q, k = (load(name).repeat_interleave(heads, 1) for name in ("query", "key"))
    v, beta, decay = load("value"), load("beta"), load("g")
    pool = load("state").to(getattr(torch, arrays["state"].dtype.name))
    slots = torch.from_numpy(arrays["ssm_state_indices"].astype(np.int64))

    def step() -> torch.Tensor:
        state = pool[slots].float() * decay.exp()[..., None, None]
        delta = (v - torch.einsum("bhvk,bhk->bhv", state, k)) * beta[..., None]
        state = state + delta[..., None] * k[..., None, :]
        pool[slots] = state.to(pool.dtype)
        return torch.einsum("bhvk,bhk->bhv", state, q * scale)

    return step


def speed_table(shape: GatedDelta) -> Table:
    """Wall time of the simulator beside torch."""
    import torch

    torch.set_num_threads(1)
    table = Table(
        "chip", "state", "checks off", "checks full", "torch, 1 thread", "off / torch", "full / torch",
        title=f"wall time of one call, {shape.model}, B=1", title_justify="left",
    )  # fmt: skip
    for name, column in CHIPS[:2]:
        chip = platform.load(name)
        arrays = decode(shape, 1, 1, chip.family, column)
        attrs = {"scale_value": shape.key_dim**-0.5}
        off, full = (
            best(partial(sim.launch, OP, arrays, attrs, soc=name, checks=c)) for c in ("off", "full")
        )
        torch_seconds = best(torch_step(arrays, attrs["scale_value"]))
        table.add_row(
            chip.variant, arrays["state"].dtype.name, f"{off * 1e3:.1f} ms", f"{full * 1e3:.1f} ms",
            f"{torch_seconds * 1e3:.2f} ms", f"{off / torch_seconds:.1f}", f"{full / torch_seconds:.1f}",
        )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, help="kernel .cpp of the same operator, for ascend310p")
    parser.add_argument("--peer-tiling", type=Path, help="JSON as described in benchmarks/peer.py")
    parser.add_argument("--peer-soc", default="ascend310p", help="SoC family the peer kernel is written for")
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    parser.add_argument("--model", default=QWEN35_4B.model, choices=sorted(SHAPES))
    options = parser.parse_args()
    if bool(options.peer) != bool(options.peer_tiling):
        parser.error("--peer and --peer-tiling go together")
    peer = Peer.read(options.peer, options.peer_tiling, options.peer_soc) if options.peer else None
    if not gate(options.gate):
        console.print(f"{OP}: not benchmarked, its cases do not hold")
        return 1
    shape = SHAPES[options.model]
    console.print(cycles_table(shape, measure(shape, peer), peer))
    console.print("cycles: timing replay of the simulator; floors: see python/hybrid_ops/roofline.py")
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    console.print(speed_table(shape))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
