"""Every form of export: node counts, checker, and the graph run on the CPU against the unmodified model.

    python benchmarks/export_matrix.py [--family NAME ...] [--component NAME] [--profile NAME] [--corners] [--dtype fp16]
    python benchmarks/export_matrix.py --all-ours [--backend sim]

Small random models with the head geometry of Qwen3.5-4B. With --all-ours the decode graphs in which attention and
routed experts are operators too, over pages and over a cache of fixed capacity. Per line: nodes in all, Custom nodes of the
gated delta rule and others, checker findings, greedy tokens equal to the model's, worst error of the logits over all steps and
prompts, and of the states. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from hybrid_ops.export import matrix
from hybrid_ops.export.model_source import DTYPES
from hybrid_ops.export.profiles import PROFILES
from hybrid_ops.models.families import FAMILIES, small_model

console = Console(width=172, emoji=False, highlight=False)


def measure(forms: list[matrix.Form], dtype: str, backend: str) -> list[matrix.Trial]:
    models, trials = {}, []
    bar = Progress(
        TextColumn("{task.description:60}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, emoji=False),
    )
    with bar, tempfile.TemporaryDirectory() as folder:
        task = bar.add_task("", total=len(forms))
        for form in forms:
            bar.update(task, description=str(form))
            if form.family not in models:
                models[form.family] = small_model(form.family).to(DTYPES[dtype])
            trials.append(matrix.run(models[form.family], form, Path(folder), backend=backend))
            for file in Path(folder).iterdir():
                file.unlink()
            bar.advance(task)
    return trials


def table(trials: list[matrix.Trial]) -> Table:
    names = (
        "family", "graph", "exporter", "cache", "profile", "nodes", "rule", "others", "found", "tokens",
        "1 - cosine", "NRMSE", "states NRMSE", "s", "verdict",
    )  # fmt: skip
    out = Table(*(Column(name, no_wrap=True) for name in names))
    for trial in trials:
        form = trial.form
        graph = f"prefill, {form.chunk}" if form.component == "prefill" else "decode"
        graph += ", ours" if form.ours else ""
        row = [form.family, graph, form.exporter, form.cache, form.profile.removeprefix("lite-")]
        if trial.refusal:
            out.add_row(*row, *["-"] * 9, "refused")
            continue
        out.add_row(
            *row, str(trial.nodes), str(trial.customs.get(matrix.RULES[form.component], 0)),
            str(sum(trial.customs.values()) - trial.customs.get(matrix.RULES[form.component], 0)), str(len(trial.findings)), f"{trial.tokens}/{matrix.STEPS}",
            f"{1 - trial.logits.cosine:.1e}", f"{trial.logits.nrmse:.1e}", f"{trial.states.nrmse:.1e}",
            f"{trial.seconds:.1f}", "differs" if trial.faults else "equal",
        )  # fmt: skip
    return out


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", nargs="*", choices=tuple(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--component", choices=tuple(matrix.RULES))
    parser.add_argument("--profile", choices=tuple(PROFILES))
    parser.add_argument("--corners", action="store_true", help="only forms in which two settings meet first")
    parser.add_argument(
        "--dtype", choices=("fp16", "fp32"), default="fp32", help="of weights and activations"
    )
    parser.add_argument("--all-ours", action="store_true", help="decode with every layer's work in operators")
    parser.add_argument(
        "--backend", choices=("reference", "sim"), default="reference", help="what runs Custom nodes"
    )
    given = parser.parse_args()
    start = time.perf_counter()
    forms = [
        form
        for form in (matrix.all_ours if given.all_ours else matrix.forms)(given.family)
        if given.component in (None, form.component) and given.profile in (None, form.profile)
    ]
    trials = measure(matrix.corners(forms) if given.corners else forms, given.dtype, given.backend)
    console.print(table(trials))
    faults = [f"{trial.form}: {fault}" for trial in trials for fault in trial.faults]
    faults += matrix.twins(trials)
    refused = [trial for trial in trials if trial.refusal]
    for line in [*(f"{trial.form} refused: {trial.refusal}" for trial in refused), *faults]:
        console.print(line, markup=False, soft_wrap=True)
    equal = len(trials) - len(refused) - len({id(t) for t in trials if t.faults})
    console.print(
        f"{len(trials)} forms: {equal} equal the model, {len(refused)} refused, {len(faults)} faults; "
        f"{time.perf_counter() - start:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
