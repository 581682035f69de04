"""The decode step of a Qwen3.5-style hybrid model as a function of explicit states, for export.

Only the submodules and weights of the transformers model are used; the data flow is written here, so that the graph
has no cache object, no data-dependent control flow, no OneHot, ScatterND or grouped Conv. Batch 1, one token, the
key/value cache grows by one column per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hybrid_ops import check
from hybrid_ops.models.gated_delta import recurrent_rule
from hybrid_ops.models.qwen3_5 import linear_attention_step

INPUT_NAMES = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "past_conv_states",
    "past_recurrent_states",
    "past_kv_cache",
)
OUTPUT_NAMES = ("logits", "present_conv_states", "present_recurrent_states", "present_kv_cache")


def check_model_layers(model: Any, soc: str) -> None:
    """Refuse a model that this graph does not describe, before anything is traced."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    name = type(model).__name__
    if layers is None:
        raise check.refuse(
            "export",
            "model",
            "no decoder layers",
            got=name,
            allowed="a causal language model of Qwen3.5",
            soc=soc,
        )
    kinds = {"linear_attn" if hasattr(layer, "linear_attn") else "self_attn" for layer in layers}
    if len(kinds) < 2:
        raise check.refuse(
            "export",
            "model",
            "not a hybrid",
            got=f"{name} with {kinds} only",
            allowed="both layer kinds",
            soc=soc,
        )
    for layer in layers:
        if hasattr(layer, "linear_attn") and not hasattr(layer.linear_attn, "in_proj_qkv"):
            raise check.refuse(
                "export",
                "model",
                "projections are fused",
                got=type(layer.linear_attn).__name__,
                allowed="in_proj_qkv, in_proj_z, in_proj_b, in_proj_a as in Qwen3.5",
                soc=soc,
            )
        if hasattr(layer.mlp, "experts"):
            raise check.refuse(
                "export",
                "model",
                "experts are chosen by data-dependent control flow",
                got=type(layer.mlp).__name__,
                allowed="a dense mlp",
                soc=soc,
            )


