"""Calls with the names and arguments that vLLM and vLLM-Ascend users know, over the same operators.

No tensor is read on the host, so that a call can be captured in a graph; validate="values" reads them and holds them to every
rule of a HostPlan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import contract, torch_ops
from . import figures
from .arguments import layout, reads_values
from .attend import ATTENTION, NZ_ATTENTION, attention_of
from .errors import dense, hold_options, refuse, refusing
from .host_plan import HostPlan
from .memory import hold_apart

# Looked up once: torch.compile traces a call, but not the reading of a file.
_ATTENTIONS = {name: contract.load()[name] for name in (ATTENTION, NZ_ATTENTION)}
_CACHES = ("key_cache", "value_cache")
_CACHE = contract.load()["hybrid_reshape_and_cache"]


def int32(where: str, name: str, given: Any) -> torch.Tensor:
    """int32 of whole numbers. What int32 does not hold keeps its side of 0: it names no page and no slot, as it should."""
    tensor = dense(where, name, given)
    if tensor.dtype is torch.int64:
        tensor = tensor.clamp(-(2**31), 2**31 - 1)
    elif tensor.dtype is not torch.int32:
        raise refuse(where, name, "not whole numbers", torch_ops.dtype_name(tensor), "int32, int64")
    return tensor.to(torch.int32)


def _same_device(where: str, name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    if tensor.device != query.device:
        raise refuse(where, name, "other device than query", tensor.device, query.device)


def _schedule(
    tokens: int, context_lens: torch.Tensor, query_start_loc: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(sequence_ids, positions) int32 [tokens]: the last queries of each sequence; rows of no sequence get id S."""
    rows = torch.arange(tokens, dtype=torch.int32, device=context_lens.device)
    if query_start_loc is None:
        return rows, context_lens - 1
    ends = query_start_loc[1:].contiguous()
    ids = torch.bucketize(rows, ends, right=True).to(torch.int32)
    if not len(ends):
        return ids, rows
    owner = ids.clamp(max=len(ends) - 1).long()
    return ids, (context_lens[owner] - (ends[owner] - rows)).to(torch.int32)


def _validate_starts(where: str, query_start_loc: torch.Tensor, tokens: int) -> None:
    starts = figures.array_of(where, "query_start_loc", query_start_loc).tolist()
    if starts[0] != 0 or starts != sorted(starts) or starts[-1] > tokens:
        allowed = f"0 first, never falling, at most {tokens}"
        raise refuse(where, "query_start_loc", "not cumulative", starts, allowed)


