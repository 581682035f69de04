"""Puts the installed operator package on CANN's path in time: CANN reads the variable once, when its runtime starts.

Importing hybrid_ops before torch_npu or mindspore opens a device is enough. The other way round CANN would report
kernels that it does not find (code 561103) much later; that order is refused with the line that mends it.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

VENDOR = "hybrid_ops"
CUSTOM_PATHS = "ASCEND_CUSTOM_OPP_PATH"
# Libraries of CANN's runtime; the first one in a process has read the environment, or is about to.
RUNTIME = ("libascendcl.so", "libnnopbase.so", "libopapi.so")
KERNEL_NOT_FOUND = 561103  # ACLNN_ERR_INNER_FIND_KERNEL_ERROR

_missed: list[Path] = []  # packages that the runtime, started before this import, does not know


def package_folders() -> list[Path]:
    """Folders of this project's operator package, in the order CANN searches them: custom paths, then opp/vendors."""
    found = []
    for folder in filter(None, os.environ.get(CUSTOM_PATHS, "").split(os.pathsep)):
        found += [p for p in (Path(folder), Path(folder) / "vendors" / VENDOR) if p.name == VENDOR]
    opp = os.environ.get("ASCEND_OPP_PATH")
    if opp:
        found.append(Path(opp) / "vendors" / VENDOR)
    return [p for p in dict.fromkeys(found) if (p / "op_impl").is_dir() or (p / "op_api").is_dir()]


def runtime_loaded() -> bool:
    """Whether a library of CANN's runtime is in this process."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return False
    return any(f"/{name}" in maps for name in RUNTIME)


def export_line(folder: Path) -> str:
    """What has to run in the shell before Python starts."""
    return f"export {CUSTOM_PATHS}={folder}:${CUSTOM_PATHS}"


def announce() -> None:
    """Put the package on the path; where the runtime is there already, remember that it does not know the package."""
    named = [Path(entry) for entry in filter(None, os.environ.get(CUSTOM_PATHS, "").split(os.pathsep))]
    new = [folder for folder in package_folders()[:1] if folder not in named]
    if not new:
        return
    if runtime_loaded():
        _missed.extend(new)
        warnings.warn(
            f"hybrid_ops: the CANN runtime started before its operators were on the path: {export_line(new[0])}, "
            "or import hybrid_ops first",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    os.environ[CUSTOM_PATHS] = os.pathsep.join(map(str, [*new, *named]))


def missed() -> Path | None:
    """The package that the running CANN does not know, because it was started too early."""
    return _missed[0] if _missed else None
