"""The checker: a good graph gets no finding, each broken one the finding that names node, attribute and remedy."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from hybrid_ops import HybridOpsError, contract  # noqa: E402
from hybrid_ops.export import check_file, check_model, custom_node, lite_rules  # noqa: E402
from hybrid_ops.export.cli import app, parse_version  # noqa: E402
from hybrid_ops.export.profiles import PROFILES  # noqa: E402

OP = contract.find("RecurrentGatedDeltaRule")
PRESENT = [t.name for t in OP.inputs if t.name != "gk"]
HALF, FLOAT, INT32 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT32
SHAPES = {
    "query": (HALF, [1, 16, 128]),
    "key": (HALF, [1, 16, 128]),
    "value": (HALF, [1, 32, 128]),
    "beta": (HALF, [1, 32]),
    "state": (HALF, [1, 32, 128, 128]),
    "g": (FLOAT, [1, 32]),
}
# What the published Qwen3.5-4B decode export wrote, attribute by attribute.
PUBLISHED = {
    "type": "RecurrentGatedDeltaRule",
    "input_names": "query key value beta state actual_seq_lengths ssm_state_indices g gk num_accepted_tokens".split(),
    "optional_input_names": ["g", "gk", "num_accepted_tokens"],
    "input_index": [0, 1, 2, 3, 4, 5, 6, 7, 9],
    "output_names": ["out", "state"],
    "output_num": 2,
    "scale_value": 128**-0.5,
    "output_types": [42, 42],
    "outputs_shape": "3,-1,32,128,4,-1,32,128,128,",
    "dtype": 10,
}


def attributes(target: str = "lite-2.9") -> dict:
    shapes, types = [[1, 32, 128], [1, 32, 128, 128]], ["float16", "float16"]
    return custom_node.custom_attributes(OP, PRESENT, {"scale_value": 128**-0.5}, shapes, types, target)


def graph(changes: dict | None = None, *, target: str = "lite-2.9", inputs: list | None = None, **parts):
    """A model of one Custom node; `changes` replaces attributes (None removes), `inputs` the wired tensors."""
    written = {**attributes(target), **(changes or {})}
    written = {name: value for name, value in written.items() if value is not None}
    node = helper.make_node("Custom", inputs or PRESENT, ["y", "state_out"], name="layer0", **written)
    for name in parts.get("empty", ()):
        node.attribute.append(helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS))
    constants = [
        helper.make_tensor("actual_seq_lengths", INT32, [1], parts.get("lengths", [1])),
        helper.make_tensor("num_accepted_tokens", INT32, [1], parts.get("accepted", [1])),
    ]
    if "ssm_state_indices" not in [name for other in parts.get("before", ()) for name in other.output]:
        constants.append(helper.make_tensor("ssm_state_indices", INT32, [1], parts.get("slots", [0])))
    outputs = parts.get("outputs", [("y", HALF, [1, 32, 128]), ("state_out", HALF, [1, 32, 128, 128])])
    proto = helper.make_graph(
        [*parts.get("before", ()), node, *parts.get("after", ())],
        "decode",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in SHAPES.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [*constants, *parts.get("constants", ())],
    )
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 18)])


def texts(model, **target) -> list[str]:
    return [str(finding) for finding in check_model(model, **target)]


def test_attributes_are_the_published_ones():
    written = attributes()
    assert written == PUBLISHED


def test_a_good_graph_gets_no_finding():
    assert texts(graph()) == []


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_is_clean_for_its_own_release(name):
    if PROFILES[name].gaps:
        assert texts(graph(target=name), version=PROFILES[name].version) == []
    else:
        with pytest.raises(HybridOpsError, match=r"gk: absent before a present input: .* only for lite-2.4"):
            attributes(name)
        shapes, types = [[1, 32, 128], [1, 32, 128, 128]], ["float16", "float16"]
        present = PRESENT[:-1]
        written = custom_node.custom_attributes(OP, present, {"scale_value": 128**-0.5}, shapes, types, name)
        absent = {key: None for key in attributes() if key not in written}
        assert texts(graph(absent, inputs=present), version=PROFILES[name].version) == []


SWAPPED = [*PUBLISHED["input_names"]]
SWAPPED[2], SWAPPED[3] = SWAPPED[3], SWAPPED[2]
INITIAL = ["initial_state" if name == "state" else name for name in PUBLISHED["input_names"]]
ALL_NAMES = ", ".join(PUBLISHED["input_names"])
ARANGE = [
    helper.make_node("Range", ["zero", "one", "one"], ["slots"], name="range"),
    helper.make_node("OneHot", ["slots", "depth", "values"], ["hot"], name="onehot", axis=-1),
    helper.make_node("Cast", ["hot"], ["ssm_state_indices"], name="cast", to=INT32),
]
ARANGE_CONSTANTS = [
    helper.make_tensor("zero", INT32, [], [0]),
    helper.make_tensor("one", INT32, [], [1]),
    helper.make_tensor("depth", INT32, [], [1]),
    helper.make_tensor("values", INT32, [2], [0, 1]),
]
BROKEN = {
    "index range(9)": (
        {"changes": {"input_index": list(range(9))}},
        "S C7 layer0: gk: bound to int32 tensor 'num_accepted_tokens', takes float32 on ascend310p; "
        "check input_index (got [0, 1, 2, 3, 4, 5, 6, 7, 8]) and the casts in front",
    ),
    "wrong name order": (
        {"changes": {"input_names": SWAPPED}},
        "E C3 layer0: input_names: differs from RecurrentGatedDeltaRule's OpDef: wrong order: position 2 is 'beta', "
        f"must be 'value'; write {ALL_NAMES}",
    ),
    "missing scale": (
        {"changes": {"scale_value": None}},
        "S C12 layer0: scale_value: missing: the default 1.0 is used and outputs become 11.3 times too large; "
        "write 0.088388348 (DK=128)",
    ),
    "fp32 output type": (
        {"changes": {"output_types": [43, 43]}},
        "S T3 layer0: output_types: got [43 = float32, 43 = float32]; the outputs are float16, float16; "
        "write INTS [42, 42] (MindSpore numbering)",
    ),
    "arange indices": (
        {"before": ARANGE, "constants": ARANGE_CONSTANTS},
        "S C13 layer0: ssm_state_indices: computed by OneHot, Range, which cannot be mapped for Ascend; "
        "use a constant int32 zero vector",
    ),
    "missing output_num": (
        {"changes": {"output_num": None}},
        "S A10 layer0: output_num: missing with 2 outputs: consumers get the tuple; write 2",
    ),
    "wrong type name": (
        {"changes": {"type": "RecurrentGatedDeltaNet"}},
        "E C1 layer0: type: no OpDef of that name: got 'RecurrentGatedDeltaNet'; allowed ",
    ),
    "initial_state for state": (
        {"changes": {"input_names": INITIAL}},
        "E C3 layer0: input_names: differs from RecurrentGatedDeltaRule's OpDef: state missing; initial_state unknown; "
        f"write {ALL_NAMES}",
    ),
    "missing dtype": (
        {"changes": {"dtype": None}},
        "S T1 layer0: dtype: missing: the type of the first input is used instead; "
        "write INT 10 (float16, ONNX numbering)",
    ),
    "outputs_shape of another rank": (
        {"changes": {"outputs_shape": "4,1,-1,32,128,4,-1,32,128,128,"}},
        "S T7 layer0: outputs_shape: out has rank 4: got [1, -1, 32, 128]; allowed [T, NV, DV]",
    ),
    "reserved attribute": (
        {"changes": {"scale": 0.5}},
        "S G11 layer0: scale: reserved: it is read as quantisation data, and attributes after it are lost; "
        "call it scale_value",
    ),
    "dtype in MindSpore numbers": (
        {"changes": {"dtype": 42}},
        "S T1 layer0: dtype: got 42, outputs are float16 (that is MindSpore numbering); "
        "write INT 10 (float16, ONNX numbering)",
    ),
    "truncated outputs_shape": (
        {"changes": {"outputs_shape": "3,-1,32,128,4,-1,32,"}},
        "E T6 layer0: outputs_shape: malformed: output 1 says rank 4, 2 dimensions follow; reading it is not guarded; "
        "write rank,dim,… of every output",
    ),
    "outputs_shape of another model": (
        {"changes": {"outputs_shape": "3,-1,16,128,4,-1,32,128,128,"}},
        "S T7 layer0: outputs_shape: out axis NV is 16; the inputs say 32; write 32",
    ),
    "scale of another head size": (
        {"changes": {"scale_value": 256**-0.5}},
        "S C12 layer0: scale_value: got 0.0625, which belongs to DK=256; DK is 128; write 0.088388348 (DK=128)",
    ),
    "output value_info fp32": (
        {"outputs": [("y", FLOAT, [1, 32, 128]), ("state_out", HALF, [1, 32, 128, 128])]},
        "S T4 layer0: y: value_info says float32; the operator writes float16; cast behind the node, not in it",
    ),
    "index not increasing": (
        {"changes": {"input_index": [0, 1, 3, 2, 4, 5, 6, 7, 9]}},
        "E A6 layer0: input_index: not strictly increasing from 0: got [0, 1, 3, 2, 4, 5, 6, 7, 9]; "
        "list the slots in order",
    ),
    "index too short": (
        {"changes": {"input_index": [0, 1, 2, 3, 4, 5, 6, 7]}},
        "E A7 layer0: input_index: 8 entries for 9 wired inputs; one slot per input",
    ),
    "required input absent": (
        {"inputs": PRESENT[:4] + PRESENT[5:], "changes": {"input_index": [0, 1, 2, 3, 5, 6, 7, 9]}},
        "E C6 layer0: state: required input is not wired; wire it, and say so in input_index",
    ),
    'input ""': (
        {"inputs": PRESENT[:8] + ["", PRESENT[8]], "changes": {"input_index": None}},
        'S A1 layer0: input 8: is "": later inputs move up one name; leave it out and give input_index',
    ),
    "slots above zero": (
        {"slots": [3]},
        "S C13 layer0: ssm_state_indices: constant [3] addresses slots a batch-1 pool lacks; use zeros",
    ),
    "type in snake_case": (
        {"changes": {"type": "recurrent_gated_delta_rule"}},
        "E C1 layer0: type: no OpDef of that name: got 'recurrent_gated_delta_rule'; allowed ",
    ),
    "outputs in the wrong order": (
        {"outputs": [("state_out", HALF, [1, 32, 128]), ("y", HALF, [1, 32, 128, 128])]},
        "S T8 layer0: y: shape [1, 32, 128, 128] in the graph; out is [T, NV, DV]; wire the outputs in the order of",
    ),
    "output of the wrong size": (
        {"outputs": [("y", HALF, [1, 32, 64]), ("state_out", HALF, [1, 32, 128, 128])]},
        "S T8 layer0: y: shape [1, 32, 64] in the graph; out is [1, 32, 128] by the inputs; wire the outputs in the",
    ),
    "update that nobody reads": (
        {"outputs": [("y", HALF, [1, 32, 128])]},
        "W C15 layer0: state: the update 'state_out' is no graph output and no node reads it; wire it on",
    ),
    "lengths that do not add up": (
        {"lengths": [2]},
        "S C14 layer0: actual_seq_lengths: constant [2] adds up to 2, T is 1; write lengths, not offsets, that add up",
    ),
    "accepted beyond the step": (
        {"accepted": [3]},
        "S C14 layer0: num_accepted_tokens: constant [3] outside 1..1: the sequence is skipped; write how many",
    ),
    "empty list": (
        {"changes": {"optional_input_names": None}, "empty": ["optional_input_names"]},
        "S P9 layer0: optional_input_names: empty list: it arrives as an empty list of int64; "
        "leave it out or write the default",
    ),
    "optional list names no input": (
        {"changes": {"optional_input_names": ["g", "gk", "accepted"]}},
        "E P4 layer0: optional_input_names: 'accepted' is not in input_names; write the OpDef's names",
    ),
    "output_shapes for outputs_shape": (
        {"changes": {"outputs_shape": None, "output_shapes": "3,-1,32,128"}},
        "S A15 layer0: output_shapes: reserved: the converter overwrites or erases it; write outputs_shape",
    ),
    "type as list": (
        {"changes": {"type": ["RecurrentGatedDeltaRule"]}},
        "E P1 layer0: type: is STRINGS, must be STRING; write it with that kind",
    ),
    "a built-in's name": (
        {"changes": {"type": "MatMul"}},
        "S N1 layer0: type: MatMul is a built-in operator of GE and is taken for it; use another type name",
    ),
    "unknown attribute": (
        {"changes": {"use_qk_l2norm": "true"}},
        "W C2 layer0: use_qk_l2norm: RecurrentGatedDeltaRule has no such attribute; it is sent to GE all the same; "
        "remove it",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_fault_is_named(case):
    arguments, wanted = BROKEN[case]
    arguments = dict(arguments)
    found = texts(graph(arguments.pop("changes", None), **arguments))
    assert any(text.startswith(wanted) for text in found), "\n".join(found)


def test_attribute_that_stands_twice_and_output_that_is_not_wired():
    model = graph(outputs=[("y", HALF, [1, 32, 128])])
    node = model.graph.node[0]
    node.attribute.append(helper.make_attribute("scale_value", 128**-0.5))
    del node.output[1]
    assert texts(model) == [
        "E P10 layer0: scale_value: stands 2 times; which one holds is not defined; write it once",
        "W A12 layer0: outputs: 1 wired, 2 names: state goes nowhere; wire every output",
    ]


def test_only_that_finding_for_a_single_fault():
    for case in (
        "missing scale",
        "fp32 output type",
        "missing output_num",
        "missing dtype",
        "slots above zero",
    ):
        arguments, wanted = BROKEN[case]
        found = texts(
            graph(arguments.get("changes"), **{k: v for k, v in arguments.items() if k != "changes"})
        )
        assert found == [wanted]


def test_two_nodes_of_one_type_need_the_same_lists():
    model = graph()
    other = onnx.NodeProto()
    other.CopyFrom(model.graph.node[0])
    other.name, other.output[:] = "layer1", ["y1", "state1"]
    next(a for a in other.attribute if a.name == "output_names").strings[1] = b"final_state"
    model.graph.node.append(other)
    assert any(
        "A9e layer1: output_names: differs from layer0 of the same type" in text for text in texts(model)
    )


def test_gap_and_dtype_by_release():
    assert any(
        "A9c layer0: input_index: not understood before Lite 2.7" in t for t in texts(graph(), version=(2, 6))
    )
    found = texts(graph(), version=(2, 7))
    assert [text.split()[1] for text in found] == ["T2", "A16", "A16"]
    assert found[0].startswith("S T2 layer0: dtype: becomes a type object")


def test_model_rules():
    model = graph()
    model.opset_import.insert(0, helper.make_opsetid("ai.hybrid_ops", 1))
    model.graph.node.append(helper.make_node("RMSNormalization", ["g"], ["n"], name="norm"))
    model.graph.node.append(helper.make_node("Relu", ["missing"], ["y"], name="relu"))
    model.graph.initializer.append(model.graph.initializer[0])
    found = "\n".join(texts(model))
    for text in (
        "S G2 model: opset_import: entry 0 is 'ai.hybrid_ops' version 1",
        "E G3 norm: op_type: RMSNormalization has no parser in Lite 2.9",
        "E G4 model: actual_seq_lengths: initializer stands 2 times",
        "E G5 relu: y: output name is taken by another tensor",
        "E G7 relu: missing: input has no producer",
    ):
        assert text in found


def test_head_limits_come_from_the_contract(monkeypatch):
    monkeypatch.setitem(SHAPES, "query", (HALF, [1, 5, 128]))
    monkeypatch.setitem(SHAPES, "key", (HALF, [1, 5, 128]))
    found = texts(graph())
    assert any(
        text.startswith("E C9 layer0: inputs: ") and "NV=32" in text and "NK=5" in text for text in found
    )


def test_every_rule_has_a_summary_and_an_id_of_its_own():
    rules = lite_rules.applicable((2, 9))
    assert len(rules) > 45 and all(
        re.fullmatch(r"[GPANCTOB]\d+[a-z]?", rule.id) and rule.summary for rule in rules
    )


def test_command_line(tmp_path):
    run = CliRunner()
    good, bad, wrong = tmp_path / "good.onnx", tmp_path / "bad.onnx", tmp_path / "wrong.onnx"
    onnx.save(graph(), good)
    onnx.save(graph({"input_names": SWAPPED}), bad)
    onnx.save(graph({"scale_value": None}), wrong)
    assert run.invoke(app, ["check", str(good)]).exit_code == 0
    assert run.invoke(app, ["check", str(bad)]).exit_code == 2
    answer = run.invoke(app, ["check", str(wrong), "--json"])
    assert answer.exit_code == 1
    (finding,) = json.loads(answer.stdout)
    assert finding["rule"] == "C12" and finding["node"] == "layer0" and finding["attribute"] == "scale_value"
    assert run.invoke(app, ["rules"]).exit_code == 0
    assert parse_version("lite-2.7") == (2, 7)


def test_unreadable_file_and_wrong_suffix(tmp_path):
    text = tmp_path / "text.onnx"
    text.write_text("no model")
    with pytest.raises(HybridOpsError, match=r"check: model: cannot be read: got .*text\.onnx"):
        check_file(text)
    other = tmp_path / "model.bin"
    onnx.save(graph(), other)
    assert [f.rule for f in check_file(other)] == ["G1"]
    with pytest.raises(HybridOpsError, match="soc: not a known SoC"):
        check_file(other, soc="ascend42")


FLAGGED = dataclasses.replace(
    OP,
    attrs=(
        *OP.attrs,
        contract.Attr("renorm", "bool", default=True),
        contract.Attr("groups", "list_int", required=True),
    ),
)


def test_bool_attributes_travel_as_strings():
    """The converter turns INT 0/1 into an int64; only the STRING true or false arrives as a bool."""
    shapes, types = [[1, 32, 128], [1, 32, 128, 128]], ["float16", "float16"]
    written = custom_node.custom_attributes(
        FLAGGED, PRESENT, {"renorm": False, "groups": (4, 2)}, shapes, types
    )
    assert written["renorm"] == "false" and written["groups"] == [4, 2] and written["scale_value"] == 1.0
    with pytest.raises(HybridOpsError, match="groups: an empty list cannot be exported"):
        custom_node.custom_attributes(FLAGGED, PRESENT, {"groups": ()}, shapes, types)


def test_attribute_kinds_are_held_against_the_contract(monkeypatch):
    monkeypatch.setattr(contract, "by_type", lambda name: FLAGGED if name == OP.type else None)
    found = texts(graph({"renorm": 1}))
    assert any(text.startswith("S C10 layer0: renorm: is INT; a bool travels as STRING") for text in found)
    assert "E C11 layer0: groups: required attribute is missing; write it" in found
    assert not any("renorm" in text for text in texts(graph({"renorm": "false", "groups": [4]})))
    assert any(
        'renorm: got "1"' in text or "renorm: got '1'" in text for text in texts(graph({"renorm": "1"}))
    )
