"""Export of the decode step: what stands in the file, and that running it gives the unmodified model's numbers."""

from __future__ import annotations

import collections
import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, contract, runtime  # noqa: E402
from hybrid_ops.export import (  # noqa: E402
    GraphRunner,
    check_file,
    check_model,
    custom_node,
    decode_graph,
    export_decode,
    save,
)
from hybrid_ops.export.accuracy import agreement, bound_of  # noqa: E402
from hybrid_ops.export.graph_view import Graph  # noqa: E402
from hybrid_ops.export.profiles import PROFILES  # noqa: E402
from hybrid_ops.models.sample import sample_config, sample_decoder  # noqa: E402

OP = contract.find("RecurrentGatedDeltaRule")
KINDS = ["linear_attention", "linear_attention", "full_attention"]
PROMPT = 5
# Operators that the converter cannot map, or that mean data-dependent flow or writes into a state.
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


@pytest.fixture(autouse=True)
def on_reference():
    """The NumPy meaning wherever a test does not ask for the simulator."""
    with runtime.using(backend="reference"):
        yield


@pytest.fixture(scope="module")
def model():
    """Real 4B head geometry, everything else small; two key/value heads so that grouping is seen."""
    return sample_decoder(
        sample_config(layers=3, hidden=64, vocab=64, layer_types=KINDS, num_key_value_heads=2, head_dim=32)
    )


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    return export_decode(model, tmp_path_factory.mktemp("export") / "model.onnx")


@pytest.fixture(scope="module")
def filled(model):
    """Cache after the prompt, and what the unmodified model computes in three steps."""
    with torch.no_grad():
        cache = model(torch.arange(3, 3 + PROMPT)[None], use_cache=True).cache
        running, steps = copy.deepcopy(cache), []
        for token in (7, 11, 13):
            logits = model(torch.tensor([[token]]), cache=running, use_cache=True).logits
            states = decode_graph.states_from_cache(running, model.config)
            present = {name.replace("past", "present"): value.numpy() for name, value in states.items()}
            steps.append((token, {"logits": logits.numpy(), **present}))
    return cache, steps


def run_steps(path, model, filled, **options):
    """Worst agreement per output of the exported graph fed with its own states."""
    cache, steps = filled
    runner, worst = GraphRunner(path, **options), {}
    states = decode_graph.states_from_cache(cache, model.config)
    for step, (token, wanted) in enumerate(steps):
        inputs = decode_graph.step_inputs(token, PROMPT + step, states)
        got = runner.run({name: value.numpy() for name, value in inputs.items()})
        states = {n.replace("present", "past"): torch.from_numpy(v) for n, v in got.items() if n != "logits"}
        for name, value in wanted.items():
            worst[name] = worst.get(name, agreement(value, value)).worse(agreement(got[name], value))
    return runner, worst


def test_graph_is_clean_and_typed(exported):
    assert check_file(exported) == []
    model = onnx.load(exported)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    kinds = collections.Counter(node.op_type for node in model.graph.node)
    assert kinds["Custom"] == 2 and not UNWANTED & set(kinds)
    assert [value.name for value in model.graph.input] == list(decode_graph.INPUT_NAMES)
    assert [value.name for value in model.graph.output] == list(decode_graph.OUTPUT_NAMES)


def test_custom_node_is_the_published_one(exported):
    node = Graph(onnx.load(exported)).custom_nodes[0]
    assert node.values | {"scale_value": None} == {
        "type": "RecurrentGatedDeltaRule",
        "input_names": [t.name for t in OP.inputs],
        "optional_input_names": ["g", "gk", "num_accepted_tokens"],
        "output_names": ["out", "state"],
        "output_num": 2,
        "input_index": [0, 1, 2, 3, 4, 5, 6, 7, 9],
        "dtype": 10,
        "output_types": [42, 42],
        "outputs_shape": "3,-1,32,128,4,-1,32,128,128,",
        "scale_value": None,
    }
    assert node.values["scale_value"] == np.float32(128**-0.5)
    assert node.label == "RecurrentGatedDeltaRule_0"


