"""Device and stream of a tensor: what a plan and a workspace remember, and every call is held to."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .errors import refuse


class Place(NamedTuple):
    """Where something was made; the stream is None where a device has no queues."""

    device: torch.device
    stream: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Place:
        """The tensor's device and its current stream."""
        return cls(tensor.device, _stream(tensor.device))


def _stream(device: torch.device) -> int | None:
    if device.type in ("cpu", "meta"):
        return None
    module: Any = getattr(torch, device.type)
    current = module.current_stream(device)
    return int(getattr(current, f"{device.type}_stream", current.stream_id))


def hold(where: str, owner: str, place: Place, tensors: dict[str, torch.Tensor]) -> None:
    """Refuse tensors of another device, or a call from another stream, than `owner` was made for."""
    for name, tensor in tensors.items():
        if tensor.device != place.device:
            raise refuse(where, name, f"other device than the {owner}", tensor.device, place.device)
    stream = _stream(place.device)
    if stream != place.stream:
        raise refuse(where, owner, "call from another stream", f"stream {stream}", f"stream {place.stream}")
