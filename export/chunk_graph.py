"""The chunked gated delta rule as one node while a model is traced, and as its ONNX operators afterwards.

Tracing it in every layer costs seconds each (dynamic lengths), although all layers have the same one. Models are
traced with a torch operator of fixed meaning; the node it leaves is replaced by the graph of
`models.chunk_rule.chunk_rule`, traced once per set of head sizes.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import onnx_ir.passes.common as common_passes
import onnxscript
import torch

from hybrid_ops import runtime
from hybrid_ops.export.custom_node import PRIVATE_DOMAIN, PRIVATE_VERSION
from hybrid_ops.export.dtypes import TENSOR_TYPES
from hybrid_ops.models.chunk_rule import Constants, chunk_rule

NAMESPACE = "hybrid_ops_graph"
PLACEHOLDER = "ChunkRule"
INPUTS = ("query", "key", "value", "g", "beta")
EXAMPLE_LENGTH = 100

_library = torch.library.Library(NAMESPACE, "DEF")
_library.define(
    "chunk_rule(Tensor query, Tensor key, Tensor value, Tensor g, Tensor beta, int[] sizes, int max_length) "
    "-> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    max_length: int,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`chunk_rule` from a zero state, with normalised query and key, as one operator; returns output and state."""
    sizes = [
        int(size) for size in (*key.shape[2:], *value.shape[2:])
    ]  # NK, DK, NV, DV: the tracer forgets them
    return torch.ops.hybrid_ops_graph.chunk_rule(query, key, value, g, beta, sizes, max_length)


@torch.library.impl(_library, "chunk_rule", "CPU")
def _run(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    sizes: list[int],
    max_length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    out, state = chunk_rule(
        query,
        key,
        value,
        g,
        beta,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        max_length=max_length,
    )
    assert state is not None
    return out.contiguous(), state.contiguous()


@torch.library.register_fake(f"{NAMESPACE}::chunk_rule", lib=_library)
def _fake(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    sizes: list[int],
    max_length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, _, heads, size = value.shape
    state = torch.empty(batch, heads, key.shape[-1], size, device=value.device)
    return torch.empty(value.shape, dtype=query.dtype, device=value.device), state


def translation() -> tuple[Any, Callable[..., Any]]:
    """(torch overload, function emitting the placeholder) for the dynamo exporter."""
    schema = onnx.defs.OpSchema
    types = list(TENSOR_TYPES)
    description = schema(
        PLACEHOLDER,
        PRIVATE_DOMAIN,
        PRIVATE_VERSION,
        inputs=[schema.FormalParameter(name, f"T{i}") for i, name in enumerate(INPUTS)],
        outputs=[schema.FormalParameter("out", "T0"), schema.FormalParameter("state", "TS")],
        type_constraints=[(f"T{i}", types, "") for i in range(len(INPUTS))] + [("TS", types, "")],
        attributes=[
            schema.Attribute("sizes", schema.AttrType.INTS, required=True),
            schema.Attribute("max_length", schema.AttrType.INT, required=True),
        ],
    )
    node = onnxscript.values.Op(
        onnxscript.values.Opset(PRIVATE_DOMAIN, PRIVATE_VERSION), PLACEHOLDER, description
    )

    def emit(
        query: Any, key: Any, value: Any, g: Any, beta: Any, sizes: Sequence[int], max_length: int
    ) -> Any:
        return node(query, key, value, g, beta, sizes=list(sizes), max_length=max_length)

    return torch.ops.hybrid_ops_graph.chunk_rule.default, emit


def symbolic(graph: Any, *arguments: Any) -> Any:
    """The placeholder for the TorchScript exporter."""
    from torch.onnx import symbolic_helper

    *tensors, heads, length = arguments
    sizes, bound = symbolic_helper._parse_arg(heads, "is"), symbolic_helper._maybe_get_const(length, "i")
    out, state = graph.op(
        f"{PRIVATE_DOMAIN}::{PLACEHOLDER}", *tensors, outputs=2, sizes_i=sizes, max_length_i=bound
    )
    _, key_size, heads, size = sizes
    query = tensors[0].type()
    out.setType(query.with_sizes([1, None, heads, size]))
    state.setType(query.with_dtype(torch.float32).with_sizes([1, heads, key_size, size]))
    return out, state


class _Body(torch.nn.Module):
    """What a placeholder stands for, as a module."""

    def __init__(self, key_size: int, max_length: int) -> None:
        super().__init__()
        self.constants, self.max_length = Constants.of(key_size), max_length

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return chunk_rule(
            *tensors,  # type: ignore[misc]
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
            max_length=self.max_length,
            constants=self.constants,
        )


def body(node: onnx_ir.Node, opset: int) -> onnx_ir.Graph:
    """The operators of one placeholder with the head sizes and dtypes of its inputs, any sequence length."""
    length = node.attributes["max_length"].as_int()
    key_heads, key_size, value_heads, value_size = node.attributes["sizes"].as_ints()
    ends = [(key_heads, key_size)] * 2 + [(value_heads, value_size)] + [(value_heads,)] * 2
    rows, tensors = min(EXAMPLE_LENGTH, length), []
    for value, end in zip(node.inputs, ends, strict=True):
        assert value is not None and value.dtype is not None
        tensors.append(torch.zeros(1, rows, *end, dtype=getattr(torch, _torch_name(value.dtype))))
    module = _Body(key_size, length)
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        runtime.using(backend="reference"),
        tempfile.TemporaryDirectory() as folder,
    ):
        warnings.simplefilter("ignore")
        file = Path(folder) / "body.onnx"
        torch.onnx.export(
            module,
            tuple(tensors),
            str(file),
            dynamo=False,
            opset_version=opset,
            input_names=list(INPUTS),
            output_names=["out", "state"],
            dynamic_axes={name: {1: "sequence"} for name in (*INPUTS, "out")},
        )
        model = onnx_ir.load(file)
    onnxscript.optimizer.optimize_ir(model)
    for value in list(model.graph.initializers.values()):  # a function has none
        assert value.name is not None and value.const_value is not None
        constant = onnx_ir.node("Constant", [], {"value": value.const_value})
        constant.outputs[0].name = f"{value.name}_constant"
        model.graph.insert_before(model.graph[0], constant)
        value.replace_all_uses_with(constant.outputs[0])
        model.graph.initializers.pop(value.name)
    return model.graph


def _torch_name(dtype: onnx_ir.DataType) -> str:
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype.name, dtype.name.lower())


def inline(model: onnx_ir.Model) -> onnx_ir.Model:
    """Replace every placeholder by its operators (in place); returns the model, which may have none."""
    bodies: dict[tuple[Any, ...], str] = {}
    opset = model.opset_imports[""]
    for node in model.graph.all_nodes():
        if node.op_type != PLACEHOLDER or node.domain != PRIVATE_DOMAIN:
            continue
        attributes = (tuple(node.attributes["sizes"].as_ints()), node.attributes["max_length"].as_int())
        key = (*attributes, *(value.dtype for value in node.inputs if value is not None))
        if key not in bodies:
            bodies[key] = f"{PLACEHOLDER}{len(bodies)}"
            function = onnx_ir.Function(
                PRIVATE_DOMAIN, bodies[key], "", graph=body(node, opset), attributes=[]
            )
            model.functions[function.identifier()] = function
        node.op_type = bodies[key]
        node.attributes.clear()
    if bodies:
        common_passes.InlinePass()(model)
        common_passes.CommonSubexpressionEliminationPass()(model)
        common_passes.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=16)(model)
        common_passes.DeduplicateInitializersPass()(model)
    return model