def test_constants_and_boundary_types(exported):
    graph = Graph(onnx.load(exported))
    for node in graph.custom_nodes:
        bound = node.bound()
        for name, wanted in (("ssm_state_indices", 0), ("actual_seq_lengths", 1), ("num_accepted_tokens", 1)):
            value = graph.constant(bound[name])
            assert value is not None and value.dtype == np.int32 and value.tolist() == [wanted]
        types = {name: graph.value(tensor).dtype for name, tensor in bound.items()}
        assert {types[n] for n in ("query", "key", "value", "beta", "state")} == {"float16"}
        assert types["g"] == "float32"
        assert [graph.value(name).dtype for name in node.proto.output] == ["float16", "float16"]


def test_file_names_no_source_and_no_path(exported):
    model = onnx.load(exported)
    for holder in [model, model.graph, *model.graph.node, *model.graph.value_info]:
        assert not holder.metadata_props
    assert b".py" not in exported.read_bytes()


def test_running_it_agrees_with_the_unmodified_model(exported, model, filled):
    runner, worst = run_steps(exported, model, filled, backend="reference")
    for name, found in worst.items():
        assert found.within(bound_of(name)), (name, found)
    assert [launch.node for launch in runner.launches] == [
        "RecurrentGatedDeltaRule_0",
        "RecurrentGatedDeltaRule_1",
    ]


@pytest.mark.parametrize("options", [{"exporter": "legacy"}, {"private_domain": True}])
def test_other_ways_give_the_same_graph(options, exported, model, filled, tmp_path):
    path = export_decode(model, tmp_path / "other.onnx", **options)
    assert check_file(path) == []
    other = onnx.load(path)
    assert Graph(other).custom_nodes[0].values == Graph(onnx.load(exported)).custom_nodes[0].values
    domains = [entry.domain for entry in other.opset_import]
    assert domains == (["", custom_node.PRIVATE_DOMAIN] if "private_domain" in options else [""])
    onnx.checker.check_model(other, full_check=True) if "private_domain" in options else save.validate(path)
    _, worst = run_steps(path, model, filled, backend="reference")
    assert all(found.within(bound_of(name)) for name, found in worst.items()), worst


@pytest.mark.parametrize("target", ["lite-2.7", "lite-2.4"])
def test_older_releases(target, model, filled, tmp_path):
    path = export_decode(model, tmp_path / "model.onnx", target=target, exporter="legacy")
    assert check_file(path, version=PROFILES[target].version) == []
    node = Graph(onnx.load(path)).custom_nodes[0]
    assert not {"dtype", "output_types", "outputs_shape"} & set(node.values)
    assert ("input_index" in node.values) == PROFILES[target].gaps
    _, worst = run_steps(path, model, filled, backend="reference")
    assert worst["logits"].within(bound_of("logits"))


def test_half_precision_model_and_other_soc(model, tmp_path):
    """The boundary follows the SoC, not the model's dtype; model-side states keep theirs."""
    half = copy.deepcopy(model).half()
    graph = Graph(onnx.load(export_decode(half, tmp_path / "half.onnx", exporter="legacy")))
    assert (
        graph.value("past_kv_cache").dtype == "float16"
        and graph.value("past_recurrent_states").dtype == "float32"
    )
    path = export_decode(model, tmp_path / "910b.onnx", soc="ascend910b", exporter="legacy")
    assert check_file(path, soc="ascend910b") == []
    node = Graph(onnx.load(path)).custom_nodes[0]
    assert node.values["dtype"] == 16 and node.values["output_types"] == [45, 43]
    wrong = {finding.rule for finding in check_file(path)}
    assert {"C7", "T1", "T3"} <= wrong


def test_a_node_is_run_as_it_is_written(exported, model, filled):
    """A scale that is missing gives other numbers, a slot that is wrong a refusal: nothing is put right silently."""
    for change, effect in (("scale_value", None), ("input_index", list(range(9)))):
        broken = onnx.load(exported)
        for node in broken.graph.node:
            if node.op_type == "Custom":
                (attribute,) = (a for a in node.attribute if a.name == change)
                node.attribute.remove(attribute)
                if effect is not None:
                    node.attribute.append(onnx.helper.make_attribute(change, effect))
        if change == "scale_value":
            _, worst = run_steps(broken, model, filled, backend="reference")
            assert (
                not worst["present_recurrent_states"].within(bound_of("")) or worst["logits"].cosine < 0.9999
            )
        else:
            with pytest.raises(HybridOpsError, match="recurrent_gated_delta_rule: gk: "):
                run_steps(broken, model, filled, backend="reference")


