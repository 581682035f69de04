"""Chunk gated delta rule: estimated cycles of a prefill against its floors, the decode operator and peers' kernels.

    python benchmarks/cgdr.py [--tokens N …] [--gate ID] [--model NAME …] [--decode] [--peer FOLDER …] [--peer-reports]

Nothing is printed when the operator's cases fail. Cycles come from the timing replay, so two runs print the same; on
ascend310p they are uncalibrated and only rank variants. With --decode, the decode operator is given the same tokens as one sequence
whose rows all name one slot, so that it keeps the state in local memory too. A peer (see benchmarks/peer_chain.py) is given w, u and
summed gates ready made, which is work of its own elsewhere and in ours included; its results are held to PEER_NRMSE.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from peer_chain import Chain
from rich.console import Console
from rich.table import Table
from shapes import QWEN35_4B, QWEN35_397B, SHAPES, GatedDelta, prefill

from hybrid_ops import compare, profile, selftest, sim
from hybrid_ops import soc as platform
from hybrid_ops.case import module as meaning_of

OP, DECODE = "chunk_gated_delta_rule", "recurrent_gated_delta_rule"
CHIPS = (("Ascend310P3", 0), ("Ascend910B3", 0), ("Ascend910B3", 1))  # chip, dtype column of the contract
PEER_NRMSE = 1e-2  # a peer rounds w, u, h and its new values to the input's dtype
REPORTED = 128  # tokens of the call whose reports --peer-reports prints
HELD = 64  # tokens of the call whose result is compared with the meaning before anything is timed
console = Console(soft_wrap=True, highlight=False, width=200)


def gate(only: str) -> bool:
    """Run the operator's cases; False, with the faults on the console, when one fails or none ran."""
    outcomes = list(selftest.run(OP, only=only))
    faults = [o for o in outcomes if o.fault]
    for outcome in faults:
        console.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False)
    console.print(f"gate: {len(outcomes) - len(faults)} of {len(outcomes)} cases hold")
    return bool(outcomes) and not faults


def decode_cycles(arrays: dict[str, np.ndarray], attrs: dict[str, float], soc: str) -> float:
    given = {name: array for name, array in arrays.items() if name != "initial_state"}
    slots = np.zeros(len(arrays["query"]), np.int32)
    call = {**given, "state": arrays["initial_state"], "ssm_state_indices": slots}
    return profile.run(DECODE, call, attrs, soc=soc).cycles


def hold(shape: GatedDelta, chip: platform.Soc, column: int, attrs: dict[str, float]) -> None:
    arrays = prefill(shape, HELD, chip.family, column)
    made = sim.launch(OP, arrays, attrs, soc=chip.family).outputs
    for name, want in meaning_of(OP).meaning(**arrays, **attrs).items():
        error = compare.measure(name, made[name], want).nrmse
        assert error <= compare.LIMITS["output"][want.dtype.name].nrmse, (
            f"{shape.model}: {name}: NRMSE {error:.3g}"
        )


def peer_cycles(
    peer: Chain, arrays: dict[str, np.ndarray], attrs: dict[str, float], soc: str
) -> dict[str, float]:
    """Cycles of each kernel of the peer, after its results have been compared with the meaning."""
    made = peer.run(arrays, attrs["scale_value"], soc, checks="off")
    for name, want in meaning_of(OP).meaning(**arrays, **attrs).items():
        error = compare.measure(name, made.outputs[name], want).nrmse
        assert error <= PEER_NRMSE, f"{peer.label}: {name}: NRMSE {error:.3g}"
    return {entry: timing["cycles"] for entry, timing in made.timings.items()}


def print_reports(peer: Chain, shape: GatedDelta) -> None:
    """What the simulator's checks say about the peer's kernels at a small shape, one line per rule and place."""
    name, column = next((n, c) for n, c in CHIPS if platform.load(n).family == peer.soc)
    arrays = prefill(shape, REPORTED, peer.soc, column)
    made = peer.run(arrays, shape.key_dim**-0.5, name)
    for entry, reports in made.hazards.items():
        console.print(f"{peer.label} {entry} on {name}: {len(reports)} kinds of report")
        for h in reports:
            where = f"{Path(h['kernel_file']).name}:{h['line']}"
            console.print(
                f"  {h['severity']} {h['rule']} {where} x{h['count']}: {h['message']}", markup=False
            )


def cycles_table(shape: GatedDelta, lengths: list[int], peers: list[Chain], decode: bool) -> Table:
    table = Table(
        "chip", "state", "T", "cycles", "cycles / token", "µs", "memory floor", "vector floor", "cube floor", "cycles / floor",
        *(("decode operator", "ours / decode") if decode else ()), *(("peer", "ours / peer") if peers else ()),
        title=f"{OP}, {shape.model}, one sequence", title_justify="left",
    )  # fmt: skip
    attrs = {"scale_value": shape.key_dim**-0.5}
    for name, column in CHIPS:
        chip = platform.load(name)
        hold(shape, chip, column, attrs)
        for tokens in lengths:
            arrays = prefill(shape, tokens, chip.family, column)
            ours = profile.run(OP, arrays, attrs, soc=name)
            floors, mark = ours.floors, " *" if chip.uncalibrated else ""
            assert floors is not None
            beside = []
            if decode:
                steps = decode_cycles(arrays, attrs, name)
                beside = [f"{steps:,.0f}", f"{ours.cycles / steps:.2f}"]
            theirs = [""] * 2 if peers else []
            for peer in (p for p in peers if p.soc == chip.family and tokens % p.chunk == 0):
                parts = peer_cycles(peer, arrays, attrs, name)
                total = sum(parts.values())
                theirs = [" + ".join(f"{c:,.0f}" for c in parts.values()), f"{ours.cycles / total:.3f}"]
            table.add_row(
                chip.variant, arrays["initial_state"].dtype.name, str(tokens), f"{ours.cycles:,.0f}",
                f"{ours.cycles / tokens:,.0f}", f"{ours.timing['us']:.0f}{mark}", f"{floors.memory_cycles:,.0f}",
                f"{floors.vector_cycles:,.0f}", f"{floors.cube_cycles:,.0f}", f"{ours.ratio or 0:.2f}", *beside, *theirs,
            )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[512], help="lengths of the sequence")
    parser.add_argument("--gate", default="", help="gate on the cases whose id contains this; all by default")
    models = [QWEN35_4B.model, QWEN35_397B.model]
    parser.add_argument("--model", nargs="+", default=models, choices=sorted(SHAPES))
    parser.add_argument("--decode", action="store_true", help="the decode operator on the same tokens beside")
    parser.add_argument(
        "--peer", nargs="+", type=Path, default=[], help="folders as benchmarks/peer_chain.py describes"
    )
    parser.add_argument(
        "--peer-reports", action="store_true", help="print what the checks say about the peers"
    )
    options = parser.parse_args()
    peers = [Chain.read(folder) for folder in options.peer]
    if options.peer_reports:
        for peer in peers:
            print_reports(peer, SHAPES[options.model[0]])
    if not gate(options.gate):
        console.print(f"{OP}: not benchmarked, its cases do not hold")
        return 1
    for model in options.model:
        console.print(cycles_table(SHAPES[model], options.tokens, peers, options.decode))
    console.print(
        "cycles: timing replay of the simulator; floors: see python/hybrid_ops/ops/chunk_gated_delta_rule.py"
    )
    console.print("* uncalibrated: no public measurement of this chip; compare variants, do not quote µs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
