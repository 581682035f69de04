"""`hybrid-ops check`, `rules` and `run`: judge an ONNX file before the converter does, list rules, the main job."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hybrid_ops import check as checks
from hybrid_ops.export import lite_rules

app = typer.Typer(no_args_is_help=True)
DEFAULT_RELEASE = "2.9"
LiteAlias = Annotated[str, typer.Option("--lite", hidden=True, help="the same as --lite-version")]


def parse_version(text: str) -> tuple[int, int]:
    """(major, minor) of "2.9" or "lite-2.9"."""
    parts = text.removeprefix("lite-").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise checks.refuse(
            "check", "lite-version", "not a release", got=repr(text), allowed="e.g. 2.9", soc="any SoC"
        )
    return int(parts[0]), int(parts[1])


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="ONNX file")],
    lite_version: Annotated[
        str, typer.Option("--lite-version", help="MindSpore Lite release of the converter")
    ] = DEFAULT_RELEASE,
    lite_old: LiteAlias = "",
    soc: Annotated[str, typer.Option(help="target SoC")] = "ascend310p",
    fix: Annotated[Path | None, typer.Option(help="write a repaired copy here and judge that")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print findings as JSON")] = False,
) -> None:
    """Check Custom nodes and graph against the converter's rules and the operators' contract.

    Exit code 0: nothing, or warnings only; 1: something would be silently wrong; 2: the conversion would fail.
    """
    version = parse_version(lite_old or lite_version)
    done: list[str] = []
    if fix is not None:
        from hybrid_ops.export import repair

        done = repair.repair_file(model, fix, version=version, soc=soc)
        model = fix
    findings = lite_rules.check_file(model, version=version, soc=soc)
    if as_json:
        typer.echo(json.dumps(lite_rules.as_json(findings), indent=1))
    else:
        console = Console(emoji=False, soft_wrap=True)
        for text in done:
            console.print(f"repaired {text}", markup=False, highlight=False)
        for finding in findings:
            console.print(str(finding), markup=False, highlight=False)
        rules = len(lite_rules.applicable(version))
        console.print(f"{model}: {rules} rules, {len(findings)} findings", markup=False, highlight=False)
    raise typer.Exit(lite_rules.exit_code(findings))


@app.command()
def rules(
    lite_version: Annotated[
        str, typer.Option("--lite-version", help="MindSpore Lite release of the converter")
    ] = DEFAULT_RELEASE,
    lite_old: LiteAlias = "",
) -> None:
    """List the rules that hold for a converter release."""
    release = lite_old or lite_version
    found = lite_rules.applicable(parse_version(release))
    title = f"{len(found)} of {len(lite_rules.RULES)} rules hold for Lite {release}"
    table = Table("rule", "severity", "demands", title=title)
    for entry in found:
        table.add_row(entry.id, lite_rules.SEVERITIES[entry.severity], entry.summary)
    Console(emoji=False).print(table)


@app.command()
def run(
    out: Annotated[Path, typer.Option(help="folder for model.onnx, report.json, table.txt, traces")] = Path(
        "build/run"
    ),
    steps: Annotated[int, typer.Option(help="decode steps")] = 6,
    prompt: Annotated[int, typer.Option(help="prompt length in tokens")] = 16,
    seed: Annotated[int, typer.Option(help="seed of weights and prompt")] = 0,
    soc: Annotated[str, typer.Option(help="SoC the graph is exported for")] = "ascend310p",
    backend: Annotated[str, typer.Option(help="sim or reference")] = "sim",
    watch: Annotated[str, typer.Option("--checks", help="simulator checks: full or off")] = "full",
) -> None:
    """Main job: a Qwen3.5 decode step with the operator in the simulator, exported, checked, executed, compared.

    Exit code 0: every bound holds and the graph is clean; 1: something does not; 2: refused.
    """
    from hybrid_ops import run_job

    start = time.perf_counter()
    console = Console(emoji=False, width=None if sys.stdout.isatty() else 118)
    report = run_job.run_job(
        out, steps=steps, prompt=prompt, seed=seed, soc=soc, backend=backend, checks=watch, console=console
    )
    for failure in report.failures:
        console.print(f"failed: {failure}", markup=False, highlight=False, soft_wrap=True)
    verdict = f"{len(report.failures)} failures" if report.failures else "all bounds hold"
    console.print(f"{verdict}; {time.perf_counter() - start:.1f} s; artefacts in {out}", markup=False)
    raise typer.Exit(1 if report.failures else 0)
