"""Host and device plans: every rule of the schedule refused by text, packing, immutability, places."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import MIX, OWN, host  # noqa: E402

from hybrid_ops import HybridOpsError, paged  # noqa: E402
from hybrid_ops.paged import place, writes  # noqa: E402


def text(function, *args, **kwargs) -> str:
    with pytest.raises(paged.PagedError) as caught:
        function(*args, **kwargs)
    assert isinstance(caught.value, HybridOpsError) and isinstance(caught.value, ValueError)
    return str(caught.value)


REFUSED = {
    "page-size-0": (
        {"page_size": 0},
        "paged.HostPlan: page_size: out of range: got 0; allowed 1..4294967295 on every SoC",
    ),
    "pages-0": (
        {"pages": 0},
        "paged.HostPlan: pages: out of range: got 0; allowed 1..4294967295 on every SoC",
    ),
    "page-size-float": (
        {"page_size": 4.0},
        "paged.HostPlan: page_size: not a whole number: got 4.0; allowed 1..4294967295 on every SoC",
    ),
    "pages-u32": (
        {"pages": 2**32},
        "paged.HostPlan: pages: beyond U32: got 4294967296; allowed 1..4294967295 on every SoC",
    ),
    "length-u32": (
        {"lengths": [6, 2**32, 0]},
        "paged.HostPlan: lengths[1]: beyond U32: got 4294967296; allowed 0..4294967295 on every SoC",
    ),
    "position-u64": (
        {"positions": [6, 5, 0, 2**64, 2, 5, 4]},
        "paged.HostPlan: positions[3]: beyond U32: got 18446744073709551616; allowed 0..4294967295 on every SoC",
    ),
    "position-negative": (
        {"positions": [6, -5, 0, 9, 2, 5, 4]},
        "paged.HostPlan: positions[1]: out of range: got -5; allowed 0..4294967295 on every SoC",
    ),
    "id-float": (
        {"sequence_ids": [1, 0, 0, 2, 1.5, 0, 1]},
        "paged.HostPlan: sequence_ids[0]: not a whole number: got 1.0; allowed 0..4294967295 on every SoC",
    ),
    "lengths-rank": (
        {"lengths": [[6, 7, 0]]},
        "paged.HostPlan: lengths: wrong rank: got rank 2; allowed one axis on every SoC",
    ),
    "no-table": (
        {"tables": []},
        "paged.HostPlan: tables: no sequence: got 0; allowed one table or more on every SoC",
    ),
    "lengths-mismatch": (
        {"lengths": [6, 7]},
        "paged.HostPlan: lengths: other number than tables: got 2; allowed 3 on every SoC",
    ),
    "positions-mismatch": (
        {"positions": [6, 5]},
        "paged.HostPlan: positions: other number than sequence_ids: got 2; allowed 7 on every SoC",
    ),
    "table-short": (
        {"tables": [[2], [0, 2], []]},
        "paged.HostPlan: tables[0]: too short: got 1 pages for a length of 6; allowed 2 pages of 4 or more on every SoC",
    ),
    "page-beyond": (
        {"tables": [[2, 6], [0, 2], []]},
        "paged.HostPlan: tables[0]: page beyond the pool: got 6 at [1]; allowed 0..5 on every SoC",
    ),
    "page-beyond-extra": (
        {"tables": [[2, 5], [0, 2], [6]]},
        "paged.HostPlan: tables[2]: page beyond the pool: got 6 at [0]; allowed 0..5 on every SoC",
    ),
    "page-twice": (
        {"tables": [[2, 2], [0, 2], []]},
        "paged.HostPlan: tables[0]: page twice in one sequence: got page 2 at [0] and [1]; allowed every page once on every SoC",
    ),
    "sequence-beyond": (
        {"sequence_ids": [1, 0, 0, 3, 1, 0, 1]},
        "paged.HostPlan: sequence_ids: no such sequence: got 3 at [3]; allowed 0..2 on every SoC",
    ),
    "position-at-length": (
        {"positions": [7, 5, 0, 9, 2, 5, 4]},
        "paged.HostPlan: positions: position beyond the length: got 7 at [0], sequence 1; allowed 0..6 on every SoC",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plan_refuses(name):
    changes, wanted = REFUSED[name]
    assert text(host, **changes) == wanted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tables": [[2, 5, 1], [0, 2, 3, 4], [0]]},  # longer than needed
        {"tables": [[2, 5, 2], [0, 2], []]},  # twice, but beyond what the length needs
        {"sequence_ids": [], "positions": []},
        {"positions": [6, 5, 0, 2**32 - 1, 2, 5, 4]},  # any position of an empty sequence
        {"lengths": np.array([8, 4, 0], np.uint32), "positions": torch.tensor([3, 7, 0, 0, 2, 5, 0])},
    ],
)
def test_plan_accepts(changes):
    plan = host(**changes)
    assert plan.sequences == 3 and plan.queries == len(changes.get("positions", MIX["positions"]))


def test_plan_is_immutable():
    lengths = np.array([6, 7, 0])
    plan = host(lengths=lengths)
    lengths[:] = 1
    assert plan.lengths.tolist() == [6, 7, 0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.pages = 7
    with pytest.raises(ValueError, match="read-only"):
        plan.positions[0] = 0
    device = paged.DevicePlan.upload(plan, torch.empty(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.host = plan
    device.words[0] = 0
    assert text(device.inputs) == (
        "paged.DevicePlan: words: metadata changed after upload: got a written tensor; allowed a new plan on every SoC"
    )


def test_packed_order_and_padding():
    words = host(tables=[[2, 5, 1], [0, 2], []]).packed()
    assert words.dtype == np.uint32
    none = 0xFFFFFFFF
    assert words.tolist() == [
        *(1, 0, 0, 2, 1, 0, 1), *(6, 5, 0, 9, 2, 5, 4), *(6, 7, 0), *(2, 5, 1), *(0, 2, none), *(none, none, none)
    ]  # fmt: skip


SIZES = {"page_size": 4, "pages": 6, "queries": 7, "sequences": 3, "table_width": 2}


@pytest.mark.parametrize("kind", [np.uint32, np.int32, torch.int32])
def test_packed_round_trip(kind):
    plan = host()
    words = plan.packed()
    given = torch.from_numpy(words.view(np.int32)) if kind is torch.int32 else words.view(kind)
    back = paged.HostPlan.from_packed(given, **SIZES)
    assert back.packed().tolist() == words.tolist()
    assert [t.tolist() for t in back.tables] == MIX["tables"]


def test_packed_refusals():
    words = host().packed()
    make = paged.HostPlan.from_packed
    assert text(make, words[:-1], **SIZES) == (
        "paged.HostPlan: words: wrong number of words: got 22; allowed 23 on every SoC"
    )
    assert text(make, np.append(words, words[:1]), **SIZES) == (
        "paged.HostPlan: words: wrong number of words: got 24; allowed 23 on every SoC"
    )
    narrow = np.concatenate([words[:17], [2, 0, 0xFFFFFFFF]]).astype(np.uint32)
    assert text(make, narrow, **{**SIZES, "table_width": 1}) == (
        "paged.HostPlan: table_width: a sequence needs more pages than the width: got 2 pages of sequence 0; allowed <= 1 on every SoC"
    )
    assert text(make, words.astype(np.int64), **SIZES) == (
        "paged.HostPlan: words: not packed metadata: got int64 of rank 1; allowed one axis of uint32 or int32 on every SoC"
    )
    holed = words.copy()
    holed[17] = 0xFFFFFFFF  # padding in front of a page
    assert text(make, holed, **SIZES) == (
        "paged.HostPlan: tables[0]: page beyond the pool: got 4294967295 at [0]; allowed 0..5 on every SoC"
    )


def test_upload_is_the_packed_form():
    plan = paged.DevicePlan.from_packed(host().packed(), torch.empty(1), **SIZES)
    given = plan.inputs()
    assert given["sequence_ids"].tolist() == MIX["sequence_ids"]
    assert given["positions"].tolist() == MIX["positions"]
    assert given["context_lens"].tolist() == MIX["lengths"]
    assert given["block_tables"].tolist() == [[2, 5], [0, 2], [-1, -1]]
    assert all(t.dtype == torch.int32 for t in given.values())


def test_upload_refusals():
    assert text(paged.DevicePlan.upload, MIX, torch.empty(1)) == (
        "paged.DevicePlan: host: wrong type: got dict; allowed HostPlan on every SoC"
    )
    assert text(paged.DevicePlan.upload, host(), np.zeros(1)) == (
        "paged.DevicePlan: query: not a tensor: got ndarray; allowed torch.Tensor on every SoC"
    )
    long = paged.HostPlan(2**31, 1, [[0]], [2**31], [], [])
    assert text(paged.DevicePlan.upload, long, torch.empty(1)) == (
        "paged.DevicePlan: lengths: beyond what operators hold: got 2147483648; allowed <= 2147483647 on every SoC"
    )


def test_other_device_and_other_stream_are_refused(monkeypatch):
    plan = paged.DevicePlan.upload(host(), torch.empty(1))
    found = text(place.hold, "attention", "plan", plan.place, {"query": torch.empty(1, device="meta")})
    assert found == ("paged.attention: query: other device than the plan: got meta; allowed cpu on every SoC")
    monkeypatch.setattr(place, "_stream", lambda device: 7)
    found = text(place.hold, "attention", "plan", plan.place, {"query": torch.empty(1)})
    assert found == (
        "paged.attention: plan: call from another stream: got stream 7; allowed stream None on every SoC"
    )


def test_write_slots():
    assert writes.write_slots(host(OWN)).tolist() == [12, 13, 14, 17]


WRITES = {
    "shared-prefix": (
        {"tables": [[4], [0, 4]]},
        "paged.append: tables: write to a shared prefix: got page 4 of sequences 0 and 1; "
        "allowed a page of one sequence only (copy it first) on every SoC",
    ),
    "empty-sequence": (
        {"lengths": [0, 6]},
        "paged.append: lengths: write to a sequence of length 0: got query 0 of sequence 0; "
        "allowed a length that includes the new tokens on every SoC",
    ),
    "one-slot-twice": (
        {"positions": [0, 2, 2, 5]},
        "paged.append: positions: two queries use one slot: got queries 1 and 2 at position 2 of sequence 0; "
        "allowed a slot of its own for each on every SoC",
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_refused(name):
    changes, wanted = WRITES[name]
    assert text(writes.write_slots, host(OWN, **changes)) == wanted


def test_shared_pages_that_nobody_writes_are_legal():
    plan = host(OWN, tables=[[3], [0, 4]], sequence_ids=[1], positions=[5])
    more = host(OWN, tables=[[0], [0, 4]], sequence_ids=[1], positions=[5])
    assert writes.write_slots(plan).tolist() == writes.write_slots(more).tolist() == [17]


@pytest.mark.parametrize(
    "given", [np.zeros((2, 2)), [10**5000], "4\n5", np.arange(4000).reshape(2, 2000), {"a": 10**5000}]
)
def test_refusals_are_one_line_whatever_is_given(given):
    got = text(
        paged.HostPlan, page_size=given, pages=1, tables=[[0]], lengths=[1], sequence_ids=[0], positions=[0]
    )
    assert got.startswith("paged.HostPlan: page_size: not a whole number: got ")
    assert "\n" not in got and got.endswith(" on every SoC") and len(got) < 1200
