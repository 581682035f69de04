"""SwiGLU experts: estimated cycles against the bytes of the weights and the cube units, for the experts of real models.

    python benchmarks/moe_experts.py [--model NAME …] [--tokens N …] [--strategy auto] [--budget MACS] [--gate ID]

Nothing is printed when a case of the operator fails. Tokens are routed at random, each to top_k distinct experts. Where all
experts that are hit are too many multiply-adds to simulate, the first of them are, and the table says how many of how many:
cycles and floors are those of the simulated part. Cycles come from the timing replay, so two runs print the same; on
ascend310p they are uncalibrated and only rank variants.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from rich.console import Console
from rich.table import Table

from hybrid_ops import case, check, dtypes, profile, selftest
from hybrid_ops import soc as platform

OP = "hybrid_moe_swi_glu_experts"
CHIPS = ("Ascend310P3", "Ascend910B3")
STRATEGIES = {"scalar": 0, "cube": 1, "auto": 2}
TOKENS = (1, 16, 256, 4096)
LEAST = 1  # experts that are simulated whatever they cost
console = Console(soft_wrap=True, highlight=False, width=170)


@dataclass(frozen=True)
class Experts:
    """As in the model's config.json."""

    model: str
    experts: int
    top_k: int
    hidden: int
    inner: int


MODELS = {
    e.model: e
    for e in (
        Experts("Qwen3-30B-A3B", 128, 8, 2048, 768),
        Experts("Qwen3-Next-80B-A3B", 512, 10, 2048, 512),
        Experts("Mixtral-8x7B", 8, 2, 4096, 14336),
    )
}


def counts(shape: Experts, tokens: int) -> np.ndarray:
    """Rows of every expert that has some."""
    rng = np.random.default_rng(tokens)
    rows = np.zeros(shape.experts, int)
    for _ in range(tokens):
        rows[rng.choice(shape.experts, shape.top_k, replace=False)] += 1
    return rows[rows > 0]


def within(shape: Experts, rows: np.ndarray, budget: float) -> np.ndarray:
    """As many of the experts as the budget of multiply-adds has room for; a weight costs as much as four of them."""
    cost = np.cumsum((rows + 4.0) * 3 * shape.hidden * shape.inner)
    return rows[: max(LEAST, int(np.searchsorted(cost, budget, side="right")))]


def call(shape: Experts, rows: np.ndarray, soc: str) -> dict[str, np.ndarray | None]:
    """Inputs with separate weights per expert; column 0 of the contract's dtypes."""
    rng = np.random.default_rng(1)
    kind = dtypes.NUMPY[check.find_op(OP).input("expanded_x").dtypes[soc][0]]

    def weights(*sizes: int) -> np.ndarray:
        return (rng.integers(-100, 101, sizes, dtype=np.int8) / np.float16(3000)).astype(kind)

    n = len(rows)
    return {
        "expanded_x": rng.standard_normal((int(rows.sum()), shape.hidden)).astype(kind),
        "gate": weights(n, 2 * shape.inner, shape.hidden),
        "down": weights(n, shape.hidden, shape.inner),
        "expert_offsets": np.concatenate([[0], np.cumsum(rows)]).astype(np.int32),
        "up": None,
    }


def gate(only: str) -> bool:
    """Run the operator's cases; False, with the faults on the console, when one fails or none ran."""
    outcomes = list(selftest.run(OP, only=only))
    for outcome in outcomes:
        if outcome.fault:
            console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
    held = sum(not outcome.fault for outcome in outcomes)
    console.print(f"gate: {held} of {len(outcomes)} cases hold")
    return bool(outcomes) and held == len(outcomes)


def row(shape: Experts, tokens: int, name: str, strategy: int, budget: float) -> list[str]:
    chip = platform.load(name)
    hit = counts(shape, tokens)
    rows = within(shape, hit, budget)
    arrays = call(shape, rows, chip.family)
    ran = profile.run(OP, arrays, {"strategy": strategy}, soc=name)
    specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}
    cube = case.module(OP).floors(specs, chip.family, {"strategy": STRATEGIES["cube"]}, hit=len(rows))
    largest = max(cube.memory_cycles, cube.cube_cycles)
    path = "cube" if ran.timing["busy"].get("M") else "vector"
    return [
        chip.variant + (" *" if chip.uncalibrated else ""),
        str(tokens),
        f"{len(rows)} of {len(hit)}",
        f"{rows.mean():.1f}",
        path,
        f"{ran.cycles:,.0f}",
        f"{cube.memory_cycles:,.0f}",
        f"{cube.cube_cycles:,.0f}",
        f"{ran.cycles / cube.memory_cycles:.2f}",
        f"{ran.cycles / cube.cube_cycles:.2f}",
        f"{ran.cycles / largest:.2f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--tokens", nargs="*", type=int, default=list(TOKENS))
    parser.add_argument("--chip", nargs="*", choices=CHIPS, default=list(CHIPS))
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="auto")
    parser.add_argument("--budget", type=float, default=2.5e10, help="multiply-adds to simulate per line")
    parser.add_argument("--gate", default="", help="only cases whose id contains this")
    arguments = parser.parse_args()
    if not gate(arguments.gate):
        return 1
    for model in arguments.model:
        shape = MODELS[model]
        title = f"{OP}, {model}: E {shape.experts}, k {shape.top_k}, H {shape.hidden}, I {shape.inner}"
        table = Table(
            "chip", "tokens", "experts simulated", "rows each", "path", "cycles", "weights floor", "cube floor",
            "/ weights", "/ cube", "/ larger", title=f"{title}, {arguments.strategy}", title_justify="left",
        )  # fmt: skip
        for name in arguments.chip:
            for tokens in arguments.tokens:
                strategy = STRATEGIES[arguments.strategy]
                table.add_row(*row(shape, tokens, name, strategy, arguments.budget))
        console.print(table)
    console.print("* uncalibrated: cycles rank variants and are no times")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
