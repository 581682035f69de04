"""Routed experts as nodes of exported graphs: checker-clean, equal to the model, independent of the example's routing."""

from __future__ import annotations

import collections

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, runtime  # noqa: E402
from hybrid_ops.export import (  # noqa: E402
    GraphRunner,
    check_file,
    decode_graph,
    export_decode,
    export_prefill,
    prefill_graph,
)
from hybrid_ops.export.accuracy import agreement, bound_of  # noqa: E402
from hybrid_ops.export.graph_view import Graph  # noqa: E402
from hybrid_ops.models.cached import forward  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402

MOE = ["HybridMoeGatingTopK", "HybridMoeInitRouting", "HybridMoeSwiGluExperts", "HybridMoeCombine"]
CAPACITY = 40
TRACED = {"OneHot", "NonZero", "Loop", "If", "ScatterND", "ScatterElements", "TopK"}


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


def arrays(inputs: dict) -> dict:
    return {name: value.detach().numpy() for name, value in inputs.items()}


def kinds(path) -> collections.Counter:
    return collections.Counter(node.type for node in Graph(onnx.load(path)).custom_nodes)


def prompt(length: int) -> torch.Tensor:
    return torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize(
    ("family", "exporter", "capacity"),
    [("qwen3_next", "dynamo", CAPACITY), ("qwen3_5_moe", "legacy", None)],
)
def test_decode_with_experts_as_nodes(family, exporter, capacity, tmp_path):
    """12 greedy tokens of a graph exported from an example of zeros; every step routes elsewhere."""
    model = small_model(family)
    path = export_decode(model, tmp_path / "d.onnx", experts="node", exporter=exporter, max_seq_len=capacity)
    assert check_file(path) == []
    made = kinds(path)
    assert {made[name] for name in MOE} == {3}
    assert not TRACED & {node.op_type for node in onnx.load(path).graph.node}
    logits, cache = forward(model, prompt(9))
    states = decode_graph.states_from_cache(cache, model.config, capacity)
    runner, chosen = GraphRunner(path, backend="reference"), set()
    for step in range(12):
        token = int(logits[0, -1].argmax())
        got = runner.run(arrays(decode_graph.step_inputs(token, 9 + step, states, capacity)))
        logits, cache = forward(model, torch.tensor([[token]]), cache)
        assert agreement(got["logits"], logits.numpy()).within(bound_of("logits")), step
        assert int(got["logits"][0, -1].argmax()) == int(logits[0, -1].argmax())
        states = {n.replace("present", "past"): torch.from_numpy(v) for n, v in got.items() if n != "logits"}
        chosen.add(token)
    assert len(chosen) > 3


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_prefill_with_experts_as_nodes(exporter, tmp_path):
    """The number of tokens is dynamic: prompts of other lengths than the example's. Sizes of the model are not."""
    model = small_model("qwen3_next")
    path = export_prefill(model, tmp_path / "p.onnx", experts="node", max_seq_len=CAPACITY, exporter=exporter)
    shapes = {n.type: n.values.get("outputs_shape") for n in Graph(onnx.load(path)).custom_nodes}
    assert shapes["HybridMoeSwiGluExperts"] == shapes["HybridMoeCombine"] == "2,-1,64,"
    assert check_file(path) == [] and {kinds(path)[name] for name in MOE} == {3}
    runner = GraphRunner(path, backend="reference")
    for length in (1, 8, 33):
        got = runner.run(arrays(prefill_graph.prompt_inputs(model, prompt(length))))
        logits, _ = forward(model, prompt(length))
        assert agreement(got["logits"], logits.numpy()).within(bound_of("logits")), length


def test_unknown_form_is_refused(tmp_path):
    with pytest.raises(HybridOpsError, match=r"export: experts: .*got 'loop'; allowed subgraph, node"):
        export_decode(small_model("qwen3_next"), tmp_path / "d.onnx", experts="loop")


FROZEN = {
    "HybridMoeInitRouting": (1, (1, 2)),
    "HybridMoeSwiGluExperts": (3, (9,)),
    "HybridMoeCombine": (1, (1, 2)),
}


@pytest.fixture(scope="module")
def decode_step(tmp_path_factory):
    path = tmp_path_factory.mktemp("moe") / "d.onnx"
    with runtime.using(backend="reference"):
        return export_decode(
            small_model("qwen3_next"), path, experts="node", max_seq_len=CAPACITY, exporter="legacy"
        )


@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_routing_is_found(kind, decode_step, tmp_path):
    """C14: experts, offsets or rows that are constants are the example's routing."""
    index, shape = FROZEN[kind]
    broken = onnx.load(decode_step)
    node = next(n.proto for n in Graph(broken).custom_nodes if n.type == kind)
    values = torch.arange(int(torch.tensor(shape).prod()), dtype=torch.int32).reshape(shape)
    broken.graph.initializer.append(onnx.numpy_helper.from_array(values.numpy(), "fixed"))
    node.input[index] = "fixed"
    file = tmp_path / "broken.onnx"
    onnx.save(broken, file)
    found = [f for f in check_file(file) if f.rule == "C14"]
    assert len(found) == 1 and "every call would use the routing of the example" in str(found[0])
