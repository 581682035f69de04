"""Calls with the names and arguments that vLLM-Ascend and torch_npu users know, over the same operators.

What those calls take beyond our operators (quantised rows, capacity, expert parallel ranges) is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .call import hold_options, run
from .dispatched import COMBINE, INIT, dispatch
from .errors import refuse
from .experts import SwiGluExperts
from .routing import GATING, RoutingPlan
from .strategies import GroupedStrategy


def npu_moe_gating_top_k(
    x: torch.Tensor,
    k: int,
    *,
    bias: torch.Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """(weights [T, k], expert_idx int32 [T, k], None) as torch_npu.npu_moe_gating_top_k: sigmoid weights are divided by their
    sum. eps is accepted and not added: a row whose selected scores are all 0 has NaN weights.
    """
    where = "npu_moe_gating_top_k"
    if renorm:
        raise refuse(where, "renorm", "softmax behind the selection is not available", renorm, 0)
    if out_flag:
        raise refuse(where, "out_flag", "scores of all experts are not returned", out_flag, False)
    attrs = {"k": k, "k_group": k_group, "group_count": group_count, "group_select_mode": group_select_mode,
             "norm_type": norm_type, "norm_topk_prob": norm_type == 1,
             "routed_scaling_factor": float(routed_scaling_factor)}  # fmt: skip
    bias = None if bias is None else bias.float()
    weights, ids = run(GATING, {"x": x, "bias": bias}, attrs, hold_options(where, options))
    return weights, ids, None


def npu_moe_gating_top_k_softmax(
    x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weights [T, k], expert_idx int32 [T, k], row_idx int32 [T, k]); `finished` [T] bool rows get expert E. Any T."""
    chosen = hold_options("npu_moe_gating_top_k_softmax", options)
    weights, ids = run(GATING, {"x": x, "bias": None}, {"k": k}, chosen)
    if finished is not None:
        ids = torch.where(finished.reshape(-1, 1), torch.full_like(ids, x.shape[1]), ids)
    rows = torch.arange(ids.numel(), dtype=torch.int32, device=ids.device).reshape(k, -1).T.contiguous()
    return weights, ids, rows


def select_experts(
    hidden_states: torch.Tensor,
    router_logits: torch.Tensor,
    top_k: int,
    use_grouped_topk: bool = False,
    renormalize: bool = True,
    topk_group: int | None = None,
    num_expert_group: int | None = None,
    scoring_func: str = "softmax",
    routed_scaling_factor: float = 1.0,
    e_score_correction_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(topk_weights, topk_ids int32), both [T, top_k], with the arguments of vLLM's layers."""
    where = "select_experts"
    if scoring_func not in ("softmax", "sigmoid"):
        raise refuse(where, "scoring_func", "no such scores", repr(scoring_func), "softmax, sigmoid")
    if hidden_states.shape[0] != router_logits.shape[0]:
        got, allowed = router_logits.shape[0], f"T={hidden_states.shape[0]} of hidden_states"
        raise refuse(where, "router_logits", "other number of tokens", got, allowed)
    groups = (num_expert_group or 1, topk_group or 1) if use_grouped_topk else (1, 1)
    bias = e_score_correction_bias
    attrs = {"k": top_k, "group_count": groups[0], "k_group": groups[1],
             "group_select_mode": int(use_grouped_topk and bias is not None), "norm_type": int(scoring_func == "sigmoid"),
             "norm_topk_prob": renormalize, "routed_scaling_factor": float(routed_scaling_factor)}  # fmt: skip
    tensors = {"x": router_logits, "bias": None if bias is None else bias.float()}
    weights, ids = run(GATING, tensors, attrs, hold_options(where, options))
    return weights, ids


def npu_moe_init_routing_v2(
    x: torch.Tensor,
    expert_idx: torch.Tensor,
    *,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = True,
    active_expert_range: Sequence[int] | None = None,
    quant_mode: int = -1,
    row_idx_type: int = 0,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
    """(expanded_x [T*K, H], expanded_row_idx int32 [T*K], expert tokens int64 [E], None).

    expert_tokens_num_type 0: inclusive sums, 1: counts. row_idx_type 0: row of a slot, 1: slot of a row.
    Experts outside 0 to expert_num - 1 have no row: their slots are -1 and zero rows stand behind all others.
    """
    where = "npu_moe_init_routing_v2"
    active = [0, expert_num] if active_expert_range is None else list(active_expert_range)
    slots = expert_idx.numel()
    fixed = {
        "active_num": (active_num, (-1, slots)),
        "drop_pad_mode": (drop_pad_mode, (0,)),
        "quant_mode": (quant_mode, (-1,)),
        "active_expert_range": (active, ([0, expert_num],)),
        "expert_tokens_num_type": (expert_tokens_num_type, (0, 1)),
        "row_idx_type": (row_idx_type, (0, 1)),
    }
    for name, (value, allowed) in fixed.items():
        if value not in allowed:
            raise refuse(where, name, "not available", value, " or ".join(str(a) for a in allowed))
    tensors = {"x": x, "expert_idx": expert_idx.to(torch.int32)}
    values, rows, offsets, sorted_slots, _ = run(
        INIT, tensors, {"expert_num": expert_num}, hold_options(where, options)
    )
    ends = offsets[1:].long()
    tokens = ends if expert_tokens_num_type == 0 else ends - offsets[:-1].long()
    return values, rows.reshape(-1) if row_idx_type == 0 else sorted_slots, tokens, None


def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Tokens [T, H] from permuted rows: sorted_indices int32 [T * K] is the row of a slot, probs [T, K] its weight (None: 1)."""
    where = "npu_moe_token_unpermute"
    k = 1 if probs is None else int(probs.shape[-1])
    if sorted_indices.numel() != permuted_tokens.shape[0]:
        got, allowed = sorted_indices.numel(), f"{permuted_tokens.shape[0]}, one per row"
        raise refuse(where, "sorted_indices", "other number of rows", got, allowed)
    rows = sorted_indices.reshape(-1, k).to(torch.int32)
    weights = torch.ones(rows.shape, device=rows.device) if probs is None else probs
    if weights.dtype != permuted_tokens.dtype:
        weights = weights.float()
    tensors = {"expanded_y": permuted_tokens, "expanded_row_idx": rows, "scales": weights}
    return run(COMBINE, tensors, {}, hold_options(where, options))


def fused_experts(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    *,
    strategy: GroupedStrategy | str = GroupedStrategy.AUTO,
    **options: Any,
) -> torch.Tensor:
    """[T, H] of hidden_states [T, H], w1 [E, 2I, H] (w13), w2 [E, H, I], weights and ids [T, K].

    An id outside 0 to E - 1 (expert parallel padding) adds nothing and is never used as an index.
    """
    where = "fused_experts"
    experts = SwiGluExperts.from_fused(w1, w2)
    if topk_ids.shape != topk_weights.shape:
        got, allowed = list(topk_weights.shape), list(topk_ids.shape)
        raise refuse(where, "topk_weights", "other shape than topk_ids", got, allowed)
    plan = RoutingPlan(
        topk_ids.to(torch.int32).contiguous(), topk_weights, experts.experts, hold_options(where, options)
    )
    tokens = dispatch(plan, hidden_states)
    return tokens.combine(experts.forward_dispatched_with_strategy(tokens, strategy))
