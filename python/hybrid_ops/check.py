"""The one place in Python that words errors, and every check that the contract alone can make.

Form: `op: argument: what is wrong: got …; allowed … on <soc>` (+ hint). Shape, dtype, limit and attribute checks read
no tensor data and run on every call. Checks that must read data live beside the meaning (ops/<op>.py,
`check_values`), run with `validate="values"`, and raise through `refuse` as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

from . import contract
from .contract import Op, Tensor

DEFAULT_SOC = {"float16": "ascend310p", "bfloat16": "ascend910b"}


class HybridOpsError(ValueError):
    """Input refused before anything ran; the text has the form given at the top of this module."""


class Spec(NamedTuple):
    """What a check needs to know of a tensor: shape (ints or symbolic ints) and dtype name."""

    shape: tuple[Any, ...]
    dtype: str


@dataclass(frozen=True)
class Bound:
    """A call that passed: bound axes, dtype column, output specs by name, attributes with defaults filled in."""

    op: Op
    soc: str
    axes: Mapping[str, Any]
    column: int
    outputs: Mapping[str, Spec]
    attrs: Mapping[str, Any]


def shown(value: object, text_of: Callable[[Any], str] = repr, limit: int = 1000) -> str:
    """`value` as a refusal prints it, by `text_of`, in one line of at most `limit` characters."""
    try:
        text = text_of(value)
    except Exception:  # integers of thousands of digits, tensors without data, foreign __repr__
        bits = value.bit_length() if isinstance(value, int) else 0
        text = f"an integer of {bits} bits" if bits else f"a {type(value).__name__}"
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def refuse(
    op: str, argument: str, wrong: str, *, got: object, allowed: object, soc: str, hint: str = ""
) -> HybridOpsError:
    """The error to raise, in the one form."""
    tail = f" ({hint})" if hint else ""
    return HybridOpsError(
        f"{op}: {argument}: {wrong}: got {shown(got, str)}; allowed {allowed} on {soc}{tail}"
    )


def hazards(
    op: str, soc: str, error: str | None, entries: Sequence[Mapping[str, Any]], limit: int = 5
) -> str:
    """Text of a failed simulator launch: the fault that stopped it, then its reports, worst first."""
    order = {"error": 0, "warning": 1, "note": 2}
    ranked = sorted(entries, key=lambda e: order.get(str(e.get("severity")), 3))
    lines = [f"{op}: kernel: {error}" if error else f"{op}: kernel: breaks rules of the hardware"]
    for entry in ranked[:limit]:
        place = f"{entry.get('kernel_file', 'kernel')}:{entry.get('line', '?')}"
        what = entry.get("message") or f"{entry.get('api', 'kernel')} breaks the rule"
        begin, end = entry.get("bytes") or (0, 0)
        where = f"tensor {entry.get('tensor') or '?'} bytes [{begin}, {end})"
        extra = "" if f"[{begin}, {end})" in what or not entry.get("tensor") else f": {where}"
        times = f", {entry['count']} times" if entry.get("count", 1) > 1 else ""
        lines.append(f"{place}: {entry.get('rule')}: {what}{extra}{times}")
    if len(ranked) > limit:
        lines.append(f"and {len(ranked) - limit} more")
    return "\n  ".join(lines) + f" (on {soc})"


def writable(op: str, argument: str, path: Path, soc: str) -> None:
    """Refuse a file that cannot be written, before the work that would fill it; leaves no trace."""
    fault = "is a folder" if path.is_dir() else ""
    if not fault and not path.exists():
        try:
            path.touch(exist_ok=False)
            path.unlink()
        except OSError as error:
            fault = error.strerror or str(error)
    elif not fault and not os.access(path, os.W_OK):
        fault = os.strerror(errno.EACCES)
    if fault:
        raise refuse(
            op, argument, "cannot be written", got=f"{path} ({fault})", allowed="a file in an existing folder", soc=soc
        )  # fmt: skip


def in_place(
    op: Op, name: str, shape: Sequence[int], strides: Sequence[int], soc: str, fault: str = ""
) -> None:
    """Refuse an in-place input that cannot take the update: one element shown at several places, or `fault`."""
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)):
        fault = "one element stands at several places (expanded)"
    if fault:
        raise refuse(
            op.name, name, "cannot be updated in place", got=f"{fault}, shape {_show(tuple(shape))}",
            allowed="writable memory of its own, or functional=True", soc=soc,
        )  # fmt: skip


def words(names: Any) -> str:
    """A list of alternatives as text; "nothing" when empty."""
    return ", ".join(dict.fromkeys(str(n) for n in names)) or "nothing"


def choice(op: str, argument: str, value: Any, allowed: tuple[str, ...], where: str = "every SoC") -> str:
    """`value` if it is one of `allowed`, else the refusal."""
    if value not in allowed:
        raise refuse(op, argument, "not a known choice", got=shown(value), allowed=words(allowed), soc=where)
    return value


def find_op(name: str | Op) -> Op:
    """The operator by name or type; refuses an unknown one."""
    op = contract.find(name)
    if op is None:
        raise refuse(
            "hybrid_ops",
            "op",
            "no such operator",
            got=shown(name),
            allowed=words(contract.load()),
            soc="any SoC",
        )
    return op


def find_soc(op: Op | None, soc: str) -> str:
    """The SoC family of a chip name; refuses an unknown SoC or one the operator is not registered for."""
    name = op.name if op else "hybrid_ops"
    known = op.socs if op else contract.socs()
    found = contract.family(soc) if isinstance(soc, str) else None
    if found is None or found not in known:
        wrong = "not a known SoC" if found is None else f"{name} is not available on this SoC"
        raise refuse(name, "soc", wrong, got=shown(soc), allowed=words(known), soc="this package")
    return found


def default_soc(op: Op, dtypes: Mapping[str, str]) -> str:
    """SoC that a call without `soc=` means: float16 operands ascend310p, bfloat16 operands ascend910b."""
    first = dtypes.get(op.inputs[0].name, "")
    wanted = DEFAULT_SOC.get(first)
    if wanted in op.socs:
        return wanted
    return next((soc for soc in op.socs if first in op.inputs[0].dtypes.get(soc, ())), op.socs[0])


def _elsewhere(op: Op, tensor: Tensor, soc: str, dtype: str) -> str:
    others = [other for other in op.socs if other != soc and dtype in tensor.dtypes.get(other, ())]
    return f"{words(others)} also has {dtype}" if others else ""


def _show(shape: tuple[Any, ...]) -> str:
    return "[" + ", ".join(str(n) for n in shape) + "]"


def _agree(a: Any, b: Any) -> bool:
    """Equality that records a guard instead of deciding when a size is symbolic."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    import torch

    torch._check(a == b)
    return True


