"""contract.json, the checks made from it, and the text of every refusal."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, contract, dtypes, runtime

RGDR = "recurrent_gated_delta_rule"


def test_names_follow_from_types(op):
    snake = "".join("_" + c.lower() if c.isupper() else c for c in op.type).lstrip("_")
    assert snake == op.name
    for tensor in (*op.inputs, *op.outputs):
        for soc in op.socs:
            assert len(tensor.dtypes[soc]) == op.columns(soc) > 0
            assert all(d in dtypes.NUMPY for d in tensor.dtypes[soc])
    required = [t.required for t in op.inputs]
    assert required == sorted(required, reverse=True), "optional inputs come last"


@pytest.mark.parametrize("text", [None, "", "[]", '{"schema": 9}', '{"schema": 1, "ops": {"X": {}}}'])
def test_unusable_contract_says_so(text, tmp_path):
    path = tmp_path / "contract.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(contract.ContractError, match=r"^hybrid_ops: contract\.json: .*: got .*; allowed "):
        contract.load(path)


def test_unusable_contract_on_the_command_line(monkeypatch, capsys):
    from hybrid_ops import __main__

    def broken(*args):
        raise contract.ContractError("hybrid_ops: contract.json: cannot be read: got x; allowed y")

    monkeypatch.setattr(contract, "load", broken)
    monkeypatch.setattr("sys.argv", ["hybrid-ops", "ops"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: hybrid_ops: contract.json: cannot be read")


def test_unusable_soc_file_says_so(tmp_path):
    from hybrid_ops import soc as platform

    (tmp_path / "bad.toml").write_text("[[")
    for name in ("bad", "absent"):
        with pytest.raises(
            check.HybridOpsError, match=rf"^hybrid_ops: {name}\.toml: damaged or missing: got "
        ):
            platform._read(tmp_path / f"{name}.toml")


def test_meaning_has_the_contracts_arguments(op):
    module = case.module(op.name)
    wanted = [t.name for t in op.inputs] + [a.name for a in op.attrs]
    for function in (module.meaning, module.second_formula):
        parameters = inspect.signature(function).parameters
        assert [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == wanted
        defaults = {a.name: inspect.Parameter.empty if a.required else a.default for a in op.attrs}
        assert all(parameters[n].default == d for n, d in defaults.items())


def test_public_function_and_its_text(op):
    function = getattr(hybrid_ops, op.name)
    parameters = inspect.signature(function).parameters
    assert list(parameters)[: len(op.inputs)] == [t.name for t in op.inputs]
    assert all(t.name in function.__doc__ and t.text() in function.__doc__ for t in op.inputs)


def test_axis_words():
    axes = {"T": 5}
    assert [contract.size_of(w, axes) for w in ("T", "T+1", "T*2", "7")] == [5, 6, 10, 7]
    assert contract.axis_from("T+1", 6) == ("T", 5)
    assert contract.axis_from("T*2", 10) == ("T", 5)
    assert contract.axis_from("T*2", 11) == ("T", None)
    assert contract.size_of("T*K", {"T": 5, "K": 3}) == 15
    assert contract.known_size("T*K", axes) is None and contract.axis_from("T*K", 15) == ("T", None)
    with pytest.raises(ValueError, match="not understood"):
        contract.parse_word("T/2")


@pytest.mark.parametrize(
    ("rule", "holds"),
    [("A % B == 0", True), ("1 <= B <= 3", True), ("1 <= A <= 3", False), ("A == 1 or B == 3", True),
     ("A // B + 1 == 3 and not B == 2", True), ("A * -1 < 0", True)],
)  # fmt: skip
def test_limit_expressions(rule, holds):
    assert bool(contract.evaluate(rule, {"A": 6, "B": 3})) is holds


def test_limit_expressions_are_not_python():
    with pytest.raises(ValueError, match="not understood"):
        contract.evaluate("__import__('os')", {})


def sample(soc: str, column: int = 0, name: str = "varlen"):
    found = next(c for c in case.cases(RGDR, soc) if c.column == column and c.id.endswith(name))
    return found.inputs(), dict(found.attrs)


def refusal(arrays, attrs=None, soc="ascend310p", **options) -> str:
    before = {n: a.copy() for n, a in arrays.items() if isinstance(a, np.ndarray)}
    with pytest.raises(check.HybridOpsError) as caught:
        runtime.run(RGDR, arrays, attrs, soc=soc, backend="reference", **options)
    for name, array in before.items():
        assert array.tobytes() == arrays[name].tobytes(), f"{name} changed although the call was refused"
    text = str(caught.value)
    assert text.startswith(f"{RGDR}: ") and ": got " in text and "; allowed " in text and " on " in text
    return text.removeprefix(f"{RGDR}: ")


def change(name, function):
    arrays, _ = sample("ascend310p")
    return {**arrays, name: function(arrays[name])}


STATIC = [
    ("state", lambda x: x.astype(np.float32),
     "state: dtype not available: got float32; allowed float16 on ascend310p (ascend910b also has float32)"),
    ("query", lambda x: x.astype(np.float64), "query: dtype not available: got float64; allowed float16 on ascend310p"),
    ("actual_seq_lengths", lambda x: x.astype(np.int64),
     "actual_seq_lengths: dtype not available: got int64; allowed int32 on ascend310p"),
    ("query", lambda x: x[0], "query: wrong rank: got rank 2 (shape [2, 64]); allowed [T, NK, DK] on ascend310p"),
    ("value", lambda x: x[:4],
     "value: axis T differs from T of query: got T=4 (shape [4, 4, 64]); allowed T=17 on ascend310p"),
    ("key", lambda x: x[:, :1],
     "key: axis NK differs from NK of query: got NK=1 (shape [17, 1, 64]); allowed NK=2 on ascend310p"),
    ("ssm_state_indices", lambda x: x[:3],
     "ssm_state_indices: axis T differs from T of query: got T=3 (shape [3]); allowed T=17 on ascend310p"),
    ("g", lambda x: x[:, :2], "g: axis NV differs from NV of value: got NV=2 (shape [17, 2]); allowed NV=4 on ascend310p"),
    ("beta", lambda x: None, "beta: required input is missing: got None; allowed float16 [T, NV] on ascend310p"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "text"), STATIC, ids=[t[:50] for _, _, t in STATIC])
def test_static_refusals(name, function, text):
    assert refusal(change(name, function)) == text


def test_limits_name_axis_and_rule():
    arrays, _ = sample("ascend310p")
    odd = {**arrays, "value": arrays["value"][:, :3], "beta": arrays["beta"][:, :3], "g": arrays["g"][:, :3]}
    odd["state"] = arrays["state"][:, :3]
    text = refusal(odd)
    assert "got NV=3, NK=2; allowed NV % NK == 0 on ascend310p" in text
    narrow = {
        **arrays,
        "query": arrays["query"][..., :8],
        "key": arrays["key"][..., :8],
        "state": arrays["state"][..., :8],
    }
    assert "got DK=8; allowed" in refusal(narrow)
    wide = {
        **arrays,
        "value": np.zeros((17, 4, 513), np.float16),
        "state": np.zeros((1, 4, 513, 64), np.float16),
    }
    assert "got DV=513; allowed" in refusal(wide)


def test_names_are_refused():
    arrays, _ = sample("ascend310p")
    assert refusal({**arrays, "cu_seqlens": arrays["g"]}).startswith(
        "cu_seqlens: not an argument: got cu_seqlens; allowed"
    )
    assert refusal(arrays, {"scale": 1.0}).startswith(
        "scale: not an attribute: got scale; allowed scale_value"
    )
    assert refusal(arrays, {"scale_value": "1"}).startswith("scale_value: wrong type: got '1'; allowed float")
    assert refusal(arrays, {"scale_value": float("inf")}).startswith("scale_value: not finite: got inf")
    assert refusal(arrays, soc="ascend999").startswith(
        "soc: not a known SoC: got 'ascend999'; allowed ascend310p"
    )
    with pytest.raises(check.HybridOpsError, match="op: no such operator: got 'nothing'"):
        runtime.run("nothing", {})


def test_dtype_columns_do_not_mix():
    arrays, _ = sample("ascend910b", 0)
    mixed = {**arrays, "key": arrays["key"].astype(np.float16)}
    text = refusal(mixed, soc="ascend910b")
    assert "dtypes do not go together: got query bfloat16 + key float16 + value bfloat16" in text
    assert "allowed query bfloat16 + key bfloat16 + value bfloat16" in text
    single = {**arrays, "key": arrays["key"].astype(np.float32)}
    assert refusal(single, soc="ascend910b").startswith(
        "key: dtype not available: got float32; allowed bfloat16, float16"
    )


def test_supported():
    assert hybrid_ops.supported(RGDR, "ascend910b", {"state": "float32"})
    answer = hybrid_ops.supported("RecurrentGatedDeltaRule", "Ascend310P3", {"state": "float32"})
    assert not answer and "ascend910b also has float32" in answer.why
    assert not hybrid_ops.supported("nothing", "ascend310p")
    assert not hybrid_ops.supported(RGDR, "ascend310p", {"bogus": "float16"})
    rows = hybrid_ops.supported()
    assert {(r["soc"], r["state"]) for r in rows if r["op"] == RGDR} == {
        ("ascend310p", "float16"), ("ascend910b", "bfloat16"), ("ascend910b", "float32")
    }  # fmt: skip


def put(name, where, value):
    def edit(arrays):
        arrays[name][where] = value

    return edit


# The eight inputs of https://github.com/flashserve/flash-linear-attention-npu/issues/641 and their kin, lengths 1 8 3 5.
VALUES = [
    (put("actual_seq_lengths", 0, 2), "actual_seq_lengths: lengths do not add up to T: got sum 18"),
    (put("actual_seq_lengths", 0, -1), "actual_seq_lengths: negative length: got -1 at [0]; allowed >= 0"),
    (put("ssm_state_indices", 3, 64), "ssm_state_indices: slot beyond the pool: got 64 at [3]; allowed < 64 or negative"),
    (put("ssm_state_indices", slice(None), 5), "ssm_state_indices: two sequences write one slot: got slot 5 in sequences 0 and 1"),
    (put("num_accepted_tokens", 2, 4), "num_accepted_tokens: out of range: got 4 at [2]; allowed 1..3"),
    (put("g", (2, 1), 0.5), "g: log decay above 0 or NaN: got 0.5 at [2, 1]; allowed <= 0"),
    (put("g", (2, 1), np.nan), "g: log decay above 0 or NaN: got nan at [2, 1]"),
    (put("key", (2, 1, 3), np.nan), "key: not finite: got nan at [2, 1, 3]; allowed finite"),
    (put("value", (2, 1, 3), np.inf), "value: not finite: got inf at [2, 1, 3]; allowed finite"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "text"), VALUES, ids=[t[:60] for _, t in VALUES])
def test_value_refusals(edit, text):
    arrays, attrs = sample("ascend310p")
    arrays["num_accepted_tokens"] = np.ones(4, np.int32)
    runtime.run(RGDR, arrays, attrs, soc="ascend310p", backend="reference", validate="values")
    edit(arrays)
    assert refusal(arrays, attrs, validate="values").startswith(text)
    runtime.run(
        RGDR, arrays, attrs, soc="ascend310p", backend="reference"
    )  # without the switch: defined, not refused


def test_read_of_anothers_slot_is_refused():
    arrays, attrs = sample("ascend310p", name="-accepted")
    arrays["num_accepted_tokens"][:] = 1
    slots = arrays["ssm_state_indices"]
    slots[4] = -1
    slots[4] = slots[1]
    assert refusal(arrays, attrs, validate="values").startswith(
        "ssm_state_indices: two sequences write one slot"
    )


def test_table_shorter_than_a_sequence_is_refused():
    arrays, attrs = sample("ascend310p", name="table-too-short")
    text = refusal(arrays, attrs, validate="values")
    assert text.startswith("actual_seq_lengths: longer than the slot table: got 4 at [0]; allowed <= 3")


@pytest.mark.parametrize(
    "name", ["zero-length", "accepted-zero", "padded-last-slot", "padded-all", "gate-inf", "table"]
)
def test_legal_padding_is_accepted(name):
    arrays, attrs = sample("ascend310p", name=name)
    runtime.run(RGDR, arrays, attrs, soc="ascend310p", backend="reference", validate="values")
