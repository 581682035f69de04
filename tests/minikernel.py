"""Mini kernels: tests/kernels/*.cpp, many entries per library, launched straight through the simulator's C interface."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_ops import build, paths, sim_build
from hybrid_ops import soc as platform

KERNELS = Path(__file__).parent / "kernels"
INPUT, OUTPUT, INOUT, WORKSPACE, TILING = range(5)


class _Arg(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("role", ctypes.c_int32)
    ]  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char_p), ("soc_config", ctypes.c_char_p), ("kernel", ctypes.c_void_p),
        ("args", ctypes.POINTER(_Arg)), ("n_args", ctypes.c_int32), ("block_dim", ctypes.c_uint32),
        ("tiling_key", ctypes.c_uint64), ("checks", ctypes.c_int32), ("record", ctypes.c_int32), ("auto_sync", ctypes.c_int32),
    ]  # fmt: skip


def _flags(soc: str, defines: Sequence[str]) -> list[str]:
    sim = paths.source_dir("sim")
    return [
        *sim_build.FLAGS, "-O1", *build.march_flags(), *sim_build.soc_macros(soc), *(f"-D{d}" for d in defines),
        f"-I{KERNELS}", f"-isystem{sim / 'include'}", f"-isystem{sim}",
    ]  # fmt: skip


@cache
def library(stem: str, soc: str = "ascend310p", defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The compiled tests/kernels/<stem>.cpp.

    Raises:
        build.BuildError: it does not compile (the first error lines).
    """
    core = sim_build.load_core()
    sim = paths.source_dir("sim")
    depends = [sim / "include" / "kernel_operator.h", sim / "include" / "ascsim", sim / "core" / "op.h",
               sim / "core" / "engine.h", KERNELS / "mini.h"]  # fmt: skip
    path = build.compile_shared(
        f"mini-{stem}-{platform.load(soc).family}", [KERNELS / f"{stem}.cpp"], _flags(soc, defines), depends=depends,
        link=["-Wl,-Bsymbolic"], quiet=True,
    )  # fmt: skip
    assert core is not None
    return ctypes.CDLL(str(path))


def launch(
    lib: ctypes.CDLL,
    entry: str,
    args: Sequence[tuple[str, np.ndarray | None, int]],
    *,
    soc: str = "ascend310p",
    blocks: int = 1,
    key: int = 0,
    checks: bool = True,
    auto_sync: bool = True,
    record: bool = False,
) -> dict[str, Any]:
    """Run one entry; `args` are (name, array or None, role). Returns the report; arrays are written in place."""
    core = sim_build.load_core()
    table = (_Arg * len(args))(
        *(_Arg(n.encode(), a.ctypes.data if a is not None else None, a.nbytes if a is not None else 0, role) for n, a, role in args)
    )  # fmt: skip
    request = _Launch(
        entry.encode(), platform.load(soc).config().encode(), ctypes.cast(getattr(lib, entry), ctypes.c_void_p), table, len(args),
        blocks, key, checks, record, auto_sync,
    )  # fmt: skip
    answer = core.ascsim_launch(ctypes.byref(request))
    try:
        return json.loads(ctypes.string_at(answer).decode())
    finally:
        core.ascsim_free(answer)


def aligned(array: np.ndarray, boundary: int = 512) -> np.ndarray:
    """A copy whose first byte lies on a multiple of `boundary`, as device memory does."""
    room = np.zeros(array.nbytes + boundary, np.uint8)
    start = -room.ctypes.data % boundary
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def rules(report: dict[str, Any], severity: str | None = None) -> set[str]:
    return {h["rule"] for h in report["hazards"] if severity is None or h["severity"] == severity}
