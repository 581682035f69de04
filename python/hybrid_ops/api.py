"""The public function of every operator, made from the contract: keyword names, defaults, docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from . import check, contract, runtime
from .contract import Op

_OPTIONS: dict[str, tuple[Any, str]] = {
    "backend": (None, '"reference", "sim" or "npu"; None follows the device, CPU takes sim when it can'),
    "soc": (None, 'chip to simulate, "ascend310p" or "ascend910b" (or a chip name); None follows the dtypes'),
    "checks": (None, '"full" lets the simulator watch every call of the kernel, None means "off"'),
    "validate": (None, '"values" also refuses bad data: lengths, slots, counts, gates (reads the tensors)'),
    "functional": (False, "return every output and leave the inputs alone, instead of working in place"),
}


def _describe(op: Op) -> str:
    lines = [op.summary, "", "Args:"]
    for t in op.inputs:
        kinds = "; ".join(f"{check.words(t.dtypes[soc])} on {soc}" for soc in op.socs)
        absent = "" if t.required else ", optional"
        place = ", updated in place" if t.name in op.mutated else ""
        lines.append(f"    {t.name}: {t.text()}, {kinds}{absent}{place}. {t.note}".rstrip())
    lines += [f"    {a.name}: {a.type}, default {a.default}. {a.note}".rstrip() for a in op.attrs]
    lines += [f"    {name}: {text}." for name, (_, text) in _OPTIONS.items()]
    outs = [t for t in op.outputs if not t.inplace]
    every = ", ".join(f"{t.name} {t.text()}" for t in op.outputs)
    lines += [
        "",
        "Returns:",
        f"    {', '.join(f'{t.name} {t.text()}' for t in outs) or 'None'}; with functional=True ({every}).",
    ]
    lines += ["", "Raises:", "    HybridOpsError: refused before anything ran; the text says what, got and allowed.",
              "    SimulatorHazard: the kernel broke a rule of the hardware (checks=\"full\")."]  # fmt: skip
    return "\n".join(lines)


def _signature(op: Op) -> inspect.Signature:
    keyword, either = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(t.name, either, default=inspect.Parameter.empty if t.required else None)
        for t in op.inputs
    ]
    parameters += [
        inspect.Parameter(a.name, keyword, default=inspect.Parameter.empty if a.required else a.default)
        for a in op.attrs
    ]
    parameters += [inspect.Parameter(name, keyword, default=value) for name, (value, _) in _OPTIONS.items()]
    return inspect.Signature(parameters)


def _on_numpy(
    op: Op, arrays: dict[str, Any], attrs: dict[str, Any], functional: bool, options: dict[str, Any]
) -> Any:
    if not functional:
        for name in op.mutated:
            array = arrays[name]
            if array is not None:
                fault = "" if array.flags.writeable else "a read-only array"
                check.in_place(op, name, array.shape, array.strides, options["soc"] or "every SoC", fault)
    outputs = runtime.run(op, arrays, attrs, **options)
    if not functional:
        for name in op.mutated:
            np.copyto(arrays[name], outputs[name])
    made = tuple(outputs[t.name] for t in op.outputs if functional or not t.inplace)
    return made if len(made) > 1 else made[0] if made else None


def public(name: str) -> Callable[..., Any]:
    """The function `hybrid_ops.<name>`: takes torch tensors, or NumPy arrays, and returns the same kind."""
    op = contract.load()[name]
    signature = _signature(op)
    inputs = [t.name for t in op.inputs]
    known = set(signature.parameters)
    defaults = {
        n: None if p.default is inspect.Parameter.empty else p.default
        for n, p in signature.parameters.items()
    }

    def function(*args: Any, **kwargs: Any) -> Any:
        # Bound by hand: torch.compile cannot trace inspect.Signature.bind.
        values = dict(zip(inputs, args, strict=False))
        for argument in kwargs:
            if argument in values or argument not in known:
                fault = "given twice" if argument in values else "not an argument"
                raise TypeError(f"{op.name}: {argument}: {fault}; signature {signature}")
        if len(args) > len(inputs):
            raise TypeError(
                f"{op.name}: {len(args)} positional arguments, at most {len(inputs)}; signature {signature}"
            )
        values = {**defaults, **values, **kwargs}
        functional = values.pop("functional")
        options = {n: values.pop(n) for n in ("backend", "soc", "checks", "validate")}
        tensors = {n: values.pop(n) for n in inputs}
        given = [t for t in tensors.values() if t is not None]
        if given and all(isinstance(t, np.ndarray) for t in given):
            return _on_numpy(op, tensors, values, functional, options)
        from . import torch_ops

        for argument, tensor in tensors.items():
            if tensor is not None and not isinstance(tensor, torch_ops.torch.Tensor):
                raise check.refuse(
                    op.name, argument, "not a tensor", got=type(tensor).__name__, allowed="torch tensors or NumPy arrays only",
                    soc=options["soc"] or "every SoC",
                )  # fmt: skip
        return torch_ops.call(op, tensors, values, functional=functional, **options)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = _describe(op)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
