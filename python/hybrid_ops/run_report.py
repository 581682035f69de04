"""Tables of the main job, and the estimates of a launch on every SoC."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from hybrid_ops import profile, timeline
from hybrid_ops.export import accuracy, run_graph


def whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then rename it: `path` appears complete or not at all."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def estimates(launches: Sequence[run_graph.Launch], out: Path) -> list[dict[str, Any]]:
    """One entry per SoC for one decode step: cycles and µs of its launches, bytes, what bounds them, roofline ratio.

    Launches of equal shapes cost the same and are replayed once. Writes `timeline-<soc>.json` (Chrome trace) and
    `timeline-<soc>.svg` of the first launch into `out`.
    """
    first = launches[0]
    found = []
    for soc in first.op.socs:
        made = profile.run(first.op.name, run_graph.arrays_on(first, soc), first.attrs, soc=soc, trace=True)
        timing = made.timing
        events = timing.get("trace", [])
        title = f"{first.op.name}: {made.cycles:,.0f} cycles on {made.soc.variant} ({made.label})"
        cores = sorted({event["pid"] for event in events})[:4]
        whole(out / f"timeline-{soc}.json", partial(timeline.write_trace, events))
        whole(out / f"timeline-{soc}.svg", partial(timeline.write_svg, events, title=title, cores=cores))
        entry = {
            name: timing[name]
            for name in ("cycles", "us", "gm_read_bytes", "gm_write_bytes", "bound", "busy")
        }
        floors = made.floors
        found.append(
            {
                "soc": soc,
                "chip": made.soc.variant,
                "operator": first.op.type,
                "launches": len(launches),
                **entry,
                "us_per_step": timing["us"] * len(launches),
                "floor_cycles": floors.cycles if floors else None,
                "floor": floors.bound if floors else None,
                "ratio": made.ratio,
                "confidence": timing["confidence"],
                "label": made.label,
            }
        )
    return found


def render(report: Any) -> Iterator[Table]:
    """The tables that `hybrid-ops run` prints."""
    graph = Table("graph", "", title="Decode step", title_justify="left", show_header=False)
    customs = report.nodes.get("Custom", 0)
    graph.add_row("nodes", f"{report.nodes.get('all', 0)}, of which Custom {customs}")
    graph.add_row("operators", f"{len(report.nodes) - 1} kinds")
    graph.add_row("rules checked", f"{report.rules}, findings {len(report.findings)}")
    graph.add_row(
        "prompt, steps",
        f"{report.prompt} tokens, {report.steps} steps; exported for {report.soc}, {report.operands} operands",
    )
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
            bound = accuracy.bound_of(name, report.operands)
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
        one = report.estimates[0]
        title = f"One {one['operator']} launch of the {one['launches']} of a step, in the simulator's timing model"
        socs = Table("chip", title=title, title_justify="left")
        headings = (
            "cycles",
            "µs",
            "µs a step",
            "floor, cycles",
            "of floor",
            "bound by",
            "GM read",
            "written",
            "figures",
        )
        for heading in headings:
            socs.add_column(heading, justify="right", no_wrap=True)
        for entry in report.estimates:
            ratio, floor = entry["ratio"], entry["floor_cycles"]
            socs.add_row(
                entry["chip"],
                f"{entry['cycles']:,.0f}",
                f"{entry['us']:.1f}",
                f"{entry['us_per_step']:.1f}",
                f"{floor:,.0f} {entry['floor']}" if floor else "",
                f"{ratio:.2f} x" if ratio else "",
                entry["bound"],
                f"{entry['gm_read_bytes'] / 1024:,.0f} KiB",
                f"{entry['gm_write_bytes'] / 1024:,.0f} KiB",
                entry["label"],
            )
        yield socs

    seconds = Table("stage", title="Wall time", title_justify="left")
    seconds.add_column("s", justify="right")
    for stage, value in report.seconds.items():
        seconds.add_row(stage, f"{value:.2f}")
    seconds.add_row("sum", f"{sum(report.seconds.values()):.2f}")
    yield seconds
