"""Reads MindIR files, MindSpore's and MindSpore Lite's: nodes, typed attributes, inputs, outputs, files."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from hybrid_ops import check
from hybrid_ops.export import mindir_proto

REFERENCE = "REF::"
# Nodes that only carry values around.
PLUMBING = frozenset({"Constant", "MakeTuple", "TupleGetItem", "Return", "Depend", "Load", "UpdateState"})
# Type of the one Custom node that holds a graph compiled for the device.
COMPILED = "ACL"


@dataclass(frozen=True)
class Typed:
    """A value and its type: float32, int64, bool, string, …; "int64[]" for a list; "tensor" for shape and dtype."""

    kind: str
    value: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.value!r}"


@dataclass(frozen=True)
class TensorType:
    """dtype name ("" unknown) and dimensions, -1 dynamic."""

    dtype: str
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype or '?'}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Node:
    """One node. `name` is the one of the source model where the writer kept it; `inputs` name producers."""

    name: str
    op_type: str
    attributes: Mapping[str, Typed]
    inputs: tuple[str, ...]
    outputs: tuple[TensorType, ...]


@dataclass(frozen=True)
class MindIR:
    """A file's content, weights left out (`weight_bytes` says how much they are)."""

    path: Path
    producer: str
    version: str
    nodes: tuple[Node, ...]
    inputs: Mapping[str, TensorType]
    outputs: tuple[TensorType, ...]
    weight_bytes: int
    files: tuple[Path, ...] = field(default=())

    @property
    def custom_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.op_type == "Custom"]

    @property
    def compiled(self) -> Node | None:
        """The node that holds the whole graph as device code, if the file was converted that far."""
        return next(
            (n for n in self.custom_nodes if n.attributes.get("type") == Typed("string", COMPILED)), None
        )

    def counts(self) -> collections.Counter[str]:
        """Nodes per type, without those that only move values."""
        return collections.Counter(n.op_type for n in self.nodes if n.op_type not in PLUMBING)


def _refuse(path: Path, wrong: str, got: object, allowed: str) -> check.HybridOpsError:
    return check.refuse("mindir", str(path), wrong, got=got, allowed=allowed, soc="any SoC")


def read(path: str | Path, *, model_class: Any = None) -> MindIR:
    """Content of a MindIR file.

    `model_class`: protobuf class to parse with; MindSpore's, or this package's declaration, when left out.
    Errors: HybridOpsError when the file is absent, cut short, encrypted, another format, or its weight files are
    missing or too short.
    """
    path = Path(path)
    whole = "a whole *.mindir file, not encrypted"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _refuse(path, "cannot be read", error.strerror, whole) from error
    model = (model_class or mindir_proto.model_class())()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise _refuse(path, "is cut short, encrypted or no MindIR", f"{len(data)} bytes", whole) from error
    if not model.ir_version or not (model.graph.node or model.functions):
        raise _refuse(path, "is no MindIR", f"{len(data)} bytes without version or graph", whole)
    return _content(path, model)


def _content(path: Path, model: Any) -> MindIR:
    primitives = {p.name: p for p in model.primitives}
    graphs = [model.graph, *model.functions]
    nodes: list[Node] = []
    for graph in graphs:
        labels = {value.name: label for value, label in _labelled(graph)}
        for proto in graph.node:
            labels.update({output: proto.domain or proto.name for output in proto.output})
        for proto in graph.node:
            kind, attributes = proto.op_type, list(proto.attribute)
            if kind.startswith(REFERENCE):
                primitive = primitives.get(kind.removeprefix(REFERENCE))
                if primitive is None and any(kind == f"{REFERENCE}{g.name}" for g in model.functions):
                    kind = "call"
                elif primitive is None:
                    raise _refuse(
                        path, "is cut short", f"node {proto.name} without {kind}", "a whole *.mindir file"
                    )
                else:
                    kind, attributes = (
                        primitive.op_type or primitive.name,
                        [*primitive.attribute, *attributes],
                    )
            typed = {a.name: typed_value(a) for a in attributes}
            outputs = _types(typed.pop("shape", None))
            inputs = tuple(labels.get(name, name) for name in proto.input)
            nodes.append(Node(proto.domain or proto.name, kind.split("::")[-1], typed, inputs, outputs))
    files, weights = _weights(path, [p for graph in graphs for p in graph.parameter])
    return MindIR(
        path,
        f"{model.producer_name} {model.producer_version}".strip(),
        model.ir_version,
        tuple(nodes),
        {label: _value_type(value) for value, label in _labelled(model.graph, parameters=False)},
        tuple(_flat(model.graph.output)),
        weights,
        files,
    )


