"""Compiles the simulator core, and kernels as shared libraries that the core can enter."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

import jinja2

from . import build, check, dtypes, host, paths
from . import soc as platform
from .contract import Op

# Unsafe maths off and contraction off: results must not depend on the host's vector width. No unique symbols: kernel
# libraries of two SoCs live in one process and must not share template statics.
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-fno-gnu-unique", "-Wno-unknown-pragmas"]


class SimulatorError(check.HybridOpsError):
    """The simulator cannot be used here: no compiler, no sources, a kernel that does not compile."""


def _include_flags() -> list[str]:
    """-isystem, so that the hash covers what `_headers` names and not the whole of sim/."""
    sim = paths.source_dir("sim")
    return [f"-isystem{sim / 'include'}", f"-isystem{sim}"]


def _headers() -> list[Path]:
    """What kernel libraries include: the kernel-side headers and the core's interface to them."""
    sim = paths.source_dir("sim")
    include = [p for p in sorted((sim / "include").iterdir()) if p.name not in host.HEADER_FOLDERS]
    return [*include, *core_headers()]


def core_headers() -> list[Path]:
    """The headers of the core that kernels include."""
    core = paths.source_dir("sim") / "core"
    return [core / f"{name}.h" for name in ("op", "engine", "sync", "frame", "fractal", "matmul")]


_TASK = re.compile(
    r"KERNEL_TASK_TYPE(?:\s*\(\s*(0[xX]\w+?|\d+)[uUlL]*\s*,|_DEFAULT\s*\()[^()]*?\bKERNEL_TYPE_(\w+)\s*\)"
)
_MIX = {"AIC_ONLY": (1, 0), "MIX_AIC_1_0": (1, 0), "MIX_AIC_1_1": (1, 1), "MIX_AIC_1_2": (1, 2)}


def task_cores(source: str, key: int | None = None) -> tuple[int, int]:
    """Cube and vector cores per AI Core that a kernel's task type asks for, e.g. (1, 2) for KERNEL_TYPE_MIX_AIC_1_2.

    (0, 0) stands for one kind of core: vector cores, or combined ones. KERNEL_TASK_TYPE(key, …) is the type of one tiling
    key, a number, KERNEL_TASK_TYPE_DEFAULT(…) that of all others; without `key` the widest type of the text counts.
    """
    by_key = _cores_by_key(source)
    return max(by_key.values()) if key is None else by_key.get(key, by_key[None])


def _cores_by_key(source: str) -> dict[int | None, tuple[int, int]]:
    """`task_cores` of every tiling key that a kernel's text names, and under None of all others."""
    found: dict[int | None, tuple[int, int]] = {None: (0, 0)}
    for number, name in _TASK.findall(source):
        key = int(number, 0) if number else None
        found[key] = max(found.get(key, (0, 0)), _MIX.get(name, (0, 0)))
    return found


def _compile(
    name: str, sources: Sequence[Path | build.Generated], flags: Sequence[str], **more: object
) -> Path:
    try:
        return build.compile_shared(name, sources, flags, **more)  # type: ignore[arg-type]
    except (build.BuildError, FileNotFoundError) as error:
        raise SimulatorError(str(error)) from error


def core_library() -> Path:
    """Path of libascsim.so, built if necessary."""
    core = paths.source_dir("sim") / "core"
    flags = [*FLAGS, "-O3", *build.march_flags(), *_include_flags(), "-pthread"]  # vectorised shadow scans
    return _compile("libascsim", sorted(core.glob("*.cpp")), flags, depends=[core, *_headers()])


@cache
def load_core() -> ctypes.CDLL:
    """The core, its symbols visible to the kernel libraries loaded after it."""
    library = ctypes.CDLL(str(core_library()), mode=ctypes.RTLD_GLOBAL)
    library.ascsim_launch.restype = ctypes.c_void_p
    library.ascsim_launch.argtypes = [ctypes.c_void_p]
    library.ascsim_launch_mixed.restype = ctypes.c_void_p
    library.ascsim_launch_mixed.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.ascsim_free.argtypes = [ctypes.c_void_p]
    return library


def soc_macros(soc: str, core: str = "vector") -> list[str]:
    """What the device compiler of that SoC predefines; `core` is "vector" or "cube" where the two are split."""
    figures = platform.load(soc).figures
    arch, npu = figures["soc.aicore_arch"], figures["soc.npu_arch"]
    names = [*figures["soc.arch_macros"].split(), figures["soc.define"]]
    if core == "cube":
        names = [name.replace("_VEC__", "_CUBE__") for name in names]
    return [f"-D__CCE_AICORE__={arch}", f"-D__NPU_ARCH__={npu}", *(f"-D{name}" for name in names)]


def dtype_macros(op: Op, soc: str, column: int) -> list[str]:
    """The macros CANN's opbuild gives a kernel for one dtype combination."""
    macros = {}
    for tensor in (*op.outputs, *op.inputs):
        dtype = tensor.dtypes[soc][column]
        upper = tensor.name.upper()
        macros[f"DTYPE_{upper}"] = dtypes.KERNEL_TYPE[dtype]
        macros[f"ORIG_DTYPE_{upper}"] = dtypes.GE_TYPE[dtype]
        macros[f"FORMAT_{upper}"] = "FORMAT_ND"
    return [f"-D{name}={value}" for name, value in macros.items()]


