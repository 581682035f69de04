"""Chooses where an operator runs: NumPy reference, simulator, or an NPU with the installed operator package."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from . import build, case, check, dtypes
from .contract import Op

BACKENDS = ("reference", "sim", "npu")


@dataclass(frozen=True)
class Options:
    """How calls of this context run: see `run`."""

    backend: str | None = None
    soc: str | None = None
    checks: str = "off"
    validate: str | None = None


_DEFAULTS = Options()
_options: ContextVar[Options] = ContextVar("hybrid_ops_options", default=_DEFAULTS)


def options() -> Options:
    """The options in force."""
    return _options.get()


@contextlib.contextmanager
def using(**changes: Any) -> Iterator[Options]:
    """Options for every call inside the block (also those made by a torch graph): backend, soc, checks, validate."""
    unknown = set(changes) - set(Options.__dataclass_fields__)
    if unknown:
        allowed = check.words(Options.__dataclass_fields__)
        raise check.refuse(
            "hybrid_ops", "using", "no such option", got=check.words(unknown), allowed=allowed, soc="any SoC"
        )
    token = _options.set(replace(options(), **{n: v for n, v in changes.items() if v is not None}))
    try:
        yield options()
    finally:
        _options.reset(token)


@cache
def cpu_backend() -> str:
    """Backend of CPU tensors: the simulator where kernels can be built or are prebuilt, else the reference."""
    chosen = "sim" if build.has_compiler() or os.environ.get("HYBRID_OPS_PREBUILT") else "reference"
    why = "" if chosen == "sim" else ", no C++ compiler found"
    print(f"hybrid_ops: CPU tensors run on the {chosen} backend{why}", file=sys.stderr)
    return chosen


def run(
    op: str | Op,
    arrays: Mapping[str, np.ndarray | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    backend: str | None = None,
    soc: str | None = None,
    checks: str | None = None,
    validate: str | None = None,
) -> dict[str, np.ndarray]:
    """Run an operator on NumPy arrays and return every output by name; inputs are never modified.

    Args:
        op: name or OpDef type.
        arrays: inputs by name (bfloat16 as ml_dtypes.bfloat16), None or missing for absent optional ones.
        attrs: attribute values; absent ones take their default.
        backend: "reference" or "sim" (an NPU takes torch_npu tensors, see torch_ops); None chooses.
        soc: family or chip; None follows the dtypes: float16 ascend310p, bfloat16 ascend910b.
        checks: "full" or "off", how strictly the simulator watches the kernel.
        validate: "values" also checks what only the data shows (lengths, slots, accepted counts, gates).

    Raises:
        HybridOpsError: refused before anything ran. SimulatorHazard: the kernel broke a rule of the hardware.
    """
    with using(backend=backend, soc=soc, checks=checks, validate=validate) as o:
        specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}
        bound = check.call(op, o.soc, specs, attrs)
        name = bound.op.name
        if o.validate is not None:
            check.choice(name, "validate", o.validate, ("values",), bound.soc)
            case.module(name).check_values(arrays, bound.axes, bound.soc)
        check.choice(name, "checks", o.checks, ("full", "off"), bound.soc)
        chosen = check.choice(name, "backend", o.backend or cpu_backend(), BACKENDS, bound.soc)
        if chosen == "npu":
            raise check.refuse(
                name, "backend", "npu needs NPU tensors", got="CPU data", allowed="reference, sim", soc=bound.soc,
                hint="move the torch tensors to the npu device",
            )  # fmt: skip
        if chosen == "reference":
            given = {t.name: arrays.get(t.name) for t in bound.op.inputs}
            return case.module(name).meaning(**given, **bound.attrs)
        from . import sim

        return sim.launch(bound.op, arrays, bound.attrs, soc=o.soc or bound.soc, checks=o.checks).outputs
