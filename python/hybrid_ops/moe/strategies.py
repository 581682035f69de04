"""How grouped matrix products are computed."""

from __future__ import annotations

from enum import Enum

from .. import check
from .errors import refuse


class GroupedStrategy(Enum):
    """SCALAR: vector units, every dtype, the default. CUBE (also TENSOR_CORE): cube units, 16-bit dtypes, refused for float32.

    AUTO: cube units where enough rows share an expert, vector units otherwise and wherever the cube has no form for the
    call; what goes wrong while compiling or running is raised, never worked around.
    """

    SCALAR = 0
    CUBE = 1
    AUTO = 2
    TENSOR_CORE = 1


def strategy_of(where: str, value: object) -> GroupedStrategy:
    """The strategy, also by name ("auto", "TensorCore"); MoeError for anything else."""
    names = {name.replace("_", "").lower(): found for name, found in GroupedStrategy.__members__.items()}
    if isinstance(value, str):
        value = names.get(value.replace("_", "").lower(), value)
    if not isinstance(value, GroupedStrategy):
        raise refuse(
            where, "strategy", "no such strategy", check.shown(value), "SCALAR, CUBE, AUTO, TENSOR_CORE"
        )
    return value
