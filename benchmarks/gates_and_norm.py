"""Gates and gated norm of a gated delta net: estimated cycles against their floors, for the heads of real models.

    python benchmarks/gates_and_norm.py [--gate ID] [--model NAME]

Nothing is printed when a case of the two operators fails. Cycles come from the timing replay, so two runs print the same;
on ascend310p they are uncalibrated and only rank variants. Neither operator has a public AscendC peer: both are made of
several framework calls elsewhere.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from rich.console import Console
from rich.table import Table
from shapes import QWEN35_4B, SHAPES, GatedDelta

from hybrid_ops import contract, dtypes, profile, selftest
from hybrid_ops import soc as platform

NORM, GATE = "hybrid_gated_rms_norm", "hybrid_gated_delta_gate"
CHIPS = ("Ascend310P3", "Ascend910B3")
TOKENS = (1, 16, 64, 512, 2048)
console = Console(soft_wrap=True, highlight=False, width=150)


def call(op: str, shape: GatedDelta, tokens: int, soc: str) -> dict[str, np.ndarray]:
    """Inputs of one layer's call for so many tokens."""
    rng = np.random.default_rng(1)
    heads, dim = shape.value_heads, shape.value_dim
    shapes = {
        NORM: {"x": (tokens * heads, dim), "z": (tokens * heads, dim), "weight": (dim,)},
        GATE: {"a": (tokens, heads), "b": (tokens, heads), "A_log": (heads,), "dt_bias": (heads,)},
    }[op]
    kinds = {t.name: dtypes.NUMPY[t.dtypes[soc][0]] for t in contract.load()[op].inputs}
    return {name: rng.standard_normal(size).astype(kinds[name]) for name, size in shapes.items()}


def table(op: str, shape: GatedDelta) -> Table:
    made = Table(
        "chip", "tokens", "cycles", "µs", "memory floor", "vector floor", "cycles / floor", "bound",
        title=f"{op}, {shape.model}: {shape.value_heads} heads of {shape.value_dim}", title_justify="left",
    )  # fmt: skip
    for name in CHIPS:
        chip = platform.load(name)
        for tokens in TOKENS:
            ours = profile.run(op, call(op, shape, tokens, chip.family), {}, soc=name)
            assert ours.floors is not None
            made.add_row(
                chip.variant, str(tokens), f"{ours.cycles:,.0f}",
                f"{ours.timing['us']:.1f}{' *' if chip.uncalibrated else ''}",
                f"{ours.floors.memory_cycles:,.0f}", f"{ours.floors.vector_cycles:,.0f}", f"{ours.ratio or 0:.2f}",
                str(ours.timing["bound"]),
            )  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    parser.add_argument("--model", default=QWEN35_4B.model, choices=list(SHAPES))
    options = parser.parse_args()
    outcomes = [outcome for op in (GATE, NORM) for outcome in selftest.run(op, only=options.gate)]
    faults = [f"FAULT {o.case.id}: {o.fault}" for o in outcomes if o.fault]
    for fault in faults:
        console.print(fault, markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    if faults or not outcomes:
        return 1
    for op in (GATE, NORM):
        console.print(table(op, SHAPES[options.model]))
    console.print("cycles: timing replay of the simulator; floors: see python/hybrid_ops/ops")
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
