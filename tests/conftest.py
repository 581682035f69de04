"""Shared set-up: SoC selection, poisoned allocations, cases that must not vanish, skips that say why."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads stall two-core machines

import numpy as np
import pytest

from hybrid_ops import case, contract


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soc", action="append", help="only this SoC (repeatable); all by default")


def pytest_configure(config: pytest.Config) -> None:
    known = contract.socs()
    unknown = set(config.getoption("--soc") or ()) - set(known)
    if unknown:
        raise pytest.UsageError(
            f"--soc: not a known SoC: got {', '.join(unknown)}; allowed {', '.join(known)}"
        )


def selected_socs(config: pytest.Config) -> list[str]:
    chosen = config.getoption("--soc")
    return [soc for soc in contract.socs() if not chosen or soc in chosen]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`op_case`: every case of every operator on every chosen SoC; `soc`: every chosen SoC; `op`: every operator."""
    socs = selected_socs(metafunc.config)
    if "op_case" in metafunc.fixturenames:
        found = [
            c
            for op in contract.load().values()
            for soc in socs
            if soc in op.socs
            for c in case.cases(op.name, soc)
        ]
        metafunc.parametrize("op_case", found, ids=[c.id for c in found])
    elif "soc" in metafunc.fixturenames:
        metafunc.parametrize("soc", socs)
    if "op" in metafunc.fixturenames:
        metafunc.parametrize("op", list(contract.load().values()), ids=lambda op: op.name)


@pytest.fixture(autouse=True)
def poisoned_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """np.empty is full of NaN, so that "forgot to write" cannot pass."""
    real = np.empty

    def empty(shape, dtype=float, *args, **kwargs):
        array = real(shape, dtype, *args, **kwargs)
        if array.dtype.kind in "fV" and array.flags["C_CONTIGUOUS"]:
            array.reshape(-1).view(np.uint8)[...] = 0xFF
        return array

    monkeypatch.setattr(np, "empty", empty)


@pytest.fixture(scope="session", autouse=True)
def poisoned_torch() -> None:
    """torch.empty is full of NaN too."""
    try:
        import torch
    except ImportError:
        return
    torch.utils.deterministic.fill_uninitialized_memory = True


def pytest_terminal_summary(terminalreporter) -> None:
    """Every skip is printed with its reason: a silent skip looks like a pass."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("not run")
        for report in skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            terminalreporter.line(f"{report.nodeid}: {reason}")
