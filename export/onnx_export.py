"""torch module -> ONNX model whose operator calls are `Custom` nodes, through torch's dynamo exporter.

Nodes are emitted in a private domain: exporter passes and onnx.checker accept it and shapes survive. `save` moves them
to the default domain, which is where the converter's documentation puts them.
"""

from __future__ import annotations

import collections
import functools
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxscript
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hybrid_ops import contract, torch_ops  # noqa: F401  (torch_ops registers torch.ops.hybrid_ops)
from hybrid_ops.contract import Op
from hybrid_ops.export import cann_ops, cann_torch, chunk_graph, dtypes
from hybrid_ops.export.custom_node import (
    OP_TYPE,
    PRIVATE_DOMAIN,
    PRIVATE_VERSION,
    axes_of_rank,
    custom_attributes,
    facts,
    find_op,
    input_index,
)
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile, profile
from hybrid_ops.export.simplify import simplify

# 18 is the newest opset whose every operator has a parser in the open converter; from 23 on torch writes Attention
# and RMSNormalization, which have none.
OPSET = 18
NAMESPACE = "hybrid_ops"
PRESENT = "input_names"  # while exporting: names of the wired inputs only; finish() writes the full list


def export_module(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    *,
    output_names: Sequence[str],
    dynamic_shapes: Mapping[str, Any] | None = None,
    target: Profile | str = DEFAULT_PROFILE,
    mode: FakeTensorMode | None = None,
    attach: Callable[[onnx_ir.Model], Any] | None = None,
) -> onnx_ir.Model:
    """Export `module(**inputs)`; returns the model in memory, Custom nodes complete and in the private domain.

    `dynamic_shapes` as for torch.export (input name -> {axis: Dim}). A module whose weights have no data is traced in
    their `mode`; `attach` then gives the initializers theirs, before the graph is simplified. Errors: the exporter's
    own; HybridOpsError when the target cannot express a node.
    """
    target = profile(target)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    options: dict[str, Any] = {
        "dynamo": True,
        "opset_version": OPSET,
        "output_names": list(output_names),
        "custom_translation_table": translation_table(),
        "verbose": False,
    }
    shapes = dict(dynamic_shapes) if dynamic_shapes else None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if mode is None:
            program = torch.onnx.export(module.eval(), kwargs=dict(inputs), dynamic_shapes=shapes, **options)
        else:
            with mode:
                traced = torch.export.export(module, (), dict(inputs), dynamic_shapes=shapes, strict=False)
                program = torch.onnx.export(traced, (), kwargs=dict(inputs), optimize=False, **options)
    assert program is not None
    model = program.model
    if attach is not None:
        attach(model)
        simplify(model)
    return finish(model, target)


def name_dimensions(model: onnx_ir.Model, names: Mapping[str, Mapping[int, str]]) -> onnx_ir.Model:
    """Give dynamic dimensions the names of `names` (graph input -> {axis: name}) wherever they occur (in place)."""
    symbols: dict[str, str] = {}
    for value in model.graph.inputs:
        for axis, name in names.get(value.name or "", {}).items():
            assert value.shape is not None
            size = value.shape[axis]
            assert isinstance(size, onnx_ir.SymbolicDim), f"{value.name} axis {axis} is fixed to {size}"
            symbols[str(size.value)] = name
    word = re.compile("|".join(rf"\b{re.escape(symbol)}\b" for symbol in symbols) or "$^")
    produced = [value for node in model.graph.all_nodes() for value in node.outputs]
    for value in [*model.graph.inputs, *produced]:
        if value.shape is not None:
            value.shape = onnx_ir.Shape(
                [
                    onnx_ir.SymbolicDim(word.sub(lambda m: symbols[m[0]], str(size.value)))
                    if isinstance(size, onnx_ir.SymbolicDim) and size.value is not None
                    else size
                    for size in value.shape
                ]
            )
    return model


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch overload -> function emitting the Custom node, for every operator of the contract."""
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for op in contract.load().values():
        for name in (f"{op.name}_functional", op.name):
            packet = getattr(getattr(torch.ops, NAMESPACE), name, None)
            if packet is not None and len(packet.default._schema.returns) == len(op.outputs):
                table[packet.default] = translation(op, packet.default)
    for op in cann_ops.OPS.values():
        overload = getattr(getattr(torch.ops, cann_torch.NAMESPACE), op.name).default
        table[overload] = translation(op, overload)
    overload, emit = chunk_graph.translation()
    return table | {overload: emit}


def translation(op: Op, overload: Any) -> Callable[..., Any]:
    """A translation function with the parameters of the torch overload."""
    parameters = [argument.name for argument in overload._schema.arguments]
    defaults = {a.name: a.default_value for a in overload._schema.arguments if a.has_default_value()}
    names = {t.name for t in op.inputs}
    attributes = {a.name for a in op.attrs}

    def emit(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(parameters, args, strict=False)), **kwargs}
        present = [t.name for t in op.inputs if given.get(t.name) is not None]
        attrs = {name: given[name] for name in attributes if given.get(name) is not None}
        node = _custom(op.type, len(present))
        return node(*[given[name] for name in present], type=op.type, **{PRESENT: present}, **attrs)

    emit.__name__ = op.name
    emit.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=defaults.get(
                    name, None if name not in names or not op.input(name).required else _EMPTY
                ),
            )
            for name in parameters
        ]
    )
    kinds = {"float": float, "int": int, "string": str}
    emit.__annotations__ = {a.name: kinds[a.type] for a in op.attrs if a.type in kinds}
    return emit


_EMPTY = inspect.Parameter.empty


@functools.cache
def _custom(type_name: str, inputs: int) -> onnxscript.values.Op:
    """The onnxscript operator `Custom` with `inputs` inputs and the operator's attributes (an unregistered schema)."""
    op = find_op(type_name)
    assert op is not None
    schema = onnx.defs.OpSchema
    kinds = {"float": "FLOAT", "int": "INT", "bool": "STRING", "string": "STRING"}
    lists = {"list_float": "FLOATS", "list_int": "INTS"}
    attributes = {a.name: {**kinds, **lists}[a.type] for a in op.attrs}
    attributes |= {"type": "STRING", PRESENT: "STRINGS"}
    any_type = list(dtypes.TENSOR_TYPES)
    description = schema(
        OP_TYPE,
        PRIVATE_DOMAIN,
        PRIVATE_VERSION,
        inputs=[schema.FormalParameter(f"input{i}", f"TI{i}") for i in range(inputs)],
        outputs=[schema.FormalParameter(f"output{i}", f"TO{i}") for i in range(len(op.outputs))],
        type_constraints=[(f"TI{i}", any_type, "") for i in range(inputs)]
        + [(f"TO{i}", any_type, "") for i in range(len(op.outputs))],
        attributes=[
            schema.Attribute(name, getattr(schema.AttrType, kind), required=False)
            for name, kind in attributes.items()
        ],
    )
    return onnxscript.values.Op(
        onnxscript.values.Opset(PRIVATE_DOMAIN, PRIVATE_VERSION), OP_TYPE, description
    )


