"""MindSpore face of every operator in contract.json, by generation: no input name is typed here.

On the CPU a function is an `ops.Custom` of type "aot" that runs the kernel in the simulator; on Ascend it calls the
aclnn function of the installed operator package. Both return every output: states are passed in and returned, never
mutated. `hybrid_ops.mindspore` holds the functions under the operators' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import mindspore as ms
from mindspore import ops
from mindspore.ops import CustomRegOp, DataType
from mindspore.ops import functional as F

from . import api, check, contract, mindspore_build
from .contract import Op

# Names of the types of MindSpore's CustomRegOp.attr.
REG_TYPE = {"float": "float", "int": "int", "bool": "bool", "string": "str", "list_int": "listInt", "list_float": "listFloat"}  # fmt: skip
OPTIONS = ("soc", "checks")
_CHECKS = ("off", "full")


def dtype_name(dtype: Any) -> str:
    """Contract name of a MindSpore dtype, tensor type or parameter type: Ref[Tensor[BFloat16]] -> "bfloat16"."""
    return str(dtype).rstrip("]").rpartition("[")[2].rpartition(".")[2].lower()


def mindspore_dtype(name: str) -> Any:
    """MindSpore dtype of a contract name."""
    return getattr(ms, "bool_" if name == "bool" else name)


def registration(op: Op, target: str, options: tuple[str, ...] = OPTIONS) -> dict[str, Any]:
    """Registration of an operator: names of inputs, outputs and attributes; attributes arrive as trailing arguments."""
    reg = CustomRegOp(op.type)
    for i, tensor in enumerate(op.inputs):
        reg = reg.input(i, tensor.name, "required" if tensor.required else "optional")
    # aclnn takes a tensor that is updated in place once, as an input.
    outputs = [t for t in op.outputs if target == "CPU" or not t.inplace]
    for i, tensor in enumerate(outputs):
        reg = reg.output(i, tensor.name)
    for attr in op.attrs:
        reg = reg.attr(attr.name, "required", REG_TYPE[attr.type])
    for option in options:
        reg = reg.attr(option, "required", "str")
    formats = [DataType.None_Default] * (len(op.inputs) + len(outputs))
    return reg.dtype_format(*formats).target(target).get_op_info()


def bind(op: Op, args: tuple[Mapping[str, Any], ...]) -> tuple[dict[str, check.Spec | None], dict[str, Any]]:
    """What MindSpore tells an inference function, as (tensor specs by name, attributes and options by name)."""
    names = [a.name for a in op.attrs] + list(OPTIONS)
    tensors: dict[str, check.Spec | None] = {}
    for tensor, arg in zip(op.inputs, args, strict=False):
        absent = arg["shape"] is None or arg["dtype"] is None or dtype_name(arg["dtype"]).endswith("none")
        if not absent and not isinstance(arg["dtype"], ms.TensorType):
            got, allowed = dtype_name(arg["dtype"]), "a MindSpore tensor"
            raise check.refuse(
                op.name, tensor.name, "not a tensor", got=got, allowed=allowed, soc="every SoC"
            )
        tensors[tensor.name] = None if absent else check.Spec(tuple(arg["shape"]), dtype_name(arg["dtype"]))
    values = {n: a["value"] for n, a in zip(names, args[len(op.inputs) :], strict=False)}
    return tensors, {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}


@dataclass(frozen=True)
class Inferred:
    """A call that passed: SoC family, dtype column, output specs by name (shapes are () while unknown)."""

    soc: str
    column: int
    outputs: Mapping[str, check.Spec]


def infer(
    op: Op, args: tuple[Mapping[str, Any], ...], known: bool = True, soc: str | None = None
) -> Inferred:
    """Check a call; with `known` False its shapes are not, and only dtypes and attributes are checked.

    `soc` is the chip where the call does not name one; None follows the dtypes.

    Raises:
        HybridOpsError: the call is refused, with the text that every other face of the operator gives.
    """
    tensors, attrs = bind(op, args)
    soc = attrs.pop("soc", None) or soc or None
    check.choice(op.name, "checks", attrs.pop("checks", None) or "off", _CHECKS)
    if known:
        bound = check.call(op, soc, tensors, attrs)
        return Inferred(bound.soc, bound.column, bound.outputs)
    given = {n: s.dtype for n, s in tensors.items() if s is not None}
    family = check.find_soc(op, soc or check.default_soc(op, given))
    answer = check.supported(op.name, family, given)
    if not answer:
        raise check.HybridOpsError(answer.why)  # type: ignore[union-attr]
    check.attributes(op, family, attrs)
    column = op.column(family, given)
    assert column is not None
    dtypes = contract.output_dtypes(op, family, column)
    return Inferred(family, column, {n: check.Spec((), d) for n, d in dtypes.items()})


class SimulatorOp(ops.Custom):
    """The operator as a MindSpore primitive on the CPU; `dynamic` leaves shape inference to the library.

    The two forms exist because graph mode infers unknown shapes only in C++, and because a MindIR file whose primitive
    infers in C++ cannot be loaded again (both measured with MindSpore 2.10).
    """

    def __init__(self, op: Op, dynamic: bool = False) -> None:
        self.operator, self.dynamic = op, dynamic
        shape = None if dynamic else self._unused
        super().__init__(
            f"{mindspore_build.library(op.name)}:{op.type}",
            shape,
            self._unused,
            "aot",
            reg_info=registration(op, "CPU"),
        )
        # In PyNative mode primitives with equal attributes share one inference result, whatever their functions are.
        self.add_prim_attr("sig", f"{op.type} {'dynamic' if dynamic else 'static'}")

    @staticmethod
    def _unused(*args: Any) -> Any:
        raise NotImplementedError("__infer__ answers")

    def __infer__(self, *args: Mapping[str, Any]) -> dict[str, Any]:
        found = infer(self.operator, args, not self.dynamic)
        mindspore_build.ensure(self.operator.name, found.soc, found.column)
        outputs = found.outputs.values()
        shapes = [(1,) if self.dynamic else tuple(s.shape) for s in outputs]
        dtypes = [mindspore_dtype(s.dtype) for s in outputs]
        single = len(dtypes) == 1
        return {
            "shape": shapes[0] if single else tuple(shapes),
            "dtype": dtypes[0] if single else tuple(dtypes),
            "value": None,
        }


@cache
def function(name: str, target: str) -> Callable[..., Any]:
    """The function of one operator for a device target ("CPU" or "Ascend")."""
    op = contract.load()[name]
    if target == "Ascend":
        from . import mindspore_ascend

        eager = graph = mindspore_ascend.primitives(op)
    else:
        eager = {"_static": SimulatorOp(op), "_known": _always}
        if mindspore_build.output_axes(op) is not None:
            eager["_dynamic"] = SimulatorOp(op, dynamic=True)
        graph = {**eager, "_known": F.isconstant}
    made = mindspore_build.function(op, target, eager, graph)
    made.__doc__ = _describe(op)
    return made


def _always(shape: Any) -> bool:
    return True


def _describe(op: Op) -> str:
    text = api.public(op.name).__doc__ or ""
    head, _, _ = text.partition("    backend:")
    outputs = ", ".join(f"{t.name} {t.text()}" for t in op.outputs)
    return (
        f"{head}    soc: chip to simulate; None follows the dtypes. Ignored on Ascend.\n"
        f'    checks: "full" lets the simulator watch every call of the kernel, None means "off".\n\n'
        f"Returns:\n    {outputs}; inputs are not modified.\n\n"
        "Raises:\n    HybridOpsError: refused before anything ran.\n"
        "    RuntimeError: the kernel broke a rule of the hardware, or a shape known only at run time is refused.\n"
    )
