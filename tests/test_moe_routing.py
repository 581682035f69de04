"""Gating, dispatch and combination: against transformers' routers, on random calls, reports, refusals, plans."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import hybrid_ops
from hybrid_ops import case, check, contract, dtypes, host, profile, runtime, selftest
from hybrid_ops.case import Case
from hybrid_ops.check import Spec

GATING, DISPATCH, COMBINE = "hybrid_moe_gating_top_k", "hybrid_moe_init_routing", "hybrid_moe_combine"
KIND = {"ascend310p": "float16", "ascend910b": "bfloat16"}


def gating_specs(rows=3, experts=16, dtype="float16", **changes):
    return {"x": Spec((rows, experts), dtype)} | changes


def dispatch_specs(rows=3, width=32, k=2, dtype="float16", **changes):
    return {"x": Spec((rows, width), dtype), "expert_idx": Spec((rows, k), "int32")} | changes


def combine_specs(rows=3, width=32, k=2, dtype="float16", **changes):
    specs = {"expanded_y": Spec((rows * k, width), dtype), "expanded_row_idx": Spec((rows, k), "int32")}
    return specs | {"scales": Spec((rows, k), dtype)} | changes


def route(x, soc, bias=None, **attrs):
    made = runtime.run(GATING, {"x": x, "bias": bias}, attrs, backend="sim", soc=soc, checks="full")
    return made["y"].astype(np.float64), made["expert_idx"]


# Family, router, its hidden size and experts; groups and bias only where the model has them.
ROUTERS = {
    "mixtral": ("MixtralTopKRouter", "MixtralConfig", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeTopKRouter", "Qwen3MoeConfig",
                  {"num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}),
    "qwen3_next": ("Qwen3NextTopKRouter", "Qwen3NextConfig",
                   {"num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True}),
    "qwen3_5_moe": ("Qwen3_5MoeTopKRouter", "Qwen3_5MoeTextConfig", {"num_experts": 256, "num_experts_per_tok": 8}),
}  # fmt: skip


@pytest.mark.parametrize("family", ROUTERS)
def test_softmax_agrees_with_transformers(family, soc):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no router to compare with")
    source = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    settings = importlib.import_module(f"transformers.models.{family}.configuration_{family}")
    name, config, sizes = ROUTERS[family]
    torch.manual_seed(5)
    router = getattr(source, name)(getattr(settings, config)(hidden_size=64, **sizes))
    router.weight.data.normal_()
    with torch.no_grad():
        hidden = torch.randn(37, 64)
        _, weights, experts = router(hidden)
        logits = torch.nn.functional.linear(hidden, router.weight)
    y, ids = route(logits.numpy(), soc, k=sizes["num_experts_per_tok"], norm_topk_prob=True)
    np.testing.assert_array_equal(ids, experts.numpy())
    np.testing.assert_allclose(y, weights.double().numpy(), atol=2e-6)


def test_groups_agree_with_transformers(soc):
    """DeepSeek-V3: its top-k does not sort, so experts are compared as sets."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no router to compare with")
    source = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    settings = importlib.import_module("transformers.models.deepseek_v3.configuration_deepseek_v3")
    config = settings.DeepseekV3Config(hidden_size=64, num_local_experts=256, num_experts_per_tok=8, n_group=8,
                                       topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5)  # fmt: skip
    torch.manual_seed(6)
    router = source.DeepseekV3TopkRouter(config)
    router.weight.data.normal_(0, 0.1)
    router.e_score_correction_bias.normal_(0, 0.1)
    with torch.no_grad():
        hidden = torch.randn(33, 64)
        logits = torch.nn.functional.linear(hidden, router.weight)
        _, weights, experts = router(hidden)
    attrs = {
        "k": 8,
        "group_count": 8,
        "k_group": 4,
        "group_select_mode": 1,
        "norm_type": 1,
        "norm_topk_prob": True,
    }
    y, ids = route(
        logits.numpy(), soc, router.e_score_correction_bias.numpy(), **attrs, routed_scaling_factor=2.5
    )
    order, ours = experts.argsort(dim=1).numpy(), ids.argsort(axis=1)
    np.testing.assert_array_equal(
        np.take_along_axis(ids, ours, 1), np.take_along_axis(experts.numpy(), order, 1)
    )
    theirs = np.take_along_axis(weights.double().numpy(), order, 1)
    np.testing.assert_allclose(np.take_along_axis(y, ours, 1), theirs, rtol=1e-5)


