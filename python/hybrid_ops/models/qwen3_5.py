"""Layer-level adapter for Qwen3.5's gated delta net: one decode token with explicit states.

Works on the attributes of transformers' `Qwen3_5GatedDeltaNet` (in_proj_qkv, in_proj_z, in_proj_b, in_proj_a,
conv1d, A_log, dt_bias, norm, out_proj), which kept their names over every release that has the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

from hybrid_ops.models.gated_delta import recurrent_rule


def causal_conv1d_step(
    mixed: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of the depthwise causal convolution followed by SiLU.

    mixed `[B, C, 1]`; conv_state `[B, C, K-1]`, the last K-1 raw columns; weight `[C, K]`; bias `[C]`.
    Returns `[B, C, 1]` and the slid state. A product and a sum over K columns: a grouped Conv with one channel per
    group costs a cube pass per channel on Ascend and gains nothing for a single output column.
    """
    window = torch.cat([conv_state, mixed.to(conv_state.dtype)], dim=-1)
    out = (window * weight).sum(dim=-1, keepdim=True)
    if bias is not None:
        out = out + bias[:, None]
    return functional.silu(out), window[:, :, 1:]


def linear_attention_step(
    layer: Any,
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    recurrent_state: torch.Tensor,
    rule: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = recurrent_rule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The decode branch of a gated delta net layer as a pure function of its states.

    hidden_states `[B, 1, H]`; conv_state `[B, conv_dim, K-1]`; recurrent_state float32 `[B, NV, DK, DV]`.
    Returns the layer's output `[B, 1, H]` and both new states. Gates are formed in float32: exp(A_log) of a float16
    parameter may be infinite.
    """
    batch, length, _ = hidden_states.shape
    mixed = layer.in_proj_qkv(hidden_states).transpose(1, 2)
    gate = layer.in_proj_z(hidden_states).reshape(batch, length, -1, layer.head_v_dim)
    beta = layer.in_proj_b(hidden_states).sigmoid()
    rate = functional.softplus(layer.in_proj_a(hidden_states).float() + layer.dt_bias.float())
    log_decay = -layer.A_log.float().exp() * rate

    mixed, conv_state = causal_conv1d_step(
        mixed, conv_state, layer.conv1d.weight.squeeze(1), layer.conv1d.bias
    )
    query, key, value = torch.split(
        mixed.transpose(1, 2), [layer.key_dim, layer.key_dim, layer.value_dim], dim=-1
    )
    core, state = rule(
        query.reshape(batch, length, -1, layer.head_k_dim),
        key.reshape(batch, length, -1, layer.head_k_dim),
        value.reshape(batch, length, -1, layer.head_v_dim),
        g=log_decay,
        beta=beta,
        initial_state=recurrent_state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    core = layer.norm(core.reshape(-1, layer.head_v_dim), gate.reshape(-1, layer.head_v_dim))
    assert state is not None
    return layer.out_proj(core.reshape(batch, length, -1)), conv_state, state
