"""Prefill and fixed-capacity decode of every family: the exported files, run on the CPU, against the unmodified model."""

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
from hybrid_ops.export.profiles import PROFILES  # noqa: E402
from hybrid_ops.models import experts  # noqa: E402
from hybrid_ops.models.cached import forward  # noqa: E402
from hybrid_ops.models.chunk_rule import chunk_rule, scan_depth  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402

CAPACITY = 160
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
}
SHORT = [1, 2, 3]  # shorter than, and as long as, the convolution's memory
LENGTHS = [*SHORT, 5, 63, 64, 65, 130, CAPACITY]


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


@pytest.fixture(scope="module")
def dense():
    return small_model("qwen3_5")


@pytest.fixture(scope="module")
def prefill(dense, tmp_path_factory):
    return export_prefill(
        dense, tmp_path_factory.mktemp("prefill") / "p.onnx", max_seq_len=CAPACITY, chunk="subgraph"
    )


def tokens(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(seed))


def arrays(inputs: dict) -> dict:
    return {name: value.numpy() for name, value in inputs.items()}


def wanted(model, ids: torch.Tensor, capacity: int | None = None) -> dict[str, np.ndarray]:
    logits, cache = forward(model, ids)
    states = decode_graph.states_from_cache(cache, model.config, capacity)
    return {"logits": logits.numpy()} | {
        name.replace("past", "present"): value.numpy() for name, value in states.items()
    }


def agrees(got: dict, want: dict, nrmse: float = 1e-5) -> None:
    for name, value in want.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape, name
        found = agreement(got[name], value)
        assert found.nrmse < nrmse, (name, found)


@pytest.mark.parametrize("length", LENGTHS)
def test_prefill_is_the_models(length, prefill, dense):
    """Prompts below, at and above a chunk and below the convolution's memory; conv states are zero-padded in front."""
    ids = tokens(length)
    got = GraphRunner(prefill, backend="reference").run(arrays(prefill_graph.prompt_inputs(dense, ids)))
    agrees(got, wanted(dense, ids, CAPACITY))
    if length < 3:
        assert not got["present_conv_states"][..., : 3 - length].any()


def test_prefill_file(prefill):
    assert check_file(prefill) == []
    model = onnx.load(prefill)
    kinds = {node.op_type for node in model.graph.node}
    assert not UNWANTED & kinds and {entry.domain for entry in model.opset_import} == {""}
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.output]
    }
    assert shapes == {
        "input_ids": [1, "sequence"],
        "attention_mask": [1, "sequence"],
        "position_ids": [4, 1, "sequence"],
        "logits": [1, "sequence", 64],
        "present_conv_states": [2, 1, 8192, 3],
        "present_recurrent_states": [2, 1, 32, 128, 128],
        "present_kv_cache": [2, 1, 2, CAPACITY, 32],
    }
    assert {p.key: p.value for p in model.metadata_props} == {"max_prompt": str(CAPACITY)}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_leaves_no_trace_in_the_states(side, prefill, dense):
    """The host pads prompts to a gear; conv and recurrent states and the last token's logits are as without padding."""
    ids, pad = tokens(70), 26
    inputs = arrays(prefill_graph.prompt_inputs(dense, ids))
    front = pad if side == "left" else 0
    widths = {"input_ids": 0, "attention_mask": 0, "position_ids": 0}
    padded = {
        name: np.pad(
            value, [(0, 0)] * (value.ndim - 1) + [(front, pad - front)], constant_values=widths[name]
        )
        for name, value in inputs.items()
    }
    runner = GraphRunner(prefill, backend="reference")
    plain, got = runner.run(inputs), runner.run(padded)
    for name in ("present_conv_states", "present_recurrent_states"):
        assert agreement(got[name], plain[name]).nrmse < 1e-6, name
    end = front + 70
    assert agreement(got["logits"][:, front:end], plain["logits"]).nrmse < 1e-6
    cache, alone = got["present_kv_cache"], plain["present_kv_cache"]
    assert agreement(cache[:, :, :, front:end], alone[:, :, :, :70]).nrmse < 1e-6


