"""Split history: how many partitions a call cuts each history into, and what their partial results take."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from . import figures
from .errors import dense, refuse
from .place import Place, hold

WHERE = "SplitWorkspace"
MOST_BYTES = 64 * 2**20
SPLITS = (2, 32)


@dataclass(frozen=True)
class SplitWorkspace:
    """Permission to split, for calls of one shape on one stream; any plan with that shape may use it.

    The partial results themselves (accumulator, maximum and denominator in float32 per query, head and partition) stand in
    the operator's own workspace, which the runtime provides and reuses; this object fixes shape, device and stream of it.

    Args:
        query: any tensor on the device and stream of the calls.
        queries: packed queries of a call, 0 or more.
        heads: query heads, 1 or more.
        value_dim: DV, for MLA the latent's R; 1..1024.
        splits: partitions of each history, 2..32.

    Raises:
        PagedError: a number out of range, or more than 64 MiB.
    """

    query: torch.Tensor = field(repr=False, compare=False)
    queries: int
    heads: int
    value_dim: int
    splits: int

    def __post_init__(self) -> None:
        dense(WHERE, "query", self.query)
        if self.bytes > MOST_BYTES:
            raise refuse(
                WHERE, "splits", "partial results too large", f"{self.bytes} bytes", f"<= {MOST_BYTES} bytes"
            )
        object.__setattr__(self, "place", Place.of(self.query))
        object.__setattr__(self, "query", self.query.new_empty(0))  # keep device and dtype, not the data

    @staticmethod
    def required_bytes(queries: int, heads: int, value_dim: int, splits: int) -> int:
        """Bytes of the partial results: queries * heads * splits * (value_dim + 2) * 4.

        Raises:
            PagedError: queries < 0, heads < 1, value_dim outside 1..1024, splits outside 2..32.
        """
        q = figures.number(WHERE, "queries", queries)
        h = figures.number(WHERE, "heads", heads, least=1)
        d = figures.number(WHERE, "value_dim", value_dim, 1, 1024)
        s = figures.number(WHERE, "splits", splits, *SPLITS)
        return q * h * s * (d + 2) * 4

    @property
    def bytes(self) -> int:
        """`required_bytes` of this workspace."""
        return self.required_bytes(self.queries, self.heads, self.value_dim, self.splits)

    def hold(
        self, where: str, queries: int, heads: int, value_dim: int, tensors: dict[str, torch.Tensor]
    ) -> None:
        """Refuse a call of another shape, device or stream."""
        place: Place = self.__dict__["place"]
        for name, mine, asked in (("queries", self.queries, queries), ("heads", self.heads, heads),
                                  ("value_dim", self.value_dim, value_dim)):  # fmt: skip
            if mine != asked:
                raise refuse(
                    where, "workspace", f"made for other {name}", f"{asked} {name}", f"{mine} {name}"
                )
        hold(where, "workspace", place, tensors)
