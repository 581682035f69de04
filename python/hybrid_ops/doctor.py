"""What this machine has: versions, compiler, cache, CANN, operator packages, and which of two equal operators wins."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import build, contract, npu

OPTIONAL = ("torch", "torch-npu", "onnx", "onnxscript", "transformers", "mindspore")
REQUIRED = ("numpy", "ml_dtypes", "jinja2", "typer", "rich")


@dataclass(frozen=True)
class Finding:
    """One line of the report; `state` is ok, missing (optional part) or fault (decides the exit code)."""

    state: str
    subject: str
    text: str


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Iterator[Finding]:
    new_enough = sys.version_info >= (3, 11)
    yield Finding(
        "ok" if new_enough else "fault", "python", f"{platform.python_version()} ({sys.executable})"
    )
    for name in (*REQUIRED, *OPTIONAL):
        version = _version(name)
        missing = "fault" if name in REQUIRED else "missing"
        yield Finding("ok" if version else missing, name, version or f"not installed: pip install {name}")


def _simulator() -> Iterator[Finding]:
    prebuilt = os.environ.get("HYBRID_OPS_PREBUILT")
    try:
        tool = build.compiler()
        first = subprocess.run(
            [*tool, "--version"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        yield Finding("ok", "compiler", f"{' '.join(tool)}: {first[0] if first else 'no version'}")
    except build.BuildError as error:
        yield Finding("missing" if prebuilt else "fault", "compiler", str(error))
    try:
        folder = build.cache_dir()
        libraries = list(folder.glob("*.so"))
        size = sum(file.stat().st_size for file in libraries) / 1e6
        yield Finding("ok", "cache", f"{folder}: {len(libraries)} libraries, {size:.1f} MB")
    except build.BuildError as error:
        yield Finding("fault", "cache", str(error))


def _cann_home() -> Path | None:
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        folder = os.environ.get(variable)
        if folder and Path(folder).is_dir():
            return Path(folder)
    usual = Path("/usr/local/Ascend/ascend-toolkit/latest")
    return usual if usual.is_dir() else None


def _cann() -> Iterator[Finding]:
    home = _cann_home()
    if home is None:
        yield Finding("missing", "CANN", "not found (ASCEND_HOME_PATH not set): simulator and reference only")
    else:
        files = [*home.glob("version.cfg"), *home.glob("*/version.info"), *home.glob("compiler/version.info")]
        text = files[0].read_text(errors="replace").strip().splitlines()[0] if files else "no version file"
        yield Finding("ok", "CANN", f"{home}: {text}")
    folders = npu.package_folders()
    if folders:
        yield Finding("ok", "operator package", ", then ".join(map(str, folders)))
    else:
        where = f"{npu.CUSTOM_PATHS}={os.environ.get(npu.CUSTOM_PATHS, '')!r}"
        yield Finding(
            "missing",
            "operator package",
            f"vendors/{npu.VENDOR} not found ({where}): simulator and reference only",
        )
    for op in contract.load().values():
        yield _winner(op.type, op.name, home)


def _vendors() -> list[tuple[str, Path]]:
    """Vendor folders in the order CANN searches them: custom paths first, then opp/vendors by its config.ini."""
    found = []
    for folder in filter(None, os.environ.get(npu.CUSTOM_PATHS, "").split(os.pathsep)):
        path = Path(folder)
        found.append((path.name, path))
        if (path / "vendors").is_dir():
            found += [(p.name, p) for p in sorted((path / "vendors").iterdir())]
    home = _cann_home()
    opp = os.environ.get("ASCEND_OPP_PATH") or (str(home / "opp") if home else "")
    vendors = Path(opp) / "vendors"
    if opp and vendors.is_dir():
        config = vendors / "config.ini"
        text = config.read_text(errors="replace") if config.is_file() else ""
        order = text.partition("load_priority=")[2].splitlines()
        names = (
            [n.strip() for n in order[0].split(",")] if order else sorted(p.name for p in vendors.iterdir())
        )
        found += [(n, vendors / n) for n in names if (vendors / n).is_dir()]
    return found


def _has(folder: Path, name: str) -> bool:
    """Whether an operator package or CANN's built-in tree holds an operator's kernel sources."""
    return (
        next(folder.glob(f"**/dynamic/{name}.*"), None) is not None
        or next(folder.glob(f"**/kernel/**/{name}"), None) is not None
    )


def _winner(op_type: str, name: str, home: Path | None) -> Finding:
    opp = os.environ.get("ASCEND_OPP_PATH") or (str(home / "opp") if home else "")
    holders = [f"{vendor} ({path})" for vendor, path in _vendors() if _has(path, name)]
    builtin = Path(opp) / "built-in" if opp else None
    if builtin is not None and builtin.is_dir() and _has(builtin, name):
        holders.append(f"CANN's own ({builtin})")
    if not holders:
        return Finding(
            "missing", op_type, "no installed package has it; Python runs the simulator or the reference"
        )
    if len(holders) == 1:
        return Finding("ok", op_type, f"comes from {holders[0]}")
    advice = f"the first one wins; put its folder first in {npu.CUSTOM_PATHS} to choose"
    return Finding("ok", op_type, f"{len(holders)} packages have it: {'; '.join(holders)}. {advice}")


def examine() -> list[Finding]:
    """Every finding; the caller exits non-zero when one is a fault."""
    return [*_python(), *_simulator(), *_cann()]
