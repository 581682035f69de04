"""Every form a graph can be exported in, and one trial of a form: exported, checked, run beside the unmodified model.

Used by `benchmarks/export_matrix.py` for all forms and by the tests for those where two settings meet first.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import torch

from hybrid_ops import check, runtime
from hybrid_ops.export import accuracy, decode, decode_graph, lite_rules, paged_decode, prefill_graph
from hybrid_ops.export.decode import CHUNKS, EXPORTERS
from hybrid_ops.export.graph_view import Graph
from hybrid_ops.export.profiles import PROFILES
from hybrid_ops.export.run_graph import GraphRunner
from hybrid_ops.models import experts, gated_delta, moe_graph, paged_step
from hybrid_ops.models.cached import forward
from hybrid_ops.models.families import FAMILIES
from hybrid_ops.models.paged_step import pool_dtype
from hybrid_ops.paged import HostPlan

CAPACITY = 96
PROMPTS = (21, 1, 70)  # tokens: the one that is continued; below the convolution's memory; above one chunk
STEPS = 16
CACHES = ("growing", "fixed")
PLANS = {  # of one sequence; the pages stand in no order
    "paged": HostPlan(16, 6, [[2, 0, 3, 1, 5, 4]], [CAPACITY], [], []),
    "fixed": HostPlan(CAPACITY, 1, [[0]], [CAPACITY], [], []),
}
# Kinds whose number says what a graph computes; the exporters differ in how they write shapes and elementwise parts.
WORK = (
    "MatMul",
    "Custom",
    "Softmax",
    "Softplus",
    "Sigmoid",
    "ReduceMean",
    "ReduceSum",
    "TopK",
    "Pad",
    "Exp",
    "Cos",
)
POOLS = ("past_key_cache", "past_value_cache")
RULES = {"prefill": gated_delta.CHUNK_TYPE, "decode": gated_delta.OP_TYPE}


@dataclass(frozen=True)
class Form:
    """One way to export one graph of one family; `ours`: attention and routed experts are operators too (cache: PLANS)."""

    family: str
    component: str
    exporter: str
    cache: str
    profile: str
    chunk: str = CHUNKS[0]  # of the prefill
    ours: bool = False

    def __str__(self) -> str:
        parts = [self.family, self.component, self.exporter, self.cache, self.profile]
        parts += [self.chunk] if self.component == "prefill" else []
        return " ".join([*parts, "ours"] if self.ours else parts)

    @property
    def capacity(self) -> int | None:
        return CAPACITY if self.cache == "fixed" else None


@dataclass
class Trial:
    """What one form came to. `refusal` is the exporter's reason where it refuses; `faults` is empty where all is well."""

    form: Form
    nodes: int = 0
    customs: dict[str, int] = field(default_factory=dict)
    findings: list[lite_rules.Finding] = field(default_factory=list)
    tokens: int = 0  # greedy tokens equal to the model's
    logits: accuracy.Agreement = accuracy.PERFECT
    states: accuracy.Agreement = accuracy.PERFECT
    attributes: list[dict[str, Any]] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)  # nodes by WORK, Gemm as MatMul
    hazards: list[dict[str, Any]] = field(default_factory=list)  # of the simulator
    seconds: float = 0.0
    refusal: str = ""
    faults: list[str] = field(default_factory=list)


def forms(families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Form]:
    """All forms, family by family; prefill with the chunk rule as node and as subgraph."""
    for family in families:
        for component, chunks in (("prefill", CHUNKS), ("decode", CHUNKS[:1])):
            for values in itertools.product(EXPORTERS, CACHES, PROFILES, chunks):
                yield Form(family, component, *values)


def all_ours(families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Form]:
    """All forms of a decode graph in which every layer's work is an operator of this package."""
    for family, exporter, plan, profile in itertools.product(families, EXPORTERS, PLANS, PROFILES):
        yield Form(family, "decode", exporter, plan, profile, ours=True)


def corners(every: Sequence[Form]) -> list[Form]:
    """Few of `every` in which any two settings that occur together do so; the slow exporter in as few as possible."""

    def pairs(form: Form) -> set[tuple[Any, ...]]:
        return set(itertools.combinations(vars(form).items(), 2))

    open_pairs: set[tuple[Any, ...]] = set().union(*(pairs(form) for form in every))
    chosen = []
    while open_pairs:
        best = max(every, key=lambda form: len(pairs(form) & open_pairs) - 0.9 * (form.exporter == "dynamo"))
        open_pairs -= pairs(best)
        chosen.append(best)
    return chosen


