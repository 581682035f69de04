"""The causal convolution beyond its case list: random calls, torch's functions, refusals, plans, hand-over between steps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, compare, host, profile, runtime, sim
from hybrid_ops import soc as platform
from hybrid_ops.ops import hybrid_causal_conv1d as conv

COLUMNS = {
    "310p": ("ascend310p", np.float16),
    "910b": ("ascend910b", ml_dtypes.bfloat16),
    "910b-f16": ("ascend910b", np.float16),
}
NRMSE = {"310p": 1e-3, "910b": 4e-3, "910b-f16": 1e-3}


def call(dtype=np.float16, *, lengths=(5, 2, 9), dim=32, width=4, rows=6, seed=0, **more):
    """Arrays of one call; every sequence has a line of its own."""
    rng, b = np.random.default_rng(seed), len(lengths)
    arrays = {
        "x": rng.standard_normal((sum(lengths), dim)).astype(dtype),
        "weight": (rng.standard_normal((width, dim)) * width**-0.5).astype(dtype),
        "conv_states": rng.standard_normal((b + 2, rows, dim)).astype(dtype),
        "query_start_loc": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        "cache_indices": rng.permutation(b + 2)[:b].astype(np.int32),
    }
    return {**arrays, **more}


def specs(arrays):
    return {n: check.Spec(a.shape, np.dtype(a.dtype).name) for n, a in arrays.items() if a is not None}


def run(arrays, soc="ascend310p", **attrs):
    return runtime.run(conv.OP, arrays, attrs, backend="sim", soc=soc, checks="full")


def close(got, want, limit):
    got, want = got.astype(float), want.astype(float)
    assert got.shape == want.shape and np.isfinite(got).all() == np.isfinite(want).all()
    if not got.size:
        return
    assert np.sqrt(np.mean((got - want) ** 2)) <= limit * max(1e-6, np.sqrt(np.mean(want**2)))


# -- random calls -------------------------------------------------------------------------------------------------


def random_call(rng: np.random.Generator, dtype) -> tuple[dict, dict]:
    """Any widths and lengths, offsets that need not fit, lines that are padded or out of range, every optional input."""
    dim = 16 * int(rng.choice([1, 2, 3, 5, 8, 13, 40, 70]))
    width, b = int(rng.integers(2, 5)), int(rng.integers(1, 8))
    lengths = rng.integers(0, int(rng.choice([2, 4, 9, 70, 200])), b)
    rows = width - 1 + int(rng.integers(0, 6))
    arrays = call(dtype, lengths=lengths, dim=dim, width=width, rows=rows, seed=int(rng.integers(1 << 30)))
    lines = rng.permutation(b + 2)[:b].astype(np.int32)
    lines[rng.random(b) < 0.2] = rng.choice([-1, -9, b + 2, b + 40])
    arrays["cache_indices"] = lines
    offsets = arrays["query_start_loc"]
    if rng.random() < 0.3:
        offsets[rng.integers(0, b + 1)] += rng.integers(-6, 7)
    if rng.random() < 0.5:
        arrays["bias"] = rng.standard_normal(dim).astype(dtype)
    if rng.random() < 0.4:
        arrays["initial_state_mode"] = rng.integers(0, 2, b).astype(np.int32)
    attrs = {
        "run_mode": int(rng.integers(2)),
        "activation": int(rng.integers(2)),
        "pad_slot_id": int(rng.integers(-1, 2)),
    }
    if attrs["run_mode"] and rng.random() < 0.5:
        arrays["num_accepted_tokens"] = rng.integers(-1, rows - width + 4, b).astype(np.int32)
    return arrays, attrs


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(30))
def test_random_calls(column, seed):
    soc, dtype = COLUMNS[column]
    arrays, attrs = random_call(np.random.default_rng([seed, list(COLUMNS).index(column)]), dtype)
    result = sim.launch(conv.OP, arrays, attrs, soc=soc)
    assert [h for h in result.hazards if h["severity"] != "note"] == []
    wanted = conv.meaning(**arrays, **attrs)
    compare.same_bits("conv_states", result.outputs["conv_states"], wanted["conv_states"])
    close(result.outputs["y"], wanted["y"], NRMSE[column])
    zero = ~wanted["y"].astype(bool).any(axis=1)
    assert result.outputs["y"][zero].tobytes() == wanted["y"][zero].tobytes()


@pytest.mark.parametrize("chip", ["Ascend310P1", "Ascend910B1", "Ascend910B4"])
@pytest.mark.parametrize("dim", [16, 64, 208, 1024])
def test_rows_of_one_sequence_over_many_cores(chip, dim):
    """Few channels: the rows of long and short sequences are cut between cores, none of which is idle."""
    arrays = call(lengths=(97, 1, 2, 3, 301), dim=dim, rows=3)
    arrays["initial_state_mode"] = np.array([1, 1, 0, 1, 0], np.int32)
    attrs = {"activation": 1}
    result = sim.launch(conv.OP, arrays, attrs, soc=chip)
    wanted = conv.meaning(**arrays, **attrs)
    compare.same_bits("conv_states", result.outputs["conv_states"], wanted["conv_states"])
    close(result.outputs["y"], wanted["y"], 1e-3)
    assert (
        host.tiling(conv.OP, chip, specs(arrays), attrs).block_dim >= 0.8 * platform.load(chip).vector_cores
    )


# -- torch's functions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_agrees_with_transformers(soc, width, activation, bias):
    """Prefill as causal_conv1d_fn, then steps as causal_conv1d_update; weight [D, W] and states [B, D, W-1] there."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
    next_ = pytest.importorskip(
        "transformers.models.qwen3_next.modeling_qwen3_next", reason="transformers is not installed"
    )
    from hybrid_ops import torch_ops

    dtype = torch.float16 if soc == "ascend310p" else torch.bfloat16
    torch.manual_seed(width)
    b, length, dim = 3, 6, 48
    x = torch.randn(b, dim, length + 2).to(dtype)
    weight = (torch.randn(dim, width) * width**-0.5).to(dtype)
    offset = torch.randn(dim).to(dtype) if bias else None
    exact = {
        "weight": weight.float(),
        "bias": None if offset is None else offset.float(),
        "activation": activation,
    }
    prompt = x[..., :length].float()
    want = [next_.causal_conv1d_fn(prompt, **exact)]
    state = prompt[..., -(width - 1) :].clone()
    for t in range(length, length + 2):
        want.append(next_.causal_conv1d_update(x[..., t : t + 1].float(), state, **exact))

    lines = torch.zeros(b, width - 1, dim, dtype=dtype)
    shared = {"weight": weight.T.contiguous(), "bias": offset, "backend": "sim", "soc": soc, "checks": "full",
              "activation": int(activation is not None)}  # fmt: skip

    def ours(rows, mode):
        packed = rows.transpose(1, 2).reshape(-1, dim).contiguous()
        starts = torch.arange(b + 1, dtype=torch.int32) * rows.shape[-1]
        y = hybrid_ops.hybrid_causal_conv1d(
            packed, conv_states=lines, query_start_loc=starts, run_mode=mode, **shared
        )
        return y.reshape(b, -1, dim).transpose(1, 2)

    got = [ours(x[..., :length], 0)] + [ours(x[..., t : t + 1], 1) for t in range(length, length + 2)]
    for mine, theirs in zip(got, want, strict=True):
        close(torch_ops.to_numpy(mine), theirs.numpy(), 1e-3 if dtype is torch.float16 else 4e-3)
    assert torch.equal(lines.transpose(1, 2).float(), state)


