"""Operators of hybrid linear-attention models for Ascend NPUs, with a CPU simulator for their kernels.

Every operator of contract.json is a function here, by its snake_case name.
"""

from __future__ import annotations

import importlib
from typing import Any

from .check import HybridOpsError, supported
from .contract import ContractError
from .contract import load as _load
from .npu_path import announce as _announce

_announce()
__version__ = "0.1.0"
__all__ = ["HybridOpsError", "__version__", "supported"]

_LAZY = {"SimulatorHazard": "sim", "GatedDeltaError": "gated_delta", "GatedDeltaInput": "gated_delta",
         "GatedDeltaOutput": "gated_delta", "gated_delta_rule": "gated_delta", "using": "runtime"}  # fmt: skip


def _operators() -> list[str]:
    try:
        return list(_load())
    except ContractError as error:  # as AttributeError, which leaves submodules importable
        raise AttributeError(str(error)) from error


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        found = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    elif not name.startswith("_") and name in _operators():
        from . import api

        found = api.public(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY, *_load()])
