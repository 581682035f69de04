"""`hybrid-ops profile --vary`: one case under several values of an attribute, e.g. whether splitting a history pays."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.table import Table

from . import check, contract
from .case import Case

FIXED = ("types", "edits")  # of what makes a case: these are no sizes


def _pair(option: str, text: str, soc: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise check.refuse(
            "profile", option, "not a name and values", got=repr(text), allowed="NAME=VALUE", soc=soc
        )
    return name.strip(), value


def _literal(option: str, name: str, text: str, soc: str) -> Any:
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text.strip(), text.strip()))
    except (ValueError, SyntaxError) as error:
        raise check.refuse(
            "profile", option, f"{name} is no value", got=repr(text), allowed="a Python literal", soc=soc
        ) from error


def resized(chosen: Case, texts: Sequence[str], soc: str) -> Case:
    """The case with other sizes: `texts` are NAME=VALUE of what its maker takes, e.g. "lengths=[4096]".

    Raises:
        HybridOpsError: no such size, or no value.
    """
    sizes = chosen.make.keywords if isinstance(chosen.make, partial) else {}
    known = [n for n in sizes if n not in FIXED]
    changes = {}
    for text in texts:
        name, value = _pair("with", text, soc)
        if name not in known:
            raise check.refuse(
                "profile", "with", "no such size", got=name, allowed=check.words(known), soc=soc
            )
        changes[name] = _literal("with", name, value, soc)
    return replace(chosen, make=partial(chosen.make, **changes)) if changes else chosen


def values_of(op: contract.Op, text: str, soc: str) -> tuple[str, list[Any]]:
    """(attribute, values) of "num_splits=1,2,4".

    Raises:
        HybridOpsError: no such attribute, no values, or one that the attribute cannot have.
    """
    name, value = _pair("vary", text, soc)
    names = [a.name for a in op.attrs]
    if name not in names:
        raise check.refuse(
            "profile", "vary", "no such attribute", got=name, allowed=check.words(names), soc=soc
        )
    values = [_literal("vary", name, part, soc) for part in value.split(",")]
    if len(set(map(repr, values))) < 2:
        raise check.refuse(
            "profile", "vary", "nothing to compare", got=value, allowed="two values or more", soc=soc
        )
    return name, values


def compare(
    measure: Callable[[Mapping[str, Any]], Any], attrs: Mapping[str, Any], name: str, values: Sequence[Any]
) -> tuple[Table, str]:
    """A table of the values, and which is fastest by how much.

    Args:
        measure: from attributes to a profile (`cycles`, `ratio`, `timing`, `soc`, `op`).
        attrs: the other attributes.
        name, values: what varies; speed is told against the first value.
    """
    profiles = [measure({**attrs, name: value}) for value in values]
    first = profiles[0].cycles
    table = Table(
        name, "cycles", f"times as fast as {values[0]}", "cycles / floor", "bound by",
        title=f"{profiles[0].op} on {profiles[0].soc.variant}", title_justify="left",
    )  # fmt: skip
    for value, made in zip(values, profiles, strict=True):
        ratio = "" if made.ratio is None else f"{made.ratio:.2f}"
        table.add_row(
            str(value), f"{made.cycles:,.0f}", f"{first / made.cycles:.2f}", ratio, str(made.timing["bound"])
        )
    best = min(range(len(values)), key=lambda i: profiles[i].cycles)
    if best == 0:
        return table, f"{name}={values[0]} is fastest: no other value pays here"
    gain = first / profiles[best].cycles
    return table, f"{name}={values[best]} is fastest: {gain:.2f} times as fast as {name}={values[0]}"
