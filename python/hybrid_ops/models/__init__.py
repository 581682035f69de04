"""Adapters that put the operators into model libraries without editing them."""

from hybrid_ops.models.gated_delta import l2norm, recurrent_rule
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet, fused
from hybrid_ops.models.qwen3_5 import causal_conv1d_step, linear_attention_step
from hybrid_ops.models.swap import Installation, install, patched

__all__ = [
    "FusedGatedDeltaNet",
    "Installation",
    "causal_conv1d_step",
    "fused",
    "install",
    "l2norm",
    "linear_attention_step",
    "patched",
    "recurrent_rule",
]
