"""The generated PyTorch ops: schema, opcheck, meta, export, compile, in place and functional, both backends."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its ops cannot be tested")

import hybrid_ops  # noqa: E402
from hybrid_ops import case, check, contract, runtime, torch_ops  # noqa: E402

RGDR = "recurrent_gated_delta_rule"
API2 = "https://github.com/vllm-project/vllm-ascend/issues/1962"


def tensors(soc: str, name: str = "g+gk", column: int = 0):
    found = next(c for c in case.cases(RGDR, soc) if c.column == column and c.id.endswith(f"-{name}"))
    arrays = {n: a for n, a in found.inputs().items() if a is not None}
    return {n: torch_ops.from_numpy(a) for n, a in arrays.items()}, dict(found.attrs)


def samples(op, soc: str):
    """The smallest case of the fewest, the most and a middling number of inputs."""
    sizes = {}
    for found in case.cases(op.name, soc):
        arrays = {n: a for n, a in found.inputs().items() if a is not None}
        key = (len(arrays), tuple(arrays))
        size = sum(a.size for a in arrays.values())
        if key not in sizes or size < sizes[key][0]:
            sizes[key] = (size, arrays, dict(found.attrs))
    order = sorted(sizes)
    for key in {order[0], order[len(order) // 2], order[-1]}:
        _, arrays, attrs = sizes[key]
        yield {n: torch_ops.from_numpy(a) for n, a in arrays.items()}, attrs


@pytest.fixture(params=["", torch_ops.FUNCTIONAL], ids=["in-place", "functional"])
def torch_op(request, op):
    return getattr(torch.ops.hybrid_ops, op.name + request.param)


def test_schema_comes_from_the_contract(op):
    functional = torch_op_schema(op, True)
    mutable = torch_op_schema(op, False)
    names = [t.name for t in op.inputs] + [a.name for a in op.attrs]
    assert [a.name for a in functional.arguments] == [a.name for a in mutable.arguments] == names
    assert tuple(a.name for a in mutable.arguments if a.is_write) == op.mutated
    assert not functional.is_mutable
    assert [r.name for r in functional.returns] == [t.name for t in op.outputs]
    assert len(mutable.returns) == len(op.outputs) - len(op.mutated)


def torch_op_schema(op, functional):
    return getattr(
        torch.ops.hybrid_ops, op.name + (torch_ops.FUNCTIONAL if functional else "")
    ).default._schema


@pytest.mark.parametrize("backend", ["reference", "sim"])
def test_opcheck(torch_op, op, soc, backend):
    for given, attrs in samples(op, soc):
        with runtime.using(backend=backend):
            parts = torch.library.opcheck(torch_op, (), {**given, **attrs})
        assert set(parts.values()) == {"SUCCESS"}, parts


def test_meta_tensors(torch_op, op, soc):
    """Every op traces on meta tensors: https://github.com/vllm-project/vllm-ascend/issues/1962"""
    given, attrs = next(samples(op, soc))
    made = torch_op(**{n: t.to("meta") for n, t in given.items()}, **attrs)
    made = made if isinstance(made, tuple) else () if made is None else (made,)
    bound = check.call(op, soc, torch_ops._specs(given), attrs)
    for result, spec in zip(made, bound.outputs.values(), strict=False):
        assert (
            result.is_meta
            and tuple(result.shape) == spec.shape
            and torch_ops.dtype_name(result) == spec.dtype
        )
        assert result.is_contiguous()


@pytest.mark.parametrize("backend", ["reference", "sim"])
def test_in_place_and_functional_agree(soc, backend):
    given, attrs = tensors(soc)
    before = given["state"].clone()
    out, state = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, functional=True, backend=backend)
    assert torch.equal(given["state"], before), "the functional form wrote its input"
    again = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, backend=backend)
    assert torch.equal(again, out) and torch.equal(given["state"], state)


def test_strided_state_is_updated_in_place(soc):
    given, attrs = tensors(soc)
    wide = torch.zeros(*given["state"].shape[:3], given["state"].shape[3] * 2, dtype=given["state"].dtype)
    view = wide[..., ::2]
    view.copy_(given["state"])
    out = hybrid_ops.recurrent_gated_delta_rule(**{**given, "state": view}, **attrs, backend="sim")
    want, state = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, functional=True, backend="sim")
    assert torch.equal(out, want) and torch.equal(view, state)
    assert not wide[..., 1::2].any(), "bytes between the strides were written"


class Step(torch.nn.Module):
    def __init__(self, attrs, functional):
        super().__init__()
        self.attrs, self.functional = attrs, functional

    def forward(self, given):
        made = hybrid_ops.recurrent_gated_delta_rule(**given, **self.attrs, functional=self.functional)
        return (made[0] * 2, made[1]) if self.functional else made * 2


