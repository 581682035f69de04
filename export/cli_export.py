"""`hybrid-ops export`: writes the prefill and decode graphs of a model for the Lite converter."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

app = typer.Typer(no_args_is_help=True)


@app.command()
def export(
    model: Annotated[
        Path, typer.Argument(help="config.json, or a folder with it and a safetensors checkpoint")
    ],
    out: Annotated[Path, typer.Option(help="folder for prefill/*.onnx and decode/*.onnx")],
    component: Annotated[str, typer.Option(help="all, prefill or decode")] = "all",
    target: Annotated[
        str, typer.Option("--target", "--profile", help="lite-2.9, lite-2.7 or lite-2.4")
    ] = "lite-2.9",
    max_seq_len: Annotated[
        int | None, typer.Option(help="capacity of the key/value cache; absent: it grows by a column a step")
    ] = None,
    max_prompt: Annotated[
        int | None, typer.Option(help="longest prompt of the prefill graph; max-seq-len or 2048 when absent")
    ] = None,
    dtype: Annotated[str, typer.Option(help="fp16, fp32 or bf16")] = "fp16",
    weights: Annotated[
        str | None, typer.Option(help="copy, reference (out must hold the checkpoint) or random")
    ] = None,
    exporter: Annotated[str, typer.Option(help="dynamo or legacy")] = "dynamo",
    soc: Annotated[str, typer.Option(help="target SoC")] = "ascend310p",
    last_logits: Annotated[bool, typer.Option(help="prefill: logits of the last token only")] = False,
    chunk: Annotated[
        str, typer.Option(help="prefill: the chunk rule as Custom node or as subgraph of matrix products")
    ] = "node",
    experts: Annotated[
        str,
        typer.Option(help="routed experts as node (operators, independent of the routing) or as subgraph"),
    ] = "subgraph",
    attention: Annotated[
        str,
        typer.Option(
            help="decode: model (matrix products and softmax), paged (our operator over pages) or fixed "
            "(our operator, capacity max-seq-len)"
        ),
    ] = "model",
    pages: Annotated[int | None, typer.Option(help="paged: pages of each attention layer")] = None,
    page_size: Annotated[int | None, typer.Option(help="paged: tokens of a page; 128 when absent")] = None,
    table_width: Annotated[
        int | None, typer.Option(help="paged: pages a sequence may have; pages when absent")
    ] = None,
    private_domain: Annotated[bool, typer.Option(help="keep Custom nodes in a domain of their own")] = False,
    seed: Annotated[int, typer.Option(help="seed of random weights")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="2: prefill and decode at the same time")] = min(
        2, os.cpu_count() or 1
    ),
) -> None:
    """Export prefill and decode graphs with Custom nodes for MindSpore Lite.

    Exit code 0: written, the checker has no complaint; 1: something would be silently wrong; 2: refused, or the
    conversion would fail. Every file appears complete or not at all.
    """
    from hybrid_ops.export import generation, lite_rules

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:16}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(emoji=False, stderr=True),
    )

    @contextmanager
    def stage(name: str) -> Iterator[Callable[[int, int], None]]:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
        bar.update(task, completed=1, total=1)

    with bar:
        written = generation.export_generation(
            model,
            out,
            component=component,
            target=target,
            soc=soc,
            exporter=exporter,
            dtype=dtype,
            max_seq_len=max_seq_len,
            max_prompt=max_prompt,
            last_logits=last_logits,
            chunk=chunk,
            experts=experts,
            attention=attention,
            pages=pages,
            page_size=page_size,
            table_width=table_width,
            weights=weights,
            seed=seed,
            private_domain=private_domain,
            jobs=jobs,
            stage=stage,
        )
    console = Console(emoji=False, width=None if sys.stdout.isatty() else 118)
    table = Table(
        Column("graph", overflow="fold", min_width=32),
        "nodes",
        "Custom",
        "files",
        "GB",
        "trace s",
        "write s",
        "findings",
    )
    for item in written:
        customs = ", ".join(f"{count} {kind}" for kind, count in item.customs.items()) or "0"
        table.add_row(
            str(item.path.relative_to(out)),
            str(item.nodes.total()),
            customs,
            str(len(item.files)),
            f"{sum(item.files.values()) / 1e9:.2f}",
            f"{item.seconds['trace']:.1f}",
            f"{item.seconds['write']:.1f}",
            str(len(item.findings)),
        )
    console.print(f"written to {out}:", markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    found = [finding for item in written for finding in item.findings]
    for finding in found:
        console.print(str(finding), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(lite_rules.exit_code(found))
