"""C: a Custom node against the operator's contract (contract.json)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hybrid_ops import contract
from hybrid_ops.contract import Op
from hybrid_ops.export.custom_node import axes_of_rank, facts
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.lite_rules import Problem, Target, rule

LITE_KINDS = {
    "float": "FLOAT",
    "int": "INT",
    "bool": "STRING",
    "string": "STRING",
    "list_float": "FLOATS",
    "list_int": "INTS",
}
GENERATORS = frozenset({"OneHot", "Range", "CumSum", "NonZero", "Tile", "Loop"})


def names_differ(attribute: str, got: list[str], wanted: list[str], op: Op) -> Iterator[Problem]:
    if not got or got == wanted:
        return
    if sorted(got) == sorted(wanted):
        at = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
        what = f"wrong order: position {at} is {got[at]!r}, must be {wanted[at]!r}"
    else:
        extra = [name for name in got if name not in wanted]
        missing = [name for name in wanted if name not in got]
        parts = [f"{', '.join(missing)} missing"] if missing else []
        parts += [f"{', '.join(extra)} unknown"] if extra else []
        what = "; ".join(parts) or f"got {got}"
    yield attribute, f"differs from {op.type}'s OpDef: {what}", f"write {', '.join(wanted)}"


@rule("C3", "E", "input_names are the OpDef's, in its order", scope="contract")
def input_names(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    yield from names_differ("input_names", node.names("input_names"), [t.name for t in op.inputs], op)


@rule("C4", "E", "output_names are the OpDef's, in its order", scope="contract")
def output_names(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    yield from names_differ("output_names", node.names("output_names"), [t.name for t in op.outputs], op)


@rule("C5", "E", "optional_input_names are the OpDef's optional inputs", scope="contract")
def optional_names(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    wanted = [t.name for t in op.inputs if not t.required]
    got = node.names("optional_input_names")
    if set(got) != set(wanted):
        yield "optional_input_names", f"got {got}; the OpDef's optional inputs are {wanted}", "write those"


@rule("C6", "E", "required inputs are wired", scope="contract")
def required(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    if [t.name for t in op.inputs] != node.names("input_names"):
        return
    bound = node.bound(target.gaps)
    for tensor in op.inputs:
        if tensor.required and tensor.name not in bound:
            yield tensor.name, "required input is not wired", "wire it, and say so in input_index"


@rule("C7", "S", "each input has a dtype that its slot takes", scope="contract")
def input_dtypes(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    known = {t.name: t for t in op.inputs}
    for name, tensor in node.bound(target.gaps).items():
        dtype = graph.value(tensor).dtype
        allowed = known[name].dtypes.get(target.soc, ()) if name in known else ()
        if dtype and allowed and dtype not in allowed:
            yield (
                name,
                f"bound to {dtype} tensor {tensor!r}, takes {' or '.join(dict.fromkeys(allowed))} on {target.soc}",
                f"check input_index (got {node.values.get('input_index')}) and the casts in front",
            )


def bound_axes(
    node: CustomNode, graph: Graph, target: Target, op: Op
) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
    """Axis sizes that the bound tensors' static shapes give, and the disagreements between them."""
    axes: dict[str, int] = {}
    origin: dict[str, str] = {}
    faults: list[tuple[str, str, str]] = []
    known = {t.name: t for t in op.inputs}
    for name, tensor in node.bound(target.gaps).items():
        shape = graph.value(tensor).shape
        if shape is None or name not in known:
            continue
        rules = axes_of_rank(known[name], len(shape))
        if rules is None:
            faults.append((name, f"rank {len(shape)} (shape {list(shape)})", f"allowed {known[name].text()}"))
            continue
        for word, size in zip(rules, shape, strict=True):
            axis, solved = contract.axis_from(word, size) if size is not None else (None, None)
            if axis is None or solved is None:
                continue
            if axes.setdefault(axis, solved) != solved:
                faults.append(
                    (
                        name,
                        f"axis {axis} is {solved}, {origin[axis]} says {axes[axis]}",
                        f"allowed {known[name].text()}",
                    )
                )
            origin.setdefault(axis, name)
    return axes, faults


