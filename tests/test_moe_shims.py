"""Calls with vLLM-Ascend's and torch_npu's names: the same results as the library's, the same refusals."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hybrid_ops import moe  # noqa: E402
from hybrid_ops.moe import MoeError, SigmoidGroupedOptions, SoftmaxOptions, SwiGluExperts  # noqa: E402

RUN = {"backend": "reference", "soc": "ascend910b"}


def test_gating_is_grouped_sigmoid_routing():
    logits, bias = torch.randn(7, 16), torch.randn(16)
    weights, ids, rest = moe.npu_moe_gating_top_k(
        logits,
        4,
        bias=bias,
        k_group=2,
        group_count=4,
        group_select_mode=1,
        norm_type=1,
        routed_scaling_factor=2.5,
        **RUN,
    )
    options = SigmoidGroupedOptions(4, 4, 2, True, True, 2.5)
    plan = moe.route_sigmoid_grouped(logits, bias, options, **RUN)
    assert rest is None and torch.equal(ids, plan.ids) and torch.equal(weights, plan.scores)


def test_softmax_gating_with_finished_rows():
    logits = torch.randn(5, 8)
    weights, ids, rows = moe.npu_moe_gating_top_k_softmax(
        logits, torch.tensor([0, 1, 0, 0, 1]).bool(), k=2, **RUN
    )
    plan = moe.route(logits, SoftmaxOptions(2, False), **RUN)
    assert torch.equal(weights, plan.scores)
    assert torch.equal(ids[[0, 2, 3]], plan.ids[[0, 2, 3]]) and (ids[[1, 4]] == 8).all()
    assert rows.tolist() == [[t, t + 5] for t in range(5)] and rows.dtype == torch.int32


@pytest.mark.parametrize("renormalize", [True, False])
def test_select_experts(renormalize):
    logits = torch.randn(5, 8)
    weights, ids = moe.select_experts(torch.randn(5, 4), logits, 3, renormalize=renormalize, **RUN)
    plan = moe.route(logits, SoftmaxOptions(3, renormalize), **RUN)
    assert torch.equal(ids, plan.ids) and torch.equal(weights, plan.scores)


def test_select_experts_grouped():
    logits, bias = torch.randn(5, 16), torch.randn(16)
    made = moe.select_experts(
        torch.randn(5, 4), logits, 4, True, True, 2, 4, "sigmoid", 2.5, bias, **RUN
    )  # fmt: skip
    plan = moe.route_sigmoid_grouped(logits, bias, SigmoidGroupedOptions(4, 4, 2, True, True, 2.5), **RUN)
    assert torch.equal(made[1], plan.ids) and torch.equal(made[0], plan.scores)


def test_permute_and_back():
    x, ids = torch.randn(6, 5), torch.randint(0, 4, (6, 3))
    values, rows, ends, _ = moe.npu_moe_init_routing_v2(x, ids, expert_num=4, active_num=18, **RUN)
    counts = torch.bincount(ids.reshape(-1), minlength=4)
    assert torch.equal(ends, counts.cumsum(0)) and ends.dtype == torch.int64
    assert torch.equal(values[rows.long()], x.repeat_interleave(3, dim=0))
    _, slots, each, _ = moe.npu_moe_init_routing_v2(
        x, ids, expert_num=4, expert_tokens_num_type=1, row_idx_type=1, **RUN
    )
    assert torch.equal(each, counts) and torch.equal(slots[rows.long()].long(), torch.arange(18))
    probs = torch.full((6, 3), 0.25)
    back = moe.npu_moe_token_unpermute(values, rows, probs, **RUN)
    torch.testing.assert_close(back, 0.75 * x)
    plain = moe.npu_moe_init_routing_v2(x, ids[:, :1], expert_num=4, **RUN)
    assert torch.equal(moe.npu_moe_token_unpermute(plain[0], plain[1], **RUN), x)


@pytest.mark.parametrize("shape", [(6, 3), (6, 1), (6,)])
def test_token_permute_and_unpermute(shape):
    """CB-21: the round trip gives the tokens back, K times; torch's stable sort is the order."""
    x, ids = torch.randn(6, 5), torch.randint(0, 40, shape)
    rows, places = moe.npu_moe_token_permute(x, ids, ids.numel(), **RUN)
    order = torch.sort(ids.reshape(-1), stable=True).indices
    assert torch.equal(rows, x[order // (ids.numel() // 6)]) and places.dtype == torch.int32
    assert torch.equal(places.long(), torch.argsort(order))
    weights = None if ids.numel() == 6 else torch.ones(6, 3)
    torch.testing.assert_close(
        moe.npu_moe_token_unpermute(rows, places, weights, **RUN), x * (ids.numel() // 6)
    )
    _, lost = moe.npu_moe_token_permute(x, torch.tensor([0, 2048, -1, 2**40, 1, 0]), **RUN)
    assert lost.tolist() == [0, -1, -1, -1, 2, 1]


def test_fused_experts_with_a_padded_id():
    torch.manual_seed(3)
    x, w1, w2 = torch.randn(4, 32), torch.randn(6, 48, 32) / 6, torch.randn(6, 32, 24) / 5
    weights, ids = torch.rand(4, 2), torch.tensor([[0, 5], [6, 2], [1, -1], [3, 4]])
    got = moe.fused_experts(x, w1, w2, weights, ids, **RUN)
    want = torch.zeros(4, 32)
    for token, line in enumerate(ids.tolist()):
        for j, e in enumerate(line):
            if 0 <= e < 6:
                gate, up = (w1[e] @ x[token]).chunk(2)
                want[token] += weights[token, j] * (w2[e] @ (torch.nn.functional.silu(gate) * up))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def refusals():
    x, ids = torch.randn(2, 4), torch.zeros(2, 1, dtype=torch.int32)
    experts = torch.zeros(2, 8, 4), torch.zeros(2, 4, 4)
    return {
        "renorm": (lambda: moe.npu_moe_gating_top_k(x, 1, renorm=1),
                   "moe.npu_moe_gating_top_k: renorm: softmax behind the selection is not available: got 1; allowed 0"),
        "out_flag": (lambda: moe.npu_moe_gating_top_k(x, 1, out_flag=True),
                     "moe.npu_moe_gating_top_k: out_flag: scores of all experts are not returned: got True; allowed False"),
        "capacity": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, drop_pad_mode=1),
                     "moe.npu_moe_init_routing_v2: drop_pad_mode: not available: got 1; allowed 0"),
        "quantised": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, quant_mode=1),
                      "moe.npu_moe_init_routing_v2: quant_mode: not available: got 1; allowed -1"),
        "range": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, active_expert_range=[0, 2]),
                  "moe.npu_moe_init_routing_v2: active_expert_range: not available: got [0, 2]; allowed [0, 4]"),
        "permute-padded": (lambda: moe.npu_moe_token_permute(x, ids, padded_mode=True),
                           "moe.npu_moe_token_permute: padded_mode: not available: got True; allowed False"),
        "permute-dropped": (lambda: moe.npu_moe_token_permute(x, ids, 1),
                            "moe.npu_moe_token_permute: num_out_tokens: rows cannot be dropped: got 1; "
                            "allowed None or 0 or 2"),
        "permute-shape": (lambda: moe.npu_moe_token_permute(x, torch.zeros(3, 1).int()),
                          "moe.npu_moe_token_permute: indices: not the numbers of each token: got shape [3, 1]; "
                          "allowed [2, K] or [2]"),
        "scores": (lambda: moe.select_experts(x, x, 1, scoring_func="relu"),
                   "moe.select_experts: scoring_func: no such scores: got 'relu'; allowed softmax or sigmoid"),
        "tokens": (lambda: moe.select_experts(torch.randn(3, 4), x, 1),
                   "moe.select_experts: router_logits: other number of tokens: got 2; allowed T=3 of hidden_states"),
        "rows": (lambda: moe.npu_moe_token_unpermute(x, torch.zeros(3, dtype=torch.int32)),
                 "moe.npu_moe_token_unpermute: sorted_indices: other number of rows: got 3; allowed 2, one per row"),
        "weights": (lambda: moe.fused_experts(x, *experts, torch.rand(2, 2), ids),
                    "moe.fused_experts: topk_weights: other shape than topk_ids: got [2, 2]; allowed [2, 1]"),
        "option": (lambda: moe.npu_moe_token_unpermute(x, torch.zeros(2, dtype=torch.int32), stream=1),
                   "moe.npu_moe_token_unpermute: options: no such option: got stream; allowed backend, soc, checks"),
    }  # fmt: skip


