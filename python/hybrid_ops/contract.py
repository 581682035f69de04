"""The contract of every operator, read from contract.json (recorded from the OpDefs in op_host/*.cpp).

Only facts live here: names, order, dtypes per SoC, axis rules, limits. Nothing in this file words an error;
check.py does. Axis rules are words separated by blanks ("T NV DK"); a word is an axis letter, a number, or an axis
with `+n` / `*n`. The first use of an axis binds it, later uses must agree. Words of outputs may also be products of two
axes ("T*K"), and name attributes that are whole numbers.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

CONTRACT_FILE = Path(__file__).with_name("contract.json")

_WORD = re.compile(
    r"^(?:(?P<number>\d+)|(?P<axis>[A-Za-z_]\w*)(?:(?P<sign>[+*])(?P<figure>\d+)|\*(?P<factor>[A-Za-z_]\w*))?)$"
)


@dataclass(frozen=True)
class Tensor:
    """One input or output: `axes` are alternatives told apart by rank, `dtypes` are parallel columns per SoC."""

    name: str
    axes: tuple[tuple[str, ...], ...]
    dtypes: Mapping[str, tuple[str, ...]]
    required: bool = True
    inplace: str | None = None
    note: str = ""

    def text(self) -> str:
        """The axis rule as users read it, e.g. "[T, NV] or [T, NV, DK]"."""
        return " or ".join("[" + ", ".join(words) + "]" for words in self.axes)


@dataclass(frozen=True)
class Attr:
    """One attribute; `type` is float, int, bool, string or list_int, list_float."""

    name: str
    type: str
    required: bool = False
    default: Any = None
    note: str = ""


@dataclass(frozen=True)
class Limit:
    """A rule over axis letters, int attributes and inputs (1 given, 0 not) that Python and the C++ host side evaluate alike."""

    rule: str
    text: str = ""


_DAMAGED = "hybrid_ops: {}: {}: got {}; allowed the file of an intact installation (a checkout writes it anew with python -m hybrid_ops.host --write)"


class ContractError(ValueError):
    """contract.json cannot be used: the installation is incomplete."""


@dataclass(frozen=True)
class Op:
    """One operator: `type` is the OpDef class, `name` its snake_case form used everywhere else."""

    type: str
    name: str
    summary: str
    socs: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: tuple[Attr, ...] = ()
    limits: tuple[Limit, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False, repr=False)

    def input(self, name: str) -> Tensor:
        return next(t for t in self.inputs if t.name == name)

    @property
    def mutated(self) -> tuple[str, ...]:
        """Inputs that an output of the same name overwrites."""
        return tuple(t.inplace for t in self.outputs if t.inplace)

    def columns(self, soc: str) -> int:
        """How many legal dtype combinations the operator has on `soc` (0: not available there)."""
        return len(self.inputs[0].dtypes.get(soc, ()))

    def column(self, soc: str, dtypes: Mapping[str, str]) -> int | None:
        """Index of the first dtype column on `soc` that agrees with every given dtype, or None."""
        tensors = {t.name: t for t in (*self.outputs, *self.inputs)}
        for i in range(self.columns(soc)):
            if all(tensors[n].dtypes[soc][i] == d for n, d in dtypes.items() if n in tensors):
                return i
        return None

    def widest_column(self, soc: str, name: str, operands: str = "") -> int:
        """Index of the dtype column on `soc` where tensor `name` is widest.

        Of several the first whose first input has dtype `operands`, else the first.
        """
        kinds = next(t.dtypes[soc] for t in (*self.inputs, *self.outputs) if t.name == name)
        bits = [int(kind.lstrip("abcdefghijklmnopqrstuvwxyz")) for kind in kinds]
        widest = [i for i, width in enumerate(bits) if width == max(bits)]
        return next((i for i in widest if self.inputs[0].dtypes[soc][i] == operands), widest[0])


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    return Tensor(
        name=entry["name"],
        axes=tuple(tuple(rule.split()) for rule in entry["axes"]),
        dtypes={soc: tuple(column) for soc, column in entry["dtypes"].items()},
        required=entry.get("required", True),
        inplace=entry.get("inplace") or None,
        note=entry.get("note", ""),
    )


@cache
def load(path: Path = CONTRACT_FILE) -> Mapping[str, Op]:
    """All operators by snake_case name, in the order of the file.

    Raises:
        ContractError: the file is missing, is no JSON, has another schema, or lacks an entry.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        schema = document.get("schema")
        if schema != 1:
            raise ContractError(f"hybrid_ops: {path.name}: schema not understood: got {schema!r}; allowed 1")
        return _operators(document)
    except OSError as error:
        raise ContractError(
            _DAMAGED.format(path.name, "cannot be read", f"{path} ({error.strerror})")
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ContractError):
            raise
        fault = f"{type(error).__name__}: {error}"
        raise ContractError(_DAMAGED.format(path.name, "damaged", f"{path} ({fault})")) from error


