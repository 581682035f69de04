"""vLLM-shaped calls: what they mean in terms of a plan, padding, and the reports of others' paged attention."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import close, gathered  # noqa: E402

from hybrid_ops import paged, runtime  # noqa: E402


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


def text(function, *args, **kwargs) -> str:
    with pytest.raises(paged.PagedError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def ints(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def pool(pages=6, page=4, heads=2, dims=(8, 8), seed=0):
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(pages, page, heads, d, generator=made) for d in dims)


TABLES = torch.tensor([[2, 5], [0, -1], [4, 1]], dtype=torch.int32)


def test_decode_is_the_last_token_of_each_sequence():
    keys, values = pool()
    query = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(1))
    out = paged.paged_attention(query, keys, values, TABLES, ints(6, 3, 8), validate="values")
    plan = paged.HostPlan(4, 6, [[2, 5], [0], [4, 1]], [6, 3, 8], [0, 1, 2], [5, 2, 7])
    torch.testing.assert_close(
        out.double(), gathered(plan, query, keys, values, 8**-0.5, True)[0], atol=2e-5, rtol=2e-5
    )


def test_chunked_prefill_and_decode_in_one_call():
    """Sequence 0 brings its last 3 tokens, sequence 1 none, sequence 2 one; two rows of padding."""
    keys, values = pool()
    query = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(1))
    given = (query, keys, values, TABLES, ints(6, 3, 8))
    out = paged.paged_attention(*given, query_start_loc=ints(0, 3, 3, 4), scale_value=0.3, validate="values")
    plan = paged.HostPlan(4, 6, [[2, 5], [0], [4, 1]], [6, 3, 8], [0, 0, 0, 2], [3, 4, 5, 7])
    wanted = gathered(plan, query[:4], keys, values, 0.3, True)[0]
    torch.testing.assert_close(out[:4].double(), wanted, atol=2e-5, rtol=2e-5)
    assert not out[4:].any()


def test_padded_rows_of_a_captured_batch():
    keys, values = pool()
    query = torch.randn(3, 4, 8)
    query[1] = math.nan
    out = paged.paged_attention(query, keys, values, TABLES, ints(6, 0, -1), validate="values")
    assert out[0].any() and torch.isfinite(out[0]).all() and not out[1:].any()


def test_reshape_and_cache_skips_minus_one():
    keys, values = pool()
    before = keys.clone()
    key, value = (torch.randn(3, 2, 8) for _ in range(2))
    assert paged.reshape_and_cache(key, value, keys, values, ints(9, -1, 23)) is None
    assert torch.equal(keys[2, 1], key[0]) and torch.equal(keys[5, 3], key[2])
    keys[2, 1], keys[5, 3] = before[2, 1], before[5, 3]
    assert torch.equal(keys, before)


class Layer(torch.nn.Module):
    """Write, then attend, as a model does."""

    def forward(self, query, key, value, keys, values, lens, starts, slots):
        paged.reshape_and_cache(key, value, keys, values, slots)
        return paged.paged_attention(query, keys, values, TABLES, lens, query_start_loc=starts)


def test_a_call_can_be_exported_and_compiled():
    """No tensor is read on the host; the graphs hold the two operators, and write the caches that they are given."""
    key, value = (torch.randn(4, 2, 8) for _ in range(2))
    given = (torch.randn(4, 4, 8), key, value, *pool(), ints(6, 3, 0), ints(0, 3, 4, 4), ints(11, 20, 21, -1))
    fresh = [t.clone() for t in given]
    want = Layer()(*fresh)
    program = torch.export.export(Layer(), tuple(t.clone() for t in given))
    calls = [str(node.target) for node in program.graph.nodes if "hybrid_ops" in str(node.target)]
    assert len(calls) == 2
    for run in (program.module(), torch.compile(Layer(), backend="aot_eager", fullgraph=True)):
        mine = [t.clone() for t in given]
        assert torch.equal(run(*mine), want) and torch.equal(mine[3], fresh[3])


def test_slots_of_tables():
    ids, positions = ints(0, 0, 1, 1, 2), ints(0, 5, 3, 4, -1)
    assert paged.slots_of(TABLES, ids, positions, 4).tolist() == [8, 21, 3, -1, -1]
    assert paged.slots_of(TABLES, ids[:3], positions[:3], 4, validate="values").tolist() == [8, 21, 3]


def test_slots_beyond_the_tables_are_skipped():
    """Ids and places that no table has are padding of a captured batch; negative ones do not count from the end."""
    ids, positions = ints(3, -1, 0, 2, 0), ints(0, 0, 8, 2**31 - 1, 1)
    assert paged.slots_of(TABLES, ids, positions, 4).tolist() == [-1, -1, -1, -1, 9]
    for empty in (TABLES[:0], TABLES[:, :0]):
        assert paged.slots_of(empty, ids, positions, 4).tolist() == [-1] * 5
    assert paged.slots_of(TABLES, ids[:0], positions[:0], 4).shape == (0,)
    huge = torch.full((1, 1), 2**30, dtype=torch.int32)
    assert paged.slots_of(huge, ints(0), ints(0), 4).tolist() == [-1], "2^32 is no slot 0"


SLOTS = {
    "ids": ((ints(3), ints(0)), "sequence_ids: no such sequence: got 3 at [0]; allowed 0..2, or padding below 0"),
    "place": ((ints(-1, 0), ints(9, 8)), "positions: position beyond the table: got 8 at [1], sequence 0; allowed 0..7"),
    "no-page": (
        (ints(1), ints(4)), "block_tables: no page for a token: got -1 for position 4 of sequence 1; allowed a page of the pool"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOTS)
def test_slots_beyond_the_tables_are_refused_when_read(name):
    given, wanted = SLOTS[name]
    assert (
        text(paged.slots_of, TABLES, *given, 4, validate="values") == f"paged.slots_of: {wanted} on every SoC"
    )


def test_slots_that_int32_does_not_hold_are_refused_when_read():
    huge = torch.full((1, 1), 2**30, dtype=torch.int32)
    assert text(paged.slots_of, huge, ints(0), ints(0), 4, validate="values") == (
        "paged.slots_of: block_tables: more slots than slot_mapping can name: got page 1073741824 of 4 tokens; "
        "allowed slots below 2147483648 on every SoC"
    )


def test_rows_that_lie_in_a_cache_are_refused():
    keys, values = pool()
    before = keys.clone()
    assert text(paged.reshape_and_cache, keys[1, :2], values[0, :2].clone(), keys, values, ints(1, 2)) == (
        "paged.reshape_and_cache: key: shares memory with key_cache: got bytes 256 to 384 of key_cache; "
        "allowed memory of its own on every SoC"
    )
    assert text(
        paged.reshape_and_cache, keys[1, :2].clone(), values[0, :2].clone(), keys, keys, ints(1, 2)
    ) == (
        "paged.reshape_and_cache: value_cache: shares memory with key_cache: got bytes 0 to 1536 of key_cache; "
        "allowed memory of its own on every SoC"
    )
    assert torch.equal(keys, before)


def test_refusals():
    keys, values = pool()
    query = torch.zeros(3, 4, 8)
    call = paged.paged_attention
    lens = ints(6, 3, 8)
    assert text(call, query[:2], keys, values, TABLES, lens) == (
        "paged.paged_attention: query: wrong number of rows: got 2; allowed 3, one per sequence, or query_start_loc on every SoC"
    )
    assert text(call, query, keys, values, TABLES[:2], lens) == (
        "paged.paged_attention: block_tables: does not fit context_lens: got [2, 2] and [3]; allowed [S, W] and [S] on every SoC"
    )
    assert text(call, query, keys, values, TABLES, lens, query_start_loc=ints(0, 1)) == (
        "paged.paged_attention: query_start_loc: wrong shape: got [2]; allowed [4] on every SoC"
    )
    assert text(call, query, keys, values, TABLES, lens, validate="all") == (
        "paged.paged_attention: validate: not a known choice: got 'all'; allowed values on every SoC"
    )
    beyond = TABLES.clone()
    beyond[0, 1] = 6
    assert text(call, query, keys, values, beyond, lens, validate="values") == (
        "paged.HostPlan: tables[0]: page beyond the pool: got 6 at [1]; allowed 0..5 on every SoC"
    )
    assert text(call, query, keys, values, TABLES, ints(6, 5, 8), validate="values").startswith(
        "paged.HostPlan: tables[1][1]: out of range: got -1"
    )
    assert text(call, query, keys, values, TABLES, ints(6, 9, 8), validate="values").startswith(
        "paged.HostPlan: tables[1]"
    )
    assert text(
        paged.reshape_and_cache, query[:, :2], query[:, :2], keys, values, ints(1, 1, 2), validate="values"
    ) == (
        "hybrid_reshape_and_cache: slot_mapping: two tokens use one slot: got slot 1 of tokens 0 and 1; "
        "allowed a slot of its own for each on ascend910b"
    )


# -- faults that users of other packages reported -----------------------------------------------------------------

KERNELS = {
    "310p": {"backend": "sim", "soc": "ascend310p", "checks": "full"},
    "910b": {"backend": "sim", "soc": "ascend910b", "checks": "full"},
    "reference": {"backend": "reference", "soc": "ascend910b"},
}
where = pytest.mark.parametrize("where", KERNELS)


@pytest.mark.parametrize("link", ["https://github.com/Dao-AILab/flash-attention/issues/1745"])
@where
def test_tail_of_the_last_block_may_hold_nan(link, where):
    """PA1: a zero weight times NaN is NaN; slots behind the context are not multiplied at all."""
    cache = torch.tensor([2.0, math.nan, math.nan, math.nan]).half().reshape(1, 4, 1, 1)
    query = torch.ones(1, 1, 1).half()
    out = paged.paged_attention(query, cache, cache.clone(), ints([0]), ints(1), **KERNELS[where])
    assert out.item() == 2.0


@pytest.mark.parametrize("link", ["https://github.com/flashinfer-ai/flashinfer/issues/4484"])
@where
def test_sequence_without_visible_tokens(link, where):
    """PA2: zeros and a log-sum-exp of -inf, and the row beside it as if alone."""
    keys, values = (x.half() for x in pool(pages=2))
    query = torch.randn(2, 4, 8).half()
    plan = paged.DevicePlan.upload(paged.HostPlan(4, 2, [[], [1]], [0, 1], [0, 1], [0, 0]), query)
    out, lse = paged.attention(plan, query, keys, values, 1.0, True, lse=True, **KERNELS[where])
    assert not out[0].any() and lse[0].tolist() == [-math.inf] * 4
    alone = paged.DevicePlan.upload(paged.HostPlan(4, 2, [[1]], [1], [0], [0]), query)
    single = paged.attention(alone, query[1:].contiguous(), keys, values, 1.0, True, **KERNELS[where])
    assert torch.equal(out[1:], single)


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm-ascend/pull/9632"])
@where
def test_head_dim_256(link, where):
    """PA3: full-attention layers of Qwen3.5 and Qwen3-Next."""
    keys, values = (x.half() for x in pool(pages=1, page=16, heads=1, dims=(256, 256)))
    query = torch.randn(1, 2, 256).half()
    out = paged.paged_attention(query, keys, values, ints([0]), ints(3), **KERNELS[where])
    plan = paged.HostPlan(16, 1, [[0]], [3], [0], [2])
    close(out, gathered(plan, query, keys, values, 256**-0.5, True)[0])


@pytest.mark.parametrize("name", ["backend", "soc", "checks"])
@pytest.mark.parametrize("given", [torch.zeros(2), ["sim"], 3])
def test_options_are_words(name, given):
    caches = torch.zeros(2, 4, 1, 16), torch.zeros(2, 4, 1, 16)
    rows = torch.zeros(1, 1, 16), torch.zeros(1, 1, 16)
    with pytest.raises(
        paged.PagedError, match=f"^paged.reshape_and_cache: {name}: wrong type: got .*allowed str or None"
    ):
        paged.reshape_and_cache(*rows, *caches, torch.zeros(1, dtype=torch.int32), **{name: given})
