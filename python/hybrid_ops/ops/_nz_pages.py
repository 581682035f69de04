"""Caches in the layout of CANN's FRACTAL_NZ, and their way to ND pages and back, without loss."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..case import Arrays

COLUMN = 16


def to_nd(cache: np.ndarray, dim: int) -> np.ndarray:
    """[P, HKV * D / 16, page, 16] as [P, page, HKV, D]."""
    pages, columns, size, _ = cache.shape
    return cache.swapaxes(1, 2).reshape(pages, size, columns * COLUMN // dim, dim)


def to_nz(cache: np.ndarray) -> np.ndarray:
    """[P, page, HKV, D] as [P, HKV * D / 16, page, 16]."""
    pages, size = cache.shape[:2]
    return np.ascontiguousarray(cache.reshape(pages, size, -1, COLUMN).swapaxes(1, 2))


def gathered(cache: np.ndarray, dim: int) -> np.ndarray:
    """`to_nd` element by element: each is looked up where it lies in flat memory."""
    pages, columns, size, _ = cache.shape
    b, o, c = np.ogrid[:pages, :size, : columns * COLUMN]
    at = ((b * columns + c // COLUMN) * size + o) * COLUMN + c % COLUMN
    return cache.reshape(-1)[at].reshape(pages, size, columns * COLUMN // dim, dim)


def in_nz(make: Callable[..., Arrays], caches: Collection[str]) -> Callable[..., Arrays]:
    """`make`, with its caches in NZ pages."""

    def made(rng: np.random.Generator, **setting: Any) -> Arrays:
        return {n: to_nz(array) if n in caches else array for n, array in make(rng, **setting).items()}

    return made