def test_prefill_and_decode_go_together(dense, tmp_path):
    """16 greedy tokens of the exported pair, fixed capacity, are the unmodified model's; other forms: the matrix."""
    model = dense
    paths = [
        export(model, tmp_path / f"{export.__name__}.onnx", max_seq_len=CAPACITY, exporter="legacy")
        for export in (export_prefill, export_decode)
    ]
    assert all(check_file(path) == [] for path in paths)
    ids = tokens(21)
    prompt = GraphRunner(paths[0], backend="reference")
    first = prompt.run(arrays(prefill_graph.prompt_inputs(model, ids)))
    assert [launch.op.type for launch in prompt.launches] == ["ChunkGatedDeltaRule"] * 2
    for name, value in wanted(model, ids, CAPACITY).items():
        assert agreement(first[name], value).within(bound_of(name)), name
    runner = GraphRunner(paths[1], backend="reference")
    states = {n.replace("present", "past"): torch.from_numpy(v) for n, v in first.items() if n != "logits"}
    logits, cache = forward(model, ids)
    token = int(logits[0, -1].argmax())
    assert int(first["logits"][0, -1].argmax()) == token
    for step in range(16):
        got = runner.run(arrays(decode_graph.step_inputs(token, 21 + step, states, CAPACITY)))
        logits, cache = forward(model, torch.tensor([[token]]), cache)
        assert agreement(got["logits"], logits.numpy()).within(bound_of("logits")), step
        token = int(logits[0, -1].argmax())
        assert int(got["logits"][0, -1].argmax()) == token, step
        states = {n.replace("present", "past"): torch.from_numpy(v) for n, v in got.items() if n != "logits"}


@pytest.mark.parametrize("target", PROFILES)
def test_fixed_capacity_decode(target, dense, tmp_path):
    """Nothing is dynamic; the new column goes where the mask ends, in place for 2.9, by comparison otherwise."""
    path = export_decode(dense, tmp_path / "d.onnx", max_seq_len=CAPACITY, target=target, exporter="legacy")
    assert check_file(path, version=PROFILES[target].version) == []
    model = onnx.load(path)
    assert not any(
        d.dim_param for v in [*model.graph.input, *model.graph.output] for d in v.type.tensor_type.shape.dim
    )
    scatters = [node for node in Graph(model).custom_nodes if node.type == "Scatter"]
    assert len(scatters) == (2 if target == "lite-2.9" else 0)
    ids = tokens(21)
    _, cache = forward(dense, ids)
    states = decode_graph.states_from_cache(cache, dense.config, CAPACITY)
    states["past_kv_cache"][:, :, :, 21:] = 7.0  # what stands behind the mask must not matter
    logits, cache = forward(dense, torch.tensor([[5]]), cache)
    want = decode_graph.states_from_cache(cache, dense.config)["past_kv_cache"].numpy()
    got = GraphRunner(path, backend="reference").run(
        arrays(decode_graph.step_inputs(5, 21, states, CAPACITY))
    )
    assert agreement(got["logits"], logits.numpy()).within(bound_of("logits"))
    assert agreement(got["present_kv_cache"][:, :, :, :22], want).nrmse < 2e-3
    assert (got["present_kv_cache"][:, :, :, 22:] == 7.0).all()


def test_scatter_node_is_the_published_one(dense, tmp_path):
    path = export_decode(dense, tmp_path / "d.onnx", max_seq_len=CAPACITY, exporter="legacy")
    graph = Graph(onnx.load(path))
    node = next(node for node in graph.custom_nodes if node.type == "Scatter")
    assert node.values == {
        "type": "Scatter",
        "input_names": ["var", "indices", "updates"],
        "output_names": ["var"],
        "input_index": [0, 1, 2],
        "reduce": "update",
        "axis": 2,
    }
    types = {name: graph.value(tensor) for name, tensor in node.bound().items()}
    assert types["indices"].dtype == "int64" and types["indices"].shape == (1,)
    assert types["updates"].shape == (1, 2, 1, 32) and types["var"].shape == (1, 2, CAPACITY, 32)


