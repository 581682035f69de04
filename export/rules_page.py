"""Text of docs/rules.md: every rule of the checker, and the operators that each release converts."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2

from hybrid_ops.export import cann_ops, lite_rules

TITLES = {
    "G": "Model (G)",
    "O": "Operators with pitfalls (O)",
    "P": "Attributes of a Custom node as they are parsed (P)",
    "A": "Inputs, outputs and attributes on the way to GE (A)",
    "N": "Names (N)",
    "C": "Agreement with the operator's contract (C)",
    "T": "Types and shapes of the outputs (T)",
    "B": "Operators of CANN addressed by a Custom node (B)",
}
# What hybrid_ops.export.repair puts right; held by tests/test_rule_table.py.
REPAIRED = frozenset("G2 G4 G8 G10 G11 A1 A10 A16 C2 C4 C5 C10 C12 P9 P10 T1 T2 T3 T6 T7".split())


def releases(rule: lite_rules.Rule) -> str:
    """When a rule holds, in words."""
    since, until = (".".join(map(str, version)) for version in (rule.since, rule.until))
    early, late = rule.since <= (2, 0), rule.until == lite_rules.FOREVER
    if early and late:
        return "all"
    return f"before {until}" if early else f"from {since}" if late else f"{since} to before {until}"


def page(env: jinja2.Environment) -> str:
    """The page, from the templates of `env`."""
    lite_rules.applicable((2, 9))
    rules = list(lite_rules.RULES.values())
    groups = [(title, [r for r in rules if r.id.startswith(letter)]) for letter, title in TITLES.items()]
    assert sum(len(found) for _, found in groups) == len(rules)
    tables = json.loads(Path(__file__).with_name("lite_tables.json").read_text(encoding="utf-8"))
    return env.get_template("rules.md.j2").render(
        count=len(rules),
        current=len(lite_rules.applicable((2, 9))),
        groups=groups,
        releases=releases,
        repaired=REPAIRED,
        source=tables["source"],
        operators=list(tables["parsers_since"].items()),
        unmapped=", ".join(tables["no_ascend_mapping"].split()),
        adapters=len(tables["ge_adapters"].split()),
        cann=", ".join(cann_ops.OPS),
        cann_count=len(cann_ops.OPS),
    )
