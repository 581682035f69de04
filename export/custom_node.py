"""Attributes of a `Custom` node, generated from the contract.

A node lists every input of the OpDef in `input_names`, wires only those that are present, and says in `input_index`
which names those are. Nothing here is written per operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_ops import case, check, contract
from hybrid_ops.contract import Op, Tensor
from hybrid_ops.export import cann_ops, dtypes
from hybrid_ops.export.profiles import Profile, profile

PRIVATE_DOMAIN = "ai.hybrid_ops"
PRIVATE_VERSION = 1
OP_TYPE = "Custom"

# Axes that a run decides (rows, slots, sequences, pages): -1 in outputs_shape. All other axes belong to the model.
RUNTIME_AXES = frozenset({"T", "S", "B", "L", "N"})

# Attribute names that the exporter itself writes; every other attribute of a node belongs to the operator.
STRUCTURE = (
    "type",
    "input_names",
    "optional_input_names",
    "output_names",
    "output_num",
    "input_index",
    "dtype",
    "output_types",
    "outputs_shape",
)


def find_op(type_name: str) -> Op | None:
    """The declaration behind a Custom node's `type`: of this package, or one of CANN's own operators."""
    return contract.by_type(type_name) or cann_ops.find(type_name)


def facts(op: Op, name: str) -> Any:
    """What the operator's own module says about exported graphs; empty for operators of CANN."""
    return getattr(case.module(op.name), name, {}) if op.name in contract.load() else {}


def _refuse(op: Op, argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
    return check.refuse(op.name, argument, wrong, got=got, allowed=allowed, soc="every SoC")


def input_index(op: Op, present: Sequence[str]) -> list[int]:
    """Slots of the OpDef's inputs that the node's inputs feed, in order.

    Errors: HybridOpsError when `present` leaves out a required input, names an unknown one or is out of order.
    """
    names = [t.name for t in op.inputs]
    for name in present:
        if name not in names:
            raise _refuse(op, name, "no such input", check.words(present), check.words(names))
    for tensor in op.inputs:
        if tensor.required and tensor.name not in present:
            raise _refuse(
                op, tensor.name, "required input is absent", check.words(present), check.words(names)
            )
    slots = [names.index(name) for name in present]
    if slots != sorted(set(slots)):
        raise _refuse(op, "inputs", "not in OpDef order", check.words(present), check.words(names))
    return slots


def has_gap(slots: Sequence[int]) -> bool:
    """Whether an input before the last one is left out (only input_index can say so)."""
    return list(slots) != list(range(len(slots)))


def outputs_shape(op: Op, shapes: Sequence[Sequence[Any]]) -> str:
    """`rank,dim,…,` of all outputs one after the other, the trailing comma included.

    A dimension is -1 when its axis is a run-time axis of the contract or its size is not a number.
    """
    parts: list[str] = []
    for tensor, shape in zip(op.outputs, shapes, strict=True):
        axes = axes_of_rank(tensor, len(shape))
        if axes is None:
            raise _refuse(op, tensor.name, "wrong rank", list(shape), tensor.text())
        parts.append(str(len(shape)))
        for word, size in zip(axes, shape, strict=True):
            decided = RUNTIME_AXES.isdisjoint(contract.axes_in(word)) and isinstance(size, int)
            parts.append(str(size) if decided else "-1")
    return ",".join(parts) + ","


def axes_of_rank(tensor: Tensor, rank: int) -> tuple[str, ...] | None:
    """The axis rule of `tensor` that has `rank` axes (alternatives are told apart by rank)."""
    return next((axes for axes in tensor.axes if len(axes) == rank), None)


def typed_value(op: Op, name: str, value: Any) -> Any:
    """An attribute's value as Lite restores it: a bool travels as the STRING "true" or "false".

    Errors: HybridOpsError for a name the OpDef lacks and for an empty list (Lite turns it into a list of ints).
    """
    attr = next((a for a in op.attrs if a.name == name), None)
    if attr is None:
        raise _refuse(op, name, "no such attribute", name, check.words(a.name for a in op.attrs))
    match attr.type:
        case "float":
            return float(value)
        case "int":
            return int(value)
        case "bool":
            return "true" if value and value != "false" else "false"  # the tracing exporter gives the text
        case "string":
            return str(value)
    if not len(value):
        raise _refuse(op, name, "an empty list cannot be exported", value, "one or more numbers")
    return [float(v) if attr.type == "list_float" else int(v) for v in value]


def custom_attributes(
    op: Op,
    present: Sequence[str],
    attrs: Mapping[str, Any],
    output_shapes: Sequence[Sequence[Any]],
    output_dtypes: Sequence[str],
    target: Profile | str = "lite-2.9",
) -> dict[str, Any]:
    """Every attribute of one node.

    `present`: names of the wired inputs, in OpDef order; `attrs`: the operator's own attributes (left-out ones take the
    OpDef's default and are written too, so that no reader has to know it); `output_shapes`: one per output, a
    non-integer for a dynamic dimension; `output_dtypes`: contract names.
    Errors: HybridOpsError for a gap in the inputs when the target's converter cannot express one.
    """
    target = profile(target)
    own = op.type not in cann_ops.OPS  # CANN's operators infer their outputs themselves
    slots = input_index(op, present)
    optional = [t.name for t in op.inputs if not t.required]
    written: dict[str, Any] = {"type": op.type, "input_names": [t.name for t in op.inputs]}
    if optional:
        written["optional_input_names"] = optional
    written["output_names"] = [t.name for t in op.outputs]
    if own or len(op.outputs) > 1:
        written["output_num"] = len(op.outputs)
    if target.gaps:
        written["input_index"] = slots
    elif has_gap(slots):
        missing = [t.name for i, t in enumerate(op.inputs) if i not in slots and i < slots[-1]]
        raise check.refuse(
            op.name,
            check.words(missing),
            "absent before a present input",
            got=check.words(present),
            allowed=f"absent inputs at the end only for {target.name}",
            soc="every SoC",
            hint="pass it, leave out what follows, or export for lite-2.7",
        )
    if target.typed and own:
        written["dtype"] = int(dtypes.ONNX[output_dtypes[0]])
        if not facts(op, "UNTYPED_OUTPUTS"):
            written["output_types"] = [dtypes.MINDSPORE[name] for name in output_dtypes]
            written["outputs_shape"] = outputs_shape(op, output_shapes)
    for attr in op.attrs:
        value = attrs.get(attr.name, attr.default)
        if value is not None:
            written[attr.name] = typed_value(op, attr.name, value)
    unknown = set(attrs) - {a.name for a in op.attrs}
    if unknown:
        typed_value(op, min(unknown), None)
    return written
