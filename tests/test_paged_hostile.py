"""Paged calls given what they cannot take: one form of refusal, never an error of Python's own, never a wrong write."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import host  # noqa: E402

from hybrid_ops import check, contract, paged, runtime, torch_ops  # noqa: E402


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


def text(function, *args, **kwargs) -> str:
    with pytest.raises(check.HybridOpsError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def ints(*values, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


TABLES = torch.tensor([[2, 5], [0, 3], [4, 1]], dtype=torch.int32)
NO_DATA = torch.zeros(3, dtype=torch.int32, device="meta")
SPARSE = torch.sparse_coo_tensor([[0]], [1], (3,), check_invariants=True)


@pytest.mark.parametrize("name", ["tables", "lengths", "sequence_ids", "positions"])
@pytest.mark.parametrize(
    "given",
    [None, 5, "abc", b"ab", [None], [[1], [2, 3]], [[1, [2]]], [True, False], {1: 2}, (x for x in [1]), torch.tensor(3),
     torch.zeros(3, dtype=torch.bfloat16), NO_DATA, SPARSE, [1j], ["1"]],
    ids=lambda given: str(type(given).__name__),
)  # fmt: skip
def test_plan_of_anything(name, given):
    assert text(host, **{name: given}).startswith("paged.HostPlan: ")


def test_ragged_and_missing_lists_are_named():
    assert text(host, positions=[[1], [2, 3]]).startswith(
        "paged.HostPlan: positions: not an array of whole numbers: got list ("
    )
    assert text(host, tables=None) == (
        "paged.HostPlan: tables: not a list of tables: got NoneType; allowed one table per sequence on every SoC"
    )
    given = {"page_size": 4, "pages": 6, "queries": 7, "sequences": 3, "table_width": 2}
    assert text(paged.HostPlan.from_packed, NO_DATA, **given).startswith(
        "paged.HostPlan: words: not an array of whole numbers: got Tensor ("
    )


def shim(**changes):
    pool = torch.zeros(6, 4, 2, 8)
    given = {"query": torch.zeros(3, 4, 8), "key_cache": pool, "value_cache": pool.clone(), "block_tables": TABLES,
             "context_lens": ints(6, 3, 8), **changes}  # fmt: skip
    return paged.paged_attention(**given)


NAMES = ["query", "key_cache", "value_cache", "block_tables", "context_lens", "query_start_loc"]


@pytest.mark.parametrize("validate", [None, "values"])
@pytest.mark.parametrize("name", NAMES)
def test_shim_takes_tensors(name, validate):
    for given in (5, [1, 2], np.zeros((3, 2))):
        assert text(shim, **{name: given}, validate=validate) == (
            f"paged.paged_attention: {name}: not a tensor: got {type(given).__name__}; allowed torch.Tensor on every SoC"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int8])
def test_shim_takes_whole_numbers(dtype):
    """A slot of 1.5 is nobody's slot, one beyond int32 not the slot it wraps to."""
    given = {"block_tables": TABLES, "context_lens": ints(6, 3, 8), "query_start_loc": ints(0, 1, 2, 3)}
    for name, tensor in given.items():
        assert text(shim, **{name: tensor.to(dtype)}) == (
            f"paged.paged_attention: {name}: not whole numbers: got {str(dtype)[6:]}; allowed int32, int64 on every SoC"
        )
    rows, pool = torch.ones(2, 2, 8), torch.zeros(6, 4, 2, 8)
    found = text(paged.reshape_and_cache, rows, rows, pool, pool.clone(), ints(1, 2).to(dtype))
    assert found.startswith("paged.reshape_and_cache: slot_mapping: not whole numbers: got ")
    assert not pool.any()


def test_slots_beyond_int32_are_not_written():
    rows, keys, values = torch.ones(3, 2, 8), torch.zeros(6, 4, 2, 8), torch.zeros(6, 4, 2, 8)
    paged.reshape_and_cache(rows, rows, keys, values, ints(2**32, -(2**32), 5, dtype=torch.int64))
    assert keys[1, 1].all() and keys.sum() == 16 and torch.equal(values, keys)