def _labelled(graph: Any, parameters: bool = True) -> Iterator[tuple[Any, str]]:
    for value in graph.input:
        yield value, (value.tensor[0].name if value.tensor and value.tensor[0].name else value.name)
    if parameters:
        for value in graph.parameter:
            yield value, value.name


def _flat(values: Iterable[Any]) -> Iterator[TensorType]:
    for value in values:
        if value.HasField("attr_info"):
            yield from _types(typed_value(value.attr_info))
        else:
            yield _value_type(value)


def _value_type(value: Any) -> TensorType:
    return tensor_type(value.tensor[0]) if value.tensor else TensorType("", ())


def tensor_type(tensor: Any) -> TensorType:
    number = tensor.data_type
    return TensorType(mindir_proto.TENSOR_TYPES.get(number, f"type {number}"), tuple(tensor.dims))


def _types(value: Typed | None) -> tuple[TensorType, ...]:
    if value is None:
        return ()
    if isinstance(value.value, TensorType):
        return (value.value,)
    items = value.value if isinstance(value.value, list) else []
    return tuple(item for item in items if isinstance(item, TensorType))


_FIELD = {"FLOAT": "f", "DOUBLE": "d", "STRING": "s"}
_LIST = {"f": "floats", "d": "doubles", "s": "strings", "i": "ints"}
_KIND = {"FLOAT": "float32", "DOUBLE": "float64"}


def typed_value(attribute: Any) -> Typed:
    """The value of a MindIR attribute; a scalar may stand in the scalar field or as a list of one."""
    name = (
        mindir_proto.ATTRIBUTE_TYPES[attribute.type] if 0 <= attribute.type < 41 else f"type {attribute.type}"
    )
    if name in ("TUPLE", "LIST"):
        items = [typed_value(value) for value in attribute.values]
        kinds = {item.kind for item in items}
        return Typed(f"{kinds.pop()}[]" if len(kinds) == 1 else "[]", [item.value for item in items])
    if name in ("TENSORS", "TENSOR"):
        tensors = [tensor_type(t) for t in attribute.tensors] or [tensor_type(attribute.t)]
        return Typed("tensor", tensors[0]) if len(tensors) == 1 else Typed("tensor[]", tensors)
    integer = name.startswith(("INT", "UINT")) or name == "BOOL"
    where = _FIELD.get(name, "i" if integer else "")
    if not where:
        return Typed(name.lower(), None)
    several = list(getattr(attribute, _LIST[where]))
    if len(several) > 1:
        return Typed(f"{_KIND.get(name, name.lower())}[]", [_plain(v, name) for v in several])
    return Typed(
        _KIND.get(name, name.lower()), _plain(several[0] if several else getattr(attribute, where), name)
    )


def _plain(value: Any, name: str) -> Any:
    if name == "BOOL":
        return bool(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _weights(path: Path, parameters: Iterable[Any]) -> tuple[tuple[Path, ...], int]:
    """Files beside `path` that hold weights, and the bytes of all weights; refuses a missing or short one."""
    total, needed = 0, dict[Path, int]()
    for tensor in parameters:
        if tensor.HasField("external_data") and tensor.external_data.location:
            part = tensor.external_data
            file = path.parent / part.location
            needed[file] = max(needed.get(file, 0), part.offset + part.length)
            total += part.length
        else:
            total += len(tensor.raw_data)
    for file, size in needed.items():
        found = file.stat().st_size if file.is_file() else None
        if found is None or found < size:
            got = "no such file" if found is None else f"{found} bytes"
            raise _refuse(path, f"weights {file.name} are incomplete", got, f"{size} bytes beside the model")
    return tuple(needed), total
