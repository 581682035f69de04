"""Calls with the names and arguments that vLLM-Ascend and torch_npu users know, over the same operators.

What those calls take beyond our operators (quantised rows, capacity, expert parallel ranges) is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import check, torch_ops
from .call import (
    hold_floats,
    hold_number,
    hold_numbers,
    hold_option,
    hold_rows,
    hold_whole,
    run,
)
from .dispatched import COMBINE, INIT, dispatch
from .errors import dense, flag, hold_options, refuse
from .experts import SwiGluExperts
from .routing import GATING, RoutingPlan
from .strategies import GroupedStrategy


def _wide_bias(where: str, name: str, bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else hold_floats(where, name, bias, 1).float()


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
    hold_option(where, "renorm", renorm, (0,), "softmax behind the selection is not available")
    hold_option(where, "out_flag", out_flag, (False,), "scores of all experts are not returned")
    given = {"k": k, "k_group": k_group, "group_count": group_count, "group_select_mode": group_select_mode,
             "norm_type": norm_type}  # fmt: skip
    attrs = {
        **{name: hold_whole(where, name, value) for name, value in given.items()},
        "norm_topk_prob": norm_type == 1,
        "routed_scaling_factor": hold_number(where, "routed_scaling_factor", routed_scaling_factor),
    }
    hold_floats(where, "x", x, 2)
    bias = _wide_bias(where, "bias", bias)
    weights, ids = run(GATING, {"x": x, "bias": bias}, attrs, hold_options(where, options))
    return weights, ids, None


def npu_moe_gating_top_k_softmax(
    x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weights [T, k], expert_idx int32 [T, k], row_idx int32 [T, k]); `finished` [T] bool rows get expert E. Any T."""
    where = "npu_moe_gating_top_k_softmax"
    chosen = hold_options(where, options)
    hold_floats(where, "x", x, 2)
    if finished is not None:
        dense(where, "finished", finished)
        if finished.dtype is not torch.bool or tuple(finished.shape) not in ((x.shape[0],), (x.shape[0], 1)):
            got = f"{torch_ops.dtype_name(finished)} {list(finished.shape)}"
            raise refuse(where, "finished", "not one flag per row", got, f"bool [{x.shape[0]}]")
    weights, ids = run(GATING, {"x": x, "bias": None}, {"k": hold_whole(where, "k", k)}, chosen)
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
    hold_option(where, "scoring_func", scoring_func, ("softmax", "sigmoid"), "no such scores")
    flag(where, "use_grouped_topk", use_grouped_topk)
    hold_rows(where, "hidden_states", hidden_states)
    hold_floats(where, "router_logits", router_logits, 2)
    if hidden_states.shape[0] != router_logits.shape[0]:
        got, allowed = router_logits.shape[0], f"T={hidden_states.shape[0]} of hidden_states"
        raise refuse(where, "router_logits", "other number of tokens", got, allowed)
    flag(where, "renormalize", renormalize)
    groups = (1, 1)
    if use_grouped_topk:
        groups = (1 if num_expert_group is None else hold_whole(where, "num_expert_group", num_expert_group),
                  1 if topk_group is None else hold_whole(where, "topk_group", topk_group))  # fmt: skip
    bias = e_score_correction_bias
    attrs = {"k": hold_whole(where, "top_k", top_k), "group_count": groups[0], "k_group": groups[1],
             "group_select_mode": int(use_grouped_topk and bias is not None), "norm_type": int(scoring_func == "sigmoid"),
             "norm_topk_prob": renormalize,
             "routed_scaling_factor": hold_number(where, "routed_scaling_factor", routed_scaling_factor)}  # fmt: skip
    tensors = {"x": router_logits, "bias": _wide_bias(where, "e_score_correction_bias", bias)}
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
    hold_floats(where, "x", x, 2)
    numbers = hold_numbers(where, "expert_idx", expert_idx)
    whole, slots = hold_whole(where, "expert_num", expert_num), numbers.numel()
    hold_whole(where, "expert_capacity", expert_capacity)  # of drop_pad_mode 1 alone
    active: object = [0, whole] if active_expert_range is None else active_expert_range
    if isinstance(active, Sequence) and not isinstance(active, str):
        active = [n if type(n) is int else check.shown(n) for n in active]
    fixed: dict[str, tuple[object, tuple[object, ...]]] = {
        "active_num": (active_num, (-1, slots)),
        "drop_pad_mode": (drop_pad_mode, (0,)),
        "quant_mode": (quant_mode, (-1,)),
        "active_expert_range": (active, ([0, whole],)),
        "expert_tokens_num_type": (expert_tokens_num_type, (0, 1)),
        "expert_tokens_num_flag": (expert_tokens_num_flag, (True,)),
        "row_idx_type": (row_idx_type, (0, 1)),
    }
    for name, (value, allowed) in fixed.items():
        hold_option(where, name, value, allowed)
    tensors = {"x": x, "expert_idx": numbers}
    values, rows, offsets, sorted_slots, _ = run(
        INIT, tensors, {"expert_num": whole}, hold_options(where, options)
    )
    ends = offsets[1:].long()
    tokens = ends if expert_tokens_num_type == 0 else ends - offsets[:-1].long()
    return values, rows.reshape(-1) if row_idx_type == 0 else sorted_slots, tokens, None


