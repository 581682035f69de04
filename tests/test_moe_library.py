"""hybrid_ops.moe: the contract's cases of dispatch, experts and combination, and the text of every refusal."""

from __future__ import annotations

import math
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hybrid_ops import HybridOpsError, moe  # noqa: E402
from hybrid_ops import runtime as runtime_module  # noqa: E402
from hybrid_ops.moe import (  # noqa: E402
    GroupedStrategy,
    MoeError,
    SigmoidGroupedOptions,
    SoftmaxOptions,
    SwiGluExperts,
    route,
    route_sigmoid_grouped,
)
from hybrid_ops.moe.routing import RoutingPlan  # noqa: E402

RUN = {"backend": "reference", "soc": "ascend910b"}
LIMIT = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
TOP2 = SoftmaxOptions(top_k=2, renormalize=True)


def experts(count=4, inner=24, hidden=32, dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    gate, up = (torch.randn(count, inner, hidden) * hidden**-0.5 for _ in range(2))
    down = torch.randn(count, hidden, inner) * inner**-0.5
    return SwiGluExperts(gate.to(dtype), up.to(dtype), down.to(dtype)), (gate, up, down)


def routed(ids, scores=None, count=4, **options):
    ids = torch.tensor(ids, dtype=torch.int32)
    scores = torch.ones(ids.shape) if scores is None else torch.tensor(scores)
    return RoutingPlan(ids, scores, count, {**RUN, "checks": None, **options})


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


def refusal(function, *args, **kwargs):
    with pytest.raises(MoeError) as caught:
        function(*args, **kwargs)
    assert isinstance(caught.value, HybridOpsError) and isinstance(caught.value, ValueError)
    return str(caught.value)


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


W = {"gate": (4, 24, 32), "up": (4, 24, 32), "down": (4, 32, 24)}
BAD_WEIGHTS = {
    "up-shape": ({"up": torch.zeros(4, 23, 32)},
                 "up: shapes disagree: got shape [4, 23, 32]; allowed [E, I, H] of gate = [4, 24, 32]"),
    "down-shape": ({"down": torch.zeros(4, 24, 32)},
                   "down: shapes disagree: got shape [4, 24, 32]; allowed [E, H, I] of gate = [4, 32, 24]"),
    "rank": ({"gate": torch.zeros(24, 32)}, "gate: wrong rank: got shape [24, 32]; allowed 3 dimensions"),
    "empty": ({"gate": torch.zeros(4, 0, 32)}, "gate: an axis is empty: got shape [4, 0, 32]; allowed E, I, H >= 1"),
    "mixed": ({"down": torch.zeros(4, 32, 24).half()}, "down: dtypes differ: got float16; allowed float32 as gate"),
    "device": ({"up": torch.zeros(4, 24, 32, device="meta")},
               "up: other device than the rest of the call: got meta; allowed cpu"),
    "whole": ({"gate": torch.zeros(4, 24, 32, dtype=torch.int8)},
              "gate: not a float tensor: got int8; allowed float32, float16, bfloat16"),
    "none": ({"gate": None}, "gate: not a tensor: got NoneType; allowed torch.Tensor"),
    "sparse": ({"up": torch.zeros(4, 24, 32).to_sparse()},
               "up: not a dense tensor: got torch.sparse_coo; allowed torch.strided, unquantised"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_are_refused(name):
    changes, wanted = BAD_WEIGHTS[name]
    given = {n: torch.zeros(s) for n, s in W.items()} | changes
    assert refusal(SwiGluExperts, **given) == f"moe.SwiGluExperts: {wanted} on every SoC"


def test_quantised_weights_are_refused():
    quantised = torch.quantize_per_tensor(torch.zeros(4, 24, 32), 0.1, 0, torch.qint8)
    text = refusal(SwiGluExperts, quantised, torch.zeros(4, 24, 32), torch.zeros(4, 32, 24))
    assert text.startswith(
        "moe.SwiGluExperts: gate: not a dense tensor: got quantized; allowed torch.strided"
    )


def test_odd_fused_weights_are_refused():
    text = refusal(SwiGluExperts.from_fused, torch.zeros(4, 47, 32), torch.zeros(4, 32, 24))
    assert text == ("moe.SwiGluExperts.from_fused: gate_up: an odd number of rows: got 47; allowed 2I: gate, then up "
                    "on every SoC")  # fmt: skip


def calls():
    made, _ = experts()
    plan = routed([[0, 1], [2, 3]])
    x = torch.randn(2, 32)
    tokens = plan.dispatch(x)
    logits = torch.randn(2, 4)
    return {
        "dispatch-tokens": (lambda: plan.dispatch(torch.randn(3, 32)),
                            "moe.dispatch: input: other number of tokens than the plan: got 3; allowed T=2"),
        "dispatch-rank": (lambda: plan.dispatch(torch.randn(2, 4, 8)),
                          "moe.dispatch: input: wrong rank: got shape [2, 4, 8]; allowed 2 dimensions"),
        "dispatch-empty": (lambda: plan.dispatch(torch.randn(2, 0)),
                           "moe.dispatch: input: rows are empty: got H=0; allowed H >= 1"),
        "dispatch-dtype": (lambda: plan.dispatch(torch.zeros(2, 32, dtype=torch.int32)),
                           "moe.dispatch: input: not a float tensor: got int32; allowed float32, float16, bfloat16"),
        "dispatch-device": (lambda: plan.dispatch(torch.zeros(2, 32, device="meta")),
                            "moe.dispatch: input: other device than the rest of the call: got meta; allowed cpu"),
        "dispatch-plan": (lambda: moe.dispatch(None, x),
                          "moe.dispatch: plan: wrong type: got NoneType; allowed RoutingPlan"),
        "experts-count": (lambda: experts(count=5)[0].forward_dispatched(tokens),
                          "moe.SwiGluExperts.forward_dispatched: dispatched: routed to other experts: got E=4; "
                          "allowed E=5"),
        "experts-width": (lambda: experts(hidden=16)[0].forward_dispatched(tokens),
                          "moe.SwiGluExperts.forward_dispatched: dispatched: rows of another width: got H=32; "
                          "allowed H=16"),
        "experts-dtype": (lambda: experts(dtype=torch.float16)[0].forward_dispatched(tokens),
                          "moe.SwiGluExperts.forward_dispatched: dispatched: dtypes differ: got float32; "
                          "allowed float16 as the weights"),
        "experts-type": (lambda: made.forward_dispatched(x),
                         "moe.SwiGluExperts.forward_dispatched: dispatched: wrong type: got Tensor; "
                         "allowed DispatchedTokens"),
        "forward-experts": (lambda: made.forward(x, torch.randn(2, 5), TOP2, **RUN),
                            "moe.forward: logits: routed to other experts: got E=5; allowed E=4"),
        "forward-width": (lambda: made.forward(torch.randn(2, 31), logits, TOP2, **RUN),
                          "moe.forward: input: rows of another width: got H=31; allowed H=32"),
        "forward-tokens": (lambda: made.forward(torch.randn(3, 32), logits, TOP2, **RUN),
                           "moe.dispatch: input: other number of tokens than the plan: got 3; allowed T=2"),
        "combine-rows": (lambda: tokens.combine(torch.randn(3, 32)),
                         "moe.DispatchedTokens.combine: expert_output: other rows than were dispatched: got 3 rows; "
                         "allowed 4, one per token and expert"),
        "combine-dtype": (lambda: tokens.combine(torch.randn(4, 32).half()),
                          "moe.DispatchedTokens.combine: expert_output: other dtype than the dispatched rows: "
                          "got float16; allowed float32"),
        "route-options": (lambda: route(logits, {"top_k": 2}),
                          "moe.route: options: wrong type: got dict; allowed SoftmaxOptions"),
        "route-top-k": (lambda: route(logits, SoftmaxOptions(2.0, True)),
                        "moe.route: top_k: not a whole number: got 2.0; allowed int"),
        "route-renormalize": (lambda: route(logits, SoftmaxOptions(2, 1)),
                              "moe.route: renormalize: wrong type: got 1; allowed True or False"),
        "route-rank": (lambda: route(torch.randn(4), TOP2),
                       "moe.route: logits: wrong rank: got shape [4]; allowed 2 dimensions"),
        "route-whole": (lambda: route(torch.zeros(2, 4, dtype=torch.int64), TOP2),
                        "moe.route: logits: not a float tensor: got int64; allowed float32, float16, bfloat16"),
        "route-option": (lambda: route(logits, TOP2, device="npu"),
                         "moe.route: options: no such option: got device; allowed backend, soc, checks"),
        "sigmoid-options": (lambda: route_sigmoid_grouped(logits, None, TOP2),
                            "moe.route_sigmoid_grouped: options: wrong type: got SoftmaxOptions; "
                            "allowed SigmoidGroupedOptions"),
        "sigmoid-bias-device": (lambda: route_sigmoid_grouped(logits, torch.zeros(4, device="meta"),
                                                              SigmoidGroupedOptions(2, 1, 1, False, True, 1.0)),
                                "moe.route_sigmoid_grouped: bias: other device than the rest of the call: got meta; "
                                "allowed cpu"),
        "sigmoid-scale": (lambda: route_sigmoid_grouped(logits, None,
                                                        SigmoidGroupedOptions(2, 1, 1, False, True, None)),
                          "moe.route_sigmoid_grouped: scale: not a number: got None; allowed float above 0"),
    }  # fmt: skip


@pytest.mark.parametrize("name", calls())
def test_calls_are_refused(name):
    call, wanted = calls()[name]
    assert refusal(call) == f"{wanted} on every SoC"


OPERATOR = {
    "top-k-0": (SoftmaxOptions(0, True), "k: k out of range: got k=0, E=4; allowed 1 <= k <= E"),
    "top-k-beyond": (SoftmaxOptions(5, True), "k: k out of range: got k=5, E=4; allowed 1 <= k <= E"),
}


@pytest.mark.parametrize("name", OPERATOR)
def test_the_operators_refusals_are_moe_errors(name):
    options, wanted = OPERATOR[name]
    text = refusal(route, torch.randn(2, 4), options, **RUN)
    assert re.search(re.escape(wanted.split(": ", 1)[1].split(": got")[0]), text), text
    assert "on ascend910b" in text


def test_float32_experts_are_refused_where_the_chip_has_none():
    made, _ = experts()
    tokens = routed([[0, 1]], soc="ascend310p").dispatch(torch.randn(1, 32))
    text = refusal(made.forward_dispatched, tokens)
    assert "expanded_x: dtype not available: got float32; allowed float16 on ascend310p" in text
