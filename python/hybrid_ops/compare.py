"""Compares an operator's outputs with its meaning. LIMITS is the only tolerance table of the project.

Kernels compute in float32 and round once, so against the float64 meaning only ties and the order of sums differ; the
limits leave room for chips whose vector unit rounds intermediate sums differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .case import Arrays, Case
from .dtypes import is_float, name_of


@dataclass(frozen=True)
class Limit:
    """Root-mean-square error over root-mean-square of the reference, and cosine of the two as vectors."""

    nrmse: float
    cosine: float = 0.9999


# By dtype of the output; "in place" is what the next call reads, rounded after every token.
LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "output": {"float16": Limit(1e-3), "bfloat16": Limit(4e-3), "float32": Limit(1e-5)},
    "in place": {"float16": Limit(2e-3), "bfloat16": Limit(4e-3), "float32": Limit(1e-5)},
}


@dataclass(frozen=True)
class Error:
    """Measured difference of one output."""

    name: str
    nrmse: float
    cosine: float


def measure(name: str, got: np.ndarray, want: np.ndarray) -> Error:
    """NRMSE and cosine where the reference is finite."""
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    finite = np.isfinite(b)
    a, b = a[finite], b[finite]
    if not b.size:
        return Error(name, 0.0, 1.0)
    error, scale = np.sqrt(np.mean((a - b) ** 2)), np.sqrt(np.mean(b**2))
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    cosine = float(a @ b / norm) if norm else float(not a.any() and not b.any())
    return Error(name, float(error / scale if scale else error), cosine)


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def same_bits(name: str, got: np.ndarray, want: np.ndarray) -> None:
    """Assert bitwise equality; names the first coordinate that differs."""
    assert got.shape == want.shape and got.dtype == want.dtype, (
        f"{name}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    )
    bits = f"u{got.dtype.itemsize}"
    differs = np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(want).view(bits)
    if differs.any():
        at = _first(differs)
        raise AssertionError(
            f"{name}: {int(differs.sum())} elements differ, first at {list(at)}: {got[at]} instead of {want[at]}"
        )


def _check_finite(name: str, got: np.ndarray, want: np.ndarray, case: Case) -> None:
    got, want = got.astype(np.float64), want.astype(np.float64)
    fault = np.isnan(got) & ~np.isnan(want) if case.overflows else np.isfinite(got) != np.isfinite(want)
    assert not fault.any(), (
        f"{name}: {got[_first(fault)]} at {list(_first(fault))}, reference {want[_first(fault)]}"
    )


def _close(name: str, kind: str, got: np.ndarray, want: np.ndarray) -> Error:
    error, limit = measure(name, got, want), LIMITS[kind][name_of(want.dtype)]
    assert error.nrmse <= limit.nrmse and error.cosine >= limit.cosine, (
        f"{name}: NRMSE {error.nrmse:.3g} (allowed {limit.nrmse:g}), cosine {error.cosine:.6f} (allowed {limit.cosine:g}), "
        f"worst at {list(_worst(got, want))}"
    )
    return error


def _worst(got: np.ndarray, want: np.ndarray) -> tuple[int, ...]:
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(got.astype(np.float64) - want.astype(np.float64)))
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))


def hold(
    case: Case, inputs: Arrays, outputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> list[Error]:
    """Assert that `outputs` agree with `wanted` for this case; returns the measured errors.

    Bitwise: integer outputs, rows that the reference leaves at zero, and slices (first axis) of an in-place output that
    the reference leaves as they were. Otherwise LIMITS, and finite wherever the reference is. A case that overflows is
    held to the limits only in the heads (second axis) whose reference stays finite.
    """
    errors = []
    for name, want in wanted.items():
        got = outputs[name]
        assert got.shape == want.shape and got.dtype == want.dtype, (
            f"{name}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        )
        if not want.size:
            continue
        before = inputs.get(name)
        if not is_float(want.dtype):
            same_bits(name, got, want)
            continue
        flat = want.reshape(len(want), -1).view(f"u{want.dtype.itemsize}")
        still = np.zeros_like(flat) if before is None else before.reshape(len(want), -1).view(flat.dtype)
        untouched = (flat == still).all(axis=1)
        same_bits(f"{name} (untouched rows)", got[untouched], want[untouched])
        _check_finite(name, got, want, case)
        kind = "output" if before is None else "in place"
        if case.overflows:
            heads = [h for h in range(want.shape[1]) if np.isfinite(want[:, h].astype(np.float64)).all()]
            errors.append(_close(name, kind, got[:, heads], want[:, heads]))
        else:
            errors.append(
                _close(name, kind, got[~untouched], want[~untouched])
                if (~untouched).any()
                else Error(name, 0, 1)
            )
    return errors
