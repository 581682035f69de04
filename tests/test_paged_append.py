"""New tokens into pages: functional and in place, who keeps what, refusals that leave both caches as they were."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import OWN, gathered, host  # noqa: E402

from hybrid_ops import paged, runtime  # noqa: E402


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


def upload(**changes) -> paged.DevicePlan:
    return paged.DevicePlan.upload(host(OWN, **changes), torch.empty(1))


def rows(plan, heads=2, dims=(5, 7), seed=0):
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(plan.host.queries, heads, d, generator=made) for d in dims)


def caches(plan, heads=2, dims=(5, 7), seed=1):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(plan.host.pages, plan.host.page_size, heads, d, generator=made) for d in dims]


def written(plan, new, cache):
    """The cache with the rows at their slots."""
    made = cache.clone()
    for i, (s, p) in enumerate(
        zip(plan.host.sequence_ids.tolist(), plan.host.positions.tolist(), strict=True)
    ):
        made[int(plan.host.tables[s][p // 4]), p % 4] = new[i]
    return made


def test_rows_go_to_their_slots_and_nothing_else_changes(soc):
    plan = upload()
    dtype = torch.float16 if soc == "ascend310p" else torch.float32
    key, value = (x.to(dtype) for x in rows(plan))
    k, v = (x.to(dtype) for x in caches(plan))
    wanted = written(plan, key, k), written(plan, value, v)
    k, v, report = paged.append(plan, key, value, k, v, backend="sim", soc=soc, checks="full")
    assert torch.equal(k, wanted[0]) and torch.equal(v, wanted[1])
    assert report == (False, False, 0)


def test_a_cache_that_only_the_caller_holds_is_not_copied():
    plan = upload()
    k, v = caches(plan)
    key, value = rows(plan)
    memory = k.data_ptr(), v.data_ptr()
    made = paged.append(plan, key, value, k, v)
    assert (made.key_cache.data_ptr(), made.value_cache.data_ptr()) == memory
    assert made.report == paged.AppendReport(False, False, 0)
    held = {"k": made.key_cache, "v": made.value_cache}
    del made, k, v
    again = paged.append(plan, key, value, held["k"], held["v"])
    assert again.report.copied_bytes == 0


@pytest.mark.parametrize("kind", ["name", "list", "view", "detached", "storage-slice"])
def test_another_holder_keeps_what_it_has(kind):
    plan = upload()
    key, value = rows(plan)
    k, v = caches(plan)
    before = k.clone()
    other = {"name": lambda: k, "list": lambda: [k], "view": lambda: k.view(-1), "detached": lambda: k.detach(),
             "storage-slice": lambda: k[2:]}[kind]()  # fmt: skip
    wanted = written(plan, key, k)
    old = k.data_ptr()
    made = paged.append(plan, key, value, k, v)
    assert made.report == paged.AppendReport(True, False, k.nbytes)
    assert torch.equal(made.key_cache, wanted) and torch.equal(k, before)
    seen = other[0] if kind == "list" else other
    assert seen.untyped_storage().data_ptr() == old
    assert made.value_cache.data_ptr() == v.data_ptr()


def test_in_place_is_seen_by_every_holder():
    plan = upload()
    key, value = rows(plan)
    k, v = caches(plan)
    other, wanted = k.view(-1), written(plan, key, k)
    made = paged.append(plan, key, value, k, v, in_place=True)
    assert made.report == (False, False, 0) and torch.equal(other, wanted.view(-1))


def test_no_queries_never_copy():
    plan = upload(sequence_ids=[], positions=[])
    k, v = caches(plan)
    other = k, v
    made = paged.append(plan, *rows(plan), k, v)
    assert made.report == (False, False, 0)
    assert made.key_cache is other[0] and made.value_cache is other[1]


def test_appended_tokens_are_seen():
    plan = upload()
    key, value = rows(plan)
    k, v = caches(plan)
    k, v, _ = paged.append(plan, key, value, k, v)
    query = torch.randn(4, 4, 5)
    got = paged.attention(plan, query, k, v, 0.4, True)
    torch.testing.assert_close(
        got.double(), gathered(plan.host, query, k, v, 0.4, True)[0], atol=2e-5, rtol=2e-5
    )


def test_latents_and_rotary_keys():
    plan = upload()
    new, cache = rows(plan, 1, (6, 3)), caches(plan, 1, (6, 3))
    wanted = [written(plan, n, c) for n, c in zip(new, cache, strict=True)]
    made = paged.append(plan, *new, *cache, in_place=True)
    assert torch.equal(made.key_cache, wanted[0]) and torch.equal(made.value_cache, wanted[1])


@pytest.mark.parametrize("page", [16, 64, 128])
def test_nz_equals_nd(page, soc):
    plan = paged.DevicePlan.upload(
        paged.HostPlan(page, 4, [[3, 1], [2]], [page + 2, 3], [0, 0, 0, 1], [page - 1, page, page + 1, 2]),
        torch.empty(1),
    )
    made = torch.Generator().manual_seed(page)
    key, value = (torch.randn(4, 2, 64, generator=made).half() for _ in range(2))
    k, v = (torch.randn(4, page, 2, 64, generator=made).half() for _ in range(2))
    options = {"backend": "sim", "soc": soc, "checks": "full"}
    nz = paged.append(plan, key, value, paged.nd_to_nz(k), paged.nd_to_nz(v), cache_mode=1, **options)
    nd = paged.append(plan, key, value, k, v, **options)
    for one, other in zip(nz[:2], nd[:2], strict=True):
        assert torch.equal(paged.nz_to_nd(one, 2), other)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "int8"])
def test_layouts_lose_nothing(kind):
    made = torch.randint(-100, 100, (3, 32, 2, 24), generator=torch.Generator().manual_seed(0))
    cache = made.to(getattr(torch, kind))
    nz = paged.nd_to_nz(cache)
    assert nz.shape == (3, 3, 32, 16)
    c = 1 * 24 + 20  # head 1, element 20
    assert nz[2, c // 16, 5, c % 16] == cache[2, 5, 1, 20]
    assert torch.equal(paged.nz_to_nd(nz, 2), cache)
    array = made.numpy()
    assert (paged.nz_to_nd(paged.nd_to_nz(array), 2) == array).all()


def test_layout_refusals():
    def text(function, *args):
        with pytest.raises(paged.PagedError) as caught:
            function(*args)
        return str(caught.value)

    assert text(paged.nd_to_nz, torch.zeros(2, 3, 4)) == (
        "paged.nd_to_nz: cache: wrong rank: got rank 3; allowed [P, page, H, D] on every SoC"
    )
    assert text(paged.nd_to_nz, torch.zeros(2, 3, 3, 5)) == (
        "paged.nd_to_nz: cache: H * D is not a multiple of 16: got 3 * 5; allowed a multiple of 16 on every SoC"
    )
    assert text(paged.nz_to_nd, torch.zeros(2, 3, 4, 8), 1) == (
        "paged.nz_to_nd: cache: not an NZ cache: got shape [2, 3, 4, 8]; allowed [P, H * D / 16, page, 16] on every SoC"
    )
    assert text(paged.nz_to_nd, torch.zeros(2, 3, 4, 16), 5) == (
        "paged.nz_to_nd: heads: does not divide H * D: got 5; allowed a divisor of 48 on every SoC"
    )


# -- refusals -----------------------------------------------------------------------------------------------------

FAULTS = {
    "empty-sequence": ({"lengths": [0, 6]}, {}, "paged.append: lengths: write to a sequence of length 0: "),
    "shared-prefix": ({"tables": [[4], [0, 4]]}, {}, "paged.append: tables: write to a shared prefix: "),
    "one-slot-twice": ({"positions": [0, 2, 2, 5]}, {}, "paged.append: positions: two queries use one slot: "),
    "rows": (
        {}, {"key": lambda k: k[:2]}, "paged.append: key: other query count than the plan: got 2; allowed 4 on every SoC"
    ),
    "pages": (
        {}, {"value_cache": lambda v: v[:4]},
        "paged.append: value_cache: other number of pages than the plan: got 4; allowed 5 on every SoC",
    ),
    "page-size": (
        {}, {"key_cache": lambda k: k[:, :3].contiguous()},
        "paged.append: key_cache: other page_size than the plan: got 3; allowed 4 on every SoC",
    ),
    "layout": (
        {}, {"key_cache": lambda k: torch.zeros(5, 4, 3, 5)},
        "hybrid_reshape_and_cache: key_cache: not an ND cache [P, page, H, D]: "
        "got K2=3, H=2, K3=5, D=5, cache_mode=0; allowed K2 == H and K3 == D or cache_mode != 0 on ascend910b",
    ),
    "dtype": (
        {}, {"value_cache": lambda v: v.half()}, "hybrid_reshape_and_cache: key, value, key_cache, value_cache, slot_mapping: "
        "dtypes do not go together",
    ),
    "strides": (
        {}, {"key": lambda k: k.transpose(0, 1).contiguous().transpose(0, 1)},
        "paged.append: key: not contiguous: got strides [5, 20, 1]; allowed contiguous memory on every SoC",
    ),
}  # fmt: skip


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_refused_and_both_caches_untouched(name, in_place):
    changes, edits, wanted = FAULTS[name]
    plan = upload(**changes)
    given = dict(zip(("key", "value", "key_cache", "value_cache"), (*rows(plan), *caches(plan)), strict=True))
    for argument, edit in edits.items():
        given[argument] = edit(given[argument])
    before = given["key_cache"].clone(), given["value_cache"].clone()
    with pytest.raises(paged.PagedError) as caught:
        paged.append(plan, **given, in_place=in_place)
    assert str(caught.value).startswith(wanted)
    assert torch.equal(given["key_cache"], before[0]) and torch.equal(given["value_cache"], before[1])


def test_caches_of_one_memory_are_refused():
    plan = upload()
    both = torch.zeros(2, 5, 4, 2, 5)
    key, _ = rows(plan)
    with pytest.raises(paged.PagedError) as caught:
        paged.append(plan, key, key, both[0], both[0], in_place=True)
    assert str(caught.value) == (
        "paged.append: value_cache: shares memory with key_cache: got bytes 0 to 800 of key_cache; "
        "allowed memory of its own on every SoC"
    )
    made = paged.append(plan, key, key, both[0], both[1], in_place=True)
    assert made.report.copied_bytes == 0 and torch.equal(both[0], both[1]) and both.any()


def test_rows_that_lie_in_a_cache_are_refused():
    """What is read would be what was just written; a copied cache, or the other rows of one tensor, are no such thing."""
    plan = upload()
    key, value = rows(plan, dims=(5, 5))
    k, v = caches(plan, dims=(5, 5))
    before = k.clone(), v.clone()
    for name, given, cache, first in (
        ("key", (k[0], value), "key_cache", 0),
        ("value", (key, k[1]), "key_cache", 160),
        ("key", (v.view(-1)[7:47].view(4, 2, 5), value), "value_cache", 28),
    ):
        with pytest.raises(paged.PagedError) as caught:
            paged.append(plan, *given, k, v, in_place=True)
        assert str(caught.value) == (
            f"paged.append: {name}: shares memory with {cache}: got bytes {first} to {first + 160} of {cache}; "
            "allowed memory of its own on every SoC"
        )
    assert torch.equal(k, before[0]) and torch.equal(v, before[1])
    wanted = written(plan, k[0].clone(), k)
    made = paged.append(plan, k[0], value, k, v)
    assert made.report.key_copied and torch.equal(made.key_cache, wanted) and torch.equal(k, before[0])


@pytest.mark.parametrize("in_place", [False, True])
def test_recorded_gradients_are_refused(in_place):
    plan = upload()
    key, value = rows(plan)
    k, v = caches(plan)
    before = k.clone()
    key.requires_grad_()
    with pytest.raises(paged.PagedError) as caught:
        paged.append(plan, key, value, k, v, in_place=in_place)
    assert str(caught.value) == (
        "hybrid_reshape_and_cache: key: no gradient exists, and the call writes its arguments: got requires_grad; "
        "allowed torch.no_grad, or detached tensors on every SoC"
    )
    assert torch.equal(k, before)
    with torch.no_grad():
        assert not torch.equal(paged.append(plan, key, value, k, v, in_place=in_place).key_cache, before)
