"""What a test case of an operator is; ops/<op>.py lists them, pytest, selftest and the benchmark gate run them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from . import check, contract, dtypes

Arrays = dict[str, Any]  # NumPy arrays by argument name, None for an absent optional input
Edit = Callable[
    [Arrays, np.random.Generator], None
]  # changes a case's arrays, in float64, before they get their dtypes


@dataclass(frozen=True)
class Case:
    """One call with its data.

    Args:
        id: readable and unique for its SoC, e.g. "rgdr-fp16-310p-T17-gk".
        op, soc, column: operator, SoC family, dtype column of the contract.
        make: builds the inputs; called with a generator seeded from the id, so that every run sees the same data.
        attrs: attribute values.
        expect: asserts more than agreement with the meaning (identities, hand-computed values); called with
            (inputs, outputs), both dicts of arrays.
        overflows: the exact result leaves the dtype's range; compare where the reference is finite, refuse NaN that
            the reference does not have.
        report: link of the public report that the case comes from.
    """

    id: str
    op: str
    soc: str
    column: int
    make: Callable[[np.random.Generator], Arrays] = field(repr=False)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    expect: Callable[[Arrays, Arrays], None] | None = field(default=None, repr=False)
    overflows: bool = False
    report: str = ""

    def inputs(self) -> Arrays:
        """Fresh input arrays, the same ones each time."""
        return self.make(np.random.default_rng(list(self.id.encode())))


@dataclass(frozen=True)
class Column:
    """One dtype column of an operator on a SoC: its number, NumPy dtypes by input name."""

    op: str
    soc: str
    index: int
    types: Mapping[str, np.dtype]

    def short(self, name: str) -> str:
        """Short name of an input's dtype, e.g. "fp16"."""
        return dtypes.SHORT[dtypes.name_of(self.types[name])]

    def prefix(self, stem: str, kinds: str = "") -> str:
        """Beginning of the ids of its cases, e.g. "rgdr-fp16-310p"; `kinds`: dtypes to name, default the first input's."""
        return f"{stem}-{kinds or self.short(next(iter(self.types)))}-{self.soc.removeprefix('ascend')}"

    def case(
        self,
        name: str,
        make: Callable[..., Arrays],
        setting: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Case:
        """A case of the column; `make` takes generator, `types` and the setting, `more` is what Case takes besides."""
        filled = partial(make, types=self.types, **setting)
        return Case(name, self.op, self.soc, self.index, filled, attrs or {}, **more)


def columns(op: str, soc: str) -> Iterator[Column]:
    """The dtype columns of an operator on one SoC family."""
    found = contract.load()[op]
    for index in range(found.columns(soc)):
        yield Column(op, soc, index, {t.name: dtypes.NUMPY[t.dtypes[soc][index]] for t in found.inputs})


def put(name: str, value: Any, where: Any = slice(None)) -> Edit:
    """The edit that writes `value` into an array, at the index `where`."""

    def edit(arrays: Arrays, rng: np.random.Generator) -> None:
        arrays[name][where] = value

    return edit


def edited(
    arrays: Arrays, edits: Iterable[Edit], rng: np.random.Generator, types: Mapping[str, Any]
) -> Arrays:
    """The arrays after the edits, contiguous, each in its dtype."""
    for edit in edits:
        edit(arrays, rng)
    return {n: None if a is None else np.ascontiguousarray(a.astype(types[n])) for n, a in arrays.items()}


def module(op: str) -> ModuleType:
    """The meaning of an operator: module hybrid_ops.ops.<op> with `meaning`, `second_formula`, `check_values`, `cases`."""
    name = check.find_op(op).name
    return importlib.import_module(f"{__package__}.ops.{name}")


def cases(op: str, soc: str) -> list[Case]:
    """Every case of one operator on one SoC; refuses a list with two equal ids."""
    found = check.find_op(op)
    listed = module(op).cases(check.find_soc(found, soc))
    ids = [case.id for case in listed]
    if len(set(ids)) != len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1})
        raise check.refuse(
            found.name, "cases", "ids not unique", got=check.words(twice), allowed="unique ids", soc=soc
        )
    return listed
