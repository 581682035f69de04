"""A transformers model and its cache under the names that its release has for them.

transformers 5.24 renamed the argument and the output field `past_key_values` to `cache`; `get_conv_state` and
`get_recurrent_state` are younger than the states they return.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

NEW, OLD = "cache", "past_key_values"


def _argument(model: Any) -> str:
    return NEW if NEW in inspect.signature(model.forward).parameters else OLD


def forward(model: Any, tokens: torch.Tensor, cache: Any = None) -> tuple[torch.Tensor, Any]:
    """Logits `[B, T, vocab]` of `tokens` `[B, T]` after those in `cache` (None: none), and the cache with them.

    The cache given is the one that is extended. Gradients are not recorded.
    """
    with torch.no_grad():
        result = model(tokens, use_cache=True, **({} if cache is None else {_argument(model): cache}))
    return result.logits, getattr(result, NEW, None) or getattr(result, OLD)


def linear_states(cache: Any, index: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(conv `[B, conv_dim, K]`, recurrent `[B, NV, DK, DV]`) of layer `index`, None before its first token."""
    if hasattr(cache, "get_conv_state"):
        conv, recurrent = cache.get_conv_state(index), cache.get_recurrent_state(index)
        return None if conv is None or recurrent is None else (conv, recurrent)
    if not cache.has_previous_state(index):
        return None
    layer = cache.layers[index]
    return only(layer.conv_states), only(layer.recurrent_states)


def only(states: Any) -> torch.Tensor:
    """The tensor of a layer's states; some releases keep a list or dict of them, others the tensor itself."""
    return states if isinstance(states, torch.Tensor) else states[0]