# -- steps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 12])
def test_pieces_equal_the_whole(soc, width, cut):
    """A prompt in two pieces, then single steps, gives the bits of one call: y and line."""
    dtype = np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16
    arrays = call(dtype, lengths=(17,), width=width, rows=width - 1)
    whole = run(arrays, soc, activation=1)
    lines, y = arrays["conv_states"], []
    for begin, end in [(0, cut), (cut, 15), (15, 16), (16, 17)]:
        piece = {**arrays, "x": arrays["x"][begin:end], "conv_states": lines}
        piece["query_start_loc"] = np.array([0, end - begin], np.int32)
        made = run(piece, soc, activation=1, run_mode=int(begin > 0))
        lines = made["conv_states"]
        y.append(made["y"])
    compare.same_bits("y", np.concatenate(y), whole["y"])
    compare.same_bits("conv_states", lines, whole["conv_states"])


def test_rejected_drafts_leave_no_trace(soc):
    """Steps that offer four rows, of which some are accepted, give the rows that were right the bits of one call."""
    dtype = np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16
    rng = np.random.default_rng(3)
    arrays = call(dtype, lengths=(4,), rows=6)
    right = rng.standard_normal((14, 32)).astype(dtype)
    start = arrays["conv_states"].copy()
    lines, y, done, accepted = start, [], 0, 1
    for taken in (1, 3, 4, 2, 4):
        drafts = rng.standard_normal((4, 32)).astype(dtype)
        drafts[:taken] = right[done : done + taken]
        step = {
            **arrays,
            "x": drafts,
            "conv_states": lines,
            "num_accepted_tokens": np.array([accepted], np.int32),
        }
        made = run(step, soc, run_mode=1)
        lines, accepted = made["conv_states"], taken
        y.append(made["y"][:taken])
        done += taken
    plain = {**arrays, "x": right, "conv_states": start, "query_start_loc": np.array([0, 14], np.int32)}
    compare.same_bits("y", np.concatenate(y), run(plain, soc, run_mode=1)["y"])


