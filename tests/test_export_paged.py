"""The decode step over pages, and over a cache of fixed capacity: clean, every mixer ours, equal to the model."""

from __future__ import annotations

import collections
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, runtime  # noqa: E402
from hybrid_ops.export import GraphRunner, check_file, check_model, paged_decode  # noqa: E402
from hybrid_ops.export.accuracy import agreement, bound_of  # noqa: E402
from hybrid_ops.export.graph_view import Graph  # noqa: E402
from hybrid_ops.export.profiles import PROFILES  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402
from hybrid_ops.paged import HostPlan  # noqa: E402

LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
KINDS = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
PROMPT, TOKENS = 5, (7, 11, 13)
PAGED = {"pages": 4, "page_size": 4, "table_width": 4}
FIXED = {"max_seq_len": 16}
PLANS = {"paged": HostPlan(4, 4, [[2, 0, 3, 1]], [16], [], []), "fixed": HostPlan(16, 1, [[0]], [16], [], [])}
KINDS_OF_CACHE = {"paged": PAGED, "fixed": FIXED}
UNWANTED = {
    "OneHot",
    "NonZero",
    "Loop",
    "If",
    "ScatterND",
    "ScatterElements",
    "GatherND",
    "Conv",
    "IsNaN",
    "Range",
    "Softmax",
}


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


def small(family="qwen3_5"):
    return small_model(family, num_hidden_layers=4, layer_types=KINDS, **LINEAR)


@pytest.fixture(scope="module")
def model():
    return small()


@pytest.fixture(scope="module", params=list(KINDS_OF_CACHE))
def exported(request, model, tmp_path_factory):
    kind, path = request.param, tmp_path_factory.mktemp("paged") / "decode.onnx"
    exporter = "dynamo" if kind == "paged" else "legacy"
    return kind, paged_decode.export_paged_decode(model, path, exporter=exporter, **KINDS_OF_CACHE[kind])


def wanted(model):
    """Cache after the prompt, and (token, logits, cache) of the model's own steps."""
    with torch.no_grad():
        cache = model(torch.arange(3, 3 + PROMPT)[None], use_cache=True).cache
        running, steps = copy.deepcopy(cache), []
        for token in TOKENS:
            logits = model(torch.tensor([[token]]), cache=running, use_cache=True).logits
            steps.append((token, logits.numpy(), copy.deepcopy(running)))
    return cache, steps


def arrays(inputs):
    return {name: value.numpy() for name, value in inputs.items()}


def run_steps(path, model, kind, **options):
    """Runs the graph on its own states and holds every step to the model's."""
    plan = PLANS[kind]
    cache, steps = wanted(model)
    runner = GraphRunner(path, **options)
    states = paged_decode.pools_from_cache(cache, model.config, plan)
    for name in ("past_key_cache", "past_value_cache"):  # what no token has must not matter
        empty = paged_decode.pools_from_cache(cache, model.config, plan)[name] == 0
        states[name][empty.all(-1).all(-1)] = float("nan")
    for i, (token, logits, after) in enumerate(steps):
        given = paged_decode.paged_step_inputs(token, PROMPT + i, states, plan if kind == "paged" else None)
        got = runner.run(arrays(given))
        assert agreement(got["logits"], logits).within(bound_of("logits"))
        pools = paged_decode.pools_from_cache(after, model.config, plan)
        for name in ("key_cache", "value_cache"):
            mine, theirs = got[f"present_{name}"], pools[f"past_{name}"].numpy()
            written = theirs.astype(bool).any((-1, -2))
            assert agreement(mine[written], theirs[written]).nrmse < 2e-3
            before = given[f"past_{name}"].numpy()
            changed = (mine.view(np.uint16) != before.view(np.uint16)).any((-1, -2))
            assert changed.sum() == 2, "one slot of each attention layer"
        states = {n.replace("present", "past"): torch.from_numpy(v) for n, v in got.items() if n != "logits"}
    return runner


def test_graph_is_clean_and_every_mixer_is_ours(exported):
    kind, path = exported
    assert check_file(path) == []
    graph = onnx.load(path)
    ops = collections.Counter(node.op_type for node in graph.graph.node)
    assert not UNWANTED & set(ops)
    types = collections.Counter(node.type for node in Graph(graph).custom_nodes)
    assert types == {"RecurrentGatedDeltaRule": 2, "HybridReshapeAndCache": 2, "HybridPagedAttention": 2}
    names = paged_decode.PAGED_INPUTS if kind == "paged" else paged_decode.CONTIGUOUS_INPUTS
    assert [value.name for value in graph.graph.input] == list(names)
    assert [value.name for value in graph.graph.output] == list(paged_decode.OUTPUT_NAMES)
    assert not any(
        d.dim_param for v in [*graph.graph.input, *graph.graph.output] for d in v.type.tensor_type.shape.dim
    )