def _validate(
    where: str,
    key_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    ids: torch.Tensor,
    positions: torch.Tensor,
    cache_mode: int,
) -> None:
    """Hold the call to the rules of a plan. Padding is legal here: lengths and table entries below 0, rows of no sequence."""
    if key_cache.dim() != 4:
        allowed = "[P, HKV * D / 16, page, 16]" if cache_mode else "[P, page, HKV, D]"
        raise refuse(where, "key_cache", "wrong rank", f"rank {key_cache.dim()}", allowed)
    size = int(key_cache.shape[2 if cache_mode else 1])
    lengths = figures.array_of(where, "context_lens", context_lens).astype(np.int64).clip(min=0)
    given = figures.array_of(where, "block_tables", block_tables)
    tables = [row[: -(-int(n) // size)] for row, n in zip(given, lengths, strict=True)] if size else [[]]
    rows, places = ids.detach().cpu().numpy(), positions.detach().cpu().numpy()
    known = rows < len(lengths)
    known[known] = lengths[rows[known]] > 0
    HostPlan(size, int(key_cache.shape[0]), tables, lengths, rows[known], places[known])


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    *,
    scale_value: float | None = None,
    query_start_loc: torch.Tensor | None = None,
    causal: bool = True,
    num_splits: int = 1,
    cache_mode: int = 0,
    validate: str | None = None,
    **options: Any,
) -> torch.Tensor:
    """Attention of the last tokens of each sequence over its pages: decode, chunked prefill, or both in one call.

    Args:
        query: [T, HQ, D]; without query_start_loc one row per sequence.
        key_cache, value_cache: ND [P, page, HKV, D] and [P, page, HKV, DV], or, with cache_mode 1, NZ
            [P, HKV * D / 16, page, 16].
        block_tables: int32 [S, W], pages in logical order, padded with anything below 0.
        context_lens: int32 [S], tokens of each sequence, the new ones included; at most 0: a padded row, zeros.
        scale_value: default D ** -0.5.
        query_start_loc: int32 [S + 1], cumulative: sequence s has rows [s] to [s + 1], its last tokens; rows behind the
            last sequence are padding and become zero.
        causal: each row sees the tokens up to its own.
        num_splits: parts that each history is cut into.
        cache_mode: layout of both caches, 0 ND, 1 NZ.
        validate: "values" refuses tables, lengths and offsets that a HostPlan would (reads the tensors).
        options: backend, soc, checks.

    Returns:
        [T, HQ, DV] in the dtype of query.

    Raises:
        PagedError: refused before anything ran.
    """
    where = "paged_attention"
    op = _ATTENTIONS[attention_of(where, cache_mode)]
    chosen, read = hold_options(where, options), reads_values(where, validate)
    for name, given in (("query", query), ("key_cache", key_cache), ("value_cache", value_cache)):
        dense(where, name, given)
    block_tables = int32(where, "block_tables", block_tables)
    context_lens = int32(where, "context_lens", context_lens)
    for name, given in (("block_tables", block_tables), ("context_lens", context_lens)):
        _same_device(where, name, given, query)
    if query.dim() != 3:
        raise refuse(where, "query", "wrong rank", f"rank {query.dim()}", "[T, HQ, D]")
    if context_lens.dim() != 1 or block_tables.dim() != 2 or len(block_tables) != len(context_lens):
        got = f"{list(block_tables.shape)} and {list(context_lens.shape)}"
        raise refuse(where, "block_tables", "does not fit context_lens", got, "[S, W] and [S]")
    if query_start_loc is not None:
        query_start_loc = int32(where, "query_start_loc", query_start_loc)
        _same_device(where, "query_start_loc", query_start_loc, query)
        if query_start_loc.shape != (len(context_lens) + 1,):
            shape = list(query_start_loc.shape)
            raise refuse(where, "query_start_loc", "wrong shape", shape, [len(context_lens) + 1])
        if read:
            _validate_starts(where, query_start_loc, query.shape[0])
    if query_start_loc is None and query.shape[0] != len(context_lens):
        allowed = f"{len(context_lens)}, one per sequence, or query_start_loc"
        raise refuse(where, "query", "wrong number of rows", query.shape[0], allowed)
    ids, positions = _schedule(query.shape[0], context_lens, query_start_loc)
    if read:
        _validate(where, key_cache, block_tables, context_lens, ids, positions, cache_mode)
    tensors = {"query": query, "key_cache": key_cache, "value_cache": value_cache, "sequence_ids": ids, "positions": positions,
               "context_lens": context_lens, "block_tables": block_tables}  # fmt: skip
    scale = float(max(query.shape[-1], 1)) ** -0.5 if scale_value is None else scale_value
    attrs = {"scale_value": scale, "causal": causal, "num_splits": num_splits}
    with refusing():
        out, _ = torch_ops.call(op, tensors, attrs, functional=False, validate=None, **chosen)
    return out


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    cache_mode: int = 0,
    validate: str | None = None,
    **options: Any,
) -> None:
    """Write rows to their slots, in place.

    Args:
        key: [T, H, D]; value: [T, H, DV].
        key_cache, value_cache: ND [P, page, H, D] or, with cache_mode 1, NZ [P, H * D / 16, page, 16]; updated in place.
        slot_mapping: int32 [T], page * page_size + offset; -1 (padding) skips the row.
        validate: "values" refuses slots beyond the pool and two rows of one slot (reads the tensor).
        options: backend, soc, checks.

    Raises:
        PagedError: refused before anything ran.
    """
    where = "reshape_and_cache"
    chosen, attrs = hold_options(where, options), {"cache_mode": layout(where, cache_mode)}
    reads_values(where, validate)
    tensors = {"key": key, "value": value, "key_cache": key_cache, "value_cache": value_cache,
               "slot_mapping": int32(where, "slot_mapping", slot_mapping)}  # fmt: skip
    for name in ("key", "value", *_CACHES):
        dense(where, name, tensors[name])
    hold_apart(where, tensors, _CACHES)
    with refusing():
        torch_ops.call(
            _CACHE,
            tensors,
            attrs,
            functional=False,
            validate=validate,
            **chosen,
        )
