"""The main job: a Qwen3.5 decode step through adapter, simulator, ONNX export, checker and graph execution.

Three decodes of the same tokens are compared step by step: the unmodified transformers model, the same model with its
recurrent rule replaced by the operator, and the exported graph with its Custom nodes. Operators run in the simulator.
"""

from __future__ import annotations

import copy
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from hybrid_ops import check, models, runtime
from hybrid_ops.export import accuracy, decode, decode_graph, lite_rules, run_graph
from hybrid_ops.models.cached import forward
from hybrid_ops.models.gated_delta import boundary_dtypes
from hybrid_ops.models.sample import sample_decoder
from hybrid_ops.run_report import estimates, render, whole

PATHS = ("transformers + operator", "exported graph")


@dataclass
class Report:
    """Everything the job measured; `seconds` by stage, `agreements` by path and tensor over all steps."""

    soc: str
    operands: str  # dtype of query, key, value on that SoC
    backend: str
    checks: str
    steps: int
    prompt: int
    tokens: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    rules: int = 0
    findings: list[dict[str, str]] = field(default_factory=list)
    agreements: dict[str, dict[str, accuracy.Agreement]] = field(default_factory=dict)
    by_step: list[dict[str, dict[str, accuracy.Agreement]]] = field(default_factory=list)
    launches: int = 0
    hazards: int = 0
    estimates: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(
        self, step: int, path: str, got: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]
    ) -> None:
        """Compare one step's outputs and keep the worst of every tensor."""
        while len(self.by_step) <= step:
            self.by_step.append({})
        worst = self.agreements.setdefault(path, {})
        for name, wanted in reference.items():
            found = accuracy.agreement(got[name], wanted)
            self.by_step[step].setdefault(path, {})[name] = found
            worst[name] = worst.get(name, accuracy.PERFECT).worse(found)

    def judge(self) -> None:
        """Fill `failures`: bounds that do not hold and findings that would break the conversion."""
        for path, tensors in self.agreements.items():
            for name, found in tensors.items():
                bound = accuracy.bound_of(name, self.operands)
                if not found.within(bound):
                    self.failures.append(f"{path}: {name}: {found} outside {bound}")
        bad = [finding for finding in self.findings if finding["severity"] in "ES"]
        self.failures += [f"checker: {f['rule']} {f['node']} {f['attribute']}: {f['problem']}" for f in bad]


def outputs_of(logits: torch.Tensor, cache: Any, config: Any) -> dict[str, np.ndarray]:
    """Logits and states of a transformers step under the decode graph's output names."""
    states = decode_graph.states_from_cache(cache, config)
    present = {name.replace("past", "present"): value.numpy() for name, value in states.items()}
    return {"logits": logits.detach().numpy(), **present}


def transformers_steps(model: Any, cache: Any, tokens: list[int], tick: Callable[[], None]) -> list[Any]:
    """One forward per token on a copy of `cache`; outputs of every step."""
    cache, found = copy.deepcopy(cache), []
    for token in tokens:
        logits, cache = forward(model, torch.tensor([[token]]), cache)
        found.append(outputs_of(logits, cache, model.config))
        tick()
    return found


def greedy(model: Any, cache: Any, token: int, steps: int) -> tuple[list[int], list[Any]]:
    """Tokens that the unmodified model feeds itself, and its outputs of every step."""
    cache, tokens, found = copy.deepcopy(cache), [token], []
    for _ in range(steps):
        logits, cache = forward(model, torch.tensor([[tokens[-1]]]), cache)
        found.append(outputs_of(logits, cache, model.config))
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[:steps], found


def graph_steps(
    runner: run_graph.GraphRunner,
    states: dict[str, torch.Tensor],
    tokens: list[int],
    past: int,
    tick: Callable[[run_graph.GraphRunner], None],
) -> list[Any]:
    """The exported graph fed with its own states."""
    found = []
    for step, token in enumerate(tokens):
        inputs = decode_graph.step_inputs(token, past + step, states)
        outputs = runner.run({name: value.numpy() for name, value in inputs.items()})
        states = {
            name.replace("present", "past"): torch.from_numpy(value)
            for name, value in outputs.items()
            if name != "logits"
        }
        found.append(outputs)
        tick(runner)
    return found


