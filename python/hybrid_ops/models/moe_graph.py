"""A sparse feed-forward block as four operators, for tracing: one node each, whatever the example's routing.

Gating, dispatch, experts, combination; the projection to logits, the shared expert and its gate stay the model's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from hybrid_ops import torch_ops  # noqa: F401  (registers torch.ops.hybrid_ops)
from hybrid_ops.models.moe import CORRECTION, hold_experts, supported_dtype
from hybrid_ops.moe import routing
from hybrid_ops.moe.experts import EXPERTS
from hybrid_ops.moe.strategies import GroupedStrategy

NODES = (
    "HybridMoeGatingTopK",
    "HybridMoeInitRouting",
    "HybridMoeSwiGluExperts",
    "HybridMoeCombine",
)  # of a block


def selection(router: Any, rows: torch.Tensor, soc: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [T, K], expert ids int32 [T, K]) of a top-k router of transformers."""
    gating = torch.ops.hybrid_ops.hybrid_moe_gating_top_k
    if hasattr(router, CORRECTION):
        return gating(
            linear(rows.float(), router.weight.float()),
            getattr(router, CORRECTION).float(),
            k=router.top_k,
            k_group=router.topk_group,
            group_count=router.num_group,
            group_select_mode=1,
            norm_type=1,
            norm_topk_prob=bool(router.norm_topk_prob),
            routed_scaling_factor=float(router.routed_scaling_factor),
        )
    logits = linear(rows, router.weight)
    if supported_dtype(routing.GATING, "x", logits.dtype, soc) != logits.dtype:
        logits = logits.float()
    return gating(logits, None, k=router.top_k, norm_topk_prob=bool(getattr(router, "norm_topk_prob", True)))


def routed(mlp: Any, rows: torch.Tensor, soc: str) -> torch.Tensor:
    """Output [T, H] of a block's routed experts for rows [T, H], in the operator's dtype on `soc`."""
    experts = mlp.experts
    hold_experts(experts, soc)
    dtype = supported_dtype(EXPERTS, "expanded_x", rows.dtype, soc)
    weights, ids = selection(mlp.gate, rows, soc)
    ops = torch.ops.hybrid_ops
    count = int(experts.down_proj.shape[0])
    values, slot_rows, offsets, _, _ = ops.hybrid_moe_init_routing(rows.to(dtype), ids, expert_num=count)
    made = ops.hybrid_moe_swi_glu_experts(
        values,
        experts.gate_up_proj.to(dtype),
        experts.down_proj.to(dtype),
        offsets,
        None,
        strategy=GroupedStrategy.AUTO.value,
    )
    scales = weights if weights.dtype == dtype else weights.float()
    return ops.hybrid_moe_combine(made, slot_rows, scales)
