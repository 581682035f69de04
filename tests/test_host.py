"""The host side: recorded contract, inference, tiling, and its refusals, which must read like Python's."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from hybrid_ops import check, contract, host, paths
from hybrid_ops import soc as platform
from hybrid_ops.check import Spec

RGDR = "recurrent_gated_delta_rule"
FLOAT = {"ascend310p": "float16", "ascend910b": "bfloat16"}


def tensors(soc="ascend310p", *, B=2, T=None, NK=2, NV=4, DK=32, DV=16, S=5, state=None, table=0, without=()):
    """Specs of one call; every optional input is there."""
    T, dtype = B if T is None else T, FLOAT[soc]
    given = {
        "query": Spec((T, NK, DK), dtype),
        "key": Spec((T, NK, DK), dtype),
        "value": Spec((T, NV, DV), dtype),
        "beta": Spec((T, NV), dtype),
        "state": Spec((S, NV, DV, DK), state or dtype),
        "actual_seq_lengths": Spec((B,), "int32"),
        "ssm_state_indices": Spec((B, table) if table else (T,), "int32"),
        "g": Spec((T, NV), "float32"),
        "gk": Spec((T, NV, DK), "float32"),
        "num_accepted_tokens": Spec((B,), "int32"),
    }
    return {name: spec for name, spec in given.items() if name not in without}


def changed(name, spec, **more):
    return {**tensors(**more), name: spec}


def refusal(function, *args, **kwargs):
    with pytest.raises(check.HybridOpsError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# -- contract -----------------------------------------------------------------------------------------------------


def test_committed_contract_is_what_op_host_declares():
    recorded = host.recorded_contract()
    assert contract.CONTRACT_FILE.read_text(encoding="utf-8") == recorded, (
        "run: python -m hybrid_ops.host --write"
    )
    assert recorded == host.recorded_contract()


def test_write_reports_whether_anything_changed(tmp_path):
    file = tmp_path / "contract.json"
    assert host.main(["--check", str(file)]) == 1
    assert host.main(["--write", str(file)]) == 0
    assert host.regenerate(file) is False
    assert host.main(["--check", str(file)]) == 0


def test_operators_are_the_files_of_op_host():
    files = {file.stem for file in paths.source_dir("op_host").glob("*.cpp")}
    assert {contract.find(op).name for op in host.operators()} == files


def test_flags_of_every_soc(op):
    for soc in op.socs:
        flags = op.raw["config"][soc]
        for name in (
            "dynamic_compile_static",
            "dynamic_format",
            "dynamic_rank_support",
            "dynamic_shape_support",
        ):
            assert flags[name] == "true"
        assert flags["need_check_support"] == "false"
        assert flags["softsync.flag"] == "true"


def test_names_that_the_converter_treats_specially_are_not_attributes(op):
    special = {"dtype", "type", "input_names", "output_names", "output_num", "optional_input_names"}
    assert not special & {a.name for a in op.attrs}


# -- inference ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [(), ("g", "gk", "num_accepted_tokens")], ids=["all", "required"])
def test_inferred_shapes_and_dtypes_are_the_contracts(soc, without):
    op = contract.find(RGDR)
    for column in range(op.columns(soc)):
        state = op.input("state").dtypes[soc][column]
        given = tensors(soc, state=state, without=without)
        assert host.infer(RGDR, given) == dict(check.call(RGDR, soc, given).outputs)
        assert host.infer(RGDR, given)["state"].dtype == state


def test_unknown_dimensions_stay_unknown():
    given = {name: Spec((-1, *spec.shape[1:]), spec.dtype) for name, spec in tensors().items()}
    out = host.infer(RGDR, given)
    assert out["out"].shape == (-1, 4, 16)
    assert out["state"].shape == (-1, 4, 16, 32)
    given["value"] = Spec((-2,), "float16")  # CANN's mark of an unknown rank
    assert host.infer(RGDR, given)["out"].shape == (-1, 4, 16)


def test_dtype_inference_follows_inputs_that_are_not_legal_yet():
    """Graph engines infer before they insert casts: an fp32 graph must pass."""
    given = {n: Spec(s.shape, "float32" if s.dtype == "float16" else s.dtype) for n, s in tensors().items()}
    assert {n: s.dtype for n, s in host.infer(RGDR, given).items()} == {"out": "float32", "state": "float32"}


@pytest.mark.parametrize("name", sorted(contract.load()))
def test_inferred_dtypes_are_known_to_the_checker(name):
    """What export's checker expects of a package: the answer of InferDataType itself, for every legal column."""
    op = contract.load()[name]
    whole = {a.name: max(a.default or 0, 1) for a in op.attrs if a.type == "int"}
    whole |= {a.name: 1.0 if a.type == "float" else True for a in op.attrs if a.required and a.type != "int"}
    for soc in contract.socs():
        for column in range(op.columns(soc)):
            kinds = {t.name: t.dtypes[soc][column] for t in op.inputs}
            given = {t.name: Spec((-1,) * len(t.axes[0]), kinds[t.name]) for t in op.inputs}
            wanted = {n: spec.dtype for n, spec in host.infer(op, given, whole).items()}
            assert {t.name: contract.inferred_dtype(op, t, kinds) for t in op.outputs} == wanted
            assert wanted == contract.output_dtypes(op, soc, column)


