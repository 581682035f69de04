"""The simulator's engine: every rule has a mini kernel that breaks it and a twin that does not."""

from __future__ import annotations

import minikernel as mini
import numpy as np
import pytest
from minikernel import INOUT, INPUT, OUTPUT, TILING, WORKSPACE, aligned, rules

from hybrid_ops import build

X = np.arange(256, dtype=np.float32)
TILE = 64


def run(stem, entry, *, blocks=1, key=0, x=X, **settings):
    """Arguments of all entries here: x, z, workspace, an absent one, an in-place one, tiling."""
    z = aligned(np.full(2048, np.nan, np.float32))
    packed = np.frombuffer(np.uint32(12).tobytes() + np.float32(2.5).tobytes(), np.uint8)
    args = [
        ("x", aligned(x), INPUT), ("z", z, OUTPUT), ("w", aligned(np.zeros(4096, np.uint8)), WORKSPACE), ("absent", None, INPUT),
        ("both", aligned(np.ones(64, np.float32)), INOUT), ("tiling", aligned(packed), TILING),
    ]  # fmt: skip
    return mini.launch(mini.library(stem), entry, args, blocks=blocks, key=key, **settings), z


def rules_of(entry, **settings):
    return run("engine_rules", entry, **settings)[0]


def frame(entry, **settings):
    return run("engine_frame", entry, **settings)[0]


SILENT_RULES = [
    "raw_good", "war_good", "waw_good", "disjoint_halves", "transitive", "vector_good", "mte2_overlap_good", "scalar_good",
    "uninit_good", "uninit_gm_good", "tensor_good", "gm_good", "capacity_good", "events_good", "event_pool_good",
]  # fmt: skip


@pytest.mark.parametrize("entry", SILENT_RULES)
@pytest.mark.parametrize("auto_sync", [True, False], ids=["auto-sync", "manual"])
def test_correct_kernels_are_silent(entry, auto_sync):
    report = rules_of(entry, auto_sync=auto_sync)
    assert report["ok"] and report["error"] is None and rules(report) <= {"gm.read_back"}


BROKEN = [
    (
        "raw_bad",
        "race.raw",
        ["pipe V reads TBuf<VECCALC>", "MTE2 may still write", "missing MTE2_V: EnQue/DeQue"],
    ),
    ("war_bad", "race.war", ["pipe MTE2 writes", "V may still read", "missing V_MTE2"]),
    ("waw_bad", "race.waw", ["pipe MTE2 writes", "V may still write", "missing V_MTE2"]),
    ("mte2_overlap_bad", "race.waw", ["missing PipeBarrier<PIPE_MTE2>", "bytes [32, 64)"]),
    ("uninit_bad", "uninit.local", ["bytes [128, 256), which nothing has written"]),
    ("uninit_gm_bad", "uninit.gm", ["'w' bytes [0, 32)", "InitOutput"]),
    ("tensor_bad", "bounds.tensor", ["32 bytes past the end of TBuf<VECCALC>"]),
    ("memory_bad", "bounds.memory", ["UB bytes [262016, 262272), which has 262144 bytes on ascend310p"]),
    ("never_allocated", "bounds.tensor", ["never allocated"]),
    ("gm_bad", "bounds.gm", ["reads bytes [0, 1088) of 'x', which has 1024 bytes (64 too many)"]),
    ("null_bad", "bounds.gm", ["null GM address"]),
    ("input_written", "role.input_written", ["writes 'x', which is an input"]),
    ("align_bad", "param.align", ["dst: UB address 16 is not a multiple of 32 bytes"]),
    ("count_bad", "param.count_not_block", ["12 bytes are not a multiple of 32", "copies 0"]),
    ("blocks_bad", "param.range", ["blockCount 5000; allowed 0 … 4095"]),
    ("capacity_bad", "capacity", ["102400 bytes do not fit into UB: 204800 of 262144"]),
    ("offset_bad", "param.align", ["offset 20 is not a multiple of 32"]),
    ("set_twice", "flag.set_twice", ["V_MTE3 id 0"]),
    ("wait_unset", "flag.wait_unset", ["V_MTE3 id 1", "deadlock"]),
    ("unpaired", "flag.unpaired", ["V_MTE3 id 2 is still set at the end"]),
    ("event_id", "flag.id", ["event id 8: allowed 0 … 7 on ascend310p"]),
    ("event_exhausted", "event.exhausted", ["all 8 ids of event V_S are in use"]),
    ("event_release_bad", "event.release", ["event id 3 was not allocated"]),
]


@pytest.mark.parametrize(("entry", "rule", "parts"), BROKEN, ids=[b[0] for b in BROKEN])
def test_each_fault_is_named(entry, rule, parts):
    report = rules_of(entry)
    assert not report["ok"]
    found = [h for h in report["hazards"] if h["rule"] == rule]
    assert found, rules(report)
    assert all(part in found[0]["message"] for part in parts), found[0]["message"]
    assert found[0]["kernel_file"].endswith("engine_rules.cpp") and found[0]["line"] > 0


