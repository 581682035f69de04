"""PyTorch face of every operator in contract.json, by generation: no input name is typed here.

For each operator two torch ops exist:
  hybrid_ops::<op>             mutates its in-place inputs, returns the other outputs
  hybrid_ops::<op>_functional  mutates nothing, returns every output (what torch.export and ONNX want)
Both have fake implementations (shapes from the axis rules), CPU ones (simulator or reference) and NPU ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from . import check, contract, dtypes, npu, runtime
from .contract import Op

NAMESPACE = "hybrid_ops"
FUNCTIONAL = "_functional"
_SCHEMA_TYPE = {
    "float": "float",
    "int": "int",
    "bool": "bool",
    "string": "str",
    "list_int": "int[]",
    "list_float": "float[]",
}
_library = torch.library.Library(NAMESPACE, "DEF")


def schema(op: Op, functional: bool) -> str:
    """Schema text; tensor and attribute names are the contract's, attributes come after all inputs."""
    parts = []
    for i, tensor in enumerate(op.inputs):
        mark = f"({chr(ord('a') + i)}!)" if tensor.name in op.mutated and not functional else ""
        parts.append(
            f"Tensor{mark} {tensor.name}" if tensor.required else f"Tensor?{mark} {tensor.name}=None"
        )
    for attr in op.attrs:
        default = "" if attr.required else f"={_literal(attr.default)}"
        parts.append(f"{_SCHEMA_TYPE[attr.type]} {attr.name}{default}")
    results = [
        f"Tensor {t.name}" if functional else "Tensor" for t in op.outputs if functional or not t.inplace
    ]
    returns = results[0] if len(results) == 1 and not functional else f"({', '.join(results)})"
    return f"{op.name}{FUNCTIONAL if functional else ''}({', '.join(parts)}) -> {returns}"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def dtype_name(tensor: torch.Tensor) -> str:
    """Contract name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's data as an array, without a copy when it is contiguous; bfloat16 as ml_dtypes.bfloat16."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.NUMPY["bfloat16"])
    return tensor.numpy()


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor that shares its memory."""
    if array.dtype == dtypes.NUMPY["bfloat16"]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _bind(op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments in schema order as (tensors, attributes)."""
    names = [t.name for t in op.inputs] + [a.name for a in op.attrs]
    values = dict(zip(names, args, strict=False)) | dict(kwargs)
    tensors = {t.name: values.get(t.name) for t in op.inputs}
    return tensors, {a.name: values[a.name] for a in op.attrs if a.name in values}


def _specs(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, check.Spec]:
    return {n: check.Spec(tuple(t.shape), dtype_name(t)) for n, t in tensors.items() if t is not None}


def _same_device(op: Op, tensors: Mapping[str, torch.Tensor | None], soc: str) -> torch.device:
    devices = {n: t.device for n, t in tensors.items() if t is not None}
    first = next(iter(devices.values()))
    for name, device in devices.items():
        if device != first:
            raise check.refuse(
                op.name, name, "tensors on several devices", got=device, allowed=first, soc=soc
            )
    return first


def _returned(made: tuple[Any, ...]) -> Any:
    """What a torch op returns: nothing, the one output, or a tuple."""
    return made if len(made) > 1 else made[0] if made else None


def _fake(op: Op, functional: bool) -> Callable[..., Any]:
    def fake(*args: Any, **kwargs: Any) -> Any:
        tensors, attrs = _bind(op, args, kwargs)
        bound = check.call(op, runtime.options().soc, _specs(tensors), attrs)
        device = _same_device(op, tensors, bound.soc)
        made = tuple(
            torch.empty(
                bound.outputs[t.name].shape, dtype=getattr(torch, bound.outputs[t.name].dtype), device=device
            )
            for t in op.outputs
            if functional or not t.inplace
        )
        return _returned(made)

    return fake


def _check_in_place(op: Op, tensors: Mapping[str, torch.Tensor | None]) -> None:
    for name in op.mutated:
        tensor = tensors[name]
        if tensor is not None:
            check.in_place(op, name, tensor.shape, tensor.stride(), runtime.options().soc or "every SoC")


def _no_gradient(op: Op) -> Callable[..., Any]:
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise check.refuse(
            op.name, "backward", "no gradient exists", got="a backward pass", allowed="inference (torch.no_grad)",
            soc="every SoC",
        )  # fmt: skip

    return backward


def _refuse_gradients(op: Op) -> Callable[..., Any]:
    """Autograd kernel of the form that writes its arguments; torch takes no formula for one, and would only warn."""

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, _ = _bind(op, args, kwargs)
        if torch.is_grad_enabled():
            for name, tensor in tensors.items():
                if tensor is not None and tensor.requires_grad:
                    raise check.refuse(
                        op.name, name, "no gradient exists, and the call writes its arguments", got="requires_grad",
                        allowed="torch.no_grad, or detached tensors", soc="every SoC",
                    )  # fmt: skip
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(getattr(torch.ops, NAMESPACE), op.name)(*args, **kwargs)

    return run


def _cpu(op: Op, functional: bool) -> Callable[..., Any]:
    @torch.compiler.disable  # dynamo would otherwise try to compile the NumPy code it runs
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, attrs = _bind(op, args, kwargs)
        if not functional:
            _check_in_place(op, tensors)
        arrays = {n: None if t is None else to_numpy(t) for n, t in tensors.items()}
        outputs = {n: from_numpy(a) for n, a in runtime.run(op, arrays, attrs).items()}
        if not functional:
            for name in op.mutated:
                tensors[name].copy_(outputs[name])
        made = tuple(outputs[t.name] for t in op.outputs if functional or not t.inplace)
        return _returned(made)

    return run


def _npu(op: Op, functional: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, attrs = _bind(op, args, kwargs)
        bound = check.call(op, runtime.options().soc, _specs(tensors), attrs)
        device = _same_device(op, tensors, bound.soc)
        if not functional:
            _check_in_place(op, tensors)
        if functional:
            tensors |= {n: tensors[n].clone() for n in op.mutated}
        fresh = {
            t.name: torch.empty(
                bound.outputs[t.name].shape, dtype=getattr(torch, bound.outputs[t.name].dtype), device=device
            )
            for t in op.outputs
            if not t.inplace
        }
        npu.call(op, bound.soc, tensors, bound.attrs, fresh)
        made = tuple(
            tensors[t.inplace] if t.inplace else fresh[t.name]
            for t in op.outputs
            if functional or not t.inplace
        )
        return _returned(made)

    return run


def _register(op: Op) -> None:
    for functional in (False, True):
        name = op.name + (FUNCTIONAL if functional else "")
        _library.define(schema(op, functional), tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, _cpu(op, functional), "CPU")
        _library.impl(name, _npu(op, functional), "PrivateUse1")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _fake(op, functional), lib=_library)
        if functional or not op.mutated:
            torch.library.register_autograd(f"{NAMESPACE}::{name}", _no_gradient(op), lib=_library)
        else:
            _library.impl(name, _refuse_gradients(op), "Autograd")


for _op in contract.load().values():
    _register(_op)


def call(
    op: Op,
    tensors: Mapping[str, torch.Tensor | None],
    attrs: Mapping[str, Any],
    *,
    functional: bool,
    backend: str | None,
    **options: Any,
) -> Any:
    """Run through the torch op, so that fake mode, export and compile see one node.

    Returns the outputs that are not in place (all of them when `functional`): one tensor or a tuple.
    """
    where = options.get("soc") or "every SoC"
    for name, given_tensor in tensors.items():
        if given_tensor is not None and not isinstance(given_tensor, torch.Tensor):
            got = type(given_tensor).__name__
            raise check.refuse(op.name, name, "not a tensor", got=got, allowed="torch.Tensor", soc=where)
    if backend == "npu" and not any(t is not None and t.device.type == "npu" for t in tensors.values()):
        raise check.refuse(
            op.name, "backend", "npu needs NPU tensors", got="CPU tensors", allowed="reference, sim",
            soc=where, hint="move the tensors to the npu device",
        )  # fmt: skip
    for tensor in op.inputs:
        if tensor.required and tensors.get(tensor.name) is None:
            check.call(op, options.get("soc"), _specs(tensors), attrs)  # words the missing input
    if not torch.compiler.is_compiling():  # sizes and scalars are symbols then; the fake op checks them
        attrs = check.attributes(op, where, attrs)
        for name, given_tensor in tensors.items():
            if given_tensor is None:
                continue
            nested = given_tensor.is_nested
            if nested or given_tensor.layout is not torch.strided or given_tensor.is_quantized:
                kind = (
                    "quantized"
                    if given_tensor.is_quantized
                    else "nested"
                    if nested
                    else str(given_tensor.layout)
                )
                raise check.refuse(
                    op.name, name, "not a dense tensor", got=kind, allowed="torch.strided", soc=where
                )
            if dtype_name(given_tensor) not in dtypes.NUMPY:
                check.call(
                    op, options.get("soc"), _specs(tensors), attrs
                )  # words the dtype that arrays have not
    function = getattr(getattr(torch.ops, NAMESPACE), op.name + (FUNCTIONAL if functional else ""))
    given = {n: t for n, t in tensors.items() if t is not None}
    if backend is None and not any(options.values()):
        return function(**given, **attrs)
    with runtime.using(backend=backend, **options):
        return function(**given, **attrs)
