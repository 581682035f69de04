"""The files an ONNX model consists of: itself and its external data, checked before a tool reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from hybrid_ops import check

PROTOBUF_LIMIT = 2**31 - 1


def _refuse(path: Path, wrong: str, got: object, allowed: str) -> check.HybridOpsError:
    return check.refuse("convert", str(path), wrong, got=got, allowed=allowed, soc="any SoC")


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every stored tensor, those of attributes and subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from tensors(inner)


def load(path: Path) -> tuple[onnx.ModelProto, tuple[Path, ...]]:
    """The model without its external weights, and all its files, itself first.

    Errors: HybridOpsError when it is no ONNX file, cut short, over 2 GiB, or external data is missing, too short or
    outside the model's folder.
    """
    allowed = "a whole *.onnx file"
    try:
        size = path.stat().st_size
        if size > PROTOBUF_LIMIT:
            raise _refuse(path, "over 2 GiB", f"{size} bytes", "2 GiB; weights as external data")
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise _refuse(path, "cannot be read", error.strerror, allowed) from error
    except check.HybridOpsError:
        raise
    except Exception as error:  # protobuf raises types of its own
        raise _refuse(path, "is cut short or no ONNX file", f"{size} bytes", allowed) from error
    if not model.ir_version or not model.graph.node:
        raise _refuse(path, "is empty or no ONNX file", f"{size} bytes without a graph", allowed)
    files = [path]
    for file, needed, tensor in external(model, path):
        found = file.stat().st_size if file.is_file() else None
        if found is None or found < needed:
            got = "no such file" if found is None else f"{found} bytes"
            raise _refuse(
                path, f"external data of {tensor}", f"{file.name}: {got}", f"{needed} bytes beside the model"
            )
        if file not in files:
            files.append(file)
    return model, tuple(files)


def external(model: onnx.ModelProto, path: Path) -> Iterator[tuple[Path, int, str]]:
    """File, bytes it must have, tensor name, for every external tensor."""
    for tensor in tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location or Path(location).is_absolute() or ".." in Path(location).parts:
            raise _refuse(
                path,
                f"external data of {tensor.name}",
                repr(location),
                "a file in or below the model's folder",
            )
        length = int(entries.get("length") or 0)
        yield path.parent / location, int(entries.get("offset") or 0) + length, tensor.name
