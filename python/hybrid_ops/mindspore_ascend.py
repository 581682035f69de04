"""MindSpore functions on Ascend: the aclnn functions of the installed operator package, called through `ops.Custom`.

aclnn updates a state where it lies, so each call works on a copy of its own and returns that copy: the caller's tensor
stays as it was, and graph mode may merge equal calls. This file has not run on hardware; its lookup, registration and the
callback that MindSpore compiles are tested against a package tree and a recording library.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

from mindspore import ops

from . import check, npu, npu_path
from .contract import Op
from .mindspore_ops import infer, mindspore_dtype, registration

ACLNN_TYPE = {
    "float": "double", "int": "int64_t", "bool": "bool", "string": "char*", "list_int": "aclIntArray*",
    "list_float": "aclFloatArray*",
}  # fmt: skip
MOST_INPUTS = 10  # MindSpore sorts input0 … input10 as strings and mixes up longer lists


def device_soc() -> str:
    """Family of the chip that MindSpore runs on, "" when it does not say."""
    try:
        from mindspore._c_expression import MSContext

        return str(MSContext.get_instance().get_ascend_soc_version()).lower()
    except (ImportError, AttributeError):
        return ""


def wanted_types(op: Op) -> list[str]:
    """Parameter types of aclnn<Type>GetWorkspaceSize: inputs, attributes, outputs that are not in place."""
    fresh = [t for t in op.outputs if not t.inplace]
    types = ["aclTensor*"] * len(op.inputs) + [ACLNN_TYPE[a.type] for a in op.attrs]
    return types + ["aclTensor*"] * len(fresh) + ["uint64_t*", "aclOpExecutor**"]


def _refuse(op: Op, wrong: str, got: object, allowed: str, hint: str = "") -> check.HybridOpsError:
    soc = device_soc() or check.words(op.socs)
    return check.refuse(op.name, "backend", f"npu: {wrong}", got=got, allowed=allowed, soc=soc, hint=hint)


def check_package(op: Op) -> None:
    """Refuse an operator that MindSpore could not call, naming what is missing.

    MindSpore reads the parameter types from the package's header and guesses them when it does not find it; a float
    attribute, which aclnn takes as double, would then arrive wrong. Hence a missing header is an error here.
    """
    from mindspore.ops.operations import _custom_ops_utils as utils

    if len(op.inputs) > MOST_INPUTS:
        raise _refuse(op, "too many inputs for MindSpore", len(op.inputs), f"at most {MOST_INPUTS}")
    if all(t.inplace for t in op.outputs):
        raise _refuse(op, "MindSpore needs an output that is not in place", 0, "one or more")
    if not os.environ.get("ASCEND_OPP_PATH"):
        raise _refuse(
            op, "CANN is not set up", "no ASCEND_OPP_PATH", "CANN's set_env.sh sourced before Python starts"
        )
    late = npu_path.missed()
    if late is not None:
        hint = f"{npu_path.export_line(late)} before Python starts, or import hybrid_ops first"
        raise _refuse(
            op, "CANN was started before its operators were on the path", late, "its folder there", hint
        )
    finder = utils.CustomInfoGenerator(f"aclnn{op.type}")
    types = [t.replace(" ", "") for t in finder.get_aclnn_api_types()]
    if not types:
        folders = check.words(finder.aclnn_api_paths)
        hint = f"{npu.CUSTOM_PATHS} must name the folder vendors/{npu.VENDOR} itself"
        raise _refuse(
            op, f"no {finder.aclnn_api_file_name}", folders, "a folder of an installed operator package", hint
        )
    if types != wanted_types(op):
        hint = "the package is from another release; build and install it again"
        raise _refuse(
            op, f"aclnn{op.type} has other parameters", _counted(types), _counted(wanted_types(op)), hint
        )


def _counted(types: list[str]) -> str:
    """Parameter types as text, repetitions counted: "10 aclTensor* + 1 double + …"."""
    return " + ".join(f"{len(list(run))} {name}" for name, run in itertools.groupby(types))


class AclnnOp(ops.Custom):
    """The operator as a MindSpore primitive on Ascend; returns the outputs that are not in place."""

    def __init__(self, op: Op) -> None:
        self.operator = op
        reg = registration(op, "Ascend", options=())
        super().__init__(f"aclnn{op.type}", self._unused, self._unused, "aot", reg_info=reg)
        self.add_prim_attr("sig", op.type)
        self.add_prim_attr("side_effect_mem", True)  # it writes its copy of the state
        self.custom_pyboost.__infer__ = self.__infer__  # what PyNative mode asks

    @staticmethod
    def _unused(*args: Any) -> Any:
        raise NotImplementedError("__infer__ answers")

    def __infer__(self, *args: Mapping[str, Any]) -> dict[str, Any]:
        found = infer(self.operator, args, soc=device_soc())
        fresh = [found.outputs[t.name] for t in self.operator.outputs if not t.inplace]
        shapes, dtypes = [tuple(s.shape) for s in fresh], [mindspore_dtype(s.dtype) for s in fresh]
        single = len(fresh) == 1
        return {
            "shape": shapes[0] if single else tuple(shapes),
            "dtype": dtypes[0] if single else tuple(dtypes),
            "value": None,
        }


def primitives(op: Op) -> dict[str, Any]:
    """What the generated function of an operator calls.

    Raises:
        HybridOpsError: CANN or the operator package is missing or does not fit.
    """
    from mindspore.ops.auto_generate import Clone

    check_package(op)
    copy = Clone()
    copy.add_prim_attr("side_effect_mem", True)  # two calls on one state must not share a copy
    return {"_aclnn": AclnnOp(op), "_copy": copy, "_after": ops.depend}
