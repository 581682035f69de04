"""Runs .asc files: host code that launches its kernels with `kernel<<<blocks, l2, stream>>>(args)`, in the simulator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import build, check, paths, sim_build
from . import soc as platform

__all__ = ["AscResult", "compile_asc", "kernel_cores", "rewrite_launches", "run_asc"]

# The program's main() runs from the first library; a second one holds the kernels as compiled for the other kind of core.
_HOST = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
program, *others = [ctypes.CDLL(path) for path in sys.argv[2].split(os.pathsep)]
words = [word.encode() for word in sys.argv[3:]]
code = program.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
ctypes.CDLL(None).fflush(None)
os._exit(code & 0xFF)
"""


@dataclass(frozen=True)
class AscResult:
    """What the program printed and returned, and one report per kernel launch (see the simulator's JSON)."""

    returncode: int
    stdout: str
    stderr: str
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """The program returned 0 and no launch had an error."""
        return self.returncode == 0 and all(report["ok"] for report in self.reports)

    @property
    def hazards(self) -> list[dict[str, Any]]:
        return [hazard for report in self.reports for hazard in report["hazards"]]


def _masked(text: str) -> str:
    """Comments, strings and characters blanked, every offset and line end kept."""
    out = list(text)
    i = 0
    while i < len(text):
        two = text[i : i + 2]
        if two == "//":
            end = text.find("\n", i)
            end = len(text) if end < 0 else end
        elif two == "/*":
            end = text.find("*/", i + 2)
            end = len(text) if end < 0 else end + 2
        elif text[i] in "\"'" and not (text[i] == "'" and i and text[i - 1].isalnum()):  # not 1'000
            end = i + 1
            while end < len(text) and text[end] != text[i]:
                end += 2 if text[end] == "\\" else 1
            end += 1
        else:
            i += 1
            continue
        for k in range(i, min(end, len(text))):
            if out[k] != "\n":
                out[k] = " "
        i = end
    return "".join(out)


