"""G: rules on the model as a whole (onnx_model_parser.cc unless said otherwise)."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from onnx import TensorProto

from hybrid_ops.export import cann_ops
from hybrid_ops.export.custom_node import OP_TYPE
from hybrid_ops.export.graph_view import Graph
from hybrid_ops.export.lite_rules import Target, rule

Place = tuple[str, str, str, str]
QUANTISATION = ("scale", "offset", "quant_bit", "Y_scale", "Y_zero_point")
PARSED_TYPES = frozenset(
    {
        "INT8",
        "UINT8",
        "INT16",
        "INT32",
        "UINT32",
        "INT64",
        "UINT64",
        "FLOAT16",
        "FLOAT",
        "DOUBLE",
        "BFLOAT16",
        "BOOL",
    }
)


@cache
def tables() -> dict[str, set[str]]:
    """`ops` of every release, `since.<release>`, `unmapped` and `adapters`, from lite_tables.json."""
    document = json.loads(Path(__file__).with_name("lite_tables.json").read_text(encoding="utf-8"))
    sets = {f"since.{release}": set(names.split()) for release, names in document["parsers_since"].items()}
    return sets | {
        "unmapped": set(document["no_ascend_mapping"].split()),
        "adapters": set(document["ge_adapters"].split()),
    }


def parsed_ops(version: tuple[int, int]) -> set[str]:
    """ONNX operators that the converter of `version` has a parser for."""
    names: set[str] = set()
    for key, ops in tables().items():
        if key.startswith("since.") and tuple(map(int, key[6:].split("."))) <= version:
            names |= ops
    return names


@rule("G1", "E", "the file name ends in .onnx", scope="model")
def suffix(graph: Graph, target: Target) -> Iterator[Place]:
    if target.file is not None and target.file.suffix != ".onnx":
        yield "", "file", f"name ends in {target.file.suffix or 'nothing'!r}", "rename it to *.onnx"


@rule("G2", "S", "opset_import starts with the default domain", scope="model")
def opset_order(graph: Graph, target: Target) -> Iterator[Place]:
    imports = [(entry.domain, entry.version) for entry in graph.model.opset_import]
    if imports and imports[0][0] not in ("", "ai.onnx"):
        yield (
            "",
            "opset_import",
            f"entry 0 is {imports[0][0]!r} version {imports[0][1]}, which is read as the opset of every operator",
            "put the default domain first",
        )


@rule("G3", "E", "every operator has a parser", scope="model")
def parser(graph: Graph, target: Target) -> Iterator[Place]:
    known = parsed_ops(target.version)
    release = ".".join(map(str, target.version))
    for node in graph.proto.node:
        if node.op_type not in known:
            yield (
                node.name,
                "op_type",
                f"{node.op_type} has no parser in Lite {release}",
                "use another formula",
            )


@rule("G4", "E", "initializer names are unique", scope="model")
def initializers(graph: Graph, target: Target) -> Iterator[Place]:
    for name, count in collections.Counter(t.name for t in graph.proto.initializer).items():
        if count > 1:
            yield "", name, f"initializer stands {count} times", "keep one"


@rule("G5", "E", "output names are unique", scope="model")
def outputs_unique(graph: Graph, target: Target) -> Iterator[Place]:
    taken = collections.Counter(
        [*graph.inputs, *(name for name in graph.initializers if name not in graph.inputs)]
    )
    empty = 0
    for node in graph.proto.node:
        for name in node.output:
            empty += not name
            taken[name] += bool(name)
            if name and taken[name] > 1:
                yield node.name, name, "output name is taken by another tensor", "rename it"
    if empty > 1:
        yield "", "outputs", f'{empty} outputs are named ""; the second one repeats the first', "name them"


@rule("G6", "E", "every graph output is produced", scope="model")
def graph_outputs(graph: Graph, target: Target) -> Iterator[Place]:
    if not graph.proto.output:
        yield "", "graph.output", "the graph has no output", "declare one"
    for value in graph.proto.output:
        known = (
            value.name in graph.producers or value.name in graph.inputs or value.name in graph.initializers
        )
        if not known:
            yield "", value.name, "graph output has no producer", "remove it or wire it"


# What no constant folding reaches: no kernel for it, random numbers, subgraphs that read outer tensors.
_UNFOLDED = {"Custom", "If", "Loop", "Scan", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}


@rule("G16", "E", "every graph output depends on a graph input", scope="model")
def constant_outputs(graph: Graph, target: Target) -> Iterator[Place]:
    """Seen in release 2.0.0: what follows from weights alone is folded to a weight, which has no place as an output."""
    for value in graph.proto.output:
        queue, seen = [value.name], set[str]()
        while queue:
            name = queue.pop()
            node = graph.producers.get(name)
            known = node is not None or name in graph.initializers
            if not known or (node is not None and node.op_type in _UNFOLDED):
                break  # a graph input, or a name that another rule is about
            inputs = [n for n in node.input if n and n not in seen] if node is not None else []
            seen.update(inputs)
            queue += inputs
        else:
            yield (
                "",
                value.name,
                "output follows from weights alone; it is folded and cannot be stored",
                "do not make it an output",
            )


@rule("G7", "E", "every node input exists", scope="model")
def node_inputs(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.proto.node:
        for name in node.input:
            known = name in graph.producers or name in graph.inputs or name in graph.initializers
            if name and not known:
                yield node.name, name, "input has no producer", "wire it"


@rule("G8", "W", "nodes have names of their own", scope="model")
def node_names(graph: Graph, target: Target) -> Iterator[Place]:
    names = collections.Counter(node.name for node in graph.proto.node)
    for name, count in names.items():
        if not name:
            yield (
                "",
                "node.name",
                f"{count} nodes have no name; op_attrs and profiles cannot find them",
                "name them",
            )
        elif count > 1:
            yield (
                name,
                "node.name",
                f"{count} nodes share the name; the converter renames them",
                "make it unique",
            )


@rule("G9", "E", "tensor types are ones the converter knows", scope="model")
def tensor_types(graph: Graph, target: Target) -> Iterator[Place]:
    kinds = {t.name: t.data_type for t in graph.proto.initializer}
    for info in [*graph.proto.input, *graph.proto.output, *graph.proto.value_info]:
        kinds.setdefault(info.name, info.type.tensor_type.elem_type)
    for name, kind in kinds.items():
        label = TensorProto.DataType.Name(kind)
        if kind and label not in PARSED_TYPES:
            yield "", name, f"type {label} is not converted", "use another type"


@rule("G10", "S", "a Custom node takes no int64 or double tensor", scope="model")
def narrowed(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.custom_nodes:
        for name in () if cann_ops.find(node.type) else node.present:  # those take either width
            source = name in graph.inputs or graph.constant(name) is not None
            dtype = graph.value(name).dtype
            if source and dtype in ("int64", "float64"):
                small = "int32" if dtype == "int64" else "float32"
                yield node.label, name, f"{dtype} input arrives as {small}", f"declare it {small}"


@rule("G11", "S", "no attribute has a quantisation name", scope="model")
def quantisation(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.proto.node:
        for attribute in node.attribute:
            if attribute.name in QUANTISATION:
                fix = "call it scale_value" if attribute.name == "scale" else "rename it"
                yield (
                    node.name,
                    attribute.name,
                    "reserved: it is read as quantisation data, and attributes after it are lost",
                    fix,
                )


@rule("G12", "E", "operators can be mapped to Ascend", scope="model")
def mapped(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.proto.node:
        if node.op_type in tables()["unmapped"]:
            yield (
                node.name,
                "op_type",
                f"{node.op_type} is parsed but has no Ascend mapping",
                "use another formula",
            )
        elif node.op_type == "OneHot":
            # The 2.9 converter was seen to fail on one; open releases map it only with constant fp32/int `values`.
            yield (
                node.name,
                "op_type",
                "OneHot cannot be mapped for Ascend",
                "use Equal(Range, Expand) or a constant",
            )


@rule("G13", "W", "no data-dependent control flow", scope="model")
def control_flow(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.proto.node:
        if node.op_type in ("If", "Loop", "Scan", "NonZero"):
            yield (
                node.name,
                "op_type",
                f"{node.op_type} decides shapes or flow at run time",
                "export without it",
            )


@rule("G14", "S", "ScatterND has no reduction", scope="model")
def scatter(graph: Graph, target: Target) -> Iterator[Place]:
    for node in graph.proto.node:
        for attribute in node.attribute:
            if (
                node.op_type == "ScatterND"
                and attribute.name == "reduction"
                and attribute.s not in (b"", b"none")
            ):
                yield (
                    node.name,
                    "reduction",
                    f"{attribute.s.decode()!r} is ignored: a plain update",
                    "avoid it",
                )


@rule("G15", "E", "external data are there, whole, below the model's folder", scope="model")
def external_data(graph: Graph, target: Target) -> Iterator[Place]:
    if target.file is None:
        return
    base = target.file.resolve().parent
    for tensor in graph.proto.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        fields = {entry.key: entry.value for entry in tensor.external_data}
        file = base / fields.get("location", "")
        end = int(fields.get("offset", 0)) + int(fields.get("length", 0))
        if not fields.get("location") or not file.resolve().is_relative_to(base):
            yield (
                "",
                tensor.name,
                f"data in {str(file)!r}, outside the model's folder",
                "put the file beside it",
            )
        elif not file.is_file():
            yield "", tensor.name, f"data file {fields['location']!r} is missing", "put the file beside it"
        elif end > (size := file.stat().st_size):
            yield (
                "",
                tensor.name,
                f"data end at byte {end} of {fields['location']!r}, which has {size}",
                "copy the whole file",
            )


@rule("A9e", "S", "nodes of one type carry the same name lists", scope="model")
def same_lists(graph: Graph, target: Target) -> Iterator[Place]:
    first: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for node in graph.custom_nodes:
        for attribute in ("input_names", "output_names"):
            names = node.names(attribute)
            label, known = first.setdefault((node.type, attribute), (node.label, names))
            if names != known:
                yield (
                    node.label,
                    attribute,
                    f"differs from {label} of the same type {node.type}, whose list is used for both: got {names}",
                    f"write {known} on every {OP_TYPE} node of the type",
                )