def rope_table(rotary: Any) -> torch.Tensor:
    """Inverse frequencies per position axis, `[3, rotary_dim / 2]`: row 0 text/time, 1 height, 2 width.

    Multimodal rope takes each frequency's position from one of three axes, interleaved t, h, w, t, h, w … as long as
    mrope_section has entries. With zeros elsewhere, a sum over the rows selects it without any indexed write.
    """
    frequencies = rotary.inv_freq.detach().float()
    table = torch.zeros(3, frequencies.numel())
    axis = torch.zeros(frequencies.numel(), dtype=torch.long)
    for which, offset in ((1, 1), (2, 2)):
        axis[offset : rotary.mrope_section[which] * 3 : 3] = which
    table[axis, torch.arange(frequencies.numel())] = frequencies.cpu()
    return table


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of the first `cos.shape[-1]` channels of `x`; the others pass."""
    size = cos.shape[-1]
    first, second, rest = torch.split(x, [size // 2, size // 2, x.shape[-1] - size], dim=-1)
    rotated = torch.cat([first, second], dim=-1) * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([rotated, rest], dim=-1)


class DecodeStep(nn.Module):
    """One decode step of a `Qwen3_5ForCausalLM` (or a model with the same submodules).

    forward(input_ids [1,1] int64, attention_mask [1,P+1] int64 of 0/1, position_ids [4,1,1] int64 (row 0 unused, rows
    1..3 time, height, width), past_conv_states [n_lin,1,conv_dim,K-1], past_recurrent_states [n_lin,1,NV,DK,DV]
    float32, past_kv_cache [2*n_full,1,KH,P,D] in the order k,v,k,v…) -> logits [1,1,vocab] and the three states after
    the step, the cache with P+1 columns. Conv and key/value states have the model's dtype.
    """

    def __init__(self, model: Any, *, soc: str = "ascend310p", accepted: bool = True) -> None:
        super().__init__()
        check_model_layers(model, soc)
        self.body: Any = model.model
        self.lm_head: nn.Module = model.lm_head
        self.soc = soc
        self.accepted = accepted
        self.rope: torch.Tensor
        self.register_buffer("rope", rope_table(self.body.rotary_emb), persistent=False)

    @property
    def rule(self) -> Callable[..., Any]:
        def rule(*args: Any, **kwargs: Any) -> Any:
            return recurrent_rule(*args, soc=self.soc, accepted=self.accepted, **kwargs)

        return rule

    def rotary(self, position_ids: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        position = position_ids.float()
        angle = position[1] * self.rope[0] + position[2] * self.rope[1] + position[3] * self.rope[2]
        angle = torch.cat([angle, angle], dim=-1).unsqueeze(1)
        scaling = self.body.rotary_emb.attention_scaling
        return (angle.cos() * scaling).to(dtype), (angle.sin() * scaling).to(dtype)

    def full_attention(
        self,
        layer: Any,
        hidden: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        past: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Grouped heads stay a matrix axis (`[1, KH, G, D] @ [1, KH, D, P+1]`): nothing is repeated or expanded."""
        size = layer.head_dim
        query, gate = torch.split(layer.q_proj(hidden).view(1, 1, -1, 2 * size), [size, size], dim=-1)
        query = rotate(layer.q_norm(query).transpose(1, 2), *rotary)
        key = rotate(layer.k_norm(layer.k_proj(hidden).view(1, 1, -1, size)).transpose(1, 2), *rotary)
        value = layer.v_proj(hidden).view(1, 1, -1, size).transpose(1, 2)
        key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        grouped = query.reshape(1, key.shape[1], layer.num_key_value_groups, size)
        scores = torch.matmul(grouped, key.transpose(2, 3)) * layer.scaling + bias
        weights = torch.softmax(scores.float(), dim=-1).to(value.dtype)
        out = torch.matmul(weights, value).reshape(1, 1, -1) * torch.sigmoid(gate.reshape(1, 1, -1))
        return layer.o_proj(out), key, value

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_conv_states: torch.Tensor,
        past_recurrent_states: torch.Tensor,
        past_kv_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.body.embed_tokens(input_ids)
        rotary = self.rotary(position_ids, hidden.dtype)
        bias = (1.0 - attention_mask.to(hidden.dtype))[:, None, None, :] * torch.finfo(hidden.dtype).min
        conv: list[torch.Tensor] = []
        recurrent: list[torch.Tensor] = []
        cache: list[torch.Tensor] = []
        for layer in self.body.layers:
            normed = layer.input_layernorm(hidden)
            if hasattr(layer, "linear_attn"):
                i = len(conv)
                mixed, conv_state, state = linear_attention_step(
                    layer.linear_attn, normed, past_conv_states[i], past_recurrent_states[i], self.rule
                )
                conv.append(conv_state)
                recurrent.append(state)
            else:
                i = len(cache)
                past = (past_kv_cache[i], past_kv_cache[i + 1])
                mixed, key, value = self.full_attention(layer.self_attn, normed, rotary, bias, past)
                cache += [key, value]
            hidden = hidden + mixed
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        logits = self.lm_head(self.body.norm(hidden))
        return logits, torch.stack(conv), torch.stack(recurrent), torch.stack(cache)


def states_from_cache(cache: Any, config: Any) -> dict[str, torch.Tensor]:
    """The three past_* inputs from a transformers cache after a prefill (batch 1).

    transformers keeps K raw columns of the convolution, the graph the last K-1.
    """
    conv, recurrent, keys = [], [], []
    for index, kind in enumerate(config.layer_types):
        layer = cache.layers[index]
        if kind == "linear_attention":
            columns = config.linear_conv_kernel_dim - 1
            conv.append(_only(layer.conv_states)[:, :, -columns:])
            recurrent.append(_only(layer.recurrent_states).float())
        else:
            keys += [layer.keys, layer.values]
    return {
        "past_conv_states": torch.stack(conv).clone(),
        "past_recurrent_states": torch.stack(recurrent).clone(),
        "past_kv_cache": torch.stack(keys).clone(),
    }


def _only(states: Any) -> torch.Tensor:
    """transformers >= 5.23 keeps a list or dict of states per layer, earlier releases one tensor."""
    return states if isinstance(states, torch.Tensor) else states[0]


def step_inputs(token: int, past: int, states: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All inputs of one text decode step at position `past` (number of tokens already seen, none masked)."""
    return {
        "input_ids": torch.tensor([[token]]),
        "attention_mask": torch.ones(1, past + 1, dtype=torch.long),
        "position_ids": torch.full((4, 1, 1), past),
        **states,
    }
