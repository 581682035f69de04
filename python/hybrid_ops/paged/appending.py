"""New keys and values into the pages of a plan's queries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .. import check, contract, torch_ops
from .arguments import layout
from .attend import hold_plan, hold_tensors
from .device_plan import DevicePlan
from .errors import flag, hold_options, refuse, refusing
from .memory import hold_apart

OP = "hybrid_reshape_and_cache"
WHERE = "append"
CACHES = ("key_cache", "value_cache")


class AppendReport(NamedTuple):
    """Which caches were copied before the write, and how many bytes that took."""

    key_copied: bool
    value_copied: bool
    copied_bytes: int


class Appended(NamedTuple):
    """The caches to use from now on, and what the call copied."""

    key_cache: torch.Tensor
    value_cache: torch.Tensor
    report: AppendReport


def append(
    plan: DevicePlan,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    *,
    in_place: bool = False,
    cache_mode: int = 0,
    **options: Any,
) -> Appended:
    """Write the rows of the plan's queries to their slots.

    By default a cache that somebody else holds too (another variable, container, view or detached tensor of its memory) is
    copied first, so that the other holder keeps what it has; a cache that only the caller holds is written where it is.
    Pass the caches by name or place: the tuple of an unpacked argument list holds them too.
    `in_place` writes where it is in any case, and every holder sees it.

    Args:
        plan: the schedule, whose lengths include the new tokens.
        key: [N, H, D]; value: [N, H, DV]. For MLA the latents [N, 1, R] and rotated keys [N, 1, RP].
        key_cache, value_cache: ND [P, page_size, H, D] and [.., DV], or NZ with `cache_mode` 1.
        options: backend, soc, checks as for every operator.

    Returns:
        The caches to use from now on, and a report of what was copied.

    Raises:
        PagedError: refused, both caches untouched: a sequence of length 0, a page that several sequences use, two queries of
            one slot, a cache that would be written where it is while another argument lies in its memory, tensors whose gradient
            is recorded, and every shape, dtype, device and stream fault.
    """
    # Counted here, before anything else takes a reference.
    counts = (sys.getrefcount(key_cache), sys.getrefcount(value_cache))
    plan, chosen = hold_plan(WHERE, plan), hold_options(WHERE, options)
    tensors = {"key": key, "value": value, "key_cache": key_cache, "value_cache": value_cache}
    cache_mode, in_place = layout(WHERE, cache_mode), flag(WHERE, "in_place", in_place)
    hold_tensors(WHERE, plan, tensors, packed=2)
    size = key_cache.shape[2 if cache_mode else 1] if key_cache.dim() == 4 else plan.host.page_size
    if size != plan.host.page_size:
        raise refuse(WHERE, "key_cache", "other page_size than the plan", size, plan.host.page_size)
    op, attrs = contract.load()[OP], {"cache_mode": cache_mode}
    slots = plan.slot_mapping
    specs = {
        n: check.Spec(tuple(t.shape), torch_ops.dtype_name(t))
        for n, t in {**tensors, "slot_mapping": slots}.items()
    }
    with refusing():
        check.call(op, chosen["soc"], specs, attrs)
    if not plan.host.queries:
        return Appended(key_cache, value_cache, AppendReport(False, False, 0))
    copied = [not in_place and _shared(t, n) for t, n in zip((key_cache, value_cache), counts, strict=True)]
    # Views of one tensor that do not overlap, as of [2, P, ..], are legal.
    hold_apart(WHERE, tensors, [n for n, c in zip(CACHES, copied, strict=True) if not c])
    caches = [t.clone() if c else t for t, c in zip((key_cache, value_cache), copied, strict=True)]
    with refusing():
        torch_ops.call(
            op, {"key": key, "value": value, "key_cache": caches[0], "value_cache": caches[1], "slot_mapping": slots}, attrs,
            functional=False, validate=None, **chosen,
        )  # fmt: skip
    size = sum(t.nbytes for t, c in zip(caches, copied, strict=True) if c)
    return Appended(caches[0], caches[1], AppendReport(copied[0], copied[1], size))


def _storage_holders(tensor: torch.Tensor) -> int | None:
    """How many tensors (and wrappers) hold the tensor's memory; None where this torch does not tell."""
    count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
    return None if count is None else count(tensor.untyped_storage()._cdata)


def _references(tensor: torch.Tensor) -> int:
    return sys.getrefcount(tensor)


def _alone() -> tuple[int, int | None]:
    """What both counts say of a tensor that one variable holds, seen from a function that got it as an argument."""
    tensor = torch.empty(1)
    return _references(tensor), _storage_holders(tensor)


_ALONE = _alone()


def _shared(tensor: torch.Tensor, references: int) -> bool:
    holders = _storage_holders(tensor)
    return references > _ALONE[0] or holders is None or holders > (_ALONE[1] or 0)