def run_job(
    out: Path,
    *,
    steps: int = 6,
    prompt: int = 16,
    seed: int = 0,
    soc: str = "ascend310p",
    backend: str = "sim",
    checks: str = "full",
    console: Console | None = None,
) -> Report:
    """Do the whole job and write model.onnx, report.json, table.txt and timeline traces into `out`.

    `backend` "reference" replaces the simulator by the NumPy meaning (no estimates then). Returns the report;
    `report.failures` lists what does not hold. Raises HybridOpsError for refused arguments before anything runs.
    """
    soc = check.find_soc(None, soc)
    check.choice("run", "backend", backend, ("sim", "reference"), soc)
    check.choice("run", "checks", checks, ("full", "off"), soc)
    for name, value in (("steps", steps), ("prompt", prompt)):
        if value < 1:
            raise check.refuse("run", name, "too small", got=value, allowed="1 or more", soc=soc)
    console = console or Console(emoji=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for stale in ("report.json", "table.txt"):  # a failing run must not leave an older verdict
            (out / stale).unlink(missing_ok=True)
    except OSError as error:
        raise check.refuse(
            "run", "out", "cannot be written to", got=error, allowed="a folder to write to", soc=soc
        ) from error
    operands = str(boundary_dtypes(soc)[0]).removeprefix("torch.")
    report = Report(soc, operands, backend, checks, steps, prompt)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:32}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    last: list[run_graph.Launch] = []

    @contextmanager
    def stage(name: str, total: int = 1) -> Iterator[Callable[..., None]]:
        task, start = bar.add_task(name, total=total), time.perf_counter()
        yield lambda *_: bar.advance(task)
        bar.update(task, completed=total)
        report.seconds[name] = time.perf_counter() - start

    with bar, torch.no_grad(), runtime.using(backend=backend, checks=checks):
        with stage("build the model and prefill"):
            model = sample_decoder(seed=seed)
            ids = torch.randint(
                0, model.config.vocab_size, (1, prompt), generator=torch.Generator().manual_seed(seed)
            )
            logits, cache = forward(model, ids)
            first = int(logits[0, -1].argmax())
        with stage("decode, unmodified"):
            report.tokens, reference = greedy(model, cache, first, steps)
        with stage(f"decode, operator on {backend}", steps) as tick, models.patched(model, soc=soc):
            adapted = transformers_steps(model, cache, report.tokens, tick)
        with stage("export to ONNX"):
            path = decode.export_decode(model, out / "model.onnx", soc=soc)
        with stage("check the graph"):
            report.rules = len(lite_rules.applicable((2, 9)))
            report.findings = lite_rules.as_json(lite_rules.check_file(path, soc=soc))
            kinds = [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
            report.nodes = {"all": len(kinds), **{kind: kinds.count(kind) for kind in sorted(set(kinds))}}
        with stage("run the exported graph", steps) as tick:
            runner = run_graph.GraphRunner(path, soc=soc, backend=backend, checks=checks)

            def after(done: run_graph.GraphRunner) -> None:
                report.launches += len(done.launches)
                report.hazards += sum(len(launch.hazards) for launch in done.launches)
                last[:] = done.launches
                tick()

            states = decode_graph.states_from_cache(cache, model.config)
            exported = graph_steps(runner, states, report.tokens, prompt, after)
        for step, wanted in enumerate(reference):
            report.add(step, PATHS[0], adapted[step], wanted)
            report.add(step, PATHS[1], exported[step], wanted)
        if backend == "sim":
            with stage("estimate cycles"):
                report.estimates = estimates(last, out)
    report.judge()
    write(report, out, console)
    return report


def write(report: Report, out: Path, console: Console) -> None:
    """Print the table and write it with the report; each file appears complete or not at all."""
    text = json.dumps(asdict(report), indent=1, default=float) + "\n"
    whole(out / "report.json", lambda path: path.write_text(text, encoding="utf-8"))
    for table in render(report):
        console.print(table)
    page = io.StringIO()
    plain = Console(emoji=False, file=page, width=118)
    for table in render(report):
        plain.print(table)
    whole(out / "table.txt", lambda path: path.write_text(page.getvalue(), encoding="utf-8"))
