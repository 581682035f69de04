"""Platform figures of a SoC from sim/soc/*.toml: one file per family, tables `[variant.<name>]` override it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import check, contract, paths


@dataclass(frozen=True)
class Soc:
    """One chip: `family` as CANN spells it in OpDefs, `variant` of the file, figures by dotted key."""

    family: str
    variant: str
    figures: Mapping[str, Any]

    def config(self) -> str:
        """The figures as the simulator core reads them: one line `a.b.c = value` each."""
        return "".join(f"{key} = {_plain(value)}\n" for key, value in self.figures.items())


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return " ".join(_plain(item) for item in value)
    return str(value)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and "value" in value:
            yield prefix + key, value["value"]
        elif isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def variants() -> dict[str, tuple[str, ...]]:
    """Chip variants by family, e.g. {"ascend310p": ("310P1", "310P3")}."""
    return {family: tuple(_document(family).get("variant", {})) for family in contract.socs()}


@cache
def _document(family: str) -> dict[str, Any]:
    folder = paths.source_dir("sim") / "soc"
    merged: dict[str, Any] = {}
    for name in ("instructions", family):
        file = folder / f"{name}.toml"
        if file.is_file():
            merged = _overlay(merged, tomllib.loads(file.read_text(encoding="utf-8")))
    return merged


def _overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _overlay(merged[key], value) if both and "value" not in value else value
    return merged


@cache
def load(name: str) -> Soc:
    """Figures of a chip.

    Args:
        name: a family ("ascend310p", its default variant) or a chip ("Ascend310P1"), in any case.

    Raises:
        HybridOpsError: no such SoC; the text lists families and chips.
    """
    wanted = name.lower().removeprefix("ascend")
    for family, chips in variants().items():
        document = _document(family)
        default = document["soc"]["default_variant"]
        match = next((c for c in chips if c.lower() == wanted), default if wanted == family[6:] else None)
        if match is None:
            continue
        table = _overlay(
            {key: part for key, part in document.items() if key != "variant"},
            document.get("variant", {}).get(match, {}),
        )
        figures = dict(_flatten(table))
        figures["soc.variant"] = match
        return Soc(family, match, figures)
    known = [*variants(), *(f"Ascend{chip}" for chips in variants().values() for chip in chips)]
    raise check.refuse(
        "hybrid_ops", "soc", "not a known SoC", got=repr(name), allowed=check.words(known), soc="this package"
    )
