"""Reads a converter's log back into rule ids: which rule of the checker a message is about, and what to do.

Messages that no rule covers (environment, configuration, disk) get an id of their own:
ENV, CONFIG, DISK, FILE, DATA, OPP (operator package), GE (graph compiler), PLUGIN.
Sources: mindspore-lite's onnx_model_parser.cc, onnx_custom_parser.cc, attr_to_args_pass.cc, mindspore's op_adapter.cc;
the messages of release 2.0.0 were seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from hybrid_ops.export.graph_view import CustomNode
from hybrid_ops.export.lite_rules import Finding

# "[ERROR] LITE(12,7f,tool):2026-01-01-00:00:00.000.000 [file.cc:12] Function] text"
_LINE = re.compile(
    r"^\[(?P<level>ERROR|WARNING|CRITICAL)\] *(?:[^\[\]]*\[(?P<place>[^\]]*)\] *(?P<function>\w+)\] *)?(?P<text>.*)$"
)


@dataclass(frozen=True)
class Known:
    """A message, the rule it breaks, and the remedy; `\\1` in the texts is the pattern's group."""

    pattern: re.Pattern[str]
    rule: str
    problem: str
    fix: str


def _known(pattern: str, rule: str, problem: str, fix: str) -> Known:
    return Known(re.compile(pattern), rule, problem, fix)


