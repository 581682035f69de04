"""Pages of the sequences of a batch: which each has, which are free, and the schedule of a step that all layers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hybrid_ops.paged.device_plan import DevicePlan
from hybrid_ops.paged.errors import refuse
from hybrid_ops.paged.host_plan import HostPlan

WHERE = "PagedCache"
Copy = Callable[[list[int], list[int]], None]  # copies pages in the pools of every layer: from, to


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
        self.valid = np.zeros((0, 0), bool)  # [B, columns]: False where a column is padding
        self._free: list[int] = list(range(self.pages))[::-1]
        self._step: Step | None = None

    def _take(self) -> int:
        if not self._free:
            grown = max(8, 2 * self.pages)
            self._free = list(range(self.pages, grown))[::-1]
            self.pages = grown
        return self._free.pop()

    def _hold_room(self, pages: int) -> None:
        """Refuse to take more pages than are free, before the first of them is taken."""
        if self.fixed is not None and pages > len(self._free):
            raise refuse(WHERE, "pages", "every page is taken", self.fixed, "more pages, or None to grow")

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
        tables, lengths, before = self.tables, self.lengths, self.valid
        if not tables:
            tables, lengths, before = [[] for _ in range(batch)], [0] * batch, np.zeros((batch, start), bool)
        if batch != len(tables):
            raise refuse(WHERE, "batch", "other batch size than before", batch, len(tables))
        new = np.ones((batch, tokens), bool) if valid is None else valid.cpu().numpy()
        counts = new.sum(1).tolist()
        grown = [length + count for length, count in zip(lengths, counts, strict=True)]
        needs = [-(-length // self.page_size) for length in grown]
        self._hold_room(sum(need - len(table) for need, table in zip(needs, tables, strict=True)))
        self.tables, self.valid = tables, np.concatenate([before[:, :start], new], axis=1)
        ids = [b for b, count in enumerate(counts) for _ in range(count)]
        positions = [lengths[b] + i for b, count in enumerate(counts) for i in range(count)]
        self.lengths = grown
        for table, need in zip(self.tables, needs, strict=True):
            table += [self._take() for _ in range(need - len(table))]
        # A batch of padding only still needs a pool.
        host = HostPlan(self.page_size, max(1, self.pages), self.tables, self.lengths, ids, positions)
        rows = None if valid is None else valid.reshape(-1).nonzero().reshape(-1)
        self._step = Step(start, tokens, DevicePlan.upload(host, at), rows)
        return self._step

    @property
    def columns(self) -> int:
        """Columns of the batch so far, padding included."""
        return self.valid.shape[1]

    def select(self, sequences: Sequence[int], copy: Copy) -> None:
        """Sequence i goes on as a copy of sequences[i]: whole pages are shared, a page in use is copied."""
        lengths, valid = [self.lengths[s] for s in sequences], self.valid[list(sequences)]
        self._go_on([list(self.tables[s]) for s in sequences], lengths, valid, copy)

    def crop(self, columns: int, copy: Copy) -> None:
        """Forget the last `columns` columns; pages that no sequence needs any more are free, one written next is copied if shared."""
        kept, gone = np.split(self.valid, [self.columns - columns], axis=1)
        lengths = [length - int(n) for length, n in zip(self.lengths, gone.sum(1), strict=True)]
        needs = [-(-length // self.page_size) for length in lengths]
        self._go_on(
            [table[:need] for table, need in zip(self.tables, needs, strict=True)], lengths, kept, copy
        )

    def _go_on(self, tables: list[list[int]], lengths: list[int], valid: np.ndarray, copy: Copy) -> None:
        """Take over `tables`: free what only the old ones hold, and give each page that is not full one owner."""
        holders = Counter(page for table in tables for page in table)
        freed = sorted({page for table in self.tables for page in table} - set(holders), reverse=True)
        shared = []
        for table, length in zip(tables, lengths, strict=True):
            if length % self.page_size and holders[table[-1]] > 1:
                holders[table[-1]] -= 1
                shared.append(table)
        self._hold_room(len(shared) - len(freed))
        self._free += freed
        self.tables, self.lengths, self.valid, self._step = tables, lengths, valid, None
        source = [table[-1] for table in shared]
        for table in shared:
            table[-1] = self._take()
        if shared:
            copy(source, [table[-1] for table in shared])