def test_the_pool_runs_through_the_layers(exported):
    """Each layer updates what the one before left, so nothing copies, stacks or slices a pool."""
    graph = Graph(onnx.load(exported[1]))
    writes = [node for node in graph.custom_nodes if node.type == "HybridReshapeAndCache"]
    reads = [node for node in graph.custom_nodes if node.type == "HybridPagedAttention"]
    for cache, port in (("key_cache", 0), ("value_cache", 1)):
        assert writes[0].bound()[cache] == f"past_{cache}"
        assert writes[1].bound()[cache] == writes[0].proto.output[port]
        assert [read.bound()[cache] for read in reads] == [write.proto.output[port] for write in writes]
        assert writes[1].proto.output[port] == f"present_{cache}"


def test_nodes_say_what_the_opdef_says(exported):
    nodes = [n for n in Graph(onnx.load(exported[1])).custom_nodes if n.type == "HybridPagedAttention"]
    values = nodes[0].values
    assert values["causal"] == "true" and values["softmax_lse_flag"] == "false" and values["num_splits"] == 1
    assert values["scale_value"] == np.float32(32**-0.5)
    assert values["output_types"] == [42, 43] and values["output_num"] == 2


def test_running_it_agrees_with_the_model(exported, model):
    kind, path = exported
    runner = run_steps(path, model, kind, backend="reference")
    assert len(runner.launches) == 6


def test_running_it_in_the_simulator(exported, model):
    kind, path = exported
    runner = run_steps(path, model, kind, backend="sim", checks="full")
    assert [h for launch in runner.launches for h in launch.hazards if h["severity"] != "note"] == []


@pytest.mark.parametrize("target", PROFILES)
@pytest.mark.parametrize("kind", KINDS_OF_CACHE)
def test_every_release_and_the_tracing_exporter(kind, target, model, tmp_path):
    path = paged_decode.export_paged_decode(
        model, tmp_path / "d.onnx", target=target, exporter="legacy", **KINDS_OF_CACHE[kind]
    )
    found = check_file(path, version=PROFILES[target].version)
    assert found == []
    for node in Graph(onnx.load(path)).custom_nodes:  # before 2.9 the package says the types, the node cannot
        assert ("output_types" in node.kinds) == ("dtype" in node.kinds) == (target == "lite-2.9")
    run_steps(path, model, kind, backend="reference")


def test_mixture_of_experts_and_the_other_soc(tmp_path):
    model = small("qwen3_next")
    path = paged_decode.export_paged_decode(
        model, tmp_path / "d.onnx", soc="ascend910b", exporter="legacy", **PAGED
    )
    assert check_file(path, soc="ascend910b") == []
    graph = Graph(onnx.load(path))
    assert graph.value("past_key_cache").dtype == "float32"  # the model's, which 910b takes
    cache, steps = wanted(model)
    states = paged_decode.pools_from_cache(cache, model.config, PLANS["paged"], torch.float32)
    given = paged_decode.paged_step_inputs(steps[0][0], PROMPT, states, PLANS["paged"])
    got = GraphRunner(path, soc="ascend910b", backend="reference").run(arrays(given))
    assert agreement(got["logits"], steps[0][1]).cosine > 0.999


def test_a_negative_slot_stores_nothing(model, tmp_path):
    path = paged_decode.export_paged_decode(model, tmp_path / "d.onnx", exporter="legacy", **PAGED)
    cache, _ = wanted(model)
    states = paged_decode.pools_from_cache(cache, model.config, PLANS["paged"])
    given = paged_decode.paged_step_inputs(7, PROMPT, states, PLANS["paged"])
    given["slot_mapping"][:] = -1
    got = GraphRunner(path, backend="reference").run(arrays(given))
    for name in ("key_cache", "value_cache"):
        assert got[f"present_{name}"].tobytes() == given[f"past_{name}"].numpy().tobytes()


def test_a_constant_slot_is_found(exported):
    graph = onnx.load(exported[1])
    node = next(n for n in Graph(graph).custom_nodes if n.type == "HybridReshapeAndCache")
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1, np.int32), "fixed_slot"))
    node.proto.input[4] = "fixed_slot"
    found = [f for f in check_model(graph) if f.attribute == "slot_mapping"]
    assert [(f.rule, f.problem) for f in found] == [("C14", "constant [0]: every call writes the same slots")]


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, "pages: one kind of cache is needed: got max_seq_len None and pages None; allowed either max_seq_len or pages"),
        ({**PAGED, **FIXED}, "pages: one kind of cache is needed: got max_seq_len 16 and pages 4; allowed either max_seq_len or pages"),
        ({"pages": 0}, "pages: too small: got 0; allowed 1 or more"),
        ({**PAGED, "experts": "loop"}, "experts: not a known choice: got 'loop'; allowed subgraph, node"),
        ({**PAGED, "table_width": 0}, "table_width: too small: got 0; allowed 1 or more"),
    ],
)  # fmt: skip
def test_refusals(options, wanted, model, tmp_path):
    with pytest.raises(HybridOpsError) as caught:
        paged_decode.export_paged_decode(model, tmp_path / "d.onnx", **options)
    assert str(caught.value) == f"export: {wanted} on ascend310p"
