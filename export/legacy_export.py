"""The TorchScript exporter with the same Custom nodes, for opsets below 18 and for as long as torch ships it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir
import onnx_ir.passes.common as common_passes
import onnxscript
import torch

from hybrid_ops import contract, runtime
from hybrid_ops.contract import Op
from hybrid_ops.export import cann_ops, cann_torch, chunk_graph
from hybrid_ops.export.custom_node import (
    OP_TYPE,
    PRIVATE_DOMAIN,
    PRIVATE_VERSION,
    axes_of_rank,
    find_op,
)
from hybrid_ops.export.onnx_export import NAMESPACE, PRESENT, finish
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile

OPSET = 17


def export_module_legacy(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    *,
    output_names: Sequence[str],
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    target: Profile | str = DEFAULT_PROFILE,
    opset: int = OPSET,
) -> onnx_ir.Model:
    """As `onnx_export.export_module`, by tracing; `dynamic_axes` as torch.onnx.export takes them."""
    with (
        _symbolics(opset),
        runtime.using(backend="reference"),  # tracing runs the operators; only the trace is kept
        warnings.catch_warnings(),
        torch.no_grad(),
        tempfile.TemporaryDirectory() as folder,
    ):
        warnings.simplefilter("ignore")
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            str(file),
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(output_names),
            dynamic_axes=dynamic_axes,
            custom_opsets={PRIVATE_DOMAIN: PRIVATE_VERSION},
        )
        model = onnx_ir.load(file)
        for value in model.graph.initializers.values():  # out of the folder before it goes
            if isinstance(value.const_value, onnx_ir.ExternalTensor):
                value.const_value = onnx_ir.tensor(value.const_value.numpy().copy(), name=value.name)
        outputs = module(*inputs.values())
    for name, value, tensor in zip(output_names, model.graph.outputs, outputs, strict=True):
        free = (dynamic_axes or {}).get(name, {})  # the tracer loses sizes, and makes up names for them
        value.shape = onnx_ir.Shape([free.get(axis, size) for axis, size in enumerate(tensor.shape)])
    common_passes.ShapeInferencePass()(model)
    while complete_sizes(model):  # what one node's outputs tell, the operators behind it pass on to the next
        common_passes.ShapeInferencePass()(model)
    onnxscript.optimizer.optimize_ir(model)
    return finish(model, target)


def complete_sizes(model: onnx_ir.Model) -> int:
    """Give outputs of Custom nodes the sizes that the contract derives from their inputs (in place); how many were new.

    While tracing, a size behind a reshape of a dynamic input is unknown; shape inference finds it later.
    """
    new = 0
    for node in model.graph.all_nodes():
        op = find_op(node.attributes["type"].as_string()) if node.op_type == OP_TYPE else None
        if op is None:
            continue
        axes = {name: size for name, size in whole_attributes(node, op).items() if isinstance(size, int)}
        for name, value in zip(node.attributes[PRESENT].as_strings(), node.inputs, strict=True):
            sizes = [] if value is None or value.shape is None else list(value.shape)
            for word, size in zip(axes_of_rank(op.input(name), len(sizes)) or (), sizes, strict=False):
                axis, solved = contract.axis_from(word, size) if isinstance(size, int) else (None, None)
                if axis is not None and solved is not None:
                    axes[axis] = solved
        for tensor, output in zip(op.outputs, node.outputs, strict=True):
            words = tensor.axes[0] if output.shape is None else axes_of_rank(tensor, len(output.shape))
            if words is None:
                continue
            old = list(output.shape or [None] * len(words))
            sizes = [
                size if isinstance(size, int) else contract.known_size(word, axes)
                for word, size in zip(words, old, strict=True)
            ]
            found = sum(
                isinstance(a, int) and not isinstance(b, int) for a, b in zip(sizes, old, strict=True)
            )
            if found:
                output.shape = onnx_ir.Shape([b if a is None else a for a, b in zip(sizes, old, strict=True)])
                new += found
    return new


def whole_attributes(node: onnx_ir.Node, op: Op) -> dict[str, Any]:
    """The node's whole-number attributes, defaults where it has none."""
    return contract.whole_attrs(
        op, {a.name: node.attributes[a.name].value for a in op.attrs if a.name in node.attributes}
    )


@contextmanager
def _symbolics(opset: int) -> Iterator[None]:
    """Registers a symbolic function per operator and removes it again: the registry belongs to the process."""
    ops = contract.load().values()
    own = {f"{NAMESPACE}::{op.name}_functional": op for op in ops}
    own |= {f"{NAMESPACE}::{op.name}": op for op in ops if not op.mutated}
    own |= {f"{cann_torch.NAMESPACE}::{op.name}": op for op in cann_ops.OPS.values()}
    names = {name: _symbolic(op) for name, op in own.items()}
    names[f"{chunk_graph.NAMESPACE}::chunk_rule"] = chunk_graph.symbolic
    for name, function in names.items():
        torch.onnx.register_custom_op_symbolic(name, function, opset)
    try:
        yield
    finally:
        for name in names:
            torch.onnx.unregister_custom_op_symbolic(name, opset)


def _symbolic(op: Op) -> Callable[..., Any]:
    from torch.onnx import symbolic_helper

    kinds: dict[str, Any] = {
        "float": "f",
        "int": "i",
        "bool": "b",
        "string": "s",
        "list_float": "fs",
        "list_int": "is",
    }
    suffixes = {"float": "f", "int": "i", "bool": "s", "string": "s", "list_float": "f", "list_int": "i"}

    def emit(graph: Any, *arguments: Any) -> Any:
        tensors = dict(zip((t.name for t in op.inputs), arguments, strict=False))
        present = [name for name, value in tensors.items() if not symbolic_helper._is_none(value)]
        attributes: dict[str, Any] = {"type_s": op.type, f"{PRESENT}_s": present}
        values: dict[str, Any] = {}
        for attr, value in zip(op.attrs, arguments[len(op.inputs) :], strict=False):
            plain = values[attr.name] = symbolic_helper._maybe_get_const(value, kinds[attr.type])
            if attr.type == "bool":
                plain = "true" if plain else "false"
            attributes[f"{attr.name}_{suffixes[attr.type]}"] = plain
        made = graph.op(
            f"{PRIVATE_DOMAIN}::{OP_TYPE}",
            *[tensors[name] for name in present],
            outputs=len(op.outputs),
            **attributes,
        )
        outputs = made if isinstance(made, (tuple, list)) else [made]
        axes = contract.whole_attrs(op, values) | _axes(op, {name: tensors[name] for name in present})
        for tensor, value in zip(op.outputs, outputs, strict=True):
            same = (t.name for t in op.inputs if t.name in present and t.dtypes == tensor.dtypes)
            source = tensor.inplace or next(same, None)
            like = tensors[source or op.inputs[0].name].type()
            only = {kind for column in tensor.dtypes.values() for kind in column}
            if source is None and len(only) == 1:
                like = like.with_dtype(getattr(torch, only.pop()))
            sizes = [contract.known_size(word, axes) for word in tensor.axes[0]]
            value.setType(like.with_sizes(sizes))
        return made

    return emit


def _axes(op: Op, tensors: Mapping[str, Any]) -> dict[str, int]:
    """Axis sizes that the traced inputs know."""
    axes: dict[str, int] = {}
    for name, value in tensors.items():
        sizes = value.type().varyingSizes() if value.type().kind() == "TensorType" else None
        rules = next((r for r in op.input(name).axes if sizes and len(r) == len(sizes)), ())
        axes |= {axis: size for axis, size in zip(rules, sizes or (), strict=False) if size is not None}
    return axes
