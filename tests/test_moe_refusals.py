"""hybrid_ops.moe: the text of every refusal."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from moe_calls import GROUPS, RUN, TOP2, experts, refusal, routed  # noqa: E402

from hybrid_ops import moe  # noqa: E402
from hybrid_ops import runtime as runtime_module  # noqa: E402
from hybrid_ops.moe import SigmoidGroupedOptions, SoftmaxOptions, SwiGluExperts, route, route_sigmoid_grouped  # noqa: E402

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
    "nested": ({"up": torch.nested.nested_tensor([torch.zeros(24, 32), torch.zeros(23, 32)])},
               "up: not a dense tensor: got nested; allowed torch.strided, unquantised"),
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
                           "moe.forward: input: other number of tokens: got 3; allowed T=2 of logits"),
        "forward-rank": (lambda: made.forward(torch.randn(2, 1, 32), logits, TOP2, **RUN),
                         "moe.forward: input: wrong rank: got shape [2, 1, 32]; allowed 2 dimensions"),
        "forward-device": (lambda: made.forward(x, logits.to("meta"), TOP2, **RUN),
                           "moe.forward: logits: other device than the rest of the call: got meta; allowed cpu"),
        "forward-strategy": (lambda: made.forward(x, logits, TOP2, "fast", **RUN),
                             "moe.forward: strategy: no such strategy: got 'fast'; allowed SCALAR, CUBE, AUTO, "
                             "TENSOR_CORE"),
        "forward-cube": (lambda: made.forward(x, logits, TOP2, "cube", **RUN),
                         "moe.forward: strategy: the cube path takes no float32: got CUBE with float32; "
                         "allowed SCALAR, AUTO, or 16-bit weights"),
        "grouped-experts": (lambda: made.forward_sigmoid_grouped(x, torch.randn(2, 6), None, GROUPS, **RUN),
                            "moe.forward_sigmoid_grouped: logits: routed to other experts: got E=6; allowed E=4"),
        "experts-device": (lambda: SwiGluExperts(*(torch.zeros(s, device="meta") for s in W.values()))
                           .forward_dispatched(tokens),
                           "moe.SwiGluExperts.forward_dispatched: dispatched: other device than the rest of the call: "
                           "got cpu; allowed meta"),
        "fused-flag": (lambda: SwiGluExperts.from_fused(torch.zeros(4, 48, 32), torch.zeros(4, 32, 24), transposed=1),
                       "moe.SwiGluExperts.from_fused: transposed: wrong type: got 1; allowed True or False"),
        "fused-columns": (lambda: SwiGluExperts.from_fused(torch.zeros(4, 32, 47), torch.zeros(4, 24, 32), transposed=True),
                          "moe.SwiGluExperts.from_fused: gate_up: an odd number of columns: got 47; "
                          "allowed 2I: gate, then up"),
        "fused-down": (lambda: SwiGluExperts.from_fused(torch.zeros(4, 32, 48), torch.zeros(4, 32, 24), transposed=True),
                       "moe.SwiGluExperts.from_fused: down: shapes disagree: got shape [4, 32, 24]; "
                       "allowed [E, I, H] of gate_up = [4, 24, 32]"),
        "combine-rank": (lambda: tokens.combine(torch.randn(4, 1, 32)),
                         "moe.DispatchedTokens.combine: expert_output: wrong rank: got shape [4, 1, 32]; "
                         "allowed 2 dimensions"),
        "combine-device": (lambda: tokens.combine(torch.zeros(4, 32, device="meta")),
                           "moe.DispatchedTokens.combine: expert_output: other device than the rest of the call: "
                           "got meta; allowed cpu"),
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


def softmax(k, **changes):
    return lambda: route(changes.get("logits", torch.randn(2, 4)), SoftmaxOptions(k, True), **RUN)


def sigmoid(bias=None, experts=8, **changes):
    given = {
        "top_k": 2,
        "groups": 2,
        "selected_groups": 1,
        "group_top_two": False,
        "renormalize": True,
        "scale": 1.0,
    }
    options = SigmoidGroupedOptions(**given | changes)
    return lambda: route_sigmoid_grouped(torch.randn(2, experts), bias, options, **RUN)


OPERATOR = {
    "top-k-0": (softmax(0), "k: k out of range: got k=0, E=4; allowed 1 <= k <= E"),
    "top-k-beyond": (softmax(5), "k: k out of range: got k=5, E=4; allowed 1 <= k <= E"),
    "experts-1025": (sigmoid(experts=1025, groups=1),
                     "x: E out of range with sigmoid or groups: got E=1025, norm_type=1, group_count=1; allowed "
                     "E <= 1024 or norm_type == 0 and group_count == 1"),
    "groups-0": (sigmoid(groups=0), "group_count: group_count out of range: got group_count=0; "
                                    "allowed 1 <= group_count <= 128"),
    "groups-129": (sigmoid(experts=129, groups=129), "group_count: group_count out of range: got group_count=129; "
                                                     "allowed 1 <= group_count <= 128"),
    "groups-uneven": (sigmoid(groups=3), "x: E must be a multiple of group_count: got E=8, group_count=3; "
                                         "allowed E % group_count == 0"),
    "selected-0": (sigmoid(selected_groups=0), "k_group: k_group out of range: got k_group=0, group_count=2; "
                                               "allowed 1 <= k_group <= group_count"),
    "selected-3": (sigmoid(selected_groups=3), "k_group: k_group out of range: got k_group=3, group_count=2; "
                                               "allowed 1 <= k_group <= group_count"),
    "capacity": (sigmoid(top_k=5), "k: more than the selected groups have: got k=5, k_group=1, E=8, group_count=2; "
                                   "allowed k <= k_group * (E // group_count)"),
    "top-two": (sigmoid(groups=8, selected_groups=2, group_top_two=True),
                "group_select_mode: a group needs two experts for the sum of its best two: got group_select_mode=1, E=8, "
                "group_count=8; allowed group_select_mode == 0 or E // group_count >= 2"),
    "top-k-65": (sigmoid(experts=128, groups=1, top_k=65),
                 "k: k out of range with sigmoid or groups: got k=65, norm_type=1, group_count=1; allowed "
                 "k <= 64 or norm_type == 0 and group_count == 1"),
    "scale-0": (sigmoid(scale=0.0), "routed_scaling_factor: not above 0: got 0; allowed > 0"),
    "scale-minus": (sigmoid(scale=-1), "routed_scaling_factor: not above 0: got -1; allowed > 0"),
    "scale-nan": (sigmoid(scale=math.nan), "routed_scaling_factor: not finite: got nan; allowed a finite float"),
    "scale-inf": (sigmoid(scale=math.inf), "routed_scaling_factor: not finite: got inf; allowed a finite float"),
    "bias-half": (sigmoid(torch.zeros(8).half()), "bias: dtype not available: got float16; allowed float32"),
    "bias-short": (sigmoid(torch.zeros(7)), "bias: axis E differs from E of x: got E=7 (shape [7]); allowed E=8"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATOR)
def test_the_operators_refusals_are_moe_errors(name):
    call, wanted = OPERATOR[name]
    text = refusal(call)
    assert text in (f"hybrid_moe_gating_top_k: {wanted} on {soc}" for soc in ("ascend910b", "every SoC"))


def test_a_refused_forward_launches_nothing(monkeypatch):
    """What only the experts have not is known before the router runs."""
    made, _ = experts()
    ran = []
    monkeypatch.setattr(runtime_module, "run", lambda op, *args, **kwargs: ran.append(op))
    x, logits = torch.randn(2, 32), torch.randn(2, 4)
    text = refusal(made.forward, x, logits, TOP2, backend="sim", soc="ascend310p")
    assert text == "moe.forward: input: dtype not available: got float32; allowed float16 on ascend310p"
    for change in ({"strategy": "cube"}, {"soc": "ascend999"}):
        refusal(made.forward, x, logits, TOP2, **{"backend": "sim", "soc": "ascend910b"} | change)
    assert not ran


def test_float32_experts_are_refused_where_the_chip_has_none():
    made, _ = experts()
    tokens = routed([[0, 1]], soc="ascend310p").dispatch(torch.randn(1, 32))
    text = refusal(made.forward_dispatched, tokens)
    assert "expanded_x: dtype not available: got float32; allowed float16 on ascend310p" in text
