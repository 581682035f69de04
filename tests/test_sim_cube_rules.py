"""Rules of the matrix unit and of split cores: an entry that keeps each one, silent, and its twin that breaks it, named.

kernels/cube_rules_*.cpp; test_sim_cube.py has the values and the faults that need whole products.
"""

from __future__ import annotations

import re
from functools import partial

import minikernel as mini
import numpy as np
import pytest
from minikernel import INOUT, INPUT, OUTPUT, aligned, rules

COMBINED = {
    "l1_capacity": ("capacity", "1049088 bytes do not fit into L1"),
    "l0b_capacity": ("capacity", "66048 bytes do not fit into L0B: 0 of 65536"),
    "l0c_capacity": ("capacity", "262656 bytes do not fit into L0C: 0 of 262144"),
    "l1_reuse": ("race.war", "missing MTE1_MTE2"),
    "l0b_reuse": ("race.war", "missing M_MTE1"),
    "l0c_reuse": ("race.war", "missing V_M"),
    "l1_from_ub": ("race.raw", "missing MTE3_MTE1"),
    "nd2nz_place": ("path", "dst is in UB; allowed L1"),
    "nd2nz_rows": ("param.range", "srcDValue 32 is below dValue 48: rows overlap"),
    "nd2nz_count": ("param.range", "nValue 16385; allowed 0 … 16384"),
    "nd2nz_stride": ("param.range", "dstNzNStride 2; the emulation on this part ignores all but 1"),
    "fill_place": ("path", "dst: in UB; allowed L1, L0A, L0B"),
    "load_address": ("param.range", "addrMode 1; allowed 0 on this path"),
    "load_place": ("path", "no such path from UB to L0A"),
    "l0b_grid": ("param.align", "L0B address 256 is not a multiple of 512"),
    "load3d_stride": (
        "param.range",
        "strideW, strideH, dilationFilterW, dilationFilterH: allowed 1 and above",
    ),
    "load3d_start": ("param.range", "kStartPt (multiple of C0), remainder 8"),
    "load3d_place": ("path", "no such path from UB to L0A"),
    "product_k": ("param.range", "k 4096; allowed 0 … 4095"),
    "product_place": ("path", "dst in UB, fm in L0A, filter in L0B"),
    "product_grid": ("param.align", "dst: address 512 is not a multiple of 1024"),
    "product_start": ("uninit.local", "dst (accumulated)"),
    "result_mode": ("param.range", "blockMode 0 from L0C"),
    "result_grid": ("param.align", "L0C address 512 is not a multiple of 1024"),
    "result_scale": ("param.quant", "int32_t to f16 needs a deqScale"),
    "result_half": ("param.range", "sidStoreMode 3; allowed 0 … 2"),
    "spread_count": ("param.range", "blockCount 0; allowed 1 … 255"),
    "rows_width": ("param.range", "dValue 24; allowed multiples of 16"),
}
SPLIT = {
    "l1_capacity": ("capacity", "524416 bytes do not fit into L1"),
    "l0c_capacity": ("capacity", "131200 bytes do not fit into L0C: 0 of 131072"),
    "bias_table": ("bounds.memory", "BT bytes [960, 1088), which has 1024 bytes"),
    "fixpipe_buffer": ("bounds.memory", "FB bytes [7040, 7296), which has 7168 bytes"),
    "result_reuse": ("race.war", "missing FIX_M"),
    "result_in_l1": ("race.raw", "missing FIX_MTE1"),
    "operands_reuse": ("race.war", "missing MTE1_MTE2"),
    "words_loaded": ("race.raw", "missing MTE2_FIX"),
    "words_copied": ("race.raw", "missing PipeBarrier<PIPE_FIX>"),
    "bias_copied": ("race.raw", "missing MTE1_M"),
    "result_place": ("path", "no such path from L1 to GM"),
    "result_rows": ("param.range", "nSize 4096; allowed 1 … 4095"),
    "result_columns": ("param.range", "nSize 24; allowed multiples of 16 for NZ output"),
    "result_words": ("param.quant", "needs a tensor of quantisation words"),
    "unit_flag": ("param.range", "unitFlag 1; allowed 0, 2, 3"),
    "bias_place": ("path", "bias: in L1; allowed the bias table"),
    "meeting": ("sync.deadlock", "AIV 0 waits in SyncAll (1 of 2 arrived)"),
    "meeting_kind": ("sync.cores", "a cube core calls the SyncAll of the vector cores"),
    "group_flag": ("sync.deadlock", "AIC 0 waits in CrossCoreWaitFlag for flag 4"),
    "flag_taken": ("flag.unpaired", "flag id 6 of AIV 0 is still set at the end"),
}
WARNINGS = {"words_copied", "flag_taken"}  # doubtful on the chip, or a matter of the next kernel


def arguments():
    inputs = [(name, aligned(np.zeros(65536, np.float16)), INPUT) for name in "ab"]
    return [
        *inputs,
        ("z", aligned(np.zeros(4096, np.float32)), OUTPUT),
        ("x", aligned(np.zeros(16384, np.float32)), INOUT),
    ]


def on_310p(entry):
    return mini.launch(mini.library("cube_rules_310p"), entry, arguments())


def on_910b(entry):
    library = partial(mini.library, "cube_rules_910b", "ascend910b")
    return mini.launch(
        library(core="vector"), entry, arguments(), soc="ascend910b", cube=library(core="cube"), vectors=2
    )


KINDS = {"310p": (on_310p, COMBINED), "910b": (on_910b, SPLIT)}
CASES = [(kind, name) for kind, (_, table) in KINDS.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_each_rule_has_a_fault_that_is_named_and_a_silent_twin(kind, name):
    run, table = KINDS[kind]
    kept = run(name)
    assert kept["ok"] and not kept["hazards"], (kept["error"], kept["hazards"])
    rule, part = table[name]
    broken = run(f"{name}_bad")
    assert broken["ok"] == (name in WARNINGS)
    found = [h for h in broken["hazards"] if h["rule"] == rule]
    assert found, rules(broken)
    assert part in found[0]["message"], found[0]["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_entry_is_left_out(kind):
    source = (mini.KERNELS / f"cube_rules_{kind}.cpp").read_text(encoding="utf-8")
    assert set(re.findall(r"^PAIR\((\w+)\)$", source, re.MULTILINE)) == set(KINDS[kind][1])
