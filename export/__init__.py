"""ONNX export for MindSpore Lite: Custom nodes from the contract, a checker, and execution on the CPU.

Submodules are imported on demand: onnx, onnxscript, torch and transformers are optional dependencies.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "PROFILES": "profiles",
    "Profile": "profiles",
    "profile": "profiles",
    "custom_attributes": "custom_node",
    "DecodeStep": "decode_graph",
    "PagedDecodeStep": "paged_decode",
    "Prefill": "prefill_graph",
    "export_decode": "decode",
    "export_paged_decode": "paged_decode",
    "export_prefill": "decode",
    "export_module": "onnx_export",
    "save_model": "save",
    "check_model": "lite_rules",
    "check_file": "lite_rules",
    "Finding": "lite_rules",
    "GraphRunner": "run_graph",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