@pytest.mark.parametrize("functional", [True, False], ids=["functional", "in-place"])
def test_export(soc, functional):
    given, attrs = tensors(soc)
    with runtime.using(backend="reference"):
        want = Step(attrs, functional)({n: t.clone() for n, t in given.items()})
        program = torch.export.export(Step(attrs, functional), (given,))
        calls = [n for n in program.graph.nodes if "gated_delta_rule" in str(n.target)]
        assert len(calls) == 1
        lowered = program.run_decompositions({})
        if functional:
            assert not lowered.graph_signature.user_inputs_to_mutate
        made = lowered.module()({n: t.clone() for n, t in given.items()})
    for a, b in zip(made if functional else (made,), want if functional else (want,), strict=True):
        assert torch.equal(a, b)


def test_export_with_dynamic_tokens(soc):
    given, attrs = tensors(soc)
    rows = torch.export.Dim("rows", min=2, max=64)
    per_row = {t.name for t in contract.load()[RGDR].inputs if t.axes[0][0] == "T"}
    shapes = {n: {0: rows} if n in per_row else None for n in given}
    program = torch.export.export(Step(attrs, True), (given,), dynamic_shapes=({**shapes},))
    assert any("gated_delta_rule" in str(n.target) for n in program.graph.nodes)


def test_compile_without_graph_break(soc):
    given, attrs = tensors(soc)
    with runtime.using(backend="reference"):
        want = Step(attrs, False)({n: t.clone() for n, t in given.items()})
        compiled = torch.compile(Step(attrs, False), backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(given), want)


def test_numpy_arrays_are_taken_too(soc):
    given, attrs = tensors(soc)
    arrays = {n: torch_ops.to_numpy(t).copy() for n, t in given.items()}
    out = hybrid_ops.recurrent_gated_delta_rule(**arrays, **attrs, backend="reference")
    want = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, backend="reference")
    assert isinstance(out, np.ndarray) and out.tobytes() == torch_ops.to_numpy(want).tobytes()
    assert arrays["state"].tobytes() == torch_ops.to_numpy(given["state"]).tobytes()


def test_refusals_reach_torch_callers(soc):
    given, attrs = tensors(soc)
    state = given["state"].clone()
    faults = [
        ({"backend": "npu"}, "backend: npu needs NPU tensors: got CPU tensors; allowed reference, sim"),
        ({"key": 3}, "key: not a tensor: got int; allowed torch tensors or NumPy arrays only"),
        ({"beta": None}, "beta: required input is missing"),
        ({"checks": "some"}, "checks: not a known choice: got 'some'; allowed full, off"),
        ({"backend": "gpu"}, "backend: not a known choice: got 'gpu'; allowed reference, sim, npu"),
        ({"value": given["value"][:1]}, "value: axis T differs from T of query"),
        ({"soc": "ascend999"}, "soc: not a known SoC: got 'ascend999'"),
    ]
    for change, text in faults:
        with pytest.raises(check.HybridOpsError) as caught:
            hybrid_ops.recurrent_gated_delta_rule(**{**given, **attrs, **change})
        assert str(caught.value).startswith(f"{RGDR}: {text}")
    for value in ("1", True, [1.0], float("nan")):
        with pytest.raises(
            check.HybridOpsError, match=f"^{RGDR}: scale_value: (wrong type|not finite): got "
        ):
            hybrid_ops.recurrent_gated_delta_rule(**given, scale_value=value)
    sparse = {**given, "beta": given["beta"].to_sparse()}
    with pytest.raises(
        check.HybridOpsError, match=r"beta: not a dense tensor: got torch\.sparse_coo; allowed"
    ):
        hybrid_ops.recurrent_gated_delta_rule(**sparse, **attrs)
    for change in ({"bogus": 1}, {"scale": 1.0}):
        with pytest.raises(TypeError, match="not an argument; signature"):
            hybrid_ops.recurrent_gated_delta_rule(**{**given, **change})
    assert torch.equal(given["state"], state)


def test_state_that_cannot_be_updated_is_refused(soc):
    given, attrs = tensors(soc)
    given["state"] = given["state"][:1].expand_as(given["state"])
    text = f"^{RGDR}: state: cannot be updated in place: got one element stands at several places"
    with pytest.raises(check.HybridOpsError, match=text):
        hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, backend="reference")
    out, _ = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, backend="reference", functional=True)
    assert out.shape == given["value"].shape
    arrays = {n: torch_ops.to_numpy(t).copy() for n, t in given.items()}
    arrays["state"].setflags(write=False)
    with pytest.raises(
        check.HybridOpsError, match="state: cannot be updated in place: got a read-only array"
    ):
        hybrid_ops.recurrent_gated_delta_rule(**arrays, **attrs, backend="reference")


