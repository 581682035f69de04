"""Repairs of an ONNX file that need no judgement: what the contract or the file itself already says.

A Custom node whose inputs are bound beyond doubt (by names that are the OpDef's) is written anew from the contract.
Everything that would need a guess, such as which of two disagreeing shapes is meant, is left to the checker's report.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from hybrid_ops import check
from hybrid_ops.contract import Op
from hybrid_ops.export import cann_ops, lite_rules
from hybrid_ops.export.custom_node import OP_TYPE, custom_attributes, facts, find_op
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.lite_rules import Target
from hybrid_ops.export.profiles import PROFILES, Profile
from hybrid_ops.export.rules_contract import bound_axes
from hybrid_ops.export.rules_types import expected

SMALLER = {TensorProto.INT64: TensorProto.INT32, TensorProto.DOUBLE: TensorProto.FLOAT}


def profile_of(version: tuple[int, int]) -> Profile:
    """The newest profile that a release accepts."""
    fitting = [p for p in PROFILES.values() if p.version <= version]
    return max(fitting, key=lambda p: p.version) if fitting else PROFILES["lite-2.4"]


def repair(
    model: onnx.ModelProto, *, version: tuple[int, int] = (2, 9), soc: str = "ascend310p"
) -> tuple[onnx.ModelProto, list[str]]:
    """A repaired copy of `model` and what was done, one line each."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    target = Target(version, check.find_soc(None, soc))
    done = [*_opset_order(fixed), *_initializers(fixed), *_node_names(fixed), *_empty_outputs(fixed)]
    for node in fixed.graph.node:
        if node.op_type == OP_TYPE:
            done += [f"{node.name}: {text}" for text in _attributes_once(node)]
    graph = Graph(lite_rules._typed(fixed))
    for position, node in enumerate(n for n in fixed.graph.node if n.op_type == OP_TYPE):
        done += [f"{node.name}: {text}" for text in _custom(CustomNode(node, position), graph, target)]
    done += _narrow(fixed)
    return fixed, done


