"""Runs an operator's unmodified kernel on the CPU: checks, tiling, guarded buffers, launch, hazards as exceptions."""

from __future__ import annotations

import ctypes
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import build, check, dtypes, host, sim_build
from . import soc as platform
from .contract import Op
from .sim_build import SimulatorError, compile_kernel, compile_kernel_file

__all__ = [
    "Argument", "Result", "SimulatorError", "SimulatorHazard", "SimulatorWarning", "compile_kernel", "compile_kernel_file", "launch",
    "launch_kernel",
]  # fmt: skip

INPUT, OUTPUT, INOUT, WORKSPACE, TILING = range(5)
GUARD = 512  # bytes on each side of a buffer; also the alignment that aclrtMalloc gives
PATTERN = 0xA5


class SimulatorHazard(SimulatorError):
    """The kernel broke a rule of the hardware; `hazards` has every report of the launch.

    `timing` is the replay, if one was asked for and no report stopped the kernel.
    """

    def __init__(
        self, text: str, hazards: Sequence[Mapping[str, Any]] = (), timing: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.hazards, self.timing = list(hazards), timing


class SimulatorWarning(UserWarning):
    """The kernel did something that is defined here and doubtful on hardware; the launch went on."""


@dataclass(frozen=True)
class Result:
    """Outputs by name (in-place ones included, the inputs are untouched), reports, prints of the kernel, timing.

    `timing` is None unless the launch recorded; cycles, us, bytes and bound class as the simulator's report says.
    """

    outputs: dict[str, np.ndarray]
    hazards: list[dict[str, Any]] = field(default_factory=list)
    timing: dict[str, Any] | None = None
    prints: list[str] = field(default_factory=list)


class _Arg(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("role", ctypes.c_int32)
    ]  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char_p), ("soc_config", ctypes.c_char_p), ("kernel", ctypes.c_void_p),
        ("args", ctypes.POINTER(_Arg)), ("n_args", ctypes.c_int32), ("block_dim", ctypes.c_uint32),
        ("tiling_key", ctypes.c_uint64), ("checks", ctypes.c_int32), ("record", ctypes.c_int32),
        ("auto_sync", ctypes.c_int32),
    ]  # fmt: skip


class Mixed(ctypes.Structure):
    """Entry of the cube cores (None: there are none) and vector cores per AI Core, for `ascsim_launch_mixed`."""

    _fields_ = [("cube_kernel", ctypes.c_void_p), ("vectors", ctypes.c_uint32)]


@cache
def _config(soc: str) -> bytes:
    return platform.load(soc).config().encode()


def _library(op: Op, soc: str, column: int, core: str = "vector") -> Path:
    """The operator's kernel library; its sources are hashed once per process and environment, not per launch."""
    chosen = (build.CACHE_VARIABLE, build.COMPILER_VARIABLE, "HYBRID_OPS_PREBUILT", "PATH", "HOME")
    return _hashed_library(op.name, soc, column, core, tuple(os.environ.get(name) for name in chosen))


@cache
def _hashed_library(op: str, soc: str, column: int, core: str, environment: tuple[str | None, ...]) -> Path:
    return compile_kernel(op, soc, column, core=core)


