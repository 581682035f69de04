"""torch operators for `cann_ops`: what a module calls so that its exported graph has the Custom node."""

from __future__ import annotations

import torch

from hybrid_ops import check

NAMESPACE = "hybrid_ops_cann"
_library = torch.library.Library(NAMESPACE, "DEF")
_library.define(
    "scatter(Tensor var, Tensor indices, Tensor updates, str reduce, int axis) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def scatter(
    var: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, reduce: str, axis: int
) -> torch.Tensor:
    """`var` `[B, N, L, D]` with `updates` `[B, N, U, D]` written from `indices` `[B]` on along axis 2; a new tensor.

    Errors: HybridOpsError for another axis or reduction.
    """
    if axis != 2:
        raise check.refuse("scatter", "axis", "not supported", got=axis, allowed="2", soc="every SoC")
    check.choice("scatter", "reduce", reduce, ("update",))
    return torch.ops.hybrid_ops_cann.scatter(var, indices, updates, reduce, axis)


@torch.library.impl(_library, "scatter", "CPU")
def _scatter_cpu(
    var: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, reduce: str, axis: int
) -> torch.Tensor:
    columns = indices.reshape(-1, 1, 1, 1) + torch.arange(updates.shape[2]).reshape(1, 1, -1, 1)
    return var.scatter(axis, columns.expand(updates.shape), updates)


@torch.library.register_fake(f"{NAMESPACE}::scatter", lib=_library)
def _scatter_fake(
    var: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, reduce: str, axis: int
) -> torch.Tensor:
    return torch.empty_like(var)
