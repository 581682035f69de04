"""Calls of the operators behind the library, and what every step holds its tensors to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import check, contract, torch_ops
from .errors import dense, refuse, refusing

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def hold_floats(where: str, name: str, tensor: Any, rank: int) -> torch.Tensor:
    """Refuse what is no dense, unquantised float tensor of `rank` dimensions."""
    dense(where, name, tensor)
    if tensor.dtype not in FLOATS:
        allowed = check.words(str(dtype).removeprefix("torch.") for dtype in FLOATS)
        raise refuse(where, name, "not a float tensor", torch_ops.dtype_name(tensor), allowed)
    if tensor.dim() != rank:
        raise refuse(where, name, "wrong rank", f"shape {list(tensor.shape)}", f"{rank} dimensions")
    return tensor


def hold_rows(where: str, name: str, tensor: Any) -> torch.Tensor:
    """Refuse what is no dense tensor of at least one dimension."""
    dense(where, name, tensor)
    if tensor.dim() == 0:
        raise refuse(where, name, "wrong rank", "shape []", "1 dimension or more")
    return tensor


def hold_numbers(where: str, name: str, tensor: Any) -> torch.Tensor:
    """Whole numbers as int32. Wider ones beyond its range become its ends, so that none wraps to a valid one."""
    hold_rows(where, name, tensor)
    if tensor.dtype is torch.int64:
        tensor = tensor.clamp(-(2**31), 2**31 - 1)
    elif tensor.dtype is not torch.int32:
        raise refuse(where, name, "not whole numbers", torch_ops.dtype_name(tensor), "int32, int64")
    return tensor.to(torch.int32)


def hold_whole(where: str, name: str, value: object) -> int:
    """Refuse what is no int, or none that an operator's attribute can carry."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(where, name, "not a whole number", check.shown(value), "int")
    if not -(2**63) <= value < 2**63:
        raise refuse(where, name, "does not fit 64 bits", value, "int64")
    return value


def hold_option(
    where: str, name: str, value: object, allowed: Sequence[object], wrong: str = "not available"
) -> Any:
    """Refuse what is none of `allowed`, in type too: a tensor has no plain truth, and True is no 1."""
    if not any(type(value) is type(a) and value == a for a in allowed):
        plain = value is None or isinstance(value, bool | int | float | str | list)
        got = check.shown(value) if plain else type(value).__name__
        raise refuse(where, name, wrong, got, " or ".join(str(a) for a in allowed))
    return value


def hold_number(where: str, name: str, value: object, allowed: str = "a number") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(where, name, "not a number", check.shown(value), allowed)
    try:
        return float(value)
    except OverflowError:
        raise refuse(where, name, "beyond float", "a whole number of its size", allowed) from None


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