def run(
    model: Any, form: Form, folder: Path, *, soc: str = "ascend310p", backend: str = "reference"
) -> Trial:
    """Export `model` in one form into `folder`, check the file, run it: Custom nodes as NumPy or in the simulator."""
    trial, start = Trial(form), time.perf_counter()
    path = folder / f"{str(form).replace(' ', '-')}.onnx"
    options: dict[str, Any] = {
        "target": form.profile,
        "soc": soc,
        "exporter": form.exporter,
    }
    if form.ours:
        plan = PLANS[form.cache]
        sizes = {"pages": plan.pages, "page_size": plan.page_size, "table_width": len(plan.tables[0])}
        options |= sizes if form.cache == "paged" else {"max_seq_len": CAPACITY}
        options["experts"] = "node"
    else:
        options["max_seq_len"] = form.capacity
    with runtime.using(backend="reference"):
        try:
            if form.component == "prefill":
                decode.export_prefill(model, path, chunk=form.chunk, max_prompt=CAPACITY, **options)
            elif form.ours:
                paged_decode.export_paged_decode(model, path, **options)
            else:
                decode.export_decode(model, path, **options)
        except check.HybridOpsError as error:
            trial.refusal = str(error)
            return trial
        _describe(trial, path, model, soc)
        runner = GraphRunner(path, backend=backend, soc=soc)
        if form.component == "prefill":
            _prefill(trial, runner, model, soc)
        else:
            _decode(trial, runner, model, soc)
    _judge(trial)
    trial.seconds = time.perf_counter() - start
    return trial


def prompt(length: int, vocabulary: int) -> torch.Tensor:
    """Token ids `[1, length]`, the same every time."""
    return torch.randint(0, vocabulary, (1, length), generator=torch.Generator().manual_seed(length))


def _describe(trial: Trial, path: Path, model: Any, soc: str) -> None:
    proto = onnx.load(path)
    graph = Graph(proto)
    trial.nodes = len(proto.graph.node)
    trial.customs = dict(collections.Counter(node.type for node in graph.custom_nodes))
    trial.attributes = [node.values for node in graph.custom_nodes]
    kinds = collections.Counter("MatMul" if n.op_type == "Gemm" else n.op_type for n in proto.graph.node)
    trial.work = {kind: kinds[kind] for kind in WORK}
    version = PROFILES[trial.form.profile].version
    trial.findings = lite_rules.check_model(proto, version=version, soc=soc, file=path)
    layers = collections.Counter(model.config.layer_types)
    form, wanted = trial.form, {}
    if form.component == "decode" or form.chunk == "node":
        wanted[RULES[form.component]] = layers["linear_attention"]
    if form.ours:
        sparse = sum(experts.is_sparse(layer.mlp) for layer in model.model.layers)
        wanted |= dict.fromkeys(paged_step.NODES, layers["full_attention"])
        wanted |= dict.fromkeys(moe_graph.NODES, sparse) if sparse else {}
    elif form.component == "decode" and form.capacity and PROFILES[form.profile].scatter:
        wanted["Scatter"] = 2 * layers["full_attention"]
    if trial.customs != wanted:
        trial.faults.append(f"Custom nodes: {trial.customs} instead of {wanted}")


def _states(form: Form, cache: Any, model: Any, soc: str) -> dict[str, torch.Tensor]:
    """The past_* inputs that the graph of `form` takes for a transformers cache."""
    if not form.ours:
        return decode_graph.states_from_cache(cache, model.config, form.capacity)
    dtype = pool_dtype(next(model.parameters()).dtype, soc)
    return paged_decode.pools_from_cache(cache, model.config, PLANS[form.cache], dtype)


def _inputs(form: Form, token: int, past: int, states: dict[str, torch.Tensor]) -> dict[str, Any]:
    if not form.ours:
        inputs = decode_graph.step_inputs(token, past, states, form.capacity)
    else:
        plan = PLANS[form.cache] if form.cache == "paged" else None
        inputs = paged_decode.paged_step_inputs(token, past, states, plan)
    return {name: value.numpy() for name, value in inputs.items()}


