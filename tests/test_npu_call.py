"""The aclnn call of the NPU backend, against a recording library in place of the vendor's: argument order and errors."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the NPU call cannot be tested")

from hybrid_ops import build, case, check, contract, npu, npu_path, torch_ops  # noqa: E402

RGDR = "recurrent_gated_delta_rule"

# Ten inputs, the attribute, the one output that is not in place, then workspace size and executor: what opbuild declares.
VENDOR = r"""
#include <cstdint>
struct Tensor { const int64_t* dims; uint64_t rank; int type; void* data; int64_t shape[8]; };
static Tensor pool[64]; static int used, alive; static double scale; static Tensor* seen[12]; static int code;
extern "C" {
void* aclCreateTensor(const int64_t* dims, uint64_t rank, int type, const int64_t*, int64_t, int, const int64_t*, uint64_t, void* data) {
    Tensor& t = pool[used++ % 64];
    t = {nullptr, rank, type, data, {}};
    for (uint64_t i = 0; i < rank; ++i) t.shape[i] = dims[i];
    ++alive;
    return &t;
}
int aclDestroyTensor(void*) { return --alive; }
int aclnnRecurrentGatedDeltaRuleGetWorkspaceSize(Tensor* a, Tensor* b, Tensor* c, Tensor* d, Tensor* e, Tensor* f, Tensor* g,
    Tensor* h, Tensor* i, Tensor* j, double s, Tensor* out, uint64_t* size, void** executor) {
    Tensor* all[] = {a, b, c, d, e, f, g, h, i, j, out};
    for (int k = 0; k < 11; ++k) seen[k] = all[k];
    scale = s; *size = 64; *executor = &pool;
    return code;
}
int aclnnRecurrentGatedDeltaRule(void*, uint64_t size, void* executor, void* stream) {
    return size == 64 && executor == &pool && stream == (void*)7 ? 0 : 1;
}
double seen_scale() { return scale; }
int seen_type(int k) { return seen[k] ? seen[k]->type : -1; }
long seen_dim(int k, int d) { return seen[k]->shape[d]; }
void* seen_data(int k) { return seen[k] ? seen[k]->data : nullptr; }
int still_alive() { return alive; }
void fail_with(int value) { code = value; }
}
"""


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    source = tmp_path / "vendor.cpp"
    source.write_text(VENDOR)
    folder = tmp_path / "vendors" / npu.VENDOR / "op_api" / "lib"
    folder.mkdir(parents=True)
    library = ctypes.CDLL(str(build.compile_shared("vendor_stub", [source], ["-std=c++17"], quiet=True)))
    (folder / "libcust_opapi.so").touch()
    monkeypatch.setenv(npu.CUSTOM_PATHS, str(tmp_path))
    monkeypatch.setattr(npu, "_load", lambda name: library)
    stream = types.SimpleNamespace(npu_stream=7)
    fake = types.SimpleNamespace(npu=types.SimpleNamespace(current_stream=lambda: stream))
    monkeypatch.setitem(sys.modules, "torch_npu", fake)
    library.seen_scale.restype, library.seen_dim.restype = ctypes.c_double, ctypes.c_long
    library.seen_data.restype = ctypes.c_void_p
    library.fail_with(0)
    return library


def operands():
    op = contract.load()[RGDR]
    found = next(c for c in case.cases(RGDR, "ascend310p") if c.id.endswith("zero-length"))
    tensors = {n: torch_ops.from_numpy(a) for n, a in found.inputs().items() if a is not None}
    return op, tensors, {"scale_value": 0.125}, {"out": torch.empty_like(tensors["value"])}


def test_arguments_reach_aclnn_in_contract_order(vendor):
    op, tensors, attrs, outputs = operands()
    npu.call(op, "ascend310p", tensors, attrs, outputs)
    assert vendor.seen_scale() == 0.125
    for i, tensor in enumerate(op.inputs):
        given = tensors.get(tensor.name)
        assert vendor.seen_data(i) == (None if given is None else given.data_ptr())
        if given is not None:
            assert [vendor.seen_dim(i, d) for d in range(given.dim())] == list(given.shape)
            assert (
                vendor.seen_type(i) == {"float16": 1, "float32": 0, "int32": 3}[torch_ops.dtype_name(given)]
            )
    assert vendor.seen_data(10) == outputs["out"].data_ptr()
    assert vendor.still_alive() == 0, "tensor handles leak"


def test_aclnn_errors_carry_their_code(vendor):
    op, tensors, attrs, outputs = operands()
    vendor.fail_with(161002)
    with pytest.raises(
        check.HybridOpsError, match="GetWorkspaceSize failed: got code 161002; allowed code 0 on ascend310p"
    ):
        npu.call(op, "ascend310p", tensors, attrs, outputs)
    assert vendor.still_alive() == 0


def test_missing_package_is_named(vendor, monkeypatch):
    monkeypatch.setenv(npu.CUSTOM_PATHS, os.devnull)
    monkeypatch.delenv("ASCEND_OPP_PATH", raising=False)
    op, *rest = operands()
    with pytest.raises(
        check.HybridOpsError, match="operator package not found: got ASCEND_CUSTOM_OPP_PATH='/dev/null'"
    ):
        npu.call(op, "ascend310p", *rest)


ORDER = """
import ctypes, os, sys, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for step in sys.argv[2:]:
        ctypes.CDLL(sys.argv[1]) if step == "runtime" else __import__("hybrid_ops")
from hybrid_ops import HybridOpsError, contract, npu, npu_path
print(os.environ.get(npu_path.CUSTOM_PATHS, ""))
print(*[str(w.message) for w in told if w.category is RuntimeWarning])
try:
    npu._open(contract.load()["recurrent_gated_delta_rule"], "ascend310p")
except HybridOpsError as error:
    print(error)
"""


@pytest.mark.parametrize("link", ["https://github.com/flashserve/flash-linear-attention-npu/issues/429"])
@pytest.mark.parametrize("order", ["package runtime", "runtime package"])
def test_package_and_runtime_in_either_order(link, order, tmp_path):
    """PKG2: the path is set before CANN's runtime can read it; after that it is too late, and said at once."""
    source = tmp_path / "runtime.cpp"
    source.write_text("")
    runtime = tmp_path / "libascendcl.so"
    shutil.copy(build.compile_shared("runtime_stub", [source], ["-std=c++17"], quiet=True), runtime)
    folder = tmp_path / "opp" / "vendors" / npu_path.VENDOR
    (folder / "op_api").mkdir(parents=True)
    environment = {name: v for name, v in os.environ.items() if name != npu_path.CUSTOM_PATHS}
    done = subprocess.run(
        [sys.executable, "-c", ORDER, str(runtime), *order.split()],
        env={**environment, "ASCEND_OPP_PATH": str(tmp_path / "opp")},
        capture_output=True,
        text=True,
        check=True,
    )
    path, told, error = done.stdout.splitlines()
    line = f"export ASCEND_CUSTOM_OPP_PATH={folder}:$ASCEND_CUSTOM_OPP_PATH"
    if order == "package runtime":
        assert path == str(folder) and not told and "operator package is incomplete" in error
    else:
        assert path == "" and line in told and line in error
        assert "CANN was started before its operators were on the path" in error


def test_a_kernel_that_cann_does_not_find(vendor):
    op, tensors, attrs, outputs = operands()
    vendor.fail_with(561103)
    with pytest.raises(
        check.HybridOpsError, match=r"got code 561103; .*\(export ASCEND_CUSTOM_OPP_PATH=.*vendors"
    ):
        npu.call(op, "ascend310p", tensors, attrs, outputs)