def _closing(text: str, at: int, soc: str) -> int:
    """Offset of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    raise check.refuse(
        "asc", "launch", "bracket never closed", got=text[at : at + 40], allowed="( … )", soc=soc
    )


def _callee(text: str, end: int) -> int:
    """Offset where the kernel name (with namespace and template arguments) that ends at `end` begins."""
    i = end
    while i and text[i - 1].isspace():
        i -= 1
    if i and text[i - 1] == ">":
        depth = 0
        while i:
            i -= 1
            depth += (text[i] == ">") - (text[i] == "<")
            if depth == 0:
                break
    while i and (text[i - 1].isalnum() or text[i - 1] in "_:"):
        i -= 1
    return i


_KERNEL = re.compile(r"__global__\s+((?:\w+(?:\s*\([^()]*\))?\s+)*?)void\s+(\w+)\s*\(")


def kernel_cores(source: str) -> dict[str, tuple[int, int]]:
    """Cube and vector cores per AI Core of each kernel the text defines, by its qualifier or its task type.

    `__cube__` is (1, 0), `__mix__(a, b)` is (a, b); every other kernel (0, 0), a core of one kind.
    """
    plain = _masked(source)
    fallback = sim_build.task_cores(plain)
    found = {}
    for match in _KERNEL.finditer(plain):
        qualifiers, name = match.groups()
        mix = re.search(r"__mix__\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)", qualifiers)
        cores = (int(mix[1]), int(mix[2])) if mix else (1, 0) if "__cube__" in qualifiers else None
        found[name] = cores or ((0, 0) if "__vector__" in qualifiers else fallback)
    return found


def rewrite_launches(
    source: str, soc: str = "any chip", cores: Mapping[str, tuple[int, int]] | None = None
) -> str:
    """`k<T><<<b, l2, s>>>(args)` becomes a call of the simulator; lines stay where they are.

    Args:
        cores: by kernel name, as `kernel_cores` gives them; None for a chip with combined cores.

    Raises:
        HybridOpsError: a launch whose brackets do not close, or with other than two or three settings.
    """
    plain = _masked(source)
    out, done, count = [], 0, 0
    at = plain.find("<<<")
    while at >= 0:
        stop = plain.find(">>>", at)
        opening = plain.find("(", stop)
        if stop < 0 or opening < 0 or plain[stop + 3 : opening].strip():
            at = plain.find("<<<", at + 3)  # shift operators of nested templates, stream output
            continue
        begin, closing = _callee(plain, at), _closing(plain, opening, soc)
        settings = source[at + 3 : stop]
        commas = _top_level_commas(plain[at + 3 : stop])
        if commas not in (1, 2):
            raise check.refuse(
                "asc",
                "launch",
                "wrong number of settings",
                got=commas + 1,
                allowed="<<<blocks, l2, stream>>>",
                soc=soc,
            )
        kernel, args = source[begin:at], source[opening : closing + 1]
        name = " ".join(kernel.split()).replace('"', "")
        padding = "" if commas == 2 else ", nullptr"
        cubes, vectors = (cores or {}).get(name.split("<")[0].split("::")[-1].strip(), (0, 0))
        count += 1
        out += [source[done:begin],
                f'::ascsim::LaunchKernel<{count}>("{name}", ::ascsim::KernelCores{{{cubes}, {vectors}}}, '
                f"{settings}{padding}, [&] {{ {kernel}{args}; }})"]  # fmt: skip
        done = closing + 1
        at = plain.find("<<<", done)
    return "".join([*out, source[done:]])


def _top_level_commas(text: str) -> int:
    depth = commas = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        commas += c == "," and depth == 0
    return commas


def compile_asc(
    path: Path | str,
    soc: str,
    *,
    include: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    quiet: bool = True,
) -> list[Path]:
    """Compile one .asc file for the simulator; returns its libraries, one per kind of core, main() in each.

    Raises:
        SimulatorError: no compiler, or the file does not compile.
        HybridOpsError: unknown SoC, a launch that cannot be read.
    """
    source = Path(path).resolve()
    if not source.is_file():
        raise check.refuse("asc", "file", "missing", got=str(path), allowed="an existing .asc file", soc=soc)
    try:
        code = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise check.refuse(
            "asc", "file", "cannot be read", got=f"{path} ({error})", allowed="UTF-8 text", soc=soc
        ) from error
    sim = paths.source_dir("sim")
    whole = "\n".join(
        [code, *(file.read_text(errors="replace") for file in sorted(source.parent.glob("*.h")))]
    )
    cores = kernel_cores(whole) if platform.load(soc).figures["cores.split"] else {}
    text = f'#include "acl/acl.h"\n#line 1 "{source.as_posix()}"\n' + rewrite_launches(code, soc, cores)
    kinds = ["vector"] if not any(cubes for cubes, _ in cores.values()) else ["vector", "cube"]
    if cores and all(pair == (1, 0) for pair in cores.values()):
        kinds = ["cube"]
    flags = [*sim_build.FLAGS, *build.march_flags(), *(f"-D{d}" for d in defines)]
    flags += [f"-I{source.parent}", *(f"-I{Path(folder).resolve()}" for folder in include)]
    flags += [f"-isystem{sim / 'include'}", f"-isystem{sim / 'include' / 'acl'}", f"-isystem{sim}"]
    family = platform.load(soc).family
    depends = [*sorted(source.parent.glob("*.h")), *_headers()]
    try:
        return [
            build.compile_shared(
                f"asc-{source.stem}-{family}-{kind}", [build.Generated("asc", text)], [*flags, *sim_build.soc_macros(soc, kind)],
                depends=depends, link=["-Wl,-Bsymbolic"], quiet=quiet,
            )
            for kind in kinds
        ]  # fmt: skip
    except build.BuildError as error:
        raise sim_build.SimulatorError(str(error)) from error


def _headers() -> list[Path]:
    sim = paths.source_dir("sim")
    return [sim / "include" / "kernel_operator.h", sim / "include" / "ascsim", sim / "include" / "acl",
            *sim_build.core_headers()]  # fmt: skip


def run_asc(
    path: Path | str,
    soc: str = "ascend910b",
    *,
    argv: Sequence[str] = (),
    cwd: Path | str | None = None,
    checks: str = "full",
    auto_sync: bool = True,
    record: bool = False,
    include: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    memory: str = "poison",
    timeout: float | None = None,
    quiet: bool = True,
) -> AscResult:
    """Compile and run an .asc file in its own process.

    Args:
        path: the file, unmodified.
        soc: family or chip.
        argv: arguments of its main(), after the program name.
        cwd: folder to run in; the file's own by default.
        checks: "full" or "off".
        record: also estimate time (in each report's "timing").
        memory: what aclrtMalloc hands out: "poison" (every byte 0xFF) or "zero", as a driver does in a fresh process.
        timeout: seconds, None for no limit.

    Raises:
        SimulatorError, HybridOpsError: as `compile_asc`. Hazards do not raise: see the reports.
    """
    check.choice("asc", "checks", checks, ("full", "off"), soc)
    check.choice("asc", "memory", memory, ("poison", "zero"), soc)
    libraries = os.pathsep.join(
        map(str, compile_asc(path, soc, include=include, defines=defines, quiet=quiet))
    )
    with tempfile.TemporaryDirectory(prefix="asc") as folder:
        config, report = Path(folder, "soc.txt"), Path(folder, "report.jsonl")
        config.write_text(platform.load(soc).config())
        environment = {
            **os.environ, "ASCSIM_SOC_CONFIG": str(config), "ASCSIM_REPORT": str(report), "ASCSIM_CHECKS": str(int(checks == "full")),
            "ASCSIM_AUTO_SYNC": str(int(auto_sync)), "ASCSIM_RECORD": str(int(record)),
            "ASCSIM_ZERO_MEMORY": str(int(memory == "zero")),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", _HOST, str(sim_build.core_library()), libraries, Path(path).stem, *argv],
            cwd=cwd or Path(path).resolve().parent, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        lines = report.read_text().splitlines() if report.is_file() else []
    return AscResult(done.returncode, done.stdout, done.stderr, [json.loads(line) for line in lines])