def _operators(document: Mapping[str, Any]) -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for op_type, entry in document["ops"].items():
        ops[entry["name"]] = Op(
            type=op_type,
            name=entry["name"],
            summary=entry.get("summary", ""),
            socs=tuple(entry["socs"]),
            inputs=tuple(_tensor(t) for t in entry["inputs"]),
            outputs=tuple(_tensor(t) for t in entry["outputs"]),
            attrs=tuple(
                Attr(a["name"], a["type"], a.get("required", False), a.get("default"), a.get("note", ""))
                for a in entry.get("attrs", ())
            ),
            limits=tuple(Limit(rule["rule"], rule.get("text", "")) for rule in entry.get("limits", ())),
            raw=entry,
        )
    return ops


def by_type(op_type: str) -> Op | None:
    """The operator of an OpDef type, spelled exactly as graphs and GE must spell it; None when there is none."""
    return next((op for op in load().values() if op.type == op_type), None)


def find(op: str | Op) -> Op | None:
    """The operator by snake_case name or OpDef type, None if there is none."""
    if isinstance(op, Op):
        return op
    ops = load()
    return ops.get(op) or next((o for o in ops.values() if o.type == op), None)


def socs() -> tuple[str, ...]:
    """Every SoC that some operator is registered for, as CANN spells it in lower case."""
    return tuple(dict.fromkeys(soc for op in load().values() for soc in op.socs))


def family(soc: str) -> str | None:
    """The SoC family of a chip name: "Ascend310P3" -> "ascend310p"; None for an unknown name."""
    name = soc.lower()
    return next((known for known in socs() if re.fullmatch(re.escape(known) + r"\d?", name)), None)


def parse_word(word: str) -> tuple[str | None, str, int | str]:
    """Split one axis word into (axis or None, "+" or "*", figure); the figure of a product is the other axis."""
    found = _WORD.match(word)
    if not found:
        raise ValueError(
            f"axis rule: not understood: got {word!r}; allowed AXIS, AXIS+n, AXIS*n, AXIS*AXIS or a number"
        )
    if found["number"]:
        return None, "+", int(found["number"])
    if found["factor"]:
        return found["axis"], "*", found["factor"]
    return found["axis"], found["sign"] or "+", int(found["figure"] or 0)


def axes_in(word: str) -> tuple[str, ...]:
    """Axes that a word needs bound."""
    axis, _, figure = parse_word(word)
    return tuple(name for name in (axis, figure) if isinstance(name, str))


def size_of(word: str, axes: Mapping[str, Any]) -> Any:
    """Size that a word stands for once its axes are bound (ints or symbolic ints)."""
    axis, sign, figure = parse_word(word)
    if axis is None:
        return figure
    if isinstance(figure, str):
        return axes[axis] * axes[figure]
    return axes[axis] * figure if sign == "*" else axes[axis] + figure if figure else axes[axis]


def known_size(word: str, axes: Mapping[str, Any]) -> Any:
    """As `size_of`, None while an axis of the word is unbound."""
    return size_of(word, axes) if all(axis in axes for axis in axes_in(word)) else None


def axis_from(word: str, size: Any) -> tuple[str | None, Any]:
    """Solve a word for its axis: ("T", 5) for "T+1" and size 6; None when no whole axis fits, or none alone."""
    axis, sign, figure = parse_word(word)
    if axis is None or not figure:
        return axis, size
    if isinstance(figure, str):
        return axis, None
    if sign == "+":
        return axis, size - figure
    return axis, size // figure if size % figure == 0 else None