def test_shape_inference_refuses_without_a_chip():
    text = refusal(host.infer, RGDR, changed("key", Spec((3, 2, 32), "float16")))
    assert text == (
        f"{RGDR}: key: axis T differs from T of query: got T=3 (shape [3, 2, 32]); allowed T=2 on every SoC"
    )


# -- refusals -----------------------------------------------------------------------------------------------------

FAULTS = {
    "missing": (tensors(without=("beta",)), {}),
    "rank": (changed("query", Spec((2, 64), "float16")), {}),
    "rank-of-alternatives": (changed("gk", Spec((2,), "float32")), {}),
    "tokens": (changed("key", Spec((3, 2, 32), "float16")), {}),
    "heads": (changed("beta", Spec((2, 3), "float16")), {}),
    "state-transposed": (changed("state", Spec((5, 4, 32, 16), "float16")), {}),
    "offsets-for-lengths": (changed("actual_seq_lengths", Spec((3,), "int32")), {}),
    "dtype": (changed("state", Spec((5, 4, 16, 32), "float32")), {}),
    "dtype-of-no-soc": (changed("actual_seq_lengths", Spec((2,), "int64")), {}),
    "gate-dtype": (changed("g", Spec((2, 4), "float16")), {}),
    "heads-not-multiple": (tensors(NK=3, NV=4), {}),
    "heads-zero": (tensors(NK=0, NV=0), {}),
    "heads-many": (tensors(NK=1, NV=257), {}),
    "key-dim-small": (tensors(DK=15), {}),
    "key-dim-large": (tensors(DK=513), {}),
    "value-dim-small": (tensors(DV=8), {}),
    "value-dim-large": (tensors(DV=520), {}),
    "table-too-small": (tensors(B=2, T=7, table=3), {}),
    "rows-without-sequence": (tensors(B=0, T=3), {}),
    "scale-nan": (tensors(), {"scale_value": float("nan")}),
    "scale-inf": (tensors(), {"scale_value": float("-inf")}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_host_and_python_refuse_in_the_same_words(name):
    given, attrs = FAULTS[name]
    text = refusal(host.tiling, RGDR, "ascend310p", given, attrs)
    assert text == refusal(check.call, RGDR, "ascend310p", given, attrs)
    assert (
        text.startswith(f"{RGDR}: ")
        and ": got " in text
        and "; allowed " in text
        and " on ascend310p" in text
    )


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("dtype", "state: dtype not available: got float32; allowed float16 on ascend310p "
                  "(ascend910b also has float32)"),
        ("missing", "beta: required input is missing: got None; allowed float16 [T, NV] on ascend310p"),
        ("rank-of-alternatives", "gk: wrong rank: got rank 1 (shape [2]); "
                                 "allowed [T, NV] or [T, NV, DK] on ascend310p"),
        ("offsets-for-lengths", "num_accepted_tokens: axis B differs from B of actual_seq_lengths: "
                                "got B=2 (shape [2]); allowed B=3 on ascend310p"),
        ("heads-not-multiple", "value: NV must be a multiple of NK: got NV=4, NK=3; "
                               "allowed NV % NK == 0 on ascend310p"),
        ("table-too-small", "ssm_state_indices: table too small for T rows: got S_max=3, B=2, T=7; "
                            "allowed S_max * B >= T on ascend310p"),
        ("scale-nan", "scale_value: not finite: got nan; allowed a finite float on ascend310p"),
    ],
)  # fmt: skip
def test_refusal_texts(fault, text):
    assert refusal(host.tiling, RGDR, "ascend310p", *FAULTS[fault]) == f"{RGDR}: {text}"