@pytest.mark.parametrize("capacity", [None, CAPACITY])
def test_exporters_agree(capacity, dense, tmp_path):
    """Same Custom nodes, inputs and outputs from both exporters, and the same numbers."""
    paths = [
        export_decode(dense, tmp_path / f"{e}.onnx", max_seq_len=capacity, exporter=e)
        for e in ("dynamo", "legacy")
    ]
    graphs = [Graph(onnx.load(path)) for path in paths]
    counts = [collections.Counter(node.op_type for node in graph.proto.node) for graph in graphs]
    assert abs(counts[0].total() - counts[1].total()) < 0.02 * counts[0].total()
    for kind in ("MatMul", "Custom", "Softmax", "ReduceMean", "ReduceSum", "Gather", "Concat", "Transpose"):
        assert counts[0][kind] == counts[1][kind], kind
    assert [n.values for n in graphs[0].custom_nodes] == [n.values for n in graphs[1].custom_nodes]
    borders = [
        [(v.name, graph.value(v.name)) for v in [*graph.proto.input, *graph.proto.output]] for graph in graphs
    ]
    assert borders[0] == borders[1]
    _, cache = forward(dense, tokens(9))
    states = decode_graph.states_from_cache(cache, dense.config, capacity)
    inputs = arrays(decode_graph.step_inputs(5, 9, states, capacity))
    first, second = (GraphRunner(path, backend="reference").run(inputs) for path in paths)
    agrees(first, second)


def test_chunk_node_is_the_published_one(dense, tmp_path):
    path = export_prefill(dense, tmp_path / "p.onnx", exporter="legacy", max_seq_len=CAPACITY)
    assert check_file(path) == []
    graph = Graph(onnx.load(path))
    for node in graph.custom_nodes:
        assert node.values == {
            "type": "ChunkGatedDeltaRule",
            "input_names": "query key value beta initial_state actual_seq_lengths g".split(),
            "optional_input_names": ["g"],
            "output_names": ["out", "final_state"],
            "output_num": 2,
            "input_index": [0, 1, 2, 3, 4, 5, 6],
            "scale_value": np.float32(128**-0.5),
            "dtype": 10,
        }
    for length in (1, 2, 70):
        ids, runner = tokens(length), GraphRunner(path, backend="reference")
        got = runner.run(arrays(prefill_graph.prompt_inputs(dense, ids)))
        assert runner.launches[0].arrays["actual_seq_lengths"].tolist() == [length]
        for name, value in wanted(dense, ids, CAPACITY).items():
            assert agreement(got[name], value).within(bound_of(name)), name


def test_prefill_by_tracing_and_growing(dense, tmp_path):
    path = export_prefill(
        dense, tmp_path / "p.onnx", exporter="legacy", max_prompt=200, last_logits=True, chunk="subgraph"
    )
    assert check_file(path) == []
    for length in (2, 65, 200):
        ids = tokens(length)
        got = GraphRunner(path, backend="reference").run(arrays(prefill_graph.prompt_inputs(dense, ids)))
        want = wanted(dense, ids)
        agrees(got, want | {"logits": want["logits"][:, -1:]})


@pytest.mark.parametrize("link", ["https://github.com/huggingface/transformers/issues/40114"])
@pytest.mark.parametrize("kind", ["qwen3_5_moe", "qwen3_next"])
def test_routing_of_the_example_does_not_stay(link, kind, tmp_path):
    """LT3: the example sends every token to one expert; run on a prompt that needs the others, all of them are there."""
    model = small_model(kind, num_experts=4, num_experts_per_tok=1)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate.weight.zero_()
            layer.mlp.gate.weight[0] = model.model.embed_tokens.weight[0] * 100  # example tokens are all 0
            layer.mlp.gate.weight[3] = torch.randn(64, generator=torch.Generator().manual_seed(1))
    path = export_prefill(model, tmp_path / "p.onnx", exporter="legacy", max_prompt=64, chunk="subgraph")
    ids = tokens(12)
    got = GraphRunner(path, backend="reference").run(arrays(prefill_graph.prompt_inputs(model, ids)))
    agrees(got, wanted(model, ids))


