"""Chunk gated delta rule: error of both outputs against four independent computations, at every awkward length.

    python benchmarks/cgdr_accuracy.py [--lengths N …] [--heads NK NV] [--dims DK DV] [--fla naive.py]

NRMSE against the float64 recurrence; the decode operator given one token per call (its pool rounded each time, as a model that
decodes its prompt would) and given all rows in one call; transformers' `torch_chunk_gated_delta_rule`; and both functions of FLA's
naive.py, whose path the option names (github.com/fla-org/flash-linear-attention, fla/ops/gated_delta_rule/naive.py; it needs
einops). References are rounded to the output's dtype first. Every launch runs with all checks; a report stops it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from rich.console import Console
from rich.table import Table
from shapes import GatedDelta, prefill

from hybrid_ops import check, compare, contract, dtypes, host, sim
from hybrid_ops.ops import chunk_gated_delta_rule as cgdr

LENGTHS = [1, 2, 15, 16, 17, 63, 64, 65, 79, 127, 128, 129, 200, 2048]
PACKED = [[1, 64, 7, 0, 129], [63, 65, 1, 128, 0, 17], [200] * 4]
COLUMNS = (("ascend310p", 0), ("ascend910b", 0), ("ascend910b", 1))
PATHS = {0: "vector", 1: "vector, tails", 2: "cube"}
BOUND_OUT, BOUND_STATE = 1e-3, {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-5}
PER_TOKEN = 300  # longest sequence that the decode operator is given token by token
DECODE = "recurrent_gated_delta_rule"
Arrays = dict[str, np.ndarray]
console = Console(soft_wrap=True, highlight=False, width=200)


def packed(shape: GatedDelta, lengths: list[int], soc: str, column: int) -> Arrays:
    """Inputs of one call with these sequences; states between -1 and 1, gates as models have them."""
    arrays = prefill(shape, sum(lengths), soc, column)
    states = (
        np.random.default_rng(2).standard_normal((len(lengths), *arrays["initial_state"].shape[1:])) * 0.3
    )
    arrays["initial_state"] = states.astype(arrays["initial_state"].dtype)
    arrays["actual_seq_lengths"] = np.array(lengths, np.int32)
    return arrays


def path_of(arrays: Arrays, attrs: Mapping[str, float], soc: str) -> str:
    specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items()}
    key = host.tiling(contract.load()[cgdr.OP], soc, specs, attrs).tiling_key
    return PATHS.get(key, f"key {key}")


def by_decode_operator(arrays: Arrays, attrs: Mapping[str, float], soc: str, per_token: bool) -> Arrays:
    """The decode operator over the same rows: one call, or one call per token."""
    slots = np.repeat(
        np.arange(len(arrays["actual_seq_lengths"]), dtype=np.int32), arrays["actual_seq_lengths"]
    )
    pool = arrays["initial_state"]
    rows = ("query", "key", "value", "beta", "g")
    if not per_token:
        given = {n: a for n, a in arrays.items() if n != "initial_state"}
        made = sim.launch(
            DECODE, {**given, "state": pool, "ssm_state_indices": slots}, attrs, soc=soc
        ).outputs
        return {"out": made["out"], "final_state": made["state"]}
    outs = []
    for t in range(len(slots)):
        step = {n: arrays[n][t : t + 1] for n in rows} | {
            "state": pool,
            "ssm_state_indices": slots[t : t + 1],
        }
        made = sim.launch(
            DECODE, {**step, "actual_seq_lengths": np.ones(1, np.int32)}, attrs, soc=soc, checks="off"
        ).outputs
        pool = made["state"]
        outs.append(made["out"])
    return {"out": np.concatenate(outs), "final_state": pool}


def by_torch(function: Callable, arrays: Arrays, attrs: Mapping[str, float], **options: object) -> Arrays:
    """A torch reference that takes q, k [1, T, NV, DK], v [1, T, NV, DV], g, beta [1, T, NV], a state [1, NV, DK, DV]."""
    import torch

    groups = arrays["value"].shape[1] // arrays["key"].shape[1]

    def load(name: str, first: int, end: int) -> torch.Tensor:
        x = torch.from_numpy(arrays[name][first:end].astype(np.float32))
        return (x.repeat_interleave(groups, 1) if name in ("query", "key") else x)[None]

    outs, states = [], []
    for b, (first, end) in enumerate(cgdr.spans(arrays["actual_seq_lengths"], len(arrays["query"]))):
        state = torch.from_numpy(arrays["initial_state"][b : b + 1].astype(np.float32)).transpose(2, 3)
        if end > first:
            q, k, v, beta, g = (load(n, first, end) for n in ("query", "key", "value", "beta", "g"))
            out, state = function(
                q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True, **options
            )
            outs.append(out[0])
        states.append(state)
    return {
        "out": torch.cat(outs).numpy(),
        "final_state": torch.cat(states).transpose(2, 3).contiguous().numpy(),
    }


def load_fla(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fla_naive", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def errors(got: Arrays, want: Arrays) -> list[str]:
    """NRMSE of out and state, the reference rounded to the dtype of what is compared."""
    return [
        f"{compare.measure(n, got[n], want[n].astype(got[n].dtype)).nrmse:.1e}"
        for n in ("out", "final_state")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="single sequences")
    parser.add_argument("--heads", type=int, nargs=2, default=[1, 2], metavar=("NK", "NV"))
    parser.add_argument("--dims", type=int, nargs=2, default=[128, 128], metavar=("DK", "DV"))
    parser.add_argument("--fla", type=Path, help="FLA's naive.py")
    options = parser.parse_args()
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    fla = load_fla(options.fla) if options.fla else None
    shape = GatedDelta("", *options.heads, *options.dims)
    pairs = [
        "float64",
        "decode op, 1 call",
        "decode op, T calls",
        "transformers",
        *(["FLA chunk", "FLA recurrent"] if fla else []),
    ]
    table = Table(
        "SoC", "state", "path", "lengths", *pairs, title=f"NRMSE of out / final state, heads {options.heads}, dims {options.dims}",
        title_justify="left",
    )  # fmt: skip
    beyond = 0
    for soc, column in COLUMNS:
        for lengths in [*([n] for n in options.lengths), *PACKED]:
            arrays, attrs = packed(shape, lengths, soc, column), {"scale_value": options.dims[0] ** -0.5}
            result = sim.launch(cgdr.OP, arrays, attrs, soc=soc)
            made, want = result.outputs, cgdr.meaning(**arrays, **attrs)
            doubtful = [h for h in result.hazards if h["severity"] != "note"]
            state = arrays["initial_state"].dtype.name
            found = [compare.measure(n, made[n], want[n]).nrmse for n in ("out", "final_state")]
            inside = found[0] <= BOUND_OUT and found[1] <= BOUND_STATE[state] and not doubtful
            beyond += not inside
            others = [by_decode_operator(arrays, attrs, soc, per_token=False)]
            others.append(
                by_decode_operator(arrays, attrs, soc, per_token=True) if sum(lengths) <= PER_TOKEN else {}
            )
            others.append(by_torch(torch_chunk_gated_delta_rule, arrays, attrs))
            if fla:
                others.append(by_torch(fla.naive_chunk_gated_delta_rule, arrays, attrs))
                others.append(by_torch(lambda q, k, v, g, beta, **o: fla.naive_recurrent_gated_delta_rule(q, k, v, beta, g, **o), arrays, attrs))  # fmt: skip
            cells = [" / ".join(errors(made, other)) if other else "" for other in others]
            table.add_row(
                soc, state, path_of(arrays, attrs, soc), " ".join(map(str, lengths)),
                " / ".join(f"{e:.1e}" for e in found) + ("" if inside else "  BEYOND"), *cells,
            )  # fmt: skip
    console.print(table)
    console.print(f"beyond the bounds (out {BOUND_OUT:g}, state {BOUND_STATE}): {beyond}")
    return int(beyond > 0)


if __name__ == "__main__":
    raise SystemExit(main())
