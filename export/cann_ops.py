"""Operators of CANN itself that a graph addresses through a Custom node, with their meaning on the CPU.

They are no part of contract.json: their declaration, kernels and shape rules come with CANN. What stands here is what
the exporter writes, the checker compares and the graph runner executes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hybrid_ops import check
from hybrid_ops.contract import Attr, Op, Tensor

SOCS = ("ascend310p", "ascend910b")
_WIDE = ("float16", "float32")


def _typed(name: str, axes: str, kinds: tuple[str, ...], **options: Any) -> Tensor:
    return Tensor(name, (tuple(axes.split()),), dict.fromkeys(SOCS, kinds), **options)


# Writes `updates` into `var` from position indices[b] on along `axis`; the output has the input's name: in place.
SCATTER = Op(
    type="Scatter",
    name="scatter",
    summary="update of a slice of a tensor along one axis",
    socs=SOCS,
    inputs=(
        _typed("var", "B N L D", _WIDE),
        _typed("indices", "B", ("int64", "int64")),
        _typed("updates", "B N U D", _WIDE),
    ),
    outputs=(_typed("var", "B N L D", _WIDE, inplace="var"),),
    attrs=(Attr("reduce", "string", required=True), Attr("axis", "int", default=0)),
)
OPS = {op.type: op for op in (SCATTER,)}


def find(type_name: str) -> Op | None:
    """The declaration of an operator of CANN's by its type, None when it is not one of these."""
    return OPS.get(type_name)


def scatter_meaning(arrays: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """NumPy meaning of SCATTER. Errors: HybridOpsError for a position outside the axis and for what it cannot do."""
    if attrs.get("reduce") != "update" or attrs.get("axis") not in (2, -2):
        raise check.refuse(
            "scatter",
            "axis",
            "not supported",
            got=dict(attrs),
            allowed="axis 2, reduce update",
            soc="every SoC",
        )
    var, updates = arrays["var"].copy(), arrays["updates"]
    width = updates.shape[2]
    for row, start in enumerate(np.asarray(arrays["indices"]).reshape(-1)):
        if not 0 <= start <= var.shape[2] - width:
            raise check.refuse(
                "scatter", "indices", "position outside the cache", got=int(start),
                allowed=f"0..{var.shape[2] - width}", soc="every SoC",
            )  # fmt: skip
        var[row, :, start : start + width] = updates[row]
    return {"var": var}


MEANINGS: dict[str, Callable[..., dict[str, np.ndarray]]] = {"Scatter": scatter_meaning}
