"""Calls with the names and arguments that vLLM and vLLM-Ascend users know, over the same operators.

No tensor is read on the host, so that a call can be captured in a graph; validate="values" reads them and holds them to every
rule of a HostPlan.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import contract, torch_ops
from .attend import ATTENTION, hold_options
from .errors import refuse, refusing
from .host_plan import HostPlan

# Looked up once: torch.compile traces a call, but not the reading of a file.
_ATTENTION = contract.load()[ATTENTION]
_CACHE = contract.load()["hybrid_reshape_and_cache"]


def _schedule(
    tokens: int, context_lens: torch.Tensor, query_start_loc: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(sequence_ids, positions) int32 [tokens]: the last queries of each sequence; rows of no sequence get id S."""
    rows = torch.arange(tokens, dtype=torch.int32, device=context_lens.device)
    if query_start_loc is None:
        return rows, context_lens.to(torch.int32) - 1
    ends = query_start_loc[1:].to(torch.int32).contiguous()
    ids = torch.bucketize(rows, ends, right=True).to(torch.int32)
    if not len(ends):
        return ids, rows
    owner = ids.clamp(max=len(ends) - 1).long()
    return ids, (context_lens.to(torch.int32)[owner] - (ends[owner] - rows)).to(torch.int32)


def _validate(
    key_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    ids: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Hold the call to the rules of a plan. Padding is legal here: lengths and table entries below 0, rows of no sequence."""
    size, lengths = int(key_cache.shape[1]), context_lens.detach().cpu().long().clamp(min=0).numpy()
    tables = [
        row[: -(-int(n) // size)] for row, n in zip(block_tables.detach().cpu().numpy(), lengths, strict=True)
    ]
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
    validate: str | None = None,
    **options: Any,
) -> torch.Tensor:
    """Attention of the last tokens of each sequence over its pages: decode, chunked prefill, or both in one call.

    Args:
        query: [T, HQ, D]; without query_start_loc one row per sequence.
        key_cache, value_cache: ND [P, page, HKV, D] and [P, page, HKV, DV].
        block_tables: int32 [S, W], pages in logical order, padded with anything below 0.
        context_lens: int32 [S], tokens of each sequence, the new ones included; at most 0: a padded row, zeros.
        scale_value: default D ** -0.5.
        query_start_loc: int32 [S + 1], cumulative: sequence s has rows [s] to [s + 1], its last tokens; rows behind the
            last sequence are padding and become zero.
        causal: each row sees the tokens up to its own.
        num_splits: parts that each history is cut into.
        validate: "values" refuses tables, lengths and offsets that a HostPlan would (reads the tensors).
        options: backend, soc, checks.

    Returns:
        [T, HQ, DV] in the dtype of query.

    Raises:
        PagedError: refused before anything ran.
    """
    where = "paged_attention"
    chosen = hold_options(where, options)
    if context_lens.dim() != 1 or block_tables.dim() != 2 or len(block_tables) != len(context_lens):
        got = f"{list(block_tables.shape)} and {list(context_lens.shape)}"
        raise refuse(where, "block_tables", "does not fit context_lens", got, "[S, W] and [S]")
    if query_start_loc is not None and query_start_loc.shape != (len(context_lens) + 1,):
        shape = list(query_start_loc.shape)
        raise refuse(where, "query_start_loc", "wrong shape", shape, [len(context_lens) + 1])
    if query_start_loc is None and query.shape[0] != len(context_lens):
        allowed = f"{len(context_lens)}, one per sequence, or query_start_loc"
        raise refuse(where, "query", "wrong number of rows", query.shape[0], allowed)
    ids, positions = _schedule(query.shape[0], context_lens, query_start_loc)
    if validate is not None:
        if validate != "values":
            raise refuse(where, "validate", "not a known choice", repr(validate), "values")
        _validate(key_cache, block_tables, context_lens, ids, positions)
    tensors = {"query": query, "key_cache": key_cache, "value_cache": value_cache, "sequence_ids": ids, "positions": positions,
               "context_lens": context_lens.to(torch.int32), "block_tables": block_tables.to(torch.int32)}  # fmt: skip
    scale = float(query.shape[-1]) ** -0.5 if scale_value is None else scale_value
    attrs = {"scale_value": scale, "causal": causal, "num_splits": num_splits}
    with refusing():
        out, _ = torch_ops.call(_ATTENTION, tensors, attrs, functional=False, validate=None, **chosen)
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
    tensors = {"key": key, "value": value, "key_cache": key_cache, "value_cache": value_cache,
               "slot_mapping": slot_mapping.to(torch.int32)}  # fmt: skip
    chosen = hold_options("reshape_and_cache", options)
    with refusing():
        torch_ops.call(
            _CACHE,
            tensors,
            {"cache_mode": cache_mode},
            functional=False,
            validate=validate,
            **chosen,
        )


def slots_of(
    block_tables: torch.Tensor, sequence_ids: torch.Tensor, positions: torch.Tensor, page_size: int
) -> torch.Tensor:
    """slot_mapping int32 of tokens: table[position // page_size] * page_size + position % page_size; -1 for a position below 0."""
    place = positions.long().clamp(min=0)
    page = block_tables[sequence_ids.long(), place // page_size].long()
    slots = page * page_size + place % page_size
    return torch.where((positions < 0) | (page < 0), -1, slots).to(torch.int32)
