"""Floors, the profile report, and the files it writes."""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest
from replay import call, flag, move, replay
from rich.console import Console

from hybrid_ops import case, check, profile, roofline, soc, timeline
from hybrid_ops.ops import recurrent_gated_delta_rule as rule


def decode_specs(rows: int, batch: int, state: str, io: str = "bfloat16") -> dict[str, check.Spec]:
    heads, dim = 32, 128
    return {
        "query": check.Spec((rows, 16, dim), io),
        "key": check.Spec((rows, 16, dim), io),
        "value": check.Spec((rows, heads, dim), io),
        "beta": check.Spec((rows, heads), io),
        "state": check.Spec((max(rows, 4), heads, dim, dim), state),
        "actual_seq_lengths": check.Spec((batch,), "int32"),
        "ssm_state_indices": check.Spec((rows,), "int32"),
        "g": check.Spec((rows, heads), "float32"),
    }


@pytest.mark.parametrize("chip", ["310P3", "910B3"])
@pytest.mark.parametrize("batch", [1, 16])
def test_gated_delta_floors_count_state_once_each_way(chip, batch):
    kind = "float16" if chip == "310P3" else "bfloat16"
    floors = rule.floors(decode_specs(batch, batch, kind, kind), chip)
    state = batch * 32 * 128 * 128 * 2
    assert floors.read_bytes - state == pytest.approx(0, abs=0.04 * state) and floors.read_bytes > state
    assert floors.write_bytes == state + batch * 32 * 128 * 2
    chipset = soc.load(chip)
    repeats = batch * 32 * 128 * 128 / 64 / chipset.vector_cores
    # cast in, S k: multiply + reduce, decay, update (Axpy: 2), S q: multiply + reduce, cast out
    assert floors.vector_cycles == pytest.approx(9 * repeats)


@pytest.mark.parametrize(("chip", "dtype", "rate"), [("310P3", "float16", 4096), ("910B3", "float32", 1024)])
def test_cube_floor_counts_multiply_adds(chip, dtype, rate):
    products = [roofline.Product(64, 128, 64, dtype, count=2), roofline.Product(16, 16, 16, dtype)]
    floors = roofline.floors(1, 1, [], chip, products)
    macs = 2 * 64 * 128 * 64 + 16**3
    assert floors.cube_cycles == pytest.approx(macs / rate / soc.load(chip).figures["cores.cube"])
    assert floors.bound == "cube" and floors.cycles == floors.cube_cycles


def test_float32_state_needs_no_casts_and_twice_the_bytes():
    half = rule.floors(decode_specs(16, 16, "bfloat16"), "910B3")
    single = rule.floors(decode_specs(16, 16, "float32"), "910B3")
    assert single.vector_cycles == pytest.approx(half.vector_cycles * 7 / 9)
    assert single.memory_cycles == pytest.approx(half.memory_cycles * 2, rel=0.03)


def test_speculative_rows_read_the_state_once_and_write_it_per_row():
    one = rule.floors(decode_specs(4, 4, "bfloat16"), "910B3")
    two = rule.floors(decode_specs(8, 4, "bfloat16"), "910B3")
    assert two.write_bytes == 2 * one.write_bytes
    assert two.read_bytes < 1.1 * one.read_bytes


def test_fused_decode_of_910b_stays_above_its_floor():
    """vllm-ascend PR 12869: 37.3 us for B=16, 16 key and 32 value heads of 128, fp32 state (910B, 1.8 TB/s)."""
    floors = rule.floors(decode_specs(16, 16, "float32"), "910B1")
    assert 0.9 * 37.3 < soc.load("910B1").microseconds(floors.cycles) <= 37.6


@pytest.fixture
def report():
    block = [
        move("GM", "UB", 4096),
        *flag("MTE2", "V"),
        call("Exp.f32", 16, line=7),
        *flag("V", "MTE3"),
        move("UB", "GM", 4096),
    ]
    return replay([block] * 3, "310P3", timing__trace=1)


