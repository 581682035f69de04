"""An ONNX graph as the checker needs it: producers, types, shapes and constants by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from hybrid_ops.export.custom_node import OP_TYPE
from hybrid_ops.export.dtypes import onnx_name

# Larger constants are weights; no rule reads their values.
CONSTANT_ELEMENTS = 1 << 16
_MOVES = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Flatten"}


@dataclass(frozen=True)
class Value:
    """Type of one tensor: contract dtype name ("" unknown) and dimensions (None dynamic), or no shape at all."""

    dtype: str = ""
    shape: tuple[int | None, ...] | None = None


class CustomNode:
    """One Custom node: attributes by name with ONNX kinds, and inputs bound as the converter binds them."""

    def __init__(self, proto: onnx.NodeProto, position: int) -> None:
        self.proto = proto
        self.label = proto.name or f"Custom#{position}"
        self.kinds = {a.name: AttributeProto.AttributeType.Name(a.type) for a in proto.attribute}
        self.values = {a.name: _plain(a) for a in proto.attribute}

    @property
    def type(self) -> str:
        return self.text("type")

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return value if self.kinds.get(name) == "STRING" and isinstance(value, str) else ""

    def names(self, name: str) -> list[str]:
        return self.values[name] if self.kinds.get(name) == "STRINGS" else []

    @property
    def present(self) -> list[str]:
        """Wired inputs; the converter drops empty names."""
        return [name for name in self.proto.input if name]

    def slots(self, gaps: bool = True) -> list[int]:
        """Slot of input_names that each wired input lands in; without usable input_index by position."""
        index = self.values.get("input_index") or []
        if gaps and self.kinds.get("input_index") == "INTS" and len(index) == len(self.present):
            return list(index)
        return list(range(len(self.present)))

    def bound(self, gaps: bool = True) -> dict[str, str]:
        """Declared input name -> tensor name, as the node says it (not as its author meant it)."""
        names = self.names("input_names")
        pairs = zip(self.slots(gaps), self.present, strict=True)
        return {names[slot]: tensor for slot, tensor in pairs if 0 <= slot < len(names)}


def _plain(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float, onnx.TensorProto, onnx.GraphProto)):
        return value
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]


class Graph:
    """Read-only index over `model.graph`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.proto = model.graph
        self.producers = {name: node for node in self.proto.node for name in node.output if name}
        self.inputs = {value.name: value for value in self.proto.input}
        self.initializers = {tensor.name: tensor for tensor in self.proto.initializer}

    @cached_property
    def custom_nodes(self) -> list[CustomNode]:
        nodes = (node for node in self.proto.node if node.op_type == OP_TYPE)
        return [CustomNode(node, position) for position, node in enumerate(nodes)]

    @cached_property
    def used(self) -> set[str]:
        """Tensors that a node reads or the graph gives out."""
        read = {name for node in self.proto.node for name in node.input}
        return read | {value.name for value in self.proto.output}

    @cached_property
    def _values(self) -> Mapping[str, Value]:
        values = {}
        for info in [*self.proto.value_info, *self.proto.input, *self.proto.output]:
            tensor = info.type.tensor_type
            shape = None
            if tensor.HasField("shape"):
                shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
            values[info.name] = Value(onnx_name(tensor.elem_type) if tensor.elem_type else "", shape)
        for tensor in self.proto.initializer:
            values[tensor.name] = Value(onnx_name(tensor.data_type), tuple(tensor.dims))
        return values

    def value(self, name: str) -> Value:
        """Type of a tensor: declared, or that of the constant it is."""
        if name in self._values:
            return self._values[name]
        constant = self.constant(name)
        return Value() if constant is None else Value(constant.dtype.name, constant.shape)

    def constant(self, name: str) -> np.ndarray | None:
        """Value of a small constant: initializer, Constant node, or one that only moves or converts a constant."""
        tensor = self.initializers.get(name)
        if tensor is not None:
            known = name not in self.inputs and tensor.data_location != onnx.TensorProto.EXTERNAL
            return numpy_helper.to_array(tensor) if known and _elements(tensor) <= CONSTANT_ELEMENTS else None
        node = self.producers.get(name)
        if node is None:
            return None
        attributes = {a.name: a for a in node.attribute}
        if node.op_type == "Constant":
            if "value" in attributes and _elements(attributes["value"].t) <= CONSTANT_ELEMENTS:
                return numpy_helper.to_array(attributes["value"].t)
            value = next((_plain(a) for a in node.attribute if a.name != "value"), None)
            return None if value is None else np.asarray(value)
        if node.op_type == "ConstantOfShape":
            shape = self.constant(node.input[0])
            if shape is None or np.prod(shape) > CONSTANT_ELEMENTS:
                return None
            fill = (
                numpy_helper.to_array(attributes["value"].t)
                if "value" in attributes
                else np.zeros(1, np.float32)
            )
            return np.full(tuple(int(n) for n in shape), fill[0])
        if node.op_type in _MOVES and node.input:
            source = self.constant(node.input[0])
            if source is not None and node.op_type == "Cast":
                return source.astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"].i))
            return source
        return None

    def ancestors(self, name: str, limit: int = 64) -> Iterator[onnx.NodeProto]:
        """Nodes that a tensor is computed from, nearest first, at most `limit` of them."""
        queue, seen = [name], set[int]()
        while queue and len(seen) < limit:
            node = self.producers.get(queue.pop(0))
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            queue.extend(n for n in node.input if n)


def _elements(tensor: onnx.TensorProto) -> int:
    return int(np.prod(tensor.dims)) if tensor.dims else 1
