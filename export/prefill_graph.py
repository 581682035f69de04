"""The prefill of a Qwen3.5-style hybrid model as a function of the prompt, for export.

Batch 1, any prompt length up to a bound. The chunked gated delta rule stands in the graph as matrix products
(`models/chunk_rule.py`); a Custom node of the chunked operator can take its place without any other change.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as functional

from hybrid_ops.export import chunk_graph
from hybrid_ops.export.hybrid_graph import OUTPUT_NAMES, HybridGraph, hidden_bias, text_config
from hybrid_ops.models.gated_delta import chunk_operator_rule
from hybrid_ops.models.qwen3_5 import Rule, linear_attention_prompt

__all__ = ["OUTPUT_NAMES", "Prefill", "input_names", "prompt_inputs"]


def input_names(model: Any) -> tuple[str, ...]:
    """Inputs of the graph; image_embeds only where the model has a token that stands for image patches."""
    names = ("input_ids", "attention_mask", "position_ids")
    return names if image_token(model) is None else (*names, "image_embeds")


def image_token(model: Any) -> int | None:
    """Id of the token whose embedding an image patch replaces, None for a text model."""
    own = vars(model).get("image_token_id")  # a language model taken out of a vision-language one
    return getattr(model.config, "image_token_id", None) if own is None else own


class Prefill(HybridGraph):
    """A whole prompt through a `Qwen3_5ForCausalLM` (or a model with the same submodules).

    forward(input_ids [1,S] int64, attention_mask [1,S] int64 of 0/1, position_ids [4,1,S] int64 (row 0 unused, rows
    1..3 time, height, width), for vision-language models image_embeds [N,H] in the order of the image tokens) ->
    logits [1,S,vocab] ([1,1,vocab], of the last unmasked token, with `last_only`), present_conv_states
    [n_lin,1,conv_dim,K-1], present_recurrent_states [n_lin,1,NV,DK,DV] float32 and present_kv_cache
    [2*n_full,1,KH,S,D] in the order k,v,k,v…, zero-padded to `capacity` columns where that is given.
    Masked tokens may stand on either side of the prompt; they leave no trace in conv and recurrent states.
    S is at most `max_length`. `node` chooses between the operator and its matrix products.
    """

    def __init__(
        self,
        model: Any,
        *,
        soc: str = "ascend310p",
        max_length: int = 2048,
        capacity: int | None = None,
        last_only: bool = False,
        node: bool = True,
        node_experts: bool = False,
    ) -> None:
        super().__init__(model, soc=soc, few=False, node_experts=node_experts)
        self.capacity = capacity
        self.last_only = last_only
        self.image_token = image_token(model)
        self.node = node
        self.max_length = max_length
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.arange(max_length), persistent=False)

    def rule(self, steps: torch.Tensor) -> Rule:
        """The chunked rule for a prompt whose positions are `steps` `[S]`."""
        if self.node:
            lengths = (steps[-1:] + 1).to(torch.int32)
            return functools.partial(chunk_operator_rule, soc=self.soc, lengths=lengths)
        return functools.partial(chunk_graph.rule, max_length=self.max_length)

    def embed(self, input_ids: torch.Tensor, image_embeds: torch.Tensor | None) -> torch.Tensor:
        """Embeddings [1,S,H]; image tokens take the rows of `image_embeds` one after the other."""
        hidden = self.model.embed_tokens(input_ids)
        if image_embeds is None:
            return hidden
        assert self.image_token is not None  # a graph with image_embeds belongs to a vision-language model
        is_image = torch.eq(input_ids, self.image_token)
        # Row 0 is for all other tokens, so that a prompt without images has something to look up.
        row = (torch.cumsum(is_image.float(), dim=1) * is_image.float()).long()
        nothing = torch.zeros(1, image_embeds.shape[1], dtype=hidden.dtype, device=hidden.device)
        rows = torch.cat([nothing, image_embeds.to(hidden.dtype)], dim=0)
        return torch.where(is_image.unsqueeze(-1), functional.embedding(row, rows), hidden)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        image_embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.embed(input_ids, image_embeds)
        rotary = self.rotary(position_ids, hidden.dtype)
        steps = self.steps[: input_ids.shape[1]]
        seen = attention_mask > 0
        end = ((steps + 1) * attention_mask).amax(dim=1)  # [1], columns up to the last unmasked one
        valid = attention_mask.unsqueeze(-1).to(hidden.dtype)
        allowed = (steps.unsqueeze(0) <= steps.unsqueeze(1)) & seen
        bias = hidden_bias(allowed, hidden.dtype)
        rule = self.rule(steps)
        conv: list[torch.Tensor] = []
        recurrent: list[torch.Tensor] = []
        cache: list[torch.Tensor] = []
        for layer in self.model.layers:
            normed = layer.input_layernorm(hidden)
            if hasattr(layer, "linear_attn"):
                mixed, conv_state, state = linear_attention_prompt(
                    layer.linear_attn, normed, valid, end, rule
                )
                conv.append(conv_state)
                recurrent.append(state)
            else:
                query, gate, key, value = self.heads(layer.self_attn, normed, rotary)
                mixed = self.attend(layer.self_attn, query, gate, key, value, bias)
                cache += [key, value]
            hidden = self.finish_layer(layer, hidden, mixed)
        if self.last_only:
            hidden = torch.index_select(hidden, 1, end - 1)
        logits = self.lm_head(self.model.norm(hidden))
        stacked = torch.stack(cache)
        if self.capacity is not None:
            stacked = functional.pad(stacked, (0, 0, 0, self.capacity - stacked.shape[3]))
        return logits, torch.stack(conv), torch.stack(recurrent), stacked


def prompt_inputs(
    model: Any, tokens: torch.Tensor, images: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """All inputs of the graph for a text prompt `tokens` `[1, S]`, none masked; `images` `[N, H]` embeddings."""
    length = tokens.shape[1]
    inputs = {
        "input_ids": tokens,
        "attention_mask": torch.ones(1, length, dtype=torch.long),
        "position_ids": torch.arange(length).expand(4, 1, length).contiguous(),
    }
    if image_token(model) is not None:
        size = text_config(model).hidden_size
        inputs["image_embeds"] = torch.zeros(0, size, dtype=torch.float16) if images is None else images
    return inputs