def npu_moe_token_permute(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
    *,
    expert_num: int = 2048,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(permuted_tokens [T*K, H], sorted_indices int32 [T*K]): rows of `tokens` [T, H] by ascending number in `indices` [T, K]
    or [T], equal numbers in their order; sorted_indices is the row of a slot, as npu_moe_token_unpermute takes it.

    Numbers outside 0 to expert_num - 1 have no row: -1, and zero rows stand behind all others.
    """
    where = "npu_moe_token_permute"
    hold_floats(where, "tokens", tokens, 2)
    numbers = hold_numbers(where, "indices", indices)
    if numbers.dim() > 2 or numbers.shape[0] != tokens.shape[0]:
        allowed = f"[{tokens.shape[0]}, K] or [{tokens.shape[0]}]"
        raise refuse(
            where, "indices", "not the numbers of each token", f"shape {list(numbers.shape)}", allowed
        )
    hold_option(where, "padded_mode", padded_mode, (False,))
    hold_option(where, "num_out_tokens", num_out_tokens, (None, 0, numbers.numel()), "rows cannot be dropped")
    tensors = {"x": tokens, "expert_idx": numbers.reshape(numbers.shape[0], -1)}
    attrs = {"expert_num": hold_whole(where, "expert_num", expert_num)}
    values, rows, *_ = run(INIT, tensors, attrs, hold_options(where, options))
    return values, rows.reshape(-1)


def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Tokens [T, H] from permuted rows: sorted_indices int32 [T * K] is the row of a slot, probs [T, K] its weight (None: 1)."""
    where = "npu_moe_token_unpermute"
    hold_floats(where, "permuted_tokens", permuted_tokens, 2)
    numbers = hold_numbers(where, "sorted_indices", sorted_indices)
    if numbers.numel() != permuted_tokens.shape[0]:
        got, allowed = numbers.numel(), f"{permuted_tokens.shape[0]}, one per row"
        raise refuse(where, "sorted_indices", "other number of rows", got, allowed)
    if probs is not None:
        hold_floats(where, "probs", probs, 2)
        if probs.numel() != numbers.numel() or probs.shape[1] == 0:
            allowed = f"[T, K] with T * K = {numbers.numel()}"
            raise refuse(where, "probs", "not one weight per row", f"shape {list(probs.shape)}", allowed)
    rows = numbers.reshape(-1, 1) if probs is None else numbers.reshape(probs.shape)
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
    numbers = hold_numbers(where, "topk_ids", topk_ids)
    hold_floats(where, "topk_weights", topk_weights, 2)
    if topk_ids.shape != topk_weights.shape:
        got, allowed = list(topk_weights.shape), list(topk_ids.shape)
        raise refuse(where, "topk_weights", "other shape than topk_ids", got, allowed)
    plan = RoutingPlan(numbers.contiguous(), topk_weights, experts.experts, hold_options(where, options))
    tokens = dispatch(plan, hidden_states)
    return tokens.combine(experts.forward_dispatched_with_strategy(tokens, strategy))
