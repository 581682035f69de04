"""Writes the replay's events as a Chrome trace or as an SVG timeline (no plotting library)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
COLOURS = {
    "S": "#7f7f7f", "V": "#1f77b4", "M": "#9467bd", "MTE1": "#8c564b", "MTE2": "#2ca02c", "MTE3": "#ff7f0e", "FIX": "#e377c2",
}  # fmt: skip
WIDTH, LEFT, LANE, GAP, TOP = 1400.0, 90.0, 18.0, 10.0, 46.0
NARROW = 0.25  # pixels; events closer than that become one bar, or the file would have no end


def write_trace(events: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Chrome trace JSON (chrome://tracing, Perfetto): one process per core, one thread per pipe, times in µs."""
    named = []
    for core in sorted({e["pid"] for e in events}):
        named.append({"name": "process_name", "ph": "M", "pid": core, "args": {"name": f"core {core}"}})
        for pipe in PIPES:
            number = PIPES.index(pipe)
            named.append(
                {"name": "thread_name", "ph": "M", "pid": core, "tid": number, "args": {"name": pipe}}
            )
    numbered = [{**e, "tid": PIPES.index(e["tid"])} for e in events]
    path.write_text(json.dumps({"traceEvents": named + numbered, "displayTimeUnit": "ns"}), encoding="utf-8")


def _bars(events: Sequence[Mapping[str, Any]], scale: float) -> list[tuple[float, float, str]]:
    """(x, width, label) of one lane, neighbours merged where a gap would not be visible."""
    bars: list[tuple[float, float, str, int]] = []
    for event in sorted(events, key=lambda e: e["ts"]):
        x, w = event["ts"] * scale, event["dur"] * scale
        if bars and x - (bars[-1][0] + bars[-1][1]) < NARROW and (w < 4 or bars[-1][1] < 4):
            first, _, label, count = bars[-1]
            bars[-1] = (first, max(bars[-1][1], x + w - first), label, count + 1)
            continue
        bars.append((x, w, f"{event['name']} line {event['args']['line']}", 1))
    return [(x, w, label if count == 1 else f"{count} calls from {label}") for x, w, label, count in bars]


def write_svg(
    events: Sequence[Mapping[str, Any]], path: Path, title: str, cores: Sequence[int] | None = None
) -> None:
    """A lane per core and pipe over time; hovering over a bar names the call and its line.

    Args:
        events: as the replay reports them ("pid" core, "tid" pipe, "ts"/"dur" µs).
        path: .svg file.
        title: first line of the picture.
        cores: only these; all cores when absent.
    """
    chosen = [e for e in events if cores is None or e["pid"] in cores]
    end = max((e["ts"] + e["dur"] for e in chosen), default=1.0) or 1.0
    scale = WIDTH / end
    lanes: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for event in chosen:
        lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    parts, y, last = [], TOP, None
    for core, pipe in sorted(lanes, key=lambda lane: (lane[0], PIPES.index(lane[1]))):
        y += GAP if core != last else 0
        last = core
        parts.append(f'<text x="4" y="{y + 13:.0f}">core {core} {pipe}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y:.0f}" width="{WIDTH}" height="{LANE - 3:.0f}" fill="#f2f2f2"/>')
        parts += [
            f'<rect x="{LEFT + x:.2f}" y="{y:.0f}" width="{max(w, NARROW):.2f}" height="{LANE - 3:.0f}" '
            f'fill="{COLOURS[pipe]}"><title>{escape(label)}</title></rect>'
            for x, w, label in _bars(lanes[core, pipe], scale)
        ]
        y += LANE
    ticks = [
        f'<text x="{LEFT + WIDTH * i / 10:.0f}" y="40" text-anchor="middle">{end * i / 10:.2f} µs</text>'
        for i in range(11)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40:.0f}" height="{y + 10:.0f}" '
        f'font-family="sans-serif" font-size="11"><text x="4" y="18" font-size="14">{escape(title)}</text>'
    )
    path.write_text("\n".join([head, *ticks, *parts, "</svg>"]), encoding="utf-8")
