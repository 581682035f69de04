"""Kinds of arguments that several calls take, refused where they are of another kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import check
from .errors import refuse


def layout(where: str, cache_mode: Any) -> int:
    """`cache_mode` as an int: 0 ND, 1 NZ."""
    whole = isinstance(cache_mode, int | np.integer) and not isinstance(cache_mode, bool)
    if not whole or cache_mode not in (0, 1):
        raise refuse(where, "cache_mode", "not a known layout", check.shown(cache_mode), "0 ND, 1 NZ")
    return int(cache_mode)


def reads_values(where: str, validate: Any) -> bool:
    """Whether a call is to read its tensors: `validate` is None or "values"."""
    if validate is not None and not (isinstance(validate, str) and validate == "values"):
        raise refuse(where, "validate", "not a known choice", check.shown(validate), "values")
    return validate is not None
