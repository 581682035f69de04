"""Whole numbers of a plan: read from lists, arrays or CPU tensors, within U32."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import check
from .errors import refuse

U32 = 0xFFFFFFFF


def number(where: str, name: str, value: Any, least: int = 0, most: int = U32) -> int:
    """`value` as an int within least..most; bool and float are refused."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole:
        raise refuse(where, name, "not a whole number", check.shown(value), f"{least}..{most}")
    if not least <= value <= most:
        wrong = "beyond U32" if value > U32 else "out of range"
        raise refuse(where, name, wrong, int(value), f"{least}..{most}")
    return int(value)


def array_of(where: str, name: str, values: Any) -> np.ndarray:
    """`values` (list, array or tensor) as an array; refused where they have no data, or rows of different length."""
    try:
        return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # ragged lists; tensors that are sparse, meta or bfloat16
        got = f"{type(values).__name__} ({str(error).splitlines()[0]})"
        raise refuse(where, name, "not an array of whole numbers", got, "a list, array or tensor") from error


def row(where: str, name: str, values: Any) -> np.ndarray:
    """One axis of numbers within U32 as a read-only int64 array of its own."""
    array = array_of(where, name, values)
    if array.ndim != 1:
        raise refuse(where, name, "wrong rank", f"rank {array.ndim}", "one axis")
    if array.size and array.dtype.kind not in "iu":  # object: integers beyond 64 bits, or no integers
        for i, value in enumerate(array.tolist()):
            number(where, f"{name}[{i}]", value)
    outside = (array < 0) | (array > U32) if array.size else np.zeros(0, bool)
    if outside.any():
        at = int(np.argmax(outside))
        number(where, f"{name}[{at}]", int(array[at]))
    made = array.astype(np.int64)
    made.flags.writeable = False
    return made
