"""Every rule of the checker with a smallest graph that breaks it, and twenty good exports broken one way each."""

from __future__ import annotations

import dataclasses

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from test_lite_rules import FLAGGED, FLOAT, HALF, INT32, PRESENT, PUBLISHED, SHAPES, SWAPPED, graph  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from hybrid_ops import HybridOpsError, contract  # noqa: E402
from hybrid_ops.export import check_model, lite_rules, repair  # noqa: E402
from hybrid_ops.export.cli import app  # noqa: E402

NAMES = PUBLISHED["input_names"]


def with_nodes(*nodes, constants=(), outputs=None):
    """The good Custom graph with further nodes behind it."""
    return graph(after=nodes, constants=constants, **({"outputs": outputs} if outputs else {}))


def node(kind: str, inputs=("g",), outputs=("z",), **attributes):
    return helper.make_node(kind, list(inputs), list(outputs), name=f"the_{kind}", **attributes)


def edited(change, **arguments):
    model = graph(**arguments)
    change(model)
    return model


def first(model):
    return next(n for n in model.graph.node if n.op_type == "Custom")


def attribute(model, name: str):
    return next(a for a in first(model).attribute if a.name == name)


def scatter(axis=2, updates=(1, 4, 1, 64), **changes):
    """A model of one Scatter node."""
    written = {
        "type": "Scatter",
        "input_names": ["var", "indices", "updates"],
        "output_names": ["var"],
        "input_index": [0, 1, 2],
        "reduce": "update",
        "axis": axis,
    }
    written = {name: value for name, value in {**written, **changes}.items() if value is not None}
    custom = helper.make_node("Custom", ["var", "at", "new"], ["out"], name="scatter", **written)
    inputs = [("var", HALF, [1, 4, 32, 64]), ("at", TensorProto.INT64, [1]), ("new", HALF, list(updates))]
    inputs = [helper.make_tensor_value_info(*entry) for entry in inputs]
    outputs = [helper.make_tensor_value_info("out", HALF, [1, 4, 32, 64])]
    return helper.make_model(
        helper.make_graph([custom], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 18)]
    )


def other_node(model, **changes):
    copy = onnx.NodeProto()
    copy.CopyFrom(first(model))
    copy.name, copy.output[:] = "layer1", ["y1", "state1"]
    for name, value in changes.items():
        kept = [a for a in copy.attribute if a.name != name]
        del copy.attribute[:]
        copy.attribute.extend([*kept, helper.make_attribute(name, value)])
    model.graph.node.append(copy)


