"""The distribution holds every package of the sources."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_folder_with_an_init_is_packaged():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = (path.parent.relative_to(ROOT / "python") for path in (ROOT / "python").rglob("__init__.py"))
    missing = {".".join(path.parts) for path in found} - set(listed)
    assert not missing, f"not in pyproject.toml: {sorted(missing)}"
