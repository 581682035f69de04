"""The schedule of one step, checked on the host: which pages each sequence has, and where each query stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import figures
from .errors import refuse

PADDING = 0xFFFFFFFF  # fills table rows up to their common width
WHERE = "HostPlan"


def _refuse_mismatch(first: str, a: int, second: str, b: int) -> None:
    if a != b:
        raise refuse(WHERE, second, f"other number than {first}", b, a)


@dataclass(frozen=True, eq=False)
class HostPlan:
    """Which queries attend to which pages; immutable, and legal by construction.

    Args:
        page_size: tokens of a physical page, 1 or more.
        pages: physical pages of the caches, 1 or more.
        tables: page ids of each sequence in logical order, [S] rows of any length; a row may be longer than its sequence
            needs. Sequences may share pages for reading.
        lengths: [S], effective tokens of each sequence, those that this step appends included. 0: its queries give zeros.
        sequence_ids: [N], owner of each query; queries stand in any order, prefill and decode mixed.
        positions: [N], place of each query in its sequence, from 0, below the length (any for a length of 0).

    Raises:
        PagedError: a number beyond U32; page_size, pages or tables of 0; lists that differ in number; a table shorter than
            ceil(length / page_size); a page id beyond the pool anywhere in a table; a page twice within what the length
            needs; a sequence id or position that does not exist.
    """

    page_size: int
    pages: int
    tables: Sequence[Any]
    lengths: Any
    sequence_ids: Any
    positions: Any

    def __post_init__(self) -> None:
        def keep(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        keep("page_size", figures.number(WHERE, "page_size", self.page_size, least=1))
        keep("pages", figures.number(WHERE, "pages", self.pages, least=1))
        rows = self.tables
        if isinstance(rows, str | bytes) or not hasattr(rows, "__len__") or getattr(rows, "ndim", 1) == 0:
            raise refuse(
                WHERE, "tables", "not a list of tables", type(rows).__name__, "one table per sequence"
            )
        if len(self.tables) == 0:
            raise refuse(WHERE, "tables", "no sequence", 0, "one table or more")
        keep("tables", tuple(figures.row(WHERE, f"tables[{s}]", t) for s, t in enumerate(self.tables)))
        for name in ("lengths", "sequence_ids", "positions"):
            keep(name, figures.row(WHERE, name, getattr(self, name)))
        _refuse_mismatch("tables", len(self.tables), "lengths", len(self.lengths))
        _refuse_mismatch("sequence_ids", len(self.sequence_ids), "positions", len(self.positions))
        for s in range(self.sequences):
            self._check_sequence(s)
        self._check_queries()

    @property
    def sequences(self) -> int:
        """Number of sequences, S."""
        return len(self.tables)

    @property
    def queries(self) -> int:
        """Number of packed queries, N."""
        return len(self.positions)

    @property
    def table_width(self) -> int:
        """Columns of the padded block table, at least 1."""
        return max(1, *(len(table) for table in self.tables))

    def required(self, sequence: int) -> int:
        """Pages that the effective length of a sequence needs."""
        return -(-int(self.lengths[sequence]) // self.page_size)

    def prefix(self, sequence: int) -> np.ndarray:
        """Pages of the effective length of a sequence, in logical order."""
        return self.tables[sequence][: self.required(sequence)]

    def _check_sequence(self, s: int) -> None:
        table, needed = self.tables[s], self.required(s)
        if len(table) < needed:
            got = f"{len(table)} pages for a length of {int(self.lengths[s])}"
            raise refuse(
                WHERE, f"tables[{s}]", "too short", got, f"{needed} pages of {self.page_size} or more"
            )
        beyond = np.flatnonzero(table >= self.pages)
        if len(beyond):
            at = int(beyond[0])
            raise refuse(
                WHERE,
                f"tables[{s}]",
                "page beyond the pool",
                f"{int(table[at])} at [{at}]",
                f"0..{self.pages - 1}",
            )
        pages, counts = np.unique(table[:needed], return_counts=True)
        if (counts > 1).any():
            page = int(pages[counts > 1][0])
            first, second = np.flatnonzero(table[:needed] == page)[:2].tolist()
            got = f"page {page} at [{first}] and [{second}]"
            raise refuse(WHERE, f"tables[{s}]", "page twice in one sequence", got, "every page once")

    def _check_queries(self) -> None:
        unknown = np.flatnonzero(self.sequence_ids >= self.sequences)
        if len(unknown):
            at = int(unknown[0])
            got = f"{int(self.sequence_ids[at])} at [{at}]"
            raise refuse(WHERE, "sequence_ids", "no such sequence", got, f"0..{self.sequences - 1}")
        length = self.lengths[self.sequence_ids]
        beyond = np.flatnonzero((length > 0) & (self.positions >= length))
        if len(beyond):
            at = int(beyond[0])
            got = f"{int(self.positions[at])} at [{at}], sequence {int(self.sequence_ids[at])}"
            raise refuse(WHERE, "positions", "position beyond the length", got, f"0..{int(length[at]) - 1}")

    def packed(self) -> np.ndarray:
        """The metadata as U32 words: sequence_ids [N], positions [N], lengths [S], block table [S, table_width].

        Table rows are filled up with PADDING.
        """
        table = np.full((self.sequences, self.table_width), PADDING, np.uint32)
        for s, row in enumerate(self.tables):
            table[s, : len(row)] = row
        parts = (self.sequence_ids, self.positions, self.lengths, table.ravel())
        return np.concatenate([part.astype(np.uint32) for part in parts])

    @classmethod
    def from_packed(
        cls, words: Any, *, page_size: int, pages: int, queries: int, sequences: int, table_width: int
    ) -> HostPlan:
        """The plan of packed metadata (see `packed`): U32 words, or the same bits as int32.

        Raises:
            PagedError: another number of words than 2 * queries + sequences * (1 + table_width); a length that needs more
                pages than table_width; every fault that the constructor refuses.
        """
        words = figures.array_of(WHERE, "words", words)
        if words.dtype.kind not in "iu" or words.dtype.itemsize != 4 or words.ndim != 1:
            got = f"{words.dtype} of rank {words.ndim}"
            raise refuse(WHERE, "words", "not packed metadata", got, "one axis of uint32 or int32")
        words = words.view(np.uint32)
        n = figures.number(WHERE, "queries", queries)
        s = figures.number(WHERE, "sequences", sequences)
        width = figures.number(WHERE, "table_width", table_width)
        size = figures.number(WHERE, "page_size", page_size, least=1)
        wanted = 2 * n + s * (1 + width)
        if len(words) != wanted:
            raise refuse(WHERE, "words", "wrong number of words", len(words), wanted)
        ids, positions, lengths, table = np.split(words.astype(np.int64), np.cumsum([n, n, s]))
        needed = -(-lengths // size)
        if (needed > width).any():
            at = int(np.argmax(needed > width))
            got = f"{int(needed[at])} pages of sequence {at}"
            raise refuse(
                WHERE, "table_width", "a sequence needs more pages than the width", got, f"<= {width}"
            )
        rows = table.reshape(s, width)
        ends = [int(np.flatnonzero(row != PADDING)[-1]) + 1 if (row != PADDING).any() else 0 for row in rows]
        tables = [row[:end] for row, end in zip(rows, ends, strict=True)]
        return cls(page_size, pages, tables, lengths, ids, positions)
