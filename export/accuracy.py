"""Agreement of two tensors, and the bounds that a decode step must hold against the unmodified model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Cosine, root-mean-square error over the reference's root mean square, and largest absolute error."""

    cosine: float
    nrmse: float
    max_abs: float

    def within(self, bound: Bound) -> bool:
        """NaN anywhere is outside."""
        return self.cosine >= bound.cosine and self.nrmse <= bound.nrmse and self.max_abs <= bound.max_abs

    def worse(self, other: Agreement) -> Agreement:
        """The worse of each figure; NaN wins."""
        return Agreement(
            float(np.minimum(self.cosine, other.cosine)),
            float(np.maximum(self.nrmse, other.nrmse)),
            float(np.maximum(self.max_abs, other.max_abs)),
        )


@dataclass(frozen=True)
class Bound:
    """Least cosine, largest nrmse, largest absolute error."""

    cosine: float
    nrmse: float
    max_abs: float


# What the published Qwen3.5 conversion accepted on the device; our own, tighter one for logits with float16 operands
# (bfloat16 has three bits less: the acceptance stands).
ACCEPTANCE = Bound(cosine=0.999, nrmse=0.02, max_abs=1.0)
BOUNDS = {("logits", "float16"): Bound(cosine=0.9999, nrmse=5e-3, max_abs=1.0)}
PERFECT = Agreement(1.0, 0.0, 0.0)


def bound_of(name: str, operands: str = "float16") -> Bound:
    """The bound for an output of the decode step, by the dtype of the operator's operands."""
    return BOUNDS.get((name, operands), ACCEPTANCE)


def agreement(got: np.ndarray, reference: np.ndarray) -> Agreement:
    """Compare in float64. Two zero tensors agree perfectly; a NaN makes every figure NaN.

    Raises ValueError when the shapes differ.
    """
    if got.shape != reference.shape:
        raise ValueError(f"compare: shape: got {got.shape}; allowed {reference.shape}")
    a, b = np.asarray(got, np.float64).ravel(), np.asarray(reference, np.float64).ravel()
    if not a.size or np.array_equal(a, b):
        return PERFECT
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    error = a - b
    scale = np.sqrt(np.mean(b * b))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = float(np.dot(a, b) / norms) if norms else 0.0
        nrmse = float(np.sqrt(np.mean(error * error)) / scale)
    return Agreement(cosine, nrmse, float(np.max(np.abs(error))))
