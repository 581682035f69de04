"""Where a plan's queries are written: the slot of each, refused where a write would touch another reader's tokens."""

from __future__ import annotations

import numpy as np

from .errors import refuse
from .host_plan import HostPlan

WHERE = "append"


def write_slots(host: HostPlan) -> np.ndarray:
    """Physical slot of each query, int64 [N]: page * page_size + offset.

    Raises:
        PagedError: a query of a sequence of length 0; a page that belongs to the effective length of several sequences; two
            queries of one slot.
    """
    ids, positions, size = host.sequence_ids, host.positions, host.page_size
    empty = np.flatnonzero(host.lengths[ids] == 0)
    if len(empty):
        at = int(empty[0])
        got = f"query {at} of sequence {int(ids[at])}"
        raise refuse(
            WHERE, "lengths", "write to a sequence of length 0", got, "a length that includes the new tokens"
        )
    pages = np.array([host.tables[s][p // size] for s, p in zip(ids, positions, strict=True)], np.int64)
    _refuse_shared(host, pages)
    slots = pages * size + positions % size
    first: dict[int, int] = {}
    for i, slot in enumerate(slots.tolist()):
        other = first.setdefault(slot, i)
        if other != i:
            got = f"queries {other} and {i} at position {int(positions[i])} of sequence {int(ids[i])}"
            raise refuse(WHERE, "positions", "two queries use one slot", got, "a slot of its own for each")
    return slots


def _refuse_shared(host: HostPlan, written: np.ndarray) -> None:
    prefixes = [host.prefix(s) for s in range(host.sequences)]
    owned, owners = np.unique(np.concatenate(prefixes), return_counts=True)
    shared = np.intersect1d(written, owned[owners > 1])
    if len(shared):
        page = int(shared[0])
        several = [s for s, prefix in enumerate(prefixes) if (prefix == page).any()]
        got = f"page {page} of sequences {' and '.join(str(s) for s in several[:2])}"
        raise refuse(
            WHERE, "tables", "write to a shared prefix", got, "a page of one sequence only (copy it first)"
        )
