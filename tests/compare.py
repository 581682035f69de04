"""How tests compare: the tolerance table and the helpers, which live in the package because `hybrid-ops selftest` needs
them on machines without this folder."""

from hybrid_ops.compare import LIMITS, Error, Limit, hold, measure, same_bits

__all__ = ["LIMITS", "Error", "Limit", "hold", "measure", "same_bits"]