def _random_gating(rng, types):
    sigmoid = bool(rng.integers(2))
    groups = int(rng.choice([1, 1, 2, 3, 5, 8, 16]))
    experts = groups * int(rng.integers(2, 41))
    selected = int(rng.integers(1, groups + 1))
    k = int(rng.integers(1, min(64, selected * (experts // groups)) + 1))
    x = rng.standard_normal((int(rng.integers(1, 90)), experts)) * 3
    if rng.random() < 0.5:
        x = np.round(x)
    if rng.random() < 0.3:
        x[rng.integers(len(x)), rng.integers(experts)] = rng.choice([np.nan, np.inf, -np.inf])
    bias = np.round(rng.standard_normal(experts), 1) if sigmoid and rng.random() < 0.6 else None
    arrays = {"x": x.astype(types["x"]), "bias": None if bias is None else bias.astype(np.float32)}
    return arrays, {
        "k": k, "group_count": groups, "k_group": selected, "group_select_mode": int(rng.integers(2)),
        "norm_type": int(sigmoid), "norm_topk_prob": bool(rng.integers(2)), "routed_scaling_factor": float(rng.choice([1, 2.5])),
    }  # fmt: skip


def _random_dispatch(rng, types):
    rows, k, experts = int(rng.integers(1, 300)), int(rng.integers(1, 12)), int(rng.integers(1, 80))
    low, high = (-2, experts + 2) if rng.random() < 0.5 else (0, experts)
    arrays = {
        "x": rng.standard_normal((rows, int(rng.choice([1, 7, 16, 33, 64, 600])))).astype(types["x"]),
        "expert_idx": rng.integers(low, high, (rows, k)).astype(np.int32),
    }
    return arrays, {"expert_num": experts}


def _random_combine(rng, types):
    rows, k = int(rng.integers(1, 200)), int(rng.integers(1, 12))
    order = rng.permutation(rows * k).reshape(rows, k)
    if rng.random() < 0.5:
        order[rng.random(order.shape) < 0.3] = -1
    arrays = {
        "expanded_y": rng.standard_normal((rows * k, int(rng.choice([1, 7, 16, 33, 64, 600])))),
        "expanded_row_idx": order,
        "scales": rng.random((rows, k)),
    }
    return {n: a.astype(types[n]) for n, a in arrays.items()}, {}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "make"), [(GATING, _random_gating), (DISPATCH, _random_dispatch), (COMBINE, _random_combine)],
    ids=["gating", "dispatch", "combine"],
)  # fmt: skip
def test_random_call(name, make, seed, soc):
    op = contract.load()[name]
    rng = np.random.default_rng([seed, *name.encode()])
    column = int(rng.integers(op.columns(soc)))
    types = {t.name: dtypes.NUMPY[t.dtypes[soc][column]] for t in op.inputs}
    arrays, attrs = make(rng, types)
    selftest.hold_case(Case(f"random-{seed}", name, soc, column, lambda _: arrays, attrs))


@pytest.mark.parametrize("groups", [1, 8])
def test_permuted_experts_permute_the_result(groups, soc):
    rng = np.random.default_rng(7)
    x = rng.permutation(64 * 9).reshape(9, 64).astype(np.float32) / 64
    attrs = {"k": 6, "norm_type": 1, "group_count": groups, "k_group": max(1, groups // 2)}
    y, ids = route(x, soc, **attrs)
    within = np.concatenate([g * (64 // groups) + rng.permutation(64 // groups) for g in range(groups)])
    again, moved = route(np.ascontiguousarray(x[:, within]), soc, **attrs)
    np.testing.assert_array_equal(within[moved], ids)
    np.testing.assert_array_equal(again, y)


def test_low_precision_chooses_as_the_rounded_logits_in_float32(soc):
    x = (np.random.default_rng(8).standard_normal((50, 96)) * 0.1).astype(dtypes.NUMPY[KIND[soc]])
    assert (route(x, soc, k=8)[1] == route(x.astype(np.float32), soc, k=8)[1]).all()


def test_no_bias_is_a_bias_of_zeros(soc):
    x = np.random.default_rng(9).standard_normal((20, 48)).astype(np.float32)
    attrs = {"k": 5, "norm_type": 1, "norm_topk_prob": True}
    for one, two in zip(
        route(x, soc, **attrs), route(x, soc, np.zeros(48, np.float32), **attrs), strict=True
    ):
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm/issues/39391"])
def test_rows_of_nan_name_experts_in_range(link, soc):
    """MR2; their weights are NaN by the contract, not 0, and a row with one NaN is lost as a whole."""
    nan = np.nan
    y, ids = route(np.array([[nan] * 4, [nan, 1, nan, 2], [0, 1, 2, 3]], np.float32), soc, k=2)
    assert ids.tolist() == [[0, 1], [0, 1], [3, 2]]
    assert np.isnan(y[:2]).all() and np.isfinite(y[2]).all()


@pytest.mark.parametrize("link", ["https://github.com/vllm-project/vllm-ascend/issues/5310"])
@pytest.mark.parametrize("experts", [1, 6, 96, 128, 160, 256])
def test_any_number_of_experts(link, experts, soc):
    """MR3."""
    x = np.random.default_rng(experts).standard_normal((3, experts)).astype(np.float32)
    _, ids = route(x, soc, k=min(8, experts))
    np.testing.assert_array_equal(ids, np.argsort(-x, axis=1)[:, :8])


def test_order_of_the_router_does_not_matter(soc):
    """A token's experts, named in another order, give the same bits."""
    rng = np.random.default_rng(11)
    kind = dtypes.NUMPY[KIND[soc]]
    arrays = {
        "expanded_y": rng.standard_normal((40, 64)).astype(kind),
        "expanded_row_idx": rng.permutation(40).reshape(5, 8).astype(np.int32),
        "scales": rng.random((5, 8)).astype(np.float32),
    }
    turned = {n: np.ascontiguousarray(a[:, ::-1]) if n != "expanded_y" else a for n, a in arrays.items()}
    one, two = (runtime.run(COMBINE, a, {}, backend="sim", soc=soc)["y"] for a in (arrays, turned))
    assert one.tobytes() == two.tobytes()


def test_dispatch_then_combine_returns_the_rows(soc):
    """Weights that add up to 1 give the rows back: the maps of one operator are what the other takes."""
    rng = np.random.default_rng(12)
    kind = dtypes.NUMPY[KIND[soc]]
    x = rng.integers(-8, 8, (70, 48)).astype(kind)
    ids = rng.random((70, 16)).argsort(axis=1)[:, :4].astype(np.int32)
    made = runtime.run(DISPATCH, {"x": x, "expert_idx": ids}, {"expert_num": 16}, backend="sim", soc=soc)
    arrays = {"expanded_y": made["expanded_x"], "expanded_row_idx": made["expanded_row_idx"],
              "scales": np.full((70, 4), 0.25, kind)}  # fmt: skip
    assert runtime.run(COMBINE, arrays, {}, backend="sim", soc=soc)["y"].tobytes() == x.tobytes()


SIGMOID, TWO = {"k": 2, "norm_type": 1}, {"k": 2}
REFUSALS = {
    "k-missing": (GATING, gating_specs(), {}, "k: k out of range: got k=0, E=16; allowed 1 <= k <= E"),
    "k-large": (GATING, gating_specs(), {"k": 17}, "k: k out of range: got k=17, E=16; allowed 1 <= k <= E"),
    "k-1025": (GATING, gating_specs(experts=2048), {"k": 1025}, "k: k out of range: got k=1025; allowed k <= 1024"),
    "no-experts": (GATING, gating_specs(experts=0), TWO, "x: E out of range: got E=0; allowed 1 <= E <= 2048"),
    "experts": (GATING, gating_specs(experts=2049), TWO, "x: E out of range: got E=2049; allowed 1 <= E <= 2048"),
    "rank-1": (GATING, gating_specs(x=Spec((16,), "float16")), TWO,
               "x: wrong rank: got rank 1 (shape [16]); allowed [T, E]"),
    "rank-3": (GATING, gating_specs(x=Spec((2, 3, 16), "float16")), TWO,
               "x: wrong rank: got rank 3 (shape [2, 3, 16]); allowed [T, E]"),
    "logits-int": (GATING, gating_specs(dtype="int32"), TWO, "x: dtype not available: got int32; allowed float16, float32"),
    "logits-bf16": (GATING, gating_specs(dtype="bfloat16"), TWO,
                    "x: dtype not available: got bfloat16; allowed float16, float32"),
    "kind": (GATING, gating_specs(), {"k": 2, "norm_type": 2}, "norm_type: not a known kind of score: got norm_type=2"),
    "group-kind": (GATING, gating_specs(), {"k": 2, "group_select_mode": 2},
                   "group_select_mode: not a known kind of group score: got group_select_mode=2"),
    "softmax-bias": (GATING, gating_specs(bias=Spec((16,), "float32")), TWO,
                     "norm_type: only sigmoid scores are corrected: got norm_type=0, bias=1"),
    "bias-dtype": (GATING, gating_specs(bias=Spec((16,), "float16")), SIGMOID,
                   "bias: dtype not available: got float16; allowed float32"),
    "bias-short": (GATING, gating_specs(bias=Spec((15,), "float32")), SIGMOID,
                   "bias: axis E differs from E of x: got E=15 (shape [15]); allowed E=16"),
    "bias-rank": (GATING, gating_specs(bias=Spec((1, 16), "float32")), SIGMOID,
                  "bias: wrong rank: got rank 2 (shape [1, 16]); allowed [E]"),
    "groups-0": (GATING, gating_specs(), SIGMOID | {"group_count": 0},
                 "group_count: group_count out of range: got group_count=0; allowed 1 <= group_count <= 128"),
    "groups-129": (GATING, gating_specs(experts=258), SIGMOID | {"group_count": 129},
                   "group_count: group_count out of range: got group_count=129; allowed 1 <= group_count <= 128"),
    "groups-uneven": (GATING, gating_specs(), SIGMOID | {"group_count": 3},
                      "x: E must be a multiple of group_count: got E=16, group_count=3"),
    "selected-0": (GATING, gating_specs(), SIGMOID | {"k_group": 0},
                   "k_group: k_group out of range: got k_group=0, group_count=1"),
    "selected-many": (GATING, gating_specs(), SIGMOID | {"group_count": 4, "k_group": 5},
                      "k_group: k_group out of range: got k_group=5, group_count=4"),
    "capacity": (GATING, gating_specs(), {"k": 5, "norm_type": 1, "group_count": 4},
                 "k: more than the selected groups have: got k=5, k_group=1, E=16, group_count=4"),
    "group-of-one": (GATING, gating_specs(), SIGMOID | {"group_count": 16, "k_group": 4, "group_select_mode": 1},
                     "group_select_mode: a group needs two experts for the sum of its best two"),
    "sigmoid-experts": (GATING, gating_specs(experts=1025), SIGMOID,
                        "x: E out of range with sigmoid or groups: got E=1025, norm_type=1, group_count=1"),
    "sigmoid-k": (GATING, gating_specs(experts=128), {"k": 65, "norm_type": 1},
                  "k: k out of range with sigmoid or groups: got k=65, norm_type=1, group_count=1"),
    "scale-inf": (GATING, gating_specs(), {"k": 2, "routed_scaling_factor": float("inf")},
                  "routed_scaling_factor: not finite: got inf; allowed a finite float"),
    "scale-nan": (GATING, gating_specs(), {"k": 2, "routed_scaling_factor": float("nan")},
                  "routed_scaling_factor: not finite: got nan; allowed a finite float"),
    "expert-num": (DISPATCH, dispatch_specs(), {}, "expert_num: expert_num out of range: got expert_num=0"),
    "expert-num-large": (DISPATCH, dispatch_specs(), {"expert_num": 2049},
                         "expert_num: expert_num out of range: got expert_num=2049; allowed 1 <= expert_num <= 2048"),
    "dispatch-rows": (DISPATCH, dispatch_specs(expert_idx=Spec((4, 2), "int32")), {"expert_num": 4},
                      "expert_idx: axis T differs from T of x: got T=4 (shape [4, 2]); allowed T=3"),
    "dispatch-ids": (DISPATCH, dispatch_specs(expert_idx=Spec((3, 2), "int64")), {"expert_num": 4},
                     "expert_idx: dtype not available: got int64; allowed int32"),
    "dispatch-width": (DISPATCH, dispatch_specs(width=0), {"expert_num": 4}, "x: rows are empty: got H=0; allowed H >= 1"),
    "dispatch-none": (DISPATCH, dispatch_specs(k=0), {"expert_num": 4},
                      "expert_idx: no experts per row: got K=0; allowed K >= 1"),
    "dispatch-slots": (DISPATCH, dispatch_specs(rows=2**23, k=3), {"expert_num": 4}, "x: too many slots: got T=8388608, K=3"),
    "combine-rows": (COMBINE, combine_specs(expanded_y=Spec((5, 32), "float16")), {},
                     "expanded_y: not one row per slot: got N=5, T=3, K=2; allowed N == T * K"),
    "combine-scales": (COMBINE, combine_specs(scales=Spec((3, 3), "float16")), {},
                       "scales: axis K differs from K of expanded_row_idx: got K=3 (shape [3, 3]); allowed K=2"),
    "combine-mixed": (COMBINE, combine_specs(dtype="float32", scales=Spec((3, 2), "float16")), {},
                      "expanded_y, expanded_row_idx, scales: dtypes do not go together: got expanded_y float32"),
    "combine-k": (COMBINE, combine_specs(k=513), {}, "expanded_row_idx: K out of range: got K=513; allowed 1 <= K <= 512"),
    "combine-width": (COMBINE, combine_specs(width=0), {}, "expanded_y: rows are empty: got H=0; allowed H >= 1"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSALS)
def test_refusals(fault):
    """Before anything runs, in the same words from Python and from the host side."""
    name, specs, attrs, text = REFUSALS[fault]
    for function in (check.call, host.tiling):
        with pytest.raises(check.HybridOpsError) as caught:
            function(name, "ascend310p", specs, attrs)
        assert str(caught.value).startswith(f"{name}: {text}") and "on ascend310p" in str(caught.value)


@pytest.mark.parametrize("backend", ["sim", "reference"])
@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_scale_not_above_zero_is_refused(backend, scale):
    with pytest.raises(check.HybridOpsError) as caught:
        attrs = {"k": 2, "routed_scaling_factor": scale}
        runtime.run(GATING, {"x": np.ones((2, 8), np.float16)}, attrs, backend=backend)
    assert str(caught.value).startswith(
        f"{GATING}: routed_scaling_factor: not above 0: got {scale:g}; allowed > 0 on "
    )


VALUES = {
    "logit": (GATING, "x", np.nan, "x: not a usable value: got nan at [0, 0]; allowed finite"),
    "expert": (DISPATCH, "expert_idx", -1, "expert_idx: no such expert: got -1 at [0, 0]; allowed >= 0"),
    "row": (COMBINE, "expanded_row_idx", 99999, "expanded_row_idx: no such row: got 99999 at [0, 0]; allowed 0.."),
}  # fmt: skip


@pytest.mark.parametrize("fault", VALUES)
def test_value_refusals(fault, soc):
    name, argument, value, text = VALUES[fault]
    found = next(c for c in case.cases(name, soc) if c.id.endswith("-T1" if name != GATING else "mixtral"))
    arrays = found.inputs()
    runtime.run(name, arrays, found.attrs, soc=soc, backend="reference", validate="values")
    arrays[argument][0, 0] = value
    with pytest.raises(check.HybridOpsError) as caught:
        runtime.run(name, arrays, found.attrs, soc=soc, backend="reference", validate="values")
    assert str(caught.value).startswith(f"{name}: {text}")


def test_rows_shared_by_two_slots_are_refused():
    arrays = {"expanded_y": np.ones((4, 16), np.float16), "expanded_row_idx": np.array([[0, 1], [1, 3]], np.int32),
              "scales": np.ones((2, 2), np.float16)}  # fmt: skip
    with pytest.raises(
        check.HybridOpsError, match="expanded_row_idx: two slots share a row: got row 1; allowed each"
    ):
        runtime.run(COMBINE, arrays, {}, backend="reference", validate="values")


@pytest.mark.parametrize("experts", [1, 17, 96, 160, 1000, 1023, 1024, 2047, 2048])
@pytest.mark.parametrize("rows", [1, 5000])
def test_gating_fits_into_local_memory(experts, rows, soc):
    """One row of the widest layouts still runs: the simulator refuses buffers that do not fit."""
    x = np.zeros((rows if experts < 100 else 1, experts), np.float32)
    assert (route(x, soc, k=experts if experts < 100 else 100)[1][0] == np.arange(min(experts, 100))).all()


@pytest.mark.parametrize(("experts", "groups"), [(1024, 128), (896, 128), (1000, 100), (1023, 33), (1023, 3)])
def test_groups_fit_into_local_memory(experts, groups, soc):
    x, bias = np.zeros((2, experts), np.float32), np.zeros(experts, np.float32)
    _, ids = route(x, soc, bias, k=64, group_count=groups, k_group=groups, group_select_mode=1, norm_type=1)
    assert (ids == np.arange(64)).all()


@pytest.mark.parametrize("name", [GATING, DISPATCH, COMBINE])
def test_time_is_above_the_floor(name, soc):
    found = next(c for c in case.cases(name, soc) if "qwen3" in c.id)
    made = profile.run(name, found.inputs(), found.attrs, soc=soc)
    assert made.ratio is not None and made.ratio >= 1


def test_torch_and_meta_tensors(soc):
    """Views that are not contiguous are taken as they are; outputs sized by attributes and by products of axes."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no tensors to pass")
    kind = getattr(torch, KIND[soc])
    torch.manual_seed(13)
    logits = torch.randn(24, 6, dtype=kind).t()
    y, ids = hybrid_ops.hybrid_moe_gating_top_k(logits, k=3, norm_topk_prob=True)
    same = hybrid_ops.hybrid_moe_gating_top_k(logits.contiguous(), k=3, norm_topk_prob=True)
    assert torch.equal(ids, same[1]) and torch.equal(y, same[0]) and ids.dtype == torch.int32
    meta = hybrid_ops.hybrid_moe_init_routing(
        torch.empty(6, 32, dtype=kind, device="meta"), ids.to("meta"), expert_num=24
    )
    made = hybrid_ops.hybrid_moe_init_routing(torch.randn(6, 32).to(kind), ids, expert_num=24)
    assert [t.shape for t in meta] == [t.shape for t in made] == [(18, 32), (6, 3), (25,), (18,), (18,)]


@pytest.mark.parametrize(
    ("named", "specs", "attrs", "wanted"),
    [
        (GATING, gating_specs(rows=2**31), {"k": 2}, "x: too many rows: got T=2147483648; allowed T <= 2147483647"),
        (COMBINE, combine_specs(rows=2**30, k=2), {}, "expanded_y: too many rows: got N=2147483648; "
                                                      "allowed N <= 2147483647"),
    ],
    ids=["gating", "combine"],
)  # fmt: skip
def test_more_rows_than_32_bits_count_are_refused(named, specs, attrs, wanted):
    with pytest.raises(hybrid_ops.HybridOpsError) as caught:
        check.call(named, "ascend910b", specs, attrs)
    assert str(caught.value) == f"{named}: {wanted} on ascend910b"
