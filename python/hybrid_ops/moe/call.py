"""Calls of the operators behind the library, and what every step holds its tensors to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import check, contract, torch_ops
from .errors import refuse, refusing

OPTIONS = ("backend", "soc", "checks")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def hold_options(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of `OPTIONS`, None where it is not given."""
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise refuse(where, "options", "no such option", check.words(sorted(unknown)), check.words(OPTIONS))
    return {name: options.get(name) for name in OPTIONS}


def hold_floats(where: str, name: str, tensor: Any, rank: int) -> torch.Tensor:
    """Refuse what is no dense, unquantised float tensor of `rank` dimensions."""
    if not isinstance(tensor, torch.Tensor):
        raise refuse(where, name, "not a tensor", type(tensor).__name__, "torch.Tensor")
    if tensor.is_quantized or tensor.layout is not torch.strided:
        got = "quantized" if tensor.is_quantized else tensor.layout
        raise refuse(where, name, "not a dense tensor", got, "torch.strided, unquantised")
    if tensor.dtype not in FLOATS:
        allowed = check.words(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise refuse(where, name, "not a float tensor", torch_ops.dtype_name(tensor), allowed)
    if tensor.dim() != rank:
        raise refuse(where, name, "wrong rank", f"shape {list(tensor.shape)}", f"{rank} dimensions")
    return tensor


def hold_device(where: str, name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise refuse(where, name, "other device than the rest of the call", tensor.device, device)


def run(
    op: str,
    tensors: Mapping[str, torch.Tensor | None],
    attrs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """One operator; its refusals leave as MoeError."""
    with refusing():
        return torch_ops.call(
            contract.load()[op], dict(tensors), attrs, functional=False, validate=None, **options
        )
