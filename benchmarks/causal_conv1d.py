"""Causal convolution: estimated cycles against its floors and a peer, for the convolution widths of Qwen3.5.

    python benchmarks/causal_conv1d.py [--peer KERNEL.cpp --peer-tiling TILING.json] [--gate ID] [--channels D]

Nothing is printed when a case of the operator fails. Cycles come from the timing replay, so two runs print the same; on
ascend310p they are uncalibrated and only rank variants. Cases of the tiling file are named `<rows>x<sequences>`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from peer import Peer
from rich.console import Console
from rich.table import Table

from hybrid_ops import compare, contract, dtypes, profile, selftest
from hybrid_ops import soc as platform
from hybrid_ops.case import Case
from hybrid_ops.case import module as meaning_of

OP = "hybrid_causal_conv1d"
CHIPS = ("Ascend310P3", "Ascend910B3")
STEPS = ((1, 1), (16, 16), (64, 64), (512, 1), (2048, 1))  # rows, sequences; as many of each: decode
WIDTH = 4
console = Console(soft_wrap=True, highlight=False, width=150)


def call(rows: int, sequences: int, channels: int, soc: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Arrays and attributes of one call, sequences of equal length; decode where each has one row."""
    rng = np.random.default_rng(1)
    shapes = {
        "x": (rows, channels), "weight": (WIDTH, channels), "conv_states": (sequences, WIDTH - 1, channels),
    }  # fmt: skip
    kinds = {t.name: dtypes.NUMPY[t.dtypes[soc][0]] for t in contract.load()[OP].inputs}
    arrays = {name: rng.standard_normal(shape).astype(kinds[name]) for name, shape in shapes.items()}
    arrays["query_start_loc"] = np.linspace(0, rows, sequences + 1).astype(np.int32)
    arrays["cache_indices"] = rng.permutation(sequences).astype(np.int32)
    return arrays, {"activation": 1, "run_mode": int(rows == sequences)}


def peer_cycles(peer: Peer, arrays: dict, attrs: dict, name: str, chip: platform.Soc) -> float:
    """The peer's cycles; its results must agree with the meaning like ours."""
    result = peer.launch(OP, arrays, name, f"Ascend{chip.variant}", record=True)
    wanted = meaning_of(OP).meaning(**arrays, **attrs)
    found = Case(f"peer-{name}", OP, chip.family, 0, lambda rng: arrays, attrs)
    compare.hold(found, arrays, result.outputs, wanted)
    assert result.timing is not None
    return result.timing["cycles"]


def table(channels: int, peer: Peer | None) -> Table:
    made = Table(
        "chip", "rows", "sequences", "cycles", "µs", "memory floor", "vector floor", "cycles / floor", "bound",
        *(("peer cycles", "ours / peer") if peer else ()),
        title=f"{OP}, {channels} channels, {WIDTH} taps, SiLU", title_justify="left",
    )  # fmt: skip
    for name in CHIPS:
        chip = platform.load(name)
        for rows, sequences in STEPS:
            arrays, attrs = call(rows, sequences, channels, chip.family)
            ours = profile.run(OP, arrays, attrs, soc=name)
            assert ours.floors is not None
            mark = " *" if chip.uncalibrated else ""
            cells = [
                chip.variant, str(rows), str(sequences), f"{ours.cycles:,.0f}", f"{ours.timing['us']:.1f}{mark}",
                f"{ours.floors.memory_cycles:,.0f}", f"{ours.floors.vector_cycles:,.0f}", f"{ours.ratio or 0:.2f}",
                str(ours.timing["bound"]),
            ]  # fmt: skip
            key = f"{rows}x{sequences}"
            if peer and peer.soc == chip.family and key in peer.cases:
                given = peer_cycles(peer, arrays, attrs, key, chip)
                cells += [f"{given:,.0f}", f"{ours.cycles / given:.2f}"]
            made.add_row(*cells)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=Path, help="kernel .cpp of the same operator, for ascend310p")
    parser.add_argument("--peer-tiling", type=Path, help="JSON as described in benchmarks/peer.py")
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    parser.add_argument("--channels", type=int, default=8192, help="2 * NK * DK + NV * DV of the model")
    options = parser.parse_args()
    if bool(options.peer) != bool(options.peer_tiling):
        parser.error("--peer and --peer-tiling go together")
    peer = Peer.read(options.peer, options.peer_tiling, "ascend310p") if options.peer else None
    outcomes = list(selftest.run(OP, only=options.gate))
    faults = [f"FAULT {o.case.id}: {o.fault}" for o in outcomes if o.fault]
    for fault in faults:
        console.print(fault, markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    if faults or not outcomes:
        return 1
    console.print(table(options.channels, peer))
    console.print("cycles: timing replay of the simulator; floors: see python/hybrid_ops/ops")
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
