"""Makes MindIR files that `mindspore.export` wrote run on this machine: their operators hold absolute library paths."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from google.protobuf.message import DecodeError
from mindspore.train import mind_ir_pb2

from . import check, contract, mindspore_build


def relocate(source: Path, target: Path) -> list[str]:
    """See `hybrid_ops.mindspore.relocate`."""
    if target.name.endswith("_graph.mindir"):
        raise _refuse(
            "target",
            "MindSpore cannot load a file of this name",
            target.name,
            "a name not ending in _graph.mindir",
        )
    model = mind_ir_pb2.ModelProto()
    try:
        model.ParseFromString(source.read_bytes())
    except (DecodeError, OSError) as error:
        raise _refuse(
            "source", "not a MindIR file", f"{source} ({error})", "a file that mindspore.export wrote"
        ) from error
    found = []
    for primitive in model.primitives:
        attributes = {a.name: a for a in primitive.attribute}
        path = attributes["func_name"].s.decode() if "func_name" in attributes else ""
        op_type = path.rpartition(":")[2]
        if primitive.op_type != "Custom" or not Path(path.partition(":")[0]).name.startswith("mindspore_"):
            continue  # another vendor's
        op = contract.find(op_type)
        if op is None:
            types = check.words(o.type for o in contract.load().values())
            raise _refuse("source", "an operator that this release does not have", op_type, types)
        for soc, column in mindspore_build.columns(op):
            mindspore_build.ensure(op.name, soc, column)
        here = f"{mindspore_build.library(op.name)}:{op.type}".encode()
        for name in ("func_name", "uniq_name"):
            attributes[name].s = attributes[name].s.replace(path.encode(), here)
        found.append(op.type)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".relocate", delete=False) as file:
        file.write(model.SerializeToString())
    os.replace(file.name, target)
    return found


def _refuse(argument: str, wrong: str, got: object, allowed: str) -> check.HybridOpsError:
    return check.refuse("mindspore.relocate", argument, wrong, got=got, allowed=allowed, soc="every SoC")