def external(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.bin")


def text_attribute(monkeypatch):
    op = contract.find("RecurrentGatedDeltaRule")
    with_text = dataclasses.replace(op, attrs=(*op.attrs, contract.Attr("layout", "string", default="BNSD")))
    monkeypatch.setattr(contract, "by_type", lambda name: with_text if name == op.type else None)


def flagged(monkeypatch):
    monkeypatch.setattr(contract, "by_type", lambda name: FLAGGED if name == FLAGGED.type else None)


def sizes(**changes):
    def change(monkeypatch):
        for name, shape in changes.items():
            monkeypatch.setitem(SHAPES, name, (HALF, shape))

    return change


F32_OUT = [("y", FLOAT, [1, 32, 128]), ("state_out", HALF, [1, 32, 128, 128])]
CONSTANT = [("y", HALF, [1, 32, 128]), ("z", INT32, [])]
NO_INFO = [("z", FLOAT, [1, 32])]
ONE = helper.make_tensor("one", INT32, [], [1])
UNSCALED = {"changes": {"scale_value": None}}
# Rule -> (graph maker, release, file name, set-up); what is left out is the default.
BROKEN = {
    "G1": (graph, None, "model.bin"),
    "G2": (lambda: edited(lambda m: m.opset_import.insert(0, helper.make_opsetid("ai.x", 1))),),
    "G3": (lambda: with_nodes(node("RMSNormalization")),),
    "G4": (lambda: edited(lambda m: m.graph.initializer.append(m.graph.initializer[0])),),
    "G5": (lambda: with_nodes(node("Relu", outputs=["y"])),),
    "G6": (lambda: edited(lambda m: m.graph.output.add(name="nobody")),),
    "G7": (lambda: with_nodes(node("Relu", ["missing"])),),
    "G8": (lambda: edited(lambda m: first(m).ClearField("name")),),
    "G9": (
        lambda: edited(
            lambda m: m.graph.value_info.add(name="t").type.tensor_type.__setattr__("elem_type", 8)
        ),
    ),
    "G10": (lambda: graph_int64(),),
    "G11": (lambda: graph({"scale": 0.5}),),
    "G12": (lambda: with_nodes(node("OneHot", ["g", "one", "one"]), constants=[ONE]),),
    "G13": (lambda: with_nodes(node("NonZero")),),
    "G14": (lambda: with_nodes(node("ScatterND", ["g", "g", "g"], reduction="add")),),
    "G15": (lambda: edited(external), None, "model.onnx"),
    "G16": (lambda: with_nodes(node("Neg", ["one"]), constants=[ONE], outputs=CONSTANT),),
    "A9e": (lambda: edited(lambda m: other_node(m, output_names=["out", "final_state"])),),
    "P1": (lambda: graph({"type": ["RecurrentGatedDeltaRule"]}),),
    "P2": (lambda: graph({"input_names": "query"}),),
    "P3": (lambda: graph({"output_names": None}),),
    "P4": (lambda: graph({"optional_input_names": ["nobody"]}),),
    "P5": (lambda: graph({"output_num": 2.0}),),
    "P7": (lambda: graph({"input_index": 0}),),
    "P8": (lambda: graph({"extra": ONE}),),
    "P9": (lambda: graph({"optional_input_names": None}, empty=["optional_input_names"]),),
    "P10": (lambda: edited(lambda m: first(m).attribute.append(attribute(m, "type"))),),
    "P11": (lambda: graph({"layout": "true"}), None, None, text_attribute),
    "A1": (lambda: graph({"input_index": None}, inputs=PRESENT[:8] + ["", PRESENT[8]]),),
    "A3": (lambda: graph(inputs=[*PRESENT, "g", "g"]),),
    "A6": (lambda: graph({"input_index": [0, 1, 2, 3, 4, 5, 7, 6, 9]}),),
    "A7": (lambda: graph({"input_index": [0, 1, 2]}),),
    "A8": (lambda: graph({"input_index": [0, 1, 2, 3, 4, 5, 6, 7, 10]}),),
    "A9b": (lambda: graph({"optional_input_names": ["g", "num_accepted_tokens"]}),),
    "A9c": (graph, (2, 6)),
    "A10": (lambda: graph({"output_num": None}),),
    "A11": (lambda: edited(lambda m: first(m).output.append("third")),),
    "A11b": (lambda: graph(outputs=F32_OUT), (2, 7)),
    "A12": (lambda: edited(lambda m: (first(m).output.pop(), m.graph.output.pop())),),
    "A15": (lambda: graph({"func_type": "tbe"}),),
    "A16": (graph, (2, 7)),
    "N1": (lambda: graph({"type": "MatMul"}),),
    "N2": (lambda: graph({"type": "GroupedMatmul"}),),
    "N4": (lambda: graph({"extra-name": 1}),),
    "B1": (lambda: scatter(input_names=["ref", "indices", "updates"]),),
    "B2": (lambda: scatter(reduce=None),),
    "B3": (lambda: scatter(updates=(1, 4, 1, 32)),),
    "C1": (lambda: graph({"type": "RecurrentGatedDelta"}),),
    "C2": (lambda: graph({"momentum": 0.5}),),
    "C3": (lambda: graph({"input_names": SWAPPED}),),
    "C4": (lambda: graph({"output_names": ["out", "final_state"]}),),
    "C5": (lambda: graph({"optional_input_names": ["g"]}),),
    "C6": (lambda: graph({"input_index": [0, 1, 2, 3, 5, 6, 7, 9]}, inputs=PRESENT[:4] + PRESENT[5:]),),
    "C7": (lambda: graph({"input_index": list(range(9))}),),
    "C8": (graph, None, None, sizes(query=[1, 16, 64])),
    "C9": (graph, None, None, sizes(query=[1, 5, 128], key=[1, 5, 128])),
    "C10": (lambda: graph({"scale_value": 1}),),
    "C11": (graph, None, None, flagged),
    "C12": (lambda: graph({"scale_value": None}),),
    "C13": (lambda: graph(slots=[3]),),
    "C14": (lambda: edited(two_tokens),),
    "C15": (lambda: edited(lambda m: m.graph.output.pop()),),
    "T1": (lambda: graph({"dtype": 42}),),
    "T2": (graph, (2, 7)),
    "T3": (lambda: graph({"output_types": [43, 43]}),),
    "T4": (lambda: graph(outputs=F32_OUT),),
    "T5": (lambda: edited(lambda m: other_node(m)),),
    "T6": (lambda: graph({"outputs_shape": "3,-1"}),),
    "T7": (lambda: graph({"outputs_shape": "3,-1,16,128,4,-1,32,128,128,"}),),
    "T8": (lambda: graph(outputs=[("y", HALF, [1, 16, 128]), ("state_out", HALF, [1, 32, 128, 128])]),),
    "O1": (lambda: with_nodes(node("CumSum", ["g", "one"], exclusive=1), constants=[ONE]), (2, 0)),
    "O2": (lambda: with_nodes(node("Einsum", ["g", "g"], equation="ij,ij->i")),),
    "O3": (lambda: with_nodes(node("If", ["g"])), (2, 6)),
    "O4": (lambda: with_nodes(node("Cast", ["y"], to=FLOAT)),),
    "O5": (lambda: with_nodes(node("Trilu", ["g"], upper=0)),),
    "O6": (lambda: with_nodes(node("Range", ["one", "one", "one"]), constants=[ONE]), (2, 0)),
    "O7": (lambda: with_nodes(node("LayerNormalization", ["g", "g"], axis=-1)), (2, 0)),
    "O8": (lambda: with_nodes(node("HardSigmoid", beta=0.7)), (2, 0)),
    "O9": (lambda: with_nodes(node("PRelu", ["g", "g"])), (2, 0)),
    "O10": (lambda: with_nodes(node("ArgMax")), (2, 0)),
    "O11": (lambda: with_nodes(node("Cast", to=TensorProto.BFLOAT16)), (2, 0)),
    "O12": (lambda: with_nodes(node("ScatterElements", ["g", "g", "g"], reduction="add")),),
    "O13": (lambda: with_nodes(node("Loop", ["one", "", "g"]), constants=[ONE]), (2, 0)),
}


def graph_int64():
    model = graph()
    index = next(i for i, t in enumerate(model.graph.initializer) if t.name == "actual_seq_lengths")
    model.graph.initializer[index].CopyFrom(
        helper.make_tensor("actual_seq_lengths", TensorProto.INT64, [1], [1])
    )
    return model


def two_tokens(model):
    index = next(i for i, t in enumerate(model.graph.initializer) if t.name == "actual_seq_lengths")
    model.graph.initializer[index].CopyFrom(helper.make_tensor("actual_seq_lengths", INT32, [1], [2]))


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_finds_its_graph(rule, monkeypatch, tmp_path):
    make, version, file, prepare = (*BROKEN[rule], None, None, None)[:4]
    if prepare:
        prepare(monkeypatch)
    found = check_model(make(), version=version or (2, 9), file=tmp_path / file if file else None)
    mine = [finding for finding in found if finding.rule == rule]
    assert mine, "\n".join(map(str, found))
    entry = lite_rules.RULES[rule]
    assert entry.since <= (version or (2, 9)) < entry.until
    for finding in mine:  # says where, what and what to do
        assert finding.severity == entry.severity and finding.problem and finding.fix
        assert finding.node or finding.attribute


def test_every_rule_has_a_graph():
    lite_rules.applicable((2, 9))
    assert set(BROKEN) == set(lite_rules.RULES) and len(BROKEN) > 80


def test_good_graphs_have_no_error_in_any_release():
    for version in ((2, 4), (2, 6), (2, 7), (2, 9)):
        target = repair.profile_of(version).name
        made = graph(target=target) if target != "lite-2.4" else scatter(input_index=None)
        assert [f for f in check_model(made, version=version) if f.severity in "ES"] == []
    assert check_model(scatter()) == []


# What --fix must put right: the maker of the broken graph, and the rules that were broken.
MENDABLE = {
    "opset order": (BROKEN["G2"][0], ["G2"]),
    "initializer twice": (BROKEN["G4"][0], ["G4"]),
    "no node name": (BROKEN["G8"][0], ["G8"]),
    "attribute called scale": (lambda: graph({"scale_value": None, "scale": 128**-0.5}), ["G11", "C12"]),
    "an input left empty": (BROKEN["A1"][0], ["A1"]),
    "int64 constant": (BROKEN["G10"][0], ["G10"]),
    "no output_num": (BROKEN["A10"][0], ["A10"]),
    "no dtype": (lambda: graph({"dtype": None}), ["T1"]),
    "dtype in MindSpore numbers": (BROKEN["T1"][0], ["T1"]),
    "no output_types": (lambda: graph({"output_types": None}), ["T3"]),
    "no outputs_shape": (lambda: graph({"outputs_shape": None}), ["T6"]),
    "outputs_shape of another model": (BROKEN["T7"][0], ["T7"]),
    "no scale": (BROKEN["C12"][0], ["C12"]),
    "empty optional list": (BROKEN["P9"][0], ["P9"]),
    "optional list incomplete": (BROKEN["C5"][0], ["C5"]),
    "unknown attribute": (BROKEN["C2"][0], ["C2"]),
    "attribute twice": (BROKEN["P10"][0], ["P10"]),
    "wrong output name": (BROKEN["C4"][0], ["C4"]),
}


@pytest.mark.parametrize("case", MENDABLE)
def test_repair(case):
    make, rules = MENDABLE[case]
    model = make()
    before = model.SerializeToString()
    assert {f.rule for f in check_model(model)} >= set(rules)
    fixed, done = repair.repair(model)
    assert check_model(fixed) == [] and done
    assert model.SerializeToString() == before
    assert repair.repair(fixed)[1] == []


def test_the_page_says_what_is_repaired():
    from hybrid_ops.export import rules_page

    mended = {rule for _, rules in MENDABLE.values() for rule in rules}
    assert mended <= rules_page.REPAIRED <= set(lite_rules.RULES)
    for rule in rules_page.REPAIRED - mended:
        make, version, _, prepare = (*BROKEN[rule], None, None, None)[:4]
        assert prepare is None
        fixed, _ = repair.repair(make(), version=version or (2, 9))
        assert rule not in {finding.rule for finding in check_model(fixed, version=version or (2, 9))}, rule


def test_inputs_in_another_order_are_put_right_by_their_names():
    """A node that lists and wires its inputs in an order of its own says which is which."""
    order = [NAMES.index(name) for name in PRESENT]
    turned = [*reversed(PRESENT)]
    names = [*turned, "gk"]
    model = graph({"input_names": names, "input_index": list(range(len(order)))}, inputs=turned)
    fixed, _ = repair.repair(model)
    assert check_model(fixed) == [] and list(first(fixed).input) == PRESENT


@pytest.mark.parametrize("rule", ["C7", "C3", "C6", "A7", "G3", "C8", "T4"])
def test_what_needs_judgement_is_left_alone(rule, monkeypatch):
    make, _, _, prepare = (*BROKEN[rule], None, None, None)[:4]
    if prepare:
        prepare(monkeypatch)
    model = make()
    fixed, _ = repair.repair(model)
    assert rule in {finding.rule for finding in check_model(fixed)}


def test_repair_on_the_command_line(tmp_path):
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(graph({"scale_value": None, "dtype": 42}), source)
    before = source.read_bytes()
    done = CliRunner().invoke(app, ["check", str(source), "--fix", str(out)])
    assert done.exit_code == 0 and "repaired layer0: scale_value written" in done.output, done.output
    assert source.read_bytes() == before and check_model(onnx.load(out)) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]
    for bad in (source, tmp_path / "out.bin"):
        with pytest.raises(HybridOpsError, match="check: fix: cannot be written there"):
            repair.repair_file(source, bad)
    weight = numpy_helper.from_array(__import__("numpy").zeros(4, "float32"), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    model = graph(constants=[weight])
    source.write_bytes(model.SerializeToString())
    with pytest.raises(HybridOpsError, match="check: fix: the model has data files beside it"):
        repair.repair_file(source, tmp_path / "elsewhere" / "out.onnx")


def test_files_that_are_no_models(tmp_path):
    file = tmp_path / "m.onnx"
    whole = graph().SerializeToString()
    for content in (b"", b"no model", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(HybridOpsError, match="check: model: cannot be read"):
            lite_rules.check_file(file)
    with pytest.raises(HybridOpsError, match="check: model: cannot be read"):
        lite_rules.check_file(tmp_path / "absent.onnx")
    with file.open("wb") as stream:  # sparse
        stream.write(whole)
        stream.truncate((1 << 31) + 1)
    with pytest.raises(HybridOpsError, match="over 2 GiB, which protobuf cannot read"):
        lite_rules.check_file(file)


def test_release_on_the_command_line(tmp_path):
    """--lite-version everywhere; --lite, its former name, still works."""
    file = tmp_path / "m.onnx"
    onnx.save(graph({"scale_value": None}), file)
    for option in ("--lite-version", "--lite"):
        done = CliRunner().invoke(app, ["rules", option, "2.4"])
        assert done.exit_code == 0 and f"of {len(lite_rules.RULES)} rules hold for Lite 2.4" in done.output
        count = len(lite_rules.applicable((2, 4)))
        assert f": {count} rules," in CliRunner().invoke(app, ["check", str(file), option, "2.4"]).output
    with pytest.raises(HybridOpsError, match="check: lite-version: not a release: got 'new'"):
        CliRunner().invoke(app, ["rules", "--lite-version", "new"], catch_exceptions=False)
