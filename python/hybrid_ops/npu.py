"""Calls the installed operator package on NPU tensors: the aclnn functions that CANN's opbuild makes from the OpDefs.

The package's libcust_opapi.so exports two C functions per operator, `aclnn<Type>GetWorkspaceSize` and `aclnn<Type>`;
their parameters follow from the contract: inputs in order, attributes, outputs that are not in place. torch_npu gives
tensor memory and the stream. This file has not run on hardware yet.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from . import check, contract, npu_path
from .contract import Op
from .npu_path import CUSTOM_PATHS, KERNEL_NOT_FOUND, VENDOR, package_folders

FORMAT_ND = 2  # aclFormat, acl/acl_base.h
ACL_TYPE = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "int64": 9, "bool": 12, "bfloat16": 27,
}  # fmt: skip
_ATTR_TYPE = {
    "float": ctypes.c_double,
    "int": ctypes.c_int64,
    "bool": ctypes.c_bool,
    "string": ctypes.c_char_p,
}


def _missing(op: Op, soc: str, wrong: str, got: object, allowed: str, hint: str = "") -> check.HybridOpsError:
    return check.refuse(op.name, "backend", f"npu: {wrong}", got=got, allowed=allowed, soc=soc, hint=hint)


def _open(op: Op, soc: str) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """(library of the package, CANN's tensor library), refusing with what is missing and how to get it."""
    folders = package_folders()
    if not folders:
        got = f"{CUSTOM_PATHS}={os.environ.get(CUSTOM_PATHS, '')!r}"
        hint = "build op_host and op_kernel with CANN, install, source set_env.bash before Python starts"
        raise _missing(
            op, soc, "operator package not found", got, f"a path whose vendors/{VENDOR} holds op_api", hint
        )
    late = npu_path.missed()
    if late is not None:
        hint = f"{npu_path.export_line(late)} before Python starts, or import hybrid_ops first"
        raise _missing(
            op, soc, "CANN was started before its operators were on the path", f"{late} on no path",
            f"the package's folder in {CUSTOM_PATHS}", hint,
        )  # fmt: skip
    library = folders[0] / "op_api" / "lib" / "libcust_opapi.so"
    if not library.is_file():
        raise _missing(
            op,
            soc,
            "operator package is incomplete",
            f"no {library}",
            "a complete build of op_host and op_kernel",
        )
    return _load(str(library)), _load("libnnopbase.so")


@cache
def _load(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


def _tensor(base: ctypes.CDLL, tensor: Any, dtype: str) -> ctypes.c_void_p:
    if tensor is None:
        return ctypes.c_void_p(None)
    dims = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    storage = (ctypes.c_int64 * 1)(tensor.untyped_storage().nbytes() // tensor.element_size())
    base.aclCreateTensor.restype = ctypes.c_void_p
    return ctypes.c_void_p(
        base.aclCreateTensor(
            dims, ctypes.c_uint64(tensor.dim()), ACL_TYPE[dtype], strides, ctypes.c_int64(tensor.storage_offset()),
            FORMAT_ND, storage, ctypes.c_uint64(1), ctypes.c_void_p(tensor.untyped_storage().data_ptr()),
        )
    )  # fmt: skip


def call(
    op: Op, soc: str, tensors: Mapping[str, Any], attrs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> None:
    """Run `op` on NPU tensors; `outputs` holds the allocated tensors of outputs that are not in place.

    Raises:
        HybridOpsError: torch_npu or the package is missing, or aclnn returned an error (with its code).
    """
    try:
        import torch
        import torch_npu
    except ImportError as error:
        hint = "install CANN and torch_npu, then the operator package"
        raise _missing(op, soc, "torch_npu cannot be imported", error, "reference, sim", hint) from error
    package, base = _open(op, soc)
    handles = []

    def handle(tensor: Any, dtype: str) -> ctypes.c_void_p:
        handles.append(_tensor(base, tensor, dtype))
        return handles[-1]

    def name_of(tensor: Any) -> str:
        return "" if tensor is None else str(tensor.dtype).removeprefix("torch.")

    arguments: list[Any] = [handle(tensors.get(t.name), name_of(tensors.get(t.name))) for t in op.inputs]
    for attr in op.attrs:
        value = attrs[attr.name]
        plain: Any = value.encode() if isinstance(value, str) else value
        arguments.append(_ATTR_TYPE[attr.type](plain))
    arguments += [handle(outputs[t.name], name_of(outputs[t.name])) for t in op.outputs if not t.inplace]
    size, executor = ctypes.c_uint64(0), ctypes.c_void_p()
    try:
        prepare = getattr(package, f"aclnn{op.type}GetWorkspaceSize")
        code = prepare(*arguments, ctypes.byref(size), ctypes.byref(executor))
        if code:
            hint = npu_path.export_line(package_folders()[0]) if code == KERNEL_NOT_FOUND else ""
            raise _missing(op, soc, f"aclnn{op.type}GetWorkspaceSize failed", f"code {code}", "code 0", hint)
        # SyncAll on ascend310p counts in the workspace, from zero.
        make = torch.zeros if contract.family(soc) == "ascend310p" else torch.empty
        workspace = make(size.value, dtype=torch.uint8, device=next(iter(outputs.values())).device)
        stream = ctypes.c_void_p(torch_npu.npu.current_stream().npu_stream)
        code = getattr(package, f"aclnn{op.type}")(
            ctypes.c_void_p(workspace.data_ptr()), size, executor, stream
        )
        if code:
            raise _missing(op, soc, f"aclnn{op.type} failed", f"code {code}", "code 0")
    finally:
        for tensor in handles:
            if tensor.value:
                base.aclDestroyTensor(tensor)
