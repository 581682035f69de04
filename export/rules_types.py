"""T: the places that say what a node's outputs are, which must agree: dtype, output_types, outputs_shape, value_info."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hybrid_ops import contract
from hybrid_ops.contract import Op
from hybrid_ops.export import dtypes
from hybrid_ops.export.custom_node import RUNTIME_AXES, axes_of_rank, facts
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.lite_rules import Problem, Target, rule
from hybrid_ops.export.rules_contract import bound_axes


def expected(node: CustomNode, graph: Graph, target: Target, op: Op) -> list[str]:
    """Output dtypes of the contract column that the wired inputs select.

    Where their types leave several columns, the one that output_types names, else the first.
    """
    bound = {name: graph.value(tensor).dtype for name, tensor in node.bound(target.gaps).items()}
    columns = [
        [t.dtypes[target.soc][i] for t in op.outputs]
        for i in range(op.columns(target.soc))
        if all(bound.get(t.name, "") in ("", t.dtypes[target.soc][i]) for t in op.inputs)
    ] or [[t.dtypes[target.soc][i] for t in op.outputs] for i in range(op.columns(target.soc))]
    said = [dtypes.MINDSPORE_NAMES.get(number) for number in node.values.get("output_types") or []]
    return next((types for types in columns if types == said), columns[0] if columns else [])


@rule("T1", "S", "dtype is the outputs' ONNX type number", scope="contract", since=(2, 9))
def dtype(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    wanted = expected(node, graph, target, op)
    if not wanted:
        return
    number = int(dtypes.ONNX[wanted[0]])
    got = node.values.get("dtype")
    fix = f"write INT {number} ({wanted[0]}, ONNX numbering)"
    if got is None:
        yield "dtype", "missing: the type of the first input is used instead", fix
    elif node.kinds["dtype"] != "INT":
        yield "dtype", f"is {node.kinds['dtype']}, read as type 0", fix
    elif got != number:
        hint = " (that is MindSpore numbering)" if got == dtypes.MINDSPORE[wanted[0]] else ""
        yield "dtype", f"got {got}, outputs are {wanted[0]}{hint}", fix


@rule("T2", "S", "no dtype attribute before release 2.9", scope="contract", since=(2, 7), until=(2, 9))
def no_dtype(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    if "dtype" in node.kinds:
        yield (
            "dtype",
            "becomes a type object, at which GE stops reading attributes",
            "leave it out, or export lite-2.7",
        )


@rule("T3", "S", "output_types are the outputs' MindSpore type numbers", scope="contract", since=(2, 9))
def output_types(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    wanted = expected(node, graph, target, op)
    if not wanted:
        return
    numbers = [dtypes.MINDSPORE[name] for name in wanted]
    got = node.values.get("output_types")
    fix = f"write INTS {numbers} (MindSpore numbering)"
    if got is None:
        if facts(op, "UNTYPED_OUTPUTS"):
            return
        yield "output_types", "missing: outputs are allocated with the wrong element size", fix
    elif node.kinds["output_types"] != "INTS":
        yield "output_types", f"is {node.kinds['output_types']}, must be INTS", fix
    elif list(got) != numbers:
        shown = ", ".join(f"{n} = {dtypes.MINDSPORE_NAMES.get(n, 'unknown')}" for n in got)
        yield "output_types", f"got [{shown}]; the outputs are {', '.join(wanted)}", fix


@rule("T4", "S", "the graph's types of the outputs are the operator's", scope="contract")
def value_info(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for name, wanted in zip(node.proto.output, expected(node, graph, target, op), strict=False):
        got = graph.value(name).dtype
        if name and got and got != wanted:
            yield (
                name,
                f"value_info says {got}; the operator writes {wanted}",
                "cast behind the node, not in it",
            )


@rule("T5", "W", "the graph knows the types of the outputs", scope="contract")
def typed_outputs(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for name in node.proto.output:
        if name and not graph.value(name).dtype:
            yield name, "no value_info: the exporter recorded no type", "set the type while exporting"


@rule("T8", "S", "the graph's shapes of the outputs are the operator's", scope="contract")
def output_shapes(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    axes, _ = bound_axes(node, graph, target, op)
    whole = contract.whole_attrs(op, node.values)
    axes = {name: value for name, value in whole.items() if isinstance(value, int)} | axes
    for tensor, name in zip(op.outputs, node.proto.output, strict=False):
        shape = graph.value(name).shape if name else None
        if shape is None:
            continue
        rules = axes_of_rank(tensor, len(shape))
        if rules is None:
            yield name, f"shape {_dims(shape)} in the graph; {tensor.name} is {tensor.text()}", _ORDER
            continue
        wanted = [contract.known_size(word, axes) for word in rules]
        if any(None not in (a, b) and a != b for a, b in zip(shape, wanted, strict=True)):
            problem = f"shape {_dims(shape)} in the graph; {tensor.name} is {_dims(wanted)} by the inputs"
            yield name, problem, _ORDER


_ORDER = "wire the outputs in the order of output_names"


def _dims(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def parse_shapes(text: str) -> list[list[int]]:
    """Shapes in `rank,dim,…` form; ValueError says what does not fit."""
    parts = text.split(",")
    if parts and not parts[-1].strip():
        parts.pop()
    numbers = [int(part) for part in parts]
    shapes: list[list[int]] = []
    at = 0
    while at < len(numbers):
        rank = numbers[at]
        shape = numbers[at + 1 : at + 1 + rank]
        if rank < 0 or len(shape) < rank:
            raise ValueError(f"output {len(shapes)} says rank {rank}, {len(shape)} dimensions follow")
        shapes.append(shape)
        at += 1 + rank
    return shapes


@rule("T6", "E", "outputs_shape is well formed", scope="contract", since=(2, 9))
def outputs_shape_form(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    if "outputs_shape" not in node.kinds:
        if facts(op, "UNTYPED_OUTPUTS"):
            return
        yield "outputs_shape", "missing: output shapes cannot be read", "write rank,dim,… of every output"
        return
    try:
        shapes = parse_shapes(node.text("outputs_shape"))
    except ValueError as error:
        yield (
            "outputs_shape",
            f"malformed: {error}; reading it is not guarded",
            "write rank,dim,… of every output",
        )
        return
    if len(shapes) != len(op.outputs):
        yield "outputs_shape", f"{len(shapes)} shapes for {len(op.outputs)} outputs", "write one per output"


@rule("T7", "S", "outputs_shape agrees with the contract and the inputs", scope="contract", since=(2, 9))
def outputs_shape_sizes(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    try:
        shapes = parse_shapes(node.text("outputs_shape"))
    except ValueError:
        return
    axes, _ = bound_axes(node, graph, target, op)
    for tensor, shape in zip(op.outputs, shapes, strict=False):
        rules = tensor.axes[0]
        if len(shape) != len(rules):
            yield (
                "outputs_shape",
                f"{tensor.name} has rank {len(shape)}: got {shape}",
                f"allowed {tensor.text()}",
            )
            continue
        for axis, size in zip(rules, shape, strict=True):
            wanted = axes.get(axis)
            if size == -1 and axis not in RUNTIME_AXES and wanted is not None:
                yield "outputs_shape", f"{tensor.name} axis {axis} is -1", f"write {wanted}"
            elif size != -1 and wanted is not None and size != wanted:
                yield (
                    "outputs_shape",
                    f"{tensor.name} axis {axis} is {size}; the inputs say {wanted}",
                    f"write {wanted}",
                )
