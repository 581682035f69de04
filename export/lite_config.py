"""Writes the file that converter_lite takes as --configFile: precision, shapes, operator package, plugin.

The converter's reader knows comments only as whole lines that start with "#"; a "#" behind a value becomes part of it.
Dynamic dimensions are given as gears (`ge.dynamicDims`): a 310P runs no truly dynamic shape, the host pads to a gear and
calls Model.resize. Keys: MindSpore Lite's description of [ascend_context] and [acl_build_options].
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from hybrid_ops import check

# [ascend_context] precision_mode -> ge.exec.precision_mode. The converter's own default is enforce_fp16.
PRECISIONS = {
    "enforce_origin": "must_keep_origin_dtype",
    "enforce_fp32": "force_fp32",
    "preferred_fp32": "allow_fp32_to_fp16",
    "enforce_fp16": "force_fp16",
    "preferred_optimal": "allow_mix_precision",
}
DEFAULT_PRECISION = "enforce_origin"
MAX_GEARS = 100
_SOC = "every SoC"
_NAME = re.compile(r"[A-Za-z_]\w*")
_SUM = re.compile(r"(?P<name>[A-Za-z_]\w*) *(?P<sign>[-+*]) *(?P<number>\d+)")


def _refuse(argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
    return check.refuse("convert", argument, wrong, got=got, allowed=allowed, soc=_SOC)


@dataclass(frozen=True)
class Shapes:
    """Input shapes for the converter: name -> dimensions, -1 where `gears` decides.

    `gears`: one tuple per gear with a number for every -1, in the order of the inputs; empty for a static graph.
    `given` says that dimensions were fixed which the model leaves open.
    """

    dims: Mapping[str, tuple[int, ...]]
    gears: tuple[tuple[int, ...], ...] = ()
    given: bool = False

    def flat(self) -> str:
        """`name:1,-1;…`, as the command line and [acl_build_options] take it."""
        return ";".join(f"{name}:{','.join(map(str, dims))}" for name, dims in self.dims.items())

    def bracketed(self) -> str:
        """`name:[1,16];…`, as [ascend_context] takes it."""
        return ";".join(f"{name}:[{','.join(map(str, dims))}]" for name, dims in self.dims.items())


@dataclass(frozen=True)
class LiteConfig:
    """Everything the configuration file says."""

    shapes: Shapes
    precision: str = DEFAULT_PRECISION
    soc_version: str = ""
    opp_installer: str = ""
    plugins: tuple[str, ...] = ()
    ascend: bool = True
    notes: Sequence[str] = field(default=())

    def text(self) -> str:
        """Content of the file. Errors: HybridOpsError for an unknown precision or a value the reader would misread."""
        check.choice("convert", "precision", self.precision, tuple(PRECISIONS))
        sections: dict[str, dict[str, str]] = {}
        if self.ascend:
            context = {"input_format": "ND", "precision_mode": self.precision}
            if not self.shapes.gears:
                context["input_shape"] = self.shapes.bracketed()
            sections["ascend_context"] = context
            if self.shapes.gears:
                sections["acl_build_options"] = {
                    "input_format": "ND",
                    "input_shape": self.shapes.flat(),
                    "ge.dynamicDims": ";".join(",".join(map(str, gear)) for gear in self.shapes.gears),
                    "ge.exec.precision_mode": PRECISIONS[self.precision],
                }
            if self.soc_version:
                sections["acl_init_options"] = {"ge.socVersion": self.soc_version}
            if self.opp_installer:
                sections["acl_option_cfg_param"] = {"custom_opp_path": self.opp_installer}
        if self.plugins:
            sections["registry"] = {"plugin_path": ";".join(self.plugins)}
        lines = [f"# {note}" for note in self.notes]
        for section, entries in sections.items():
            lines.append(f"[{section}]")
            for key, value in entries.items():
                if "\n" in value or "#" in value or value != value.strip():
                    raise _refuse(
                        key, "cannot be written to a converter config", repr(value), "no '#', no line break"
                    )
                lines.append(f"{key}={value}")
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> Path:
        path.write_text(self.text(), encoding="utf-8")
        return path


def model_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | str, ...]]:
    """Dimensions of the graph's inputs; a name ("?" when it has none) where the model leaves them open."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = {}
    for value in model.graph.input:
        if value.name not in weights:
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims
            )
    return shapes


