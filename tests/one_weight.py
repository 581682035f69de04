"""A model of one weight, for tests of writing; imports nothing heavy, because killed processes use it too."""

from __future__ import annotations

import numpy as np
import onnx_ir


def one_weight(megabytes: int) -> onnx_ir.Model:
    """float32 ones of that many MiB, given out as they are."""
    weight = onnx_ir.Value(
        name="w", const_value=onnx_ir.tensor(np.ones((megabytes << 18,), np.float32), name="w")
    )
    weight.shape, weight.type = onnx_ir.Shape([megabytes << 18]), onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    node = onnx_ir.node("Identity", [weight])
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = "y", weight.shape, weight.type
    graph = onnx_ir.Graph(
        [], node.outputs, nodes=[node], initializers=[weight], opset_imports={"": 18}, name="g"
    )
    return onnx_ir.Model(graph, ir_version=9)
