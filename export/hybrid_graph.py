"""What the prefill and the decode graph of a hybrid model share: parts of the model, rope, attention, feed-forward.

Only the submodules and weights of the transformers model are used; the data flow is written here, so that the graphs
have no cache object, no data-dependent control flow, no OneHot, ScatterND or grouped Conv. Batch 1 throughout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hybrid_ops import check
from hybrid_ops.models import experts

STATES = ("conv_states", "recurrent_states", "kv_cache")
OUTPUT_NAMES = ("logits", *(f"present_{name}" for name in STATES))


def _refuse(wrong: str, got: object, allowed: str, soc: str) -> check.HybridOpsError:
    return check.refuse("export", "model", wrong, got=got, allowed=allowed, soc=soc)


def text_model(model: Any) -> Any:
    """The module with embed_tokens, layers, norm, rotary_emb; inside `language_model` of a vision-language model."""
    body = getattr(model, "model", None)
    return getattr(body, "language_model", body)


def text_config(model: Any) -> Any:
    """The language model's config, inside `text_config` of a vision-language model's."""
    return getattr(model.config, "text_config", None) or model.config


def check_model_layers(model: Any, soc: str) -> None:
    """Refuse a model that these graphs do not describe, before anything is traced."""
    layers = getattr(text_model(model), "layers", None)
    name = type(model).__name__
    if layers is None:
        raise _refuse("no decoder layers", name, "a causal language model of Qwen3.5 or Qwen3-Next", soc)
    kinds = {"linear_attn" if hasattr(layer, "linear_attn") else "self_attn" for layer in layers}
    if len(kinds) < 2:
        raise _refuse("not a hybrid", f"{name} with {', '.join(kinds)} only", "both layer kinds", soc)
    for layer in layers:
        mixer = getattr(layer, "linear_attn", None)
        if mixer is not None and not (hasattr(mixer, "in_proj_qkv") or hasattr(mixer, "in_proj_qkvz")):
            raise _refuse(
                "projections of unknown form",
                type(mixer).__name__,
                "in_proj_qkv, in_proj_z, in_proj_b, in_proj_a as in Qwen3.5 or in_proj_qkvz, in_proj_ba as in Qwen3-Next",
                soc,
            )
        if experts.is_sparse(layer.mlp):
            experts.refuse_unknown_experts(layer.mlp, soc)


def rope_table(rotary: Any) -> torch.Tensor:
    """Inverse frequencies per position axis, `[3, rotary_dim / 2]`: row 0 text/time, 1 height, 2 width.

    Multimodal rope takes each frequency's position from one of three axes, interleaved t, h, w, t, h, w … as long as
    mrope_section has entries. With zeros elsewhere, a sum over the rows selects it without any indexed write. A text
    model (no mrope_section) has all of them in row 0.
    """
    frequencies = rotary.inv_freq.detach().float()
    table = torch.zeros(3, frequencies.numel())
    axis = torch.zeros(frequencies.numel(), dtype=torch.long)
    section = getattr(rotary, "mrope_section", None)
    if section is not None:
        for which in (1, 2):
            axis[which : section[which] * 3 : 3] = which
    table[axis, torch.arange(frequencies.numel())] = frequencies.cpu()
    return table


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of the first `cos.shape[-1]` channels of `x` `[1, heads, T, D]`; the others pass."""
    size = cos.shape[-1]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    first, second, rest = torch.split(x, [size // 2, size // 2, x.shape[-1] - size], dim=-1)
    rotated = torch.cat([first, second], dim=-1) * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([rotated, rest], dim=-1)


def hidden_bias(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to float32 scores: 0 where `allowed` (1 or True), the least number of `dtype` elsewhere."""
    return (1.0 - allowed.float()) * torch.finfo(dtype).min


class HybridGraph(nn.Module):
    """Base of the two graphs; submodules carry the names they have in the checkpoint of a text model."""

    def __init__(self, model: Any, *, soc: str, few: bool, node_experts: bool = False) -> None:
        super().__init__()
        check_model_layers(model, soc)
        self.model: Any = text_model(model)
        self.lm_head: nn.Module = model.lm_head
        self.soc = soc
        self.few = few
        self.node_experts = node_experts
        self.rope: torch.Tensor
        self.register_buffer("rope", rope_table(self.model.rotary_emb), persistent=False)

    def rotary(self, position_ids: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin `[1, T, rotary_dim]` of position_ids `[4, 1, T]` (rows 1..3: time, height, width)."""
        position = position_ids.float().unsqueeze(-1)
        angle = position[1] * self.rope[0] + position[2] * self.rope[1] + position[3] * self.rope[2]
        angle = torch.cat([angle, angle], dim=-1)
        scaling = self.model.rotary_emb.attention_scaling
        return (angle.cos() * scaling).to(dtype), (angle.sin() * scaling).to(dtype)

    def heads(
        self, layer: Any, hidden: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """query `[1, H, T, D]`, output gate `[1, T, H*D]`, key and value `[1, KH, T, D]` of `hidden` `[1, T, C]`."""
        size, length = layer.head_dim, hidden.shape[1]
        query, gate = torch.split(layer.q_proj(hidden).reshape(1, length, -1, 2 * size), [size, size], dim=-1)
        query = rotate(layer.q_norm(query).transpose(1, 2), *rotary)
        key = layer.k_norm(layer.k_proj(hidden).reshape(1, length, -1, size)).transpose(1, 2)
        value = layer.v_proj(hidden).reshape(1, length, -1, size).transpose(1, 2)
        return query, gate.reshape(1, length, -1), rotate(key, *rotary), value

    def attend(
        self,
        layer: Any,
        query: torch.Tensor,
        gate: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor,
    ) -> torch.Tensor:
        """Attention output `[1, T, C]`; `bias` float32, broadcast to `[KH, G, T, keys]`.

        Grouped heads stay a matrix axis (`[KH, G, T, D] @ [KH, 1, D, keys]`): nothing is repeated.
        """
        size, length = layer.head_dim, query.shape[2]
        grouped = query.reshape(key.shape[1], layer.num_key_value_groups, length, size)
        keys, values = key.transpose(0, 1), value.transpose(0, 1)
        scores = torch.matmul(grouped, keys.transpose(2, 3)) * layer.scaling
        weights = torch.softmax(scores.float() + bias, dim=-1).to(value.dtype)
        out = torch.matmul(weights, values).reshape(1, -1, length, size).transpose(1, 2)
        return layer.o_proj(out.reshape(1, length, -1) * torch.sigmoid(gate))

    def finish_layer(self, layer: Any, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Both residual connections and the feed-forward block."""
        hidden = hidden + mixed
        normed = layer.post_attention_layernorm(hidden)
        node_soc = self.soc if self.node_experts else None
        return hidden + experts.feed_forward(layer.mlp, normed, few=self.few, node_soc=node_soc)
