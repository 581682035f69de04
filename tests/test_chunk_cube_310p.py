"""The chunk rule's cube path on ascend310p: which calls take it, tails, wide heads, ranges, and the vector path beside it."""

from __future__ import annotations

import numpy as np
import pytest
from test_chunk_gated_delta_rule import call, error, hold, run

from hybrid_ops import check, compare, host
from hybrid_ops.ops import chunk_gated_delta_rule as cgdr

CUBE = 2  # tiling key


def key(arrays: dict[str, np.ndarray]) -> int:
    specs = {n: check.Spec(a.shape, np.dtype(a.dtype).name) for n, a in arrays.items()}
    return host.tiling(cgdr.OP, "ascend310p", specs, {}).tiling_key


def wanted(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return cgdr.meaning(**arrays, scale_value=arrays["query"].shape[-1] ** -0.5)


@pytest.mark.parametrize(("lengths", "shape", "path"), [
    ([16], {}, CUBE), ([40, 0, 8], {}, CUBE), ([15], {}, 0), ([9, 9], {}, 0), ([70], {"dk": 20}, 1), ([70], {"dv": 33}, 1),
    ([70], {"nv": 24}, 0), ([70], {"nv": 32}, CUBE), ([70], {"dk": 256, "dv": 256}, CUBE),
])  # fmt: skip
def test_shapes_choose_the_path(lengths, shape, path):
    assert key(call("310p", lengths, **shape)) == path


@pytest.mark.parametrize(("lengths", "shape"), [
    ([70], {"dk": 256, "dv": 256, "nv": 1}), ([130], {"dk": 256, "dv": 80}), ([65, 63], {"dk": 112, "dv": 240}),
    ([17, 0, 64, 1], {"nk": 16, "nv": 32, "dk": 16, "dv": 16}), ([128, 3], {"nk": 5, "nv": 15, "dk": 32, "dv": 48}),
])  # fmt: skip
def test_heads_and_packed_sequences(lengths, shape):
    arrays = call("310p", lengths, **shape)
    assert key(arrays) == CUBE
    made = run("310p", arrays)
    hold("310p", made, wanted(arrays))
    again = run("310p", arrays)
    for name, array in made.items():
        compare.same_bits(name, again[name], array)


def test_both_paths_agree():
    arrays = call("310p", [66], nk=1, nv=2)
    whole, state, outs = run("310p", arrays), arrays["initial_state"], []
    for begin in range(0, 66, 11):
        part = {n: arrays[n][begin : begin + 11].copy() for n in ("query", "key", "value", "beta", "g")}
        part |= {"initial_state": state, "actual_seq_lengths": np.array([11], np.int32)}
        assert key(part) == 0
        made = run("310p", part)
        state = made["final_state"]
        outs.append(made["out"])
    assert error(whole["out"], np.concatenate(outs)) <= 1e-3
    assert error(whole["final_state"], state) <= 1e-3


@pytest.mark.parametrize("length", [63, 64, 65])
def test_a_full_chunk_has_the_range_of_a_tail(length):
    """States near the end of float16 whose sum with a key leaves it, and gates above 0: as the meaning, at any length."""
    arrays = call("310p", [length], nk=2, nv=2)
    rng = np.random.default_rng(5)
    signs = np.sign(arrays["key"][0].astype(np.float32))[None, :, None, :]
    arrays["initial_state"] = (signs * rng.uniform(1e4, 3e4, (1, 2, 64, 64))).astype(np.float16)
    hold("310p", run("310p", arrays), wanted(arrays))
    rising = call("310p", [length])
    rising["g"][:, 0] = 0.1
    hold("310p", run("310p", rising), wanted(rising))