def test_private_formats_are_refused():
    text = refusal(host.tiling, RGDR, "ascend310p", tensors(), formats={"key": "FRACTAL_NZ"})
    assert text == f"{RGDR}: key: format not available: got FRACTAL_NZ; allowed ND on ascend310p"
    host.tiling(RGDR, "ascend310p", tensors(), formats={"key": "NCL", "state": "NCHW"})


def test_unknown_chip_is_refused():
    text = refusal(host.tiling, RGDR, "ascend310b", tensors(), config=platform.load("ascend310p").config())
    assert text.startswith(f"{RGDR}: soc: {RGDR} is not available on this SoC: got ''; allowed ascend310p, ")


def test_flat_table_lengths_of_wrong_size_cannot_be_seen():
    """[B + 1] offsets beside a flat table and no accepted tokens fix B themselves: only the values tell."""
    given = changed("actual_seq_lengths", Spec((3,), "int32"), without=("num_accepted_tokens",))
    host.tiling(RGDR, "ascend310p", given)


def test_host_and_python_agree_on_random_calls(soc):
    random = np.random.default_rng(7)
    refused = 0
    for _ in range(400):
        sizes = {key: int(random.choice(few)) for key, few in {
            "B": (0, 1, 2, 3), "NK": (1, 2, 3), "NV": (2, 4, 6), "DK": (16, 32, 600), "DV": (16, 8, 40),
            "table": (0, 0, 2), "S": (0, 4),
        }.items()}  # fmt: skip
        given = tensors(soc, **sizes)
        name = str(random.choice(list(given)))
        shape, dtype = given[name]
        match int(random.integers(6)):
            case 0:
                del given[name]
            case 1:
                given[name] = Spec(shape, str(random.choice(["float16", "bfloat16", "float32", "int32"])))
            case 2:
                given[name] = Spec(shape[:-1], dtype)
            case 3:
                axis = int(random.integers(len(shape)))
                given[name] = Spec((*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]), dtype)
        texts = []
        for function in (check.call, host.tiling):
            try:
                function(RGDR, soc, given)
                texts.append(None)
            except check.HybridOpsError as error:
                texts.append(str(error))
        assert texts[0] == texts[1], given
        refused += texts[0] is not None
    assert 100 < refused < 400


# -- tiling -------------------------------------------------------------------------------------------------------


def fields(tiling: host.Tiling) -> dict[str, float]:
    """Tiling bytes by the names of the struct that host and kernel share."""
    header = (paths.source_dir("op_kernel") / f"{RGDR}_tiling.h").read_text(encoding="utf-8")
    body = re.search(r"struct RecurrentGatedDeltaRuleTilingData \{(.*?)\n\};", header, re.DOTALL)[1]
    types = {"uint32_t": ctypes.c_uint32, "float": ctypes.c_float}
    names = re.findall(r"\b(uint32_t|float)\s+(\w+);", re.sub(r"//.*", "", body))
    layout = type("Data", (ctypes.Structure,), {"_fields_": [(name, types[kind]) for kind, name in names]})
    assert ctypes.sizeof(layout) == len(tiling.data)
    data = layout.from_buffer_copy(tiling.data)
    return {name: getattr(data, name) for _, name in names}