@pytest.mark.parametrize("name", refusals())
def test_what_the_names_promise_beyond_the_operators_is_refused(name):
    call, wanted = refusals()[name]
    with pytest.raises(MoeError) as caught:
        call()
    assert str(caught.value) == f"{wanted} on every SoC"


def test_public_names_exist():
    for name in moe.__all__:
        assert getattr(moe, name).__doc__
    assert SwiGluExperts is moe.SwiGluExperts


def test_wide_ids_do_not_wrap_to_valid_ones():
    """int64 numbers that int32 would fold onto 0, 1 and 2 name no expert and no row."""
    far = torch.tensor([[2**32, 1], [2**32 + 1, 2], [-(2**33), 3]])
    near = torch.tensor([[-1, 1], [-1, 2], [-1, 3]])
    x, w13, w2 = torch.randn(3, 32), torch.randn(4, 48, 32), torch.randn(4, 32, 24)
    weights = torch.ones(3, 2)
    made, want = (moe.fused_experts(x, w13, w2, weights, ids, **RUN) for ids in (far, near))
    assert torch.equal(made, want)
    _, rows, counts, _ = moe.npu_moe_init_routing_v2(x, far, expert_num=4, expert_tokens_num_type=1, **RUN)
    assert rows.tolist() == [-1, 0, -1, 1, -1, 2] and counts.tolist() == [0, 1, 1, 1]
    tokens = moe.npu_moe_token_unpermute(x, torch.tensor([2**32, 1, 2]), **RUN)
    assert torch.equal(tokens, torch.stack([torch.zeros(32), x[1], x[2]]))


