"""How hybrid_ops.moe refuses."""

from __future__ import annotations

from .. import check
from ..refusals import EVERY, Refusals

__all__ = ["EVERY", "MoeError", "dense", "flag", "hold_options", "refuse", "refusing"]


class MoeError(check.HybridOpsError):
    """Shape, dtype, option, device or capability refused before anything ran."""


_refusals = Refusals("moe", MoeError)
refuse, refusing = _refusals.refuse, _refusals.refusing
dense, flag, hold_options = _refusals.dense, _refusals.flag, _refusals.hold_options
