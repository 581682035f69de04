"""Faults that users of other packages reported, each with the smallest input that shows it; the link is the test's id."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, contract, selftest, sim

RGDR = "recurrent_gated_delta_rule"
REPORTED = [c for op in contract.load() for soc in contract.socs() for c in case.cases(op, soc) if c.report]


@pytest.mark.parametrize("found", REPORTED, ids=[f"{c.report}-{c.id}" for c in REPORTED])
def test_reported_case(found):
    """GR1 state layout, GR2 head map, GR3 padded slot, HW1 rows that are not whole 32-byte blocks."""
    selftest.hold_case(found)


@pytest.mark.parametrize("link", ["https://github.com/weicj/vLLM-2080Ti-Definitive/issues/99"])
def test_uneven_head_groups_are_refused(link, soc):
    found = next(c for c in case.cases(RGDR, soc) if c.id.endswith("report-head-map"))
    inputs = found.inputs()
    for name in ("value", "beta", "state"):
        inputs[name] = np.ascontiguousarray(inputs[name][:, :3])
    with pytest.raises(check.HybridOpsError, match="got NV=3, NK=2; allowed NV % NK == 0"):
        sim.launch(RGDR, inputs, found.attrs, soc=soc)


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm-ascend/issues/8186"])
def test_float32_state_on_310p_is_refused_before_anything_runs(link):
    """API1."""
    inputs = case.cases(RGDR, "ascend310p")[0].inputs()
    inputs["state"] = inputs["state"].astype(np.float32)
    before = inputs["state"].copy()
    with pytest.raises(check.HybridOpsError) as caught:
        hybrid_ops.recurrent_gated_delta_rule(**inputs, soc="ascend310p")
    assert str(caught.value) == (
        f"{RGDR}: state: dtype not available: got float32; allowed float16 on ascend310p (ascend910b also has float32)"
    )
    assert inputs["state"].tobytes() == before.tobytes()


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm-ascend/issues/1962"])
def test_every_op_runs_on_meta_tensors(link, op, soc):
    """API2; strides, dtypes and mutation marks in detail: test_torch.py."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: meta tensors cannot be tested")
    from hybrid_ops import torch_ops

    found = case.cases(op.name, soc)[0]
    inputs = found.inputs()
    given = {n: torch_ops.from_numpy(a).to("meta") for n, a in inputs.items() if a is not None}
    assert given and all(
        t.is_meta for t in getattr(hybrid_ops, op.name)(**given, **found.attrs, functional=True)
    )
    assert torch.ops.hybrid_ops


PADDED_COPY = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void padded_copy(GM_ADDR x, GM_ADDR y) {
    GlobalTensor<half> in, out;
    in.SetGlobalBuffer((__gm__ half*)x, 20);
    out.SetGlobalBuffer((__gm__ half*)y, 20);
    TPipe pipe;
    TQueBind<QuePosition::VECIN, QuePosition::VECOUT, 1> queue;
    pipe.InitBuffer(queue, 1, 64);
    LocalTensor<half> local = queue.AllocTensor<half>();
    DataCopyPad(local, in, DataCopyExtParams{1, 40, 0, 0, 0}, DataCopyPadExtParams<half>{false, 0, 0, half(0)});
    queue.EnQue(local);
    local = queue.DeQue<half>();
    DataCopyPad(out, local, DataCopyExtParams{1, 40, 0, 0, 0});
    queue.FreeTensor(local);
}
"""

ROUNDING = """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void rounding(GM_ADDR x, GM_ADDR y) {
    GlobalTensor<float> in;
    GlobalTensor<half> out;
    in.SetGlobalBuffer((__gm__ float*)x, 64);
    out.SetGlobalBuffer((__gm__ half*)y, 64);
    TPipe pipe;
    TQue<QuePosition::VECIN, 1> source;
    TQue<QuePosition::VECOUT, 1> target;
    pipe.InitBuffer(source, 1, 256);
    pipe.InitBuffer(target, 1, 128);
    LocalTensor<float> a = source.AllocTensor<float>();
    DataCopy(a, in, 64);
    source.EnQue(a);
    a = source.DeQue<float>();
    LocalTensor<half> b = target.AllocTensor<half>();
    Cast(b, a, RoundMode::CAST_RINT, 64);
    target.EnQue(b);
    b = target.DeQue<half>();
    DataCopy(out, b, 64);
    source.FreeTensor(a);
    target.FreeTensor(b);
}
"""


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm-ascend/pull/9458"])
@pytest.mark.parametrize(("source", "name", "dtypes_in", "count", "call"), [
    (PADDED_COPY, "padded_copy", np.float16, 20, "DataCopyPad"),
    (ROUNDING, "rounding", np.float32, 64, "Cast"),
], ids=["padded-copy", "rounding-mode"])  # fmt: skip
def test_calls_that_310p_lacks_are_refused_by_name(link, source, name, dtypes_in, count, call, soc, tmp_path):
    """HW2: refused for 310P, when compiled or when run, naming call and SoC; accepted and right on 910B."""
    kernel = tmp_path / f"{name}.cpp"
    kernel.write_text(source)
    data = np.arange(count, dtype=dtypes_in)
    args = [sim.Argument("x", sim.INPUT, data), sim.Argument("y", sim.OUTPUT, size=count * 2)]

    def run():
        library = sim.compile_kernel_file(kernel, name, soc=soc)
        sim.launch_kernel(library, args, op=name, soc=soc, block_dim=1)
        return args[1].array([count], "float16")

    if soc == "ascend310p":
        with pytest.raises(sim.SimulatorError) as caught:
            run()
        assert call in str(caught.value) and "310" in str(caught.value)
    else:
        np.testing.assert_array_equal(run(), data.astype(np.float16))
