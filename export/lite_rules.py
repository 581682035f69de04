"""Checks an ONNX file against what MindSpore Lite's converter and the operator contract demand.

Each rule has an id, a severity (E: conversion or graph build fails; S: converts and is silently wrong; W: works, but),
the converter releases it holds for, and a text that names node and attribute and says how to mend it. Ids: G model,
P attributes as parsed, A inputs and attributes on the way to GE, N names, C the operator's contract, T output types,
O ONNX operators with pitfalls, B operators of CANN.
Sources: mindspore-lite's onnx_model_parser.cc, onnx_custom_parser.cc, attr_to_args_pass.cc and mindspore's
op_adapter.cc (July 2025); what only release 2.9 demands is known from graphs that it converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from hybrid_ops import check, contract
from hybrid_ops.contract import Op
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.onnx_files import PROTOBUF_LIMIT

Version = tuple[int, int]
SEVERITIES = {"E": "conversion fails", "S": "silently wrong", "W": "warning"}
FOREVER: Version = (99, 0)


@dataclass(frozen=True)
class Finding:
    """One broken rule at one place; `node` is "" for the model as a whole."""

    rule: str
    severity: str
    node: str
    attribute: str
    problem: str
    fix: str

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.node or "model", self.attribute) if part)
        return f"{self.severity} {self.rule} {where}: {self.problem}; {self.fix}"


@dataclass(frozen=True)
class Target:
    """What a file is judged for."""

    version: Version
    soc: str
    file: Path | None = None

    @property
    def gaps(self) -> bool:
        """Whether input_index is read (2.7 and later)."""
        return self.version >= (2, 7)

    @property
    def typed(self) -> bool:
        """Whether dtype, output_types and outputs_shape are expected."""
        return self.version >= (2, 9)


Problem = tuple[str, str, str]  # attribute or tensor name, what is wrong, how to mend it
ModelRule = Callable[[Graph, Target], Iterator[tuple[str, str, str, str]]]  # node, then a Problem
NodeRule = Callable[[CustomNode, Graph, Target], Iterator[Problem]]
ContractRule = Callable[[CustomNode, Graph, Target, Op], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """One entry of the rule table."""

    id: str
    severity: str
    summary: str
    scope: str  # "model", "node" or "contract"
    run: Callable[..., Iterator[Any]]
    since: Version = (2, 0)
    until: Version = FOREVER


RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: str, summary: str, *, scope: str, since: Version = (2, 0), until: Version = FOREVER
) -> Callable[[Callable[..., Iterator[Any]]], Callable[..., Iterator[Any]]]:
    """Enter the decorated generator into the table; `until` is the first release the rule does not hold for."""

    def enter(run: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        assert id not in RULES and severity in SEVERITIES
        RULES[id] = Rule(id, severity, summary, scope, run, since, until)
        return run

    return enter


def applicable(version: Version) -> list[Rule]:
    """Rules that hold for a converter release, in table order."""
    _load()
    return [r for r in RULES.values() if r.since <= version < r.until]


def check_model(
    model: onnx.ModelProto, *, version: Version = (2, 9), soc: str = "ascend310p", file: Path | None = None
) -> list[Finding]:
    """All findings in `model` for converter release `version` and operators on `soc`, worst first.

    Reads the model only; weights are not looked at. Raises HybridOpsError for an unknown SoC.
    """
    target = Target(version, check.find_soc(None, soc), file)
    graph = Graph(_typed(model))
    found: list[Finding] = []
    for entry in applicable(version):
        if entry.scope == "model":
            found += [Finding(entry.id, entry.severity, *place) for place in entry.run(graph, target)]
            continue
        for node in graph.custom_nodes:
            op = contract.by_type(node.type)
            if entry.scope == "contract" and op is None:
                continue
            arguments = (node, graph, target) if entry.scope == "node" else (node, graph, target, op)
            found += [
                Finding(entry.id, entry.severity, node.label, *problem) for problem in entry.run(*arguments)
            ]
    order = list(SEVERITIES)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types that follow from its own declarations; as it is when it is too broken for that."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference stops at faults that the rules are there to report
        return model


def check_file(path: str | Path, *, version: Version = (2, 9), soc: str = "ascend310p") -> list[Finding]:
    """`check_model` on a file, its name and data files included. Raises HybridOpsError as `read_model`."""
    path = Path(path)
    return check_model(read_model(path), version=version, soc=soc, file=path)


def read_model(path: Path) -> onnx.ModelProto:
    """The model without external weights; HybridOpsError when the file is none (missing, cut short, other content)."""
    try:
        if path.stat().st_size > PROTOBUF_LIMIT:
            raise ValueError("over 2 GiB, which protobuf cannot read: keep weights as external data")
        model = onnx.load(path, load_external_data=False)
        if not model.ir_version and not model.graph.node:
            raise ValueError("no ir_version and no graph")
    except Exception as error:  # protobuf raises types of its own
        raise check.refuse(
            "check",
            "model",
            "cannot be read",
            got=f"{path} ({error})",
            allowed="an ONNX file of less than 2 GiB",
            soc="any SoC",
        ) from error
    return model


def exit_code(findings: list[Finding]) -> int:
    """0 without findings or with warnings only, 1 when something is silently wrong, 2 when conversion fails."""
    severities = {finding.severity for finding in findings}
    return 2 if "E" in severities else 1 if "S" in severities else 0


def as_json(findings: list[Finding]) -> list[dict[str, str]]:
    """Findings as plain data."""
    return [asdict(finding) for finding in findings]


def _load() -> None:
    """Rule modules enter themselves into the table when imported."""
    from hybrid_ops.export import (  # noqa: F401
        rules_cann,
        rules_contract,
        rules_model,
        rules_node,
        rules_ops,
        rules_types,
    )