def repair_file(
    path: Path, out: Path, *, version: tuple[int, int] = (2, 9), soc: str = "ascend310p"
) -> list[str]:
    """Write a repaired copy of file `path` to `out`; returns what was done. The input is not touched.

    Errors: HybridOpsError when `path` is no ONNX file, when `out` is the input itself or has another suffix, and when
    data files beside `path` would not be found from `out`.
    """
    if out.resolve() == path.resolve() or out.suffix != ".onnx":
        raise check.refuse(
            "check", "fix", "cannot be written there", got=out, allowed="another *.onnx file", soc="any SoC"
        )
    model = lite_rules.read_model(path)
    apart = any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer)
    if apart and out.resolve().parent != path.resolve().parent:
        raise check.refuse(
            "check", "fix", "the model has data files beside it", got=out,
            allowed=f"a file in {path.resolve().parent}", soc="any SoC",
        )  # fmt: skip
    fixed, done = repair(model, version=version, soc=soc)
    temporary = out.with_name(f".{out.name}.part")
    try:
        temporary.write_bytes(fixed.SerializeToString())
        temporary.replace(out)
    except OSError as error:
        raise check.refuse(
            "check", "fix", "cannot be written", got=error, allowed="a folder to write to", soc="any SoC"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return done


def _opset_order(model: onnx.ModelProto) -> Iterator[str]:
    entries = sorted(model.opset_import, key=lambda entry: entry.domain not in ("", "ai.onnx"))
    if entries and entries[0].domain != model.opset_import[0].domain:
        copies = [onnx.helper.make_opsetid(entry.domain, entry.version) for entry in entries]
        del model.opset_import[:]
        model.opset_import.extend(copies)
        yield "opset_import: default domain put first"


def _initializers(model: onnx.ModelProto) -> Iterator[str]:
    """Initializers that stand twice with the same content become one."""
    kept: dict[str, bytes] = {}
    for tensor in list(model.graph.initializer):
        content = tensor.SerializeToString()
        if (
            kept.setdefault(tensor.name, content) == content
            and sum(t.name == tensor.name for t in model.graph.initializer) > 1
        ):
            model.graph.initializer.remove(tensor)
            yield f"{tensor.name}: initializer that stood twice removed"


def _node_names(model: onnx.ModelProto) -> Iterator[str]:
    taken = collections.Counter(node.name for node in model.graph.node)
    if all(count == 1 and name for name, count in taken.items()):
        return
    used, named = set(taken), 0
    for node in model.graph.node:
        if node.name and taken[node.name] == 1:
            continue
        number = 0
        while f"{node.op_type}_{number}" in used:
            number += 1
        node.name = f"{node.op_type}_{number}"
        used.add(node.name)
        named += 1
    yield f"node.name: {named} nodes named"


def _empty_outputs(model: onnx.ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        for position, name in enumerate(node.output):
            if not name:
                node.output[position] = f"{node.name}_output{position}"
                yield f"{node.name}: output {position} named"


def _attributes_once(node: onnx.NodeProto) -> Iterator[str]:
    """Of attributes written twice the last counts for the converter."""
    last = {attribute.name: attribute for attribute in node.attribute}
    if len(last) < len(node.attribute):
        kept = list(last.values())
        del node.attribute[:]
        node.attribute.extend(kept)
        yield "attributes written twice: the last one kept"


def _binding(node: CustomNode, op: Op, target: Target) -> dict[str, str] | None:
    """Input name -> tensor, None where the node does not say it beyond doubt."""
    names, known = node.names("input_names"), [t.name for t in op.inputs]
    if sorted(names) != sorted(known) or len(node.present) > len(names):
        return None
    index = node.values.get("input_index")
    if "" in node.proto.input:  # as its author meant it: a place left empty
        pairs = zip(names, node.proto.input, strict=False)
        return {name: tensor for name, tensor in pairs if tensor}
    if index is not None and (node.kinds["input_index"] != "INTS" or len(index) != len(node.present)):
        return None
    slots = list(index) if index is not None else list(range(len(node.present)))
    if any(not 0 <= slot < len(names) for slot in slots) or len(set(slots)) < len(slots):
        return None
    return {names[slot]: tensor for slot, tensor in zip(slots, node.present, strict=True)}


def _fits(op: Op, bound: dict[str, str], graph: Graph, target: Target) -> bool:
    """Whether every tensor has a type that its slot takes: a wrong index is not made the contract's."""
    for name, tensor in bound.items():
        dtype = graph.value(tensor).dtype
        if dtype and dtype not in op.input(name).dtypes.get(target.soc, (dtype,)):
            return False
    return all(t.name in bound for t in op.inputs if t.required)


def _rewired(node: CustomNode, op: Op, present: list[str], bound: dict[str, str]) -> CustomNode:
    """The node with its inputs in the OpDef's order and an index that says so."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:]
    proto.input.extend(bound[name] for name in present)
    kept = [a for a in proto.attribute if a.name not in ("input_names", "input_index")]
    names = [tensor.name for tensor in op.inputs]
    made = {"input_names": names, "input_index": [names.index(name) for name in present]}
    del proto.attribute[:]
    proto.attribute.extend([*kept, *(onnx.helper.make_attribute(*pair) for pair in made.items())])
    return CustomNode(proto, 0)


def _custom(node: CustomNode, graph: Graph, target: Target) -> Iterator[str]:
    """Write one node anew from its operator's contract, saying what changed."""
    op = find_op(node.type)
    bound = None if op is None else _binding(node, op, target)
    if op is None or bound is None or not _fits(op, bound, graph, target):
        return
    present = [t.name for t in op.inputs if t.name in bound]
    rewired = _rewired(node, op, present, bound)
    axes, faults = bound_axes(rewired, graph, target, op)
    if faults:
        return
    own, notes = _own_attributes(node, op, axes)
    types = expected(rewired, graph, target, op) if op.type not in cann_ops.OPS else []
    shapes = [[axes.get(word) for word in tensor.axes[0]] for tensor in op.outputs]
    try:
        written = custom_attributes(op, present, own, shapes, types, profile_of(target.version))
    except check.HybridOpsError:  # what this release cannot say is the checker's to report
        return
    proto = node.proto
    before = {a.name: a.SerializeToString() for a in proto.attribute}
    inputs = [bound[name] for name in present]
    if list(proto.input) != inputs:
        del proto.input[:]
        proto.input.extend(inputs)
        notes.append("inputs put in the OpDef's order")
    attributes = [onnx.helper.make_attribute(name, value) for name, value in written.items()]
    changed = [a.name for a in attributes if before.get(a.name) != a.SerializeToString()]
    gone = [name for name in before if name not in written]
    del proto.attribute[:]
    proto.attribute.extend(attributes)
    notes += [f"{name} written" for name in changed] + [f"{name} removed" for name in gone]
    yield from notes


def _own_attributes(node: CustomNode, op: Op, axes: dict[str, int]) -> tuple[dict[str, Any], list[str]]:
    """The operator's own attributes with the OpDef's types; a scale that is missing or called `scale` is put right."""
    own, notes = {}, []
    scales = facts(op, "SCALES") or {}
    for attr in op.attrs:
        value = node.values.get(attr.name)
        if value is None and attr.name == "scale_value" and isinstance(node.values.get("scale"), float):
            value = node.values["scale"]
            notes.append("scale renamed to scale_value")
        if value is None and attr.name in scales and scales[attr.name] in axes:
            value = axes[scales[attr.name]] ** -0.5
        if value is None:
            continue
        if attr.type == "bool":
            value = value if isinstance(value, bool) else str(value).lower() in ("true", "1")
        own[attr.name] = value
    return own, notes


def _narrow(model: onnx.ModelProto) -> Iterator[str]:
    """64-bit constants and graph inputs that only Custom nodes read become the 32-bit ones that arrive."""
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    outputs = {value.name for value in model.graph.output}

    def alone(name: str) -> bool:
        nodes = users.get(name, [])
        wide = any(cann_ops.find(CustomNode(n, 0).type) for n in nodes)  # Scatter takes int64 positions
        return bool(nodes) and name not in outputs and not wide and all(n.op_type == OP_TYPE for n in nodes)

    for tensor in model.graph.initializer:
        if (
            tensor.data_type in SMALLER
            and alone(tensor.name)
            and tensor.data_location != TensorProto.EXTERNAL
        ):
            values = numpy_helper.to_array(tensor)
            kind = np.int32 if tensor.data_type == TensorProto.INT64 else np.float32
            if tensor.data_type == TensorProto.INT64 and not np.array_equal(values.astype(kind), values):
                continue
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), name))
            yield f"{name}: constant stored as {np.dtype(kind).name}"
    for value in model.graph.input:
        kind_now = value.type.tensor_type.elem_type
        if kind_now in SMALLER and alone(value.name):
            value.type.tensor_type.elem_type = SMALLER[kind_now]
            yield f"{value.name}: graph input declared as {TensorProto.DataType.Name(SMALLER[kind_now])}"
