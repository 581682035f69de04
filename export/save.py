"""Writes an exported model: domain, opset order, validity, then one atomic move."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def save_model(
    model: onnx_ir.Model,
    path: str | Path,
    *,
    private_domain: bool = False,
    shard_bytes: int | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> Path:
    """Write `model` to `path` (`*.onnx`); returns the path.

    Custom nodes go to the default domain unless `private_domain`. Weights of 1 GB and more in all, or of any size with
    `shard_bytes`, go beside it: to `<name>.onnx.data`, or with `shard_bytes` to files of about that size (the converter
    reads each whole). Tensors that are references into files below the target folder stay references.
    `tick(done, total)` is told bytes of weights written.
    Everything is written and validated under temporary names in the target folder and then moved, data first, so that
    a failure leaves what was there before and a kill leaves no partial file under a final name.
    Errors: HybridOpsError for another suffix, a disk without room (before anything is written where that can be known)
    and a folder that cannot be written to; onnx.checker.ValidationError.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise check.refuse(
            "export", "path", "suffix", got=repr(path.name), allowed="*.onnx", soc="every SoC",
            hint="converter_lite reads no other",
        )  # fmt: skip
    if not private_domain:
        to_default_domain(model)
    tensors = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    own = [tensor for tensor in tensors if not isinstance(tensor, onnx_ir.ExternalTensor)]
    referenced = len(own) < len(tensors)
    total = sum(tensor.nbytes for tensor in own)
    large = any(tensor.nbytes >= EXTERNAL_BYTES for tensor in own)
    apart = large and (shard_bytes is not None or total >= EXTERNAL_LIMIT)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        _room(path, total)
        folder = Path(tempfile.mkdtemp(prefix=f"{_prefix(path)}{os.getpid()}-", dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        # References are relative to the model's folder, so that such a model is written where it will stand.
        file = path.parent / f"{folder.name}.onnx" if referenced else folder / path.name
        try:
            _write(model, file, folder, path.name, apart, shard_bytes, total, tick)
        except OSError as error:
            raise _unwritable(path, error) from error
        validate(file)
        data = sorted(name for name in os.listdir(folder) if name != path.name)
        if any((path.parent / name).exists() for name in data):
            path.unlink(
                missing_ok=True
            )  # else a kill between two moves leaves it with another export's weights
        for name in data:
            os.replace(folder / name, path.parent / name)
        os.replace(file, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (path.parent / f"{folder.name}.onnx").unlink(missing_ok=True)
    return path


def _write(
    model: onnx_ir.Model,
    file: Path,
    folder: Path,
    name: str,
    apart: bool,
    shard_bytes: int | None,
    total: int,
    tick: Callable[[int, int], None] | None,
) -> None:
    done = 0

    def told(tensor: onnx_ir.TensorProtocol, _: Any) -> None:
        nonlocal done
        done += tensor.nbytes
        if tick is not None:
            tick(done, total)

    if not apart:
        onnx_ir.save(model, file)
        return
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # it warns of every tensor larger than a shard
    assert file.parent == folder, "a model with references keeps its other weights inside"
    onnx_ir.save(
        model,
        file,
        external_data=f"{name}.data",
        size_threshold_bytes=EXTERNAL_BYTES,
        max_shard_size_bytes=shard_bytes,
        callback=told,
    )


def _prefix(path: Path) -> str:
    return f".{path.stem}-"


def _sweep(path: Path) -> None:
    """Remove what a killed export of the same name left behind."""
    for left in path.parent.glob(f"{_prefix(path)}*-*"):
        owner = left.name.removeprefix(_prefix(path)).split("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _room(path: Path, total: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if total > free:
        raise check.refuse(
            "export", "out", "not enough room on the disk", got=f"{free / 1e9:.1f} GB free in {path.parent}",
            allowed=f"{total / 1e9:.1f} GB or more", soc="every SoC",
        )  # fmt: skip


def _unwritable(path: Path, error: OSError) -> check.HybridOpsError:
    # A short write of ndarray.tofile has no number.
    full = error.errno in (None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    wrong = "no room left while writing" if full else "cannot be written"
    return check.refuse(
        "export", "out", wrong, got=f"{path} ({error.strerror or error})",
        allowed="a folder with room for the model", soc="every SoC",
    )  # fmt: skip
