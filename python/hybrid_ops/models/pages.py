"""Pages of the sequences of a batch: which each has, which are free, and the schedule of a step that all layers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hybrid_ops.paged.device_plan import DevicePlan
from hybrid_ops.paged.errors import refuse
from hybrid_ops.paged.host_plan import HostPlan

WHERE = "PagedCache"


@dataclass(frozen=True)
class Step:
    """One step of all sequences: `rows` says which of the [B * T] new tokens are packed (None: all), in packed order."""

    start: int
    tokens: int
    plan: DevicePlan
    rows: torch.Tensor | None


class PageTables:
    """Allocates pages to sequences as they grow. Pages may be shared by sequences up to the last whole page.

    Args:
        page_size: tokens of a page.
        pages: pages of the pool; None: it grows.
    """

    def __init__(self, page_size: int, pages: int | None = None) -> None:
        self.page_size, self.fixed = page_size, pages
        self.reset()

    def reset(self) -> None:
        """Forget every sequence."""
        self.pages = self.fixed or 0
        self.tables: list[list[int]] = []
        self.lengths: list[int] = []
        self._free: list[int] = list(range(self.pages))[::-1]
        self._step: Step | None = None

    def _take(self) -> int:
        if not self._free:
            if self.fixed is not None:
                raise refuse(WHERE, "pages", "every page is taken", self.fixed, "more pages, or None to grow")
            grown = max(8, 2 * self.pages)
            self._free = list(range(self.pages, grown))[::-1]
            self.pages = grown
        return self._free.pop()

    def step(self, start: int, batch: int, tokens: int, valid: torch.Tensor | None, at: torch.Tensor) -> Step:
        """The schedule of `tokens` new columns behind `start`; the same object for every layer of a step.

        Args:
            start: columns of the batch before the step, padding included.
            valid: bool [batch, tokens], False where a column is padding; None: all are tokens.
            at: any tensor on the device and stream of the step.
        """
        known = self._step
        if known is not None and (known.start, known.tokens) == (start, tokens):
            return known
        if not self.tables:
            self.tables, self.lengths = [[] for _ in range(batch)], [0] * batch
        if batch != len(self.tables):
            raise refuse(WHERE, "batch", "other batch size than before", batch, len(self.tables))
        counts = [tokens] * batch if valid is None else valid.sum(1).tolist()
        ids = [b for b, count in enumerate(counts) for _ in range(count)]
        positions = [self.lengths[b] + i for b, count in enumerate(counts) for i in range(count)]
        for b, count in enumerate(counts):
            self.lengths[b] += count
            while len(self.tables[b]) * self.page_size < self.lengths[b]:
                self.tables[b].append(self._take())
        # A batch of padding only still needs a pool.
        host = HostPlan(self.page_size, max(1, self.pages), self.tables, self.lengths, ids, positions)
        rows = None if valid is None else valid.reshape(-1).nonzero().reshape(-1)
        self._step = Step(start, tokens, DevicePlan.upload(host, at), rows)
        return self._step

    def select(self, sequences: Sequence[int], copy: Callable[[list[int], list[int]], None]) -> None:
        """Sequence i goes on as a copy of sequences[i]: whole pages are shared, a page in use is copied.

        `copy(from, to)` copies pages in the pools of every layer.
        """
        tables = [list(self.tables[s]) for s in sequences]
        lengths = [self.lengths[s] for s in sequences]
        kept = {page for table in tables for page in table}
        self._free += sorted({page for table in self.tables for page in table} - kept, reverse=True)
        used: set[int] = set()
        moves: tuple[list[int], list[int]] = ([], [])
        for table, length in zip(tables, lengths, strict=True):
            if length % self.page_size and table[-1] in used:
                moves[0].append(table[-1])
                table[-1] = self._take()
                moves[1].append(table[-1])
            if length % self.page_size:
                used.add(table[-1])
        self.tables, self.lengths, self._step = tables, lengths, None
        if moves[0]:
            copy(*moves)
