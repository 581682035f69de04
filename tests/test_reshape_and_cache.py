"""The cache operator beyond its case list: random slots bitwise, work split, refusals by text."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import check, compare, host, sim
from hybrid_ops.ops import hybrid_reshape_and_cache as cache

COLUMNS = {
    "310p": ("ascend310p", np.float16),
    "910b-f16": ("ascend910b", np.float16),
    "910b": ("ascend910b", ml_dtypes.bfloat16),
    "910b-f32": ("ascend910b", np.float32),
}


def call(dtype=np.float16, *, slots=(5, 2, 9), heads=2, dims=(32, 16), pages=2, page=16, nz=0, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {
        n: rng.standard_normal((len(slots), heads, d)).astype(dtype)
        for n, d in zip(("key", "value"), dims, strict=True)
    }
    for name, d in zip(("key_cache", "value_cache"), dims, strict=True):
        shape = (pages, heads * d // 16, page, 16) if nz else (pages, page, heads, d)
        arrays[name] = rng.standard_normal(shape).astype(dtype)
    return {**arrays, "slot_mapping": np.array(slots, np.int32)}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("seed", range(12))
def test_random_slots_bitwise(column, seed):
    """Any row size, runs and scattered slots, padding and slots outside the pool."""
    soc, dtype = COLUMNS[column]
    rng = np.random.default_rng([seed, list(COLUMNS).index(column)])
    nz = int(rng.integers(2))
    heads, page = int(rng.integers(1, 4)), 16 * int(rng.integers(1, 4)) if nz else int(rng.integers(1, 40))
    dims = tuple(int(d) * (16 if nz else 1) for d in rng.integers(1, 9 if nz else 70, 2))
    pages = int(rng.integers(4, 9))
    tokens = int(rng.integers(1, min(60, pages * page) + 1))
    pool = np.arange(pages * page) if rng.random() < 0.5 else rng.permutation(pages * page)
    slots = np.roll(pool, int(rng.integers(pages * page)))[:tokens]
    slots[rng.random(tokens) < 0.2] = rng.choice([-1, -77, pages * page, 2**31 - 1])
    arrays = call(dtype, slots=slots, heads=heads, dims=dims, pages=pages, page=page, nz=nz, seed=seed)
    result = sim.launch(cache.OP, arrays, {"cache_mode": nz}, soc=soc)
    assert [h for h in result.hazards if h["severity"] != "note"] == []
    wanted = cache.meaning(**arrays, cache_mode=nz)
    for name, want in wanted.items():
        compare.same_bits(name, result.outputs[name], want)


def test_more_slots_than_are_read_locally(soc):
    """A core with more tokens than its local table reads slots from global memory."""
    count = 40000
    arrays = call(slots=range(count), heads=1, dims=(16, 16), pages=1, page=count)
    result = sim.launch(cache.OP, arrays, soc=soc, checks="off")
    assert result.outputs["key_cache"][0, :, 0].tobytes() == arrays["key"][:, 0].tobytes()
    assert result.outputs["value_cache"][0, :, 0].tobytes() == arrays["value"][:, 0].tobytes()


@pytest.mark.parametrize("tokens, blocks", [(0, 1), (1, 2), (3, 6), (4, 8), (99, 8)])
def test_cores_share_rows(tokens, blocks):
    specs = {n: check.Spec(a.shape, a.dtype.name) for n, a in call(slots=range(tokens), page=64).items()}
    assert host.tiling(cache.OP, "ascend310p", specs, {}).block_dim == blocks


def test_numpy_call_updates_in_place(soc):
    arrays = call()
    wanted = cache.meaning(**arrays)
    assert hybrid_ops.hybrid_reshape_and_cache(**arrays, backend="sim", soc=soc) is None
    assert arrays["key_cache"].tobytes() == wanted["key_cache"].tobytes()
    both = hybrid_ops.hybrid_reshape_and_cache(**call(), backend="sim", soc=soc, functional=True)
    assert [b.tobytes() for b in both] == [w.tobytes() for w in wanted.values()]


REFUSED = {
    "cache_mode": ({}, 2, "cache_mode: not a known layout: got cache_mode=2; allowed 0 <= cache_mode <= 1"),
    "nd-heads": (
        {"key_cache": np.zeros((2, 16, 3, 32), np.float16)}, 0,
        "key_cache: not an ND cache [P, page, H, D]: got K2=3, H=2, K3=32, D=32, cache_mode=0; "
        "allowed K2 == H and K3 == D or cache_mode != 0",
    ),
    "nd-dim": (
        {"value_cache": np.zeros((2, 16, 2, 8), np.float16)}, 0,
        "value_cache: not an ND cache [P, page, H, DV]: got V2=2, H=2, V3=8, DV=16, cache_mode=0; "
        "allowed V2 == H and V3 == DV or cache_mode != 0",
    ),
    "page-sizes": (
        {"value_cache": np.zeros((2, 8, 2, 16), np.float16)}, 0,
        "key_cache: pages of the two caches differ in size: got K1=16, V1=8, cache_mode=0; allowed K1 == V1 or cache_mode != 0",
    ),
    "nz-of-nd": (
        {}, 1,
        "key_cache: not an NZ cache [P, H * D / 16, page, 16]: got K1=16, H=2, D=32, K3=32, cache_mode=1; "
        "allowed K1 * 16 == H * D and K3 == 16 or cache_mode != 1",
    ),
    "nz-page": (
        {"key_cache": np.zeros((2, 4, 8, 16), np.float16), "value_cache": np.zeros((2, 2, 8, 16), np.float16)}, 1,
        "key_cache: NZ pages hold a multiple of 16 tokens: got K2=8, cache_mode=1; allowed K2 % 16 == 0 or cache_mode != 1",
    ),
    "pages": (
        {"value_cache": np.zeros((3, 16, 2, 16), np.float16)}, 0, "value_cache: axis P differs from P of key_cache: "
        "got P=3 (shape [3, 16, 2, 16]); allowed P=2",
    ),
    "slots-number": (
        {"slot_mapping": np.zeros(2, np.int32)}, 0,
        "slot_mapping: axis T differs from T of key: got T=2 (shape [2]); allowed T=3",
    ),
    "slots-dtype": (
        {"slot_mapping": np.zeros(3, np.int64)}, 0, "slot_mapping: dtype not available: got int64; allowed int32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_alike_in_python_and_on_the_host_side(name, soc):
    changes, mode, wanted = REFUSED[name]
    arrays = {**call(), **changes}
    text = f"{cache.OP}: {wanted} on {soc}"
    with pytest.raises(check.HybridOpsError) as caught:
        sim.launch(cache.OP, arrays, {"cache_mode": mode}, soc=soc)
    assert str(caught.value) == text
    specs = {n: check.Spec(a.shape, a.dtype.name) for n, a in arrays.items()}
    with pytest.raises(check.HybridOpsError) as caught:
        host.tiling(cache.OP, soc, specs, {"cache_mode": mode})
    assert text in str(caught.value)


def test_a_pool_below_one_move_is_refused_on_310p_only():
    arrays = call(slots=[1], heads=1, dims=(3, 5), pages=1, page=2)
    with pytest.raises(check.HybridOpsError) as caught:
        sim.launch(cache.OP, arrays, soc="ascend310p")
    assert str(caught.value) == (
        f"{cache.OP}: key_cache: smaller than the least move of this chip: got 12 bytes; allowed 32 bytes or more on ascend310p"
    )
    made = sim.launch(cache.OP, arrays, soc="ascend910b").outputs
    assert made["value_cache"].tobytes() == cache.meaning(**arrays)["value_cache"].tobytes()


@pytest.mark.parametrize(
    "slots, wanted",
    [
        ([5, 32, 9], "slot beyond the pool: got 32 at [1]; allowed 0..31, or -1 for padding"),
        ([5, 2, -2], "slot beyond the pool: got -2 at [2]; allowed 0..31, or -1 for padding"),
        (
            [5, -1, 5],
            "two tokens use one slot: got slot 5 of tokens 0 and 2; allowed a slot of its own for each",
        ),
    ],
)
def test_values_refused(slots, wanted, soc):
    with pytest.raises(check.HybridOpsError) as caught:
        hybrid_ops.hybrid_reshape_and_cache(**call(slots=slots), validate="values", soc=soc)
    assert str(caught.value) == f"{cache.OP}: slot_mapping: {wanted} on {soc}"
    hybrid_ops.hybrid_reshape_and_cache(**call(slots=[-1, -1, 7]), validate="values", soc=soc)