# -- refusals -----------------------------------------------------------------------------------------------------

INT = np.int32
STATIC = [
    ({"x": np.zeros((16, 24), np.float16)}, {}, "weight: axis D differs from D of x: got D=32 (shape [4, 32]); allowed D=24"),
    (call(dim=24), {}, "x: D must be a multiple of 16: got D=24; allowed D % 16 == 0"),
    (call(dim=0), {}, "x: D out of range: got D=0; allowed 16 <= D <= 65536"),
    (call(width=5), {}, "weight: W out of range: got W=5; allowed 2 <= W <= 4"),
    (call(width=1), {}, "weight: W out of range: got W=1; allowed 2 <= W <= 4"),
    (call(rows=2), {}, "conv_states: lines too short for W: got L=2, W=4; allowed L >= W - 1"),
    (call(rows=4097, dim=16), {}, "conv_states: L out of range: got L=4097; allowed L <= 4096"),
    ({"query_start_loc": np.zeros(0, INT), "cache_indices": None}, {},
     "query_start_loc: offsets of B sequences are B + 1: got B=-1; allowed B >= 0"),
    ({"cache_indices": np.zeros(4, INT)}, {}, "cache_indices: axis B differs from B of query_start_loc: got B=4 (shape [4]); allowed B=3"),
    ({"cache_indices": None, "conv_states": np.zeros((2, 3, 32), np.float16)}, {},
     "cache_indices: fewer lines than sequences, and nothing says which is whose: got cache_indices=0, S=2, B=3; "
     "allowed cache_indices or S >= B"),
    ({"num_accepted_tokens": np.ones(3, INT)}, {},
     "num_accepted_tokens: only update knows accepted tokens: got num_accepted_tokens=1, run_mode=0; "
     "allowed not num_accepted_tokens or run_mode == 1"),
    ({}, {"activation": 2}, "activation: not a known activation: got activation=2; allowed 0 <= activation <= 1"),
    ({}, {"run_mode": -1}, "run_mode: not a known mode: got run_mode=-1; allowed 0 <= run_mode <= 1"),
    ({"bias": np.zeros(16, np.float16)}, {}, "bias: axis D differs from D of x: got D=16 (shape [16]); allowed D=32"),
    ({"weight": np.zeros((4, 32), np.float32)}, {}, "weight: dtype not available: got float32; allowed float16"),
    ({"query_start_loc": np.zeros(4, np.int64)}, {}, "query_start_loc: dtype not available: got int64; allowed int32"),
]  # fmt: skip


