"""Faults that users reported of ONNX exports, each with the smallest input that shows it; the link is the test's id."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

import onnx_ir  # noqa: E402

from hybrid_ops import contract, runtime  # noqa: E402
from hybrid_ops.export import GraphRunner, check_model, custom_attributes, profile  # noqa: E402
from hybrid_ops.export.custom_node import PRIVATE_DOMAIN, PRIVATE_VERSION, STRUCTURE  # noqa: E402
from hybrid_ops.export.graph_view import CustomNode, Graph  # noqa: E402
from hybrid_ops.export.legacy_export import export_module_legacy  # noqa: E402
from hybrid_ops.export.onnx_export import export_module  # noqa: E402

PLAIN = {"float": float, "int": int, "bool": bool, "string": str, "list_int": list, "list_float": list}
# Values that no OpDef has as a default.
OTHER = {"float": 0.375, "int": 7, "string": "other", "list_int": [3, 5], "list_float": [0.25, 0.5]}


class Rule(torch.nn.Module):
    """One operator and nothing else."""

    def forward(self, query, key, value, beta, state, actual_seq_lengths, ssm_state_indices, g):
        return torch.ops.hybrid_ops.recurrent_gated_delta_rule_functional(
            query, key, value, beta, state, actual_seq_lengths, ssm_state_indices, g=g, scale_value=0.125
        )


@pytest.mark.parametrize("link", ["https://github.com/onnx/onnx/issues/3544"])
@pytest.mark.parametrize("export", [export_module, export_module_legacy], ids=["dynamo", "legacy"])
def test_one_node_that_checkers_and_converter_take(link, export):
    """LT1."""
    made = torch.Generator().manual_seed(0)
    shapes = {
        "query": (1, 2, 64),
        "key": (1, 2, 64),
        "value": (1, 4, 64),
        "beta": (1, 4),
        "state": (1, 4, 64, 64),
    }
    inputs = {name: torch.rand(shape, generator=made).half() for name, shape in shapes.items()}
    inputs |= {"actual_seq_lengths": torch.ones(1, dtype=torch.int32)}
    inputs |= {"ssm_state_indices": torch.zeros(1, dtype=torch.int32), "g": -torch.rand(1, 4, generator=made)}
    proto = onnx_ir.to_proto(export(Rule(), inputs, output_names=["out", "state_out"]))
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import][-1] == (
        PRIVATE_DOMAIN,
        PRIVATE_VERSION,
    )
    (node,) = Graph(proto).custom_nodes
    op = contract.by_type(node.type)
    assert (node.proto.op_type, node.proto.domain, node.kinds["type"]) == ("Custom", PRIVATE_DOMAIN, "STRING")
    assert node.values["type"] == "RecurrentGatedDeltaRule"
    assert node.values["input_names"] == [t.name for t in op.inputs]
    assert list(node.bound()) == list(inputs), "every wired input lands in the slot of its name"
    graph = Graph(proto)
    assert [graph.value(name).shape for name in node.proto.output] == [(1, 4, 64), (1, 4, 64, 64)]
    assert [f for f in check_model(proto) if f.severity == "E"] == []
    got = GraphRunner(proto, backend="reference").run({name: value.numpy() for name, value in inputs.items()})
    with runtime.using(backend="reference"):
        want = Rule()(**inputs)
    for name, value in zip(("out", "state_out"), want, strict=True):
        assert np.array_equal(got[name], value.numpy())


@pytest.mark.parametrize(
    "link", ["https://www.mindspore.cn/lite: third-party ONNX operators, bool attributes"]
)
def test_attributes_come_back_in_the_types_of_the_opdef(link, op):
    """LT2: as the converter restores them, STRING true and false as bool, everything else by its ONNX kind."""
    wanted = {a.name: (not a.default if a.type == "bool" else OTHER[a.type]) for a in op.attrs}
    present = [t.name for t in op.inputs]
    shapes = [[None] * len(t.axes[0]) for t in op.outputs]
    types = [next(iter(t.dtypes.values()))[0] for t in op.outputs]
    target = profile("lite-2.9")
    written = custom_attributes(op, present, wanted, shapes, types, target)
    made = onnx.helper.make_node("Custom", present, ["o"], **written)
    node = CustomNode(onnx.NodeProto.FromString(made.SerializeToString()), 0)
    runner = object.__new__(GraphRunner)
    back = {name: runner._restored(op, name, node) for name in node.values if name not in STRUCTURE}
    assert back == wanted
    for attr in op.attrs:
        assert type(back[attr.name]) is PLAIN[attr.type], attr.name
        assert (node.kinds[attr.name] == "STRING") == (attr.type in ("bool", "string"))


def test_some_operator_has_a_bool():
    assert any(a.type == "bool" for op in contract.load().values() for a in op.attrs)
