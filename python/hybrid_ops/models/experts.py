"""Sparse mixture-of-experts blocks of Qwen3.5-MoE and Qwen3-Next in a form that does not depend on the routing.

transformers walks over the experts that a batch hits, which a trace freezes. Here all experts stand in the graph: a few
tokens gather the weights of their own experts, many tokens go through every expert and are weighted, zero included.
"""

from __future__ import annotations

from typing import Any

import torch

from hybrid_ops import check
from hybrid_ops.models import moe_graph


def is_sparse(mlp: Any) -> bool:
    """Whether a layer's feed-forward block has routed experts."""
    return hasattr(mlp, "experts")


def refuse_unknown_experts(mlp: Any, soc: str) -> None:
    """HybridOpsError for a block whose experts are not the two stacked weights `gate_up_proj` and `down_proj`."""
    experts = mlp.experts
    known = all(hasattr(experts, name) for name in ("gate_up_proj", "down_proj", "act_fn"))
    if not known or not callable(getattr(mlp, "gate", None)):
        raise check.refuse(
            "export", "model", "experts of unknown form", got=type(experts).__name__,
            allowed="stacked gate_up_proj [E, 2I, H] and down_proj [E, H, I] with a top-k router", soc=soc,
        )  # fmt: skip


def routed_few(experts: Any, hidden: torch.Tensor, index: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Experts' output `[T, H]` by gathering weights: T * top_k experts' weights are read, right for one or few tokens.

    hidden `[T, H]`; index int64 and weight `[T, K]`.
    """
    tokens, choices = index.shape
    chosen = index.reshape(-1)
    up = torch.index_select(experts.gate_up_proj, 0, chosen)  # [T*K, 2I, H]
    down = torch.index_select(experts.down_proj, 0, chosen)
    rows = hidden.unsqueeze(1).expand(tokens, choices, hidden.shape[-1]).reshape(-1, hidden.shape[-1], 1)
    size = experts.down_proj.shape[-1]
    gate, value = torch.split(torch.matmul(up, rows), [size, size], dim=1)
    out = torch.matmul(down, experts.act_fn(gate) * value).reshape(tokens, choices, -1)
    return (out * weight.unsqueeze(-1).to(out.dtype)).sum(dim=1)


def routed_all(experts: Any, hidden: torch.Tensor, index: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Experts' output `[T, H]` by running every expert on every token; each expert's weights are read once."""
    count, _, size = experts.down_proj.shape
    every = torch.arange(count, device=index.device)
    share = ((index.unsqueeze(-1) == every).to(weight.dtype) * weight.unsqueeze(-1)).sum(dim=1)  # [T, E]
    both = torch.matmul(hidden.unsqueeze(0), experts.gate_up_proj.transpose(1, 2))  # [E, T, 2I]
    gate, value = torch.split(both, [size, size], dim=-1)
    active = experts.act_fn(gate) * value * share.transpose(0, 1).unsqueeze(-1).to(both.dtype)
    return torch.matmul(active, experts.down_proj.transpose(1, 2)).sum(dim=0)


def feed_forward(mlp: Any, hidden: torch.Tensor, *, few: bool, node_soc: str | None = None) -> torch.Tensor:
    """A layer's feed-forward block, dense or sparse, on `[B, T, H]`.

    `few` chooses the form for the experts; with `node_soc` they and the router are operators of that SoC instead.
    """
    if not is_sparse(mlp):
        return mlp(hidden)
    rows = hidden.reshape(-1, hidden.shape[-1])
    if node_soc is not None:
        # A Reshape between node and cast: Lite's optimizer takes every Custom output for float32 and drops the cast.
        out = moe_graph.routed(mlp, rows, node_soc).reshape(hidden.shape).to(hidden.dtype)
        out = out.reshape(rows.shape)
    else:
        _, weight, index = mlp.gate(rows)
        out = (routed_few if few else routed_all)(mlp.experts, rows, index, weight)
    if getattr(mlp, "shared_expert", None) is not None:
        out = out + torch.sigmoid(mlp.shared_expert_gate(rows)) * mlp.shared_expert(rows)
    return out.reshape(hidden.shape)
