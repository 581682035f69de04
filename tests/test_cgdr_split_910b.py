"""The chunk rule's cube path on split cores: when it is chosen, accuracy of the fp32 state, and that a sequence does not
depend on what it is packed with."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_ops import check, compare, dtypes, host, sim
from hybrid_ops.ops import chunk_gated_delta_rule as cgdr

SOC = "ascend910b"


def inputs(lengths, nk=2, nv=4, dk=128, dv=128, state=np.float32, seed=3):
    rng = np.random.default_rng(seed)
    tokens = sum(lengths)
    bf16 = dtypes.NUMPY["bfloat16"]

    def unit(*shape):
        x = rng.standard_normal(shape)
        return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(bf16)

    return {
        "query": unit(tokens, nk, dk),
        "key": unit(tokens, nk, dk),
        "value": rng.standard_normal((tokens, nv, dv)).astype(bf16),
        "beta": rng.random((tokens, nv)).astype(bf16),
        "initial_state": (rng.standard_normal((len(lengths), nv, dv, dk)) * 0.3).astype(state),
        "actual_seq_lengths": np.array(lengths, np.int32),
        "g": -rng.random((tokens, nv)).astype(np.float32),
    }


def plan(arrays):
    specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items()}
    return host.tiling(check.call(cgdr.OP, SOC, specs, {}).op, SOC, specs, {"scale_value": 1.0})


@pytest.mark.parametrize(
    ("lengths", "nv", "key", "blocks"),
    [
        ([64], 4, 2, 2),
        ([64], 5, 2, 3),
        ([16, 16], 4, 2, 4),
        ([64], 64, 2, 20),
        ([15], 4, 0, None),
        ([31, 0], 4, 0, None),
    ],
)
def test_key_and_cores(lengths, nv, key, blocks):
    """A pair of units and a sequence per AI Core; short sequences stay on the vector cores."""
    tiling = plan(inputs(lengths, nk=1, nv=nv))
    assert tiling.tiling_key == key
    if blocks is not None:
        assert tiling.block_dim == blocks and tiling.workspace_bytes > 0


@pytest.mark.parametrize(("dk", "dv", "nv"), [(128, 128, 3), (256, 48, 1), (64, 17, 2)])
def test_sequences_do_not_depend_on_their_neighbours(dk, dv, nv):
    """Packed as alone, bit by bit, twice; the fp32 state within 1e-5 of float64, across chunks and a tail."""
    lengths = [70, 0, 64, 33]
    packed = inputs(lengths, nk=1, nv=nv, dk=dk, dv=dv)
    attrs = {"scale_value": dk**-0.5}
    made = sim.launch(cgdr.OP, packed, attrs, soc=SOC).outputs
    again = sim.launch(cgdr.OP, packed, attrs, soc=SOC, checks="off").outputs
    wanted = cgdr.meaning(**packed, **attrs)
    for name in made:
        compare.same_bits(name, again[name], made[name])
    assert compare.measure("final_state", made["final_state"], wanted["final_state"]).nrmse <= 1e-5
    assert compare.measure("out", made["out"], wanted["out"]).nrmse <= 5e-4
    for b, (first, end) in enumerate(cgdr.spans(packed["actual_seq_lengths"], sum(lengths))):
        if end - first < 16:
            continue
        alone = {
            n: a[first:end] for n, a in packed.items() if n not in ("initial_state", "actual_seq_lengths")
        }
        alone |= {
            "initial_state": packed["initial_state"][b : b + 1],
            "actual_seq_lengths": np.array([end - first], np.int32),
        }
        one = sim.launch(cgdr.OP, alone, attrs, soc=SOC, checks="off").outputs
        compare.same_bits("out", made["out"][first:end], one["out"])
        compare.same_bits("final_state", made["final_state"][b : b + 1], one["final_state"])