def test_pages_and_lengths_beyond_int32_do_not_wrap():
    """2^32 + 2 is no page 2: the slots of an unknown page are not seen."""
    keys = torch.randn(6, 4, 2, 8, generator=torch.Generator().manual_seed(0))
    query = torch.ones(1, 4, 8)
    wide = torch.tensor([[2, 2**32 + 5]], dtype=torch.int64)
    got = paged.paged_attention(query, keys, keys, wide, ints(6, dtype=torch.int64))
    plan = paged.DevicePlan.upload(paged.HostPlan(4, 6, [[2]], [4], [0], [3]), query)
    assert torch.equal(got, paged.attention(plan, query, keys, keys, 8**-0.5, True))


@pytest.mark.parametrize("starts", [(1, 1, 2, 3), (0, 2, 1, 3), (0, 1, 2, 4), (-1, 1, 2, 3)])
def test_offsets_are_cumulative(starts):
    assert text(shim, query_start_loc=ints(*starts), validate="values") == (
        f"paged.paged_attention: query_start_loc: not cumulative: got {list(starts)}; "
        "allowed 0 first, never falling, at most 3 on every SoC"
    )
    assert shim(query_start_loc=ints(0, 1, 2, 3), validate="values").shape == (3, 4, 8)


@pytest.mark.parametrize("validate", [None, "values"])
@pytest.mark.parametrize("name", ["block_tables", "context_lens", "query_start_loc"])
def test_shim_takes_one_device(name, validate):
    given = {"block_tables": TABLES, "context_lens": ints(6, 3, 8), "query_start_loc": ints(0, 1, 2, 3)}
    assert text(shim, **{**given, name: given[name].to("meta")}, validate=validate) == (
        f"paged.paged_attention: {name}: other device than query: got meta; allowed cpu on every SoC"
    )


def test_slots_of_refusals():
    call = paged.slots_of
    assert text(call, None, ints(0), ints(1), 4) == (
        "paged.slots_of: block_tables: not a tensor: got NoneType; allowed torch.Tensor on every SoC"
    )
    assert text(call, TABLES[0], ints(0), ints(1), 4) == (
        "paged.slots_of: block_tables: wrong rank: got rank 1; allowed [S, W] on every SoC"
    )
    assert text(call, TABLES, ints(0), ints(1), 0) == (
        "paged.slots_of: page_size: out of range: got 0; allowed 1..4294967295 on every SoC"
    )
    assert text(call, TABLES, torch.tensor(0), ints(1), 4) == (
        "paged.slots_of: sequence_ids: wrong rank: got rank 0; allowed [T] on every SoC"
    )
    assert text(call, TABLES, ints(0, 1), ints(1, 2, 3), 4) == (
        "paged.slots_of: positions: other number than sequence_ids: got 3; allowed 2 on every SoC"
    )
    assert text(call, TABLES, ints(0), ints(1).to("meta"), 4) == (
        "paged.slots_of: positions: other device than block_tables: got meta; allowed cpu on every SoC"
    )
    assert text(call, TABLES, ints(0), ints(1), 4, validate="all") == (
        "paged.slots_of: validate: not a known choice: got 'all'; allowed values on every SoC"
    )


def test_layouts_of_anything():
    assert text(paged.nd_to_nz, [1]) == (
        "paged.nd_to_nz: cache: not a tensor or array: got list; allowed torch.Tensor, numpy.ndarray on every SoC"
    )
    for heads in (None, 1.0, True):
        assert text(paged.nz_to_nd, torch.zeros(1, 1, 16, 16), heads).startswith(
            f"paged.nz_to_nd: heads: not a whole number: got {heads}"
        )


def decode():
    query, pool = torch.ones(1, 4, 8), torch.zeros(6, 4, 2, 8)
    return paged.DevicePlan.upload(paged.HostPlan(4, 6, [[2, 5]], [6], [0], [5]), query), query, pool


