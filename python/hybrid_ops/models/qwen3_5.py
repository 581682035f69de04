"""Layer-level adapter for the gated delta nets of Qwen3.5 and Qwen3-Next, as pure functions of their states.

Works on the attributes of transformers' `Qwen3_5GatedDeltaNet` (in_proj_qkv, in_proj_z, in_proj_b, in_proj_a) and
`Qwen3NextGatedDeltaNet` (in_proj_qkvz, in_proj_ba), and on those both have (conv1d, A_log, dt_bias, norm, out_proj);
they kept their names over every release that has the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

from hybrid_ops.models.chunk_rule import chunk_rule
from hybrid_ops.models.gated_delta import recurrent_rule

Rule = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]


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


def causal_conv1d_prompt(
    mixed: torch.Tensor, end: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole prompt through the depthwise causal convolution and SiLU, nothing before it.

    mixed `[B, C, T]`; end, int64 `[1]`, how many columns the prompt has up to its last valid one; weight `[C, K]`.
    Returns `[B, C, T]` and the state a decode step starts from: the K-1 raw columns up to `end`, with zeros in front
    of a prompt shorter than that. K shifted products instead of a grouped Conv, as in `causal_conv1d_step`.
    """
    taps, length = weight.shape[-1], mixed.shape[-1]
    window = functional.pad(mixed, (taps - 1, 0))
    out = window[:, :, :length] * weight[:, :1]
    for tap in range(1, taps):
        out = out + window[:, :, tap : tap + length] * weight[:, tap : tap + 1]
    if bias is not None:
        out = out + bias[:, None]
    columns = end + torch.arange(taps - 1, device=mixed.device)
    return functional.silu(out), torch.index_select(window, 2, columns)


def projections(
    layer: Any, hidden_states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(mixed query, key, value `[B, T, conv_dim]`, gate `[B, T, NV, DV]`, b, a `[B, T, NV]`) of a layer's input.

    Qwen3-Next fuses them per key head: rows of in_proj_qkvz are query, key, values, gates of head 0, then of head 1 …
    """
    batch, length, _ = hidden_states.shape
    if hasattr(layer, "in_proj_qkv"):
        gate = layer.in_proj_z(hidden_states).reshape(batch, length, -1, layer.head_v_dim)
        b, a = layer.in_proj_b(hidden_states), layer.in_proj_a(hidden_states)
        return layer.in_proj_qkv(hidden_states), gate, b, a
    heads, groups = layer.num_k_heads, layer.num_v_heads // layer.num_k_heads
    size, wide = layer.head_k_dim, groups * layer.head_v_dim
    fused = layer.in_proj_qkvz(hidden_states).reshape(batch, length, heads, 2 * size + 2 * wide)
    query, key, value, gate = torch.split(fused, [size, size, wide, wide], dim=-1)
    mixed = torch.cat([x.reshape(batch, length, -1) for x in (query, key, value)], dim=-1)
    ba = layer.in_proj_ba(hidden_states).reshape(batch, length, heads, 2 * groups)
    b, a = torch.split(ba, [groups, groups], dim=-1)
    b, a = b.reshape(batch, length, heads * groups), a.reshape(batch, length, heads * groups)
    return mixed, gate.reshape(batch, length, -1, layer.head_v_dim), b, a


def _mix(
    layer: Any,
    mixed: torch.Tensor,
    gate: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor | None,
    rule: Rule,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What follows the convolution `mixed` `[B, T, conv_dim]`: rule, gated norm, output projection."""
    batch, length, _ = mixed.shape
    query, key, value = torch.split(mixed, [layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
    core, new_state = rule(
        query.reshape(batch, length, -1, layer.head_k_dim),
        key.reshape(batch, length, -1, layer.head_k_dim),
        value.reshape(batch, length, -1, layer.head_v_dim),
        g=log_decay,
        beta=beta,
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    core = layer.norm(core.reshape(-1, layer.head_v_dim), gate.reshape(-1, layer.head_v_dim))
    assert new_state is not None
    return layer.out_proj(core.reshape(batch, length, -1)), new_state


def gates(layer: Any, b: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log decay float32, beta). Formed in float32: exp(A_log) of a float16 parameter may be infinite."""
    rate = functional.softplus(a.float() + layer.dt_bias.float())
    return -layer.A_log.float().exp() * rate, b.sigmoid()


def linear_attention_step(
    layer: Any,
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    recurrent_state: torch.Tensor,
    rule: Rule = recurrent_rule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The decode branch of a gated delta net layer.

    hidden_states `[B, 1, H]`; conv_state `[B, conv_dim, K-1]`; recurrent_state float32 `[B, NV, DK, DV]`.
    Returns the layer's output `[B, 1, H]` and both new states.
    """
    mixed, gate, b, a = projections(layer, hidden_states)
    log_decay, beta = gates(layer, b, a)
    mixed, conv_state = causal_conv1d_step(
        mixed.transpose(1, 2), conv_state, layer.conv1d.weight.squeeze(1), layer.conv1d.bias
    )
    out, state = _mix(layer, mixed.transpose(1, 2), gate, log_decay, beta, recurrent_state, rule)
    return out, conv_state, state


def linear_attention_prompt(
    layer: Any,
    hidden_states: torch.Tensor,
    valid: torch.Tensor,
    end: torch.Tensor,
    rule: Rule = chunk_rule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The prefill branch of a gated delta net layer, without states before it.

    hidden_states `[B, T, H]`; valid `[B, T, 1]` 1 or 0 in their dtype; end int64 `[1]`, columns up to the last valid
    one. Masked tokens do not touch the states, on whichever side of the prompt they stand: their input is zero (what
    transformers does, right for padding on the left), and they neither decay nor write.
    Returns the layer's output `[B, T, H]`, the conv state `[B, conv_dim, K-1]` and the state float32 `[B, NV, DK, DV]`.
    """
    mixed, gate, b, a = projections(layer, hidden_states * valid)
    log_decay, beta = gates(layer, b, a)
    mixed, conv_state = causal_conv1d_prompt(
        mixed.transpose(1, 2), end, layer.conv1d.weight.squeeze(1), layer.conv1d.bias
    )
    out, state = _mix(layer, mixed.transpose(1, 2), gate, log_decay * valid.float(), beta * valid, None, rule)
    return out, conv_state, state
