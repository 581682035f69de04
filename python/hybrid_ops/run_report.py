"""Tables of the main job, and the estimates of a launch on every SoC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from hybrid_ops.export import accuracy, run_graph


def estimates(launches: Sequence[run_graph.Launch], out: Path) -> list[dict[str, Any]]:
    """One entry per SoC for the launches of one decode step: cycles, microseconds, bytes, bound, roofline ratio."""
    raise NotImplementedError


def render(report: Any) -> Iterator[Table]:
    """The tables that `hybrid-ops run` prints."""
    graph = Table("graph", "", title="Decode step", title_justify="left", show_header=False)
    customs = report.nodes.get("Custom", 0)
    graph.add_row("nodes", f"{report.nodes.get('all', 0)}, of which Custom {customs}")
    graph.add_row("operators", f"{len(report.nodes) - 1} kinds")
    graph.add_row("rules checked", f"{report.rules}, findings {len(report.findings)}")
    graph.add_row("prompt, steps", f"{report.prompt} tokens, {report.steps} steps")
    graph.add_row(
        "Custom launches",
        f"{report.launches} on {report.backend}, checks {report.checks}, {report.hazards} reports",
    )
    yield graph

    errors = Table(
        "path", "tensor", title="Worst of all steps against the unmodified model", title_justify="left"
    )
    for heading in ("cosine", "NRMSE", "max abs", "≥ cos", "≤ NRMSE", "≤ abs", ""):
        errors.add_column(heading, justify="right", no_wrap=True)
    for path, tensors in report.agreements.items():
        for name, found in tensors.items():
            bound = accuracy.bound_of(name)
            errors.add_row(
                path,
                name.removeprefix("present_"),
                f"{found.cosine:.7f}",
                f"{found.nrmse:.2e}",
                f"{found.max_abs:.2e}",
                f"{bound.cosine}",
                f"{bound.nrmse}",
                f"{bound.max_abs}",
                "ok" if found.within(bound) else "FAILED",
            )
    yield errors

    if report.estimates:
        socs = Table(
            "SoC", title="One launch, estimated by the simulator's timing model", title_justify="left"
        )
        for heading in ("cycles", "µs", "floor µs", "ratio", "bound", "GM read", "GM written", "confidence"):
            socs.add_column(heading, justify="right")
        for entry in report.estimates:
            socs.add_row(
                entry["soc"],
                f"{entry['cycles']:.0f}",
                f"{entry['us']:.1f}",
                f"{entry['floor_us']:.1f}",
                f"{entry['ratio']:.2f}x",
                entry["bound"],
                f"{entry['gm_read_bytes'] / 1024:.0f} KiB",
                f"{entry['gm_write_bytes'] / 1024:.0f} KiB",
                entry["confidence"],
            )
        yield socs

    seconds = Table("stage", title="Wall time", title_justify="left")
    seconds.add_column("s", justify="right")
    for stage, value in report.seconds.items():
        seconds.add_row(stage, f"{value:.2f}")
    seconds.add_row("sum", f"{sum(report.seconds.values()):.2f}")
    yield seconds
