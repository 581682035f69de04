"""Writes an exported model: domain, opset order, validity, then one atomic move."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir

from hybrid_ops import check
from hybrid_ops.export.custom_node import OP_TYPE, PRIVATE_DOMAIN
from hybrid_ops.export.dtypes import TENSOR_TYPES

# Tensors from this size on go to the data file next to the model (protobuf cannot hold 2 GB).
EXTERNAL_BYTES = 1 << 20
EXTERNAL_LIMIT = 1 << 30


def to_default_domain(model: onnx_ir.Model) -> onnx_ir.Model:
    """Move every Custom node to the default domain and drop the private one from opset_import (in place)."""
    for node in model.graph.all_nodes():
        if node.op_type == OP_TYPE and node.domain == PRIVATE_DOMAIN:
            node.domain = ""
            node.version = None
    model.opset_imports.pop(PRIVATE_DOMAIN, None)
    return model


@contextmanager
def custom_schema(model: onnx.ModelProto) -> Iterator[None]:
    """Registers a default-domain `Custom` for onnx.checker, with the attributes this model uses; removed afterwards."""
    kinds = {
        attribute.name: onnx.AttributeProto.AttributeType.Name(attribute.type)
        for node in model.graph.node
        if node.op_type == OP_TYPE and not node.domain
        for attribute in node.attribute
    }
    schema = onnx.defs.OpSchema
    types = list(TENSOR_TYPES)
    variadic = schema.FormalParameterOption.Variadic
    description = schema(
        OP_TYPE,
        "",
        1,
        inputs=[schema.FormalParameter("inputs", "T", param_option=variadic, is_homogeneous=False)],
        outputs=[schema.FormalParameter("outputs", "U", param_option=variadic, is_homogeneous=False)],
        type_constraints=[("T", types, ""), ("U", types, "")],
        attributes=[
            schema.Attribute(name, getattr(schema.AttrType, kind), required=False)
            for name, kind in kinds.items()
        ],
    )
    registered = onnx.defs.has(OP_TYPE, "")
    if not registered:
        onnx.defs.register_schema(description)
    try:
        yield
    finally:
        if not registered:
            onnx.defs.deregister_schema(OP_TYPE, 1, "")


def validate(path: Path) -> None:
    """onnx.checker on the file, shapes and types included; raises onnx.checker.ValidationError."""
    model = onnx.load(path, load_external_data=False)
    with custom_schema(model):
        onnx.checker.check_model(str(path), full_check=True)


def save_model(model: onnx_ir.Model, path: str | Path, *, private_domain: bool = False) -> Path:
    """Write `model` to `path` (`*.onnx`); returns the path.

    Custom nodes go to the default domain unless `private_domain`. Weights of 1 GB and more in all go to
    `<name>.onnx.data` beside it. Everything is written and validated in a temporary folder of the same file system and
    then moved, data first, so that a failure leaves what was there before.
    Errors: HybridOpsError for another suffix; OSError; onnx.checker.ValidationError.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise check.refuse(
            "export", "path", "suffix", got=repr(path.name), allowed="*.onnx", soc="every SoC",
            hint="converter_lite reads no other",
        )  # fmt: skip
    if not private_domain:
        to_default_domain(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = sum(
        v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None
    )
    folder = Path(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=path.parent))
    try:
        if weights >= EXTERNAL_LIMIT:
            data = f"{path.name}.data"
            onnx_ir.save(model, folder / path.name, external_data=data, size_threshold_bytes=EXTERNAL_BYTES)
        else:
            onnx_ir.save(model, folder / path.name)
        validate(folder / path.name)
        for name in sorted(os.listdir(folder), key=lambda name: name == path.name):
            os.replace(folder / name, path.parent / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path
