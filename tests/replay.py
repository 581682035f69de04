"""Feeds records written by hand to the timing replay (no kernel, no wall clock)."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from hybrid_ops import sim_build, soc

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL")
MEMORIES = ("GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB")
KINDS = ("Compute", "Move", "Scalar", "SetFlag", "WaitFlag", "Barrier", "CrossSet", "CrossWait", "SyncAll")


class Record(ctypes.Structure):
    """sim/core/op.h, struct Record."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("cost", ctypes.c_char_p), ("kind", ctypes.c_uint8), ("pipe", ctypes.c_uint8),
        ("peer", ctypes.c_uint8), ("source", ctypes.c_uint8), ("to", ctypes.c_uint8), ("auto_barrier", ctypes.c_bool),
        ("auto_from", ctypes.c_uint8), ("event", ctypes.c_int32), ("repeats", ctypes.c_uint32),
        ("bursts", ctypes.c_uint32), ("bytes", ctypes.c_uint64), ("gm", ctypes.c_uint64), ("gm_span", ctypes.c_uint64),
        ("bank_conflicts", ctypes.c_uint32), ("file", ctypes.c_char_p), ("line", ctypes.c_uint32),
    ]  # fmt: skip


class Access(ctypes.Structure):
    """sim/core/op.h, struct Access."""

    _fields_ = [
        ("mem", ctypes.c_uint8), ("write", ctypes.c_bool), ("base", ctypes.c_uint64), ("block_bytes", ctypes.c_uint32),
        ("blocks", ctypes.c_uint32), ("block_stride", ctypes.c_uint64), ("repeats", ctypes.c_uint32),
        ("repeat_stride", ctypes.c_uint64), ("tensor_base", ctypes.c_uint64), ("tensor_bytes", ctypes.c_uint64),
        ("operand", ctypes.c_char_p), ("freed", ctypes.c_void_p), ("carries", ctypes.c_bool),
    ]  # fmt: skip


class Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


@cache
def library() -> ctypes.CDLL:
    core = sim_build.load_core()
    core.ascsim_replay_test.restype = ctypes.c_void_p
    core.ascsim_replay_free.argtypes = [ctypes.c_void_p]
    core.ascsim_record_size.restype = ctypes.c_uint64
    core.ascsim_access_size.restype = ctypes.c_uint64
    assert core.ascsim_record_size() == ctypes.sizeof(Record), "sim/core/op.h, Record changed"
    assert core.ascsim_access_size() == ctypes.sizeof(Access), "sim/core/op.h, Access changed"
    return core


def call(
    api: str, repeats: int, *, after: str = "", line: int = 1, conflicts: int = 0, pipe: str = "V"
) -> Record:
    """A vector call on cost key `api`; `after` names the pipe that the compiler makes it wait for."""
    return Record(
        name=api.split(".")[0].encode(), cost=api.encode(), kind=0, pipe=PIPES.index(pipe), repeats=repeats,
        auto_barrier=bool(after), auto_from=PIPES.index(after) if after else 0, bank_conflicts=conflicts,
        file=b"k.cpp", line=line,
    )  # fmt: skip


def move(
    source: str, to: str, size: int, *, gm: int = 0, rows: int = 1, stride: int = 0, line: int = 1
) -> Record:
    """A DataCopy of `size` bytes in `rows` rows that start `stride` bytes apart in GM."""
    pipe = "MTE3" if to == "GM" else "MTE1" if source == "L1" else "V" if source == to == "UB" else "MTE2"
    span = (rows - 1) * stride + size // rows
    return Record(
        name=b"DataCopy", cost=b"", kind=1, pipe=PIPES.index(pipe), source=MEMORIES.index(source),
        to=MEMORIES.index(to), bytes=size, bursts=rows, gm=gm, gm_span=span, file=b"k.cpp", line=line,
    )  # fmt: skip


def scalar(key: str, *, after: str = "", gm: int = 0, line: int = 1) -> Record:
    return Record(
        name=key.split(".")[-1].encode(), cost=key.encode(), kind=2, pipe=0, gm=gm, auto_barrier=bool(after),
        auto_from=PIPES.index(after) if after else 0, file=b"k.cpp", line=line,
    )  # fmt: skip


def flag(source: str, waiter: str, event: int = 0, line: int = 1) -> list[Record]:
    """SetFlag on `source`, then WaitFlag on `waiter`."""
    a, b = PIPES.index(source), PIPES.index(waiter)
    common = {"event": event, "file": b"k.cpp", "line": line, "cost": b""}
    return [
        Record(name=b"SetFlag", kind=3, pipe=a, peer=b, **common),
        Record(name=b"WaitFlag", kind=4, pipe=b, peer=a, **common),
    ]


def sync(kind: str, pipe: str = "S", line: int = 1) -> Record:
    return Record(
        name=kind.encode(),
        cost=b"",
        kind=KINDS.index(kind),
        pipe=PIPES.index(pipe),
        event=-1,
        file=b"k.cpp",
        line=line,
    )


def replay(
    blocks: Sequence[Sequence[Record]], chip: str, ranges: Sequence[tuple[int, int]] = (), **figures: Any
) -> dict:
    """The report of the replay for one list of records per block."""
    flat = [record for block in blocks for record in block]
    records = (Record * max(1, len(flat)))(*flat)
    counts = (ctypes.c_uint64 * max(1, len(blocks)))(*(len(block) for block in blocks))
    gm = (Range * max(1, len(ranges)))(*ranges)
    text = soc.load(chip).config(**figures).encode()
    answer = library().ascsim_replay_test(text, records, counts, len(blocks), gm, len(ranges))
    try:
        return json.loads(ctypes.string_at(answer).decode())
    finally:
        library().ascsim_replay_free(answer)


def bank_conflicts(
    operands: Sequence[tuple[int, bool]], repeats: int, strides: Sequence[tuple[int, int]] = ()
) -> int:
    """Conflicts of a call on (address, written) operands, `strides` their (block, repeat) strides in bytes."""
    table = (Access * len(operands))()
    for i, (base, write) in enumerate(operands):
        block, repeat = strides[i] if strides else (32, 256)
        table[i] = Access(
            mem=1, write=write, base=base, block_bytes=32, blocks=8, block_stride=block, repeats=repeats,
            repeat_stride=repeat,
        )  # fmt: skip
    return library().ascsim_bank_conflicts_test(table, len(operands), repeats)
