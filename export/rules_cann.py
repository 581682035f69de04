"""B: Custom nodes that address an operator of CANN itself (`cann_ops`), and rules on outputs before release 2.9."""

from __future__ import annotations

from collections.abc import Iterator

from hybrid_ops import contract
from hybrid_ops.contract import Op
from hybrid_ops.export import cann_ops
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.lite_rules import Problem, Target, rule
from hybrid_ops.export.rules_contract import LITE_KINDS, names_differ

# Types whose attributes a pass of Lite turns into inputs (attr_to_args_pass.cc); those with a GE adapter are N1.
MOVED = frozenset("FusedInferAttentionScore GroupedMatmul WeightQuantBatchMatmul QuantBatchMatmulV2".split())


@rule("B1", "E", "names of a CANN operator are those of its prototype", scope="node")
def cann_names(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    op = cann_ops.find(node.type)
    if op is not None:
        yield from names_differ("input_names", node.names("input_names"), [t.name for t in op.inputs], op)
        yield from names_differ("output_names", node.names("output_names"), [t.name for t in op.outputs], op)


@rule("B2", "E", "attributes of a CANN operator are there, with their kinds", scope="node")
def cann_attributes(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    op = cann_ops.find(node.type)
    for attr in op.attrs if op is not None else ():
        kind = node.kinds.get(attr.name)
        if kind is None and attr.required:
            yield attr.name, "required attribute is missing", "write it"
        elif kind is not None and kind != LITE_KINDS[attr.type]:
            yield attr.name, f"is {kind}; a {attr.type} travels as {LITE_KINDS[attr.type]}", "write it so"


@rule("B3", "S", "positions and updates of Scatter fit what they are written into", scope="node")
def scatter_sizes(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if node.type != "Scatter":
        return
    bound = {name: graph.value(tensor) for name, tensor in node.bound(target.gaps).items()}
    var, updates, axis = bound.get("var"), bound.get("updates"), node.values.get("axis")
    if var is None or updates is None or var.shape is None or updates.shape is None:
        return
    if not isinstance(axis, int) or not -len(var.shape) <= axis < len(var.shape):
        yield "axis", f"got {axis} for rank {len(var.shape)}", "2 for a cache [B, N, L, D]"
        return
    for at, (have, new) in enumerate(zip(var.shape, updates.shape, strict=False)):
        wrong = (
            have is not None
            and new is not None
            and (new > have if at == axis % len(var.shape) else new != have)
        )
        if wrong or len(var.shape) != len(updates.shape):
            yield "updates", f"shape {list(updates.shape)} does not go into {list(var.shape)}", "reshape it"
            return
    if var.dtype and updates.dtype and var.dtype != updates.dtype:
        yield "updates", f"is {updates.dtype}, var is {var.dtype}", "cast the updates"


@rule("N2", "S", "no pass of Lite moves the type's attributes", scope="node", since=(2, 4))
def moved(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if node.type in MOVED:
        yield "type", f"attributes of {node.type} are turned into inputs", "use another type name"


@rule("P11", "S", "no text attribute says true or false", scope="contract")
def text_or_bool(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    for attr in op.attrs:
        value = node.values.get(attr.name)
        if attr.type == "string" and value in ("true", "True", "false", "False"):
            yield attr.name, f"{value!r} arrives as a bool", "use another word"


@rule(
    "A11b",
    "S",
    "outputs have the type that the package's InferDataType gives",
    scope="contract",
    until=(2, 9),
)
def inferred_type(node: CustomNode, graph: Graph, target: Target, op: Op) -> Iterator[Problem]:
    """Before 2.9 a node has no word for its outputs' types: GE asks the package, whose answer is the contract's."""
    if cann_ops.find(node.type):
        return
    bound = {name: graph.value(tensor).dtype for name, tensor in node.bound(target.gaps).items()}
    for tensor, name in zip(op.outputs, node.proto.output, strict=False):
        wanted, got = contract.inferred_dtype(op, tensor, bound), graph.value(name).dtype if name else ""
        if wanted and got and got != wanted:
            yield (
                name,
                f"is {got} in the graph, InferDataType gives {wanted}",
                "cast behind the node, not in it",
            )


@rule("A16", "W", "no output_types and outputs_shape before release 2.9", scope="node", until=(2, 9))
def early_types(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    for name in ("output_types", "outputs_shape"):
        if name in node.kinds:
            yield name, "is sent to GE as an attribute of the operator", "leave it out, or export lite-2.7"
