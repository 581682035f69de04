"""Mini kernels: tests/kernels/*.cpp, many entries per library, launched straight through the simulator's C interface."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_ops import build, paths, sim, sim_build
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


def _flags(soc: str, defines: Sequence[str], core: str) -> list[str]:
    root = paths.source_dir("sim")
    return [
        *sim_build.FLAGS, "-O1", *build.march_flags(), *sim_build.soc_macros(soc, core), *(f"-D{d}" for d in defines),
        f"-I{KERNELS}", f"-isystem{root / 'include'}", f"-isystem{root}",
    ]  # fmt: skip


@cache
def library(
    stem: str, soc: str = "ascend310p", defines: tuple[str, ...] = (), core: str = "vector"
) -> ctypes.CDLL:
    """The compiled tests/kernels/<stem>.cpp; `core` "cube" with the macros of a cube core.

    Raises:
        build.BuildError: it does not compile (the first error lines).
    """
    core_lib = sim_build.load_core()
    root = paths.source_dir("sim")
    depends = [root / "include" / "kernel_operator.h", root / "include" / "ascsim", *sim_build.core_headers(),
               KERNELS / "mini.h"]  # fmt: skip
    path = build.compile_shared(
        f"mini-{stem}-{platform.load(soc).family}-{core}", [KERNELS / f"{stem}.cpp"], _flags(soc, defines, core),
        depends=depends,
        link=["-Wl,-Bsymbolic"], quiet=True,
    )  # fmt: skip
    assert core_lib is not None
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
    cube: ctypes.CDLL | None = None,
    vectors: int = 0,
    figures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run one entry; `args` are (name, array or None, role). Returns the report; arrays are written in place.

    With `cube`, the library as compiled for cube cores, or `vectors`, cores are split: `blocks` counts AI Cores of one
    cube core and `vectors` vector cores. `figures` replace figures of the SoC, by dotted name.
    """
    core = sim_build.load_core()
    table = (_Arg * len(args))(
        *(_Arg(n.encode(), a.ctypes.data if a is not None else None, a.nbytes if a is not None else 0, role) for n, a, role in args)
    )  # fmt: skip
    request = _Launch(
        entry.encode(), platform.load(soc).config(**(figures or {})).encode(), ctypes.cast(getattr(lib, entry), ctypes.c_void_p), table, len(args),
        blocks, key, checks, record, auto_sync,
    )  # fmt: skip
    if cube is None and not vectors:
        answer = core.ascsim_launch(ctypes.byref(request))
    else:
        mixed = sim.Mixed(ctypes.cast(getattr(cube, entry), ctypes.c_void_p) if cube else None, vectors)
        answer = core.ascsim_launch_mixed(ctypes.byref(request), ctypes.byref(mixed))
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
