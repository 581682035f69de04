"""What tests of operators over NZ pages hold them to: the ND operator's bits, one plan per case, refusals before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hybrid_ops import case, check, host, runtime, sim
from hybrid_ops.check import Spec

ATTRS = {"scale_value": 0.1, "causal": True}


def find(op: str, name: str, soc: str) -> case.Case:
    return next(c for c in case.cases(op, soc) if c.id.endswith(f"-{name}"))


def hold_bits(op: str, nd: str, found: case.Case, rows: Mapping[str, np.ndarray]) -> None:
    """`rows`: the caches of the case in ND pages."""
    inputs = found.inputs()
    blocked = sim.launch(op, inputs, found.attrs, soc=found.soc).outputs
    plain = sim.launch(nd, inputs | dict(rows), found.attrs, soc=found.soc).outputs
    assert np.abs(plain["attention_out"].astype(float)).max() > 0.01
    assert all(blocked[n].tobytes() == plain[n].tobytes() for n in plain)


def key(found: case.Case) -> int:
    """The tiling key of a float16 case."""
    specs = {
        n: Spec(a.shape, "float16" if a.dtype.kind == "f" else "int32") for n, a in found.inputs().items()
    }
    attrs = check.call(found.op, found.soc, specs, found.attrs).attrs
    return host.tiling(found.op, found.soc, specs, attrs).tiling_key


def hold_refusal(op: str, soc: str, specs: dict[str, Any], text: str) -> None:
    with pytest.raises(check.HybridOpsError) as caught:
        check.call(op, soc, specs, ATTRS)
    assert str(caught.value).startswith(f"{op}: {text}") and f" on {soc}" in str(caught.value)


def hold_values(found: case.Case) -> None:
    arrays = found.inputs()
    arrays["block_tables"][0, 0] = 99
    with pytest.raises(
        check.HybridOpsError, match=f"{found.op}: block_tables: page outside the pool: got 99"
    ):
        runtime.run(found.op, arrays, found.attrs, soc=found.soc, backend="reference", validate="values")
