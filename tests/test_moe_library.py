"""hybrid_ops.moe: the contract's cases of dispatch, experts and combination."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from moe_calls import LIMIT, RUN, TOP2, experts, refusal, routed  # noqa: E402

from hybrid_ops import HybridOpsError, moe  # noqa: E402
from hybrid_ops import runtime as runtime_module  # noqa: E402
from hybrid_ops.moe import (  # noqa: E402
    GroupedStrategy,
    SigmoidGroupedOptions,
    SoftmaxOptions,
    SwiGluExperts,
    route,
    route_sigmoid_grouped,
)
from hybrid_ops.moe.routing import RoutingPlan  # noqa: E402


def oracle(weights, x, plan):
    """Float64, token after token."""
    gate, up, down = (w.double() for w in weights)
    out = torch.zeros(x.shape[0], x.shape[1], dtype=torch.float64)
    for token in range(plan.tokens):
        for j in range(plan.top_k):
            e, row = int(plan.ids[token, j]), x[token].double()
            made = down[e] @ (torch.nn.functional.silu(gate[e] @ row) * (up[e] @ row))
            out[token] += plan.scores[token, j].double() * made
    return out


def near(got, want, dtype):
    gap = (got.double() - want).abs() / want.abs().clamp(min=1)
    assert gap.max() <= LIMIT[dtype], gap.max()


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("tokens", [0, 1, 37])
def test_forward_against_float64(dtype, tokens):
    made, weights = experts(dtype=dtype)
    weights = tuple(w.to(dtype) for w in weights)
    torch.manual_seed(2)
    x, logits = torch.randn(tokens, 32).to(dtype), torch.randn(tokens, 4).to(dtype)
    out = made.forward(x, logits, TOP2, **RUN)
    assert out.shape == x.shape and out.dtype == dtype
    if tokens:
        near(out, oracle(weights, x, route(logits, TOP2, **RUN)), dtype)


def test_forward_is_its_steps_bit_for_bit():
    made, _ = experts()
    x, logits = torch.randn(9, 32), torch.randn(9, 4)
    plan = route(logits, TOP2, **RUN)
    tokens = plan.dispatch(x)
    assert torch.equal(made.forward(x, logits, TOP2, **RUN), tokens.combine(made.forward_dispatched(tokens)))
    assert torch.equal(moe.forward(made, x, logits, TOP2, **RUN), made.forward(x, logits, TOP2, **RUN))


@pytest.mark.parametrize("bias", [None, torch.tensor([0.0, -0.4, 0.3, 0.1])])
def test_forward_sigmoid_grouped_is_its_steps(bias):
    made, _ = experts()
    options = SigmoidGroupedOptions(
        2, groups=2, selected_groups=1, group_top_two=True, renormalize=True, scale=2.5
    )
    x, logits = torch.randn(9, 32), torch.randn(9, 4)
    plan = route_sigmoid_grouped(logits, bias, options, **RUN)
    tokens = plan.dispatch(x)
    want = tokens.combine(made.forward_dispatched(tokens))
    for got in (made.forward_sigmoid_grouped(x, logits, bias, options, **RUN),
                moe.forward_sigmoid_grouped(made, x, logits, bias, options, **RUN)):  # fmt: skip
        assert torch.equal(got, want)
    torch.testing.assert_close(plan.weights().sum(dim=1), torch.full((9,), 2.5))


def test_golden_single_expert():
    """CB-01: x = 1, gate = ln 3, up = 2, down = 1."""
    made = SwiGluExperts(*(torch.full((1, 1, 1), v) for v in (math.log(3), 2.0, 1.0)))
    tokens = routed([[0]], count=1).dispatch(torch.ones(1, 1))
    assert made.forward_dispatched(tokens).item() == pytest.approx(1.6479184, abs=2e-7)


OFFSETS = {
    "two-empty": ([[0], [1], [0], [1], [0], [1]], 4, [0, 3, 6, 6, 6]),
    "contention": ([[1, 0]] * 257, 4, [0, 257, 514, 514, 514]),
    "last-only": ([[127]] * 5, 128, [0] * 128 + [5]),
    "every-expert": ([[3, 1, 0, 2]] * 3, 4, [0, 3, 6, 9, 12]),
    "no-token": (torch.zeros(0, 2).tolist(), 4, [0] * 5),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_dispatch_maps_both_ways(name):
    ids, count, offsets = OFFSETS[name]
    plan = routed(ids, count=count)
    if not ids:
        plan = RoutingPlan(torch.zeros(0, 2, dtype=torch.int32), torch.zeros(0, 2), count, plan.options)
    x = torch.randn(plan.tokens, 7)
    made = plan.dispatch(x)
    assert made.offsets.tolist() == offsets
    slots, rows = made.sorted_slots.long(), made.slot_rows.reshape(-1).long()
    assert torch.equal(made.values, x[slots // plan.top_k])
    assert torch.equal(torch.sort(slots).values, torch.arange(len(slots)))
    assert torch.equal(rows[slots], torch.arange(len(slots)))
    assert torch.equal(made.row_experts.long(), plan.ids.reshape(-1)[slots].long())
    assert bool((made.row_experts[1:] >= made.row_experts[:-1]).all())


def test_combine_of_ones_is_the_sum_of_weights():
    plan = route(torch.randn(33, 16), SoftmaxOptions(5, True), **RUN)
    tokens = plan.dispatch(torch.randn(33, 4))
    ones = tokens.combine(torch.ones(33 * 5, 3))  # another width than the input
    torch.testing.assert_close(ones, torch.ones(33, 3), rtol=0, atol=5 * 2**-23)


def test_combine_does_not_depend_on_the_order_the_router_names():
    """CB-09: 2048 + 1 + 1 in float16 is 2048 or 2050, and the same for every order of the ids."""
    made = set()
    for ids in ([[0, 1, 2]], [[2, 1, 0]], [[1, 2, 0]]):
        tokens = routed(ids, torch.ones(1, 3, dtype=torch.float16).tolist(), count=3).dispatch(
            torch.ones(1, 1).half()
        )
        made.add(tokens.combine(torch.tensor([[2048.0], [1.0], [1.0]]).half()).item())
    assert len(made) == 1 and made <= {2048.0, 2050.0}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("logits_dtype", LIMIT)
def test_logits_of_another_dtype(dtype, logits_dtype):
    made, weights = experts(dtype=dtype)
    weights = tuple(w.to(dtype) for w in weights)
    x, logits = torch.randn(5, 32).to(dtype), torch.randn(5, 4).to(logits_dtype)
    out = made.forward(x, logits, TOP2, **RUN)
    assert out.dtype == dtype
    near(out, oracle(weights, x, route(logits, TOP2, **RUN)), dtype)


def test_a_row_without_valid_scores_is_nan_and_no_other():
    made, _ = experts()
    x, logits = torch.randn(6, 32), torch.randn(6, 4)
    clean = made.forward(x, logits, TOP2, **RUN)
    logits[2, 1] = math.nan
    logits[4] = -math.inf
    out = made.forward(x, logits, TOP2, **RUN)
    bad = torch.tensor([2, 4])
    assert out[bad].isnan().all()
    keep = torch.tensor([0, 1, 3, 5])
    assert torch.equal(out[keep], clean[keep])


@pytest.mark.parametrize("dtype", LIMIT)
def test_strategies_agree(dtype):
    made, _ = experts(dtype=dtype)
    tokens = route(torch.randn(40, 4).to(dtype), TOP2, **RUN).dispatch(torch.randn(40, 32).to(dtype))
    scalar = made.forward_dispatched(tokens)
    auto = made.forward_dispatched_with_strategy(tokens, GroupedStrategy.AUTO)
    if dtype is torch.float32:
        assert torch.equal(auto, scalar)
        text = refusal(made.forward_dispatched_with_strategy, tokens, "TensorCore")
        assert "strategy: the cube path takes no float32: got 1 (Cube) with float32" in text
        return
    cube = made.forward_dispatched_with_strategy(tokens, GroupedStrategy.TENSOR_CORE)
    for other in (auto, cube):
        near(other, scalar.double(), dtype)


def test_strategy_names():
    assert GroupedStrategy.TENSOR_CORE is GroupedStrategy.CUBE
    made, _ = experts()
    tokens = routed([[0, 1]]).dispatch(torch.randn(1, 32))
    text = refusal(made.forward_dispatched_with_strategy, tokens, "fast")
    assert text == ("moe.SwiGluExperts.forward_dispatched: strategy: no such strategy: got 'fast'; "
                    "allowed SCALAR, CUBE, AUTO, TENSOR_CORE on every SoC")  # fmt: skip


def test_a_failure_of_the_machine_is_no_reason_to_fall_back(monkeypatch):
    """CB-19: with Auto, what breaks while running surfaces as it is, and nothing runs in its place."""
    made, _ = experts(dtype=torch.float16)
    tokens = routed([[0, 1]]).dispatch(torch.randn(1, 32).half())
    calls = []

    def broken(op, *args, **kwargs):
        calls.append(op)
        raise RuntimeError("the device was lost")

    monkeypatch.setattr(runtime_module, "run", broken)
    with pytest.raises(RuntimeError, match="the device was lost") as caught:
        made.forward_dispatched_with_strategy(tokens, GroupedStrategy.AUTO)
    assert not isinstance(caught.value, HybridOpsError) and len(calls) == 1


@pytest.mark.parametrize("sizes", [(1, 1), (7, 5), (16, 32), (24, 16)])
def test_odd_sizes_and_fused_weights(sizes):
    inner, hidden = sizes
    _, (gate, up, down) = experts(inner=inner, hidden=hidden)
    plan = route(torch.randn(6, 4), TOP2, **RUN)
    tokens = plan.dispatch(torch.randn(6, hidden))
    apart = SwiGluExperts(gate, up, down).forward_dispatched(tokens)
    fused = SwiGluExperts.from_fused(torch.cat([gate, up], dim=1), down).forward_dispatched(tokens)
    assert apart.shape == (12, hidden) and torch.equal(apart, fused)


def test_transposed_fused_weights():
    """[E, H, 2I] and [E, I, H], as grouped products take them."""
    _, (gate, up, down) = experts()
    tokens = route(torch.randn(6, 4), TOP2, **RUN).dispatch(torch.randn(6, 32))
    both = torch.cat([gate, up], dim=1)
    made = [SwiGluExperts.from_fused(both, down),
            SwiGluExperts.from_fused(both.mT.contiguous(), down.mT.contiguous(), transposed=True)]  # fmt: skip
    assert torch.equal(*(m.forward_dispatched(tokens) for m in made))


def test_aligned_weights_are_not_copied():
    gate_up, down = torch.randn(2, 64, 32), torch.randn(2, 32, 32)
    made = SwiGluExperts.from_fused(gate_up, down)
    assert made._gate.data_ptr() == gate_up.data_ptr() and made._down.data_ptr() == down.data_ptr()


def test_experts_serve_many_batches_and_inputs_stay():
    made, weights = experts()
    before = [w.clone() for w in weights]
    for tokens in (1, 8, 3):
        x, logits = torch.randn(tokens, 32), torch.randn(tokens, 4)
        kept = x.clone(), logits.clone()
        outs = {made.forward(x, logits, TOP2, **RUN).numpy().tobytes() for _ in range(10)}
        assert len(outs) == 1
        assert torch.equal(x, kept[0]) and torch.equal(logits, kept[1])
    assert all(torch.equal(w, b) for w, b in zip(weights, before, strict=True))


@pytest.mark.parametrize("bad", [4, 5, 2**31 - 1, -1, -(2**31)])
def test_an_expert_that_does_not_exist_is_no_index(bad):
    """CB-20: its rows are zero, and the token is the sum of the others."""
    made, _ = experts()
    x = torch.randn(2, 32)
    tokens = routed([[1, bad], [bad, 2]]).dispatch(x)
    out = made.forward_dispatched(tokens)
    assert tokens.offsets.tolist() == [0, 0, 1, 2, 2] and not out[2:].any()
    alone = routed([[1], [2]]).dispatch(x)
    assert torch.equal(tokens.combine(out), alone.combine(made.forward_dispatched(alone)))
