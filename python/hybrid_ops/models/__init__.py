"""Adapters that put the operators into model libraries without editing them."""

from typing import TYPE_CHECKING, Any

from hybrid_ops.models.gated_delta import l2norm, recurrent_rule
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet, fused
from hybrid_ops.models.qwen3_5 import causal_conv1d_step, linear_attention_step
from hybrid_ops.models.swap import Installation, install, patched

if TYPE_CHECKING:
    from hybrid_ops.models.paged_attention import use_paged_attention
    from hybrid_ops.models.paged_cache import PagedCache

__all__ = [
    "FusedGatedDeltaNet",
    "Installation",
    "PagedCache",
    "causal_conv1d_step",
    "fused",
    "install",
    "l2norm",
    "linear_attention_step",
    "patched",
    "recurrent_rule",
    "use_paged_attention",
]


def __getattr__(name: str) -> Any:  # these two import transformers
    if name == "PagedCache":
        from hybrid_ops.models.paged_cache import PagedCache

        return PagedCache
    if name == "use_paged_attention":
        from hybrid_ops.models.paged_attention import use_paged_attention

        return use_paged_attention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