@rule("C8", "E", "shapes of the inputs agree with the contract's axes", scope="contract")
def input_shapes(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    if [t.name for t in op.inputs] == node.names("input_names"):
        yield from bound_axes(node, graph, target, op)[1]


@rule("C9", "E", "sizes are inside the operator's limits", scope="contract")
def limits(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    axes, _ = bound_axes(node, graph, target, op)
    for limit in op.limits:
        letters = contract.names_in(limit.rule)
        if all(letter in axes for letter in letters) and not contract.evaluate(limit.rule, axes):
            got = ", ".join(f"{letter}={axes[letter]}" for letter in letters)
            yield "inputs", f"{limit.text or limit.rule}: got {got}", f"allowed {limit.rule}"


@rule("C10", "S", "attributes have the OpDef's type", scope="contract")
def attribute_kinds(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for attr in op.attrs:
        kind, wanted = node.kinds.get(attr.name), LITE_KINDS[attr.type]
        if kind is not None and kind != wanted:
            note = ' "true" or "false"' if attr.type == "bool" else ""
            yield attr.name, f"is {kind}; a {attr.type} travels as {wanted}{note}", "write it so"
        elif kind is not None and attr.type == "bool" and node.values[attr.name] not in ("true", "false"):
            yield (
                attr.name,
                f"got {node.values[attr.name]!r}; a bool is the STRING true or false",
                "write it so",
            )


@rule("C11", "E", "required attributes are present", scope="contract")
def required_attributes(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for attr in op.attrs:
        if attr.required and attr.name not in node.kinds:
            yield attr.name, "required attribute is missing", "write it"


@rule("C12", "S", "the scale is there and belongs to this head size", scope="contract")
def scale(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for attr in op.attrs:
        axis = facts(op, "SCALES").get(attr.name, "")
        size = bound_axes(node, graph, target, op)[0].get(axis)
        if size is None:
            continue
        wanted, got = size**-0.5, node.values.get(attr.name)
        fix = f"write {wanted:.8g} ({axis}={size})"
        if got is None:
            effect = (
                f"outputs become {1 / wanted:.1f} times too large" if attr.default == 1.0 else "wrong scale"
            )
            yield attr.name, f"missing: the default {attr.default} is used and {effect}", fix
        elif isinstance(got, float) and not math.isclose(got, wanted, rel_tol=1e-4):
            other = round(got**-2) if got > 0 else 0
            belongs = f", which belongs to {axis}={other}" if other > 1 else ""
            yield attr.name, f"got {got:.8g}{belongs}; {axis} is {size}", fix


@rule("C13", "S", "slot tables are constant zeros", scope="contract")
def slot_tables(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for name, tensor in node.bound(target.gaps).items():
        if name not in facts(op, "SLOT_TABLES") or tensor in graph.inputs:
            continue
        value = graph.constant(tensor)
        if value is None:
            ops = [n.op_type for n in graph.ancestors(tensor) if n.op_type in GENERATORS]
            how = f"computed by {', '.join(dict.fromkeys(ops))}" if ops else "computed in the graph"
            yield name, f"{how}, which cannot be mapped for Ascend", "use a constant int32 zero vector"
        elif np.any(value):
            yield (
                name,
                f"constant {value.ravel()[:8].tolist()} addresses slots a batch-1 pool lacks",
                "use zeros",
            )


@rule("C14", "S", "constants that count tokens agree with the tokens there are", scope="contract")
def counts(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    judge = facts(op, "constant_faults")
    if not judge:
        return
    axes, _ = bound_axes(node, graph, target, op)
    bound = {name: graph.constant(tensor) for name, tensor in node.bound(target.gaps).items()}
    yield from judge({name: value for name, value in bound.items() if value is not None}, axes)


@rule("C15", "W", "an updated input is used", scope="contract")
def unused_update(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for tensor, name in zip(op.outputs, node.proto.output, strict=False):
        if tensor.inplace and name and name not in graph.used:
            yield tensor.name, f"the update {name!r} is no graph output and no node reads it", "wire it on"
