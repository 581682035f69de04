"""The host side of the operators on any machine: contract.json from the OpDefs, inference, tiling.

op_host/*.cpp compile against the project's own headers under CANN's names (sim/include) into one library; what they
register is recorded, and their InferShape, InferDataType and Tiling functions run with the figures of a chip from
sim/soc. ``python -m hybrid_ops.host --write [FILE]`` regenerates contract.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import build, contract, paths
from .check import HybridOpsError, Spec
from .contract import Op

FLAGS = ["-std=c++17", "-O1", "-fno-gnu-unique", "-Wall", "-Wextra", "-Werror=return-type"]
HEADER_FOLDERS = ("register", "graph", "exe_graph", "tiling", "hostsim")


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("ir_index", ctypes.c_int32),
        ("dtype", ctypes.c_char_p),
        ("format", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )


class _Attr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("int_value", ctypes.c_int64),
        ("float_value", ctypes.c_double),
        ("string_value", ctypes.c_char_p),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("floats", ctypes.POINTER(ctypes.c_double)),
        ("count", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Tiling:
    """What a tiling function decided: bytes for the kernel, tiling key, cores, workspaces in bytes."""

    data: bytes
    tiling_key: int
    block_dim: int
    workspaces: tuple[int, ...]
    schedule_mode: int = 0

    @property
    def workspace_bytes(self) -> int:
        return sum(self.workspaces)


def library_path() -> Path:
    """Path of libhost_ops, built from sim/host and every op_host/*.cpp if necessary.

    Raises:
        BuildError: no compiler, cache not writable, or an operator's host source does not compile.
    """
    sim, op_host, op_kernel = (paths.source_dir(name) for name in ("sim", "op_host", "op_kernel"))
    plans = sorted(op_kernel.glob("*_tiling.h"))
    return build.compile_shared(
        "libhost_ops",
        [*sorted((sim / "host").glob("*.cpp")), *sorted(op_host.glob("*.cpp"))],
        # sim/include also holds the kernel side, whose changes are no reason to build this library again.
        [*FLAGS, f"-I{op_host}", f"-isystem{sim / 'include'}"],
        depends=[
            sim / "host",
            *(sim / "include" / folder for folder in HEADER_FOLDERS),
            *plans,
            *sorted({header for plan in plans for header in build.included(plan, [])}),
        ],
    )


@cache
def load(path: Path | None = None) -> ctypes.CDLL:
    """The library with its C interface typed (sim/host/abi.h)."""
    library = ctypes.CDLL(str(path or library_path()))
    call: list[Any] = [ctypes.POINTER(_Tensor), ctypes.c_int32, ctypes.POINTER(_Attr), ctypes.c_int32]
    library.hostops_list.argtypes = library.hostops_contract.argtypes = []
    library.hostops_infer.argtypes = [ctypes.c_char_p, *call]
    library.hostops_tiling.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, *call]
    for name in ("list", "contract", "infer", "tiling"):
        getattr(library, f"hostops_{name}").restype = ctypes.c_void_p
    library.hostops_free.argtypes = [ctypes.c_void_p]
    return library


def _text(function: Any, *args: Any) -> str:
    pointer = function(*args)
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        load().hostops_free(pointer)


def operators() -> list[str]:
    """Types of every operator with a file in op_host, sorted."""
    return json.loads(_text(load().hostops_list))


def _find(op: str | Op) -> Op:
    found = op if isinstance(op, Op) else contract.find(op)
    if found is None:
        raise HybridOpsError(
            f"hybrid_ops: op: no such operator: got {op!r}; allowed {', '.join(contract.load())} on any SoC"
        )
    return found


def _inputs(op: Op, tensors: Mapping[str, Spec | None], formats: Mapping[str, str]) -> tuple[Any, int]:
    items = []
    for index, tensor in enumerate(op.inputs):
        spec = tensors.get(tensor.name)
        if spec is None:
            continue
        dims = (ctypes.c_int64 * len(spec.shape))(*spec.shape)
        layout = formats.get(tensor.name, "ND")
        items.append(_Tensor(index, spec.dtype.encode(), layout.encode(), len(dims), dims))
    return (_Tensor * max(len(items), 1))(*items), len(items)


def _attributes(attrs: Mapping[str, Any]) -> tuple[Any, int]:
    items = []
    for name, value in attrs.items():
        item = _Attr(name=name.encode())
        if isinstance(value, bool | int):
            item.int_value, item.float_value = int(value), float(value)
        elif isinstance(value, float):
            item.float_value = value
        elif isinstance(value, str):
            item.string_value = value.encode()
        else:
            item.count = len(value)
            if all(isinstance(entry, int) for entry in value):
                item.ints = (ctypes.c_int64 * len(value))(*value)
            item.floats = (ctypes.c_double * len(value))(*map(float, value))
        items.append(item)
    return (_Attr * max(len(items), 1))(*items), len(items)


def _answer(text: str) -> dict[str, Any]:
    answer = json.loads(text)
    if not answer["ok"]:
        raise HybridOpsError(answer["error"])
    return answer


@cache
def _chip(soc: str) -> tuple[str, str]:
    """Family of a chip, and its figures that tiling may ask for as text."""
    from . import soc as platform

    chip = platform.load(soc)
    wanted = ("sizes.", "cores.", "rates.")
    lines = (line for line in chip.config().splitlines(keepends=True) if line.startswith(wanted))
    return chip.family, "".join(lines)


def infer(
    op: str | Op,
    tensors: Mapping[str, Spec | None],
    attrs: Mapping[str, Any] | None = None,
) -> dict[str, Spec]:
    """Run the operator's own InferShape and InferDataType.

    Args:
        op: name, type or contract entry.
        tensors: shape and dtype name by input name; a dimension of -1 is unknown; None or absent: not given.
        attrs: attribute values; absent ones take their default.

    Returns:
        Shape and dtype of every output, by name.

    Raises:
        HybridOpsError: the operator refuses the call; the text is its own.
    """
    found = _find(op)
    inputs, attributes = _inputs(found, tensors, {}), _attributes(attrs or {})
    answer = _answer(_text(load().hostops_infer, found.type.encode(), *inputs, *attributes))
    pairs = zip(found.outputs, answer["outputs"], strict=True)
    return {tensor.name: Spec(tuple(out["shape"]), out["dtype"]) for tensor, out in pairs}


def tiling(
    op: str | Op,
    soc: str,
    tensors: Mapping[str, Spec | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    formats: Mapping[str, str] | None = None,
    config: str | None = None,
) -> Tiling:
    """Run the operator's own tiling function for a chip.

    Args:
        op: name, type or contract entry.
        soc: family or chip, e.g. "ascend310p", "Ascend310P1".
        tensors: shape and dtype name by input name; None or absent: not given.
        attrs: attribute values; absent ones take their default.
        formats: storage format by input name where it is not "ND".
        config: figures of the chip as text, instead of those of `soc`.

    Raises:
        HybridOpsError: the operator refuses the call on this chip; the text is its own.
    """
    found = _find(op)
    if config is None:
        family, config = _chip(soc)
    else:
        family = contract.family(soc) or soc
    inputs, attributes = _inputs(found, tensors, formats or {}), _attributes(attrs or {})
    text = _text(
        load().hostops_tiling,
        found.type.encode(),
        family.encode(),
        config.encode(),
        *inputs,
        *attributes,
    )
    answer = _answer(text)
    return Tiling(
        data=bytes.fromhex(answer["tiling"]),
        tiling_key=answer["tiling_key"],
        block_dim=answer["block_dim"],
        workspaces=tuple(answer["workspaces"]),
        schedule_mode=answer["schedule_mode"],
    )


def recorded_contract() -> str:
    """Text of contract.json as the OpDefs in op_host now declare it: one argument, attribute or limit a line."""
    document = json.loads(_text(load().hostops_contract))
    return _layout(document, 0) + "\n"


def _layout(value: Any, depth: int) -> str:
    """JSON with line breaks down to the entries of lists such as "inputs", so that diffs read well."""
    flat = json.dumps(value, ensure_ascii=False)
    nested = isinstance(value, Mapping) and any(isinstance(v, Mapping | list) for v in value.values())
    listed = isinstance(value, list) and any(isinstance(v, Mapping) for v in value)
    if (depth > 3 and not listed) or not (nested or listed):
        return flat
    pad, end = "  " * (depth + 1), "  " * depth
    if listed:
        return "[\n" + ",\n".join(pad + json.dumps(v, ensure_ascii=False) for v in value) + f"\n{end}]"
    rows = (f"{pad}{json.dumps(k)}: {_layout(v, depth + 1)}" for k, v in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{end}}}"


def regenerate(path: Path = contract.CONTRACT_FILE) -> bool:
    """Write contract.json from the OpDefs; True when the file changed."""
    text = recorded_contract()
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """``--write [FILE]`` writes contract.json; ``--check [FILE]`` exits 1 when it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m hybrid_ops.host", description=main.__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--write", "--check"):
        action.add_argument(name, nargs="?", type=Path, const=contract.CONTRACT_FILE, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        if options.write is not None:
            state = "written" if regenerate(options.write) else "up to date"
            print(f"{options.write}: {state}")
            return 0
        current = options.check.is_file() and options.check.read_text(encoding="utf-8") == recorded_contract()
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.check}: {'up to date' if current else 'differs from op_host; run with --write'}")
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
