"""The decode step of a Qwen3.5-style hybrid model as a function of explicit states, for export.

Batch 1, one token. The key/value cache grows by one column per step, or has a fixed capacity and is written in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hybrid_ops.export import cann_torch
from hybrid_ops.export.hybrid_graph import OUTPUT_NAMES, STATES, HybridGraph, hidden_bias
from hybrid_ops.models.cached import only
from hybrid_ops.models.gated_delta import recurrent_rule
from hybrid_ops.models.qwen3_5 import linear_attention_step

INPUT_NAMES = ("input_ids", "attention_mask", "position_ids", *(f"past_{name}" for name in STATES))
__all__ = ["INPUT_NAMES", "OUTPUT_NAMES", "DecodeStep", "states_from_cache", "step_inputs"]


class DecodeStep(HybridGraph):
    """One decode step of a `Qwen3_5ForCausalLM` (or a model with the same submodules).

    forward(input_ids [1,1] int64, attention_mask [1,P+1] int64 of 0/1, position_ids [4,1,1] int64 (row 0 unused, rows
    1..3 time, height, width), past_conv_states [n_lin,1,conv_dim,K-1], past_recurrent_states [n_lin,1,NV,DK,DV]
    float32, past_kv_cache [2*n_full,1,KH,P,D] in the order k,v,k,v…) -> logits [1,1,vocab] and the three states after
    the step, the cache with P+1 columns. Conv and key/value states have the model's dtype.

    With `capacity` L the cache has L columns before and after and the mask is [1,L]: ones for the tokens seen so far
    and the current one, which is the last of them. The new column goes to position sum(mask) - 1, by CANN's Scatter
    along axis 2 (`scatter`) or by comparing every column with the position, which plain ONNX can say.
    """

    def __init__(
        self,
        model: Any,
        *,
        soc: str = "ascend310p",
        accepted: bool = True,
        capacity: int | None = None,
        scatter: bool = False,
        node_experts: bool = False,
    ) -> None:
        super().__init__(model, soc=soc, few=True, node_experts=node_experts)
        self.accepted = accepted
        self.capacity = capacity
        self.scatter = scatter
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.arange(capacity or 0), persistent=False)

    @property
    def rule(self) -> Callable[..., Any]:
        def rule(*args: Any, **kwargs: Any) -> Any:
            return recurrent_rule(*args, soc=self.soc, accepted=self.accepted, **kwargs)

        return rule

    def cache_position(self, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(int64 `[1]` where the new column goes, bool `[1, L]` which columns it may look at)."""
        position = attention_mask.sum(dim=1) - 1
        return position, (self.steps <= position) & (attention_mask > 0)

    def append(self, past: torch.Tensor, new: torch.Tensor, position: torch.Tensor | None) -> torch.Tensor:
        """The cache `[1, KH, P or L, D]` with the new column."""
        if position is None:
            return torch.cat([past, new], dim=2)
        if self.scatter:
            return cann_torch.scatter(past, position, new.to(past.dtype), "update", 2)
        here = (self.steps == position).reshape(1, 1, -1, 1)
        return torch.where(here, new.to(past.dtype), past)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_conv_states: torch.Tensor,
        past_recurrent_states: torch.Tensor,
        past_kv_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.model.embed_tokens(input_ids)
        rotary = self.rotary(position_ids, hidden.dtype)
        if self.capacity is None:
            position, allowed = None, attention_mask
        else:
            position, allowed = self.cache_position(attention_mask)
        bias = hidden_bias(allowed, hidden.dtype)[:, None, None, :]
        conv: list[torch.Tensor] = []
        recurrent: list[torch.Tensor] = []
        cache: list[torch.Tensor] = []
        for layer in self.model.layers:
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
                query, gate, key, value = self.heads(layer.self_attn, normed, rotary)
                key = self.append(past_kv_cache[i], key, position)
                value = self.append(past_kv_cache[i + 1], value, position)
                mixed = self.attend(layer.self_attn, query, gate, key, value, bias)
                cache += [key, value]
            hidden = self.finish_layer(layer, hidden, mixed)
        logits = self.lm_head(self.model.norm(hidden))
        return logits, torch.stack(conv), torch.stack(recurrent), torch.stack(cache)


def states_from_cache(cache: Any, config: Any, capacity: int | None = None) -> dict[str, torch.Tensor]:
    """The three past_* inputs from a transformers cache after a prefill (batch 1); zeros up to `capacity`.

    transformers keeps K raw columns of the convolution, the graph the last K-1.
    """
    conv, recurrent, keys = [], [], []
    for index, kind in enumerate(config.layer_types):
        layer = cache.layers[index]
        if kind == "linear_attention":
            columns = config.linear_conv_kernel_dim - 1
            conv.append(only(layer.conv_states)[:, :, -columns:])
            recurrent.append(only(layer.recurrent_states).float())
        else:
            keys += [layer.keys, layer.values]
    stacked = torch.stack(keys).clone()
    if capacity is not None:
        stacked = torch.nn.functional.pad(stacked, (0, 0, 0, capacity - stacked.shape[3]))
    return {
        "past_conv_states": torch.stack(conv).clone(),
        "past_recurrent_states": torch.stack(recurrent).clone(),
        "past_kv_cache": stacked,
    }


def step_inputs(
    token: int, past: int, states: dict[str, torch.Tensor], capacity: int | None = None
) -> dict[str, torch.Tensor]:
    """All inputs of one text decode step at position `past` (number of tokens already seen, none masked)."""
    mask = torch.ones(1, past + 1, dtype=torch.long)
    if capacity is not None:
        mask = torch.nn.functional.pad(mask, (0, capacity - past - 1))
    return {
        "input_ids": torch.tensor([[token]]),
        "attention_mask": mask,
        "position_ids": torch.full((4, 1, 1), past),
        **states,
    }