class Argument:
    """One kernel argument in memory of its own: aligned, with a guard zone on each side."""

    def __init__(self, name: str, role: int, data: np.ndarray | None = None, size: int | None = None) -> None:
        """`data` is copied in; without it `size` bytes are filled with 0xFF, NaN in every float type."""
        self.name, self.role = name, role
        self.absent = data is None and size is None
        self.size = 0 if self.absent else data.nbytes if data is not None else int(size or 0)
        self._memory = np.empty(0 if self.absent else self.size + 3 * GUARD, np.uint8)
        if self.absent:
            return
        self._begin = GUARD + (-self._memory.ctypes.data) % GUARD
        self._memory[: self._begin] = PATTERN
        self._memory[self._begin + self.size :] = PATTERN
        if data is None:
            self.bytes[:] = 0xFF
        elif self.size:
            self.bytes[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    @property
    def bytes(self) -> np.ndarray:
        """The argument's own bytes."""
        return self._memory[self._begin : self._begin + self.size]

    @property
    def address(self) -> int | None:
        """Address of the first byte, None for an absent optional input."""
        return None if self.absent else self._memory.ctypes.data + self._begin

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """A view of the bytes as a tensor; it keeps the memory alive."""
        return self.bytes.view(dtypes.NUMPY[dtype]).reshape(shape)

    def overrun(self) -> int | None:
        """Offset, relative to the first byte, of a changed guard byte; None when both guards are intact."""
        if self.absent:
            return None
        for start, zone in (
            (0, self._memory[: self._begin]),
            (self._begin + self.size, self._memory[self._begin + self.size :]),
        ):
            changed = np.flatnonzero(zone != PATTERN)
            if len(changed):
                return int(changed[0]) + start - self._begin
        return None


def launch_kernel(
    library: Path,
    args: Sequence[Argument],
    *,
    op: str,
    soc: str,
    block_dim: int,
    tiling_key: int = 0,
    checks: str = "full",
    record: bool = False,
    auto_sync: bool = True,
    figures: Mapping[str, Any] | None = None,
    cube_library: Path | None = None,
    vectors: int = 0,
) -> Result:
    """Run one kernel library on prepared arguments (kernel parameter order); outputs stay in `args`.

    With `cube_library`, the same kernel compiled for cube cores, `block_dim` counts AI Cores, each of one cube core and
    `vectors` vector cores.

    Raises:
        SimulatorHazard: the kernel broke a rule (with every report), stopped, or wrote a guard zone.

    Warns:
        SimulatorWarning: reports of severity warning.
    """
    check.choice(op, "checks", checks, ("full", "off"), soc)
    core = sim_build.load_core()
    kernel = sim_build.load_kernel(library)
    wanted = kernel.ascsim_kernel_args()
    if wanted != len(args):
        raise check.refuse(op, "kernel", "wrong number of arguments", got=wanted, allowed=len(args), soc=soc)
    table = (_Arg * len(args))(*(_Arg(a.name.encode(), a.address, a.size, a.role) for a in args))
    request = _Launch(
        op.encode(), platform.load(soc).config(**figures).encode() if figures else _config(soc), ctypes.cast(kernel.ascsim_kernel, ctypes.c_void_p),
        table, len(args), block_dim, tiling_key, checks == "full", record, auto_sync,
    )  # fmt: skip
    if cube_library is None:
        answer = core.ascsim_launch(ctypes.byref(request))
    else:
        cube = sim_build.load_kernel(cube_library)
        mixed = Mixed(ctypes.cast(cube.ascsim_kernel, ctypes.c_void_p), vectors)
        answer = core.ascsim_launch_mixed(ctypes.byref(request), ctypes.byref(mixed))
    try:
        report = json.loads(ctypes.string_at(answer).decode("utf-8", "replace"))
    finally:
        core.ascsim_free(answer)
    hazards = report.get("hazards") or []
    if not report["ok"]:
        text = check.hazards(op, soc, report.get("error"), hazards)
        raise SimulatorHazard(text, hazards, report.get("timing"))
    for argument in args:
        at = argument.overrun()
        if at is not None:
            entry = {
                "rule": "guard.overrun",
                "tensor": argument.name,
                "bytes": [at, at + 1],
                "severity": "error",
            }
            raise SimulatorHazard(check.hazards(op, soc, None, [entry]), [entry])
    doubtful = [h for h in hazards if h.get("severity") == "warning"]
    if doubtful:
        text = check.hazards(op, soc, None, doubtful).replace("breaks rules", "doubtful by the rules", 1)
        warnings.warn(text, SimulatorWarning, stacklevel=3)
    return Result({}, hazards, report.get("timing"), report.get("prints") or [])


def launch(
    op: str | Op,
    arrays: Mapping[str, np.ndarray | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    soc: str | None = None,
    checks: str = "full",
    record: bool = False,
    auto_sync: bool = True,
    figures: Mapping[str, Any] | None = None,
) -> Result:
    """Run an operator's kernel in the simulator.

    Args:
        op: name or OpDef type.
        arrays: inputs by name; they are never modified, in-place outputs come back as new arrays.
        attrs: attribute values.
        soc: family or chip; None follows the dtypes (float16 ascend310p, bfloat16 ascend910b).
        checks: "full" verifies every call of the kernel; "off" only computes (and keeps global memory bounds).
        record: also replay the recorded operations in the timing model; with checks "off" the waits that the compiler
            inserts are not seen, and cycles come out too low.
        auto_sync: insert what the compiler inserts between dependent calls; off shows what relies on it.
        figures: figures of sim/soc/*.toml to replace, by dotted name, e.g. {"timing.trace": 1}.

    Raises:
        HybridOpsError: the input is refused, or the host side refuses it.
        SimulatorError: no compiler, or the kernel does not compile.
        SimulatorHazard: the kernel broke a rule.
    """
    specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}
    bound = check.call(op, soc, specs, attrs)
    chip = soc or bound.soc
    try:
        tiling = host.tiling(bound.op, chip, specs, bound.attrs)
    except build.BuildError as error:
        raise SimulatorError(str(error)) from error
    library = _library(bound.op, bound.soc, bound.column)
    cubes, vectors = sim_build.cores_of(bound.op, bound.soc, tiling.tiling_key)
    cube_library = _library(bound.op, bound.soc, bound.column, "cube") if cubes else None
    mutated = {t.inplace: t.name for t in bound.op.outputs if t.inplace}
    args = [
        Argument(t.name, INOUT if t.name in mutated else INPUT, arrays.get(t.name)) for t in bound.op.inputs
    ]
    by_name = {a.name: a for a in args}
    for tensor in bound.op.outputs:
        if tensor.inplace:
            args.append(by_name[tensor.inplace])
            continue
        spec = bound.outputs[tensor.name]
        size = int(np.prod(spec.shape, dtype=np.int64)) * dtypes.NUMPY[spec.dtype].itemsize
        args.append(Argument(tensor.name, OUTPUT, size=size))
        by_name[tensor.name] = args[-1]
    args.append(Argument("workspace", WORKSPACE, size=tiling.workspace_bytes))
    args.append(Argument("tiling", TILING, np.frombuffer(tiling.data, np.uint8)))
    result = launch_kernel(
        library, args, op=bound.op.name, soc=chip, block_dim=tiling.block_dim, tiling_key=tiling.tiling_key,
        checks=checks, record=record, auto_sync=auto_sync, figures=figures, cube_library=cube_library, vectors=vectors,
    )  # fmt: skip
    outputs = {n: by_name[n].array(spec.shape, spec.dtype) for n, spec in bound.outputs.items()}
    return Result(outputs, result.hazards, result.timing, result.prints)