def _glue(kernel: Path, entry: str) -> build.Generated:
    """The translation unit that includes the kernel and exports its entry under a fixed name."""
    env = jinja2.Environment(loader=jinja2.PackageLoader("hybrid_ops"), undefined=jinja2.StrictUndefined)
    text = env.get_template("kernel_glue.cpp.j2").render(kernel=kernel.name, entry=entry)
    return build.Generated("glue", text)


def compile_kernel_file(
    path: Path | str,
    entry: str,
    defines: Mapping[str, str | None] | Sequence[str] = (),
    soc: str = "ascend310p",
    *,
    include: Sequence[Path | str] = (),
    name: str | None = None,
    core: str = "vector",
    quiet: bool = False,
) -> Path:
    """Compile any kernel source for the simulator; returns the library, cached by the hash of all it includes.

    Args:
        path: kernel .cpp, unmodified.
        entry: the `__global__ __aicore__` function to enter (C++ or C linkage).
        defines: macros, as {"NAME": "value" or None} or as ready `-D…` flags.
        soc: family or chip name; chooses the SoC macros.
        include: further include folders, searched before the simulator's.
        core: "cube" for the half of a mixed kernel that runs on cube cores (split chips), else "vector".

    Raises:
        SimulatorError: no compiler, source missing, or it does not compile (with the first compiler lines).
        HybridOpsError: unknown SoC.
    """
    kernel = Path(path).resolve()
    if not kernel.is_file():
        raise SimulatorError(
            f"{entry}: kernel: source missing: got {path}; allowed an existing .cpp file on {soc}"
        )
    flags = (
        [f"-D{n}" if v is None else f"-D{n}={v}" for n, v in defines.items()]
        if isinstance(defines, Mapping)
        else list(defines)
    )
    flags = [*FLAGS, *build.march_flags(), *soc_macros(soc, core), *flags]
    flags += [
        *(f"-I{Path(folder).resolve()}" for folder in include),
        f"-isystem{kernel.parent}",
        *_include_flags(),
    ]
    stem = (name or f"{entry}-{platform.load(soc).family}") + ("-cube" if core == "cube" else "")
    depends = [kernel, *build.included(kernel, [kernel.parent]), *_headers()]
    return _compile(
        stem, [_glue(kernel, entry)], flags, depends=depends, link=["-Wl,-Bsymbolic"], quiet=quiet
    )


@cache
def _op_cores(name: str, split: bool) -> dict[int | None, tuple[int, int]]:
    """By tiling key; read once per process, as kernels are hashed once."""
    source = paths.source_dir("op_kernel") / f"{name}.cpp"
    return _cores_by_key(source.read_text(encoding="utf-8")) if split else {None: (0, 0)}


def cores_by_key(op: Op | str, soc: str) -> dict[int | None, tuple[int, int]]:
    """Cube and vector cores per AI Core of every variant of an operator's kernel that its text names, by tiling key.

    Under None those of all others. (0, 0): cores of one kind. A kernel may have variants for vector cores alone beside mixed
    ones.
    """
    return _op_cores(check.find_op(op).name, bool(platform.load(soc).figures["cores.split"]))


def cores_of(op: Op | str, soc: str, key: int | None = None) -> tuple[int, int]:
    """Cores of one variant, see `cores_by_key`; without a tiling key those of the widest."""
    by_key = cores_by_key(op, soc)
    return max(by_key.values()) if key is None else by_key.get(key, by_key[None])


def compile_kernel(
    op: Op | str, soc: str, column: int = 0, *, core: str = "vector", quiet: bool = False
) -> Path:
    """The library of one operator for one SoC and dtype column (see contract.json), `core` as `compile_kernel_file`.

    Raises:
        SimulatorError, HybridOpsError: as `compile_kernel_file`.
    """
    found = check.find_op(op)
    family = check.find_soc(found, soc)
    sources = paths.source_dir("op_kernel")
    return compile_kernel_file(
        sources / f"{found.name}.cpp", found.name, dtype_macros(found, family, column), family,
        name=f"{found.name}-{family}-{column}", core=core, quiet=quiet,
    )  # fmt: skip


@cache
def load_kernel(path: Path) -> ctypes.CDLL:
    """A kernel library, loaded once, after the core."""
    load_core()
    return ctypes.CDLL(str(path))


def builds(socs: Sequence[str] = ()) -> list[Callable[[], Path]]:
    """One call per library: the core, the host side, every kernel (of the given SoC families)."""
    from . import contract

    calls: list[Callable[[], Path]] = [core_library, host.library_path]
    for op in contract.load().values():
        for soc in (s for s in op.socs if not socs or s in socs):
            kinds = ["vector", "cube"] if cores_of(op, soc)[0] else ["vector"]
            for column in range(op.columns(soc)):
                calls += [partial(compile_kernel, op, soc, column, core=kind) for kind in kinds]
    return calls


def build_all(socs: Sequence[str] = ()) -> Iterator[Path]:
    """Build everything ahead of time, a compile per processor; yields each library as it is done.

    Raises:
        SimulatorError: something does not compile; what had not begun is given up.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            for done in as_completed([pool.submit(call) for call in builds(socs)]):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
