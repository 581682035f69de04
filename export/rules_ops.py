"""O: ONNX operators that have a parser and still go wrong, by release.

Sources: what mindspore-lite's parsers read (July 2025), and release 2.0.0, where each of these was converted and run.
The same facts stand in docs/rules.md, beside the operators of every release.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from hybrid_ops.export.custom_node import OP_TYPE
from hybrid_ops.export.graph_view import Graph
from hybrid_ops.export.lite_rules import Target, rule

Place = tuple[str, str, str, str]


def nodes(graph: Graph, *kinds: str) -> Iterator[tuple[onnx.NodeProto, dict[str, onnx.AttributeProto]]]:
    """Nodes of these operators, with their attributes by name."""
    for node in graph.proto.node:
        if node.op_type in kinds:
            yield node, {a.name: a for a in node.attribute}


@rule("O1", "S", "CumSum is neither exclusive nor reversed", scope="model", until=(2, 1))
def cumsum(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "CumSum"):
        for name in ("exclusive", "reverse"):
            if name in attributes and attributes[name].i:
                yield node.name, name, "is ignored", "multiply by a triangular matrix of ones"


@rule("O2", "W", "no Einsum", scope="model")
def einsum(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "Einsum"):
        text = attributes["equation"].s.decode() if "equation" in attributes else ""
        yield (
            node.name,
            "equation",
            f"{text!r} is rewritten by the converter, rightly only where it is a matrix product",
            "write MatMul, Mul and ReduceSum",
        )


@rule("O3", "E", "no If before release 2.7", scope="model", until=(2, 7))
def branches(graph: Graph, target: Target) -> Iterator[Place]:
    for node, _ in nodes(graph, "If"):
        yield node.name, "op_type", "a branch that reads outer tensors stops the converter", "use Where"


@rule("O4", "W", "no Cast to float32 right behind a Custom output", scope="model")
def cast_behind(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "Cast"):
        source = graph.producers.get(node.input[0]) if node.input else None
        if source is not None and source.op_type == OP_TYPE and attributes["to"].i == TensorProto.FLOAT:
            yield (
                node.name,
                "to",
                f"behind {source.name or OP_TYPE}: optimize=general deletes it, taking every Custom output for float32",
                "put a Reshape or Transpose between, or convert with optimize=ascend_oriented",
            )


@rule("O5", "S", "Trilu keeps the upper triangle from the main diagonal", scope="model")
def trilu(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "Trilu"):
        if len(node.input) > 1 and node.input[1]:
            value = graph.constant(node.input[1])
            if value is None or int(value) != 0:
                yield node.name, "k", "is not read", "multiply by a constant mask"
        if "upper" in attributes and not attributes["upper"].i:
            yield node.name, "upper", "0 is not read", "multiply by a constant mask"


@rule("O6", "E", "Range has an input that is no constant", scope="model", until=(2, 1))
def constant_range(graph: Graph, target: Target) -> Iterator[Place]:
    for node, _ in nodes(graph, "Range"):
        if all(graph.constant(name) is not None for name in node.input):
            yield node.name, "inputs", "all constant: the MindIR cannot be written", "store the values"


@rule("O7", "W", "LayerNormalization says a non-negative axis", scope="model", until=(2, 1))
def layer_norm(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "LayerNormalization"):
        if "axis" not in attributes or attributes["axis"].i < 0:
            yield node.name, "axis", "absent or negative gives wrong numbers on the CPU", "write rank - 1"


@rule("O8", "S", "HardSigmoid has the default beta", scope="model", until=(2, 1))
def hard_sigmoid(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "HardSigmoid"):
        if "beta" in attributes and not np.isclose(attributes["beta"].f, 0.5):
            yield node.name, "beta", "is ignored", "write Mul, Add and Clip"


@rule("O9", "E", "the slope of PRelu is an initializer", scope="model", until=(2, 1))
def prelu(graph: Graph, target: Target) -> Iterator[Place]:
    for node, _ in nodes(graph, "PRelu"):
        if len(node.input) > 1 and node.input[1] not in graph.initializers:
            yield node.name, "slope", "is computed", "store it as an initializer"


@rule("O10", "S", "ArgMax drops its axis", scope="model", until=(2, 1))
def arg_max(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "ArgMax"):
        if "keepdims" not in attributes or attributes["keepdims"].i:
            yield node.name, "keepdims", "1, the default, is ignored", "write keepdims=0 and Unsqueeze"


@rule("O11", "E", "no Cast to bfloat16 in release 2.0", scope="model", until=(2, 1))
def cast_bfloat16(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "Cast"):
        if attributes["to"].i == TensorProto.BFLOAT16:
            yield node.name, "to", "type BFLOAT16 is not converted", "use float16"


@rule("O12", "S", "ScatterElements has no reduction", scope="model")
def scatter_elements(graph: Graph, target: Target) -> Iterator[Place]:
    for node, attributes in nodes(graph, "ScatterElements"):
        if "reduction" in attributes and attributes["reduction"].s not in (b"", b"none"):
            kind = attributes["reduction"].s.decode()
            yield node.name, "reduction", f"{kind!r} is ignored: a plain update", "avoid it"


@rule("O13", "E", "no Loop in release 2.0", scope="model", until=(2, 1))
def loops(graph: Graph, target: Target) -> Iterator[Place]:
    for node, _ in nodes(graph, "Loop"):
        yield node.name, "op_type", "conversion with optimisation fails", "unroll it, or use matrix products"