def test_report_names_chip_floors_and_stalls(report):
    floors = roofline.floors(3 * 4096, 3 * 4096, [roofline.Pass("Exp.f32", 3 * 1024)], "310P3")
    found = profile.Profile("recurrent_gated_delta_rule", soc.load("310P3"), report, floors)
    console = Console(record=True, width=140, file=io.StringIO())
    for table in (profile.summary(found), profile.calls(found), profile.stalls(found)):
        console.print(table)
    text = console.export_text()
    for part in ("310P3", "uncalibrated", "memory floor", "busy MTE2", "Exp", "DataCopy", "k.cpp:1 WaitFlag"):
        assert part in text
    assert found.ratio is not None and found.ratio > 1


def test_trace_is_valid_chrome_json(report, tmp_path):
    path = tmp_path / "trace.json"
    timeline.write_trace(report["trace"], path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[0, 1] == "V" and all((e["pid"], e["tid"]) in names for e in events if e["ph"] == "X")


def test_svg_has_a_lane_per_core_and_pipe(report, tmp_path):
    path = tmp_path / "timeline.svg"
    timeline.write_svg(report["trace"], path, "a < b", cores=[0, 2])
    root = Xml.fromstring(path.read_text())
    labels = [e.text for e in root if e.tag.endswith("text")]
    assert labels[0] == "a < b" and "core 2 MTE3" in labels and "core 1 V" not in labels


def test_plot_that_is_no_svg_is_refused(tmp_path):
    with pytest.raises(
        check.HybridOpsError, match=r"profile: plot: not an SVG file: got .*; allowed a \.svg path"
    ):
        profile.command(op="recurrent_gated_delta_rule", soc="ascend310p", plot=tmp_path / "x.png")


@pytest.mark.parametrize("option", ["trace", "plot"])
def test_files_that_cannot_be_written_are_refused_first(option, tmp_path, monkeypatch):
    monkeypatch.setattr("hybrid_ops.profile.run", lambda *a, **k: pytest.fail("work was done"))
    (tmp_path / "x.svg").mkdir()
    for path in (tmp_path / "none" / "x.svg", tmp_path / "x.svg"):
        with pytest.raises(check.HybridOpsError, match=f"^profile: {option}: cannot be written: got "):
            profile.command(op="recurrent_gated_delta_rule", soc="ascend310p", **{option: path})


@pytest.fixture
def peer(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("peer")


def test_peer_tiling_is_laid_out_like_c(peer):
    class Tiling(ctypes.Structure):
        _fields_ = [
            ("a", ctypes.c_uint8),
            ("b", ctypes.c_uint32),
            ("c", ctypes.c_float * 3),
            ("d", ctypes.c_int64),
        ]

    want = Tiling(7, 9, (ctypes.c_float * 3)(0.5, 1, 2), -3)
    fields = [["a", "uint8", 7], ["b", "uint32", 9], ["c", "float32", [0.5, 1, 2]], ["d", "int64", -3]]
    assert peer.pack(fields) == bytes(want)


def test_peer_tiling_refuses_an_unknown_type(peer):
    with pytest.raises(
        check.HybridOpsError, match="peer tiling field x: unknown type: got half; allowed int8"
    ):
        peer.pack([["x", "half", 1]])


@pytest.mark.parametrize("chip", ["Ascend310P3", "Ascend910B3"])
def test_kernel_stays_above_its_floors_and_profiles_alike_twice(chip):
    family = soc.load(chip).family
    chosen = next(c for c in case.cases("recurrent_gated_delta_rule", family) if c.id.endswith("decode-4b"))
    first, second = (profile.run(chosen.op, chosen.inputs(), chosen.attrs, soc=chip) for _ in range(2))
    assert first.timing == second.timing
    assert first.floors is not None and first.cycles >= first.floors.cycles
    assert first.timing["gm_read_bytes"] >= first.floors.read_bytes * 0.99
    assert first.timing["gm_write_bytes"] >= first.floors.write_bytes * 0.99
    assert first.timing["unpriced"] == []


def test_benchmark_prints_nothing_when_no_case_holds(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    bench = importlib.import_module("rgdr")
    monkeypatch.setattr("sys.argv", ["rgdr.py", "--gate", "no-such-case"])
    assert bench.main() == 1
    printed = capsys.readouterr().out
    assert "not benchmarked" in printed and "cycles" not in printed
