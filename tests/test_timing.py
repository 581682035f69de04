"""Timing replay: rules of the pipes, and the public 910B figures it must reproduce."""

from __future__ import annotations

import re

import pytest
from replay import bank_conflicts, call, flag, move, replay, scalar, sync

from hybrid_ops import check, paths, soc

FAMILIES = ("ascend310p", "ascend910b")
VARIANTS = [chip for chips in soc.variants().values() for chip in chips]


def cycles(*records, chip="910B3", **figures):
    return replay([list(records)], chip, **figures)["cycles"]


# SoC figures


@pytest.mark.parametrize("chip", VARIANTS)
def test_every_figure_has_source_and_confidence(chip):
    family = soc.load(chip).family
    for section in (
        "sizes",
        "cores",
        "clock",
        "rates",
        "latency",
        "issue",
        "move",
        "cost",
        "numerics",
        "l2",
        "banks",
    ):
        for key, entry in soc._table(family, chip)[section].items():
            assert entry.get("source"), f"{chip} {section}.{key}"
            assert entry.get("confidence") in ("high", "medium", "low"), f"{chip} {section}.{key}"


def test_unknown_soc_is_refused_with_the_known_ones():
    with pytest.raises(check.HybridOpsError) as error:
        soc.load("Ascend910A")
    text = str(error.value)
    assert text.startswith(
        "hybrid_ops: soc: not a known SoC: got 'Ascend910A'; allowed ascend310p, ascend910b"
    )
    assert "Ascend310P3" in text and "Ascend910B4" in text


@pytest.mark.parametrize(
    ("chip", "vector_cores", "mhz", "ub"),
    [("310P3", 8, 1060, 262144), ("Ascend310P1", 10, 1060, 262144), ("910B1", 48, 1850, 196608),
     ("ascend910b", 40, 1800, 196608), ("910B4", 40, 1500, 196608)],
)  # fmt: skip
def test_variants(chip, vector_cores, mhz, ub):
    found = soc.load(chip)
    assert (found.vector_cores, found.mhz, found.ub_bytes) == (vector_cores, mhz, ub)


def test_310p_ddr_ports_add_up_to_the_memory():
    figures = soc.load("310P3").figures
    ports = figures["cores.ai"] * figures["rates.ddr_read"] * figures["clock.mhz"]
    ports += (
        figures["cores.extra_vector"] * figures["rates.extra_vector_ddr"] * figures["clock.extra_vector_mhz"]
    )
    assert ports / 1e3 == pytest.approx(figures["rates.ddr_peak_gbps"], rel=0.02)


def test_310p_is_always_labelled_uncalibrated():
    for chip in ("310P3", "310P1"):
        assert replay([[call("Add.f32", 1)]], chip)["confidence"].startswith("uncalibrated")


def test_every_call_of_the_simulator_has_a_price():
    text = "\n".join(p.read_text() for p in (paths.source_dir("sim") / "include" / "ascsim").rglob("*.h"))
    names = set(re.findall(r'<"([A-Z]\w*)"', text)) | set(
        re.findall(r"^ASCSIM_[A-Z]+\(([A-Z]\w*),?", text, re.M)
    )
    names |= set(re.findall(r'"(Scalar\.\w+)"', text))
    assert len(names) > 50
    for family in FAMILIES:
        figures = soc.load(family).figures
        assert not [n for n in names if f"cost.{n}.min" not in figures]


# Rules of the replay


def test_independent_calls_are_issue_bound_and_dependent_ones_latency_bound():
    figures = soc.load("310P3").figures
    n, price = 100, soc.load("310P3").price("Add.f32")
    free = cycles(*(call("Add.f32", 1) for _ in range(n)), chip="310P3")
    chained = cycles(*(call("Add.f32", 1, after="V" if i else "") for i in range(n)), chip="310P3")
    assert free == pytest.approx(n * figures["issue.vector"], rel=0.05)
    assert chained == pytest.approx(n * (price["min"] + price["latency"]), rel=0.05)


