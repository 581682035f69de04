"""Compares a MindIR with the ONNX model it was converted from: what arrived against what was sent.

Nodes are matched by name, which the converter keeps. Custom nodes, the Casts behind them and the graph's inputs and
outputs must arrive unchanged; other nodes may be fused or renamed, so for them the counts per type are told, not judged.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.mindir import PLUMBING, MindIR, Node, Typed

# ONNX attribute kinds and the type they arrive with.
ARRIVES = {
    "FLOAT": "float32", "INT": "int64", "STRING": "string",
    "FLOATS": "float32[]", "INTS": "int64[]", "STRINGS": "string[]",
}  # fmt: skip
TRUTH = {"true": True, "True": True, "false": False, "False": False}
# int64 and double tensors at the border of the graph become narrower (G10), unless KEEP_ORIGIN_DTYPE is set.
NARROWED = {"int64": "int32", "float64": "float32"}
# Attributes that the converter adds to every node.
ADDED = frozenset(
    "reg_op_name quant_type infer_done format OriginalFormat outputs_format inputs_format no_need_constant_folding "
    "empty_input_index is_fused".split()
)


@dataclass(frozen=True)
class AttributeDiff:
    """One attribute of one Custom node; `state`: same, changed, lost, added (by the converter) or stray."""

    node: str
    name: str
    sent: Typed | None
    arrived: Typed | None
    state: str


@dataclass(frozen=True)
class Diff:
    """`counts`: ONNX type -> (number sent, number per MindIR type that kept the name); `faults`: what must not be."""

    counts: dict[str, tuple[int, dict[str, int]]]
    attributes: list[AttributeDiff]
    faults: list[str]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def expected(node: CustomNode) -> dict[str, Typed]:
    """Attributes of a Custom node as the converter's parser types them: STRING true/false becomes a bool."""
    typed = {}
    for name, value in node.values.items():
        kind = ARRIVES.get(node.kinds[name], node.kinds[name].lower())
        if kind == "string" and name != "type" and value in TRUTH:
            kind, value = "bool", TRUTH[value]
        typed[name] = Typed(kind, list(value) if kind.endswith("[]") else value)
    if "type" in typed:
        typed["reg_op_name"] = typed["type"]
    return typed


def compare(model: onnx.ModelProto, arrived: MindIR) -> Diff:
    """What `arrived` has of `model`; an empty `faults` means that everything that must arrive did."""
    graph = Graph(model)
    faults = list(_borders(graph, arrived))
    if arrived.compiled is not None:
        note = "the graph is compiled for the device: only its inputs and outputs can be compared"
        return Diff({}, [], faults, [note])
    nodes = {node.name: node for node in arrived.nodes}
    attributes: list[AttributeDiff] = []
    for node in graph.custom_nodes:
        found = nodes.get(node.label)
        if found is None or found.op_type != "Custom":
            got = "no such node" if found is None else found.op_type
            faults.append(f"{node.label}: Custom {node.type}: {got} arrived")
            continue
        attributes += _attributes(node, found)
        faults += _wiring(node, found, graph, nodes)
    for entry in attributes:
        if entry.state in ("changed", "lost"):
            faults.append(
                f"{entry.node}: {entry.name}: {entry.state}: sent {entry.sent}, arrived {entry.arrived}"
            )
    faults += _casts(graph, nodes)
    for name in sorted({n.name for n in arrived.custom_nodes} - {n.label for n in graph.custom_nodes}):
        faults.append(f"{name}: Custom node that was not sent")
    return Diff(_counts(graph, nodes), attributes, faults)


def compare_file(path: str | Path, arrived: MindIR) -> Diff:
    """`compare` with the ONNX model in `path` (weights are not read)."""
    return compare(onnx.load(str(path), load_external_data=False), arrived)


def _counts(graph: Graph, nodes: dict[str, Node]) -> dict[str, tuple[int, dict[str, int]]]:
    sent: collections.Counter[str] = collections.Counter()
    kept: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for proto in graph.proto.node:
        sent[proto.op_type] += 1
        found = nodes.get(proto.name)
        if found is not None and found.op_type not in PLUMBING:
            kept[proto.op_type][found.op_type] += 1
    return {kind: (number, dict(kept[kind])) for kind, number in sent.most_common()}


def _attributes(node: CustomNode, found: Node) -> Iterator[AttributeDiff]:
    sent = expected(node)
    for name in dict.fromkeys([*sent, *found.attributes]):
        before, after = sent.get(name), found.attributes.get(name)
        if before is None:
            state = "added" if name in ADDED else "stray"
        elif after is None:
            state = "lost"
        else:
            state = "same" if same(before, after) else "changed"
        yield AttributeDiff(node.label, name, before, after, state)


def same(sent: Typed, arrived: Typed) -> bool:
    """Equal type and value; floats bit by bit, as ONNX holds them in float32."""
    if sent.value == [] and arrived.value == []:
        return True
    if sent.kind != arrived.kind:
        return False
    if sent.kind.startswith("float"):
        before, after = np.atleast_1d(sent.value), np.atleast_1d(arrived.value)
        return before.shape == after.shape and np.float32(before).tobytes() == np.float32(after).tobytes()
    return bool(sent.value == arrived.value)


def _wiring(node: CustomNode, found: Node, graph: Graph, nodes: dict[str, Node]) -> Iterator[str]:
    present = node.present
    if len(found.inputs) != len(present):
        yield f"{node.label}: inputs: sent {len(present)}, arrived {len(found.inputs)}"
        return
    for slot, (tensor, label) in enumerate(zip(present, found.inputs, strict=True)):
        producer = graph.producers.get(tensor)
        origin = producer.name if producer is not None else tensor if tensor in graph.inputs else None
        known = origin is not None and (origin in nodes or origin in graph.inputs)
        moved = label in graph.inputs or (label in nodes and nodes[label].op_type not in PLUMBING)
        if known and moved and origin != label:
            yield f"{node.label}: input {slot} ({tensor}): sent from {origin}, arrived from {label}"


def _casts(graph: Graph, nodes: dict[str, Node]) -> Iterator[str]:
    outputs = {name: node.label for node in graph.custom_nodes for name in node.proto.output if name}
    for proto in graph.proto.node:
        if proto.op_type == "Cast" and proto.input[0] in outputs and proto.name not in nodes:
            yield (
                f"{proto.name}: the Cast behind {outputs[proto.input[0]]} was removed: its consumers read the "
                "operator's own dtype"
            )


def _borders(graph: Graph, arrived: MindIR) -> Iterator[str]:
    sent = {name: graph.value(name) for name in graph.inputs if name not in graph.initializers}
    for name, value in sent.items():
        found = arrived.inputs.get(name)
        if found is None:
            yield f"{name}: graph input is missing: arrived {', '.join(arrived.inputs)}"
            continue
        if value.dtype and found.dtype not in (value.dtype, NARROWED.get(value.dtype)):
            yield f"{name}: graph input: sent {value.dtype}, arrived {found.dtype}"
        dims = value.shape
        if dims is not None and (
            len(dims) != len(found.dims)
            or any(d is not None and d != f for d, f in zip(dims, found.dims, strict=True))
        ):
            yield f"{name}: graph input: sent {list(dims)}, arrived {list(found.dims)}"
    for name in arrived.inputs:
        if name not in sent:
            yield f"{name}: graph input that was not sent"
    if len(graph.proto.output) != len(arrived.outputs):
        yield f"graph outputs: sent {len(graph.proto.output)}, arrived {len(arrived.outputs)}"
