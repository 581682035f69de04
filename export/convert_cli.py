"""`hybrid-ops convert` and `hybrid-ops mindir show|diff`."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hybrid_ops.export import convert as driver
from hybrid_ops.export import lite_config, mindir, mindir_diff
from hybrid_ops.export.cli import parse_version

app = typer.Typer(no_args_is_help=True)
mindir_app = typer.Typer(no_args_is_help=True, help="Look into MindIR files.")
app.add_typer(mindir_app, name="mindir")


def _print(console: Console, text: object) -> None:
    console.print(str(text), markup=False, highlight=False, soft_wrap=True)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@app.command()
def convert(
    model: Annotated[Path, typer.Argument(help="exported ONNX file")],
    out: Annotated[Path, typer.Option(help="folder for MindIR, configuration, log and report")],
    lite_version: Annotated[str, typer.Option(help="release to check for; the converter's, else 2.9")] = "",
    soc: Annotated[str, typer.Option(help="SoC, or a chip such as Ascend310P3")] = "ascend310p",
    precision: Annotated[
        str, typer.Option(help=", ".join(lite_config.PRECISIONS))
    ] = lite_config.DEFAULT_PRECISION,
    static: Annotated[str, typer.Option(help="sizes of open dimensions: 'past=127' or 'mask:1,128;…'")] = "",
    dynamic: Annotated[str, typer.Option(help="gears, a number per open dimension: '32,32;512,512'")] = "",
    optimize: Annotated[str, typer.Option(help=", ".join(driver.OPTIMIZE))] = "ascend_oriented",
    opp: Annotated[
        Path | None, typer.Option(help="operator package: vendor folder, or with install.sh")
    ] = None,
    plugin: Annotated[str, typer.Option(help="converter plugin: auto, none or a path")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="convert in spite of findings")] = False,
) -> None:
    """Check a model, write the converter's configuration, run converter_lite and compare the result with the model.

    Exit code 0: converted, all arrived; 1: converted, but something arrived otherwise; 2: refused; 3: the converter
    failed; 4: no converter on this machine, configuration written and command printed.
    """
    request = driver.Request(
        model, out, parse_version(lite_version) if lite_version else None, soc, precision, static, dynamic, optimize,
        opp, plugin, force,
    )  # fmt: skip
    console, faults = Console(emoji=False), Console(emoji=False, stderr=True)
    begin = time.monotonic()
    previous = signal.signal(signal.SIGTERM, _terminated)
    try:
        with faults.status("convert") as status:

            def progress(line: str) -> None:
                if faults.is_terminal:
                    status.update(f"{time.monotonic() - begin:.0f} s  {line[: max(faults.width - 16, 20)]}")

            result = driver.convert(request, progress)
    finally:
        signal.signal(signal.SIGTERM, previous)
    for finding in [*result.findings, *result.log_findings]:
        _print(console, finding)
    for fault in result.diff.faults if result.diff else []:
        _print(console, fault)
    if result.command:
        _print(console, f"command: {result.command}")
    if result.diff is not None:
        _print(console, _summary(result.diff))
    for file in result.files:
        _print(console, f"wrote {file}")
    verdict = f"{result.status}: {result.problem}" if result.problem else result.status
    _print(console if result.exit_code == 0 else faults, f"{verdict} ({result.seconds:.1f} s)")
    raise typer.Exit(result.exit_code)


def _summary(diff: mindir_diff.Diff) -> str:
    if diff.notes:
        return "; ".join(diff.notes)
    states = [entry.state for entry in diff.attributes]
    nodes = len({entry.node for entry in diff.attributes})
    return (
        f"{nodes} Custom nodes: {states.count('same')} attributes the same, {states.count('changed')} changed, "
        f"{states.count('lost')} lost, {states.count('added') + states.count('stray')} added by the converter"
    )


@mindir_app.command()
def show(
    file: Annotated[Path, typer.Argument(help="MindIR file")],
    nodes: Annotated[bool, typer.Option("--nodes", help="list every node, not only Custom ones")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """Print node counts, inputs, outputs and every Custom node's attributes with their types."""
    content = mindir.read(file)
    chosen = content.nodes if nodes else content.custom_nodes
    if as_json:
        typer.echo(json.dumps(_document(content, chosen), indent=1))
        return
    console = Console(emoji=False, width=None if sys.stdout.isatty() else 118)
    _print(
        console, f"{file}: {content.producer}, version {content.version}, {content.weight_bytes} weight bytes"
    )
    for name, kind in content.inputs.items():
        _print(console, f"input {name}: {kind}")
    for kind in content.outputs:
        _print(console, f"output {kind}")
    table = Table("type", "nodes")
    for name, count in content.counts().most_common():
        table.add_row(name, str(count))
    console.print(table)
    if content.compiled is not None:
        _print(console, "the graph is compiled for the device (one Custom node of type ACL)")
    for node in chosen:
        _print(
            console,
            f"{node.name}: {node.op_type}({', '.join(node.inputs)}) -> {', '.join(map(str, node.outputs))}",
        )
        for name, value in sorted(node.attributes.items()):
            _print(console, f"  {name}: {value}")


def _document(
    content: mindir.MindIR, nodes: list[mindir.Node] | tuple[mindir.Node, ...]
) -> dict[str, object]:
    return {
        "producer": content.producer,
        "version": content.version,
        "weight_bytes": content.weight_bytes,
        "inputs": {name: str(kind) for name, kind in content.inputs.items()},
        "outputs": [str(kind) for kind in content.outputs],
        "counts": dict(content.counts()),
        "nodes": [
            {
                "name": node.name,
                "op_type": node.op_type,
                "inputs": node.inputs,
                "outputs": [str(kind) for kind in node.outputs],
                "attributes": {n: [v.kind, v.value] for n, v in node.attributes.items()},
            }
            for node in nodes
        ],
    }


@mindir_app.command()
def diff(
    model: Annotated[Path, typer.Argument(help="ONNX file that was converted")],
    file: Annotated[Path, typer.Argument(help="MindIR file that came of it")],
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """Compare what arrived with what was sent: counts per type, every Custom attribute with type and value.

    Exit code 0: all arrived; 1: something is changed or lost; 2: a file cannot be read.
    """
    from hybrid_ops.export import onnx_files

    source, _ = onnx_files.load(model)
    found = mindir_diff.compare(source, mindir.read(file))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1, default=str))
        raise typer.Exit(int(bool(found.faults)))
    console = Console(emoji=False, width=None if sys.stdout.isatty() else 118)
    table = Table("sent", "nodes", "arrived with the same name")
    for kind, (count, kept) in found.counts.items():
        table.add_row(kind, str(count), ", ".join(f"{n} {c}" for n, c in kept.items()) or "none")
    console.print(table)
    for entry in found.attributes:
        _print(console, f"{entry.state:8}{entry.node}: {entry.name}: {entry.sent} -> {entry.arrived}")
    for fault in found.faults:
        _print(console, f"fault: {fault}")
    _print(console, _summary(found))
    raise typer.Exit(int(bool(found.faults)))