@pytest.mark.parametrize("scale", [1e-46, 0.0, -1.0, float("nan"), float("inf"), None, "1", True])
def test_scale_above_zero_in_float32(scale):
    plan, query, pool = decode()
    assert text(paged.attention, plan, query, pool, pool.clone(), scale, True) == (
        f"paged.attention: scale_value: not a finite number above 0: got {scale}; allowed > 0, finite on every SoC"
    )


@pytest.mark.parametrize("name", ["hybrid_paged_attention", "hybrid_moe_gating_top_k"])
def test_both_backends_refuse_a_factor_that_float32_has_not(name):
    tensors, attribute = {
        "hybrid_paged_attention": (
            {"query": np.ones((1, 1, 16), np.float16), "key_cache": np.ones((1, 1, 1, 16), np.float16),
             "value_cache": np.ones((1, 1, 1, 16), np.float16), "sequence_ids": np.zeros(1, np.int32),
             "positions": np.zeros(1, np.int32), "context_lens": np.ones(1, np.int32),
             "block_tables": np.zeros((1, 1), np.int32)}, "scale_value"),
        "hybrid_moe_gating_top_k": ({"x": np.ones((1, 8), np.float16)}, "routed_scaling_factor"),
    }[name]  # fmt: skip
    more = {"causal": True} if name == "hybrid_paged_attention" else {"k": 2}
    for backend in ("reference", "sim"):
        with pytest.raises(check.HybridOpsError, match=f"{name}: {attribute}: not above 0: got "):
            runtime.run(name, tensors, {attribute: 1e-46, **more}, backend=backend, soc="ascend310p")


def test_flags_are_flags():
    plan, query, pool = decode()
    for changes, name in (({"causal": 1}, "causal"), ({"lse": "x"}, "lse")):
        given = {"scale_value": 1.0, "causal": True, **changes}
        assert text(paged.attention, plan, query, pool, pool.clone(), **given) == (
            f"paged.attention: {name}: wrong type: got {changes[name]!r}; allowed True or False on every SoC"
        )


@pytest.mark.parametrize("backend", ["reference", "sim"])
def test_unknown_checks_are_refused_by_every_backend(backend):
    plan, query, pool = decode()
    options = {"backend": backend, "soc": "ascend910b", "checks": "some"}
    assert text(paged.attention, plan, query, pool, pool.clone(), 1.0, True, **options) == (
        "hybrid_paged_attention: checks: not a known choice: got 'some'; allowed full, off on ascend910b"
    )


@pytest.mark.parametrize("mode", [2, -1, "nz", None, True])
def test_append_names_an_unknown_layout(mode):
    plan, _, pool = decode()
    rows = torch.ones(1, 2, 8)
    assert text(paged.append, plan, rows, rows, pool, pool.clone(), cache_mode=mode) == (
        f"paged.append: cache_mode: not a known layout: got {mode!r}; allowed 0 ND, 1 NZ on every SoC"
    )
    assert not pool.any()


def test_everything_works_in_inference_mode():
    """Tensors made there do not count their writes; a plan must, as a changed schedule needs a new one."""
    with torch.inference_mode():
        plan, query, pool = decode()
        want = paged.attention(plan, query, pool, pool.clone(), 1.0, True)
        made = paged.append(plan, torch.ones(1, 2, 8), torch.ones(1, 2, 8), pool, pool.clone())
        assert want.shape == (1, 4, 8) and made.key_cache[5, 1].all()
        plan.words[0] = 0
        assert "metadata changed after upload" in text(plan.inputs)


@pytest.mark.parametrize("name", contract.load())
def test_arguments_of_any_operator_are_tensors(name):
    op = contract.load()[name]
    given = {t.name: np.ones((2, 2), np.float16) for t in op.inputs}
    assert text(torch_ops.call, op, given, {}, functional=True, backend=None) == (
        f"{name}: {op.inputs[0].name}: not a tensor: got ndarray; allowed torch.Tensor on every SoC"
    )
