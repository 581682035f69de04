"""Writes MindIR files as MindSpore Lite does, without it: every ONNX node under its own name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from hybrid_ops.export import mindir_diff, mindir_proto
from hybrid_ops.export.graph_view import CustomNode

NUMBER = {name: i for i, name in enumerate(mindir_proto.ATTRIBUTE_TYPES)}
TENSORS = {name: number for number, name in mindir_proto.TENSOR_TYPES.items()}
ONNX_TO_MINDIR = {1: "float32", 6: "int32", 7: "int32", 9: "bool", 10: "float16", 11: "float32"}


def put(attribute: Any, name: str, value: Any) -> None:
    """Store a Python value as the converter stores it; bool before int, because a bool is one."""
    attribute.name = name
    if isinstance(value, bool):
        attribute.type, attribute.i = NUMBER["BOOL"], int(value)
    elif isinstance(value, int):
        attribute.type, attribute.i = NUMBER["INT64"], value
    elif isinstance(value, float):
        attribute.type, attribute.f = NUMBER["FLOAT"], value
    elif isinstance(value, str):
        attribute.type, attribute.s = NUMBER["STRING"], value.encode()
    else:
        attribute.type = NUMBER["TUPLE"]
        for item in value:
            inner = attribute.values.add()
            inner.type = NUMBER[
                "INT64" if isinstance(item, int) else "FLOAT" if isinstance(item, float) else "STRING"
            ]
            field = "ints" if isinstance(item, int) else "floats" if isinstance(item, float) else "strings"
            getattr(inner, field).append(item.encode() if isinstance(item, str) else item)


def arrive(model: onnx.ModelProto, change: Callable[[Any], None] = lambda _: None) -> Any:
    """The model as a MindIR message, Custom attributes converted as the parser does; `change` may spoil it."""
    made = mindir_proto.declared_model()()
    made.ir_version, made.producer_name = "0.1.1", "MindSpore"
    graph, names = made.graph, {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        entry = graph.input.add(name=f"in:{value.name}")
        tensor = entry.tensor.add(name=value.name)
        kind = value.type.tensor_type
        tensor.data_type = TENSORS[ONNX_TO_MINDIR[kind.elem_type]]
        tensor.dims.extend(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)
        names[value.name] = entry.name
    for tensor in model.graph.initializer:
        graph.parameter.add(name=f"p:{tensor.name}", raw_data=tensor.raw_data)
        names[tensor.name] = f"p:{tensor.name}"
    assert constants <= set(names)
    for position, proto in enumerate(model.graph.node):
        node = graph.node.add(
            name=f"n{position}", domain=proto.name, op_type=f"REF::{proto.op_type}:{position}"
        )
        node.input.extend(names[name] for name in proto.input if name)
        node.output.append(node.name)
        names.update({name: node.name for name in proto.output})
        primitive = made.primitives.add(name=f"{proto.op_type}:{position}", op_type=proto.op_type)
        if proto.op_type == "Custom":
            custom = CustomNode(proto, position)
            for name, value in {**custom.values, "reg_op_name": custom.type}.items():
                truth = (
                    mindir_diff.TRUTH.get(value, value)
                    if isinstance(value, str) and name != "type"
                    else value
                )
                put(primitive.attribute.add(), name, truth)
            put(primitive.attribute.add(), "infer_done", True)
    output = graph.output.add(name="out")
    output.attr_info.type = NUMBER["TUPLE"]
    for _ in model.graph.output:
        inner = output.attr_info.values.add(type=NUMBER["TENSORS"])
        inner.tensors.add(data_type=TENSORS["float32"])
    change(made)
    return made


def write(path: Path, made: Any) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def custom_model(**changes: Any) -> onnx.ModelProto:
    """A graph with one Custom node that has an attribute of every kind, a node before it and a Cast behind it."""
    attributes = {
        "type": "Everything",
        "input_names": ["x", "y", "z"],
        "output_names": ["out", "more"],
        "optional_input_names": ["y", "z"],
        "output_num": 2,
        "input_index": [0, 2],
        "factor": 0.1,
        "factors": [1.5, -0.0, 3e38],
        "count": -(2**62),
        "counts": [0, -1, 2**40],
        "yes": "true",
        "no": "False",
        "word": "TRUE",
        "text": "ä,b;c=#d e",
        "words": ["true", "", "ß"],
        **changes,
    }
    attributes = {name: value for name, value in attributes.items() if value is not None}
    info = helper.make_tensor_value_info
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Neg", ["a"], ["x"], name="before"),
        helper.make_node("Custom", ["x", "b"], ["o", "m"], name="everything", **attributes),
        helper.make_node("Cast", ["o"], ["c"], name="behind", to=single),
        helper.make_node("Relu", ["c"], ["d"], name="after"),
        helper.make_node("Relu", ["m"], ["e"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "everything",
        [info("a", half, [2, 3]), info("b", half, [2, "n"])],
        [info("d", single, [2, 3]), info("e", half, [2, "n"])],
        value_info=[
            info("x", half, [2, 3]),
            info("o", half, [2, 3]),
            info("m", half, [2, "n"]),
            info("c", single, [2, 3]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
