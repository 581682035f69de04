"""Whole gated delta net layers by operators against transformers' own layer: accuracy, determinism, what rounding costs.

    python benchmarks/layers.py [--tokens N …] [--runs N] [--roundings]

Hidden states in, hidden states out; parameters and inputs hold values of the SoC's dtype, transformers computes in float32 from
the same numbers. Head geometry of Qwen3.5-4B. "floor": the layer in float64 with only those roundings that the dtypes of the
rule's operator force (query, key, value, beta, readout, state). The last column is transformers' layer in the SoC's dtype on
the CPU, which rounds more often. `--roundings` shows what each rounding costs alone.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
from collections.abc import Collection

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from hybrid_ops.models import layer_agreement as layers
from hybrid_ops.models.gated_delta import L2_EPSILON, boundary_dtypes
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet
from hybrid_ops.models.qwen3_5 import projections

MODELS, SOCS = ("qwen3_5", "qwen3_next"), ("ascend310p", "ascend910b")
TOKENS = [1, 2, 3, 33, 64, 200]
RULE = ("unit query", "unit key", "value", "beta", "rule's output", "state")  # dtypes of the rule's operator
AROUND = ("projected rows", "convolved rows", "a", "b", "gate", "normed rows")  # those of the other operators
console = Console(soft_wrap=True, highlight=False, width=150)


def own_dtype(case: layers.LayerCase, hidden: torch.Tensor, calls: list[int]) -> list[torch.Tensor]:
    """transformers' layer with everything in the SoC's storage dtype."""
    dtype = boundary_dtypes(case.soc)[0]
    narrow = layers.LayerCase(copy.deepcopy(case.layer).to(dtype), case.config, case.soc)
    return layers.reference(narrow, hidden.to(dtype), calls)


def accuracy_table(lengths: list[int]) -> Table:
    table = Table(
        "model", "SoC", "T", "prefill NRMSE (floor)", "decode, worst of 16 (floor)", "all outputs NRMSE", "cosine",
        "transformers in its dtype", title="layer outputs against transformers in float32", title_justify="left",
    )  # fmt: skip
    for family in MODELS:
        for soc in SOCS:
            case = layers.LayerCase.of(family, soc)
            for length in lengths:
                hidden, calls = case.hidden(length + layers.STEPS, length), [length] + [1] * layers.STEPS
                want = layers.reference(case, hidden, calls)
                ours, floor, narrow = (
                    layers.compare(made, want)
                    for made in (
                        layers.by_operators(case, hidden, calls),
                        emulated(case, hidden, calls, RULE),
                        own_dtype(case, hidden, calls),
                    )
                )
                table.add_row(
                    family, soc, str(length), f"{ours.prefill.nrmse:.2e} ({floor.prefill.nrmse:.2e})",
                    f"{ours.worst_step.nrmse:.2e} ({floor.worst_step.nrmse:.2e})",
                    f"{ours.whole.nrmse:.2e}", f"{ours.whole.cosine:.6f}", f"{narrow.whole.nrmse:.2e}",
                )  # fmt: skip
    return table


def different_results(family: str, soc: str, runs: int, length: int = 33) -> int:
    """How many different outputs, bit for bit, `runs` runs of a prefill and two decode steps give."""
    case = layers.LayerCase.of(family, soc)
    hidden, calls = case.hidden(length + 2, 0), [length, 1, 1]
    made = (torch.cat(layers.by_operators(case, hidden, calls), 1) for _ in range(runs))
    return len({out.numpy().tobytes() for out in made})


@torch.no_grad()
def emulated(
    case: layers.LayerCase, hidden: torch.Tensor, calls: list[int], rounded: Collection[str]
) -> list[torch.Tensor]:
    """The layer in float64, the named intermediates rounded where and as FusedGatedDeltaNet does."""
    net, layer, length = FusedGatedDeltaNet(case.layer, case.soc), case.layer, hidden.shape[1]
    ends = list(itertools.accumulate(calls))
    prompt = torch.tensor([count > 1 for count in calls for _ in range(count)])

    def r(stage: str, x: torch.Tensor) -> torch.Tensor:
        """Rows x `[T, …]`."""
        if stage not in rounded:
            return x.double()
        if stage in AROUND:
            return x.to(net.steps).double()
        chunked = prompt.reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(chunked, x.to(net.chunk_dtype).double(), x.to(net.token_dtype).double())

    def unit(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + L2_EPSILON)

    raw, gate, b, a = (x[0] for x in projections(layer, hidden))
    taps = layer.conv1d.weight.squeeze(1).double()
    line = F.pad(r("projected rows", raw), (0, 0, taps.shape[1] - 1, 0))
    mixed = sum(line[i : i + length] * taps[:, i] for i in range(taps.shape[1]))
    mixed = r("convolved rows", F.silu(mixed))
    sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
    q, k, v = (
        x.unflatten(-1, (-1, size))
        for x, size in zip(mixed.split(sizes, -1), [layer.head_k_dim] * 2 + [layer.head_v_dim], strict=True)
    )
    groups = v.shape[1] // k.shape[1]
    q, k = (
        r(stage, unit(x)).repeat_interleave(groups, 1) for stage, x in (("unit query", q), ("unit key", k))
    )
    v, beta = r("value", v), r("beta", r("b", b).sigmoid())
    decay = (-layer.A_log.double().exp() * F.softplus(r("a", a) + layer.dt_bias.double())).exp()
    state, outs = torch.zeros(v.shape[1], v.shape[2], k.shape[2], dtype=torch.float64), []
    for t in range(length):
        state = state * decay[t, :, None, None]
        delta = (v[t] - torch.einsum("hvk,hk->hv", state, k[t])) * beta[t, :, None]
        state = state + delta[..., None] * k[t][:, None]
        outs.append(torch.einsum("hvk,hk->hv", state, q[t] * layer.head_k_dim**-0.5))
        if t + 1 in ends and "state" in rounded:
            state = state.to(net.state_dtype).double()
    core = r("rule's output", torch.stack(outs))
    scale = torch.rsqrt((core * core).mean(-1, keepdim=True) + layer.norm.variance_epsilon)
    normed = core * scale * layer.norm.weight.double() * F.silu(r("gate", gate))
    out = r("normed rows", normed).reshape(length, -1) @ layer.out_proj.weight.double().t()
    return list(out[None].split(calls, 1))


def roundings_table(length: int = 64) -> Table:
    columns = list(itertools.product(MODELS, SOCS))
    table = Table(
        "rounded",
        *(f"{family} on {soc}" for family, soc in columns),
        title=f"NRMSE of a prefill of {length} tokens / of the worst of {layers.STEPS} decode steps",
        title_justify="left",
    )
    kinds = {
        **{stage: (stage,) for stage in (*RULE, *AROUND)},
        "all of the rule": RULE,
        "all around it": AROUND,
        "all": (*RULE, *AROUND),
    }
    cells: dict[str, list[str]] = {name: [] for name in kinds}
    calls = [length] + [1] * layers.STEPS
    for family, soc in columns:
        case = layers.LayerCase.of(family, soc)
        hidden = case.hidden(sum(calls), length)
        exact = emulated(case, hidden, calls, ())
        for name, kind in kinds.items():
            found = layers.compare(emulated(case, hidden, calls, kind), exact)
            cells[name].append(f"{found.prefill.nrmse:.1e} / {found.worst_step.nrmse:.1e}")
    for name, row in cells.items():
        table.add_row(name, *row)
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
