"""Cuts a graph at its Custom nodes, so that tools without a parser for them can read the rest.

`cut` gives one model without Custom nodes: what they wrote becomes an input, what they read an output (unless it follows
from weights alone). `split` gives the same nodes as a chain of models, one per depth of Custom nodes, to be run in turn
with the operators in between.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from hybrid_ops import check
from hybrid_ops.export.custom_node import OP_TYPE, PRIVATE_DOMAIN


def cut(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` without its Custom nodes; the original is not changed, weights are copied.

    Errors: HybridOpsError when nothing but Custom nodes is there, or the graph does not say the type of a tensor that
    crosses the cut.
    """
    return _part(model, [node for node in model.graph.node if node.op_type != OP_TYPE], "cut")


def split(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """Models between the Custom nodes, in the order they run; a depth without other nodes is left out. Errors: see `cut`.

    Nodes computed from weights alone are copied into every model that reads them.
    """
    fixed = constants(model)
    depth: dict[str, int] = {}
    plain: list[tuple[int, onnx.NodeProto]] = []
    for node in model.graph.node:  # ONNX graphs are sorted
        level = max((depth.get(name, 0) for name in reads(node)), default=0)
        depth.update({name: level + (node.op_type == OP_TYPE) for name in node.output})
        if node.op_type != OP_TYPE:
            plain.append((level, node))
    parts = []
    for wanted in sorted({level for level, _ in plain}):
        chosen: list[onnx.NodeProto] = []
        needed: set[str] = set()
        for level, node in reversed(plain):
            follows = fixed.issuperset(node.output)
            if needed.intersection(node.output) if follows else level == wanted:
                chosen.insert(0, node)
                needed |= reads(node)
        if chosen:
            parts.append(_part(model, chosen, f"stage{wanted}"))
    return parts


def constants(model: onnx.ModelProto) -> set[str]:
    """Tensors that follow from weights alone, weights included."""
    inputs = {value.name for value in model.graph.input}
    known = {tensor.name for tensor in model.graph.initializer} - inputs
    for node in model.graph.node:
        if node.op_type != OP_TYPE and reads(node) <= known:
            known.update(name for name in node.output if name)
    return known


def reads(node: onnx.NodeProto) -> set[str]:
    """Tensors that a node reads, those its subgraphs take from outside included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            inner = {name for child in graph.node for name in child.output}
            inner |= {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            names |= {name for child in graph.node for name in reads(child)} - inner
    return names


def _part(model: onnx.ModelProto, nodes: list[onnx.NodeProto], name: str) -> onnx.ModelProto:
    """The given nodes as a model: inputs are what they lack, outputs what others or the graph's outputs read."""
    graph = model.graph
    made = {output: None for node in nodes for output in node.output if output}
    wanted = {value.name for value in graph.output}
    # The converter cannot store an output that it folds to a constant.
    crossing = {name for node in graph.node if made.keys().isdisjoint(node.output) for name in reads(node)}
    wanted |= crossing - constants(model)
    weights = {tensor.name for tensor in graph.initializer}
    read = dict.fromkeys(name for node in nodes for name in sorted(reads(node)))
    types = {
        v.name: v for v in [*graph.value_info, *graph.input, *graph.output] if v.type.tensor_type.elem_type
    }
    outputs = [n for n in made if n in wanted]
    if not outputs:
        raise _refuse("nodes", "nothing is left beside Custom nodes", len(nodes), "a graph with other nodes")
    lacking = [n for n in read if n not in made and n not in weights]
    part = onnx.helper.make_graph(
        nodes,
        f"{graph.name}_{name}",
        _values(_in_order(lacking, graph.input), types),
        _values(_in_order(outputs, graph.output), types),
        [tensor for tensor in graph.initializer if tensor.name in read],
        value_info=[v for v in graph.value_info if v.name in made and v.name not in outputs],
    )
    imports = [entry for entry in model.opset_import if entry.domain != PRIVATE_DOMAIN]
    return onnx.helper.make_model(part, opset_imports=imports, ir_version=model.ir_version)


def _in_order(names: Iterable[str], first: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """`names`, those of the original border first and in its order."""
    names = dict.fromkeys(names)
    known = [value.name for value in first if value.name in names]
    return [*known, *(name for name in names if name not in known)]


def _values(names: Iterable[str], types: dict[str, onnx.ValueInfoProto]) -> list[onnx.ValueInfoProto]:
    values = []
    for name in names:
        if name not in types:
            raise _refuse(name, "type unknown where the graph is cut", "no value_info", "a graph with types")
        values.append(types[name])
    return values


def _refuse(argument: str, wrong: str, got: object, allowed: str) -> check.HybridOpsError:
    return check.refuse("cut_graph", argument, wrong, got=got, allowed=allowed, soc="any SoC")