@pytest.mark.parametrize("form", [experts.routed_few, experts.routed_all])
def test_experts_are_the_models(form):
    block = small_model("qwen3_next").model.layers[0].mlp
    rows = torch.randn(7, 64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, weight, index = block.gate(rows)
        assert len(set(index.flatten().tolist())) > 4
        torch.testing.assert_close(
            form(block.experts, rows, index, weight), block.experts(rows, index, weight)
        )


@pytest.mark.parametrize("length", [1, 64, 65, 300])
@pytest.mark.parametrize("start", [False, True])
def test_chunk_rule_is_transformers(length, start):
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    made = torch.Generator().manual_seed(length)
    q, k = (torch.randn(2, length, 2, 32, generator=made) for _ in range(2))
    v = torch.randn(2, length, 4, 48, generator=made)
    g = -torch.rand(2, length, 4, generator=made)
    beta = torch.rand(2, length, 4, generator=made)
    state = torch.randn(2, 4, 32, 48, generator=made) if start else None
    options = {"g": g, "beta": beta, "initial_state": state}
    options |= {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    got, want = (
        chunk_rule(q, k, v, max_length=512, **options),
        torch_chunk_gated_delta_rule(q, k, v, **options),
    )
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


def test_chunk_rule_bears_what_breaks_a_series():
    """Nearly equal keys with beta 1 and no decay: powers of the system grow to 1e18, its inverse does not."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule

    made = torch.Generator().manual_seed(5)
    k = torch.randn(1, 1, 2, 64, generator=made) + 0.02 * torch.randn(1, 128, 2, 64, generator=made)
    q, v = torch.randn(1, 128, 2, 64, generator=made), torch.randn(1, 128, 2, 64, generator=made)
    options = {"g": torch.zeros(1, 128, 2), "beta": torch.ones(1, 128, 2)}
    options |= {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    for a, b in zip(
        chunk_rule(q, k, v, max_length=128, **options),
        torch_recurrent_gated_delta_rule(q, k, v, **options),
        strict=True,
    ):
        assert agreement(a.numpy(), b.numpy()).nrmse < 1e-5


def test_a_gate_that_resets_the_state():
    made = torch.Generator().manual_seed(6)
    q, k, v = (torch.randn(1, 70, 2, 16, generator=made) for _ in range(3))
    g, beta = torch.zeros(1, 70, 2), torch.full((1, 70, 2), 0.5)
    g[:, 66] = -torch.inf
    out, _ = chunk_rule(q, k, v, g, beta, max_length=128)
    later, _ = chunk_rule(*(x[:, 66:] for x in (q, k, v, g, beta)), max_length=128)
    torch.testing.assert_close(out[:, 66:], later, rtol=1e-5, atol=1e-5)


def test_refusals(dense, tmp_path):
    path = tmp_path / "p.onnx"
    for options, text in (
        ({"max_seq_len": 1}, "export: max_seq_len: too small: got 1; allowed 2 or more"),
        ({"max_seq_len": 8, "max_prompt": 9}, "export: max_prompt: out of range: got 9; allowed 2..8"),
        ({"exporter": "script"}, "export: exporter: not a known choice"),
    ):
        with pytest.raises(HybridOpsError, match=text):
            export_prefill(dense, path, **options)
    with pytest.raises(HybridOpsError, match="export: max_seq_len: too small"):
        export_decode(dense, path, max_seq_len=0)
    assert not list(tmp_path.iterdir())
    x = torch.zeros(1, 65, 2, 16)
    with pytest.raises(
        HybridOpsError, match="sequence is too long: got 65 tokens; allowed up to max_length 64"
    ):
        chunk_rule(x, x, x, x[..., 0], x[..., 0], max_length=64)
    with pytest.raises(HybridOpsError, match="chunk_size: not a power of 2: got 48"):
        chunk_rule(x, x, x, x[..., 0], x[..., 0], chunk_size=48)
    assert [scan_depth(n) for n in (1, 64, 65, 128, 129, 2048)] == [0, 0, 1, 1, 2, 5]


def test_a_position_outside_the_cache_is_refused(dense, tmp_path):
    path = export_decode(dense, tmp_path / "d.onnx", max_seq_len=8, exporter="legacy")
    states = copy.copy(decode_graph.states_from_cache(forward(dense, tokens(4))[1], dense.config, 8))
    inputs = arrays(
        {name: value.detach() for name, value in decode_graph.step_inputs(1, 4, states, 8).items()}
    )
    inputs["attention_mask"][:] = 0
    with pytest.raises(HybridOpsError, match="scatter: indices: position outside the cache: got -1"):
        GraphRunner(path, backend="reference").run(inputs)
