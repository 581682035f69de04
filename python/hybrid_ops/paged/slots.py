"""Slots of tokens from block tables, as tensor operations: nothing is read on the host unless it is asked for."""

from __future__ import annotations

import torch

from . import figures
from .arguments import reads_values
from .errors import refuse
from .shims import int32

WHERE = "slots_of"


def slots_of(
    block_tables: torch.Tensor,
    sequence_ids: torch.Tensor,
    positions: torch.Tensor,
    page_size: int,
    *,
    validate: str | None = None,
) -> torch.Tensor:
    """slot_mapping int32 [T] of tokens: table[position // page_size] * page_size + position % page_size.

    A token of no slot gets -1, which `reshape_and_cache` skips: a position or sequence id below 0 (padding), a page below 0,
    and, without `validate`, a sequence or place that the tables do not have.

    Args:
        block_tables: int32 or int64 [S, W]; sequence_ids, positions: int32 or int64 [T].
        page_size: tokens of a page, 1 or more.
        validate: "values" refuses a sequence or place that the tables do not have (reads the tensors).

    Raises:
        PagedError: no tensors of whole numbers, ranks, lengths or devices that do not fit, page_size below 1, a slot that
            int32 does not hold.
    """
    block_tables, sequence_ids, positions = (
        int32(WHERE, name, given)
        for name, given in (
            ("block_tables", block_tables),
            ("sequence_ids", sequence_ids),
            ("positions", positions),
        )
    )
    if block_tables.dim() != 2:
        raise refuse(WHERE, "block_tables", "wrong rank", f"rank {block_tables.dim()}", "[S, W]")
    for name, given in (("sequence_ids", sequence_ids), ("positions", positions)):
        if given.dim() != 1:
            raise refuse(WHERE, name, "wrong rank", f"rank {given.dim()}", "[T]")
        if given.device != block_tables.device:
            raise refuse(WHERE, name, "other device than block_tables", given.device, block_tables.device)
    if len(sequence_ids) != len(positions):
        raise refuse(WHERE, "positions", "other number than sequence_ids", len(positions), len(sequence_ids))
    figures.number(WHERE, "page_size", page_size, least=1)
    if reads_values(WHERE, validate):
        _hold_values(block_tables, sequence_ids, positions, page_size)
    sequences, width = block_tables.shape
    if not sequences or not width:
        return torch.full_like(positions, -1)
    place = positions.long().clamp(min=0)
    column = place // page_size
    known = (positions >= 0) & (sequence_ids >= 0) & (sequence_ids < sequences) & (column < width)
    page = block_tables[sequence_ids.long().clamp(0, sequences - 1), column.clamp(max=width - 1)].long()
    slots = page * page_size + place % page_size
    return torch.where(known & (page >= 0) & (slots < 2**31), slots, -1).to(torch.int32)


def _hold_values(
    block_tables: torch.Tensor, sequence_ids: torch.Tensor, positions: torch.Tensor, page_size: int
) -> None:
    tables, ids, places = (
        figures.array_of(WHERE, name, given)
        for name, given in (
            ("block_tables", block_tables),
            ("sequence_ids", sequence_ids),
            ("positions", positions),
        )
    )
    sequences, width = tables.shape
    for at, (sequence, position) in enumerate(zip(ids.tolist(), places.tolist(), strict=True)):
        if sequence < 0 or position < 0:
            continue
        if sequence >= sequences:
            raise refuse(
                WHERE, "sequence_ids", "no such sequence", f"{sequence} at [{at}]", f"0..{sequences - 1}, or padding below 0"
            )  # fmt: skip
        if position >= width * page_size:
            got = f"{position} at [{at}], sequence {sequence}"
            raise refuse(WHERE, "positions", "position beyond the table", got, f"0..{width * page_size - 1}")
        page = int(tables[sequence, position // page_size])
        if page < 0:
            got = f"{page} for position {position} of sequence {sequence}"
            raise refuse(WHERE, "block_tables", "no page for a token", got, "a page of the pool")
        if page * page_size + position % page_size >= 2**31:
            got = f"page {page} of {page_size} tokens"
            raise refuse(
                WHERE, "block_tables", "more slots than slot_mapping can name", got, "slots below 2147483648"
            )
