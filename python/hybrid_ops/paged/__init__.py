"""Paged attention as a library: plans checked on the host, attention and MLA over pages, cache append, vLLM-shaped calls.

    host = HostPlan(page_size, pages, tables, lengths, sequence_ids, positions)   # every rule checked here
    plan = DevicePlan.upload(host, query)                                         # once per step, for all layers
    key_cache, value_cache, report = append(plan, key, value, key_cache, value_cache)
    out = attention(plan, query, key_cache, value_cache, scale_value, causal=True)

A refused call raises PagedError before anything runs; its text says what, got and allowed.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "AppendReport": "appending", "Appended": "appending", "append": "appending", "DevicePlan": "device_plan", "HostPlan": "host_plan",
    "PADDING": "host_plan", "PagedError": "errors", "SplitWorkspace": "workspace", "attention": "attend",
    "attention_with_workspace": "attend", "mla": "attend", "mla_with_workspace": "attend", "nd_to_nz": "layouts",
    "nz_to_nd": "layouts", "paged_attention": "shims", "reshape_and_cache": "shims", "slots_of": "slots",
}  # fmt: skip
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
