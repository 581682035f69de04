"""Finds a MindSpore Lite converter: $MSLITE_CONVERTER, $LITE_HOME, PATH, then a Python with mindspore_lite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hybrid_ops import check

CONVERTER_VARIABLE = "MSLITE_CONVERTER"
HOME_VARIABLE = "LITE_HOME"
# Import path for a $MSLITE_CONVERTER that is a Python; PYTHONPATH would reach this process as well.
PYTHONPATH_VARIABLE = "MSLITE_PYTHONPATH"
TOOL = "converter_lite"
RUNNER = Path(__file__).with_name("lite_runner.py")
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Tool:
    """A converter: how to start it, what its process needs, its release if it can be told, where its libraries are."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    version: tuple[int, int] | None = None
    package: Path | None = None  # folder of the Python package, when it is one
    origin: str = ""

    @property
    def parses_custom(self) -> bool:
        """Whether it has a parser for Custom nodes (2.4 and later; an unknown release is taken for one)."""
        return self.version is None or self.version >= (2, 4)


def find(environment: Mapping[str, str] | None = None) -> Tool | None:
    """The first converter found, or None. Raises HybridOpsError when a variable names one that is not there."""
    env = os.environ if environment is None else environment
    named = env.get(CONVERTER_VARIABLE)
    if named:
        path = Path(shutil.which(named, path=env.get("PATH")) or named)
        if path.is_dir():
            path = path / TOOL
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise check.refuse(
                "convert", CONVERTER_VARIABLE, "no such program", got=named,
                allowed=f"path of {TOOL}, or of a Python that has mindspore_lite", soc="this machine",
            )  # fmt: skip
        if path.name.startswith("python"):
            return _python(path, env, f"${CONVERTER_VARIABLE}")
        return _program(path, env, f"${CONVERTER_VARIABLE}")
    home = env.get(HOME_VARIABLE)
    if home:
        for place in (Path(home) / "tools/converter/converter" / TOOL, Path(home) / TOOL):
            if place.is_file():
                return _program(place, env, f"${HOME_VARIABLE}")
    found = shutil.which(TOOL, path=env.get("PATH"))
    if found:
        return _program(Path(found), env, "PATH")
    for name in ("python3", "python"):
        python = shutil.which(name, path=env.get("PATH"))
        plain = {key: value for key, value in env.items() if key != PYTHONPATH_VARIABLE}
        if python and _package(Path(python), plain):
            return _python(Path(python), plain, f"mindspore_lite of {name}")
    return None


def _program(path: Path, env: Mapping[str, str], origin: str) -> Tool:
    """A converter_lite. Its libraries lie beside it in the unpacked archive: tools/converter/lib, runtime/lib."""
    version = None
    root = path.parent
    for folder in list(path.resolve().parents)[:5]:
        match = _VERSION.search(folder.name) if "lite" in folder.name else None
        if match:
            version, root = (int(match[1]), int(match[2])), folder
            break
    folders = [
        path.parent.parent / "lib",
        *(root / part for part in ("tools/converter/lib", "runtime/lib", "runtime/third_party/glog")),
    ]
    libraries = [str(folder) for folder in dict.fromkeys(folders) if folder.is_dir()]
    environment = {}
    if libraries:
        inherited = env.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*libraries, *([inherited] if inherited else [])])
    return Tool((str(path),), environment, version, None, origin)


def _python(path: Path, env: Mapping[str, str], origin: str) -> Tool:
    package = _package(path, env)
    if package is None:
        raise check.refuse(
            "convert", CONVERTER_VARIABLE, "this Python has no mindspore_lite", got=str(path),
            allowed=f"a Python with it; its folder in {PYTHONPATH_VARIABLE}", soc="this machine",
        )  # fmt: skip
    environment = _python_environment(env)
    match = (
        _VERSION.search((package / "version.py").read_text()) if (package / "version.py").is_file() else None
    )
    version = (int(match[1]), int(match[2])) if match else None
    return Tool((str(path), "-u", str(RUNNER)), environment, version, package, origin)


def _python_environment(env: Mapping[str, str]) -> dict[str, str]:
    return {"PYTHONPATH": env[PYTHONPATH_VARIABLE]} if env.get(PYTHONPATH_VARIABLE) else {}


def _package(python: Path, env: Mapping[str, str]) -> Path | None:
    code = "import mindspore_lite; print(mindspore_lite.__file__)"
    try:
        run = subprocess.run(
            [str(python), "-c", code], env={**env, **_python_environment(env)}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    origin = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else ""
    return Path(origin).parent if run.returncode == 0 and origin else None
