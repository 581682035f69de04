"""The experts operator: refusals, offsets that lie, fused and separate weights, work split, floors."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_ops import HybridOpsError, case, check, dtypes, host, profile, runtime
from hybrid_ops.check import Spec

OP = "hybrid_moe_swi_glu_experts"
KIND = {"ascend310p": "float16", "ascend910b": "bfloat16"}


def specs(rows=6, experts=4, hidden=64, inner=48, dtype="float16", **changes):
    made = {
        "expanded_x": Spec((rows, hidden), dtype),
        "gate": Spec((experts, 2 * inner, hidden), dtype),
        "down": Spec((experts, hidden, inner), dtype),
        "expert_offsets": Spec((experts + 1,), "int32"),
    }
    return made | changes


def arrays(soc, counts=(2, 0, 3, 1), hidden=64, inner=48, seed=3):
    kind, rng = dtypes.NUMPY[KIND[soc]], np.random.default_rng(seed)
    experts, rows = len(counts), sum(counts)
    return {
        "expanded_x": rng.standard_normal((rows, hidden)).astype(kind),
        "gate": (rng.standard_normal((experts, 2 * inner, hidden)) / 8).astype(kind),
        "down": (rng.standard_normal((experts, hidden, inner)) / 7).astype(kind),
        "expert_offsets": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "up": None,
    }


REFUSED = {
    "gate-rows": (
        {"gate": Spec((4, 90, 64), "float16")},
        {},
        "gate: gate rows do not fit I of down: I with up, 2I without: got G=90, I=48, up=0; "
        "allowed G == I * (2 - up) on ascend310p",
    ),
    "fused-with-up": (
        {"up": Spec((4, 48, 64), "float16")},
        {},
        "gate: gate rows do not fit I of down: I with up, 2I without: got G=96, I=48, up=1; "
        "allowed G == I * (2 - up) on ascend310p",
    ),
    "hidden": (
        {"gate": Spec((4, 96, 80), "float16")},
        {},
        "gate: axis H differs from H of expanded_x: got H=80 (shape [4, 96, 80]); allowed H=64 on ascend310p",
    ),
    "experts": (
        {"down": Spec((5, 64, 48), "float16")},
        {},
        "down: axis E differs from E of gate: got E=5 (shape [5, 64, 48]); allowed E=4 on ascend310p",
    ),
    "offsets": (
        {"expert_offsets": Spec((4,), "int32")},
        {},
        "expert_offsets: axis E+1 differs from E+1 of gate: got E+1=4 (shape [4]); allowed E+1=5 on ascend310p",
    ),
    "dtypes": (
        {"down": Spec((4, 64, 48), "float32")},
        {},
        "down: dtype not available: got float32; allowed float16 on ascend310p (ascend910b also has float32)",
    ),
    "no-expert": (
        {"gate": Spec((0, 96, 64), "float16"), "down": Spec((0, 64, 48), "float16"),
         "expert_offsets": Spec((1,), "int32")},
        {},
        "gate: no expert: got E=0; allowed E >= 1 on ascend310p",
    ),
    "experts-many": (
        {"gate": Spec((65537, 96, 64), "float16"), "down": Spec((65537, 64, 48), "float16"),
         "expert_offsets": Spec((65538,), "int32")},
        {},
        "gate: too many experts: got E=65537; allowed E <= 65536 on ascend310p",
    ),
    "rows-many": (
        {"expanded_x": Spec((2**31, 64), "float16")},
        {},
        "expanded_x: too many rows: got R=2147483648; allowed R <= 2147483647 on ascend310p",
    ),
    "hidden-range": (
        {"expanded_x": Spec((6, 65552), "float16"), "gate": Spec((4, 96, 65552), "float16"),
         "down": Spec((4, 65552, 48), "float16")},
        {},
        "expanded_x: H out of range: got H=65552; allowed 16 <= H <= 65536 on ascend310p",
    ),
    "inner-range": (
        {"gate": Spec((4, 0, 64), "float16"), "down": Spec((4, 64, 0), "float16")},
        {},
        "down: I out of range: got I=0; allowed 16 <= I <= 65536 on ascend310p",
    ),
    "strategy": (
        {},
        {"strategy": 3},
        "strategy: unknown strategy: got strategy=3; allowed 0 <= strategy <= 2 on ascend310p",
    ),
    "rank": (
        {"expanded_x": Spec((6, 1, 64), "float16")},
        {},
        "expanded_x: wrong rank: got rank 3 (shape [6, 1, 64]); allowed [R, H] on ascend310p",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_and_how(name):
    changes, attrs, wanted = REFUSED[name]
    with pytest.raises(HybridOpsError) as caught:
        check.call(OP, "ascend310p", specs(**changes), attrs)
    assert str(caught.value) == f"{OP}: {wanted}"


def test_unaligned_sizes_are_refused():
    for axis, change in (("H", {"hidden": 72}), ("I", {"inner": 40})):
        with pytest.raises(HybridOpsError, match=f"{axis} must be a multiple of 16: got {axis}="):
            check.call(OP, "ascend310p", specs(**change), {})


@pytest.mark.parametrize("backend", ["reference", "sim"])
def test_the_cube_takes_no_float32(backend):
    given = {n: a if a is None or n == "expert_offsets" else a.astype(np.float32)
             for n, a in arrays("ascend910b").items()}  # fmt: skip
    with pytest.raises(
        HybridOpsError, match=r"strategy: the cube path takes no float32: got 1 \(Cube\) with float32"
    ):
        runtime.run(OP, given, {"strategy": 1}, backend=backend, soc="ascend910b")  # fmt: skip


def test_host_refuses_what_python_refuses():
    with pytest.raises(HybridOpsError, match="G=90, I=48"):
        host.tiling(OP, "ascend310p", specs(gate=Spec((4, 90, 64), "float16")))


OFFSETS = {
    "beyond": [0, 2, 2, 90, 91],
    "negative": [-5, -1, 2, 5, 6],
    "all-beyond": [9, 9, 9, 9, 9],
}
DESCENDING = {
    "falls": [0, 5, 1, 6, 2],
    "largest": [0, 2**31 - 1, 0, 2**31 - 1, 5],
    "smallest": [-(2**31), 0, 3, -(2**31), 6],
}


def twice(soc, offsets):
    given = arrays(soc) | {"expert_offsets": np.array(offsets, np.int32)}
    made = [runtime.run(OP, given, {}, backend="sim", soc=soc, checks="full")["expanded_y"] for _ in range(2)]
    assert made[0].tobytes() == made[1].tobytes()
    return given, made[0].astype(np.float32)


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_outside_the_rows_count_as_their_ends(soc, name):
    given, made = twice(soc, OFFSETS[name])
    want = case.module(OP).meaning(**given)["expanded_y"].astype(np.float32)
    np.testing.assert_allclose(made, want, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", DESCENDING)
def test_descending_offsets_name_no_memory_outside(soc, name):
    """Every row is what one of the experts makes of it, or zero; the simulator sees no access outside a tensor."""
    given, made = twice(soc, DESCENDING[name])
    every = [np.zeros_like(made)]
    for expert in range(4):
        offsets = np.array([0] * (expert + 1) + [6] * (4 - expert), np.int32)
        alone = case.module(OP).meaning(**given | {"expert_offsets": offsets})["expanded_y"]
        every.append(alone.astype(np.float32))
    gaps = np.abs(np.stack(every) - made).max(axis=2).min(axis=0)
    assert (gaps < 0.03).all(), gaps


def test_bad_offsets_are_named_on_request(soc):
    for name, wanted in (("beyond", "offset outside the rows: got 90 at 3; allowed 0 to R=6"),
                         ("falls", "offsets descend: got 1 at 2 after 5; allowed ascending offsets")):  # fmt: skip
        offsets = {**OFFSETS, **DESCENDING}[name]
        given = arrays(soc) | {"expert_offsets": np.array(offsets, np.int32)}
        with pytest.raises(HybridOpsError, match=wanted):
            runtime.run(OP, given, {}, backend="reference", soc=soc, validate="values")


def test_fused_and_separate_weights_give_the_same_bits(soc):
    fused = arrays(soc)
    gate, up = (np.ascontiguousarray(half) for half in np.split(fused["gate"], 2, axis=1))
    made = [runtime.run(OP, g, {}, backend="sim", soc=soc)["expanded_y"].tobytes()
            for g in (fused, fused | {"gate": gate, "up": up})]  # fmt: skip
    assert made[0] == made[1]


def test_a_row_does_not_depend_on_its_company(soc):
    """The same row alone and among others of its expert: same bits, so a batch is reproducible."""
    many = arrays(soc, counts=(0, 7, 0, 2))
    few = many | {
        "expanded_x": many["expanded_x"][5:6],
        "expert_offsets": np.array([0, 0, 1, 1, 1], np.int32),
    }
    whole, alone = (runtime.run(OP, g, {}, backend="sim", soc=soc)["expanded_y"] for g in (many, few))
    assert whole[5].tobytes() == alone[0].tobytes()


def test_experts_without_rows_are_not_read(soc):
    """Their weights may be anything: NaN in them changes no bit."""
    clean = arrays(soc, counts=(2, 0, 3, 0))
    dirty = {n: None if a is None else a.copy() for n, a in clean.items()}
    for name in ("gate", "down"):
        dirty[name][[1, 3]] = np.nan
    made = [runtime.run(OP, g, {}, backend="sim", soc=soc)["expanded_y"].tobytes() for g in (clean, dirty)]
    assert made[0] == made[1]


def test_weights_are_read_once_for_a_few_rows(soc):
    """Traffic at four rows per expert: the weights once, plus rows and offsets."""
    given = arrays(soc, counts=(4, 0, 4, 4), hidden=512, inner=256)
    ran = profile.run(OP, given, {}, soc=soc)
    weights = 3 * 3 * 512 * 256 * 2
    assert weights <= ran.timing["gm_read_bytes"] - ran.timing["l2_hit_bytes"] <= 1.05 * weights + 40000


def test_floors_follow_the_strategy(soc):
    module = case.module(OP)
    shape = specs(rows=4096, experts=8, hidden=2048, inner=768, dtype=KIND[soc])
    scalar, cube, auto = (module.floors(shape, soc, {"strategy": s}) for s in (0, 1, 2))
    assert scalar.bound == "vector" and scalar.cube_cycles == 0
    assert cube.vector_cycles == 0 and cube.cube_cycles > 0
    assert auto.cycles == min(scalar.cycles, cube.cycles)
    weights = 3 * 8 * 2048 * 768 * 2
    assert scalar.read_bytes == weights + 4096 * 2048 * 2
    one = module.floors(shape, soc, {"strategy": 0}, hit=1)
    assert one.read_bytes == weights // 8 + 4096 * 2048 * 2


@pytest.mark.parametrize("strategy", [0, 1])
def test_infinity_counts_as_the_largest_value_where_fp16_has_none(strategy):
    """One infinite input on ascend310p: projections of +-65504, not NaN, and no other row notices."""
    given = arrays("ascend310p")
    clean = runtime.run(OP, given, {"strategy": strategy}, backend="sim", soc="ascend310p")["expanded_y"]
    given["expanded_x"][3, 5] = np.inf
    made = runtime.run(OP, given, {"strategy": strategy}, backend="sim", soc="ascend310p", checks="full")
    made = made["expanded_y"]
    projected = np.sign(given["gate"][2, :, 5].astype(np.float64)) * 65504.0
    gate, up = projected[:48], projected[48:]
    act = np.clip(np.where(gate > 0, gate, 0.0) * up, -65504.0, 65504.0)  # silu(-65504) is -0
    want = np.clip(given["down"][2].astype(np.float64) @ act, -65504.0, 65504.0)
    np.testing.assert_allclose(made[3].astype(np.float64), want, rtol=2e-3, atol=64)
    others = np.delete(np.arange(6), 3)
    assert made[others].tobytes() == clean[others].tobytes()


def test_infinity_stays_where_the_dtype_has_it():
    """The same on ascend910b: what it meets with both signs is NaN, as in the formula."""
    given = arrays("ascend910b")
    given["expanded_x"][3, 5] = np.inf
    made = runtime.run(OP, given, {}, backend="sim", soc="ascend910b", checks="full")["expanded_y"]
    want = case.module(OP).meaning(**given)["expanded_y"]
    lost = ~np.isfinite(want.astype(np.float32))
    assert lost[3].all() and not np.delete(lost, 3, axis=0).any()
    np.testing.assert_array_equal(np.isnan(made.astype(np.float32)), np.isnan(want.astype(np.float32)))
