"""P, A, N: one Custom node on its own (onnx_custom_parser.cc, attr_to_args_pass.cc, op_adapter.cc)."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator

from hybrid_ops import contract
from hybrid_ops.export.custom_node import STRUCTURE, find_op
from hybrid_ops.export.graph_view import CustomNode, Graph
from hybrid_ops.export.lite_rules import Problem, Target, rule
from hybrid_ops.export.rules_model import QUANTISATION, tables

CARRIED_KINDS = ("FLOAT", "INT", "STRING", "INTS", "FLOATS", "STRINGS")
# Names that the converter or GE sets or erases itself.
RESERVED = frozenset(
    "reg_op_name pure_input_names func_type func_name uniq_name attr attr_names format OriginalFormat quant_params "
    "quant_type output_shapes output_formats outputs_format infer_done info_path dyn_input_sizes "
    "IsFeatureMapInputList IsFeatureMapOutput no_need_constant_folding missing_optional_attrs primitive_function "
    "empty_input_index".split()
)
# Types that Lite's passes give a meaning of their own.
SPECIAL_TYPES = frozenset({"GraphKernel", "ACL", "MoeInitRouting"})


def kind_fault(node: CustomNode, name: str, wanted: str) -> Iterator[Problem]:
    got = node.kinds.get(name)
    if got is None:
        yield name, f"missing; it must be {wanted}", f"write {name}"
    elif got != wanted:
        yield name, f"is {got}, must be {wanted}", "write it with that kind"


@rule("P1", "E", "type is a non-empty STRING", scope="node")
def type_kind(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    yield from kind_fault(node, "type", "STRING")
    if node.kinds.get("type") == "STRING" and not node.type:
        yield "type", "empty", "write the OpDef's class name"


@rule("P2", "E", "input_names is a non-empty STRINGS", scope="node")
def input_names_kind(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    yield from kind_fault(node, "input_names", "STRINGS")


@rule("P3", "E", "output_names is a non-empty STRINGS", scope="node")
def output_names_kind(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    yield from kind_fault(node, "output_names", "STRINGS")


@rule("P4", "E", "optional_input_names is STRINGS and part of input_names", scope="node")
def optional_names(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    name = "optional_input_names"
    if name not in node.kinds:
        return
    if node.kinds[name] == "STRINGS":
        for optional in node.names(name):
            if optional not in node.names("input_names"):
                yield name, f"{optional!r} is not in input_names", "write the OpDef's names"
    elif node.kinds[name] != "INTS" or node.values[name]:  # an empty list of any kind is P9
        yield name, f"is {node.kinds[name]}, must be STRINGS; all inputs would be required", "write STRINGS"


@rule("P5", "E", "output_num is INT", scope="node")
def output_num_kind(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if "output_num" in node.kinds:
        yield from kind_fault(node, "output_num", "INT")


@rule("P7", "E", "input_index is INTS", scope="node", since=(2, 7))
def input_index_kind(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if "input_index" in node.kinds:
        yield from kind_fault(node, "input_index", "INTS")


@rule("P8", "E", "attributes are numbers, strings or lists of them", scope="node")
def carried(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    for name, kind in node.kinds.items():
        if kind not in CARRIED_KINDS:
            yield name, f"kind {kind} is not carried", f"use one of {', '.join(CARRIED_KINDS)}"


@rule("P9", "S", "no attribute is an empty list", scope="node")
def empty_list(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    for name, kind in node.kinds.items():
        if kind in ("INTS", "FLOATS", "STRINGS") and not node.values[name]:
            effect = (
                "all inputs become absent"
                if name == "input_index"
                else "it arrives as an empty list of int64"
            )
            yield name, f"empty list: {effect}", "leave it out or write the default"


@rule("P10", "E", "no attribute stands twice", scope="node")
def twice(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    counts = collections.Counter(attribute.name for attribute in node.proto.attribute)
    for name, count in counts.items():
        if count > 1:
            yield name, f"stands {count} times; which one holds is not defined", "write it once"


@rule("A1", "S", 'no input is named ""', scope="node")
def empty_input(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    for position, name in enumerate(node.proto.input):
        if not name:
            later = len(node.present) > position
            effect = "later inputs move up one name" if later else "it is dropped"
            yield f"input {position}", f'is "": {effect}', "leave it out and give input_index"


@rule("A3", "S", "no more inputs than input_names", scope="node")
def surplus_inputs(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    names, present = node.names("input_names"), node.present
    if names and len(present) > len(names):
        yield "inputs", f"{len(present)} wired, {len(names)} names: the surplus is ignored", "drop it"


@rule("A6", "E", "input_index is non-negative and strictly increasing", scope="node", since=(2, 7))
def increasing(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    index = node.values.get("input_index") or []
    if node.kinds.get("input_index") != "INTS" or not index:
        return
    if index[0] < 0 or any(a >= b for a, b in itertools.pairwise(index)):
        yield "input_index", f"not strictly increasing from 0: got {index}", "list the slots in order"


@rule("A7", "E", "input_index has one entry per wired input", scope="node", since=(2, 7))
def index_count(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    index = node.values.get("input_index")
    if node.kinds.get("input_index") == "INTS" and index and len(index) != len(node.present):
        yield (
            "input_index",
            f"{len(index)} entries for {len(node.present)} wired inputs",
            "one slot per input",
        )


@rule("A8", "S", "input_index stays inside input_names", scope="node", since=(2, 7))
def index_range(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    names = node.names("input_names")
    if node.kinds.get("input_index") == "INTS" and names:
        beyond = [slot for slot in node.values["input_index"] if slot >= len(names)]
        if beyond:
            yield "input_index", f"slots {beyond} beyond {len(names)} input_names: dropped", "use slots 0.."


@rule("A9b", "E", "absent inputs are declared optional", scope="node")
def absent_optional(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    bound, optional = node.bound(target.gaps), node.names("optional_input_names")
    for name in node.names("input_names"):
        if name not in bound and name not in optional:
            yield "input_names", f"{name} is neither wired nor in optional_input_names", "wire or declare it"


@rule("A9c", "S", "no gap in the inputs before input_index exists", scope="node", until=(2, 7))
def no_gap(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    index = node.values.get("input_index")
    if node.kinds.get("input_index") == "INTS" and list(index or ()) != list(range(len(node.present))):
        yield "input_index", f"not understood before Lite 2.7: got {index}", "wire inputs without a gap"


@rule("A10", "S", "output_num says how many outputs there are", scope="node")
def output_num(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    names, number = node.names("output_names"), node.values.get("output_num")
    if number is None and len(names) > 1:
        yield (
            "output_num",
            f"missing with {len(names)} outputs: consumers get the tuple",
            f"write {len(names)}",
        )
    elif isinstance(number, int) and names and number != len(names):
        yield "output_num", f"got {number}, output_names has {len(names)}", f"write {len(names)}"


@rule("A11", "E", "no more outputs than output_names", scope="node")
def surplus_outputs(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    names, outputs = node.names("output_names"), len(node.proto.output)
    if names and outputs > len(names):
        yield "outputs", f"{outputs} wired, {len(names)} names", "name every output"


@rule("A12", "W", "every named output is wired", scope="node")
def unwired_outputs(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    names, outputs = node.names("output_names"), len(node.proto.output)
    if 0 < outputs < len(names):
        missing = ", ".join(names[outputs:])
        yield "outputs", f"{outputs} wired, {len(names)} names: {missing} goes nowhere", "wire every output"


@rule("A15", "S", "no operator attribute has a name the converter uses", scope="node")
def reserved(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    for name in node.kinds:
        if name in RESERVED:
            hint = "write outputs_shape" if name == "output_shapes" else "rename it"
            yield name, "reserved: the converter overwrites or erases it", hint


@rule("N1", "S", "type is not the name of a built-in operator", scope="node", since=(2, 4))
def shadowed(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if node.type in tables()["adapters"]:
        yield "type", f"{node.type} is a built-in operator of GE and is taken for it", "use another type name"
    elif node.type in SPECIAL_TYPES:
        yield "type", f"{node.type} has a meaning of its own in Lite", "use another type name"


@rule("N4", "E", "names are C identifiers", scope="node")
def identifiers(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    lists = {
        "type": [node.type],
        "input_names": node.names("input_names"),
        "output_names": node.names("output_names"),
    }
    lists["attributes"] = list(node.kinds)
    for attribute, names in lists.items():
        for name in names:
            if name and not re.fullmatch(r"[A-Za-z_]\w*", name):
                yield attribute, f"{name!r} is no C identifier", "use the OpDef's spelling"


@rule("C1", "E", "type is an operator of this package", scope="node")
def known_type(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    if node.type and find_op(node.type) is None:
        known = ", ".join(op.type for op in contract.load().values())
        yield (
            "type",
            f"no OpDef of that name: got {node.type!r}",
            f"allowed {known} (spelling is exact); for another package's operator convert with --force",
        )


@rule("C2", "W", "no attribute unknown to the operator", scope="node")
def unknown_attribute(node: CustomNode, graph: Graph, target: Target) -> Iterator[Problem]:
    op = contract.by_type(node.type)
    if op is None:
        return
    own = {attr.name for attr in op.attrs}
    for name in node.kinds:
        if name not in own and name not in STRUCTURE and name not in RESERVED and name not in QUANTISATION:
            yield name, f"{op.type} has no such attribute; it is sent to GE all the same", "remove it"