def test_numpy_scalars_are_numbers(soc):
    given, attrs = tensors(soc)
    scale = np.float32(attrs.pop("scale_value"))
    arrays = {n: torch_ops.to_numpy(t).copy() for n, t in given.items()}
    options = {"scale_value": scale, "backend": "reference", "functional": True}
    for call in (given, arrays):
        assert len(hybrid_ops.recurrent_gated_delta_rule(**call, **options)) == 2


WHOLE = [(op.name, a.name) for op in contract.load().values() for a in op.attrs if a.type == "int"]


@pytest.mark.parametrize(
    "far", [2**63, -(2**63) - 1, 2**70, 2**20000], ids=["2^63", "-2^63-1", "2^70", "2^20000"]
)
@pytest.mark.parametrize(("name", "attribute"), WHOLE, ids=[f"{n}-{a}" for n, a in WHOLE])
def test_integers_beyond_64_bits_are_refused_by_every_operator(name, attribute, far):
    """torch and ctypes have words of their own for them, or none; so does print for thousands of digits."""
    found = case.cases(name, "ascend910b")[0]
    arrays = found.inputs()
    given = {n: None if a is None else torch_ops.from_numpy(a) for n, a in arrays.items()}
    attrs = {**found.attrs, attribute: far}
    got = str(far) if far < 2**71 else "an integer of 20001 bits"
    wanted = f"{name}: {attribute}: does not fit 64 bits: got {got}; allowed int64 on "
    for call in (
        lambda: torch_ops.call(contract.load()[name], given, attrs, functional=True, backend="reference"),
        lambda: runtime.run(name, arrays, attrs, backend="reference"),
        lambda: getattr(hybrid_ops, name)(**{n: t for n, t in given.items() if t is not None}, **attrs),
    ):
        with pytest.raises(check.HybridOpsError) as caught:
            call()
        assert str(caught.value).startswith(wanted)


def test_backward_is_refused(soc):
    given, attrs = tensors(soc)
    given["query"].requires_grad_()
    out, _ = hybrid_ops.recurrent_gated_delta_rule(**given, **attrs, functional=True, backend="reference")
    with pytest.raises(check.HybridOpsError, match="backward: no gradient exists"):
        out.float().sum().backward()


@pytest.mark.parametrize("name", [op.name for op in contract.load().values() if not op.mutated])
def test_backward_is_refused_by_every_operator_that_mutates_nothing(name):
    """Without a formula torch would leave gradients out, with no more than a warning."""
    found = case.cases(name, "ascend910b")[0]
    given = {n: None if a is None else torch_ops.from_numpy(a) for n, a in found.inputs().items()}
    first = next(t for t in given.values() if t is not None and t.is_floating_point())
    first.requires_grad_()
    made = torch_ops.call(contract.load()[name], given, found.attrs, functional=False, backend="reference")
    out = made if isinstance(made, torch.Tensor) else made[0]
    with pytest.raises(check.HybridOpsError, match=f"{name}: backward: no gradient exists"):
        out.float().sum().backward()


@pytest.mark.parametrize("name", [op.name for op in contract.load().values() if op.mutated])
def test_gradients_through_a_call_in_place_are_refused(name):
    """The gradient of whatever is written would be missing without a word."""
    found = case.cases(name, "ascend910b")[0]
    given = {n: None if a is None else torch_ops.from_numpy(a) for n, a in found.inputs().items()}
    argument = next(n for n, t in given.items() if t is not None and t.is_floating_point())
    before = {n: given[n].clone() for n in contract.load()[name].mutated}
    given[argument].requires_grad_()
    options = {"functional": False, "backend": "reference"}
    with pytest.raises(check.HybridOpsError) as caught:
        torch_ops.call(contract.load()[name], given, found.attrs, **options)
    assert str(caught.value) == (
        f"{name}: {argument}: no gradient exists, and the call writes its arguments: got requires_grad; "
        "allowed torch.no_grad, or detached tensors on every SoC"
    )
    assert all(torch.equal(given[n], before[n]) for n in before)
    with torch.no_grad():
        torch_ops.call(contract.load()[name], given, found.attrs, **options)
    assert any(not torch.equal(given[n], before[n]) for n in before)


def rudnn(dtype, b=2, h=3, t=11, k=32, v=48):
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize
    q, kk = (unit(torch.randn(b, h, t, k), dim=-1).to(dtype) for _ in range(2))
    return hybrid_ops.GatedDeltaInput(
        q, kk, torch.randn(b, h, t, v).to(dtype), torch.rand(b, h, t).to(dtype), -torch.rand(b, h, t),
        torch.randn(b, h, k, v) * 0.3, k**-0.5,
    )  # fmt: skip


