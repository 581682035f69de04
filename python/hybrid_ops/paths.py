"""Where the C++ sources are: beside the package in a checkout, inside it once installed."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path


@cache
def source_dir(name: str) -> Path:
    """Folder ``sim``, ``op_host`` or ``op_kernel``; raises FileNotFoundError when the installation lacks it."""
    checkout = Path(__file__).resolve().parents[2] / name
    if (checkout.parent / "build.sh").exists() and checkout.is_dir():
        return checkout
    installed = Path(str(resources.files(__package__))) / "sources" / name
    if not installed.is_dir():
        raise FileNotFoundError(
            f"hybrid_ops: sources: {name} is missing from the installation: got {installed}"
        )
    return installed
