"""Whether tensors of a call lie in each other's memory: a cache that is written must not be what the call reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch._subclasses.fake_tensor import is_fake

from .errors import refuse


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte + 1 that the tensor can reach."""
    steps = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    return first, first + (steps + 1) * tensor.element_size()


def _has_memory(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or not tensor.numel() or tensor.device.type == "meta":
        return False
    return not torch._is_functional_tensor(tensor) and not is_fake(tensor)


def hold_apart(where: str, tensors: Mapping[str, torch.Tensor], caches: Iterable[str]) -> None:
    """Refuse `caches` of `tensors` whose memory another of the tensors reaches into.

    Tensors without memory (empty, meta, those of a trace) are not looked at.

    Raises:
        PagedError: an argument that is, or is a view into, a cache of the same call.
    """
    if torch.compiler.is_compiling():
        return
    spans = {name: (*_span(t), t.device) for name, t in tensors.items() if _has_memory(t)}
    for cache in (name for name in caches if name in spans):
        begin, end, device = spans[cache]
        for name, (first, last, other) in spans.items():
            if name != cache and other == device and first < end and begin < last:
                got = f"bytes {max(first, begin) - begin} to {min(last, end) - begin} of {cache}"
                raise refuse(where, name, f"shares memory with {cache}", got, "memory of its own")
