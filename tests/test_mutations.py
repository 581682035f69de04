"""A good export broken in twenty ways: what the checker says. `python tests/test_mutations.py` prints it."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from onnx import TensorProto, helper  # noqa: E402

from hybrid_ops import runtime  # noqa: E402
from hybrid_ops.export import check_model, export_decode  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402


def custom(model, kind="RecurrentGatedDeltaRule"):
    return next(
        n for n in model.graph.node for a in n.attribute if n.op_type == "Custom" and a.s == kind.encode()
    )


def attribute(node, name: str):
    return next(a for a in node.attribute if a.name == name)


def drop(name: str):
    def change(model):
        node = custom(model)
        node.attribute.remove(attribute(node, name))

    return change


def put(name: str, value, kind="RecurrentGatedDeltaRule"):
    def change(model):
        node = custom(model, kind)
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


def swap_inputs(model):
    node = custom(model)
    node.input[2], node.input[4] = node.input[4], node.input[2]


def drop_gate(model):
    """g leaves, and its neighbour moves into its place."""
    node = custom(model)
    del node.input[7]
    put("input_index", list(range(8)))(model)


def computed_slots(model):
    node = custom(model)
    model.graph.initializer.append(helper.make_tensor("zero", TensorProto.INT64, [], [0]))
    model.graph.initializer.append(helper.make_tensor("one", TensorProto.INT64, [], [1]))
    made = [
        helper.make_node("Range", ["zero", "one", "one"], ["slots64"], name="range"),
        helper.make_node("Cast", ["slots64"], ["slots"], name="cast_slots", to=TensorProto.INT32),
    ]
    at = list(model.graph.node).index(node)
    for new in reversed(made):
        model.graph.node.insert(at, new)
    node.input[6] = "slots"


def wide_slots(model):
    node = custom(model)
    model.graph.initializer.append(helper.make_tensor("wide", TensorProto.INT64, [1], [0]))
    node.input[6] = "wide"


def two_tokens(model):
    model.graph.initializer.append(helper.make_tensor("two", TensorProto.INT32, [1], [2]))
    custom(model).input[5] = "two"


def private_first(model):
    model.opset_import.insert(0, helper.make_opsetid("ai.hybrid_ops", 1))


def cast_inside(model):
    """The output's type in the graph says float32, as if the operator cast."""
    name = custom(model).output[0]
    for info in model.graph.value_info:
        if info.name == name:
            info.type.tensor_type.elem_type = TensorProto.FLOAT


def two_unnamed(model):
    for node in model.graph.node[:2]:
        node.output[0] = ""


def norm_operator(model):
    next(n for n in model.graph.node if n.op_type == "Sigmoid").op_type = "Mish"


def lost_output(model):
    model.graph.output.add(name="present_nothing")


MUTATIONS = {
    "value and state swapped": (swap_inputs, "C8"),
    "g left out, the rest moves up": (drop_gate, "C7"),
    "input_index without the gap": (put("input_index", list(range(9))), "C7"),
    "output_num left out": (drop("output_num"), "A10"),
    "scale left out": (drop("scale_value"), "C12"),
    "scale of another head": (put("scale_value", 0.0625), "C12"),
    "scale under its short name": (put("scale", 0.0884), "G11"),
    "dtype left out": (drop("dtype"), "T1"),
    "dtype in MindSpore numbers": (put("dtype", 42), "T1"),
    "output_types float32": (put("output_types", [43, 43]), "T3"),
    "outputs_shape cut short": (put("outputs_shape", "3,-1,32,128,4,-1,32,"), "T6"),
    "type spelt otherwise": (put("type", "RecurrentGatedDeltaNet"), "C1"),
    "state called initial_state": (
        put(
            "input_names",
            "query key value beta initial_state actual_seq_lengths ssm_state_indices g gk "
            "num_accepted_tokens".split(),
        ),
        "C3",
    ),
    "optional list left out": (drop("optional_input_names"), "A9b"),
    "slots computed by Range": (computed_slots, "C13"),
    "slots int64": (wide_slots, "G10"),
    "two tokens announced, one there": (two_tokens, "C14"),
    "private domain first": (private_first, "G2"),
    "graph says float32 behind the node": (cast_inside, "T4"),
    "two outputs without a name": (two_unnamed, "G5"),
    "an operator without parser": (norm_operator, "G3"),
    "an output nobody computes": (lost_output, "G6"),
    "cache written along the wrong axis": (put("axis", 1, "Scatter"), "B3"),
    "Scatter without reduce": (put("reduce", 1, "Scatter"), "B2"),
}


def exported(folder):
    with runtime.using(backend="reference"):
        return onnx.load(
            export_decode(small_model("qwen3_5"), folder / "good.onnx", max_seq_len=32, exporter="legacy")
        )


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("good"))


def mutated(good, name: str):
    model = onnx.ModelProto()
    model.CopyFrom(good)
    MUTATIONS[name][0](model)
    return model


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_found(name, good):
    assert check_model(good) == []
    found = check_model(mutated(good, name))
    assert MUTATIONS[name][1] in {finding.rule for finding in found}, "\n".join(map(str, found))


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as place:
        model = exported(Path(place))
    sys.stdout.write(f"good graph: {len(check_model(model))} findings\n")
    for case in MUTATIONS:
        sys.stdout.write(f"{case}\n")
        for finding in check_model(mutated(model, case)):
            sys.stdout.write(f"    {finding}\n")
