"""Command line: hybrid-ops doctor | ops | selftest | build | docs | … (python -m hybrid_ops)."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from . import build as building
from . import check, contract

app = typer.Typer(
    help="Operators for hybrid models on Ascend NPUs, and their simulator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Sub-commands of other parts, imported only when one of their commands is asked for: they need onnx, torch, …
PARTS = ("export.cli", "export.cli_export", "profile", "export.convert_cli")
console = Console(soft_wrap=True, emoji=False)  # a tensor name may read ":key:"
_MARK = {"ok": "[green]ok[/]     ", "missing": "[yellow]missing[/]", "fault": "[red]FAULT[/]  "}


@app.command()
def doctor() -> None:
    """Say what this machine has and what is missing; exit code 1 when something needed is broken."""
    from . import doctor as examiner

    findings = examiner.examine()
    for finding in findings:
        console.print(f"{_MARK[finding.state]} {finding.subject}: ", end="")
        console.print(finding.text, markup=False, highlight=False)
    raise typer.Exit(int(any(f.state == "fault" for f in findings)))


@app.command()
def ops() -> None:
    """List every operator with its dtypes per SoC."""
    for op in contract.load().values():
        table = Table("argument", "axes", *op.socs, title=f"{op.type}: {op.summary}", title_justify="left")
        for t in (*op.inputs, *(o for o in op.outputs if not o.inplace)):
            name = (
                t.name
                + ("" if t.required else " (optional)")
                + (" (in place)" if t.name in op.mutated else "")
            )
            name = f"→ {name}" if t in op.outputs else name
            table.add_row(name, t.text().replace("[", "\\["), *(" / ".join(t.dtypes[soc]) for soc in op.socs))
        for a in op.attrs:
            table.add_row(a.name, f"{a.type} = {a.default}", *("attribute" for _ in op.socs))
        console.print(table)


@app.command()
def selftest(
    soc: Annotated[str | None, typer.Option(help="only this SoC")] = None,
    op: Annotated[str | None, typer.Option(help="only this operator")] = None,
    checks: Annotated[str, typer.Option(help="full or off")] = "full",
    backend: Annotated[str, typer.Option(help="sim or reference")] = "sim",
    only: Annotated[str, typer.Option(help="only cases whose id contains this")] = "",
) -> None:
    """Run the operators' own cases against their meaning; exit code 1 when one fails or none ran."""
    from . import case
    from . import selftest as runner

    found = check.find_op(op) if op else None
    family = check.find_soc(found, soc) if soc else None
    check.choice("selftest", "checks", checks, ("full", "off"))
    check.choice("selftest", "backend", backend, ("sim", "reference"))
    chosen = [found] if found else contract.load().values()
    total = sum(
        only in c.id for o in chosen for s in o.socs if family in (None, s) for c in case.cases(o.name, s)
    )
    outcomes = []
    faults = Console(stderr=True, soft_wrap=True, emoji=False)
    running = runner.run(found.name if found else None, family, backend=backend, checks=checks, only=only)
    for outcome in track(running, "selftest", total=total, console=faults, transient=True):
        outcomes.append(outcome)
        if outcome.fault:
            faults.print(f"FAULT {outcome.case.id}: {outcome.fault}", markup=False, highlight=False)
    table = Table("operator", "SoC", "cases", "faults", "worst NRMSE", "seconds")
    table.columns[0].overflow = "fold"  # a name is to be read whole, also in a narrow terminal
    for key in dict.fromkeys((o.case.op, o.case.soc) for o in outcomes):
        these = [o for o in outcomes if (o.case.op, o.case.soc) == key]
        worst: dict[str, float] = {}
        for e in (e for o in these for e in o.errors):
            worst[e.name] = max(worst.get(e.name, 0.0), e.nrmse)
        text = ", ".join(f"{n} {v:.1e}" for n, v in worst.items())
        bad = sum(bool(o.fault) for o in these)
        table.add_row(*key, str(len(these)), str(bad), text, f"{sum(o.seconds for o in these):.1f}")
    if not outcomes:
        raise check.refuse(
            "selftest", "only", "no case chosen", got=repr(only), allowed="part of a case id", soc="this SoC"
        )
    console.print(table)
    raise typer.Exit(int(any(o.fault for o in outcomes)))


@app.command()
def build(
    soc: Annotated[list[str] | None, typer.Option(help="only these SoCs")] = None,
    paths: Annotated[bool, typer.Option("--paths", help="print the path of every library")] = False,
) -> None:
    """Build the simulator and every operator's kernel ahead of time."""
    from . import sim_build

    socs = [check.find_soc(None, s) for s in soc or []]
    errors, total = Console(stderr=True, emoji=False), len(sim_build.builds(socs))
    made = list(track(sim_build.build_all(socs), "build", total=total, console=errors, transient=True))
    lines = [*map(str, made)] if paths else [f"{len(made)} libraries in {building.cache_dir()}"]
    for line in lines:
        console.print(line, markup=False, highlight=False)


@app.command()
def docs(check_only: Annotated[bool, typer.Option("--check", help="compare, write nothing")] = False) -> None:
    """Generate docs/ops/*.md and the support table of README.md."""
    from . import docs as generator

    raise typer.Exit(min(generator.main(check_only), 1))


@app.command()
def sim(
    files: Annotated[list[Path], typer.Argument(help="AscendC samples (.asc) with their host code")],
    soc: Annotated[str, typer.Option(help="family or chip")] = "ascend910b",
    checks: Annotated[str, typer.Option(help="full or off")] = "full",
) -> None:
    """Run .asc files in the simulator; exit code 1 when one fails or breaks a rule of the hardware."""
    from . import asc_runner

    bad = 0
    for file in files:
        done = asc_runner.run_asc(file, soc, checks=checks, quiet=False)
        for text in (done.stdout, done.stderr):
            console.print(text.rstrip(), markup=False, highlight=False) if text.strip() else None
        broken = [r for r in done.reports if not r["ok"]]
        for report in broken:
            text = check.hazards(file.stem, soc, report.get("error"), report.get("hazards") or [])
            console.print(text, markup=False, highlight=False, style="red")
        bad += not done.ok
        state = "ok" if done.ok else "FAULT"
        console.print(f"{state} {file}: {len(done.reports)} launches, exit {done.returncode}", markup=False)
    raise typer.Exit(int(bad > 0))


@app.command("check-cann")
def check_cann(
    files: Annotated[list[Path] | None, typer.Argument(help="sources; all when absent")] = None,
) -> None:
    """Compile kernel and host sources against real CANN headers (77: no headers, nothing checked)."""
    from . import check_cann as checker

    raise typer.Exit(checker.main(files))


def _attach_parts() -> None:
    """Add the commands of the other parts that are installed; a part whose own dependency is missing says so."""
    for part in PARTS:
        try:
            module = importlib.import_module(f"{__package__}.{part}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("hybrid_ops"):
                console.print(f"[yellow]{part}: not available: {error}[/]", highlight=False)
            continue
        if hasattr(module, "app"):
            app.registered_commands += module.app.registered_commands
            app.registered_groups += module.app.registered_groups


def main() -> None:
    """Entry of `hybrid-ops`; refusals end as one line on stderr and exit code 2."""
    # transformers warns of kernels for GPUs that it does not find; read when it is imported
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    own = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    if not (len(sys.argv) > 1 and sys.argv[1] in own):
        _attach_parts()
    try:
        app()
    except (check.HybridOpsError, building.BuildError, contract.ContractError, OSError) as error:
        Console(stderr=True, soft_wrap=True, emoji=False).print(
            f"error: {error}", markup=False, highlight=False, style="red"
        )
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
