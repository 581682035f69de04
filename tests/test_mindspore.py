"""MindSpore functions: the operators' own cases in both modes, refusals, dynamic shapes, MindIR, the decode layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ms = pytest.importorskip(
    "mindspore", reason="MindSpore is not installed: its functions, MindIR and layer are not tested"
)

from mindspore import Tensor, nn  # noqa: E402

from hybrid_ops import case, check, compare, contract, dtypes, runtime  # noqa: E402
from hybrid_ops import mindspore as hops  # noqa: E402

RGDR = "recurrent_gated_delta_rule"
MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


@pytest.fixture(params=MODES)
def mode(request):
    ms.set_context(mode=MODES[request.param])
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """MindSpore leaves reports of failed compilations in the current folder."""
    monkeypatch.chdir(tmp_path)


def tensor(array):
    if array is None or array.dtype != dtypes.NUMPY["bfloat16"]:
        return None if array is None else Tensor(array)
    return Tensor(array.astype(np.float32)).astype(ms.bfloat16)


def array(value):
    if value.dtype == ms.bfloat16:
        return value.float().asnumpy().astype(dtypes.NUMPY["bfloat16"])
    return value.asnumpy()


class Net(nn.Cell):
    """One call of an operator, its inputs in contract order."""

    def __init__(self, name, **attrs):
        super().__init__()
        self.function, self.attrs = getattr(hops, name), attrs

    def construct(self, *tensors):
        return self.function(*tensors, **self.attrs)


def run(found, mode="pynative", **changes):
    """Outputs of a case by name; `changes` replace inputs (arrays) or add options."""
    op = contract.load()[found.op]
    arrays = {
        **found.inputs(),
        **{n: changes.pop(n) for n in list(changes) if n in [t.name for t in op.inputs]},
    }
    tensors = [tensor(arrays.get(t.name)) for t in op.inputs]
    attrs = {**found.attrs, **changes}
    call = getattr(hops, op.name) if mode == "pynative" else Net(op.name)
    made = call(*tensors, **attrs) if mode == "pynative" else Net(op.name, **attrs)(*tensors)
    made = made if isinstance(made, tuple) else (made,)
    for t, given in zip(op.inputs, tensors, strict=True):
        assert given is None or array(given).tobytes() == arrays[t.name].tobytes(), f"{t.name} was modified"
    return dict(zip((t.name for t in op.outputs), map(array, made), strict=True))


def hold(found, mode):
    inputs, outputs = found.inputs(), run(found, mode, soc=found.soc)
    wanted = case.module(found.op).meaning(**inputs, **found.attrs)
    compare.hold(found, inputs, outputs, wanted)
    if found.expect:
        found.expect(inputs, outputs)


def find(name, soc="ascend310p"):
    return next(c for c in case.cases(RGDR, soc) if c.id.endswith(name))


def test_case_in_pynative_mode(op_case):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    hold(op_case, "pynative")


def test_cases_in_graph_mode(op, soc):
    """One case of each structure (dtypes, ranks, absent inputs): a graph is compiled per case, and data do not change it.

    HYBRID_OPS_ALL_GRAPHS=1 runs every case.
    """
    if soc not in op.socs:
        pytest.skip(f"{op.name} is not available on {soc}")
    ms.set_context(mode=ms.GRAPH_MODE)
    structures, every = {}, bool(os.environ.get("HYBRID_OPS_ALL_GRAPHS"))
    for found in case.cases(op.name, soc):
        ranks = tuple((n, a.ndim, a.dtype.name) for n, a in found.inputs().items() if a is not None)
        structures.setdefault(found.id if every else (ranks, tuple(found.attrs)), found)
    try:
        for found in structures.values():
            hold(found, "graph")
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_same_bits_as_the_simulator_backend(mode, soc):
    found = find("table-accepted-longer", soc)
    wanted = runtime.run(RGDR, found.inputs(), found.attrs, backend="sim", soc=soc)
    for name, got in run(found, mode, soc=soc, checks="full").items():
        compare.same_bits(name, got, wanted[name])


def test_names_order_and_defaults_are_those_of_pytorch(op):
    import inspect

    import hybrid_ops

    mine = inspect.signature(getattr(hops, op.name)).parameters
    theirs = inspect.signature(getattr(hybrid_ops, op.name)).parameters
    options = ("backend", "validate", "functional")
    assert [(n, p.default, p.kind) for n, p in mine.items()] == [
        (n, p.default, p.kind) for n, p in theirs.items() if n not in options
    ]
    assert all(t.name in getattr(hops, op.name).__doc__ for t in (*op.inputs, *op.outputs))


BAD = {
    "infinite scale": ({"scale_value": float("inf")}, {}),
    "unknown chip": ({"soc": "ascend999"}, {}),
    "chip without float16": ({"soc": "ascend910b"}, {}),
    "dtype": ({}, {"state": lambda a: a.astype(np.float32)}),
    "axis": ({}, {"beta": lambda a: a[:-1]}),
    "rank": ({}, {"key": lambda a: a[0]}),
    "missing": ({}, {"beta": lambda a: None}),
    "limit": ({}, {n: lambda a: a[..., :8] for n in ("query", "key", "state")}),
}


@pytest.mark.parametrize("fault", BAD)
def test_refusals_have_the_words_of_every_other_face(mode, fault):
    options, edits = BAD[fault]
    found = find("varlen")
    arrays = {n: edits.get(n, lambda a: a)(a) for n, a in found.inputs().items()}
    specs = {n: check.Spec(a.shape, a.dtype.name) for n, a in arrays.items() if a is not None}
    attrs = {**found.attrs, **{n: v for n, v in options.items() if n != "soc"}}
    with pytest.raises(check.HybridOpsError) as wanted:
        check.call(RGDR, options.get("soc"), specs, attrs)
    with pytest.raises(check.HybridOpsError) as got:
        run(found, mode, **{n: arrays[n] for n in edits}, **options)
    assert str(got.value) == str(wanted.value)


def test_refuses_what_is_not_a_tensor_and_unknown_checks():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found = find("varlen")
    tensors = [tensor(a) for a in found.inputs().values()]
    with pytest.raises(
        check.HybridOpsError, match="query: not a tensor: got external; allowed a MindSpore tensor"
    ):
        hops.recurrent_gated_delta_rule(found.inputs()["query"], *tensors[1:])
    with pytest.raises(
        check.HybridOpsError, match="checks: not a known choice: got 'some'; allowed off, full"
    ):
        hops.recurrent_gated_delta_rule(*tensors, checks="some")
    with pytest.raises(
        check.HybridOpsError, match="target: not a known choice: got 'GPU'; allowed CPU, Ascend"
    ):
        hops.bind("GPU")


def test_whole_number_for_a_float_and_chip_names(mode):
    found = find("varlen")
    plain = run(found, mode, scale_value=1.0)
    for options in ({"scale_value": 1}, {"scale_value": 1.0, "soc": "Ascend310P1"}):
        for name, got in run(found, mode, **options).items():
            compare.same_bits(name, got, plain[name])


class Dynamic(nn.Cell):
    def construct(self, query, key, value, beta, state, lengths, slots, g):
        return hops.recurrent_gated_delta_rule(query, key, value, beta, state, lengths, slots, g)


@pytest.fixture
def dynamic(mode):
    """A net whose T and B are unknown when it is compiled."""
    net, found = Dynamic(), find("varlen")
    given = {n: a for n, a in found.inputs().items() if a is not None}
    shapes = [a.shape if n == "state" else (None, *a.shape[1:]) for n, a in given.items()]
    net.set_inputs(
        *(Tensor(shape=list(s), dtype=tensor(a).dtype) for s, a in zip(shapes, given.values(), strict=True))
    )
    return net, given


def test_shapes_known_at_run_time(dynamic):
    net, given = dynamic
    for lengths, rows in (([1, 8, 3, 5], 17), ([2, 1], 3), ([4], 4)):
        arrays = {n: a if n == "state" else a[:rows] for n, a in given.items()}
        arrays["actual_seq_lengths"] = np.array(lengths, np.int32)
        wanted = runtime.run(RGDR, arrays, backend="sim")
        for name, got in zip(("out", "state"), net(*map(tensor, arrays.values())), strict=True):
            compare.same_bits(name, array(got), wanted[name])


def test_shapes_known_at_run_time_are_refused_with_the_same_words(dynamic):
    net, given = dynamic
    arrays = {**given, "beta": given["beta"][:5]}
    with pytest.raises((check.HybridOpsError, RuntimeError)) as error:
        [t.asnumpy() for t in net(*map(tensor, arrays.values()))]
    assert "recurrent_gated_delta_rule: beta: axis T differs from T of query: got T=5" in str(error.value)


class Stateful(nn.Cell):
    """Keeps the state in a Parameter."""

    def __init__(self, state):
        super().__init__()
        self.state = ms.Parameter(state)

    def construct(self, query, key, value, beta, lengths, slots, g):
        out, state = hops.recurrent_gated_delta_rule(query, key, value, beta, self.state, lengths, slots, g)
        ms.ops.assign(self.state, state)
        return out


def test_state_in_a_parameter(mode):
    given = {n: a for n, a in find("varlen").inputs().items() if a is not None}
    net, arrays = Stateful(tensor(given["state"])), dict(given)
    for _ in range(3):
        wanted = runtime.run(RGDR, arrays, backend="sim")
        out = net(*(tensor(a) for n, a in given.items() if n != "state"))
        arrays["state"] = wanted["state"]
        compare.same_bits("out", array(out), wanted["out"])
        compare.same_bits("state", array(net.state), wanted["state"])


@ms.jit
def twice(state, *rest):
    first, state = hops.recurrent_gated_delta_rule(*rest[:4], state, *rest[4:])
    return (first, *hops.recurrent_gated_delta_rule(*rest[:4], state, *rest[4:]))


def test_two_calls_in_one_jit_function():
    given = {n: a for n, a in find("varlen").inputs().items() if a is not None}
    made = twice(tensor(given["state"]), *(tensor(a) for n, a in given.items() if n != "state"))
    first = runtime.run(RGDR, given, backend="sim")
    second = runtime.run(RGDR, {**given, "state": first["state"]}, backend="sim")
    for name, got, want in zip(
        ("first", "out", "state"), made, (first["out"], *second.values()), strict=True
    ):
        compare.same_bits(name, array(got), want)


def test_both_primitives_of_an_operator_infer_for_themselves():
    """PyNative mode shares inference between primitives with equal attributes; `sig` tells ours apart."""
    from hybrid_ops import mindspore_ops

    op = contract.load()[RGDR]
    first, second = (mindspore_ops.SimulatorOp(op, dynamic) for dynamic in (False, True))
    assert first.get_attr_dict()["sig"] != second.get_attr_dict()["sig"]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tensors = [tensor(a) for a in find("varlen").inputs().values()]
    for primitive in (first, second, first):
        shapes = [t.shape for t in primitive(*tensors, 1.0, "", "off")]
        assert shapes == [(17, 4, 64), tuple(tensors[4].shape)]


FRESH = """
import sys
import numpy as np, mindspore as ms
ms.set_device("CPU")
data = np.load(sys.argv[2])
net = ms.nn.GraphCell(ms.load(sys.argv[1]))
made = net(*(ms.Tensor(data[n]) for n in data.files if n not in ("out", "want_state")))
assert "hybrid_ops" not in sys.modules
for got, want in zip(made, (data["out"], data["want_state"])):
    assert got.asnumpy().tobytes() == want.tobytes(), "differs"
