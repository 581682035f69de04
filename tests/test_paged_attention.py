"""Plan calls of attention and MLA: analytic values, a float64 gather, poison, reuse, splits, every refusal by text."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import MIX, close, gathered, host, tensors  # noqa: E402

from hybrid_ops import paged, runtime  # noqa: E402

LN3 = math.log(3)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def on_reference():
    """The NumPy meaning: the plan is tested here, kernels by their own cases."""
    with runtime.using(backend="reference"):
        yield


def text(function, *args, **kwargs) -> str:
    with pytest.raises(paged.PagedError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def upload(plan: paged.HostPlan) -> paged.DevicePlan:
    return paged.DevicePlan.upload(plan, torch.empty(1))


def one(lengths, positions, page=2) -> paged.DevicePlan:
    """One sequence on page 0."""
    return upload(paged.HostPlan(page, 1, [[0]], lengths, [0] * len(positions), positions))


# -- meaning ------------------------------------------------------------------------------------------------------


def test_analytic_attention():
    keys = torch.tensor([[[[0.0, 0.0]], [[LN3, 0.0]]]])
    values = torch.tensor([[[[1.0]], [[5.0]]]])
    query = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    plan = one([2], [1, 0])
    causal = paged.attention(plan, query, keys, values, 1.0, True)
    assert causal.flatten().tolist() == pytest.approx([4.0, 1.0])
    free, lse = paged.attention(plan, query, keys, values, 1.0, False, lse=True)
    assert free.flatten().tolist() == pytest.approx([4.0, 4.0])
    assert lse.flatten().tolist() == pytest.approx([math.log(4)] * 2)


def test_analytic_mla():
    latent, rope = torch.tensor([[[[1.0]], [[5.0]]]]), torch.tensor([[[[0.0]], [[LN3]]]])
    out = paged.mla(one([2], [1]), torch.zeros(1, 1, 1), torch.ones(1, 1, 1), latent, rope, 1.0, True)
    assert out.item() == pytest.approx(4.0)


def test_groups_are_contiguous():
    values = torch.tensor([10.0, 20.0]).reshape(1, 1, 2, 1).expand(1, 2, 2, 1).contiguous()
    out = paged.attention(one([2], [1]), torch.ones(1, 4, 3), torch.zeros(1, 2, 2, 3), values, 1.0, True)
    assert out.flatten().tolist() == pytest.approx([10, 10, 20, 20])


@pytest.mark.parametrize("causal", [True, False])
def test_nothing_visible_gives_zeros(causal):
    plan = upload(paged.HostPlan(2, 1, [[0], [0]], [0, 2], [0, 1], [9, 1]))
    given = tensors(plan.host)
    out, lse = paged.attention(plan, *given, 0.5, causal, lse=True)
    assert not out[0].any() and lse[0].tolist() == [-math.inf] * 4
    assert out[1].any() and torch.isfinite(lse[1]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("causal", [True, False])
def test_mix_against_a_gather(dtype, causal):
    plan = upload(host())
    given = tensors(plan.host, dtype=dtype)
    out, lse = paged.attention(plan, *given, 0.37, causal, lse=True)
    want, want_lse = gathered(plan.host, *given, 0.37, causal)
    close(out, want)
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-5, rtol=1e-5)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    ids, positions = (torch.tensor(MIX[n])[order].tolist() for n in ("sequence_ids", "positions"))
    turned = upload(host(sequence_ids=ids, positions=positions))
    moved = paged.attention(turned, given[0][order].contiguous(), *given[1:], 0.37, causal)
    assert torch.equal(moved, out[order])


COLUMNS = {"310p": ("ascend310p", torch.float16), "910b-f16": ("ascend910b", torch.float16),
           "910b": ("ascend910b", torch.bfloat16), "910b-f32": ("ascend910b", torch.float32)}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_mix_in_the_simulator(column):
    """Attention, MLA and both split forms through one plan, every call of the kernels watched."""
    soc, dtype = COLUMNS[column]
    options = {"backend": "sim", "soc": soc, "checks": "full"}
    plan = upload(host())
    given = tensors(plan.host, dtype=dtype)
    workspace = paged.SplitWorkspace(given[0], 7, 4, 7, 3)
    for causal in (True, False):
        want, want_lse = gathered(plan.host, *given, 0.37, causal)
        out, lse = paged.attention(plan, *given, 0.37, causal, lse=True, **options)
        close(out, want)
        torch.testing.assert_close(lse.double(), want_lse, atol=1e-5, rtol=1e-5)
        close(paged.attention_with_workspace(plan, *given, 0.37, causal, workspace, **options), want)
    query, latent, _ = tensors(plan.host, heads=(4, 1), dims=(7, 7), dtype=dtype)
    rope, turned, _ = tensors(plan.host, heads=(4, 1), dims=(3, 3), dtype=dtype, seed=1)
    want, _ = gathered(plan.host, query, latent, latent, 0.37, True, rope=(rope, turned))
    close(paged.mla(plan, query, rope, latent, turned, 0.37, True, **options), want)
    close(paged.mla_with_workspace(plan, query, rope, latent, turned, 0.37, True, workspace, **options), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "f16", "bf16"])
def test_mla_against_a_gather(dtype):
    plan = upload(host())
    query, latent, _ = tensors(plan.host, heads=(3, 1), dims=(6, 6), dtype=dtype)
    rope, turned, _ = tensors(plan.host, heads=(3, 1), dims=(3, 3), dtype=dtype, seed=1)
    out, lse = paged.mla(plan, query, rope, latent, turned, 0.37, True, lse=True)
    want, want_lse = gathered(plan.host, query, latent, latent, 0.37, True, rope=(rope, turned))
    close(out, want)
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-5, rtol=1e-5)


def test_unread_slots_do_not_matter():
    plan = upload(host(pages=8))
    query, keys, values = tensors(plan.host)
    clean = paged.attention(plan, query, keys, values, 0.37, False)
    visible = torch.zeros(8, 4, dtype=torch.bool)
    for s in range(3):
        for t in range(MIX["lengths"][s]):
            visible[MIX["tables"][s][t // 4], t % 4] = True
    for cache in (keys, values):
        cache[~visible] = math.nan
    assert torch.equal(paged.attention(plan, query, keys, values, 0.37, False), clean)


@pytest.mark.parametrize("page", [1, 3, 16, 64, 128, 256])
def test_any_page_size(page):
    """Lengths that fill their last page, and one token more; the pages of both sequences alternate."""
    lengths = [2 * page, 2 * page + 1]
    tables = [[4, 0], [3, 1, 2]]
    plan = upload(paged.HostPlan(page, 5, tables, lengths, [0, 1, 1], [2 * page - 1, 2 * page, page - 1]))
    given = tensors(plan.host)
    close(paged.attention(plan, *given, 0.37, True), gathered(plan.host, *given, 0.37, True)[0])


def test_one_plan_serves_every_layer():
    plan = upload(host())
    for layer in range(3):
        given = tensors(plan.host, seed=layer)
        close(paged.attention(plan, *given, 0.37, True), gathered(plan.host, *given, 0.37, True)[0])


def test_no_queries():
    plan = upload(host(sequence_ids=[], positions=[]))
    out = paged.attention(plan, *tensors(plan.host), 1.0, True)
    assert out.shape == (0, 4, 7)


def test_large_scores_and_equal_scores():
    plan = one([2], [1])
    values = torch.tensor([[[[1.0]], [[5.0]]]])
    keys = torch.tensor([[[[1e4]], [[-1e4]]]])
    assert paged.attention(plan, torch.ones(1, 1, 1), keys, values, 1.0, True).item() == 1.0
    assert paged.attention(plan, torch.ones(1, 1, 1), 0 * keys, values, 1.0, True).item() == 3.0


@pytest.mark.parametrize("splits", [2, 3, 7, 32])
def test_split_history_agrees(splits):
    plan = upload(host())
    given = tensors(plan.host)
    workspace = paged.SplitWorkspace(given[0], 7, 4, 7, splits)
    out = paged.attention_with_workspace(plan, *given, 0.37, True, workspace)
    close(out, gathered(plan.host, *given, 0.37, True)[0])
    query, latent, _ = tensors(plan.host, heads=(4, 1), dims=(7, 7))
    rope, turned, _ = tensors(plan.host, heads=(4, 1), dims=(3, 3), seed=1)
    out = paged.mla_with_workspace(plan, query, rope, latent, turned, 0.37, True, workspace)
    close(out, gathered(plan.host, query, latent, latent, 0.37, True, rope=(rope, turned))[0])


def test_a_workspace_serves_other_schedules_of_its_shape():
    first, second = upload(host()), upload(host(positions=[0, 1, 2, 3, 4, 5, 6]))
    given = tensors(first.host)
    workspace = paged.SplitWorkspace(given[0], 7, 4, 7, 4)
    for plan in (first, second, first):
        out = paged.attention_with_workspace(plan, *given, 0.37, True, workspace)
        close(out, gathered(plan.host, *given, 0.37, True)[0])


# -- refusals -----------------------------------------------------------------------------------------------------

ATTENTION = "hybrid_paged_attention"


def call(plan=None, scale=1.0, causal=True, **changes):
    """An attention call on float32 with parts replaced; the SoC is ascend910b."""
    plan = plan or upload(host())
    names = ("query", "key_cache", "value_cache")
    given = dict(zip(names, tensors(host()), strict=True))
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return paged.attention(plan, *given.values(), scale, causal, soc="ascend910b")


SCALE = "paged.attention: scale_value: not a finite number above 0: got {}; allowed > 0, finite on every SoC"
CALLS = {
    "plan": ({"plan": MIX}, "paged.attention: plan: wrong type: got dict; allowed DevicePlan on every SoC"),
    "scale-0": ({"scale": 0.0}, SCALE.format("0.0")),
    "scale-negative": ({"scale": -1.0}, SCALE.format("-1.0")),
    "scale-nan": ({"scale": math.nan}, SCALE.format("nan")),
    "scale-inf": ({"scale": math.inf}, SCALE.format("inf")),
    "causal": ({"causal": 1}, "paged.attention: causal: wrong type: got 1; allowed True or False on every SoC"),
    "no-tensor": (
        {"query": None},
        "paged.attention: query: not a tensor: got NoneType; allowed torch.Tensor on every SoC",
    ),
    "queries": (
        {"query": lambda q: q[:3]},
        "paged.attention: query: other query count than the plan: got 3; allowed 7 on every SoC",
    ),
    "pages": (
        {"key_cache": lambda k: k[:5]},
        "paged.attention: key_cache: other number of pages than the plan: got 5; allowed 6 on every SoC",
    ),
    "page-size": (
        {"value_cache": lambda v: v[:, :3].contiguous()},
        "paged.attention: value_cache: other page_size than the plan: got 3; allowed 4 on every SoC",
    ),
    "strides": (
        {"query": lambda q: q.transpose(0, 1).contiguous().transpose(0, 1)},
        "paged.attention: query: not contiguous: got strides [5, 35, 1]; allowed contiguous memory on every SoC",
    ),
    "quantised": (
        {"query": lambda q: torch.quantize_per_tensor(q, 0.1, 0, torch.qint8)},
        "paged.attention: query: not a dense tensor: got quantized; allowed torch.strided, unquantised on every SoC",
    ),
    "dtype": (
        {"query": lambda q: q.double()},
        "hybrid_paged_attention: query: dtype not available: got float64; "
        "allowed float16, bfloat16, float32 on ascend910b",
    ),
    "dtypes-mixed": (
        {"key_cache": lambda k: k.half()},
        "hybrid_paged_attention: query, key_cache, value_cache, sequence_ids, positions, context_lens, block_tables: "
        "dtypes do not go together",
    ),
    "rank": (
        {"query": lambda q: q.flatten(1)},
        "hybrid_paged_attention: query: wrong rank: got rank 2 (shape [7, 20]); allowed [N, HQ, D] on ascend910b",
    ),
    "heads": (
        {"query": torch.zeros(7, 6, 5), "key_cache": torch.zeros(6, 4, 4, 5), "value_cache": torch.zeros(6, 4, 4, 7)},
        "HQ must be a multiple of HKV: got HQ=6, HKV=4; allowed HQ % HKV == 0 on ascend910b",
    ),
    "d-1025": (
        {"query": torch.zeros(7, 4, 1025), "key_cache": torch.zeros(6, 4, 2, 1025)},
        "hybrid_paged_attention: query: D out of range: got D=1025; allowed 1 <= D <= 1024 on ascend910b",
    ),
    "d-0": (
        {"query": torch.zeros(7, 4, 0), "key_cache": torch.zeros(6, 4, 2, 0)},
        "hybrid_paged_attention: query: D out of range: got D=0; allowed 1 <= D <= 1024 on ascend910b",
    ),
    "dv-1025": (
        {"value_cache": torch.zeros(6, 4, 2, 1025)},
        "hybrid_paged_attention: value_cache: DV out of range: got DV=1025; allowed 1 <= DV <= 1024 on ascend910b",
    ),
    "d-differs": (
        {"key_cache": torch.zeros(6, 4, 2, 9)},
        "hybrid_paged_attention: key_cache: axis D differs from D of query",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_attention_refuses(name):
    changes, wanted = CALLS[name]
    assert wanted in text(call, **changes)


@pytest.mark.parametrize("heads", [(6, 3), (5, 1), (4, 4)])
def test_legal_head_counts(heads):
    plan = upload(host())
    given = tensors(plan.host, heads=heads)
    close(paged.attention(plan, *given, 0.37, True), gathered(plan.host, *given, 0.37, True)[0])


@pytest.mark.parametrize("dims", [(1024, 1024), (129, 257), (5, 129), (192, 128), (1024, 1)])
def test_legal_dims(dims):
    plan = upload(host())
    given = tensors(plan.host, dims=dims)
    close(paged.attention(plan, *given, 0.03, True), gathered(plan.host, *given, 0.03, True)[0])


def test_bfloat16_is_no_dtype_of_310p():
    plan = upload(host())
    found = text(
        paged.attention, plan, *tensors(plan.host, dtype=torch.bfloat16), 1.0, True, soc="ascend310p"
    )
    assert found == (
        "hybrid_paged_attention: query: dtype not available: got bfloat16; allowed float16 on ascend310p "
        "(ascend910b also has bfloat16)"
    )


@pytest.mark.parametrize(
    "r, p, wanted",
    [
        (5, 257, "RP out of range: got RP=257; allowed 1 <= RP <= 256 on ascend910b"),
        (5, 0, "RP out of range: got RP=0; allowed 1 <= RP <= 256 on ascend910b"),
        (1025, 3, "R out of range: got R=1025; allowed 1 <= R <= 1024 on ascend910b"),
    ],
)
def test_mla_refuses_dims(r, p, wanted):
    plan = upload(host())
    given = [torch.zeros(7, 3, r), torch.zeros(7, 3, p), torch.zeros(6, 4, 1, r), torch.zeros(6, 4, 1, p)]
    assert wanted in text(paged.mla, plan, *given, 1.0, True, soc="ascend910b")


@pytest.mark.parametrize("name", ["kv_cache", "key_rope_cache"])
def test_mla_refuses_several_kv_heads(name):
    plan = upload(host())
    given = {"query": torch.zeros(7, 3, 5), "query_rope": torch.zeros(7, 3, 2), "kv_cache": torch.zeros(6, 4, 1, 5),
             "key_rope_cache": torch.zeros(6, 4, 1, 2)}  # fmt: skip
    given[name] = torch.zeros(6, 4, 2, given[name].shape[-1])
    found = text(paged.mla, plan, *given.values(), 1.0, True, soc="ascend910b")
    assert found.startswith(f"hybrid_paged_mla: {name}: axis 1 is wrong: got 1=2")


MLA_SHAPES = {
    "heads": ("query_rope", (7, 2, 2), "axis H differs from H of query: got H=2 (shape [7, 2, 2]); allowed H=3"),
    "latents": ("kv_cache", (6, 4, 1, 6), "axis R differs from R of query: got R=6 (shape [6, 4, 1, 6]); allowed R=5"),
    "rotated": ("key_rope_cache", (6, 4, 1, 3), "axis RP differs from RP of query_rope: got RP=3 (shape [6, 4, 1, 3]); allowed RP=2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MLA_SHAPES)
def test_mla_refuses_shapes(name):
    argument, shape, wanted = MLA_SHAPES[name]
    given = {"query": torch.zeros(7, 3, 5), "query_rope": torch.zeros(7, 3, 2), "kv_cache": torch.zeros(6, 4, 1, 5),
             "key_rope_cache": torch.zeros(6, 4, 1, 2)}  # fmt: skip
    given[argument] = torch.zeros(shape)
    found = text(paged.mla, upload(host()), *given.values(), 1.0, True, soc="ascend910b")
    assert found == f"hybrid_paged_mla: {argument}: {wanted} on ascend910b"


def test_a_workspace_of_another_stream_is_refused():
    plan, given = upload(host()), tensors(host())
    workspace = paged.SplitWorkspace(given[0], 7, 4, 7, 2)
    object.__setattr__(workspace, "place", workspace.__dict__["place"]._replace(stream=7))
    found = text(paged.attention_with_workspace, plan, *given, 1.0, True, workspace)
    assert found == (
        "paged.attention_with_workspace: workspace: call from another stream: got stream None; allowed stream 7 on every SoC"
    )


def test_workspace_bytes_and_refusals():
    bytes_of = paged.SplitWorkspace.required_bytes
    assert bytes_of(2016, 32, 128, 2) == 2016 * 32 * 2 * 130 * 4 <= 2**26 < bytes_of(2017, 32, 128, 2)
    assert bytes_of(0, 1, 1, 2) == 0
    assert paged.SplitWorkspace(torch.empty(1), 1024, 64, 126, 2).bytes == 2**26, "exactly the budget"
    q = torch.empty(1)
    where = "paged.SplitWorkspace: "
    assert text(paged.SplitWorkspace, q, 2017, 32, 128, 2) == (
        f"{where}splits: partial results too large: got 67125760 bytes; allowed <= 67108864 bytes on every SoC"
    )
    for changes, wanted in (
        ({"splits": 1}, "splits: out of range: got 1; allowed 2..32"),
        ({"splits": 33}, "splits: out of range: got 33; allowed 2..32"),
        ({"heads": 0}, "heads: out of range: got 0; allowed 1..4294967295"),
        ({"value_dim": 1025}, "value_dim: out of range: got 1025; allowed 1..1024"),
        ({"value_dim": 0}, "value_dim: out of range: got 0; allowed 1..1024"),
        ({"queries": -1}, "queries: out of range: got -1; allowed 0..4294967295"),
    ):
        sizes = {"queries": 1, "heads": 1, "value_dim": 1, "splits": 2, **changes}
        assert text(paged.SplitWorkspace.required_bytes, **sizes) == f"{where}{wanted} on every SoC"
        assert text(paged.SplitWorkspace, q, **sizes) == f"{where}{wanted} on every SoC"
    assert paged.SplitWorkspace(q, 2016, 32, 128, 2).bytes == 67092480


@pytest.mark.parametrize(
    "sizes, wanted",
    [
        ((6, 4, 7, 2), "workspace: made for other queries: got 7 queries; allowed 6 queries on every SoC"),
        ((7, 5, 7, 2), "workspace: made for other heads: got 4 heads; allowed 5 heads on every SoC"),
        (
            (7, 4, 5, 2),
            "workspace: made for other value_dim: got 7 value_dim; allowed 5 value_dim on every SoC",
        ),
    ],
)
def test_workspace_of_another_shape_is_refused(sizes, wanted):
    plan = upload(host())
    workspace = paged.SplitWorkspace(torch.empty(1), *sizes)
    found = text(paged.attention_with_workspace, plan, *tensors(plan.host), 1.0, True, workspace)
    assert found == f"paged.attention_with_workspace: {wanted}"


def test_workspace_of_another_device_or_type_is_refused():
    plan = upload(host())
    given = tensors(plan.host)
    other = paged.SplitWorkspace(torch.empty(1, device="meta"), 7, 4, 7, 2)
    found = text(paged.attention_with_workspace, plan, *given, 1.0, True, other)
    assert found == (
        "paged.attention_with_workspace: query: other device than the workspace: got cpu; allowed meta on every SoC"
    )
    found = text(paged.attention_with_workspace, plan, *given, 1.0, True, None)
    assert found == (
        "paged.attention_with_workspace: workspace: wrong type: got NoneType; allowed SplitWorkspace on every SoC"
    )


def test_unknown_options_are_refused():
    plan = upload(host())
    found = text(paged.attention, plan, *tensors(plan.host), 1.0, True, mask=None)
    assert found == (
        "paged.attention: options: no such option: got mask; allowed backend, soc, checks on every SoC"
    )
