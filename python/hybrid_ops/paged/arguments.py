"""Kinds of arguments that several calls take, refused where they are of another kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .errors import refuse


def dense(where: str, name: str, given: Any) -> torch.Tensor:
    """`given` if it is a tensor with strides; sparse, nested and quantised ones are refused."""
    if not isinstance(given, torch.Tensor):
        raise refuse(where, name, "not a tensor", type(given).__name__, "torch.Tensor")
    if given.is_quantized or given.is_nested or given.layout is not torch.strided:
        got = "quantized" if given.is_quantized else "nested" if given.is_nested else given.layout
        raise refuse(where, name, "not a dense tensor", got, "torch.strided, unquantised")
    return given


def layout(where: str, cache_mode: Any) -> int:
    """`cache_mode` as an int: 0 ND, 1 NZ."""
    whole = isinstance(cache_mode, int | np.integer) and not isinstance(cache_mode, bool)
    if not whole or cache_mode not in (0, 1):
        raise refuse(where, "cache_mode", "not a known layout", repr(cache_mode), "0 ND, 1 NZ")
    return int(cache_mode)


def flag(where: str, name: str, given: Any) -> bool:
    """`given` if it is True or False."""
    if not isinstance(given, bool):
        raise refuse(where, name, "wrong type", repr(given), "True or False")
    return given


def reads_values(where: str, validate: Any) -> bool:
    """Whether a call is to read its tensors: `validate` is None or "values"."""
    if validate is not None and not (isinstance(validate, str) and validate == "values"):
        raise refuse(where, "validate", "not a known choice", repr(validate), "values")
    return validate is not None