def _compare(
    trial: Trial, got: dict[str, Any], logits: torch.Tensor, cache: Any, model: Any, soc: str
) -> None:
    """Keep the worst agreement of logits and of states; of a pool of pages, the slots that have a token."""
    trial.logits = trial.logits.worse(accuracy.agreement(got["logits"], logits.numpy()))
    for name, value in _states(trial.form, cache, model, soc).items():
        mine, theirs = got[name.replace("past", "present")], value.numpy()
        if name in POOLS:
            written = theirs.astype(bool).any((-1, -2))
            mine, theirs = mine[written], theirs[written]
        found = accuracy.agreement(mine, theirs)
        trial.states = trial.states.worse(found)


def _past(outputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {n.replace("present", "past"): torch.as_tensor(v) for n, v in outputs.items() if n != "logits"}


def _decode(trial: Trial, runner: GraphRunner, model: Any, soc: str) -> None:
    """From the model's states after a prompt, graph and model each go on with their own tokens."""
    ids = prompt(PROMPTS[0], model.config.vocab_size)
    logits, cache = forward(model, ids)
    states = _states(trial.form, cache, model, soc)
    ours = theirs = int(logits[0, -1].argmax())
    for step in range(STEPS):
        got = runner.run(_inputs(trial.form, ours, ids.shape[1] + step, states))
        trial.hazards += [h for launch in runner.launches for h in launch.hazards if h["severity"] != "note"]
        logits, cache = forward(model, torch.tensor([[theirs]]), cache)
        _compare(trial, got, logits, cache, model, soc)
        states, ours, theirs = _past(got), int(got["logits"][0, -1].argmax()), int(logits[0, -1].argmax())
        if ours != theirs:
            return
        trial.tokens += 1


def _prefill(trial: Trial, runner: GraphRunner, model: Any, soc: str) -> None:
    """Prompts of several lengths; after the first, the decode step goes on from the graph's states."""
    capacity = trial.form.capacity
    for length in reversed(PROMPTS):
        ids = prompt(length, model.config.vocab_size)
        got = runner.run({n: v.numpy() for n, v in prefill_graph.prompt_inputs(model, ids).items()})
        logits, cache = forward(model, ids)
        _compare(trial, got, logits, cache, model, soc)
    step = decode_graph.DecodeStep(model, soc=soc, capacity=capacity)
    states, ours, theirs = _past(got), int(got["logits"][0, -1].argmax()), int(logits[0, -1].argmax())
    for index in range(STEPS):
        if ours != theirs:
            return
        trial.tokens += 1
        with torch.no_grad():
            outputs = step(**decode_graph.step_inputs(ours, PROMPTS[0] + index, states, capacity))
        states = _past(dict(zip(decode_graph.OUTPUT_NAMES, outputs, strict=True)))
        logits, cache = forward(model, torch.tensor([[theirs]]), cache)
        ours, theirs = int(outputs[0][0, -1].argmax()), int(logits[0, -1].argmax())


def _judge(trial: Trial) -> None:
    for finding in trial.findings:
        trial.faults.append(f"checker: {finding}")
    trial.faults += [f"simulator: {hazard}" for hazard in trial.hazards]
    for name, found in (("logits", trial.logits), ("states", trial.states)):
        if not found.within(accuracy.bound_of(name)):
            trial.faults.append(f"{name}: {found} outside {accuracy.bound_of(name)}")
    if trial.tokens != STEPS:
        trial.faults.append(f"{trial.tokens} of {STEPS} greedy tokens are the model's")


def twins(trials: Sequence[Trial]) -> list[str]:
    """What differs between the graphs that both exporters made of one form: Custom nodes, number of nodes of WORK."""
    faults = []
    by_form = {str(trial.form): trial for trial in trials if not trial.refusal}
    first, second = EXPORTERS
    for name, one in by_form.items():
        other = by_form.get(name.replace(first, second)) if first in name else None
        if other is None:
            continue
        if one.attributes != other.attributes:
            faults.append(f"{name}: Custom nodes differ from those of {second}")
        if one.work != other.work:
            faults.append(f"{name}: {one.work}, by {second} {other.work}")
    return faults
