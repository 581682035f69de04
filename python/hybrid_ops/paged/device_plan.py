"""A host plan's metadata on the device: uploaded once, used by every layer of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .errors import dense, refuse
from .host_plan import HostPlan
from .place import Place
from .writes import write_slots

WHERE = "DevicePlan"
INT32 = 2**31 - 1


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """Packed metadata as one int32 tensor (the bits of U32; padding is -1) and the parts of it that operators take.

    Made by `upload` or `from_packed`. It stays valid for as many calls as wanted while the schedule is unchanged; it must
    not be written (a changed tensor is refused).
    """

    host: HostPlan
    place: Place
    words: torch.Tensor = field(repr=False)

    @classmethod
    def upload(cls, host: HostPlan, query: torch.Tensor) -> DevicePlan:
        """The plan on the device and stream of `query`.

        Raises:
            PagedError: not a HostPlan, not a tensor, or a length that int32 cannot hold.
        """
        if not isinstance(host, HostPlan):
            raise refuse(WHERE, "host", "wrong type", type(host).__name__, "HostPlan")
        dense(WHERE, "query", query)
        longest = int(host.lengths.max())
        if longest > INT32:
            raise refuse(WHERE, "lengths", "beyond what operators hold", longest, f"<= {INT32}")
        words = host.packed()
        n = host.queries
        # Positions of empty sequences are free: any value that stays a position will do.
        words[n : 2 * n] = np.minimum(words[n : 2 * n], INT32)
        with torch.inference_mode(False):  # tensors made inside inference mode do not count their writes
            made = torch.from_numpy(words.view(np.int32)).to(query.device)
        return cls(host, Place.of(query), made)

    @classmethod
    def from_packed(cls, words: Any, query: torch.Tensor, **sizes: int) -> DevicePlan:
        """`HostPlan.from_packed` and `upload`; `sizes`: page_size, pages, queries, sequences, table_width."""
        return cls.upload(HostPlan.from_packed(words, **sizes), query)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_version", self.words._version)

    def inputs(self) -> dict[str, torch.Tensor]:
        """sequence_ids [N], positions [N], context_lens [S], block_tables [S, W], int32; refused after a write."""
        if self.words._version != self.__dict__["_version"]:
            raise refuse(WHERE, "words", "metadata changed after upload", "a written tensor", "a new plan")
        n, s = self.host.queries, self.host.sequences
        ids, positions, lengths, table = torch.split(self.words, [n, n, s, s * self.host.table_width])
        return {"sequence_ids": ids, "positions": positions, "context_lens": lengths,
                "block_tables": table.reshape(s, self.host.table_width)}  # fmt: skip

    @cached_property
    def slot_mapping(self) -> torch.Tensor:
        """Slot that each query's key and value are written to, int32 [N]; refused as `writes.write_slots` says."""
        slots = write_slots(self.host)
        pool = self.host.pages * self.host.page_size
        if pool > INT32:
            raise refuse("append", "pages", "more slots than slot_mapping can name", pool, f"<= {INT32}")
        return torch.from_numpy(slots.astype(np.int32)).to(self.place.device)