def static_shapes(model: onnx.ModelProto, text: str = "") -> Shapes:
    """Static shapes of `model`; `text` fixes open dimensions: "past=127,past + 1=128" or "mask:1,128;kv:2,1,1,127,64".

    Errors: HybridOpsError naming every input that is still open, an unknown name, or a size the model contradicts.
    """
    shapes = model_shapes(model)
    sizes, whole = _parse_static(text, shapes)
    dims: dict[str, tuple[int, ...]] = {}
    still: list[str] = []
    for name, declared in shapes.items():
        wanted = whole.get(name, declared)
        if len(wanted) != len(declared) or any(
            isinstance(d, int) and d != w for d, w in zip(declared, wanted, strict=False)
        ):
            raise _refuse("static", f"{name} contradicts the model", list(wanted), list(declared))
        fixed = [_solve(d, sizes) if isinstance(d, str) else d for d in wanted]
        if any(isinstance(d, str) for d in fixed):
            still.append(f"{name}:{','.join(map(str, fixed))}")
        dims[name] = tuple(d for d in fixed if isinstance(d, int))
    if still:
        raise _refuse(
            "static", "dimensions are open", check.words(still),
            "a size for each (--static 'name=size,…' or 'input:dims;…'), or gears (--dynamic)",
        )  # fmt: skip
    return Shapes(dims, given=bool(text))


def _solve(dimension: str, sizes: Mapping[str, int]) -> int | str:
    """Size of an open dimension: given, or a sum or product of given ones ("past + 1"); itself when it stays open."""
    if dimension in sizes:
        return sizes[dimension]
    match = _SUM.fullmatch(dimension)
    if match is None or match["name"] not in sizes:
        return dimension
    size, number = sizes[match["name"]], int(match["number"])
    return {"+": size + number, "-": size - number, "*": size * number}[match["sign"]]


def _parse_static(
    text: str, shapes: Mapping[str, tuple[int | str, ...]]
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    sizes: dict[str, int] = {}
    whole: dict[str, tuple[int, ...]] = {}
    symbols = {d for dims in shapes.values() for d in dims if isinstance(d, str)}
    symbols |= {name for symbol in symbols for name in _NAME.findall(symbol)}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        if ":" in part:
            name, _, dims = part.rpartition(":")
            if name not in shapes:
                raise _refuse("static", "no such input", repr(name), check.words(shapes))
            whole[name] = tuple(_size("static", d) for d in dims.split(","))
            continue
        for pair in part.split(","):
            symbol, _, size = (p.strip() for p in pair.rpartition("="))
            if not symbols:
                raise _refuse(
                    "static", "the model has no open dimension", repr(pair), "nothing: its shapes are static"
                )
            if symbol not in symbols:
                raise _refuse("static", "no such open dimension", repr(symbol), check.words(sorted(symbols)))
            sizes[symbol] = _size("static", size)
    return sizes, whole


def dynamic_shapes(model: onnx.ModelProto, gears: str) -> Shapes:
    """Shapes with -1 where the model is open; `gears` is "32,32;512,512": a number per -1, groups apart by ";".

    Errors: HybridOpsError when a gear has another count of numbers, none is given, or the model has no open dimension.
    """
    shapes = model_shapes(model)
    open_places = [
        f"{name}[{axis}]"
        for name, dims in shapes.items()
        for axis, d in enumerate(dims)
        if isinstance(d, str)
    ]
    if not open_places:
        raise _refuse(
            "dynamic", "the model has no open dimension", repr(gears), "nothing: its shapes are static"
        )
    groups = tuple(
        tuple(_size("dynamic", number) for number in group.split(","))
        for group in gears.split(";")
        if group.strip()
    )
    if not 2 <= len(groups) <= MAX_GEARS:
        raise _refuse("dynamic", "number of gears", len(groups), f"2 to {MAX_GEARS}; one is --static")
    for group in groups:
        if len(group) != len(open_places):
            raise _refuse(
                "dynamic", "a gear needs one number per open dimension", list(group),
                f"{len(open_places)} numbers: {check.words(open_places)}",
            )  # fmt: skip
    if len(set(groups)) != len(groups):
        raise _refuse("dynamic", "a gear stands twice", gears, "different gears")
    dims = {name: tuple(d if isinstance(d, int) else -1 for d in dims) for name, dims in shapes.items()}
    return Shapes(dims, groups, given=True)


def _size(argument: str, text: str) -> int:
    text = text.strip()
    if not text.isdigit() or int(text) < 1:
        raise _refuse(argument, "not a size", repr(text), "whole numbers from 1")
    return int(text)
