"""`hybrid-ops profile`: estimated cycles of a kernel, what bounds it, and how far it is from its floors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from . import case as case_module
from . import check, contract, dtypes, profile_vary, roofline, sim, timeline
from . import soc as platform

app = typer.Typer()
PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")


@dataclass(frozen=True)
class Profile:
    """One simulated launch: the replay's report and, where the operator states them, its floors."""

    op: str
    soc: platform.Soc
    timing: Mapping[str, Any]
    floors: roofline.Floors | None

    @property
    def cycles(self) -> float:
        """Cycles of the slowest core."""
        return self.timing["cycles"]

    @property
    def ratio(self) -> float | None:
        """Cycles over the larger floor; None without floors."""
        return self.cycles / self.floors.cycles if self.floors and self.floors.cycles else None

    @property
    def label(self) -> str:
        """How much a µs figure is worth."""
        return "uncalibrated" if self.soc.uncalibrated else "estimate"


def floors_of(
    op: str, arrays: Mapping[str, np.ndarray | None], soc: str, attrs: Mapping[str, Any] | None = None
) -> roofline.Floors | None:
    """The operator's floors for these inputs; None when its module does not state them.

    A module whose work depends on attributes takes them as `floors(specs, soc, attrs)`.
    """
    stated = getattr(case_module.module(op), "floors", None)
    specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}
    if stated is None:
        return None
    more = {"attrs": attrs or {}} if "attrs" in inspect.signature(stated).parameters else {}
    return stated(specs, soc, **more)