def test_graph_inputs_are_checked(exported):
    with pytest.raises(
        HybridOpsError, match="export: inputs: not the graph's: got input_ids; allowed attention_mask"
    ):
        GraphRunner(exported, backend="reference").run({"input_ids": np.zeros((1, 1), np.int64)})


def test_masked_positions_do_not_count(exported, model):
    """A padded prompt column is masked in the graph: its key and value do not matter."""
    example = {k: v.numpy() for k, v in decode_graph.step_inputs(3, 4, _states(model, 4)).items()}
    example["attention_mask"][0, 0] = 0
    runner = GraphRunner(exported, backend="reference")
    first = runner.run(example)["logits"]
    example["past_kv_cache"] = example["past_kv_cache"].copy()
    example["past_kv_cache"][:, :, :, 0] = 100.0
    assert np.array_equal(runner.run(example)["logits"], first)


def _states(model, past):
    from hybrid_ops.export.decode import decode_example

    torch.manual_seed(3)
    example = decode_example(model.config, torch.float32, past)
    return {name: torch.randn_like(value) for name, value in example.items() if name.startswith("past_")}


@pytest.mark.parametrize("past", [1, 37, 300])
def test_cache_length_is_free(past, exported, model):
    """One file serves every length of the cache; the torch module of the graph is the measure."""
    inputs = decode_graph.step_inputs(3, past, _states(model, past))
    with torch.no_grad():
        want = decode_graph.DecodeStep(model)(**inputs)
    got = GraphRunner(exported, backend="reference").run({k: v.numpy() for k, v in inputs.items()})
    for value, name in zip(want, decode_graph.OUTPUT_NAMES, strict=True):
        assert got[name].shape == tuple(value.shape)
        assert agreement(got[name], value.numpy()).nrmse < 1e-5, name


def test_models_that_the_graph_does_not_describe(model):
    for change, text in (
        ({"layer_types": ["linear_attention"], "layers": 1}, "export: model: not a hybrid"),
        (None, "export: model: no decoder layers: got Linear"),
    ):
        other = (
            torch.nn.Linear(1, 1)
            if change is None
            else sample_decoder(sample_config(hidden=64, vocab=64, **change))
        )
        with pytest.raises(HybridOpsError, match=text):
            decode_graph.DecodeStep(other)
    other = copy.deepcopy(model)
    other.model.layers[0].mlp.experts = torch.nn.Linear(1, 1)
    with pytest.raises(HybridOpsError, match="export: model: experts of unknown form: got Linear"):
        decode_graph.DecodeStep(other)
    del other.model.layers[0].linear_attn.in_proj_qkv
    with pytest.raises(HybridOpsError, match="export: model: projections of unknown form: got Qwen3_5Gated"):
        decode_graph.DecodeStep(other)


def test_positions_of_images_select_their_frequencies(model):
    """Height and width positions drive the interleaved frequencies as transformers' rotary embedding does."""
    rotary = model.model.rotary_emb
    position = torch.tensor([9, 4, 7, 2]).view(4, 1, 1)
    cos, sin = decode_graph.DecodeStep(model).rotary(position, torch.float32)
    want_cos, want_sin = rotary(torch.zeros(1), position[1:])
    assert torch.equal(cos, want_cos) and torch.equal(sin, want_sin)


