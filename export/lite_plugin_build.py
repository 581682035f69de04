"""Builds the converter plugin that gives MindSpore Lite 2.0.0 a parser for Custom nodes (export/lite_plugin)."""

from __future__ import annotations

from pathlib import Path

import onnx

from hybrid_ops import build, check, contract
from hybrid_ops.export.graph_view import Graph

SOURCES = Path(__file__).with_name("lite_plugin")
INFER_VARIABLE = "HYBRID_OPS_LITE_INFER"
# The plugin calls private symbols; only this release's were looked at.
SUPPORTED = (2, 0)
LIBRARIES = ("mslite_converter_plugin", "mindspore_core", "mindspore_converter")


def plugin(package: Path, *, quiet: bool = True) -> Path:
    """The plugin for the mindspore_lite package in folder `package`, built once into the cache.

    Errors: HybridOpsError when the package has no converter libraries; hybrid_ops.build.BuildError (also when the
    libraries lack a symbol, as those of another release would).
    """
    folder = package / "lib"
    missing = [name for name in LIBRARIES if not (folder / f"lib{name}.so").is_file()]
    if missing:
        raise check.refuse(
            "convert", "plugin", "libraries are missing", got=f"{folder} without {check.words(missing)}",
            allowed="the mindspore_lite 2.0.0 wheel", soc="this machine",
        )  # fmt: skip
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-D_GLIBCXX_USE_CXX11_ABI=0", f"-I{SOURCES}"]
    link = [f"-L{folder}", *(f"-l{name}" for name in LIBRARIES), f"-Wl,-rpath-link,{folder}", "-Wl,-z,defs"]
    return build.compile_shared(
        "lite_custom_plugin", sorted(SOURCES.glob("*.cpp")), flags, link=link, quiet=quiet
    )


def inference(model: onnx.ModelProto) -> str:
    """Value of $HYBRID_OPS_LITE_INFER for the operators in `model`: which wired input each output is like.

    An output is like the input it is updated in place from, else like one with the same axes and dtype column.
    Outputs without such an input end the operator's list: the converter leaves those float32 without a shape.
    """
    entries = {}
    for node in Graph(model).custom_nodes:
        op = contract.by_type(node.type)
        if op is None or node.type in entries:
            continue
        names = [node.names("input_names")[slot] for slot in node.slots()]
        sources = []
        for output in op.outputs:
            like = [
                t.name
                for t in op.inputs
                if t.name in names
                and (t.name == output.inplace or (t.axes == output.axes and t.dtypes == output.dtypes))
            ]
            if not like:
                break
            sources.append(str(names.index(output.inplace if output.inplace in like else like[0])))
        if sources:
            entries[node.type] = ",".join(sources)
    return ";".join(f"{kind}:{indices}" for kind, indices in entries.items())