def hostile():
    x, logits, ids = torch.randn(3, 32), torch.randn(3, 4), torch.zeros(3, 2, dtype=torch.int32)
    w13, w2, one = torch.randn(4, 48, 32), torch.randn(4, 32, 24), torch.ones(3, 2)
    scored = {"scoring_func": "sigmoid"}
    return {
        "gating-k": (lambda: moe.npu_moe_gating_top_k(logits, "2", **RUN),
                     "npu_moe_gating_top_k: k: not a whole number: got '2'; allowed int"),
        "gating-k-far": (lambda: moe.npu_moe_gating_top_k(logits, 2**70, **RUN),
                         f"npu_moe_gating_top_k: k: does not fit 64 bits: got {2**70}; allowed int64"),
        "gating-bias": (lambda: moe.npu_moe_gating_top_k(logits, 2, bias=[0.0] * 4, norm_type=1, **RUN),
                        "npu_moe_gating_top_k: bias: not a tensor: got list; allowed torch.Tensor"),
        "gating-scale": (lambda: moe.npu_moe_gating_top_k(logits, 2, routed_scaling_factor=None, **RUN),
                         "npu_moe_gating_top_k: routed_scaling_factor: not a number: got None; allowed a number"),
        "softmax-flags": (lambda: moe.npu_moe_gating_top_k_softmax(logits, torch.zeros(2, dtype=torch.bool), 2, **RUN),
                          "npu_moe_gating_top_k_softmax: finished: not one flag per row: got bool [2]; allowed bool [3]"),
        "softmax-flag-type": (lambda: moe.npu_moe_gating_top_k_softmax(logits, torch.zeros(3).int(), 2, **RUN),
                              "npu_moe_gating_top_k_softmax: finished: not one flag per row: got int32 [3]; "
                              "allowed bool [3]"),
        **{f"gating-renorm-{type(bad).__name__}": (lambda bad=bad: moe.npu_moe_gating_top_k(logits, 2, renorm=bad, **RUN),
           f"npu_moe_gating_top_k: renorm: softmax behind the selection is not available: got {said}; allowed 0")
           for bad, said in ((one, "Tensor"), (None, "None"), ("", "''"), ([], "[]"), (False, "False"))},
        "gating-out-flag": (lambda: moe.npu_moe_gating_top_k(logits, 2, out_flag=one, **RUN),
                            "npu_moe_gating_top_k: out_flag: scores of all experts are not returned: got Tensor; allowed False"),
        "select-grouped": (lambda: moe.select_experts(x, logits, 2, use_grouped_topk=2, **RUN),
                           "select_experts: use_grouped_topk: wrong type: got 2; allowed True or False"),
        "select-scores": (lambda: moe.select_experts(x, logits, 2, scoring_func=one, **RUN),
                          "select_experts: scoring_func: no such scores: got Tensor; allowed softmax or sigmoid"),
        "routing-type": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, row_idx_type=True, **RUN),
                         "npu_moe_init_routing_v2: row_idx_type: not available: got True; allowed 0 or 1"),
        "routing-tokens": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, expert_tokens_num_type=one, **RUN),
                           "npu_moe_init_routing_v2: expert_tokens_num_type: not available: got Tensor; allowed 0 or 1"),
        "routing-no-tokens": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, expert_tokens_num_flag=False, **RUN),
                              "npu_moe_init_routing_v2: expert_tokens_num_flag: not available: got False; allowed True"),
        "permute-tensor": (lambda: moe.npu_moe_token_permute(x, ids, one, **RUN),
                           "npu_moe_token_permute: num_out_tokens: rows cannot be dropped: got Tensor; allowed None or 0 or 6"),
        "select-none": (lambda: moe.select_experts(None, logits, 2, **RUN),
                        "select_experts: hidden_states: not a tensor: got NoneType; allowed torch.Tensor"),
        "select-scalar": (lambda: moe.select_experts(torch.tensor(1.0), logits, 2, **RUN),
                          "select_experts: hidden_states: wrong rank: got shape []; allowed 1 dimension or more"),
        "select-renormalize": (lambda: moe.select_experts(x, logits, 2, renormalize="yes", **RUN),
                               "select_experts: renormalize: wrong type: got 'yes'; allowed True or False"),
        "select-bias": (lambda: moe.select_experts(x, logits, 2, e_score_correction_bias=3, **scored, **RUN),
                        "select_experts: e_score_correction_bias: not a tensor: got int; allowed torch.Tensor"),
        "routing-floats": (lambda: moe.npu_moe_init_routing_v2(x, one, expert_num=4, **RUN),
                           "npu_moe_init_routing_v2: expert_idx: not whole numbers: got float32; allowed int32, int64"),
        "routing-range": (lambda: moe.npu_moe_init_routing_v2(x, ids, expert_num=4, active_expert_range=5, **RUN),
                          "npu_moe_init_routing_v2: active_expert_range: not available: got 5; allowed [0, 4]"),
        "unpermute-weights": (lambda: moe.npu_moe_token_unpermute(x, ids[:, 0], torch.ones(2, 2), **RUN),
                              "npu_moe_token_unpermute: probs: not one weight per row: got shape [2, 2]; "
                              "allowed [T, K] with T * K = 3"),
        "unpermute-list": (lambda: moe.npu_moe_token_unpermute(x, [0, 1, 2], **RUN),
                           "npu_moe_token_unpermute: sorted_indices: not a tensor: got list; allowed torch.Tensor"),
        "experts-ids": (lambda: moe.fused_experts(x, w13, w2, one, one, **RUN),
                        "fused_experts: topk_ids: not whole numbers: got float32; allowed int32, int64"),
        "experts-weights": (lambda: moe.fused_experts(x, w13, w2, ids, ids, **RUN),
                            "fused_experts: topk_weights: not a float tensor: got int32; "
                            "allowed float32, float16, bfloat16"),
        "forward": (lambda: moe.forward(None, x, logits, moe.SoftmaxOptions(2, True), **RUN),
                    "forward: experts: wrong type: got NoneType; allowed SwiGluExperts"),
        "scale-far": (lambda: moe.route_sigmoid_grouped(
                          logits, None, moe.SigmoidGroupedOptions(2, 1, 1, False, True, 10**400), **RUN),
                      "route_sigmoid_grouped: scale: beyond float: got a whole number of its size; "
                      "allowed float above 0"),
    }  # fmt: skip


@pytest.mark.parametrize("name", hostile())
def test_hostile_arguments_are_refused_in_the_one_form(name):
    call, wanted = hostile()[name]
    with pytest.raises(moe.MoeError) as caught:
        call()
    assert str(caught.value) == f"moe.{wanted} on every SoC"


def test_no_group_is_not_one_group():
    x, logits = torch.randn(3, 32), torch.randn(3, 4)
    groups = {"use_grouped_topk": True, "num_expert_group": 2, "topk_group": 0}
    with pytest.raises(MoeError, match="k_group out of range: got k_group=0, group_count=2"):
        moe.select_experts(x, logits, 2, **groups, **RUN)