# In order: the first that matches wins.
KNOWN = (
    _known(r"modelFile must be \*\.onnx", "G1", "the file name does not end in .onnx", "rename it to *.onnx"),
    _known(r"unsupported onnx data type: ?(\d+)|not support onnx data type (\d+)", "G9", "tensor type number \\1", "use a type the converter knows"),
    _known(r"not support onnx data type (\w+)|OP TYPE: (\w+)", "G3", "no parser for \\1", "export without it, or use a release that has the parser (Custom: 2.4)"),
    _known(r"const tensor repeated", "G4", "an initializer name stands twice", "keep one"),
    _known(r"Output tensor repeated", "G5", "an output name is taken", "rename it"),
    _known(r"onnx graph has no output|Can't find input node", "G6", "a graph output has no producer", "wire it or remove it"),
    _known(r"Cannot find input: ?(\S*)|not find node ?(\S*)", "G7", "a node input has no producer: \\1", "wire it"),
    _known(r"attribute name: type,|attr of type must be not empty", "P1", "type is not a non-empty STRING", "write the operator type"),
    _known(r"attribute name: input_names,|attr of input_names must be", "P2", "input_names is not a non-empty STRINGS", "list every input of the OpDef"),
    _known(r"attribute name: output_names,|attr of output_names must be", "P3", "output_names is not a non-empty STRINGS", "list every output of the OpDef"),
    _known(r"optional_input_name: (\S+) is not in input_names", "P4", "optional input \\1 is not in input_names", "take names from input_names"),
    _known(r"attribute name: output_num,", "P5", "output_num is not INT", "write it as INT"),
    _known(r"ONNX Datatype: ?(\d+) is not supported", "P8", "an attribute has kind \\1", "use numbers, strings or lists of them"),
    _known(r"attribute input_index is invalid|Convert attr to args for node", "A6", "input_index is not increasing", "list the wired slots in order"),
    _known(r"do not support dynamic input", "A9d", "an operator has a variadic input", "use an operator with fixed inputs"),
    _known(r"has no OUTPUT index\(?(\d*)|output_map is smaller than", "A11", "more outputs than output_names", "list every output"),
    _known(r"Unsupported custom attribute type in adaptor.*attr name: ?(\S+)", "A12", "attribute \\1 and those after it are lost", "remove it (dtype before 2.9, quantisation names)"),
    _known(r"(\S+) has no attr|Cannot find operator \[?(\w+)|No parser is registered for Op \[?(\w+)|[Oo]ptype \[(\w+)\] .*not (?:supported|registered)|E[ZE]?3003", "OPP", "the operator package does not offer \\1", "install it on this machine and put it into ASCEND_CUSTOM_OPP_PATH before converting"),
    _known(r"libgraph\.so|Failed to create acl pass|Get ascend path failed|libascendcl", "ENV", "CANN is not there", "source its set_env.sh; the path must contain 'latest'"),
    _known(r"[Dd]ynamic shape is not supported", "CONFIG", "this chip runs no dynamic shape", "static shapes (--static) or gears (--dynamic)"),
    _known(r"Do not support different dynamic_dims|input_shape|dynamic_?[dD]ims|Parse .*[cC]onfig|config file", "CONFIG", "the converter does not take its configuration", "compare the shapes in the .ini with the model's inputs"),
    _known(r"open dynamic library failed|Load plugin lib failed", "PLUGIN", "the converter plugin does not load", "check the path in [registry] plugin_path"),
    _known(r"param proto name: ?(\S+?) is not in param dict", "G16", "output \\1 follows from weights alone; it is folded and cannot be stored", "do not make it an output"),
    _known(r"No space left|Disk quota|File too large|[Ww]rite file (?:head )?failed|Failed to write the mindir|save mindir weight failed|parser save path|file path not exists", "DISK", "the result cannot be written", "free disk space, or another folder"),
    _known(r"Read onnx model file failed|init origin model failed", "FILE", "the model cannot be read", "a whole *.onnx file of less than 2 GiB"),
    _known(r"(?:get|read|load).*external.*(?:fail|error)|External.*(?:fail|not exist)", "DATA", "external data cannot be read", "copy the data files along with the model"),
    _known(r"Convert graph to om failed|Build graph failed|aclgrphBuildModel|E[A-Z]\d{4}", "GE", "the graph compiler refuses the graph", "its log says why: ASCEND_GLOBAL_LOG_LEVEL=1 ASCEND_SLOG_PRINT_TO_STDOUT=1"),
    _known(r"hybrid_ops plugin: (.*)", "PLUGIN", "\\1", "see the checker"),
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """One line of the log: level (ERROR, WARNING, CRITICAL), text without time and address, source place."""

    level: str
    text: str
    place: str


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The log's messages; lines without a level are left out."""
    for line in lines:
        match = _LINE.match(line.strip())
        if match:
            yield Message(match["level"], match["text"].strip(), match["place"] or "")


def findings(lines: Iterable[str], model: onnx.ModelProto | None = None) -> list[Finding]:
    """What the log says is broken, each once, in its order; nodes are named from `model` when it is given.

    Only errors count. Without one that is understood the list is empty: the caller shows `tail`.
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for message in messages(lines):
        if message.level == "WARNING":
            continue
        for known in KNOWN:
            match = known.pattern.search(message.text)
            if not match:
                continue
            group = next((g for g in match.groups() if g), "") if match.re.groups else ""
            problem = known.problem.replace("\\1", group or "it")
            for node in _nodes(known.rule, group, message.text, model):
                entry = Finding(known.rule, "E", node, "", problem, known.fix)
                found.setdefault((known.rule, node, problem), entry)
            break
    return list(found.values())


def _nodes(rule: str, group: str, text: str, model: onnx.ModelProto | None) -> list[str]:
    """Nodes a message is about: those of the operator type it names, or the one whose name stands in it."""
    if model is None:
        return [""]
    if rule == "G3":
        return [node.name for node in model.graph.node if node.op_type == group] or [""]
    named = re.search(r"node[:\s]+(\S+?)[:,.]?(?:\s|$)", text)
    names = {n.name or CustomNode(n, i).label for i, n in enumerate(model.graph.node)}
    return [named[1]] if named and named[1] in names else [""]


def tail(lines: list[str], count: int = 8) -> list[str]:
    """The last error texts of a log, or its last lines when it has none."""
    errors = list(dict.fromkeys(m.text for m in messages(lines) if m.level != "WARNING"))
    return (errors or [line.rstrip() for line in lines if line.strip()])[-count:]
