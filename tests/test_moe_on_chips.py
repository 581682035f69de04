"""hybrid_ops.moe with all four kernels in the simulator, full checks, on both SoCs: the library's rules hold for what runs there."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from moe_calls import LIMIT, TOP2, experts, routed  # noqa: E402

from hybrid_ops.moe import SigmoidGroupedOptions, SwiGluExperts, route, route_sigmoid_grouped  # noqa: E402

KIND = {"ascend310p": torch.float16, "ascend910b": torch.bfloat16}
STRATEGIES = ("scalar", "cube", "auto")
KIMI = SigmoidGroupedOptions(2, groups=2, selected_groups=1, group_top_two=True, renormalize=True, scale=2.5)


@pytest.fixture
def run(soc):
    return {"backend": "sim", "soc": soc, "checks": "full"}


def drawn(soc, tokens=9, hidden=32, count=4, seed=2):
    torch.manual_seed(seed)
    return torch.randn(tokens, hidden).to(KIND[soc]), torch.randn(tokens, count)


def exact(weights, x, plan):
    """Float64, every expert on every token."""
    gate, up, down = (w.to(x.dtype).double() for w in weights)
    wide = x.double()
    both = torch.einsum("th,eih->tei", wide, gate), torch.einsum("th,eih->tei", wide, up)
    every = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(both[0]) * both[1], down)
    picked = every.gather(1, plan.ids.long()[..., None].expand(-1, -1, x.shape[1]))
    return (picked * plan.scores.double()[..., None]).sum(1)


def near(got, want):
    gap = (got.double() - want.double()).abs() / want.double().abs().clamp(min=1)
    assert gap.max() <= LIMIT[got.dtype], gap.max()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("hidden", "inner"), [(32, 24), (5, 7)])
def test_forward_is_its_steps_and_near_float64(hidden, inner, strategy, soc, run):
    """CB-10, CB-13, CB-14, CB-16: float32 logits beside 16-bit rows."""
    made, weights = experts(inner=inner, hidden=hidden, dtype=KIND[soc])
    x, logits = drawn(soc, hidden=hidden)
    plan = route(logits, TOP2, **run)
    tokens = plan.dispatch(x)
    staged = tokens.combine(made.forward_dispatched_with_strategy(tokens, strategy))
    assert torch.equal(made.forward(x, logits, TOP2, strategy, **run), staged)
    near(staged, exact(weights, x, plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_grouped_forward_is_its_steps(strategy, soc, run):
    """CB-15."""
    made, weights = experts(count=8, dtype=KIND[soc])
    x, logits = drawn(soc, count=8)
    bias = torch.linspace(-0.3, 0.3, 8)
    plan = route_sigmoid_grouped(logits, bias, KIMI, **run)
    tokens = plan.dispatch(x)
    staged = tokens.combine(made.forward_dispatched_with_strategy(tokens, strategy))
    assert torch.equal(made.forward_sigmoid_grouped(x, logits, bias, KIMI, strategy, **run), staged)
    near(staged, exact(weights, x, plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_repeats_have_the_same_bits_and_inputs_stay(strategy, soc, run):
    """CB-17, CB-18."""
    made, _ = experts(dtype=KIND[soc])
    kept = [w.clone() for w in (made._gate, made._up, made._down)]
    for tokens in (1, 17, 3):
        x, logits = drawn(soc, tokens)
        before = x.clone(), logits.clone()
        outs = [made.forward(x, logits, TOP2, strategy, **run) for _ in range(10)]
        assert all(torch.equal(out, outs[0]) for out in outs)
        assert torch.equal(x, before[0]) and torch.equal(logits, before[1])
    assert all(torch.equal(w, k) for w, k in zip((made._gate, made._up, made._down), kept, strict=True))


def test_float32_on_the_chip_that_has_it():
    """CB-13: Auto has the bits of Scalar."""
    run = {"backend": "sim", "soc": "ascend910b", "checks": "full"}
    made, weights = experts()
    x, logits = drawn("ascend910b")
    plan = route(logits, TOP2, **run)
    scalar, auto = (made.forward(x.float(), logits, TOP2, s, **run) for s in ("scalar", "auto"))
    assert torch.equal(scalar, auto)
    near(scalar, exact(weights, x.float(), plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lost_row_is_lost_alone(strategy, soc, run):
    """CB-12: NaN, +inf and only -inf in the router's row."""
    made, _ = experts(dtype=KIND[soc])
    x, logits = drawn(soc)
    clean = made.forward(x, logits, TOP2, strategy, **run)
    logits[2, 1], logits[4], logits[7, 0] = math.nan, -math.inf, math.inf
    out = made.forward(x, logits, TOP2, strategy, **run)
    bad = [2, 4, 7]
    keep = [i for i in range(9) if i not in bad]
    assert out[bad].isnan().all() and torch.equal(out[keep], clean[keep])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("bad", [4, 2**31 - 1, -1, -(2**31)])
def test_an_expert_that_does_not_exist_is_no_index(bad, strategy, soc, run):
    """CB-20: zero rows, and the simulator sees no access outside a tensor."""
    made, _ = experts(dtype=KIND[soc])
    x, _ = drawn(soc, 2)
    tokens = routed([[1, bad], [bad, 2]], **run).dispatch(x)
    out = made.forward_dispatched_with_strategy(tokens, strategy)
    assert tokens.offsets.tolist() == [0, 0, 1, 2, 2] and not out[2:].any()
    alone = routed([[1], [2]], **run).dispatch(x)
    assert torch.equal(
        tokens.combine(out), alone.combine(made.forward_dispatched_with_strategy(alone, strategy))
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_empty_experts_one_expert_and_no_token(strategy, soc, run):
    """CB-02, CB-04, CB-06: offsets with equal neighbours; experts without rows hold NaN and are not read."""
    made, weights = experts(count=16, dtype=KIND[soc])
    x, _ = drawn(soc, 6)
    for ids in ([[0], [1], [0], [1], [0], [1]], [[15]] * 6):
        used = sorted({e for (e,) in ids})
        poisoned = [w.to(KIND[soc]).clone() for w in weights]
        for weight in poisoned:
            weight[[e for e in range(16) if e not in used]] = math.nan
        plan = routed(ids, count=16, **run)
        tokens = plan.dispatch(x)
        out = tokens.combine(SwiGluExperts(*poisoned).forward_dispatched_with_strategy(tokens, strategy))
        near(out, exact(weights, x, plan))
    assert made.forward(x[:0], torch.zeros(0, 16), TOP2, strategy, **run).shape == (0, 32)


def test_order_of_the_router_does_not_matter(soc, run):
    """CB-09: 2048 + 1 + 1, whatever order the experts are named in."""
    made = set()
    for ids in ([[0, 1, 2]], [[2, 1, 0]], [[1, 2, 0]]):
        tokens = routed(ids, count=3, **run).dispatch(torch.ones(1, 1).to(KIND[soc]))
        rows = torch.tensor([[2048.0], [1.0], [1.0]]).to(KIND[soc])
        made.add(tokens.combine(rows).item())
    assert made == {2050.0 if KIND[soc] is torch.float16 else 2048.0}