def test_long_calls_are_throughput_bound():
    assert cycles(*(call("Exp.f32", 64) for _ in range(50))) == pytest.approx(50 * 128, rel=0.02)


def test_barrier_waits_for_the_result():
    a, b = call("Add.f32", 8), call("Add.f32", 8)
    assert cycles(a, sync("Barrier", "V"), b) - cycles(a, b) == pytest.approx(24, abs=2)


def test_wait_flag_orders_pipes_and_set_flag_does_not_block():
    load, use = move("GM", "UB", 8192), call("Add.f32", 32)
    overlapped = replay([[load, use]], "910B3")
    ordered = replay([[load, *flag("MTE2", "V"), use]], "910B3")
    assert overlapped["busy"] == {**ordered["busy"], "S": overlapped["busy"]["S"]}
    moved = 18 + 8192 / 50.7 + 129
    assert ordered["cycles"] == pytest.approx(14 + moved + 10 + 32 + 24, abs=4)
    assert overlapped["cycles"] < ordered["cycles"] - 50
    stall = next(s for s in ordered["stalls"] if s["pipe"] == "V")
    assert {"cause": "flag", "kernel_file": "k.cpp", "line": 1, "api": "WaitFlag"}.items() <= stall.items()


def test_scalar_read_waits_for_the_vector_pipe():
    add = call("Add.f32", 64)
    assert cycles(add, scalar("Scalar.ub_get", after="V")) > cycles(add, scalar("Scalar.ub_get")) + 10


def test_scalar_loads_of_one_line_reach_memory_once():
    base = 1 << 30
    near, far = ([scalar("Scalar.gm_get", gm=base + i * step) for i in range(4)] for step in (4, 64))
    miss, hit = (soc.load("910B3").price(f"Scalar.{key}")["min"] for key in ("gm_get", "gm_hit"))
    assert cycles(*near) == miss + 3 * hit
    assert cycles(*far) == 4 * miss


def test_barrier_all_drains_every_pipe():
    load = move("GM", "UB", 65536)
    assert cycles(load, sync("Barrier", "ALL"), scalar("Scalar.ub_get")) > cycles(
        load, scalar("Scalar.ub_get")
    )


def test_double_buffering_hides_the_loads():
    def loop(depth: int) -> float:
        records = []
        for i in range(16):
            if i >= depth:
                records.append(flag("V", "MTE2", i % depth)[1])
            records += [move("GM", "UB", 16384), *flag("MTE2", "V", i % depth), call("Exp.f32", 64)]
            records.append(flag("V", "MTE2", i % depth)[0])
        return cycles(*records)

    assert loop(2) < 0.8 * loop(1)


def test_cores_share_ddr_fairly():
    size = 1 << 20
    alone = replay([[move("GM", "UB", size)]], "910B3", l2__enabled=0)["cycles"]
    together = replay([[move("GM", "UB", size)] for _ in range(40)], "910B3", l2__enabled=0)
    assert alone == pytest.approx(147 + 14 + size / 50.7, rel=0.01)
    assert together["cycles"] == pytest.approx(40 * size / (1490e3 / 1800), rel=0.02)
    assert len({core["cycles"] for core in together["per_core"]}) == 1
    assert together["bound"] == "memory"


def test_310p_port_limits_each_core():
    size = 1 << 20
    report = replay([[move("GM", "UB", size)] for _ in range(8)], "310P3")
    assert report["cycles"] == pytest.approx(size / 17, rel=0.01)


