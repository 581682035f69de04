"""Figures of a SoC: reads sim/soc/<family>.toml, applies a variant, flattens it for the simulator core.

The files give each figure with source and confidence; :func:`figure` returns those. sim/soc/instructions.toml prices calls
by class, for every SoC.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import check, contract, paths

NOTES = ("source", "confidence")


@dataclass(frozen=True)
class Soc:
    """One chip: `family` as CANN spells it in OpDefs, `variant` of the file, figures by dotted key.

    Sizes are bytes, clocks MHz, rates per cycle of the core clock unless the name says GB/s.
    """

    family: str
    variant: str
    figures: Mapping[str, Any]

    def config(self, **overrides: Any) -> str:
        """The text the simulator core reads: one line `a.b.c = value` per figure.

        Args:
            overrides: values by dotted key with `__` for the dot, e.g. `l2__enabled=0`, `timing__trace=1`.
        """
        figures = {**self.figures, **{key.replace("__", "."): value for key, value in overrides.items()}}
        return "".join(f"{key} = {_plain(value)}\n" for key, value in sorted(figures.items()))

    @property
    def calibration(self) -> str:
        """What cycle counts rest on; starts with "uncalibrated" when no measurement of the chip is public."""
        return self.figures["soc.calibration"]

    @property
    def uncalibrated(self) -> bool:
        return self.calibration.startswith("uncalibrated")

    @property
    def ub_bytes(self) -> int:
        """Unified buffer of one core."""
        return self.figures["sizes.ub"]

    @property
    def vector_cores(self) -> int:
        """Cores a plain vector kernel can use."""
        return self.figures["cores.vector"]

    @property
    def mhz(self) -> float:
        return float(self.figures["clock.mhz"])

    def microseconds(self, cycles: float) -> float:
        """Cycles of the core clock as microseconds."""
        return cycles / self.mhz

    def ddr_bytes_per_cycle(self, write: bool = False) -> float:
        """Peak GM bytes per cycle of all vector cores: the smaller of memory peak and the cores' ports."""
        port = self.figures["rates.ddr_write" if write else "rates.ddr_read"]
        return min(self.figures["rates.ddr_peak_gbps"] * 1e3 / self.mhz, port * self.vector_cores)

    def price(self, key: str) -> dict[str, float]:
        """Price of a call by cost key, as the replay finds it: `Add.f32`, then `Add`, then `default`.

        Returns:
            `per_repeat` (cycles for each 256 bytes), `min` and `latency`, cycles.
        """
        for name in (key, key.split(".")[0], "default"):
            if f"cost.{name}.min" in self.figures:
                fields = ("per_repeat", "min", "latency")
                return {field: self.figures.get(f"cost.{name}.{field}", 0) for field in fields}
        raise KeyError("cost.default.min")


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
        elif key not in NOTES:
            yield prefix + key, value


def variants() -> dict[str, tuple[str, ...]]:
    """Chip variants by family, e.g. {"ascend310p": ("310P3", "310P1")}."""
    return {family: tuple(_document(family).get("variant", {})) for family in contract.socs()}


def _prices(classes: Mapping[str, Any]) -> dict[str, Any]:
    """[cost] by cost key from the classes of instructions.toml."""
    return {
        api: {key: value for key, value in price.items() if key != "apis"}
        for price in classes.values()
        for api in price["apis"]
    }


@cache
def _document(family: str) -> dict[str, Any]:
    folder = paths.source_dir("sim") / "soc"
    instructions, document = (_read(folder / f"{name}.toml") for name in ("instructions", family))
    try:
        return _overlay({"cost": _prices(instructions["class"])}, {"soc": document["soc"], **document})
    except (KeyError, TypeError) as error:
        raise _damaged(folder / f"{family}.toml", f"no entry {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, fault: str) -> check.HybridOpsError:
    return check.refuse(
        "hybrid_ops", path.name, "damaged or missing", got=f"{path} ({fault})", allowed="the file of an intact installation",
        soc=path.stem,
    )  # fmt: skip


def _overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: tables merge by key, a figure with its notes is replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _overlay(merged[key], value) if both and "value" not in value else value
    return merged


def _resolve(name: str) -> tuple[str, str]:
    wanted = name.lower().removeprefix("ascend")
    for family, chips in variants().items():
        default = _document(family)["soc"]["default_variant"]
        match = next(
            (c for c in chips if c.lower() == wanted),
            default if wanted == family.removeprefix("ascend") else None,
        )
        if match is not None:
            return family, match
    known = [*variants(), *(f"Ascend{chip}" for chips in variants().values() for chip in chips)]
    raise check.refuse(
        "hybrid_ops", "soc", "not a known SoC", got=repr(name), allowed=check.words(known), soc="this package"
    )


def _table(family: str, variant: str) -> dict[str, Any]:
    document = _document(family)
    base = {key: part for key, part in document.items() if key != "variant"}
    return _overlay(base, document.get("variant", {}).get(variant, {}))


@cache
def load(name: str) -> Soc:
    """Figures of a chip.

    Args:
        name: a family ("ascend310p", its default variant) or a chip ("Ascend310P1"), in any case.

    Raises:
        HybridOpsError: no such SoC; the text lists families and chips.
    """
    family, variant = _resolve(name)
    figures = dict(_flatten(_table(family, variant)))
    figures["soc.variant"] = variant
    return Soc(family, variant, figures)


def figure(soc: str, name: str) -> dict[str, Any]:
    """One figure as {"value", "source", "confidence"}, by dotted key such as "rates.ddr_read".

    Raises:
        HybridOpsError: unknown chip or figure.
    """
    family, variant = _resolve(soc)
    section, _, key = name.partition(".")
    table = _table(family, variant).get(section, {})
    if key not in table:
        known = check.words(f"{section}.{k}" for k in table) if table else "rates.*, sizes.*, latency.* …"
        raise check.refuse("hybrid_ops", "soc", "no such figure", got=repr(name), allowed=known, soc=soc)
    found = table[key]
    return dict(found) if isinstance(found, dict) else {"value": found, "source": "", "confidence": ""}