def _contrast(tensor: Tensor) -> str:
    """What the note says an input is and is not ("lengths, not offsets"), for a shape that tells of the mistake."""
    clause = tensor.note.split(";")[0]
    return clause if ", not " in clause else ""


def _bind(op: Op, soc: str, tensor: Tensor, spec: Spec, axes: dict[str, Any], first: dict[str, str]) -> None:
    """Bind the axes of one input, refusing rank and size faults."""
    rules = [rule for rule in tensor.axes if len(rule) == len(spec.shape)]
    if not rules:
        raise refuse(
            op.name, tensor.name, "wrong rank",
            got=f"rank {len(spec.shape)} (shape {_show(spec.shape)})", allowed=tensor.text(), soc=soc, hint=_contrast(tensor),
        )  # fmt: skip
    for word, size in zip(rules[0], spec.shape, strict=True):
        axis, solved = contract.axis_from(word, size)
        if axis is not None and axis not in axes and solved is not None:
            axes[axis], first[axis] = solved, tensor.name
            continue
        wanted = contract.size_of(word, axes) if axis is None or axis in axes else word
        if solved is None or not _agree(size, wanted):
            origin = f"{word} of {first[axis]}" if axis in first else word
            raise refuse(
                op.name, tensor.name, f"axis {word} differs from {origin}" if axis in first else f"axis {word} is wrong",
                got=f"{word}={size} (shape {_show(spec.shape)})", allowed=f"{word}={wanted}", soc=soc, hint=_contrast(tensor),
            )  # fmt: skip