def test_a_misaligned_or_short_move_names_tensor_and_bytes():
    """HW1: of the operand that is at fault, also where it is not the first."""
    at = {"align_bad": ("TBuf<VECCALC>", 16), "count_bad": ("x", 0), "short_row_bad": ("z", 16)}
    for entry, (tensor, begin) in at.items():
        found = next(h for h in rules_of(entry)["hazards"] if h["severity"] == "error")
        assert found["tensor"].startswith(tensor) and found["bytes"][0] == begin, found


def test_one_fault_is_one_line():
    assert [h["rule"] for h in rules_of("raw_bad")["hazards"]] == ["race.raw"]


def test_every_launch_starts_uninitialised():
    for _ in range(2):  # a report must not make the bytes count as written in the next launch
        assert "uninit.local" in rules(rules_of("uninit_last"))


def test_a_tensor_used_after_free_is_a_warning():
    report = frame("queue_freed")
    assert report["ok"] and [h["rule"] for h in report["hazards"]] == ["queue.freed"]
    assert "src: reads a tensor after FreeTensor (line " in report["hazards"][0]["message"]


def test_a_read_of_the_allocators_padding_is_a_warning():
    report = rules_of("gm_over_read")
    assert report["ok"] and rules(report) == {"gm.over_read"}
    assert "the last 32 are the allocator's padding" in report["hazards"][0]["message"]


def test_beyond_the_declared_tensor_is_a_warning():
    report = rules_of("declared_bad")
    assert report["ok"] and rules(report, "warning") == {"bounds.tensor"}


@pytest.mark.parametrize(("entry", "rule"), [("vector_bad", "race.raw"), ("scalar_bad", "race.raw")])
def test_what_the_compiler_synchronises_counts_only_without_it(entry, rule):
    assert rules_of(entry)["hazards"] == []
    report = rules_of(entry, auto_sync=False)
    assert rules(report, "error") == {rule}


def test_fatal_faults_stop_the_launch_and_name_the_call():
    report = rules_of("gm_bad")
    assert "engine_rules.cpp" in report["error"] and "DataCopy" in report["error"]


def test_checks_off_still_refuses_to_leave_memory():
    report = rules_of("gm_bad", checks=False)
    assert not report["ok"] and "too many" in report["error"]
    assert rules_of("raw_bad", checks=False)["hazards"] == []


def test_process_survives_and_the_next_launch_is_clean():
    rules_of("memory_bad")
    report, z = run("engine_rules", "raw_good")
    assert report["ok"]
    np.testing.assert_array_equal(z[:TILE], X[:TILE] + 1)


# --- frame

SILENT_FRAME = [("queue_good", 1), ("queue_used_then_freed", 1), ("queue_bind", 1), ("cores_own_address", 8), ("cores_half_granule", 4), ("cores_atomic", 8),
                ("neighbour_good", 8), ("one_after_the_other", 8), ("dcache_clean", 1), ("dcache_reloaded", 1), ("gm_order_good", 1),
                ("slices", 1), ("strided", 1), ("pool", 1)]  # fmt: skip


@pytest.mark.parametrize(("entry", "blocks"), SILENT_FRAME, ids=[e for e, _ in SILENT_FRAME])
def test_correct_frame_use_is_silent(entry, blocks):
    report = frame(entry, blocks=blocks)
    assert report["ok"] and not rules(report, "warning"), report["hazards"]


BROKEN_FRAME = [
    ("queue_no_buffer", 1, "queue.no_buffer", "all 2 buffers are taken"),
    ("queue_depth", 1, "queue.depth", "depth is 1"),
    ("queue_empty", 1, "queue.empty", "nothing is enqueued"),
    ("queue_free_twice", 1, "queue.free_twice", "free already"),
    ("queue_enqueued_twice", 1, "queue.state", "in the queue already"),
    ("queue_foreign", 1, "queue.foreign", "not allocated from this queue"),
    ("queue_left_inside", 1, "queue.leak", "enqueued, never dequeued"),
    ("queue_uninit", 1, "queue.uninit", "no InitBuffer"),
    ("queue_in_flight", 1, "event.exhausted", "all 8 ids of event MTE2_V"),
    ("no_pipe", 1, "queue.uninit", "no InitBuffer"),
    ("atomic_uninit", 1, "uninit.gm", "adds atomically to 'z' bytes [0, 32)"),
    ("gm_order_bad", 1, "gm.race.raw", "missing MTE3_MTE2"),
    ("cores_one_address", 8, "gm.cross_core.waw", "core 0 wrote before"),
    ("neighbour_bad", 8, "gm.cross_core.raw", "nothing orders the two cores"),
    ("sync_deadlock", 4, "sync.deadlock", "block 0 waits in SyncAll"),
    ("sync_workspace", 4, "sync.workspace", "4 cores need 32"),
    ("wait_forever", 2, "sync.deadlock", "IBWait for block 7"),
    ("too_many_blocks", 32, "sync.resident", "32 blocks but 15 cores on ascend310p"),
    ("dcache_dirty", 1, "dcache.dirty", "missing DataCacheCleanAndInvalid"),
    ("dcache_stale", 1, "dcache.stale", "MTE3 has overwritten since"),
    ("dcache_shared_line", 2, "dcache.shared_line", "core 0 writes too"),
    ("asserts", 1, "assert", "GetBlockNum() > 100 is false blocks 1"),
    ("tiling_short", 1, "tiling.size", "needs 8 bytes, the launch's tiling has 4"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "blocks", "rule", "part"), BROKEN_FRAME, ids=[b[0] for b in BROKEN_FRAME])
