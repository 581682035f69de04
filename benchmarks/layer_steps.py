"""The operators of one gated delta net layer, as the layer calls them: cycles of each, and what fusing them could save at most.

    python benchmarks/layer_steps.py [--tokens N …]

Head geometry of Qwen3.5-4B. "between them": what goes through memory from one operator to the next, written and read once at
the chip's peak rate; one kernel for all of them could save so much and the start of three kernels, which is not modelled.
Projections and the normalisation of query and key run in torch and are not counted. ascend310p is uncalibrated.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from hybrid_ops import profile, roofline, runtime
from hybrid_ops.models import layer_agreement as layers
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet

CHIPS = {"Ascend310P3": "ascend310p", "Ascend910B3": "ascend910b"}
# Outputs that the next operator reads, the states aside.
HANDED_ON = {"y", "g", "beta", "out"}
Call = tuple[str, Mapping[str, Any], Mapping[str, Any]]
console = Console(soft_wrap=True, highlight=False, width=150)


def calls_of(tokens: int, soc: str) -> tuple[list[Call], int]:
    """Operator calls of the next `tokens` tokens of one sequence, and bytes that each hands to the next one."""
    case = layers.LayerCase.of("qwen3_5", soc)
    net, found, handed, real = FusedGatedDeltaNet(case.layer, soc), [], 0, runtime.run

    def recorded(op: Any, arrays: Any, attrs: Any = None, **options: Any) -> dict[str, np.ndarray]:
        nonlocal handed
        made = real(op, arrays, attrs, **options)
        found.append((op.name, arrays, attrs or {}))
        handed += sum(made[name].nbytes for name in HANDED_ON & set(made))
        return made

    with (
        torch.no_grad(),
        runtime.using(backend="reference", soc=soc),
        mock.patch.object(runtime, "run", recorded),
    ):
        net(case.hidden(tokens, 0), net.initial_states(1))
    last = np.prod([tokens, net.value_heads, case.layer.head_v_dim]) * 2
    return found, handed - int(last)  # the norm's output is the projection's


def table(lengths: list[int]) -> Table:
    made = Table(
        "chip", "tokens", "convolution", "gates", "rule", "norm", "all", "between them", "of all",
        title="cycles of one layer", title_justify="left",
    )  # fmt: skip
    for chip, soc in CHIPS.items():
        for tokens in lengths:
            calls, handed = calls_of(tokens, soc)
            cycles = [profile.run(op, arrays, attrs, soc=chip).cycles for op, arrays, attrs in calls]
            moved = roofline.floors(handed, handed, [], chip).memory_cycles
            made.add_row(
                chip, str(tokens), *(f"{c:,.0f}" for c in cycles), f"{sum(cycles):,.0f}", f"{moved:,.0f}",
                f"{100 * moved / sum(cycles):.1f} %",
            )  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 64, 512])
    options = parser.parse_args()
    torch.set_num_threads(1)
    console.print(table(options.tokens))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
