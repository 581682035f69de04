"""Reading MindIR files and comparing them with what was sent: every kind of value, every fault, every broken file."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

onnx = pytest.importorskip("onnx")

from mindir_files import arrive, custom_model, put, write  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from hybrid_ops import HybridOpsError  # noqa: E402
from hybrid_ops.export import mindir, mindir_diff, mindir_proto  # noqa: E402
from hybrid_ops.export.convert_cli import app  # noqa: E402
from hybrid_ops.export.mindir import TensorType, Typed  # noqa: E402

MODEL = custom_model()


def read(tmp_path, change=lambda _: None, model=MODEL):
    return mindir.read(write(tmp_path / "m.mindir", arrive(model, change)))


def faults(tmp_path, change, model=MODEL):
    return mindir_diff.compare(model, read(tmp_path, change, model)).faults


def custom_of(made):
    return next(p for p in made.primitives if p.op_type == "Custom")


def test_values_keep_their_types(tmp_path):
    attributes = read(tmp_path).custom_nodes[0].attributes
    assert attributes["factor"] == Typed("float32", pytest.approx(0.1))
    assert attributes["count"] == Typed("int64", -(2**62))
    assert attributes["counts"] == Typed("int64[]", [0, -1, 2**40])
    assert attributes["yes"] == Typed("bool", True)
    assert attributes["words"] == Typed("string[]", ["true", "", "ß"])
    assert attributes["text"] == Typed("string", "ä,b;c=#d e")


def test_content(tmp_path):
    content = read(tmp_path)
    assert content.counts() == {"Neg": 1, "Custom": 1, "Cast": 1, "Relu": 2}
    assert content.inputs == {"a": TensorType("float16", (2, 3)), "b": TensorType("float16", (2, -1))}
    assert content.outputs == (TensorType("float32", ()),) * 2
    assert content.custom_nodes[0].inputs == ("before", "b")
    assert content.compiled is None


def test_all_that_was_sent_arrives(tmp_path):
    diff = mindir_diff.compare(MODEL, read(tmp_path))
    assert diff.faults == []
    states = {entry.name: entry.state for entry in diff.attributes}
    assert states.pop("infer_done") == "added"
    assert set(states.values()) == {"same"} and len(states) == 16  # 15 sent, and reg_op_name
    assert diff.counts["Relu"] == (2, {"Relu": 2})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("factor", 0.1000001, "factor: changed: sent float32"),
        ("count", 0, "count: changed"),
        ("counts", [0, -1], "counts: changed"),
        ("factors", [1.5, 0.0, 3e38], "factors: changed"),  # the sign of a zero counts
        ("yes", 1, "yes: changed: sent bool True, arrived int64 1"),
        ("word", True, "word: changed: sent string 'TRUE', arrived bool True"),
        ("words", ["true", "ß"], "words: changed"),
        ("reg_op_name", "Other", "reg_op_name: changed"),
    ],
)
def test_changed_attribute(tmp_path, name, value, says):
    def change(made):
        attribute = next(a for a in custom_of(made).attribute if a.name == name)
        attribute.Clear()
        put(attribute, name, value)

    (fault,) = faults(tmp_path, change)
    assert fault.startswith(f"everything: {says}")


def test_lost_and_stray_attributes(tmp_path):
    def change(made):
        attributes = custom_of(made).attribute
        del attributes[[a.name for a in attributes].index("factor")]
        put(attributes.add(), "quant_params", 1)

    content = read(tmp_path, change)
    diff = mindir_diff.compare(MODEL, content)
    assert [f.split(": sent")[0] for f in diff.faults] == ["everything: factor: lost"]
    assert {a.name for a in diff.attributes if a.state == "stray"} == {"quant_params"}


def test_wiring_casts_and_nodes(tmp_path):
    def swapped(made):
        inputs = made.graph.node[1].input
        inputs[0], inputs[1] = inputs[1], inputs[0]

    def shortened(made):
        made.graph.node[1].input.pop()

    def cast_removed(made):
        del made.graph.node[2]

    def replaced(made):
        custom_of(made).op_type = "Neg"

    assert faults(tmp_path, swapped) == [
        "everything: input 0 (x): sent from before, arrived from b",
        "everything: input 1 (b): sent from b, arrived from before",
    ]
    assert faults(tmp_path, shortened) == ["everything: inputs: sent 2, arrived 1"]
    assert "the Cast behind everything was removed" in faults(tmp_path, cast_removed)[0]
    assert faults(tmp_path, replaced) == ["everything: Custom Everything: Neg arrived"]


def test_borders(tmp_path):
    def narrowed(made):
        made.graph.input[0].tensor[0].data_type = 1

    def dimension(made):
        made.graph.input[1].tensor[0].dims[0] = 4

    def fixed(made):
        made.graph.input[1].tensor[0].dims[1] = 4

    def missing(made):
        del made.graph.input[1]

    def fewer(made):
        made.graph.output[0].attr_info.values.pop()

    assert faults(tmp_path, narrowed) == ["a: graph input: sent float16, arrived float32"]
    assert faults(tmp_path, dimension) == ["b: graph input: sent [2, None], arrived [4, -1]"]
    assert faults(tmp_path, fixed) == []
    assert faults(tmp_path, missing)[0].startswith("b: graph input is missing")
    assert faults(tmp_path, fewer) == ["graph outputs: sent 2, arrived 1"]


def test_compiled_graph_is_compared_at_its_border(tmp_path):
    def compiled(made):
        del made.graph.node[1:], made.primitives[1:]
        node, primitive = made.graph.node[0], made.primitives[0]
        primitive.op_type = "Custom"
        put(primitive.attribute.add(), "type", "ACL")
        node.domain = "ACL"

    content = read(tmp_path, compiled)
    assert content.compiled is not None
    diff = mindir_diff.compare(MODEL, content)
    assert diff.faults == [] and "compiled" in diff.notes[0]


def test_cut_anywhere_is_refused(tmp_path):
    whole = write(tmp_path / "whole.mindir", arrive(MODEL))
    data, known = whole.read_bytes(), mindir.read(whole)
    part = tmp_path / "part.mindir"
    for size in range(0, len(data), 7):
        part.write_bytes(data[:size])
        with pytest.raises(HybridOpsError, match=r"cut short|no MindIR"):
            mindir.read(part)
    assert known.custom_nodes


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"not a protobuf", MODEL.SerializeToString()])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.mindir"
    path.write_bytes(content)
    with pytest.raises(HybridOpsError, match="MindIR"):
        mindir.read(path)


def test_absent_file_and_folder(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.mindir"):
        with pytest.raises(HybridOpsError, match="cannot be read"):
            mindir.read(path)


def test_weights_beside_the_model(tmp_path):
    def outside(made):
        tensor = made.graph.parameter.add(name="p:w")
        tensor.external_data.location, tensor.external_data.offset = "m_variables/data_0", 64
        tensor.external_data.length = 100

    with pytest.raises(HybridOpsError, match="data_0 are incomplete: got no such file; allowed 164 bytes"):
        read(tmp_path, outside)
    (tmp_path / "m_variables").mkdir()
    data = tmp_path / "m_variables" / "data_0"
    data.write_bytes(bytes(163))
    with pytest.raises(HybridOpsError, match="got 163 bytes"):
        read(tmp_path, outside)
    data.write_bytes(bytes(164))
    content = read(tmp_path, outside)
    assert content.files == (data,) and content.weight_bytes == 100


def test_commands(tmp_path):
    model = tmp_path / "m.onnx"
    onnx.save(MODEL, model)
    good = write(tmp_path / "m.mindir", arrive(MODEL))

    def change(made):
        attributes = custom_of(made).attribute
        del attributes[[a.name for a in attributes].index("factor")]

    bad = write(tmp_path / "bad.mindir", arrive(MODEL, change))
    runner = CliRunner()
    shown = runner.invoke(app, ["mindir", "show", str(good)])
    assert shown.exit_code == 0 and "factor: float32 0.1" in shown.output
    document = json.loads(runner.invoke(app, ["mindir", "show", str(good), "--json"]).output)
    assert document["nodes"][0]["attributes"]["counts"] == ["int64[]", [0, -1, 2**40]]
    compared = runner.invoke(app, ["mindir", "diff", str(model), str(good)])
    assert compared.exit_code == 0 and "16 attributes the same, 0 changed, 0 lost" in compared.output
    compared = runner.invoke(app, ["mindir", "diff", str(model), str(bad), "--json"])
    assert compared.exit_code == 1 and "factor: lost" in json.loads(compared.output)["faults"][0]


def test_file_of_mindspore(tmp_path):
    """A file that MindSpore itself wrote, read with both declarations."""
    if mindir_proto.mindspore_module() is None:
        pytest.skip("mindspore is not installed: no file of its own to read")
    code = (
        "import sys, mindspore as ms, numpy as np\n"
        "class Net(ms.nn.Cell):\n"
        "    def construct(self, x, y):\n"
        "        return ms.ops.matmul(x, y) + 1.0, ms.ops.relu(x)\n"
        "ms.set_device('CPU')\n"
        "x = ms.Tensor(np.ones((2, 3), np.float32))\n"
        "ms.export(Net(), x, ms.Tensor(np.ones((3, 4), np.float32)), file_name=sys.argv[1], file_format='MINDIR')\n"
    )
    script = tmp_path / "export.py"  # MindSpore compiles from source files only
    script.write_text(code)
    run = subprocess.run([sys.executable, script, str(tmp_path / "net")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    content = mindir.read(tmp_path / "net.mindir")
    assert content == mindir.read(tmp_path / "net.mindir", model_class=mindir_proto.declared_model())
    kinds = sorted(content.counts().elements())  # the product is MatMul or MatMulExt, by release
    assert len(kinds) == 3 and kinds[0] == "Add" and kinds[1].startswith("MatMul") and kinds[2] == "ReLU"
    assert list(content.inputs.values()) == [TensorType("float32", (2, 3)), TensorType("float32", (3, 4))]
    assert content.outputs == (TensorType("float32", (2, 4)), TensorType("float32", (2, 3)))
