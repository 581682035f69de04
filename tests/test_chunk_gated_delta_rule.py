"""The chunk gated delta rule beyond its case list: bounds, random calls, plans, the decode operator, public references."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, compare, contract, host, runtime, sim
from hybrid_ops.ops import chunk_gated_delta_rule as cgdr

RGDR = "recurrent_gated_delta_rule"
COLUMNS = {
    "310p": ("ascend310p", np.float16, np.float16),
    "910b": ("ascend910b", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "910b-f32": ("ascend910b", ml_dtypes.bfloat16, np.float32),
}
# Of the state: its last rounding and, for float32, the sums of a sequence.
STATE_NRMSE = {"310p": 1e-3, "910b": 4e-3, "910b-f32": 1e-5}


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def call(column: str, lengths, nk=1, nv=2, dk=64, dv=64, seed=0, tokens=None) -> dict[str, np.ndarray]:
    _, dtype, state = COLUMNS[column]
    rng = np.random.default_rng(seed)
    t = sum(lengths) if tokens is None else tokens
    return {
        "query": unit(rng, t, nk, dk).astype(dtype),
        "key": unit(rng, t, nk, dk).astype(dtype),
        "value": rng.standard_normal((t, nv, dv)).astype(dtype),
        "beta": rng.random((t, nv)).astype(dtype),
        "initial_state": (0.3 * rng.standard_normal((len(lengths), nv, dv, dk))).astype(state),
        "actual_seq_lengths": np.array(lengths, np.int32),
        "g": -rng.random((t, nv)).astype(np.float32),
    }


def run(column: str, arrays: dict[str, np.ndarray], scale: float | None = None) -> dict[str, np.ndarray]:
    """In the simulator, all checks on and silent."""
    scale = arrays["query"].shape[-1] ** -0.5 if scale is None else scale
    result = sim.launch(cgdr.OP, arrays, {"scale_value": scale}, soc=COLUMNS[column][0])
    assert [h for h in result.hazards if h["severity"] != "note"] == []
    return result.outputs


def error(got: np.ndarray, want: np.ndarray) -> float:
    return compare.measure("", got, want).nrmse


def hold(column: str, got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert error(got["out"], want["out"]) <= 1e-3
    assert error(got["final_state"], want["final_state"]) <= STATE_NRMSE[column]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("lengths", [[2048], [700, 0, 1, 333]], ids=["T2048", "packed"])
def test_long_sequences_stay_within_the_bounds(column, lengths):
    arrays = call(column, lengths, dk=32, dv=32)
    hold(column, run(column, arrays), cgdr.meaning(**arrays, scale_value=32**-0.5))


def test_every_length_of_the_case_list_is_within_the_bounds(soc):
    """Tighter than the table: out to 1e-3 on bfloat16 too."""
    for found in case.cases(cgdr.OP, soc):
        if "-T" not in found.id and "packed" not in found.id:
            continue
        arrays = found.inputs()
        made = sim.launch(cgdr.OP, arrays, found.attrs, soc=soc, checks="off").outputs
        assert error(made["out"], cgdr.meaning(**arrays, **found.attrs)["out"]) <= 1e-3, found.id


def random_call(rng: np.random.Generator, column: str) -> dict[str, np.ndarray]:
    """Any heads and tails, lengths that need not add up, -inf gates."""
    nk, share = (int(n) for n in rng.integers(1, 5, 2))
    dk = int(rng.choice([16, 17, 31, 64, 80, 100, 130, 144, 255, 256]))
    dv = int(rng.choice([16, 17, 20, 40, 64, 96, 100, 128, 200]))
    lengths = rng.integers(-1, int(rng.choice([2, 6, 40])), int(rng.integers(1, 7)))
    t = max(0, int(np.maximum(lengths, 0).sum()) + int(rng.integers(-2, 4)))
    arrays = call(column, lengths, nk, nk * share, dk, dv, int(rng.integers(1 << 30)), t)
    arrays["g"][rng.random(arrays["g"].shape) < 0.05] = -np.inf
    if rng.random() < 0.3:
        del arrays["g"]
    return arrays


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(25))
def test_random_calls(column, seed):
    arrays = random_call(np.random.default_rng([seed, list(COLUMNS).index(column)]), column)
    scale = arrays["query"].shape[-1] ** -0.5
    got, want = run(column, arrays), cgdr.meaning(**arrays, scale_value=scale)
    hold(column, got, want)
    for b, (first, end) in enumerate(cgdr.spans(arrays["actual_seq_lengths"], len(arrays["query"]))):
        if first == end:
            compare.same_bits("final_state", got["final_state"][b], arrays["initial_state"][b])


@pytest.mark.parametrize("column", COLUMNS)
def test_every_legal_head_has_a_plan(column):
    soc, dtype, state = COLUMNS[column]
    kind, held = (np.dtype(d).name for d in (dtype, state))
    for dk in (16, 17, 64, 255, 256):
        for dv in (16, 31, 255, 256):
            for nk, nv in ((1, 1), (16, 48), (256, 256)):
                t, b = 70, 3
                specs = {
                    "query": check.Spec((t, nk, dk), kind),
                    "key": check.Spec((t, nk, dk), kind),
                    "value": check.Spec((t, nv, dv), kind),
                    "beta": check.Spec((t, nv), kind),
                    "initial_state": check.Spec((b, nv, dv, dk), held),
                    "actual_seq_lengths": check.Spec((b,), "int32"),
                    "g": check.Spec((t, nv), "float32"),
                }
                bound = check.call(cgdr.OP, soc, specs, {})
                assert host.tiling(bound.op, soc, specs, bound.attrs).block_dim >= 1


@pytest.mark.parametrize(("column", "cores"), [("310p", 8), ("910b", 40)])
def test_every_core_works_on_one_sequence(column, cores):
    arrays = call(column, [9], nk=16, nv=32, dk=128, dv=128)
    specs = {n: check.Spec(a.shape, np.dtype(a.dtype).name) for n, a in arrays.items()}
    assert host.tiling(cgdr.OP, COLUMNS[column][0], specs, {}).block_dim == cores


@pytest.mark.parametrize("column", COLUMNS)
def test_equals_the_decode_operator(column):
    """One decode call over all tokens, which rounds nothing in between; with a float32 pool also a call per token."""
    arrays = call(column, [21, 0, 12], nk=2, nv=4)
    got = run(column, arrays)
    slots = np.repeat(np.arange(3, dtype=np.int32), arrays["actual_seq_lengths"])
    step = {n: a for n, a in arrays.items() if n != "initial_state"} | {"ssm_state_indices": slots}
    soc, attrs = COLUMNS[column][0], {"scale_value": 64**-0.5}
    whole = sim.launch(RGDR, {**step, "state": arrays["initial_state"]}, attrs, soc=soc).outputs
    assert error(got["out"], whole["out"]) <= 1e-3
    assert error(got["final_state"], whole["state"]) <= STATE_NRMSE[column]
    if column != "910b-f32":
        return
    pool, outs = arrays["initial_state"].copy(), []
    for t in range(len(slots)):
        one = {n: step[n][t : t + 1] for n in ("query", "key", "value", "beta", "g", "ssm_state_indices")}
        one |= {"state": pool, "actual_seq_lengths": np.array([1], np.int32)}
        made = sim.launch(RGDR, one, attrs, soc=soc, checks="off").outputs
        pool = made["state"]
        outs.append(made["out"])
    assert error(got["out"], np.concatenate(outs)) <= 1e-3
    assert error(got["final_state"], pool) <= STATE_NRMSE[column]


@pytest.mark.parametrize("column", ["310p", "910b-f32"])
def test_continues_from_a_final_state(column):
    arrays = call(column, [23], nk=2, nv=2)
    rows = ("query", "key", "value", "beta", "g")
    whole, state, outs = run(column, arrays), arrays["initial_state"], []
    for begin, end in ((0, 9), (9, 23)):
        part = {n: np.ascontiguousarray(arrays[n][begin:end]) for n in rows}
        part |= {"initial_state": state, "actual_seq_lengths": np.array([end - begin], np.int32)}
        made = run(column, part)
        state = made["final_state"]
        outs.append(made["out"])
    assert error(np.concatenate(outs), whole["out"]) <= 1e-3
    assert error(state, whole["final_state"]) <= STATE_NRMSE[column]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("column", ["meaning", "310p"])
def test_agrees_with_transformers(column, length):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    modeling = pytest.importorskip(
        "transformers.models.qwen3_5.modeling_qwen3_5", reason="transformers is not installed"
    )
    arrays = call("310p", [length, length], nk=4, nv=4, dk=32, dv=48)

    def split(name: str):
        return torch.from_numpy(arrays[name].astype(np.float32)).unflatten(0, (2, length))

    out, state = modeling.torch_chunk_gated_delta_rule(
        split("query"), split("key"), split("value"), g=split("g"), beta=split("beta"), output_final_state=True,
        initial_state=torch.from_numpy(arrays["initial_state"].astype(np.float32)).transpose(2, 3),
    )  # fmt: skip
    made = cgdr.meaning(**arrays, scale_value=32**-0.5) if column == "meaning" else run(column, arrays)
    assert error(made["out"], out.flatten(0, 1).numpy()) <= 1e-3
    assert error(made["final_state"], state.transpose(2, 3).numpy()) <= 1e-3


@pytest.mark.parametrize("column", COLUMNS)
def test_a_bad_sequence_leaves_the_others_alone(column):
    """NaN rows, a state that overflows even float32, infinities: nothing hangs, and only that sequence and head show it."""
    arrays = call(column, [5, 70, 6], nk=2, nv=2)
    clean = run(column, arrays)
    spoilt = {n: a.copy() for n, a in arrays.items()}
    spoilt["g"][5:75, 0] = 5.0
    spoilt["key"][9, 0, 3] = np.nan
    spoilt["initial_state"][1, 0] = np.inf
    made = run(column, spoilt)
    for name, rows, head in (("out", [*range(5), *range(75, 81)], 0), ("final_state", [0, 2], 0)):
        compare.same_bits(f"{name} (other sequences)", made[name][rows], clean[name][rows])
        compare.same_bits(f"{name} (other head)", made[name][:, 1 - head], clean[name][:, 1 - head])


@pytest.mark.parametrize("column", COLUMNS)
def test_a_gate_of_minus_infinity_forgets_even_infinity(column):
    arrays = call(column, [11])
    arrays["initial_state"][0, 1, 3, 5] = np.inf
    arrays["g"][6] = -np.inf
    made = run(column, arrays)
    assert np.isfinite(made["out"][6:].astype(np.float32)).all()
    assert np.isfinite(made["final_state"].astype(np.float32)).all()


def refused(arrays: dict[str, np.ndarray], **options) -> str:
    with pytest.raises(check.HybridOpsError) as caught:
        runtime.run(cgdr.OP, arrays, {}, soc="ascend310p", backend="reference", **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [({"actual_seq_lengths": np.array([0, 5, 8], np.int32)},
      "actual_seq_lengths: axis B differs from B of initial_state: got B=3 (shape [3]); allowed B=2 on ascend310p "
      "(lengths that sum to T, not offsets)"),
     ({"g": np.zeros((8,), np.float32)}, "g: wrong rank: got rank 1 (shape [8]); allowed [T, NV]"),
     ({"g": np.zeros((8, 2, 64), np.float32)}, "g: wrong rank: got rank 3 (shape [8, 2, 64]); allowed [T, NV]"),
     ({"initial_state": np.zeros((3, 2, 64, 64), np.float16)},
      "actual_seq_lengths: axis B differs from B of initial_state: got B=2 (shape [2]); allowed B=3"),
     ({"initial_state": np.zeros((2, 64, 64), np.float16)},
      "initial_state: wrong rank: got rank 3 (shape [2, 64, 64]); allowed [B, NV, DV, DK]"),
     ({"initial_state": np.zeros((2, 2, 64, 64), np.float32)},
      "initial_state: dtype not available: got float32; allowed float16")],
    ids=["cumulative-lengths", "g-rank-1", "g-rank-3", "state-batch", "state-rank", "state-f32"],
)  # fmt: skip
def test_shape_refusals_in_the_same_words_on_host_and_in_python(change, text):
    arrays = {**call("310p", [5, 3]), **change}
    said = refused(arrays)
    assert said.startswith(f"{cgdr.OP}: {text}" if " on " in text else f"{cgdr.OP}: {text} on ascend310p")
    specs = {n: check.Spec(a.shape, np.dtype(a.dtype).name) for n, a in arrays.items()}
    with pytest.raises(check.HybridOpsError) as caught:
        host.tiling(cgdr.OP, "ascend310p", specs, {})
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("name", "where", "value", "text"),
    [("actual_seq_lengths", slice(None), [5, 4], "lengths do not add up to T: got sum 9 of [5, 4]; allowed sum 8"),
     ("actual_seq_lengths", slice(None), [5, 8],
      "lengths do not add up to T: got sum 13 of [5, 8]; allowed sum 8 on ascend310p (these look like offsets"),
     ("actual_seq_lengths", slice(None), [-1, 9], "negative length: got -1 at [0]; allowed >= 0"),
     ("g", (3, 1), 0.5, "log decay above 0 or NaN: got 0.5 at [3, 1]; allowed <= 0 (-inf resets)"),
     ("key", (2, 0, 7), np.nan, "not finite: got nan at [2, 0, 7]; allowed finite")],
    ids=["sum", "offsets", "negative", "gate", "nan"],
)  # fmt: skip
def test_value_refusals(name, where, value, text):
    arrays = call("310p", [5, 3])
    arrays[name][where] = value
    assert refused(arrays, validate="values").startswith(f"{cgdr.OP}: {name}: {text}")
    runtime.run(cgdr.OP, arrays, {}, soc="ascend310p", backend="reference")  # not looked at unless asked for


def test_floors_are_those_of_the_cheaper_form():
    def floors_of(tokens: int):
        arrays = call("310p", [tokens], nk=16, nv=32, dk=128, dv=128)
        specs = {n: check.Spec(a.shape, np.dtype(a.dtype).name) for n, a in arrays.items()}
        return cgdr.floors(specs, "ascend310p")

    assert floors_of(1).cube_cycles == 0
    # 512 rows: k k^T and q k^T by half, inverse and weights by half, three products with the state; 8 x 4096 a cycle
    macs = 512 * (2 * 16 * 128 * 32 + 2 * 32 * 32 * 128 + 3 * 32 * 128 * 128)
    assert floors_of(512).cube_cycles == pytest.approx(macs / (8 * 4096))


def test_legal_values_are_accepted():
    arrays = call("310p", [5, 0, 3])
    arrays["g"][2] = -np.inf
    runtime.run(cgdr.OP, arrays, {}, soc="ascend310p", backend="reference", validate="values")


def test_node_of_an_exported_model():
    """The attributes that models exported elsewhere carry, for Qwen3.5-4B."""
    custom_node = pytest.importorskip("hybrid_ops.export.custom_node", reason="onnx is not installed")
    op = contract.load()[cgdr.OP]
    made = custom_node.custom_attributes(
        op, [t.name for t in op.inputs], {"scale_value": 128**-0.5},
        [("T", 32, 128), (1, 32, 128, 128)], ["float16", "float16"], "lite-2.9",
    )  # fmt: skip
    names = ["query", "key", "value", "beta", "initial_state", "actual_seq_lengths", "g"]
    assert made == {
        "type": "ChunkGatedDeltaRule",
        "input_names": names,
        "optional_input_names": ["g"],
        "output_names": ["out", "final_state"],
        "output_num": 2,
        "input_index": [0, 1, 2, 3, 4, 5, 6],
        "scale_value": 128**-0.5,
        "dtype": 10,
    }
    constant = {"actual_seq_lengths": np.array([8], np.int32)}
    assert not list(cgdr.constant_faults(constant, {"T": 8}))
    assert [fault[1] for fault in cgdr.constant_faults(constant, {})] == [
        "constant [8] although T is dynamic"
    ]


def test_public_function():
    arrays = call("310p", [5, 3])
    out, final = hybrid_ops.chunk_gated_delta_rule(**arrays, scale_value=0.125, backend="sim", checks="full")
    want = cgdr.meaning(**arrays, scale_value=0.125)
    hold("310p", {"out": out, "final_state": final}, want)