def naive(x):
    """The rule on [B, H, T, *] tensors, written out once more in float64."""
    q, k, v, beta, g, s = (getattr(x, f.name).double() for f in dataclasses.fields(x)[:6])
    outs = []
    for t in range(q.shape[2]):
        s = s * g[:, :, t, None, None].exp()
        delta = (v[:, :, t] - (k[:, :, t, None, :] @ s)[:, :, 0]) * beta[:, :, t, None]
        s = s + k[:, :, t, :, None] * delta[:, :, None, :]
        outs.append((q[:, :, t, None, :] * x.query_scale @ s)[:, :, 0])
    return torch.stack(outs, 2), s


@pytest.mark.parametrize(
    ("dtype", "backend", "soc_name", "limit"),
    [(torch.float32, "reference", None, 1e-6), (torch.float16, "reference", None, 5e-4),
     (torch.float16, "sim", "ascend310p", 1e-3), (torch.bfloat16, "sim", "ascend910b", 5e-3),
     (torch.float16, "sim", "ascend910b", 5e-4), (torch.float32, "sim", "ascend910b", 1e-2)],
    ids=["f32-exact", "f16-reference", "f16-310p", "bf16-910b", "f16-910b", "f32-rounded-on-910b"],
)  # fmt: skip
def test_rudnn_entry(dtype, backend, soc_name, limit):
    x = rudnn(dtype)
    initial = x.initial_state.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = hybrid_ops.gated_delta_rule(x, backend=backend, soc=soc_name)
    output, state = naive(x)
    assert made.output.dtype == dtype and made.final_state.dtype == torch.float32
    assert made.output.shape == output.shape and made.final_state.shape == state.shape
    for got, want in ((made.output, output), (made.final_state, state)):
        assert ((got.double() - want).norm() / want.norm()).item() <= limit
    assert torch.equal(x.initial_state, initial)


def test_rudnn_says_what_the_chip_rounds():
    with pytest.warns(
        UserWarning, match="ascend310p computes F16 operands as F16 and stores the state as F16"
    ):
        hybrid_ops.gated_delta_rule(rudnn(torch.float16), backend="sim")


def test_rudnn_without_tokens_returns_the_initial_state():
    x = rudnn(torch.float16, t=0)
    made = hybrid_ops.gated_delta_rule(x, backend="reference")
    assert made.output.shape == (2, 3, 0, 48) and torch.equal(made.final_state, x.initial_state)
    assert made.final_state.data_ptr() != x.initial_state.data_ptr()


@pytest.mark.parametrize(
    ("change", "text"),
    [({"query": lambda x: x.query.double()}, "query: dtype not available: got torch.float64; allowed F32, F16, BF16"),
     ({"key": lambda x: x.key.float()}, "key: wrong dtype: got torch.float32; allowed torch.float16"),
     ({"key": lambda x: x.key[:, :1]}, "key: wrong shape, head counts are equal (no grouped heads): got [2, 1, 11, 32]"),
     ({"beta": lambda x: x.beta[..., None]}, "beta: wrong shape: got [2, 3, 11, 1]; allowed [2, 3, 11]"),
     ({"log_decay": lambda x: x.log_decay.half()}, "log_decay: wrong dtype: got torch.float16; allowed torch.float32"),
     ({"initial_state": lambda x: x.initial_state.transpose(2, 3)}, "initial_state: wrong shape: got [2, 3, 48, 32]"),
     ({"query_scale": lambda x: float("nan")}, "query_scale: not a finite number: got nan; allowed a finite float"),
     ({"value": lambda x: x.value[0]}, "value: wrong rank: got shape [3, 11, 48]; allowed [B, H, T, D]"),
     ({"value": lambda x: None}, "value: not a tensor: got NoneType; allowed torch.Tensor")],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_rudnn_refusals(change, text):
    x = rudnn(torch.float16)
    bad = dataclasses.replace(x, **{n: f(x) for n, f in change.items()})
    with pytest.raises(hybrid_ops.GatedDeltaError) as caught:
        hybrid_ops.gated_delta_rule(bad, backend="reference")
    assert str(caught.value).startswith(f"gated_delta_rule: {text}")


def test_rudnn_refuses_what_is_no_input():
    for bad in ({}, None, dataclasses.replace(rudnn(torch.float16), query=[1.0])):
        with pytest.raises(
            hybrid_ops.GatedDeltaError, match=r"^gated_delta_rule: .*(wrong type|not a tensor): got "
        ):
            hybrid_ops.gated_delta_rule(bad, backend="reference")
    with pytest.raises(hybrid_ops.GatedDeltaError, match="soc: not a known SoC: got 'ascend1'"):
        hybrid_ops.gated_delta_rule(rudnn(torch.float16), soc="ascend1")
