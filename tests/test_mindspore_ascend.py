"""The Ascend path of the MindSpore functions without a device: package lookup, the callback MindSpore compiles, states copied.

What runs here is MindSpore's own code up to the aclnn call, against a package tree and a recording library.
"""

from __future__ import annotations

import ctypes
import os

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed: its Ascend path is not tested")

import mindspore.ops.operations.custom_ops as custom_ops  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import Tensor  # noqa: E402

from hybrid_ops import build, check, contract, mindspore_ascend, mindspore_build, mindspore_ops, npu  # noqa: E402
from hybrid_ops import mindspore as hops  # noqa: E402

RGDR = "recurrent_gated_delta_rule"
HEADER = "aclnn_recurrent_gated_delta_rule.h"
DECLARATION = """__attribute__((visibility("default")))
aclnnStatus aclnnRecurrentGatedDeltaRuleGetWorkspaceSize(
    const aclTensor *query, const aclTensor *key, const aclTensor *value, const aclTensor *beta, aclTensor *stateRef,
    const aclTensor *actualSeqLengths, const aclTensor *ssmStateIndices, const aclTensor *gOptional,
    const aclTensor *gkOptional, const aclTensor *numAcceptedTokensOptional, {scale} scaleValue, const aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);
"""

# Stands for the package's library, and calls the callback the way MindSpore's runtime does.
VENDOR = r"""
#include <cstdint>
#include <vector>
static void* seen[11]; static double scale;
extern "C" {
int aclnnRecurrentGatedDeltaRuleGetWorkspaceSize(void* a, void* b, void* c, void* d, void* e, void* f, void* g, void* h,
    void* i, void* j, double s, void* out, uint64_t* size, void** executor) {
    void* all[] = {a, b, c, d, e, f, g, h, i, j, out};
    for (int k = 0; k < 11; ++k) seen[k] = all[k];
    scale = s; *size = 4096; *executor = seen;
    return 0;
}
int drive(void* callback, void** inputs, int n, void** outputs, int m, uint64_t* size) {
    using Callback = int (*)(void*, std::vector<void*>, std::vector<void*>, uint64_t*, void**);
    void* executor = nullptr;
    return reinterpret_cast<Callback>(callback)(
        reinterpret_cast<void*>(&aclnnRecurrentGatedDeltaRuleGetWorkspaceSize),
        std::vector<void*>(inputs, inputs + n), std::vector<void*>(outputs, outputs + m), size, &executor);
}
void* seen_at(int k) { return seen[k]; }
double seen_scale() { return scale; }
}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """CANN's folders with an installed operator package in them, and MindSpore told that it runs on Ascend."""
    vendor = tmp_path / "cann" / "opp" / "vendors" / npu.VENDOR
    include = vendor / "op_api" / "include"
    include.mkdir(parents=True)
    (include / HEADER).write_text(DECLARATION.format(scale="double"))
    headers = tmp_path / "cann" / "include" / "acl"
    headers.mkdir(parents=True)
    (headers / "acl_base.h").write_text("#pragma once\n#include <cstdint>\n")
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "cann" / "opp"))
    monkeypatch.setenv(npu.CUSTOM_PATHS, str(vendor))
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(tmp_path / "kernels"))
    real = custom_ops.context.get_context
    with monkeypatch.context() as patch:
        patch.setattr(
            custom_ops.context, "get_context", lambda key: "Ascend" if key == "device_target" else real(key)
        )
        yield include
    mindspore_ops.function.cache_clear()
    hops.bind("CPU")


def refusal():
    with pytest.raises(check.HybridOpsError) as error:
        mindspore_ascend.check_package(contract.load()[RGDR])
    return str(error.value)


def test_a_package_that_fits_is_accepted(package):
    mindspore_ascend.check_package(contract.load()[RGDR])


def test_missing_cann_is_named(package, monkeypatch):
    monkeypatch.delenv("ASCEND_OPP_PATH")
    assert "backend: npu: CANN is not set up: got no ASCEND_OPP_PATH; allowed CANN's set_env.sh" in refusal()


def test_missing_header_is_named_with_the_folders_searched(package):
    (package / HEADER).unlink()
    text = refusal()
    assert f"backend: npu: no {HEADER}: got {package}" in text
    assert f"{npu.CUSTOM_PATHS} must name the folder vendors/{npu.VENDOR} itself" in text


