"""Attention function for transformers' AttentionInterface that reads pages: grouped heads and MLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from hybrid_ops.models.paged_cache import HANDOVER, PagedLayer
from hybrid_ops.models.pages import PageTables, Step
from hybrid_ops.models.releases import PAGED, check_release
from hybrid_ops.paged.attend import attention, mla
from hybrid_ops.paged.errors import refuse, refusing

NAME = "hybrid_paged"
WHERE = "use_paged_attention"
UNSERVED = (
    "sliding_window",
    "softcap",
    "s_aux",
    "position_bias",
    "dropout",
)  # keywords that change the result


def padding_mask(
    *, kv_length: int, mask_function: Callable[..., Any] = causal_mask_function, attention_mask: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor | None:  # fmt: skip
    """The 2-D padding mask as it is, None where every column is a token; masks other than the causal one are refused."""
    if mask_function is not causal_mask_function:
        got = getattr(mask_function, "__qualname__", str(mask_function))
        raise refuse(WHERE, "mask", "not the plain causal mask", got, "causal attention with padding")
    if attention_mask is None or (attention_mask.shape[1] == kv_length and bool(attention_mask.all())):
        return None
    return attention_mask[:, -kv_length:]


def paged_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What AttentionInterface calls: query [B, HQ, T, D], new key and value [B, HKV, T, D] -> [B, T, HQ, DV].

    The new rows go to the pages first. Without a PagedCache a prompt gets pages of its own for the call.
    """
    if attention_mask is not None and (attention_mask.dim() != 2 or attention_mask.dtype != torch.bool):
        got = f"{attention_mask.dtype} of rank {attention_mask.dim()}"
        raise refuse(WHERE, "attention_mask", "not a padding mask", got, "bool [B, columns]")
    for option in UNSERVED:
        if kwargs.get(option):
            got = (
                f"{kwargs[option]}"
                if isinstance(kwargs[option], int | float)
                else type(kwargs[option]).__name__
            )
            raise refuse(WHERE, option, "not served by paged attention", got, "None")
    layer: PagedLayer | None = kwargs.get(HANDOVER)
    if layer is None:
        if key.shape[2] != query.shape[2]:
            got = f"{key.shape[2]} keys for {query.shape[2]} queries"
            raise refuse(
                WHERE, "cache", "not a paged cache", got, "cache=PagedCache(model.config), or no cache"
            )
        layer = PagedLayer(PageTables(max(1, key.shape[2])))
        layer.update(key, value, kwargs={})
        latent = False
    else:
        latent = hasattr(module, "kv_lora_rank")
    step = layer.write(attention_mask)
    packed = query.transpose(1, 2)
    batch, tokens = packed.shape[:2]
    rows = packed.flatten(0, 1)
    if step.rows is not None:
        rows = rows[step.rows]
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    read = _latent if latent else _grouped
    out = read(module, step, rows.contiguous(), layer, scale)
    if step.rows is not None:
        whole = out.new_zeros(batch * tokens, *out.shape[1:])
        whole[step.rows] = out
        out = whole
    return out.unflatten(0, (batch, tokens)), None


def _grouped(
    module: nn.Module, step: Step, rows: torch.Tensor, layer: PagedLayer, scale: float
) -> torch.Tensor:
    return attention(step.plan, rows, *layer.pools(), scale, True)


def _latent(module: Any, step: Step, rows: torch.Tensor, layer: PagedLayer, scale: float) -> torch.Tensor:
    """DeepSeek's MLA: the key projection is absorbed into the query, the value projection follows the attention."""
    nope, rope = torch.split(rows, [module.qk_nope_head_dim, module.qk_rope_head_dim], dim=-1)
    weight = module.kv_b_proj.weight.unflatten(0, (rows.shape[1], -1))
    to_key, to_value = torch.split(weight, [module.qk_nope_head_dim, module.v_head_dim], dim=1)
    absorbed = torch.einsum("nhd,hdr->nhr", nope, to_key)
    context = mla(step.plan, absorbed.contiguous(), rope.contiguous(), *layer.pools(), scale, True)
    return torch.einsum("nhr,hvr->nhv", context, to_value)


def register() -> str:
    """Make the attention function known to transformers; returns its name for `set_attn_implementation`."""
    AttentionInterface.register(NAME, paged_attention_forward)
    AttentionMaskInterface.register(NAME, padding_mask)
    return NAME


def use_paged_attention(model: Any) -> Any:
    """Switch a transformers model to attention over pages; returns the model.

    Then `model.generate(..., cache=PagedCache(model.config))`. Layers with a sliding window, a soft cap or any mask but causal
    with padding are refused, and releases of transformers other than 5.24.
    """
    with refusing():
        check_release(f"paged.{WHERE}", PAGED)
    model.set_attn_implementation(register())
    return model