def whole_attrs(op: Op, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are whole numbers, which words of outputs and limits may name; absent ones by their default."""
    values = {a.name: attrs.get(a.name) for a in op.attrs if a.type == "int"}
    defaults = {a.name: a.default for a in op.attrs}
    return {
        n: defaults[n] if v is None else v
        for n, v in values.items()
        if v is not None or defaults[n] is not None
    }


def output_shapes(op: Op, axes: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Shape of every output from bound axes and whole attributes."""
    return {t.name: tuple(size_of(word, axes) for word in t.axes[0]) for t in op.outputs}


def output_dtypes(op: Op, soc: str, column: int) -> dict[str, str]:
    """Dtype name of every output for one dtype column."""
    return {t.name: t.dtypes[soc][column] for t in op.outputs}


def inferred_dtype(op: Op, tensor: Tensor, given: Mapping[str, str]) -> str:
    """Dtype of an output as the package's InferDataType says it (op_host/infer.h), "" where an input that decides is unknown.

    It follows the input of its name, else has its one dtype, else follows the first required input with the same columns.
    `given`: input name -> dtype name.
    """
    if any(entry.name == tensor.name for entry in op.inputs):
        return given.get(tensor.name, "")
    kinds = {kind for column in tensor.dtypes.values() for kind in column}
    if len(kinds) == 1:
        return kinds.pop()
    source = next((t.name for t in op.inputs if t.required and t.dtypes == tensor.dtypes), "")
    return given.get(source, "")


_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_UNARY = {ast.Not: operator.not_, ast.USub: operator.neg}
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(rule: str, axes: Mapping[str, Any]) -> Any:
    """Value of a limit expression: axis letters, whole numbers, + - * // %, comparisons, and, or, not.

    x // 0 is 0 and x % 0 is x, as on the C++ side: a limit over an empty axis is a fault of the limit's neighbours.
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression():
                return value(node.body)
            case ast.Constant() if isinstance(node.value, int):
                return node.value
            case ast.Name():
                return axes[node.id]
            case ast.BinOp() if type(node.op) in _BINARY:
                left, right = value(node.left), value(node.right)
                if isinstance(node.op, ast.FloorDiv | ast.Mod) and right == 0:
                    return 0 if isinstance(node.op, ast.FloorDiv) else left
                return _BINARY[type(node.op)](left, right)
            case ast.Compare():
                left = value(node.left)
                for compare, other in zip(node.ops, node.comparators, strict=True):
                    right = value(other)
                    if not _COMPARE[type(compare)](left, right):
                        return False
                    left = right
                return True
            case ast.UnaryOp() if type(node.op) in _UNARY:
                return _UNARY[type(node.op)](value(node.operand))
            case ast.BoolOp():
                results = (value(v) for v in node.values)
                return all(results) if isinstance(node.op, ast.And) else any(results)
        raise ValueError(f"limit {rule!r}: not understood at {ast.dump(node)}")

    return value(_parsed(rule))


@cache
def _parsed(rule: str) -> ast.Expression:
    return ast.parse(rule, mode="eval")


@cache
def names_in(rule: str) -> tuple[str, ...]:
    """Axis letters of a limit expression, in order of appearance."""
    nodes = [n for n in ast.walk(_parsed(rule)) if isinstance(n, ast.Name)]
    return tuple(dict.fromkeys(n.id for n in sorted(nodes, key=lambda n: n.col_offset)))


@dataclass(frozen=True)
class Support:
    """Answer of `supported`: truthy when the combination exists, else `why` says what is missing."""

    ok: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


def support_table() -> list[dict[str, str]]:
    """One row per operator, SoC and dtype column: op, soc and one entry per floating dtype argument."""
    rows = []
    for op in load().values():
        for soc in op.socs:
            for i in range(op.columns(soc)):
                row = {"op": op.name, "soc": soc}
                row.update({t.name: t.dtypes[soc][i] for t in (*op.inputs, *op.outputs)})
                rows.append(row)
    return rows
