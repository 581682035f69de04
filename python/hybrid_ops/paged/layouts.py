"""Lossless conversion of caches between ND [P, page, H, D] and the 310P's NZ [P, H * D / 16, page, 16]."""

from __future__ import annotations

from typing import Any

from . import figures
from .errors import dense, refuse

COLUMN = 16  # elements of an NZ column


def _contiguous(array: Any) -> Any:
    return array.contiguous() if hasattr(array, "contiguous") else array.copy()


def _shape(where: str, cache: Any) -> tuple[int, ...]:
    if not hasattr(cache, "swapaxes"):
        raise refuse(
            where, "cache", "not a tensor or array", type(cache).__name__, "torch.Tensor, numpy.ndarray"
        )
    if hasattr(cache, "is_nested"):
        dense(where, "cache", cache)
    return tuple(int(n) for n in cache.shape)


def nd_to_nz(cache: Any) -> Any:
    """ND [P, page, H, D] to NZ [P, H * D / 16, page, 16], a copy; torch tensor or NumPy array of any dtype.

    Raises:
        PagedError: not four axes, H * D not a multiple of 16.
    """
    shape = _shape("nd_to_nz", cache)
    if len(shape) != 4:
        raise refuse("nd_to_nz", "cache", "wrong rank", f"rank {len(shape)}", "[P, page, H, D]")
    pages, size, heads, dim = shape
    if heads * dim % COLUMN:
        raise refuse(
            "nd_to_nz", "cache", "H * D is not a multiple of 16", f"{heads} * {dim}", "a multiple of 16"
        )
    columns = heads * dim // COLUMN
    return _contiguous(cache.reshape(pages, size, columns, COLUMN).swapaxes(1, 2))


def nz_to_nd(cache: Any, heads: int) -> Any:
    """NZ [P, H * D / 16, page, 16] to ND [P, page, H, D], a copy; torch tensor or NumPy array of any dtype.

    Raises:
        PagedError: not four axes with 16 last, or heads that do not divide H * D.
    """
    shape = _shape("nz_to_nd", cache)
    if len(shape) != 4 or shape[3] != COLUMN:
        raise refuse(
            "nz_to_nd", "cache", "not an NZ cache", f"shape {list(shape)}", "[P, H * D / 16, page, 16]"
        )
    pages, columns, size, _ = shape
    heads = figures.number("nz_to_nd", "heads", heads, least=1)
    if columns * COLUMN % heads:
        raise refuse("nz_to_nd", "heads", "does not divide H * D", heads, f"a divisor of {columns * COLUMN}")
    return _contiguous(cache.swapaxes(1, 2)).reshape(pages, size, heads, columns * COLUMN // heads)