def _check_dtypes(op: Op, soc: str, tensors: Mapping[str, Spec]) -> int:
    for tensor in op.inputs:
        spec = tensors.get(tensor.name)
        if spec is not None and spec.dtype not in tensor.dtypes[soc]:
            raise refuse(
                op.name, tensor.name, "dtype not available", got=spec.dtype,
                allowed=words(tensor.dtypes[soc]), soc=soc, hint=_elsewhere(op, tensor, soc, spec.dtype),
            )  # fmt: skip
    dtypes = {name: spec.dtype for name, spec in tensors.items()}
    column = op.column(soc, dtypes)
    if column is None:
        combos = [
            " + ".join(f"{n} {op.input(n).dtypes[soc][i]}" for n in dtypes) for i in range(op.columns(soc))
        ]
        raise refuse(
            op.name, words(dtypes), "dtypes do not go together",
            got=" + ".join(f"{n} {d}" for n, d in dtypes.items()), allowed=" | ".join(combos), soc=soc,
        )  # fmt: skip
    return column


def _hold_64_bits(op: Op, name: str, numbers: Sequence[Any], soc: str) -> None:
    for number in numbers:
        if not -(2**63) <= number < 2**63:
            raise refuse(op.name, name, "does not fit 64 bits", got=number, allowed="int64", soc=soc)


def _limit_names(op: Op, soc: str, tensors: Mapping[str, Spec], attrs: Mapping[str, Any]) -> dict[str, int]:
    """What limits may name besides axes: whole-number attributes, and inputs as 1 (given) or 0."""
    names = {t.name: int(t.name in tensors) for t in op.inputs}
    whole = contract.whole_attrs(op, attrs)
    numbers = {n: int(v) for n, v in whole.items() if isinstance(v, Integral)}
    for name, number in numbers.items():
        _hold_64_bits(op, name, [number], soc)
    return names | numbers


def _check_limits(op: Op, soc: str, values: Mapping[str, Any]) -> None:
    for limit in op.limits:
        letters = contract.names_in(limit.rule)
        if not all(isinstance(values.get(letter), int) for letter in letters):
            continue  # axis of an absent optional input, or symbolic: the value is checked when it is known
        if not contract.evaluate(limit.rule, values):
            named = (
                t.name
                for t in op.inputs
                if any(contract.parse_word(word)[0] == letters[0] for rule in t.axes for word in rule)
            )
            raise refuse(
                op.name, next(named, letters[0]), limit.text or f"{limit.rule} does not hold",
                got=words(f"{letter}={values[letter]}" for letter in letters), allowed=limit.rule, soc=soc,
            )  # fmt: skip


FLOAT32_MAX = 3.4028234663852886e38  # a float attribute travels to the kernel as float32
_ATTR_TYPES: dict[str, tuple[type, ...]] = {
    "float": (Real,), "int": (Integral,), "bool": (bool,), "string": (str,),
    "list_int": (list, tuple), "list_float": (list, tuple),
}  # fmt: skip


