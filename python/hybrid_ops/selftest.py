"""Runs the cases of an operator against its meaning: the engine of pytest, `hybrid-ops selftest` and the benchmark gate."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from . import case as case_module
from . import compare, contract, runtime
from .case import Arrays, Case
from .sim import SimulatorWarning
from .sim_build import SimulatorError


@dataclass(frozen=True)
class Outcome:
    """One case: measured errors, or the text of what went wrong."""

    case: Case
    seconds: float
    errors: tuple[compare.Error, ...] = ()
    fault: str = ""


def hold_case(
    case: Case, *, backend: str = "sim", checks: str = "full", repeat: int = 2
) -> list[compare.Error]:
    """Run one case `repeat` times and assert: no report, inputs intact, agreement with the meaning, repeats bitwise equal.

    Raises AssertionError, SimulatorHazard, SimulatorWarning or HybridOpsError.
    """
    inputs = case.inputs()
    wanted = case_module.module(case.op).meaning(**inputs, **case.attrs)
    runs = []
    for _ in range(repeat):
        given: Arrays = {n: None if a is None else a.copy() for n, a in inputs.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error", SimulatorWarning)
            runs.append(runtime.run(case.op, given, case.attrs, backend=backend, soc=case.soc, checks=checks))
        for name, array in inputs.items():
            if array is not None:
                compare.same_bits(f"input {name}", given[name], array)
    errors = compare.hold(case, inputs, runs[0], wanted)
    if case.expect:
        case.expect(inputs, runs[0])
    for other in runs[1:]:
        for name, array in runs[0].items():
            compare.same_bits(f"{name} (second run)", other[name], array)
    return errors


def run(
    op: str | None = None,
    soc: str | None = None,
    *,
    backend: str = "sim",
    checks: str = "full",
    only: str = "",
) -> Iterator[Outcome]:
    """Run every case of one or all operators and SoCs; `only` keeps the ids that contain it."""
    for found in contract.load().values():
        if op not in (None, found.name, found.type):
            continue
        for family in found.socs:
            if soc not in (None, family):
                continue
            for case in case_module.cases(found.name, family):
                if only not in case.id:
                    continue
                begin = time.perf_counter()
                try:
                    errors = hold_case(case, backend=backend, checks=checks)
                    yield Outcome(case, time.perf_counter() - begin, tuple(errors))
                except (AssertionError, ValueError, SimulatorWarning) as error:
                    if isinstance(error, SimulatorError) and not hasattr(error, "hazards"):
                        raise  # no compiler, kernel does not compile: every further case would say the same
                    yield Outcome(case, time.perf_counter() - begin, fault=str(error) or type(error).__name__)
