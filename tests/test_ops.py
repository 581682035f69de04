"""Every operator, case and SoC: meaning against a second formula, then the kernel in the simulator against the meaning."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_ops import case, check, contract, dtypes, runtime, selftest, sim
from hybrid_ops.case import Case

RGDR = "recurrent_gated_delta_rule"


def specs(arrays):
    return {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}


def find(name: str, soc: str) -> Case:
    return next(c for c in case.cases(RGDR, soc) if c.id.endswith(name))


def run(name: str, soc: str, **changes) -> dict[str, np.ndarray]:
    found = find(name, soc)
    return runtime.run(
        RGDR, {**found.inputs(), **changes}, found.attrs, backend="sim", soc=soc, checks="full"
    )


def test_every_soc_has_cases():
    for op in contract.load().values():
        for soc in op.socs:
            columns = {c.column for c in case.cases(op.name, soc)}
            assert columns == set(range(op.columns(soc))), f"{op.name} on {soc}: dtype columns without cases"


def test_meaning_agrees_with_second_formula(op_case):
    inputs = op_case.inputs()
    bound = check.call(op_case.op, op_case.soc, specs(inputs), op_case.attrs)
    assert all(t.dtypes[op_case.soc][op_case.column] == specs(inputs)[t.name].dtype
               for t in bound.op.inputs if t.name in specs(inputs))  # fmt: skip
    module = case.module(op_case.op)
    first, second = (f(**inputs, **op_case.attrs) for f in (module.meaning, module.second_formula))
    for name, spec in bound.outputs.items():
        assert first[name].shape == spec.shape and dtypes.name_of(first[name].dtype) == spec.dtype
        a, b = first[name].astype(float), second[name].astype(float)
        assert (np.isnan(a) == np.isnan(b)).all() or op_case.overflows
        finite = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e4)
        np.testing.assert_allclose(a[finite], b[finite], rtol=2e-2, atol=1e-3)
    if op_case.expect:
        op_case.expect(inputs, first)


def test_kernel_agrees_with_meaning(op_case):
    """Checks full and silent, guards and inputs intact, untouched rows and a second run bitwise equal."""
    selftest.hold_case(op_case)


def test_checks_do_not_change_results(soc):
    found = find("varlen", soc)
    strict, loose = (
        sim.launch(RGDR, found.inputs(), found.attrs, soc=soc, checks=checks).outputs
        for checks in ("full", "off")
    )
    for name in strict:
        assert strict[name].tobytes() == loose[name].tobytes()


def test_one_accepted_token_is_the_default(soc):
    found = find("-accepted-one", soc)
    inputs = found.inputs()
    given = runtime.run(RGDR, inputs, found.attrs, backend="sim", soc=soc)
    absent = runtime.run(RGDR, {**inputs, "num_accepted_tokens": None}, found.attrs, backend="sim", soc=soc)
    assert all(given[n].tobytes() == absent[n].tobytes() for n in given)


def test_flat_and_two_dimensional_tables_agree(soc):
    inputs = find("varlen", soc).inputs()
    lengths, flat = inputs["actual_seq_lengths"], inputs["ssm_state_indices"]
    table = np.full((len(lengths), int(lengths.max())), -1, np.int32)
    for b, start in enumerate(np.cumsum(lengths) - lengths):
        table[b, : lengths[b]] = flat[start : start + lengths[b]]
    one, two = run("varlen", soc), run("varlen", soc, ssm_state_indices=table)
    assert all(one[n].tobytes() == two[n].tobytes() for n in one)


def test_scalar_and_vector_gates_agree(soc):
    inputs = find("-gk-per-head", soc).inputs()
    wide = np.repeat(inputs["gk"][:, :, None], inputs["key"].shape[2], axis=2)
    scalar, vector = run("-gk-per-head", soc), run("-gk-per-head", soc, gk=wide)
    for name in scalar:
        a, b = scalar[name].astype(float), vector[name].astype(float)
        assert np.sqrt(np.mean((a - b) ** 2)) <= 1e-3 * np.sqrt(np.mean(a**2))


def test_zero_gate_is_no_gate(soc):
    zero, none = run("gate-zero", soc), run("gate-zero", soc, g=None)
    for name in zero:
        np.testing.assert_array_equal(zero[name].astype(float), none[name].astype(float))


def test_steps_one_by_one_equal_one_call(soc):
    """Decoding token by token through the pool agrees with one call up to the rounding of the pool in between."""
    found = find("slot-twice", soc)
    inputs = found.inputs()
    inputs["ssm_state_indices"][:] = 1
    whole = runtime.run(RGDR, inputs, found.attrs, backend="sim", soc=soc)
    pool, outs = inputs["state"], []
    for t in range(len(inputs["query"])):
        step = {n: inputs[n][t : t + 1] for n in ("query", "key", "value", "beta", "g", "ssm_state_indices")}
        step |= {"state": pool, "actual_seq_lengths": np.array([1], np.int32)}
        made = runtime.run(RGDR, step, found.attrs, backend="sim", soc=soc)
        pool = made["state"]
        outs.append(made["out"])
    limit = 2e-2 if found.inputs()["state"].dtype == dtypes.NUMPY["bfloat16"] else 3e-3
    for got, want in ((np.concatenate(outs), whole["out"]), (pool, whole["state"])):
        a, b = got.astype(float), want.astype(float)
        assert np.sqrt(np.mean((a - b) ** 2)) <= limit * np.sqrt(np.mean(b**2))


@pytest.mark.parametrize("lengths", [[0], []], ids=["T0-B1", "T0-B0"])
def test_no_tokens(soc, lengths):
    """Nothing to do is either done (empty output, pool untouched) or refused in the usual form."""
    inputs = find("no-gate", soc).inputs()
    empty = {n: inputs[n][:0] for n in ("query", "key", "value", "beta", "ssm_state_indices")}
    arrays = {**inputs, **empty, "actual_seq_lengths": np.array(lengths, np.int32)}
    try:
        made = runtime.run(RGDR, arrays, {}, backend="sim", soc=soc, checks="full")
    except check.HybridOpsError as error:
        assert str(error).startswith(f"{RGDR}: ") and f"on {soc}" in str(error)
        return
    assert made["out"].shape == empty["value"].shape
    assert made["state"].tobytes() == inputs["state"].tobytes()