@pytest.mark.parametrize("chip", ["Ascend310P3", "Ascend310P1", "Ascend910B1", "Ascend910B4"])
def test_every_core_works_on_a_single_sequence(chip):
    figures = platform.load(chip)
    given = tensors(figures.family, B=1, NK=16, NV=32, DK=128, DV=128)
    tiling = host.tiling(RGDR, chip, given)
    assert tiling.block_dim == figures.vector_cores
    data = fields(tiling)
    assert (data["tokens"], data["sequences"], data["slots"], data["tableWidth"]) == (1, 1, 5, 0)
    assert (data["keyHeads"], data["valueHeads"], data["keyDim"], data["valueDim"]) == (16, 32, 128, 128)
    assert tiling.tiling_key == 2  # gk by channel


def test_tiling_sees_optional_inputs_and_tails():
    plain = host.tiling(RGDR, "ascend310p", tensors(without=("g", "gk", "num_accepted_tokens")))
    per_head = host.tiling(RGDR, "ascend310p", changed("gk", Spec((2, 4), "float32")))
    assert (plain.tiling_key, per_head.tiling_key) == (0, 0)
    optional = ("hasGate", "channelGate", "hasAccepted")
    assert [fields(plain)[name] for name in optional] == [0, 0, 0]
    assert [fields(per_head)[name] for name in optional] == [1, 2, 1]
    assert host.tiling(RGDR, "ascend310p", tensors(DK=20)).tiling_key == 3
    assert fields(host.tiling(RGDR, "ascend310p", tensors(T=6, table=3)))["tableWidth"] == 3


def test_scale_reaches_the_kernel():
    assert fields(host.tiling(RGDR, "ascend310p", tensors()))["scale"] == 1.0
    assert fields(host.tiling(RGDR, "ascend310p", tensors(), {"scale_value": 0.25}))["scale"] == 0.25


@pytest.mark.parametrize(
    "given", [tensors(B=0), tensors(B=2, T=0), tensors(B=0, S=0)], ids=["B0", "T0", "S0"]
)
def test_empty_calls_take_one_core(given):
    assert host.tiling(RGDR, "ascend310p", given).block_dim == 1


@pytest.mark.parametrize("heads", [(1, 1), (16, 32), (256, 256), (1, 256)], ids=str)
@pytest.mark.parametrize(
    "dims", [(16, 16), (20, 24), (128, 128), (256, 256), (500, 512), (512, 512)], ids=str
)
def test_every_legal_shape_has_a_plan(soc, heads, dims):
    op = contract.find(RGDR)
    for state in dict.fromkeys(op.input("state").dtypes[soc]):
        for tokens in (1, 8, 64):
            given = tensors(soc, B=1, T=tokens, NK=heads[0], NV=heads[1], DK=dims[0], DV=dims[1], state=state)
            tiling = host.tiling(RGDR, soc, given)
            assert 1 <= tiling.block_dim <= platform.load(soc).vector_cores


def test_tiling_bytes_are_all_set():
    """The buffer starts as a pattern: bytes that tiling forgets would show it."""
    pattern = bytes([0xA5] * 4)
    assert pattern not in host.tiling(RGDR, "ascend310p", tensors()).data


def test_no_operator_is_named_outside_its_files():
    shared = [*paths.source_dir("op_host").glob("*.h"), *(paths.source_dir("sim") / "host").glob("*")]
    for op in contract.load().values():
        texts = {file: Path(file).read_text(encoding="utf-8") for file in shared}
        assert not [file for file, text in texts.items() if op.name in text or op.type in text]
