"""MindSpore Lite 2.0.0, the only release on PyPI: installed once into build/, for tests that want a real converter.

Its wheel is for Python 3.7; where there is no such interpreter, or the package index is out of reach, the tests that
need it are skipped with the reason.
"""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

RELEASE = "2.0.0"
FOLDER = Path(__file__).resolve().parents[1] / "build" / f"mindspore-lite-{RELEASE}"
# numpy's last releases for 3.7; mindspore_lite imports it.
PACKAGES = (f"mindspore-lite=={RELEASE}", "numpy<1.22")
INSTALL_SECONDS = 600


def _interpreters() -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(root.glob("versions/3.7*/bin/python3.7"), reverse=True)
    on_path = shutil.which("python3.7")
    return [*found, *([Path(on_path)] if on_path else [])]


@functools.cache
def python() -> Path | None:
    """A Python 3.7 that starts (pyenv's shims exist without doing so)."""
    for path in _interpreters():
        run = subprocess.run(
            [path, "-c", "import pip, sys; print(sys.version_info[:2] == (3, 7))"], capture_output=True
        )
        if run.stdout.strip() == b"True":
            return path
    return None


@functools.cache
def environment() -> dict[str, str] | str:
    """Variables that make `hybrid-ops convert` use it, or the reason why it is not there."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"mindspore-lite {RELEASE} exists for Linux x86_64 only: this is {platform.system()} {platform.machine()}"
    interpreter = python()
    if interpreter is None:
        return "no Python 3.7 in pyenv's versions or PATH: mindspore-lite 2.0.0 has no wheel for another"
    FOLDER.parent.mkdir(exist_ok=True)
    with FOLDER.with_name(f"{FOLDER.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.is_dir():
            fault = _install(interpreter)
            if fault:
                return fault
    return {"MSLITE_CONVERTER": str(interpreter), "MSLITE_PYTHONPATH": str(FOLDER)}


def _install(interpreter: Path) -> str:
    scratch = FOLDER.with_name(f"{FOLDER.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    command = [interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--target", scratch, *PACKAGES]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        shutil.rmtree(scratch, ignore_errors=True)
        return f"pip took more than {INSTALL_SECONDS} s to install mindspore-lite {RELEASE}"
    if run.returncode:
        shutil.rmtree(scratch, ignore_errors=True)
        lines = run.stderr.strip().splitlines() or ["no message"]
        return f"pip cannot install mindspore-lite {RELEASE}: {lines[-1]}"
    os.replace(scratch, FOLDER)
    return ""


@pytest.fixture
def lite(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real converter for this test: `hybrid_ops.export.lite_tool.find` finds it. Value: the package's folder."""
    found = environment()
    if isinstance(found, str):
        pytest.skip(found)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return FOLDER / "mindspore_lite"