print("equal")
"""


def test_exported_mindir_runs_in_another_process(mode, tmp_path):
    given = {n: a for n, a in find("varlen").inputs().items() if a is not None}
    tensors = [tensor(a) for a in given.values()]
    ms.export(Dynamic(), *tensors, file_name=str(tmp_path / "net"), file_format="MINDIR")
    wanted = runtime.run(RGDR, given, backend="sim")
    np.savez(tmp_path / "data.npz", **given, out=wanted["out"], want_state=wanted["state"])
    command = [sys.executable, "-c", FRESH, str(tmp_path / "net.mindir"), str(tmp_path / "data.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0 and done.stdout.strip().endswith("equal"), done.stderr[-2000:]


def test_example_of_the_guide_runs(tmp_path):
    guide = Path(__file__).parents[1] / "docs" / "mindspore.md"
    (tmp_path / "example.py").write_text(
        guide.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    )
    done = subprocess.run(
        [sys.executable, "example.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_mindir_of_another_machine_is_relocated(tmp_path):
    from mindspore.train import mind_ir_pb2

    ms.set_context(mode=ms.GRAPH_MODE)
    given = {n: a for n, a in find("varlen").inputs().items() if a is not None}
    tensors = [tensor(a) for a in given.values()]
    ms.export(Dynamic(), *tensors, file_name=str(tmp_path / "net"), file_format="MINDIR")
    model = mind_ir_pb2.ModelProto()
    model.ParseFromString((tmp_path / "net.mindir").read_bytes())
    for a in (a for p in model.primitives for a in p.attribute if a.name in ("func_name", "uniq_name")):
        path = a.s.decode().rpartition("/")[0].removeprefix("Custom_RecurrentGatedDeltaRule_").encode()
        a.s = a.s.replace(path, b"/elsewhere")
    (tmp_path / "foreign.mindir").write_bytes(model.SerializeToString())
    assert hops.relocate(tmp_path / "foreign.mindir", tmp_path / "here.mindir") == ["RecurrentGatedDeltaRule"]
    made = nn.GraphCell(ms.load(str(tmp_path / "here.mindir")))(*tensors)
    compare.same_bits("out", array(made[0]), runtime.run(RGDR, given, backend="sim")["out"])
    with pytest.raises(check.HybridOpsError, match="source: not a MindIR file"):
        hops.relocate(__file__, tmp_path / "x.mindir")
    with pytest.raises(check.HybridOpsError, match="target: MindSpore cannot load a file of this name"):
        hops.relocate(tmp_path / "here.mindir", tmp_path / "net_graph.mindir")


def test_decode_layer_equals_the_torch_layer(mode, soc):
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: the MindSpore layer has nothing to equal"
    )
    pytest.importorskip("transformers", reason="transformers is not installed: no torch layer to equal")
    from functools import partial

    from hybrid_ops.models import linear_attention_step, recurrent_rule
    from hybrid_ops.models.mindspore_gdn import GatedDeltaNetStep, tensor_from_torch
    from hybrid_ops.models.sample import sample_config, sample_decoder

    small = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    }
    layer = sample_decoder(sample_config(layers=1, hidden=64, vocab=64, **small)).model.layers[0].linear_attn
    cell, batch = GatedDeltaNetStep(layer, soc), 2
    torch.manual_seed(0)
    conv = torch.randn(batch, layer.conv_dim, 3)
    state = 0.1 * torch.randn(batch, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim)
    mine = tensor_from_torch(conv), cell.state_from_torch(state)
    limit = compare.LIMITS["output"]["float16" if soc == "ascend310p" else "bfloat16"].nrmse
    for step in range(6):
        hidden = torch.randn(batch, 1, 64)
        with torch.no_grad():
            out, conv, state = linear_attention_step(
                layer, hidden, conv, state, rule=partial(recurrent_rule, soc=soc)
            )
        got, *mine = cell(tensor_from_torch(hidden), *mine)
        pairs = {
            "out": (got.asnumpy(), out.numpy()),
            "conv_state": (mine[0].asnumpy(), conv.numpy()),
            "state": (mine[1].float().asnumpy().swapaxes(-1, -2), state.numpy()),
        }
        for name, (a, b) in pairs.items():
            error = compare.measure(name, a, b)
            assert error.nrmse <= limit, f"step {step}, {name}: NRMSE {error.nrmse:.2e} (allowed {limit:g})"
