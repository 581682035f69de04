"""How hybrid_ops.paged refuses."""

from __future__ import annotations

from .. import check
from ..refusals import EVERY, Refusals

__all__ = ["EVERY", "PagedError", "dense", "flag", "hold_options", "refuse", "refusing"]


class PagedError(check.HybridOpsError):
    """Plan, shape, dtype, device, stream or capability refused before anything ran."""


_refusals = Refusals("paged", PagedError)
refuse, refusing = _refusals.refuse, _refusals.refusing
dense, flag, hold_options = _refusals.dense, _refusals.flag, _refusals.hold_options