def test_save_is_all_or_nothing(exported, model, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"what was there")

    def fail(*_):
        raise onnx.checker.ValidationError("broken")

    monkeypatch.setattr(save, "validate", fail)
    with pytest.raises(onnx.checker.ValidationError):
        export_decode(model, path, exporter="legacy")
    assert path.read_bytes() == b"what was there" and [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    with pytest.raises(HybridOpsError, match=r"export: path: suffix: got 'model.mindir'; allowed \*.onnx"):
        save.save_model(None, tmp_path / "model.mindir")


def test_external_data_goes_beside_the_model(model, filled, tmp_path, monkeypatch):
    monkeypatch.setattr(save, "EXTERNAL_LIMIT", 1)
    monkeypatch.setattr(save, "EXTERNAL_BYTES", 1 << 14)
    path = export_decode(model, tmp_path / "model.onnx", exporter="legacy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert check_file(path) == []
    _, worst = run_steps(path, model, filled, backend="reference")
    assert worst["logits"].within(bound_of("logits"))


def test_wrong_names_are_refused(model, tmp_path):
    with pytest.raises(HybridOpsError, match="export: target: not a known choice: got 'lite-1'"):
        export_decode(model, tmp_path / "m.onnx", target="lite-1")
    with pytest.raises(HybridOpsError, match="export: exporter: not a known choice"):
        export_decode(model, tmp_path / "m.onnx", exporter="script")
    with pytest.raises(HybridOpsError, match="state: required input is absent"):
        custom_node.input_index(OP, ["query", "key", "value", "beta"])
    with pytest.raises(HybridOpsError, match="inputs: not in OpDef order"):
        custom_node.input_index(OP, ["key", "query", *(t.name for t in OP.inputs[2:7])])
    with pytest.raises(HybridOpsError, match="temperature: no such attribute"):
        custom_node.typed_value(OP, "temperature", 1.0)
    with pytest.raises(HybridOpsError, match="out: wrong rank"):
        custom_node.outputs_shape(OP, [[1, 2], [1, 1, 1, 1]])


def test_simulator_executes_the_exported_graph(exported, model, filled):
    with runtime.using(checks="full"):
        runner, worst = run_steps(exported, model, filled, backend="sim", checks="full")
    for name, found in worst.items():
        assert found.within(bound_of(name)), (name, found)
    assert not [hazard for launch in runner.launches for hazard in launch.hazards]


class Accepting(torch.nn.Module):
    """A module of a caller's own that wires num_accepted_tokens and leaves gk out."""

    def forward(self, query, value, beta, state, g, accepted):
        lengths, slots = torch.full((1,), 2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
        return torch.ops.hybrid_ops.recurrent_gated_delta_rule_functional(
            query,
            query,
            value,
            beta,
            state,
            lengths,
            slots,
            g=g,
            num_accepted_tokens=accepted,
            scale_value=0.125,
        )


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_a_gap_before_2_7_takes_a_neutral_input(exporter):
    """Release 2.4 cannot leave gk out before num_accepted_tokens: zeros are wired, which mean the same."""
    from hybrid_ops.export.legacy_export import export_module_legacy
    from hybrid_ops.export.onnx_export import export_module
    from hybrid_ops.export.save import to_default_domain

    made = torch.Generator().manual_seed(0)
    half = {"query": (2, 2, 64), "value": (2, 4, 64), "beta": (2, 4), "state": (1, 4, 64, 64)}
    inputs = {name: torch.rand(shape, generator=made).half() for name, shape in half.items()}
    inputs |= {"g": -torch.rand(2, 4, generator=made), "accepted": torch.ones(1, dtype=torch.int32)}
    export = export_module if exporter == "dynamo" else export_module_legacy
    model = export(Accepting(), inputs, output_names=["out", "state_out"], target="lite-2.4")
    import onnx_ir

    proto = onnx_ir.to_proto(to_default_domain(model))
    graph = Graph(proto)
    (node,) = graph.custom_nodes
    assert list(node.bound()) == [t.name for t in OP.inputs] and "input_index" not in node.values
    gk = graph.constant(node.bound()["gk"])
    assert gk.shape == (2, 4) and gk.dtype == np.float32 and not gk.any()
    assert [f for f in check_model(proto, version=(2, 4)) if f.severity in "ES"] == []
    feed = {name: value.numpy() for name, value in inputs.items()}
    got = GraphRunner(proto, backend="reference").run(feed)
    for name, want in zip(("out", "state_out"), Accepting()(**inputs), strict=True):
        assert np.array_equal(got[name], want.numpy())
