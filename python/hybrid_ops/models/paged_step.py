"""One decode step of an attention layer over a pool of pages, as a pure function of the pool: what exported graphs call."""

from __future__ import annotations

import torch

from hybrid_ops import check, contract, torch_ops  # noqa: F401  (torch_ops registers torch.ops.hybrid_ops)

ATTENTION = "hybrid_paged_attention"
NODES = ("HybridReshapeAndCache", "HybridPagedAttention")  # of a step
Pools = tuple[torch.Tensor, torch.Tensor]


def pool_dtype(dtype: torch.dtype, soc: str) -> torch.dtype:
    """Dtype of the pools: the model's where the SoC's attention takes it, else float16."""
    kinds = contract.load()[ATTENTION].input("key_cache").dtypes[check.find_soc(None, soc)]
    return dtype if str(dtype).removeprefix("torch.") in kinds else torch.float16


def paged_attention_step(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pools: Pools,
    sequence_ids: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    slot_mapping: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, Pools]:
    """Write one token per sequence, then attend to everything up to it.

    query [B, HQ, D], key [B, KH, D], value [B, KH, DV] in any dtype; pools [P, page, KH, D] and [.., DV]; sequence_ids,
    context_lens (the new token included), slot_mapping int32 [B]; block_tables int32 [B, W]. Returns [B, HQ * DV] in query's
    dtype and the new pools; the given ones are not modified.
    """
    kind = pools[0].dtype
    keys, values = torch.ops.hybrid_ops.hybrid_reshape_and_cache_functional(
        key=key.to(kind),
        value=value.to(kind),
        key_cache=pools[0],
        value_cache=pools[1],
        slot_mapping=slot_mapping,
    )
    out, _ = torch.ops.hybrid_ops.hybrid_paged_attention_functional(
        query=query.to(kind), key_cache=keys, value_cache=values, sequence_ids=sequence_ids, positions=context_lens - 1,
        context_lens=context_lens, block_tables=block_tables, scale_value=scale, causal=True,
    )  # fmt: skip
    # Heads are joined before the cast: converters take a cast right behind an operator's output for part of it.
    return out.reshape(len(query), -1).to(query.dtype), (keys, values)
