"""Runs an exported graph on the CPU: ONNX operators in onnx's reference evaluator, Custom nodes in the simulator.

A Custom node is executed as it stands in the file: its own input_index, input_names and attributes decide what reaches
the kernel, so that a node which says something else than its author meant gives wrong numbers or a refusal here too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from hybrid_ops import check, runtime
from hybrid_ops.contract import Op
from hybrid_ops.dtypes import NUMPY
from hybrid_ops.export import cann_ops, dtypes
from hybrid_ops.export.custom_node import OP_TYPE, PRIVATE_DOMAIN, PRIVATE_VERSION, STRUCTURE
from hybrid_ops.export.graph_view import CustomNode


@dataclass(frozen=True)
class Launch:
    """One execution of a Custom node: wall seconds, and the inputs and attributes it was launched with."""

    node: str
    op: Op
    seconds: float
    arrays: Mapping[str, np.ndarray | None]
    attrs: Mapping[str, Any]
    hazards: list[dict[str, Any]] = field(default_factory=list)


class GraphRunner:
    """Holds one loaded graph; `run` executes it. `launches` has the Custom nodes of the last run, in order.

    `backend` is "sim" or "reference" (the NumPy meaning); `checks` is the simulator's ("full" or "off").
    Raises HybridOpsError while running when a node cannot be executed as written.
    """

    def __init__(
        self,
        model: onnx.ModelProto | str | Path,
        *,
        soc: str = "ascend310p",
        backend: str = "sim",
        checks: str = "full",
    ) -> None:
        self.model = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
        self.soc, self.backend, self.checks = soc, backend, checks
        self.launches: list[Launch] = []
        self._evaluator = ReferenceEvaluator(self._readable(), new_ops=[self._operator()])

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; inputs by name, in the graph's dtypes (never modified)."""
        self.launches.clear()
        names = [value.name for value in self.model.graph.output]
        wanted = {value.name for value in self.model.graph.input}
        if wanted != set(inputs):
            raise check.refuse(
                "export",
                "inputs",
                "not the graph's",
                got=check.words(sorted(inputs)),
                allowed=check.words(sorted(wanted)),
                soc=self.soc,
            )
        return dict(zip(names, self._evaluator.run(None, dict(inputs)), strict=True))

    def _readable(self) -> onnx.ModelProto:
        """The model with every Custom node in the private domain: the evaluator looks operators up by domain."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for node in model.graph.node:
            if node.op_type == OP_TYPE:
                node.domain = PRIVATE_DOMAIN
        if PRIVATE_DOMAIN not in {entry.domain for entry in model.opset_import}:
            model.opset_import.append(onnx.helper.make_opsetid(PRIVATE_DOMAIN, PRIVATE_VERSION))
        return model

    def _operator(self) -> type[OpRun]:
        runner = self

        class Custom(OpRun):
            op_domain = PRIVATE_DOMAIN

            def _run(self, *inputs: np.ndarray | None, **_: Any) -> tuple[np.ndarray, ...]:
                return runner._execute(self.onnx_node, inputs)

        return Custom

    def _execute(
        self, proto: onnx.NodeProto, inputs: tuple[np.ndarray | None, ...]
    ) -> tuple[np.ndarray, ...]:
        node = CustomNode(proto, len(self.launches))
        op = cann_ops.find(node.type) or check.find_op(node.type)
        values = dict(zip(proto.input, inputs, strict=True))
        arrays = {name: values[tensor] for name, tensor in node.bound().items()}
        attrs = {name: self._restored(op, name, node) for name in node.values if name not in STRUCTURE}
        if node.type in cann_ops.OPS:
            outputs = cann_ops.MEANINGS[node.type](arrays, attrs)
            return tuple(outputs[name] for name in node.names("output_names")[: len(proto.output)])
        start = time.perf_counter()
        if self.backend == "sim":
            from hybrid_ops import sim

            result = sim.launch(op, arrays, attrs, soc=self.soc, checks=self.checks)
            outputs, hazards = result.outputs, result.hazards
        else:
            outputs, hazards = runtime.run(op, arrays, attrs, backend=self.backend, soc=self.soc), []
        seconds = time.perf_counter() - start
        self.launches.append(Launch(node.label, op, seconds, arrays, attrs, hazards))
        ordered = [outputs[name] for name in node.names("output_names")[: len(proto.output)]]
        self._agree(node, op, ordered)
        return tuple(ordered)

    def _restored(self, op: Op, name: str, node: CustomNode) -> Any:
        """An attribute's value as the converter hands it on: STRING true and false are bools."""
        value = node.values[name]
        return (
            {"true": True, "True": True, "false": False, "False": False}.get(value, value)
            if isinstance(value, str)
            else value
        )

    def _agree(self, node: CustomNode, op: Op, outputs: list[np.ndarray]) -> None:
        """Refuse a node whose output_types say something else than the operator writes."""
        for name, number, array in zip(
            node.names("output_names"), node.values.get("output_types") or [], outputs, strict=False
        ):
            said = dtypes.MINDSPORE_NAMES.get(number, str(number))
            if said != array.dtype.name:
                raise check.refuse(
                    op.name,
                    name,
                    f"output_types of {node.label}",
                    got=said,
                    allowed=array.dtype.name,
                    soc=self.soc,
                )


def arrays_on(launch: Launch, soc: str) -> dict[str, np.ndarray | None]:
    """Inputs of a recorded launch in the storage dtypes that the operator has on another SoC.

    Takes the dtype column with the widest tensors, as the decode adapter does for the state.
    """
    op, family = launch.op, check.find_soc(launch.op, soc)
    widths = [sum(NUMPY[t.dtypes[family][i]].itemsize for t in op.inputs) for i in range(op.columns(family))]
    column = widths.index(max(widths))
    arrays: dict[str, np.ndarray | None] = {}
    for tensor in op.inputs:
        array = launch.arrays.get(tensor.name)
        arrays[tensor.name] = None if array is None else array.astype(NUMPY[tensor.dtypes[family][column]])
    return arrays