def run(
    op: str,
    arrays: Mapping[str, np.ndarray | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    soc: str,
    trace: bool = False,
    figures: Mapping[str, Any] | None = None,
) -> Profile:
    """Run a kernel in the simulator and replay it in time.

    Checks are on: the dependencies that the compiler guards, which cost time, are found by them.

    Args:
        op: operator name.
        arrays, attrs: as for a call.
        soc: family or chip.
        trace: keep the events (`timing["trace"]`).
        figures: SoC figures to replace, by dotted name.

    Raises:
        HybridOpsError: refused input; SimulatorHazard: the kernel broke a rule.
    """
    over = {**(figures or {}), **({"timing.trace": 1} if trace else {})}
    result = sim.launch(op, arrays, attrs, soc=soc, checks="full", record=True, figures=over)
    if result.timing is None:
        raise check.refuse(op, "profile", "the launch gave no timing", got=None, allowed="a report", soc=soc)
    return Profile(op, platform.load(soc), result.timing, floors_of(op, arrays, soc, attrs))


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GB"


def summary(profile: Profile) -> Table:
    """Cycles, floors, busy share of each pipe, traffic."""
    t, soc = profile.timing, profile.soc
    table = Table("figure", "value", title=f"{profile.op} on {soc.variant}", title_justify="left")
    table.add_row("cycles", f"{t['cycles']:,.0f}")
    table.add_row(f"time ({profile.label})", f"{t['us']:.2f} µs at {t['clock_mhz']:.0f} MHz")
    table.add_row("confidence", str(t["confidence"]))
    table.add_row("bound by", str(t["bound"]))
    for pipe in PIPES:
        if pipe in t["busy"] and t["cycles"]:
            share = t["busy"][pipe] / t["cycles"]
            table.add_row(f"busy {pipe}", f"{share:6.1%} {'█' * round(30 * share)}")
    table.add_row(
        "global memory read / written", f"{_bytes(t['gm_read_bytes'])} / {_bytes(t['gm_write_bytes'])}"
    )
    table.add_row("of it from L2", _bytes(t["l2_hit_bytes"]))
    if profile.floors:
        f = profile.floors
        table.add_row(
            "memory floor", f"{f.memory_cycles:,.0f} cycles ({_bytes(f.read_bytes + f.write_bytes)})"
        )
        table.add_row("vector floor", f"{f.vector_cycles:,.0f} cycles")
        if f.cube_cycles:
            table.add_row("cube floor", f"{f.cube_cycles:,.0f} cycles")
        table.add_row(f"cycles / larger floor ({f.bound})", f"{profile.ratio or 0:.2f}")
    idle = [c["cycles"] for c in t["per_core"]]
    table.add_row(
        "blocks, fastest / slowest core", f"{t['blocks']}, {min(idle):,.0f} / {max(idle):,.0f} cycles"
    )
    if t["unpriced"]:
        table.add_row("priced by default", ", ".join(t["unpriced"]))
    return table


def calls(profile: Profile) -> Table:
    """Count and pipe cycles of each API, all cores, most cycles first."""
    table = Table("call", "count", "pipe cycles", "each", title="calls, all cores", title_justify="left")
    for name, total in sorted(profile.timing["ops"].items(), key=lambda item: -item[1]["cycles"]):
        each = total["cycles"] / total["count"] if total["count"] else 0
        table.add_row(name, f"{total['count']:,}", f"{total['cycles']:,.0f}", f"{each:,.1f}")
    return table


def stalls(profile: Profile) -> Table:
    """Where the slowest core's pipes stood still, busiest pipe first."""
    table = Table(
        "pipe", "waits for", "cycles", "times", "at", title="stalls, slowest core", title_justify="left"
    )
    for s in profile.timing["stalls"]:
        where = f"{Path(s['kernel_file']).name}:{s['line']} {s['api']}"
        table.add_row(s["pipe"], s["cause"], f"{s['cycles']:,.0f}", f"{s['count']:,}", where)
    return table


@app.command("profile")
def command(
    op: Annotated[str | None, typer.Argument(help="operator; the contract's first when absent")] = None,
    soc: Annotated[str, typer.Option(help="family or chip, e.g. ascend310p or Ascend910B1")] = "ascend310p",
    only: Annotated[str, typer.Option("--case", help="first case whose id contains this")] = "",
    trace: Annotated[Path | None, typer.Option(help="write a Chrome trace (JSON)")] = None,
    plot: Annotated[Path | None, typer.Option(help="write a timeline (SVG)")] = None,
    cores: Annotated[int, typer.Option(min=1, help="cores in the timeline")] = 4,
    vary: Annotated[str, typer.Option(help="compare values of an attribute: num_splits=1,2,4,8")] = "",
    sizes: Annotated[
        list[str] | None, typer.Option("--with", help="a size of the case: lengths=[4096]")
    ] = None,
) -> None:
    """Estimate an operator's time on a chip: bound, floors, stalls by kernel line."""
    found = check.find_op(op or next(iter(contract.load())))
    family = platform.load(soc).family
    if vary and (trace or plot):
        raise check.refuse(
            "profile",
            "vary",
            "one run has a trace, not several",
            got=vary,
            allowed="no trace, no plot",
            soc=soc,
        )
    if plot is not None and plot.suffix != ".svg":
        raise check.refuse(
            "profile", "plot", "not an SVG file", got=str(plot), allowed="a .svg path", soc=soc
        )
    for option, path in (("trace", trace), ("plot", plot)):
        if path is not None:
            check.writable("profile", option, path, soc)
    chosen = next(
        (c for c in case_module.cases(found.name, check.find_soc(found, family)) if only in c.id), None
    )
    if chosen is None:
        raise check.refuse(
            "profile", "case", "no such case", got=repr(only), allowed="part of a case id", soc=soc
        )
    chosen = profile_vary.resized(chosen, sizes or [], soc)
    console = Console(soft_wrap=True, emoji=False)
    varied = profile_vary.values_of(found, vary, soc) if vary else None
    console.print(f"case {chosen.id}", " ".join(sizes or []), highlight=False, markup=False)
    if varied:
        arrays = chosen.inputs()
        table, verdict = profile_vary.compare(
            lambda attrs: run(found.name, arrays, attrs, soc=soc), chosen.attrs, *varied
        )
        console.print(table)
        console.print(verdict, highlight=False)
        return
    profile = run(found.name, chosen.inputs(), chosen.attrs, soc=soc, trace=bool(trace or plot))
    for table in (summary(profile), calls(profile), stalls(profile)):
        console.print(table)
    events = profile.timing.get("trace", [])
    if trace:
        timeline.write_trace(events, trace)
    if plot:
        slowest = sorted(range(len(profile.timing["per_core"])),
                         key=lambda i: -profile.timing["per_core"][i]["cycles"])[:cores]  # fmt: skip
        title = f"{chosen.id}: {profile.cycles:,.0f} cycles on {profile.soc.variant} ({profile.label})"
        timeline.write_svg(events, plot, title, sorted(slowest))