def test_second_touch_comes_from_l2_within_its_capacity():
    base, size = 0x10000000, 1 << 20
    twice = [move("GM", "UB", size, gm=base), move("GM", "UB", size, gm=base)]
    report = replay([twice], "310P3", [(base, size)])
    assert report["l2_hit_bytes"] == size
    assert replay([twice], "310P3", [(base, size)], sizes__l2=size // 2)["l2_hit_bytes"] == 0
    assert report["cycles"] < replay([twice], "310P3", [(base, size)], l2__enabled=0)["cycles"]


def test_answer_does_not_depend_on_host_addresses():
    def run(base: int) -> dict:
        loads = [move("GM", "UB", 4096, gm=base + i * 1000, rows=4, stride=3000) for i in range(20)]
        return replay([loads, loads], "910B3", [(base, 1 << 20)])

    assert run(0x7F0000001040) == run(0x55AA00000020)


def test_sync_all_waits_for_the_slowest_block():
    slow = [call("Exp.f32", 255) for _ in range(40)]
    report = replay([[*slow, sync("SyncAll")], [sync("SyncAll")]], "910B3")
    assert report["per_core"][0]["cycles"] == report["per_core"][1]["cycles"]


def test_more_blocks_than_cores_run_one_after_another():
    block = [call("Exp.f32", 255) for _ in range(20)]
    one, two = replay([block] * 8, "310P3")["cycles"], replay([block] * 30, "310P3")["cycles"]
    assert two == pytest.approx(2 * one, rel=0.1)


def test_unmatched_wait_does_not_hang():
    assert cycles(flag("MTE2", "V")[1], call("Add.f32", 1)) > 0


def test_unpriced_key_is_named_and_priced_conservatively():
    report = replay([[call("Nonesuch.f32", 64)]], "910B3")
    assert report["unpriced"] == ["Nonesuch.f32"]
    assert report["cycles"] > cycles(call("Exp.f32", 64))


def test_trace_and_counts():
    report = replay(
        [[move("GM", "UB", 512), call("Add.f32", 1), call("Add.f32", 1)]], "910B3", timing__trace=1
    )
    assert report["instructions"] == {"Add": 2, "DataCopy": 1}
    events = [e for e in report["trace"] if e["tid"] == "V"]
    assert [e["name"] for e in events] == ["Add", "Add"] and all(e["ph"] == "X" for e in events)
    assert "trace" not in replay([[call("Add.f32", 1)]], "910B3")


def test_pipe_time_never_exceeds_the_total():
    report = replay([[call("Mul.f32", 3, after="V"), move("GM", "UB", 999)] * 50], "310P3")
    assert all(busy <= report["cycles"] for busy in report["busy"].values())


# 910B against public figures. Each figure names where it is published.

# asc-devkit, sample bank_conflict_ub: 1000 calls of Add on 4096 fp32, read from a 50 MHz counter on a 1.85 GHz part.
BANK_SCENARIOS = {
    1: (0x0, 0x10100, 0x20000, 2390), 2: (0x0, 0x4000, 0x10000, 4167), 3: (0x0, 0x10000, 0x14100, 4167),
    4: (0x0, 0x10100, 0x4000, 2389), 5: (0x0, 0x10100, 0x4020, 3751), 6: (0x0, 0x10100, 0x10100, 2390),
}  # fmt: skip


@pytest.mark.parametrize("scenario", BANK_SCENARIOS)
def test_910b_add_with_bank_conflicts(scenario):
    src0, src1, dst, ticks = BANK_SCENARIOS[scenario]
    conflicts = bank_conflicts([(dst, True), (src0, False), (src1, False)], 64)
    calls = [call("Add.f32", 64, after="V" if i else "", conflicts=conflicts) for i in range(200)]
    assert cycles(*calls, chip="910B1") / 200 == pytest.approx(ticks / 1000 / 50 * 1850, rel=0.03)


@pytest.mark.parametrize(("repeat_stride", "ticks"), [(32, 3584), (256, 2389)])
def test_910b_add_that_rereads_one_block(repeat_stride, ticks):
    operands = [(0x10100, True), (0x0, False), (0x10100, False)]
    conflicts = bank_conflicts(operands, 64, [(32, 256), (0, repeat_stride), (32, 256)])
    calls = [call("Add.f32", 64, after="V" if i else "", conflicts=conflicts) for i in range(200)]
    assert cycles(*calls, chip="910B1") / 200 == pytest.approx(ticks / 1000 / 50 * 1850, rel=0.15)


# pto-isa cost model: cycles of one isolated call, a * R + b. Two-source calls are listed with the conflicts of operands
# in one bank group.
PTO = [
    ("Add.f32", 2.1, 24, True), ("Adds.f32", 1, 31, False), ("Div.f32", 4, 31, False), ("Exp.f32", 2, 31, False),
    ("Ln.f32", 2, 33, False), ("Cast.f16f32", 2, 32, None), ("Duplicate.f32", 1, 27, False),
    ("WholeReduceSum.f16", 7, 46, False), ("BlockReduceSum.f32", 1, 38, False), ("Brcb.f32", 1, 18, False),
]  # fmt: skip


@pytest.mark.parametrize(("key", "slope", "constant", "conflict"), PTO)
@pytest.mark.parametrize("repeats", [8, 64])
def test_910b_isolated_calls(key, slope, constant, conflict, repeats):
    issue = soc.load("910B3").figures["issue.vector"]
    found = cycles(call(key, repeats, conflicts=repeats if conflict else 0)) - issue
    # mskpp and pto-isa disagree on Cast (1 and 2 cycles a repeat): its latency alone is compared.
    expected = found if conflict is None else slope * repeats + constant
    assert found == pytest.approx(expected, rel=0.08)


# mskpp: throughput of independent calls on 910B1, max(3..4, c * R).
MSKPP = [
    ("Muls.f32", 1), ("Cast.f16f32", 1), ("Exp.f32", 2), ("Exp.f16", 4), ("Div.f32", 4), ("WholeReduceSum.f32", 3),
    ("WholeReduceMax.f32", 7), ("Gather.f32", 12), ("MulAddDst.f32", 6), ("Axpy.f32", 2),
]  # fmt: skip


@pytest.mark.parametrize(("key", "slope"), MSKPP)
def test_910b_throughput(key, slope):
    assert cycles(*(call(key, 64) for _ in range(50))) / 50 == pytest.approx(64 * slope, rel=0.05)


@pytest.mark.parametrize(
    ("source", "to", "constant", "rate"),
    [("GM", "UB", 147, 50.7), ("UB", "GM", 121, 79.5), ("GM", "L1", 187, 171), ("L1", "L0A", 2, 263),
     ("L1", "L0B", 2, 131.6), ("L0C", "GM", 35, 134)],
)  # fmt: skip
@pytest.mark.parametrize("size", [2048, 65536])
def test_910b_isolated_moves(source, to, constant, rate, size):
    issue = soc.load("910B3").figures["issue.move"]
    # the public GM->L1 fit is of data in L2; DDR would hold it to 50.7
    figures = {"rates__ddr_read": 1e6, "rates__ddr_sustained_gbps": 1e6, "rates__ddr_write": 1e6}
    found = cycles(move(source, to, size), **figures) - issue
    hidden = 20 if source == "L1" else 0  # our latency after an on-chip move; the fits measure throughput
    assert found - hidden == pytest.approx(constant + size / rate, rel=0.03)


# asc-devkit, sample data_copy: 12288 x 12288 halves GM->UB on 48 cores of 1.85 GHz, time of MTE2 in us.
@pytest.mark.parametrize(
    ("rows", "row", "microseconds"), [(1, 128, 548.161), (64, 128, 220.772), (64, 2048, 202.657)]
)
def test_910b_data_copy_tiles(rows, row, microseconds):
    # one tile is a 128th to a 32nd of a core's share, and enough to reach the steady state
    size = rows * row
    count = max(40, (1 << 20) // size)
    base = 1 << 32
    share = count * size
    blocks = []
    for core in range(48):
        tiles = [
            move("GM", "UB", size, gm=base + core * 24576 * 4096 + (i * row) % 24576 + i * row // 24576 * rows * 24576,
                 rows=rows, stride=24576)
            for i in range(count)
        ]  # fmt: skip
        blocks.append(tiles)
    report = replay(blocks, "910B1", [(base, 1 << 36)])
    measured = microseconds * share * 48 / (12288 * 12288 * 2)
    assert report["us"] == pytest.approx(measured, rel=0.06)