def attributes(op: Op, soc: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with defaults filled in; refuses unknown names, wrong types, non-finite floats, integers beyond int64."""
    known = {a.name: a for a in op.attrs}
    for name in attrs:
        if name not in known:
            raise refuse(op.name, name, "not an attribute", got=name, allowed=words(known), soc=soc)
    values = {}
    for attr in op.attrs:
        value = attrs.get(attr.name)
        if value is None:
            if attr.required:
                raise refuse(
                    op.name, attr.name, "required attribute is missing", got=None, allowed=attr.type, soc=soc
                )
            value = attr.default
        legal = isinstance(value, _ATTR_TYPES[attr.type])
        if legal and attr.type != "bool" and isinstance(value, bool):
            legal = False
        if not legal:
            raise refuse(op.name, attr.name, "wrong type", got=shown(value), allowed=attr.type, soc=soc)
        if attr.type == "float" and not abs(value) <= FLOAT32_MAX:
            raise refuse(op.name, attr.name, "not finite", got=value, allowed="a finite float", soc=soc)
        if attr.type in ("int", "list_int"):
            _hold_64_bits(op, attr.name, value if isinstance(value, list | tuple) else [value], soc)
        convert = {"float": float, "int": int}.get(attr.type)  # of NumPy scalars
        values[attr.name] = convert(value) if convert else value
    return values


def call(
    name: str | Op,
    soc: str | None,
    tensors: Mapping[str, Spec | None],
    attrs: Mapping[str, Any] | None = None,
) -> Bound:
    """Check one call against the contract and return what follows from it.

    Args:
        name: operator, by snake_case name or OpDef type.
        soc: chip name; None takes `default_soc`.
        tensors: Spec per input name, None for an absent optional one.
        attrs: attribute values; absent ones take their default.

    Raises:
        HybridOpsError: unknown operator, SoC, argument; missing input; rank, axis, dtype, limit or attribute fault.
    """
    op = find_op(name)
    given = {n: s for n, s in tensors.items() if s is not None}
    soc = find_soc(op, soc or default_soc(op, {n: s.dtype for n, s in given.items()}))
    known = [t.name for t in op.inputs]
    for argument in given:
        if argument not in known:
            raise refuse(op.name, argument, "not an argument", got=argument, allowed=words(known), soc=soc)
    for tensor in op.inputs:
        if tensor.required and tensor.name not in given:
            raise refuse(
                op.name, tensor.name, "required input is missing", got=None,
                allowed=f"{words(tensor.dtypes[soc])} {tensor.text()}", soc=soc,
            )  # fmt: skip
    column = _check_dtypes(op, soc, given)
    axes: dict[str, Any] = {}
    first: dict[str, str] = {}
    for tensor in op.inputs:
        if tensor.name in given:
            _bind(op, soc, tensor, given[tensor.name], axes, first)
    _check_limits(op, soc, _limit_names(op, soc, given, attrs or {}) | axes)
    values = attributes(op, soc, attrs or {})
    shapes = contract.output_shapes(op, contract.whole_attrs(op, values) | axes)
    dtypes = contract.output_dtypes(op, soc, column)
    outputs = {n: Spec(shapes[n], dtypes[n]) for n in shapes}
    return Bound(op, soc, axes, column, outputs, values)


def supported(
    op: str | None = None, soc: str | None = None, dtypes: Mapping[str, str] | None = None
) -> contract.Support | list[dict[str, str]]:
    """What runs where.

    Without arguments: the table of every operator, SoC and dtype combination (list of dicts). With `op` and `soc`: a
    truthy/falsy answer whose `why` is the text a call would raise; `dtypes` maps argument names to dtype names.
    """
    if op is None:
        return contract.support_table()
    try:
        found = find_op(op)
        family = find_soc(found, soc or found.socs[0])
        for argument in dtypes or {}:
            if argument not in [t.name for t in found.inputs]:
                known = words(t.name for t in found.inputs)
                raise refuse(found.name, argument, "not an argument", got=argument, allowed=known, soc=family)
        if dtypes:
            _check_dtypes(found, family, {n: Spec((), d) for n, d in dtypes.items()})
    except HybridOpsError as error:
        return contract.Support(False, str(error))
    return contract.Support(True)