def finish(model: onnx_ir.Model, target: Profile | str) -> onnx_ir.Model:
    """Write the complete attributes of every Custom node and put the default domain first in opset_import."""
    target = profile(target)
    chunk_graph.inline(model)
    count: collections.Counter[str] = collections.Counter()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces and file names of the exporting machine
        if node.op_type == OP_TYPE and node.domain == PRIVATE_DOMAIN:
            finish_node(node, target)
            kind = node.attributes["type"].as_string()
            node.name = f"{kind}_{count[kind]}"
            count[kind] += 1
    for value in [*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()]:
        value.metadata_props.clear()
    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
    versions = dict(model.opset_imports)
    model.opset_imports.clear()
    for domain in sorted(versions):  # "" sorts first; Lite takes the first entry as the opset of every node
        model.opset_imports[domain] = versions[domain]
    return model


def finish_node(node: onnx_ir.Node, target: Profile) -> None:
    """Complete one node from the contract, its emitted attributes and its outputs' types."""
    op = find_op(node.attributes["type"].as_string())
    assert op is not None
    present = list(node.attributes[PRESENT].as_strings())
    if not target.gaps:
        present = fill_gap(node, op, present)
    emitted = {a.name: node.attributes[a.name].value for a in op.attrs if a.name in node.attributes}
    shapes, types = [], []
    for output in node.outputs:
        assert output.shape is not None and output.dtype is not None, f"{node.name}: output type lost"
        shapes.append([size if isinstance(size, int) else None for size in output.shape.dims])
        types.append(dtypes.onnx_name(output.dtype.value))
    written = custom_attributes(op, present, emitted, shapes, types, target)
    node.attributes.clear()
    for attribute in onnx_ir.convenience.convert_attributes(written):
        node.attributes.add(attribute)


def fill_gap(node: onnx_ir.Node, op: Op, present: list[str]) -> list[str]:
    """Wire a neutral constant to every absent input before a present one, for releases that cannot leave it out.

    Returns the names now present: unchanged where there is no gap, or where an input has no neutral value or no size
    that is known while exporting (the writer of the attributes then refuses the node, naming the input).
    """
    slots, names = input_index(op, present), [t.name for t in op.inputs]
    missing = [op.inputs[i] for i in range(slots[-1]) if i not in slots]
    neutral = facts(op, "NEUTRAL")
    axes: dict[str, int] = {}
    for name, value in zip(present, node.inputs, strict=True):
        sizes = [] if value is None or value.shape is None else list(value.shape)
        for word, size in zip(axes_of_rank(op.input(name), len(sizes)) or (), sizes, strict=False):
            if isinstance(size, int):
                axes.setdefault(*contract.axis_from(word, size))
    made: dict[str, onnx_ir.Value] = {}
    for tensor in missing:
        words = min(tensor.axes, key=len)
        if tensor.name not in neutral or not all(word in axes for word in words):
            return present
        kind = dtypes.ONNX[next(iter(tensor.dtypes.values()))[0]]
        array = np.full([axes[word] for word in words], neutral[tensor.name])
        held = onnx_ir.Tensor(array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind)))
        constant = onnx_ir.node("Constant", [], {"value": held}, name=f"{node.name}_{tensor.name}")
        constant.outputs[0].name = f"{node.name}_{tensor.name}"
        constant.outputs[0].shape, constant.outputs[0].dtype = held.shape, held.dtype
        assert node.graph is not None
        node.graph.insert_before(node, constant)
        made[tensor.name] = constant.outputs[0]
    wired = {**dict(zip(present, node.inputs, strict=True)), **made}
    filled = [name for name in names if name in wired]
    node.resize_inputs(len(filled))
    for position, name in enumerate(filled):
        node.replace_input_with(position, wired[name])
    return filled
