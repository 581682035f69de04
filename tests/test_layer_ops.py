"""The gated norm and the gates of a gated delta net: against transformers, on random calls, refusals, plans, floors."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, contract, dtypes, host, profile, runtime, selftest
from hybrid_ops.case import Case
from hybrid_ops.check import Spec

NORM, GATE = "hybrid_gated_rms_norm", "hybrid_gated_delta_gate"
KIND = {"ascend310p": "float16", "ascend910b": "bfloat16"}


def gate_specs(tokens=3, heads=32, dtype="float16", **changes):
    specs = {"a": Spec((tokens, heads), dtype), "b": Spec((tokens, heads), dtype)}
    return specs | {"A_log": Spec((heads,), "float32"), "dt_bias": Spec((heads,), "float32")} | changes


def norm_specs(rows=3, dim=128, dtype="float16", **changes):
    specs = {"x": Spec((rows, dim), dtype), "z": Spec((rows, dim), dtype), "weight": Spec((dim,), "float32")}
    return specs | changes


@pytest.mark.parametrize("module", ["Qwen3_5RMSNormGated", "Qwen3NextRMSNormGated"])
@pytest.mark.parametrize("weight", ["float32", "same"])
def test_norm_agrees_with_transformers(module, weight, soc):
    torch = pytest.importorskip("torch")
    family = {"Qwen3_5RMSNormGated": "qwen3_5", "Qwen3NextRMSNormGated": "qwen3_next"}[module]
    source = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(3)
    kind = getattr(torch, KIND[soc])
    norm = getattr(source, module)(128, eps=1e-6)
    norm.weight.data.normal_(1, 0.3)
    norm.to(torch.float32 if weight == "float32" else kind)
    x, z = torch.randn(37, 128).to(kind), (torch.randn(37, 128) * 2).to(kind)
    with torch.no_grad():
        want = norm(x, z).float()
        got = hybrid_ops.hybrid_gated_rms_norm(
            x, z, norm.weight.data, eps=norm.variance_epsilon, backend="sim", soc=soc
        )
    assert got.dtype == kind
    error = ((got.float() - want).norm() / want.norm()).item()
    assert error <= (5e-4 if kind is torch.float16 else 4e-3)  # they round twice more than we do


def test_gates_agree_with_transformers_expressions(soc):
    torch = pytest.importorskip("torch")
    torch.manual_seed(4)
    kind = getattr(torch, KIND[soc])
    a, b = (torch.randn(19, 48) * 6).to(kind), (torch.randn(19, 48) * 3).to(kind)
    rate, bias = torch.empty(48).uniform_(0.01, 16).log(), torch.randn(48)
    want = -rate.exp() * torch.nn.functional.softplus(a.float() + bias)
    g, beta = hybrid_ops.hybrid_gated_delta_gate(a, b, rate, bias, backend="sim", soc=soc)
    torch.testing.assert_close(g, want, rtol=2e-6, atol=1e-30)
    torch.testing.assert_close(beta, b.sigmoid(), rtol=8e-3, atol=0)
    assert g.dtype == torch.float32 and beta.dtype == kind


def test_softplus_keeps_relative_accuracy(soc):
    """ln(1 + exp(x)) in float32 is 0 below -17; every value of ours is within a few units in the last place."""
    kind = dtypes.NUMPY[KIND[soc]]
    a = np.linspace(-80, 90, 320 * 16).reshape(320, 16).astype(kind)
    zero = np.zeros(16, np.float32)
    g = runtime.run(GATE, {"a": a, "b": a, "A_log": zero, "dt_bias": zero}, {}, backend="sim", soc=soc)["g"]
    want = -np.logaddexp(0, a.astype(float))
    assert np.abs(g / want - 1).max() < 5e-7


def random_norm(rng, types):
    rows, dim = int(rng.integers(1, 90)), 16 * int(rng.integers(1, 33))
    scale = 10.0 ** rng.uniform(-3, 3)
    arrays = {
        "x": rng.standard_normal((rows, dim)) * scale,
        "z": rng.standard_normal((rows, dim)) * 3,
        "weight": rng.standard_normal(dim),
    }
    if rng.random() < 0.3:
        arrays["x"][rng.integers(rows), rng.integers(dim)] = rng.choice([np.inf, -np.inf])
    return {n: v.astype(types[n]) for n, v in arrays.items()}, {"eps": float(rng.choice([0, 1e-6, 1e-2]))}


def random_gate(rng, types):
    tokens, heads = int(rng.integers(1, 150)), int(rng.integers(1, 257))
    arrays = {
        "a": rng.standard_normal((tokens, heads)) * 10,
        "b": rng.standard_normal((tokens, heads)) * 10,
        "A_log": rng.uniform(-6, 6, heads),
        "dt_bias": rng.standard_normal(heads) * 4,
    }
    return {n: v.astype(types[n]) for n, v in arrays.items()}, {}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "make"), [(NORM, random_norm), (GATE, random_gate)], ids=["norm", "gate"])
def test_random_call(name, make, seed, soc):
    op = contract.load()[name]
    rng = np.random.default_rng([seed, *name.encode()])
    column = int(rng.integers(op.columns(soc)))
    types = {t.name: dtypes.NUMPY[t.dtypes[soc][column]] for t in op.inputs}
    arrays, attrs = make(rng, types)
    selftest.hold_case(Case(f"random-{seed}", name, soc, column, lambda _: arrays, attrs))


@pytest.mark.parametrize(
    ("name", "specs"), [(NORM, norm_specs(0)), (GATE, gate_specs(0))], ids=["norm", "gate"]
)
def test_no_rows(name, specs, soc):
    arrays = {
        n: np.ones(s.shape, dtypes.NUMPY[s.dtype if s.dtype == "float32" else KIND[soc]])
        for n, s in specs.items()
    }
    for backend in ("sim", "reference"):
        made = runtime.run(name, arrays, {}, backend=backend, soc=soc)
        assert all(a.shape[0] == 0 for a in made.values())


REFUSALS = {
    "norm-dim": (NORM, norm_specs(dim=24), {}, "x: D must be a multiple of 16: got D=24; allowed D % 16 == 0"),
    "norm-dim-large": (NORM, norm_specs(dim=528), {}, "x: D out of range: got D=528; allowed 16 <= D <= 512"),
    "norm-dim-small": (NORM, norm_specs(dim=8), {}, "x: D out of range: got D=8; allowed 16 <= D <= 512"),
    "norm-rank": (NORM, norm_specs(x=Spec((3, 4, 128), "float16")), {},
                  "x: wrong rank: got rank 3 (shape [3, 4, 128]); allowed [N, D]"),
    "norm-z": (NORM, norm_specs(z=Spec((4, 128), "float16")), {},
               "z: axis N differs from N of x: got N=4 (shape [4, 128]); allowed N=3"),
    "norm-weight": (NORM, norm_specs(weight=Spec((64,), "float32")), {},
                    "weight: axis D differs from D of x: got D=64 (shape [64]); allowed D=128"),
    "norm-dtype": (NORM, norm_specs(dtype="bfloat16"), {},
                   "x: dtype not available: got bfloat16; allowed float16"),
    "norm-mixed": (NORM, norm_specs(z=Spec((3, 128), "float32")), {},
                   "z: dtype not available: got float32; allowed float16"),
    "norm-eps-nan": (NORM, norm_specs(), {"eps": float("nan")}, "eps: not finite: got nan; allowed a finite float"),
    "norm-missing": (NORM, {n: s for n, s in norm_specs().items() if n != "z"}, {},
                     "z: required input is missing: got None; allowed float16 [N, D]"),
    "gate-heads": (GATE, gate_specs(heads=257), {}, "a: NV out of range: got NV=257; allowed 1 <= NV <= 256"),
    "gate-no-heads": (GATE, gate_specs(heads=0), {}, "a: NV out of range: got NV=0; allowed 1 <= NV <= 256"),
    "gate-b": (GATE, gate_specs(b=Spec((2, 32), "float16")), {},
               "b: axis T differs from T of a: got T=2 (shape [2, 32]); allowed T=3"),
    "gate-bias": (GATE, gate_specs(dt_bias=Spec((1,), "float32")), {},
                  "dt_bias: axis NV differs from NV of a: got NV=1 (shape [1]); allowed NV=32"),
    "gate-parameter": (GATE, gate_specs(A_log=Spec((32,), "float16")), {},
                       "A_log: dtype not available: got float16; allowed float32"),
    "gate-missing": (GATE, {n: s for n, s in gate_specs().items() if n != "dt_bias"}, {},
                     "dt_bias: required input is missing: got None; allowed float32 [NV]"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSALS)
def test_refusals(fault):
    """Before anything runs, in the same words from Python and from the host side."""
    name, specs, attrs, text = REFUSALS[fault]
    for function in (check.call, host.tiling):
        with pytest.raises(check.HybridOpsError) as caught:
            function(name, "ascend310p", specs, attrs)
        assert str(caught.value).startswith(f"{name}: {text}") and "on ascend310p" in str(caught.value)


@pytest.mark.parametrize("backend", ["sim", "reference"])
def test_negative_eps_is_refused(backend):
    x = np.ones((2, 32), np.float16)
    with pytest.raises(check.HybridOpsError, match=f"^{NORM}: eps: negative: got -1e-06; allowed >= 0 on "):
        runtime.run(NORM, {"x": x, "z": x, "weight": x[0]}, {"eps": -1e-6}, backend=backend)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(NORM, "x"), (NORM, "z"), (NORM, "weight"), (GATE, "a"), (GATE, "b"), (GATE, "A_log")],
)
def test_value_refusals(name, argument, soc):
    found = next(c for c in case.cases(name, soc) if c.id.endswith("decode-4b"))
    arrays = found.inputs()
    runtime.run(name, arrays, found.attrs, soc=soc, backend="reference", validate="values")
    arrays[argument].reshape(-1)[-1] = np.nan
    with pytest.raises(check.HybridOpsError, match=rf"^{name}: {argument}: not finite: got nan at \["):
        runtime.run(name, arrays, found.attrs, soc=soc, backend="reference", validate="values")


@pytest.mark.parametrize("rows", [1, 7, 8, 33, 100, 5000])
@pytest.mark.parametrize("dim", [16, 128, 512])
def test_every_core_has_rows_and_tiles_fit(rows, dim, soc):
    tiling = host.tiling(NORM, soc, norm_specs(rows, dim, KIND[soc]))
    cores = host.tiling(NORM, soc, norm_specs(10**6, dim, KIND[soc])).block_dim
    assert tiling.block_dim == min(rows, cores)
    fields = np.frombuffer(tiling.data, np.uint32)
    assert fields[0] == rows and fields[1] == dim
    assert 1 <= fields[2] <= min(240, -(-rows // tiling.block_dim)) and fields[2] * dim <= 8192


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 16, 17, 32, 48, 100, 255, 256])
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 64, 4096])
def test_gate_tiles_are_whole_rows_and_aligned(tokens, heads, soc):
    tiling = host.tiling(GATE, soc, gate_specs(tokens, heads, KIND[soc]))
    elements = int(np.frombuffer(tiling.data[:8], np.uint64)[0])
    _, unit, tile, room = (int(n) for n in np.frombuffer(tiling.data[8:24], np.uint32))
    assert elements == tokens * heads and unit % heads == 0
    assert tile % unit == 0 or tile == elements
    assert soc != "ascend310p" or tile % 16 == 0 or tile == elements
    assert room >= tile + 15 and room * 48 + 16384 <= (256 if soc == "ascend310p" else 192) * 1024
    assert tiling.block_dim <= max(1, elements // unit)


@pytest.mark.parametrize("name", [NORM, GATE])
def test_time_is_above_the_floor(name, soc):
    found = next(c for c in case.cases(name, soc) if c.id.endswith("prefill"))
    made = profile.run(name, found.inputs(), found.attrs, soc=soc)
    assert made.ratio is not None and 1 <= made.ratio < 10


@pytest.mark.parametrize("name", [NORM, GATE])
def test_twenty_runs_are_one(name, soc):
    found = next(c for c in case.cases(name, soc) if c.id.endswith("decode-4b"))
    made = {
        tuple(
            a.tobytes()
            for a in runtime.run(name, found.inputs(), found.attrs, backend="sim", soc=soc).values()
        )
        for _ in range(20)
    }
    assert len(made) == 1


@pytest.mark.parametrize("exporter", ["onnx_export.export_module", "legacy_export.export_module_legacy"])
@pytest.mark.parametrize("functional", [False, True], ids=["plain", "functional"])
def test_nodes_come_from_the_contract(exporter, functional, tmp_path):
    """A torch module with both operators exports as Custom nodes that the checker accepts and the runner runs."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to export")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: nothing to export to")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch cannot export")
    module, function = exporter.split(".")
    export = getattr(importlib.import_module(f"hybrid_ops.export.{module}"), function)
    from hybrid_ops.export import GraphRunner, save

    given = {"x": (6, 32), "z": (6, 32), "a": (2, 12), "b": (2, 12)}
    torch.manual_seed(0)
    inputs = {n: torch.randn(shape).half() for n, shape in given.items()}

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.rate, self.bias = (torch.nn.Parameter(torch.rand(n)) for n in (32, 12, 12))

        def forward(self, x, z, a, b):
            out = hybrid_ops.hybrid_gated_rms_norm(x, z, self.weight, eps=1e-5, functional=functional)
            g, beta = hybrid_ops.hybrid_gated_delta_gate(a, b, self.rate, self.bias, functional=functional)
            return out * 2, g.exp(), beta

    layer = Layer()
    with runtime.using(backend="reference"), torch.no_grad():
        model = export(layer, inputs, output_names=["out", "decay", "beta"])
        want = layer(**inputs)
    save.save_model(model, tmp_path / "layer.onnx")
    loaded = onnx.load(tmp_path / "layer.onnx")
    nodes = {
        onnx.helper.get_node_attr_value(n, "type"): n for n in loaded.graph.node if n.op_type == "Custom"
    }
    assert set(nodes) == {b"HybridGatedRmsNorm", b"HybridGatedDeltaGate"}
    assert onnx.helper.get_node_attr_value(nodes[b"HybridGatedRmsNorm"], "eps") == pytest.approx(1e-5)
    assert onnx.helper.get_node_attr_value(nodes[b"HybridGatedDeltaGate"], "output_num") == 2
    made = GraphRunner(tmp_path / "layer.onnx").run({n: t.numpy() for n, t in inputs.items()})
    for name, tensor in zip(("out", "decay", "beta"), want, strict=True):
        np.testing.assert_allclose(
            made[name].astype(float), tensor.numpy().astype(float), rtol=2e-3, atol=1e-3
        )
