"""Graph simplification whose time is linear in the graph and that leaves weights unread.

onnxscript's optimize() also runs pattern rewrites, whose matcher walks the whole graph per candidate: half a minute for
32 layers. What they find in these graphs is little.
"""

from __future__ import annotations

import onnx_ir
import onnx_ir.passes.common as passes
import onnxscript

# Elements; larger constants are weights.
FOLDED = 1 << 13
ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Exp", "Sqrt", "Softplus", "Sigmoid", "Identity"})
ROUNDS = 2  # folding a shape makes more constants


def simplify(model: onnx_ir.Model) -> onnx_ir.Model:
    """Inline functions, fold small constants, drop what is unused or repeated (in place); returns the model."""
    passes.InlinePass()(model)
    for _ in range(ROUNDS):
        onnxscript.optimizer.fold_constants(model, input_size_limit=FOLDED, should_fold=_small)
        passes.RemoveUnusedNodesPass()(model)
        passes.RemoveUnusedFunctionsPass()(model)
    passes.IdentityEliminationPass()(model)
    plain_casts(model)
    passes.IdentityEliminationPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.DeduplicateInitializersPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.RemoveUnusedNodesPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
    passes.OutputFixPass()(model)
    passes.NameFixPass()(model)
    return model


def plain_casts(model: onnx_ir.Model) -> None:
    """CastLike, which converters do not know, becomes Cast, or nothing where the type is right already (in place)."""
    for node in model.graph.all_nodes():
        if node.op_type != "CastLike" or node.domain not in ("", "ai.onnx"):
            continue
        source, like = node.inputs
        wanted = _dtype(like)
        if source is None or wanted is None:
            continue
        same = _dtype(source) == wanted
        new = onnx_ir.node("Identity" if same else "Cast", [source], {} if same else {"to": int(wanted)})
        new.name, new.version = node.name, node.version
        output, old = new.outputs[0], node.outputs[0]
        output.name, output.shape, output.type = old.name, old.shape, old.type
        assert node.graph is not None
        node.graph.insert_before(node, new)
        old.replace_all_uses_with(output)
        node.graph.remove(node, safe=True)


def _dtype(value: onnx_ir.Value | None) -> onnx_ir.DataType | None:
    """Type of a value; bodies of functions carry none, there it is that of what an elementwise operator reads."""
    while value is not None and value.dtype is None:
        node = value.producer()
        if node is None or node.op_type not in ELEMENTWISE:
            return None
        value = next((v for v in node.inputs if v is not None and v.dtype is not None), node.inputs[0])
    return None if value is None else value.dtype


def _small(node: onnx_ir.Node) -> bool | None:
    """Transposes would be folded whatever their size, which reads every weight into memory."""
    large = any(
        v is not None and v.const_value is not None and v.const_value.size > FOLDED for v in node.inputs
    )
    return False if node.op_type == "Transpose" and large else None