def refusal(function, *args, **kwargs) -> str:
    with pytest.raises(check.HybridOpsError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(("change", "attrs", "text"), STATIC, ids=[t[:60] for _, _, t in STATIC])
def test_static_refusals(change, attrs, text):
    """Python and the host side of the operator refuse in the same words, before anything runs."""
    arrays = {**call(), **change}
    before = arrays["conv_states"].copy()
    got = refusal(run, arrays, **attrs)
    assert got == f"{conv.OP}: {text} on ascend310p" or got.startswith(f"{conv.OP}: {text} on ascend310p (")
    assert got == refusal(host.tiling, conv.OP, "ascend310p", specs(arrays), attrs)
    assert arrays["conv_states"].tobytes() == before.tobytes()


def test_bfloat16_on_310p_is_refused():
    text = refusal(run, call(ml_dtypes.bfloat16))
    assert (
        text
        == f"{conv.OP}: x: dtype not available: got bfloat16; allowed float16 on ascend310p (ascend910b also has bfloat16)"
    )


@pytest.mark.parametrize("value", [True, 1.0, "silu"])
def test_attributes_of_the_wrong_type_are_refused(value):
    assert refusal(run, call(), activation=value).startswith(
        f"{conv.OP}: activation: wrong type: got {value!r}; allowed int"
    )


VALUES = [
    ("query_start_loc", [0, 5, 3, 16], "query_start_loc: decreases: got 5 then 3 at [1]; allowed cumulative offsets, not lengths"),
    ("query_start_loc", [1, 5, 7, 16], "query_start_loc: does not begin with 0: got 1 at [0]; allowed 0"),
    ("query_start_loc", [0, 5, 7, 17], "query_start_loc: ends beyond T: got 17; allowed <= 16"),
    ("cache_indices", [0, 5, 1], "cache_indices: line beyond the pool: got 5 at [1]; allowed < 5 or negative"),
    ("cache_indices", [3, 0, 3], "cache_indices: two sequences use one line: got line 3 in sequences 0 and 2"),
    ("num_accepted_tokens", [1, 5, 2], "num_accepted_tokens: out of range: got 5 at [1]; allowed 1..4, or <= 0 for padding"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "text"), VALUES, ids=[t[:50] for _, _, t in VALUES])
def test_value_refusals(name, value, text):
    arrays = call(num_accepted_tokens=np.ones(3, INT))
    options = {"soc": "ascend310p", "backend": "reference", "validate": "values"}
    runtime.run(conv.OP, arrays, {"run_mode": 1}, **options)
    arrays[name] = np.array(value, INT)
    assert refusal(runtime.run, conv.OP, arrays, {"run_mode": 1}, **options).startswith(f"{conv.OP}: {text}")


@pytest.mark.parametrize(
    "name", ["padded", "pad-slot-id", "zero-length", "tail-rows", "accepted-zero", "spec-padded"]
)
def test_legal_padding_is_accepted(name):
    found = next(c for c in case.cases(conv.OP, "ascend310p") if c.id.endswith(f"-{name}"))
    runtime.run(
        conv.OP, found.inputs(), found.attrs, soc="ascend310p", backend="reference", validate="values"
    )


# -- empty calls, plans, floors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)], ids=["B0", "T0", "T0-B2"])
def test_no_rows(soc, lengths):
    arrays = call(np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16, lengths=lengths)
    made = run(arrays, soc)
    assert made["y"].shape == (0, 32)
    assert made["conv_states"].tobytes() == arrays["conv_states"].tobytes()


def test_pool_without_lines(soc):
    arrays = call(np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16)
    arrays["conv_states"] = arrays["conv_states"][:0]
    assert not run(arrays, soc)["y"].any()


@pytest.mark.parametrize("chip", ["Ascend310P3", "Ascend310P1", "Ascend910B1", "Ascend910B3", "Ascend910B4"])
def test_every_core_works_on_one_step(chip):
    """B = 1, T = 1 of every Qwen3.5 width: no core idles."""
    figures = platform.load(chip)
    dtype = "float16" if figures.family == "ascend310p" else "bfloat16"
    for dim in (6144, 8192, 10240, 12288):
        given = {
            "x": check.Spec((1, dim), dtype), "weight": check.Spec((4, dim), dtype),
            "conv_states": check.Spec((1, 3, dim), dtype), "query_start_loc": check.Spec((2,), "int32"),
        }  # fmt: skip
        assert host.tiling(conv.OP, chip, given, {"run_mode": 1}).block_dim == figures.vector_cores


def test_many_sequences_are_read_from_global_memory(soc):
    """More offsets than the local tables hold."""
    dtype = np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16
    arrays = call(dtype, lengths=(1,) * 1100, dim=16, rows=3)
    made, wanted = run(arrays, soc, run_mode=1), conv.meaning(**arrays, run_mode=1)
    compare.same_bits("conv_states", made["conv_states"], wanted["conv_states"])
    close(made["y"], wanted["y"], 4e-3)


@pytest.mark.parametrize(("rows", "mode", "most"), [(512, 0, 1.6), (64, 1, 2.2)], ids=["prefill", "decode"])
def test_distance_from_the_floor(soc, rows, mode, most):
    dtype = np.float16 if soc == "ascend310p" else ml_dtypes.bfloat16
    lengths = (1,) * rows if mode else (rows,)
    arrays = call(dtype, lengths=lengths, dim=8192, rows=3)
    profiled = profile.run(conv.OP, arrays, {"activation": 1, "run_mode": mode}, soc=soc)
    assert 1.0 <= profiled.ratio <= most


def test_constant_faults():
    axes = {"T": 5, "W": 4, "L": 5}
    faults = dict((name, fault) for name, fault, _ in conv.constant_faults(
        {"query_start_loc": np.array([2, 3]), "num_accepted_tokens": np.array([4])}, axes))  # fmt: skip
    assert faults == {
        "query_start_loc": "constant [2, 3], T is 5",
        "num_accepted_tokens": "constant [4] outside 1..3: the sequence is skipped",
    }
    good = {"query_start_loc": np.array([0, 2, 5]), "num_accepted_tokens": np.array([3, 1])}
    assert not list(conv.constant_faults(good, axes))


# -- export -------------------------------------------------------------------------------------------------------


def test_node_comes_from_the_contract(tmp_path):
    """A torch module with the operator exports as one Custom node that the checker accepts and the runner runs."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to export")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: nothing to export to")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch cannot export")
    from hybrid_ops import torch_ops
    from hybrid_ops.export import GraphRunner, onnx_export, save

    arrays = call(lengths=(1,), rows=3)
    arrays["cache_indices"][:] = 0
    given = {n: torch_ops.from_numpy(a) for n, a in arrays.items()}

    class Step(torch.nn.Module):
        def forward(self, x, conv_states):
            fixed = {n: given[n] for n in ("weight", "query_start_loc", "cache_indices")}
            return hybrid_ops.hybrid_causal_conv1d(
                x, conv_states=conv_states, **fixed, activation=1, run_mode=1, functional=True
            )

    inputs = {n: given[n] for n in ("x", "conv_states")}
    with runtime.using(backend="reference"):
        model = onnx_export.export_module(Step(), inputs, output_names=["y", "present"])
    save.save_model(model, tmp_path / "conv.onnx")
    graph = onnx.load(tmp_path / "conv.onnx").graph
    [node] = [n for n in graph.node if n.op_type == "Custom"]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert (attributes["type"], attributes["activation"], attributes["run_mode"]) == (
        b"HybridCausalConv1d",
        1,
        1,
    )
    assert attributes["input_index"] == [0, 1, 2, 3, 5] and attributes["output_num"] == 2
    made = GraphRunner(tmp_path / "conv.onnx").run({n: arrays[n] for n in inputs})
    want = run(arrays, activation=1, run_mode=1)
    compare.same_bits("y", made["y"], want["y"])
    compare.same_bits("conv_states", made["present"], want["conv_states"])