def test_each_frame_fault_is_named(entry, blocks, rule, part):
    report = frame(entry, blocks=blocks)
    assert not report["ok"]
    found = [h for h in report["hazards"] if h["rule"] == rule]
    assert found, rules(report)
    assert part in found[0]["message"], found[0]["message"]


@pytest.mark.parametrize(
    ("entry", "severity", "rule"),
    [("queue_leak", "warning", "queue.leak"), ("queue_unqueued", "warning", "queue.unqueued"), ("dcache_unflushed", "note", "dcache.unflushed"), ("gm_order_good", "note", "gm.read_back")],
)  # fmt: skip
def test_what_does_not_fail_is_still_said(entry, severity, rule):
    report = frame(entry)
    assert report["ok"] and rules(report, severity) == {rule}


def test_reserved_event_ids_are_noted():
    report = rules_of("event_reserved")
    assert report["ok"] and rules(report, "note") == {"flag.reserved"}


def test_values_moved_through_queues_and_slices():
    np.testing.assert_array_equal(run("engine_frame", "queue_good")[1][:256], X + 1)
    np.testing.assert_array_equal(run("engine_frame", "queue_bind")[1][:256], X)
    matrix = X[:64].reshape(4, 16)
    np.testing.assert_array_equal(run("engine_frame", "slices")[1][:16], matrix[1:3, 8:].ravel())
    np.testing.assert_array_equal(
        run("engine_frame", "strided")[1][:64], X[:128].reshape(8, 2, 8)[:, 0].ravel()
    )
    np.testing.assert_array_equal(run("engine_frame", "pool")[1][:128], np.repeat([1.0, 2.0], 64))


def test_blocks_meet_in_order():
    z = run("engine_frame", "neighbour_good", blocks=8)[1]
    np.testing.assert_array_equal(z[512:1024], np.repeat((np.arange(8) + 1) % 8, 64))
    assert run("engine_frame", "one_after_the_other", blocks=8)[1][0] == 8


def test_prints_come_back_with_their_core():
    report = frame("prints", blocks=2)
    assert report["prints"][:3] == [
        "core 0: block 0 of 2, half 0.500000", "core 0: twice", "core 0: DumpTensor GM desc=7 count=3: 0 1 2",
    ]  # fmt: skip
    assert report["prints"][3].startswith("core 1:")


def test_tiling_struct_and_key():
    assert frame("tiling", key=3)["prints"] == ["core 0: 12 2.5 12 key 1"]
    assert frame("tiling", key=4)["prints"] == ["core 0: 12 2.5 12 key 0"]


def test_record_gives_timing():
    timing = frame("queue_good", record=True)["timing"]
    assert timing["cycles"] > 0 and timing["gm_read_bytes"] == 1024 and timing["gm_write_bytes"] == 1024


@pytest.mark.parametrize("call", ["DataCopyPad", "SetAtomicMax", "GetSystemCycle", "SyncAll"])
def test_call_the_chip_lacks_does_not_compile(call):
    with pytest.raises(build.BuildError, match=f"{call}.* is not available on ascend310p"):
        mini.library("engine_absent", "ascend310p", (f"USE_{call.upper()}",))


def test_call_the_chip_has_compiles_and_runs():
    lib = mini.library("engine_absent", "ascend910b", ("USE_DATACOPYPAD",))
    z = aligned(np.zeros(64, np.float32))
    x = aligned(np.arange(64, dtype=np.float32))
    report = mini.launch(lib, "absent", [("x", x, INPUT), ("z", z, OUTPUT)], soc="ascend910b")
    assert report["ok"], report["hazards"]
    np.testing.assert_array_equal(z[:14], [9, 1, 2, 3, 4, 5, 9, 9, 9, 11, 12, 13, 14, 15][:14])
