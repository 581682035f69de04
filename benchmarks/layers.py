"""Whole gated delta net layers by operators against transformers' own layer: accuracy, determinism, what rounding costs.

    python benchmarks/layers.py [--tokens N …] [--runs N] [--roundings]

Hidden states in, hidden states out; parameters and inputs hold values of the SoC's dtype, transformers computes in float32 from
the same numbers. Head geometry of Qwen3.5-4B. The last column is transformers' layer in the SoC's dtype on the CPU, which rounds
more often. `--roundings` computes the layer in float64 with one intermediate at a time rounded to bfloat16.
"""

from __future__ import annotations

import argparse
import copy
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from hybrid_ops.export.accuracy import agreement
from hybrid_ops.models import layer_agreement as layers
from hybrid_ops.models.gated_delta import boundary_dtypes
from hybrid_ops.models.qwen3_5 import projections

MODELS, SOCS = ("qwen3_5", "qwen3_next"), ("ascend310p", "ascend910b")
TOKENS = [1, 2, 3, 33, 64, 200]
STAGES = (
    "projected rows",
    "convolved rows",
    "unit query, key",
    "a",
    "b",
    "beta",
    "rule's output",
    "gate",
    "normed rows",
)
console = Console(soft_wrap=True, highlight=False, width=150)


def own_dtype(case: layers.LayerCase, hidden: torch.Tensor, calls: list[int]) -> list[torch.Tensor]:
    """transformers' layer with everything in the SoC's storage dtype."""
    dtype = boundary_dtypes(case.soc)[0]
    narrow = layers.LayerCase(copy.deepcopy(case.layer).to(dtype), case.config, case.soc)
    return layers.reference(narrow, hidden.to(dtype), calls)


def accuracy_table(lengths: list[int]) -> Table:
    table = Table(
        "model", "SoC", "T", "prefill NRMSE", "decode, worst of 16", "all outputs NRMSE", "cosine", "transformers in its dtype",
        title="layer outputs against transformers in float32", title_justify="left",
    )  # fmt: skip
    for family in MODELS:
        for soc in SOCS:
            case = layers.LayerCase.of(family, soc)
            for length in lengths:
                hidden, calls = case.hidden(length + layers.STEPS, length), [length] + [1] * layers.STEPS
                want = layers.reference(case, hidden, calls)
                ours = layers.compare(layers.by_operators(case, hidden, calls), want)
                narrow = layers.compare(own_dtype(case, hidden, calls), want)
                table.add_row(
                    family, soc, str(length), f"{ours.prefill.nrmse:.2e}", f"{ours.worst_step.nrmse:.2e}",
                    f"{ours.whole.nrmse:.2e}", f"{ours.whole.cosine:.6f}", f"{narrow.whole.nrmse:.2e}",
                )  # fmt: skip
    return table


def different_results(family: str, soc: str, runs: int, length: int = 33) -> int:
    """How many different outputs, bit for bit, `runs` runs of a prefill and two decode steps give."""
    case = layers.LayerCase.of(family, soc)
    hidden, calls = case.hidden(length + 2, 0), [length, 1, 1]
    made = (torch.cat(layers.by_operators(case, hidden, calls), 1) for _ in range(runs))
    return len({out.numpy().tobytes() for out in made})


def emulated(case: layers.LayerCase, hidden: torch.Tensor, rounded: tuple[str, ...]) -> torch.Tensor:
    """The layer in float64, the named intermediates rounded to bfloat16."""
    layer, length = case.layer, hidden.shape[1]

    def r(stage: str, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().double() if stage in rounded else x.double()

    def unit(x: torch.Tensor) -> torch.Tensor:
        return r("unit query, key", x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6))

    raw, gate, b, a = projections(layer, hidden)
    taps = layer.conv1d.weight.squeeze(1).double()
    line = F.pad(r("projected rows", raw)[0], (0, 0, taps.shape[1] - 1, 0))
    mixed = sum(line[i : i + length] * taps[:, i] for i in range(taps.shape[1]))
    mixed = r("convolved rows", F.silu(mixed))
    sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
    q, k, v = (
        x.unflatten(-1, (-1, size))
        for x, size in zip(mixed.split(sizes, -1), [layer.head_k_dim] * 2 + [layer.head_v_dim], strict=True)
    )
    groups = v.shape[1] // k.shape[1]
    q, k = (unit(x).repeat_interleave(groups, 1) for x in (q, k))
    beta = r("beta", r("b", b).sigmoid())[0]
    decay = (-layer.A_log.double().exp() * F.softplus(r("a", a) + layer.dt_bias.double())).exp()[0]
    state, outs = torch.zeros(v.shape[1], v.shape[2], k.shape[2], dtype=torch.float64), []
    for t in range(length):
        state = state * decay[t, :, None, None]
        delta = (v[t] - torch.einsum("hvk,hk->hv", state, k[t])) * beta[t, :, None]
        state = state + delta[..., None] * k[t][:, None]
        outs.append(torch.einsum("hvk,hk->hv", state, q[t] * layer.head_k_dim**-0.5))
    core = r("rule's output", torch.stack(outs))
    scale = torch.rsqrt((core * core).mean(-1, keepdim=True) + layer.norm.variance_epsilon)
    normed = core * scale * layer.norm.weight.double() * F.silu(r("gate", gate)[0])
    return r("normed rows", normed).reshape(length, -1) @ layer.out_proj.weight.double().t()


def roundings_table(length: int = 64) -> Table:
    table = Table(
        "rounded to bfloat16", *MODELS, title=f"NRMSE of a prefill of {length} tokens", title_justify="left"
    )
    columns = []
    with torch.no_grad():
        for family in MODELS:
            case = layers.LayerCase.of(family, "ascend910b")
            hidden = case.hidden(length, 0)
            exact = emulated(case, hidden, ()).numpy()
            kinds = [*((stage,) for stage in STAGES), STAGES]
            columns.append([agreement(emulated(case, hidden, kind).numpy(), exact).nrmse for kind in kinds])
    for name, *errors in zip((*STAGES, "all of them"), *columns, strict=True):
        table.add_row(name, *(f"{e:.2e}" for e in errors))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="lengths of the prefill")
    parser.add_argument("--runs", type=int, default=20, help="runs whose bits are compared")
    parser.add_argument("--roundings", action="store_true", help="what each rounding costs, instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.roundings:
        console.print(roundings_table())
        return 0
    console.print(accuracy_table(options.tokens))
    counts = {(f, s): different_results(f, s, options.runs) for f in MODELS for s in SOCS}
    for (family, soc), count in counts.items():
        console.print(f"{family} on {soc}: {options.runs} runs, {count} different result(s)")
    return int(any(count != 1 for count in counts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
