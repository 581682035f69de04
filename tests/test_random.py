"""The recurrent gated delta rule on random shapes, tables, gates and faults, kernel against meaning."""

from __future__ import annotations

from functools import partial

import gated_delta_model
import numpy as np
import pytest

from hybrid_ops import contract, dtypes, selftest
from hybrid_ops.case import Case
from hybrid_ops.ops import recurrent_gated_delta_rule as rgdr

SEEDS = 60
FOREIGN = (-1, -5, 10**6)  # slots outside every pool


def random_case(soc: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    op = contract.load()[rgdr.OP]
    column = int(rng.integers(op.columns(soc)))
    nk = int(rng.choice([1, 1, 2, 3, 4, 7, 16]))
    nv = nk * int(rng.integers(1, 5))
    dk, dv = (int(rng.choice([16, 64, 128, rng.integers(16, 200), rng.integers(16, 513)])) for _ in range(2))
    if nv * dk * dv > 400_000:
        nk = nv = 1
    lengths = [int(n) for n in rng.choice([0, 1, 1, 2, 3, 5, 9], int(rng.integers(1, 6)))]
    lengths[0] = lengths[0] or 2
    columns = int(rng.choice([0, max(lengths) + int(rng.integers(0, 3))]))
    accepted = (
        [int(rng.integers(0, (columns or max(n, 1)) + 2)) for n in lengths] if rng.random() < 0.5 else None
    )
    gates = str(rng.choice(["", "g", "gk", "gk2", "g+gk", "g+gk2"]))
    tokens = max(1, sum(lengths) + int(rng.integers(-2, 3))) if not columns and rng.random() < 0.3 else None
    shared, foreign, reset = rng.random(3) < 0.3

    def edit(arrays, data):
        table = arrays["ssm_state_indices"]
        if shared:
            table[...] = data.integers(0, len(arrays["state"]), table.shape)
        if foreign:
            table.reshape(-1)[data.integers(table.size)] = data.choice([*FOREIGN, len(arrays["state"])])
        if reset and arrays["g"] is not None:
            arrays["g"][data.random(arrays["g"].shape) < 0.2] = -np.inf

    make = partial(
        rgdr._make,
        types={t.name: dtypes.NUMPY[t.dtypes[soc][column]] for t in op.inputs},
        lengths=lengths, nk=nk, nv=nv, dk=dk, dv=dv, gates=gates, tokens=tokens, slots=None, columns=columns,
        accepted=accepted, edits=[edit],
    )  # fmt: skip
    return Case(f"random-{seed}", rgdr.OP, soc, column, make, {"scale_value": dk**-0.5})


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_call(soc, seed):
    found = random_case(soc, seed)
    inputs = found.inputs()
    formulas = (rgdr.meaning, rgdr.second_formula, gated_delta_model.recurrent_gated_delta_rule)
    first, second, third = (formula(**inputs, **found.attrs) for formula in formulas)
    for name in first:
        for other in (second, third):  # the third shares no walk over slots with the others
            np.testing.assert_allclose(
                first[name].astype(float), other[name].astype(float), rtol=2e-2, atol=1e-3
            )
    selftest.hold_case(found, repeat=1)