def test_header_with_other_parameters_is_refused(package):
    """MindSpore would pass a float where aclnn reads a double."""
    (package / HEADER).write_text(DECLARATION.format(scale="float"))
    assert "has other parameters: got 10 aclTensor* + 1 float + 1 aclTensor*" in refusal()


def test_arguments_reach_aclnn_in_contract_order(package, tmp_path):
    primitive = mindspore_ascend.AclnnOp(contract.load()[RGDR])
    path, _, name = primitive.get_attr_dict()["custom_callback_func"].rpartition(":")
    assert name == "aclnnRecurrentGatedDeltaRule"
    callback = ctypes.CDLL(os.path.abspath(path))[f"{name}GetWorkSpaceSize"]
    source = tmp_path / "vendor.cpp"
    source.write_text(VENDOR)
    vendor = ctypes.CDLL(
        str(build.compile_shared("mindspore_vendor_stub", [source], ["-std=c++17"], quiet=True))
    )
    vendor.seen_at.restype, vendor.seen_scale.restype = ctypes.c_void_p, ctypes.c_double
    scale, size = ctypes.c_double(0.125), ctypes.c_uint64()
    tensors = [0x1000 + 16 * i for i in range(10)]
    tensors[7] = None  # g is absent
    inputs = (ctypes.c_void_p * 11)(*tensors, ctypes.addressof(scale))
    outputs = (ctypes.c_void_p * 1)(0x2000)
    address = ctypes.cast(callback, ctypes.c_void_p)
    assert vendor.drive(address, inputs, 11, outputs, 1, ctypes.byref(size)) == 0
    assert [vendor.seen_at(k) for k in range(11)] == [*tensors, 0x2000]
    assert vendor.seen_scale() == 0.125 and size.value == 4096


def described(shape, dtype):
    return {"shape": list(shape), "dtype": ms.TensorType(dtype), "value": None}


def test_shapes_and_refusals_in_both_modes(package):
    """PyNative mode asks another primitive than graph mode; both answer from the contract."""
    primitive = mindspore_ascend.AclnnOp(contract.load()[RGDR])
    half, whole = ms.float16, ms.int32
    args = [described(s, half) for s in ((3, 2, 64), (3, 2, 64), (3, 4, 64), (3, 4), (8, 4, 64, 64))]
    args += [described((1,), whole), described((3,), whole)]
    args += [{"shape": None, "dtype": None, "value": None}] * 3
    scale = {"shape": [], "dtype": ms.float32, "value": 1.0}
    for infer in (primitive.__infer__, primitive.custom_pyboost.__infer__):
        assert infer(*args, scale) == {"shape": (3, 4, 64), "dtype": half, "value": None}
        with pytest.raises(check.HybridOpsError, match="scale_value: not finite"):
            infer(*args, {**scale, "value": float("inf")})
        with pytest.raises(check.HybridOpsError, match="beta: axis T differs from T of query"):
            infer(*args[:3], described((2, 4), half), *args[4:], scale)


def test_function_works_on_a_copy_of_the_state():
    op = contract.load()[RGDR]
    calls = []

    def aclnn(*args):
        calls.append(args)
        args[4][:] = Tensor(np.float32(7))  # in place, as aclnn does
        return "out"

    names = {"_aclnn": aclnn, "_copy": lambda t: t.copy(), "_after": lambda tensor, done: tensor}
    function = mindspore_build.function(op, "Ascend", names, names)
    state = Tensor(np.zeros((1, 2), np.float32))
    out, new = function("q", "k", "v", "b", state, "lengths", "slots", scale_value=2)
    assert out == "out" and (new.asnumpy() == 7).all() and not state.asnumpy().any()
    assert calls[0][:4] == ("q", "k", "v", "b") and calls[0][5:] == (
        "lengths",
        "slots",
        None,
        None,
        None,
        2.0,
    )


def test_bind_takes_what_the_package_has(package):
    hops.bind("Ascend")
    assert callable(getattr(hops, RGDR))
    (package / HEADER).unlink()
    mindspore_ops.function.cache_clear()
    hops.bind("Ascend")
    with pytest.raises(check.HybridOpsError, match=f"npu: no {HEADER}"):
        getattr(hops, RGDR)
