"""Builds what MindSpore loads for an operator: the shared library (C++ from a template) and the Python function.

Both are generated from contract.json into the library cache. MindSpore's graph compiler reads the source of every
function that it compiles, so the function must stand in a file and belong to a module that can be imported by name.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2

from . import build, check, contract, host, paths, sim_build
from . import soc as platform
from .contract import Attr, Op

# MindSpore hands std::string over by value and is itself built with the old ABI of libstdc++.
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-fvisibility-inlines-hidden", "-D_GLIBCXX_USE_CXX11_ABI=0"]
TEMPLATES = Path(__file__).with_name("templates")
_KIND = {"float": "f", "int": "i", "bool": "b", "string": "s", "list_int": "I", "list_float": "F"}


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("hybrid_ops"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _attribute(attr: Attr) -> str:
    """How the generated function hands an attribute on: a whole number for a float would arrive as an integer."""
    return f"float({attr.name})" if attr.type == "float" else attr.name


def _write(name: str, suffix: str, text: str) -> Path:
    """A generated source in the cache, named by its hash; written whole or not at all."""
    target = build.cache_dir() / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}{suffix}"
    if not target.is_file():
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{name}", delete=False) as file:
            file.write(text)
        os.replace(file.name, target)
    return target


def output_axes(op: Op) -> list[list[dict[str, int]]] | None:
    """Where each axis of each output comes from: {"input", "dim", "scale", "offset"}, input -1 for a fixed size.

    Only inputs before the first optional one serve (MindSpore leaves absent inputs out of the shapes it passes), and of
    those the ones with a single axis rule. None when an axis cannot be found there: such an operator has static shapes only.
    """
    found: dict[str, tuple[int, int, int]] = {}
    for index, tensor in enumerate(op.inputs):
        if not tensor.required:
            break
        for dim, word in enumerate(tensor.axes[0] if len(tensor.axes) == 1 else ()):
            axis, sign, figure = contract.parse_word(word)
            if axis is not None and isinstance(figure, int) and not (sign == "*" and figure):
                found.setdefault(axis, (index, dim, figure))
    outputs: list[list[dict[str, int]]] = []
    for tensor in op.outputs:
        axes: list[dict[str, int]] = []
        for word in tensor.axes[0]:
            axis, sign, figure = contract.parse_word(word)
            if not isinstance(figure, int):
                return None
            if axis is None:
                axes.append({"input": -1, "dim": 0, "scale": 0, "offset": figure})
                continue
            if axis not in found:
                return None
            index, dim, added = found[axis]
            scale = figure if sign == "*" and figure else 1
            offset = figure if sign == "+" else 0
            axes.append({"input": index, "dim": dim, "scale": scale, "offset": offset - scale * added})
        outputs.append(axes)
    return outputs


def _chips(op: Op) -> list[dict[str, str]]:
    """Every name of a chip that the operator runs on, with its figures as text."""
    rows = []
    for family, variants in platform.variants().items():
        if family not in op.socs:
            continue
        for name in (family, *variants):
            rows.append(
                {
                    "name": name.lower().removeprefix("ascend"),
                    "family": family,
                    "figures": platform.load(name).config(),
                    "tiling": host._chip(name)[1],
                }
            )
    return rows


def _defaults(op: Op) -> list[tuple[str, str]]:
    """Chip that a call without `soc` means, by dtype of the first input."""
    first = op.inputs[0]
    dtypes = dict.fromkeys(d for soc in op.socs for d in first.dtypes[soc])
    return [(d, check.default_soc(op, {first.name: d}).removeprefix("ascend")) for d in dtypes]


def columns(op: Op) -> list[tuple[str, int]]:
    """Every (SoC, dtype column) of an operator."""
    return [(soc, column) for soc in op.socs for column in range(op.columns(soc))]


def _text(op: Op) -> str:
    """C++ source of the operator's library; names the kernels' files, which need not exist yet."""
    rows = [
        {
            "family": soc,
            "dtypes": [t.dtypes[soc][i] for t in op.inputs],
            "kernel": sim_build.compile_kernel(op, soc, i).name,
            "cube": sim_build.compile_kernel(op, soc, i, core="cube").name
            if sim_build.cores_of(op, soc)[0]
            else "",
            "cores": sim_build.cores_by_key(op, soc),
        }
        for soc, i in columns(op)
    ]
    names = [t.name for t in op.inputs]
    outputs = [{"name": t.name, "in_place": names.index(t.inplace) if t.inplace else -1} for t in op.outputs]
    template = _environment().get_template("mindspore_aot.cpp.j2")
    return template.render(
        op=op,
        outputs=outputs,
        attrs=[{"name": a.name, "kind": _KIND[a.type]} for a in op.attrs],
        columns=rows,
        chips=_chips(op),
        defaults=_defaults(op),
        core=sim_build.core_library().name,
        host=host.library_path().name,
        axes=output_axes(op),
    )


def headers() -> list[Path]:
    """What a generated library includes besides the interfaces of simulator and host side."""
    return sorted(TEMPLATES.glob("mindspore_*.h"))


def _compile(op: Op) -> Path:
    sim = paths.source_dir("sim")
    with build.planning():
        source = _write(f"mindspore_{op.name}", ".cpp", _text(op))
    return build.compile_shared(
        f"mindspore_{op.name}",
        [source],
        [*FLAGS, f"-isystem{TEMPLATES}", f"-isystem{sim}"],
        depends=[*headers(), sim / "core" / "abi.h", sim / "host" / "abi.h"],
        link=["-ldl"],
    )


@cache
def library(name: str) -> Path:
    """Where the library of one operator is, or will be once `ensure` has run."""
    try:
        with build.planning():
            return _compile(contract.load()[name])
    except build.BuildError as error:
        raise sim_build.SimulatorError(str(error)) from error


@cache
def ensure(name: str, soc: str, column: int) -> Path:
    """Build whatever one operator needs on one SoC with one dtype column: core, host side, kernel, library.

    They come to stand in one folder, where the library finds them.

    Raises:
        SimulatorError: no compiler, or something does not compile.
    """
    op = contract.load()[name]
    try:
        sim_build.core_library()
        host.library_path()
        sim_build.compile_kernel(op, soc, column)
        if sim_build.cores_of(op, soc)[0]:
            sim_build.compile_kernel(op, soc, column, core="cube")
        built = _compile(op)
    except build.BuildError as error:
        raise sim_build.SimulatorError(str(error)) from error
    if built != library(name):  # MindSpore already holds the other path
        raise sim_build.SimulatorError(
            f"{name}: kernel: sources changed since the import: got {built.name}; allowed {library(name).name} on {soc} "
            "(start Python again)"
        )
    return built


def function(op: Op, target: str, eager: Mapping[str, Any], graph: Mapping[str, Any]) -> Callable[..., Any]:
    """The operator's function for a device target.

    Its body uses a few names. Python finds them in the function's globals (`eager`), the graph compiler in the module of
    that name (`graph`): so graph mode can ask whether a shape is known, which would cost a primitive call in PyNative.
    """
    text = (
        _environment()
        .get_template(f"mindspore_{'ascend' if target == 'Ascend' else 'cpu'}.py.j2")
        .render(op=op, dynamic=output_axes(op) is not None, attribute=_attribute)
    )
    name = f"hybrid_ops_mindspore_{target.lower()}_{op.name}"
    try:
        path = _write(f"mindspore_{target.lower()}_{op.name}", ".py", text)
    except build.BuildError as error:
        raise sim_build.SimulatorError(str(error)) from error
    module = ModuleType(name, f"Names that the graph compiler finds for {op.name}.")
    module.__file__ = str(path)
    vars(module).update(graph)
    sys.modules[name] = module
    names: dict[str, Any] = {"__name__": name, "__file__": str(path), **eager}
    exec(compile(text, str(path), "exec"), names)
    return names[op.name]
