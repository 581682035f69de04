"""`hybrid-ops check`: judge an ONNX file before the converter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hybrid_ops import check as checks
from hybrid_ops.export import lite_rules

app = typer.Typer(help="ONNX export: check files, list rules.", no_args_is_help=True)


def parse_version(text: str) -> tuple[int, int]:
    """(major, minor) of "2.9" or "lite-2.9"."""
    parts = text.removeprefix("lite-").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise checks.refuse(
            "check", "lite", "not a release", got=repr(text), allowed="e.g. 2.9", soc="any SoC"
        )
    return int(parts[0]), int(parts[1])


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="ONNX file")],
    lite: Annotated[str, typer.Option(help="MindSpore Lite release of the converter")] = "2.9",
    soc: Annotated[str, typer.Option(help="target SoC")] = "ascend310p",
    as_json: Annotated[bool, typer.Option("--json", help="print findings as JSON")] = False,
) -> None:
    """Check Custom nodes and graph against the converter's rules and the operators' contract.

    Exit code 0: nothing, or warnings only; 1: something would be silently wrong; 2: the conversion would fail.
    """
    try:
        version = parse_version(lite)
        findings = lite_rules.check_file(model, version=version, soc=soc)
    except checks.HybridOpsError as error:
        Console(stderr=True, soft_wrap=True).print(f"[red]error[/]: {error}", highlight=False)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(lite_rules.as_json(findings), indent=1))
    else:
        console = Console(soft_wrap=True)
        for finding in findings:
            console.print(str(finding), markup=False, highlight=False)
        rules = len(lite_rules.applicable(version))
        console.print(f"{model}: {rules} rules, {len(findings)} findings", markup=False, highlight=False)
    raise typer.Exit(lite_rules.exit_code(findings))


@app.command()
def rules(lite: Annotated[str, typer.Option(help="MindSpore Lite release")] = "2.9") -> None:
    """List the rules that hold for a converter release."""
    table = Table("rule", "severity", "demands", title=f"rules for Lite {lite}")
    for entry in lite_rules.applicable(parse_version(lite)):
        table.add_row(entry.id, lite_rules.SEVERITIES[entry.severity], entry.summary)
    Console().print(table)
