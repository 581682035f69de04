"""Mixture of experts as a library: routing, dispatch, SwiGLU experts, combination; every rule checked before anything runs.

    experts = SwiGluExperts(gate, up, down)                      # packed once; from_fused(gate_up, down) for checkpoints
    out = experts.forward(x, logits, SoftmaxOptions(top_k=8, renormalize=True))

    plan = route(logits, SoftmaxOptions(top_k=8, renormalize=True))                # the same in steps
    tokens = plan.dispatch(x)
    out = tokens.combine(experts.forward_dispatched(tokens))

Logits are the caller's, and so are shared experts and residuals. A refused call raises MoeError; its text says what, got and
allowed.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "DispatchedTokens": "dispatched", "GroupedStrategy": "strategies", "MoeError": "errors", "RoutingPlan": "routing",
    "SigmoidGroupedOptions": "routing", "SoftmaxOptions": "routing", "SwiGluExperts": "experts", "dispatch": "dispatched",
    "forward": "experts", "forward_sigmoid_grouped": "experts", "fused_experts": "shims", "npu_moe_gating_top_k": "shims",
    "npu_moe_gating_top_k_softmax": "shims", "npu_moe_init_routing_v2": "shims", "npu_moe_token_permute": "shims",
    "npu_moe_token_unpermute": "shims",
    "route": "routing", "route_sigmoid_grouped": "routing", "select_experts": "shims",
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
