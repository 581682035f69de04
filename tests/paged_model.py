"""The mixed schedule that paged tests share, and attention through a gather in float64."""

from __future__ import annotations

import numpy as np
import torch

from hybrid_ops import paged

# Page 2 is shared at different logical places; queries unsorted, one twice, one of an empty sequence.
MIX = {
    "page_size": 4,
    "pages": 6,
    "tables": [[2, 5], [0, 2], []],
    "lengths": [6, 7, 0],
    "sequence_ids": [1, 0, 0, 2, 1, 0, 1],
    "positions": [6, 5, 0, 9, 2, 5, 4],
}
# Two sequences with pages of their own: 3 prefill queries and 1 decode query.
OWN = {
    "page_size": 4,
    "pages": 5,
    "tables": [[3], [0, 4]],
    "lengths": [3, 6],
    "sequence_ids": [0, 0, 0, 1],
    "positions": [0, 1, 2, 5],
}


def host(base=MIX, **changes) -> paged.HostPlan:
    return paged.HostPlan(**{**base, **changes})


def tensors(plan: paged.HostPlan, heads=(4, 2), dims=(5, 7), dtype=torch.float32, seed=0):
    """query, key_cache, value_cache of N(0, 1)."""
    made = torch.Generator().manual_seed(seed)
    shape = (plan.pages, plan.page_size, heads[1])
    return tuple(
        torch.randn(*size, generator=made).to(dtype)
        for size in ((plan.queries, heads[0], dims[0]), (*shape, dims[0]), (*shape, dims[1]))
    )


def gathered(
    plan: paged.HostPlan, query, keys, values, scale, causal, rope=None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out [N, H, DV], log-sum-exp [N, H]) in float64, each query on its own through a gather of its tokens."""
    n, heads = query.shape[:2]
    out = torch.zeros(n, heads, values.shape[-1], dtype=torch.float64)
    lse = torch.full((n, heads), -np.inf, dtype=torch.float64)
    for i, (s, position) in enumerate(zip(plan.sequence_ids.tolist(), plan.positions.tolist(), strict=True)):
        length = int(plan.lengths[s])
        end = min(length, position + 1) if causal else length
        if not end:
            continue
        at = [
            int(plan.tables[s][t // plan.page_size]) * plan.page_size + t % plan.page_size for t in range(end)
        ]
        k, v = (
            x.flatten(0, 1)[at].double().repeat_interleave(heads // x.shape[2], 1) for x in (keys, values)
        )
        scores = torch.einsum("hd,thd->ht", query[i].double(), k)
        if rope is not None:
            turned = rope[1].flatten(0, 1)[at].double().expand(-1, heads, -1)
            scores = scores + torch.einsum("hd,thd->ht", rope[0][i].double(), turned)
        scores = scores * scale
        lse[i] = scores.logsumexp(-1)
        out[i] = torch.einsum("ht,thd->hd", scores.softmax(-1), v)
    return out, lse


# |a - b| <= absolute + relative * |b|, the contract's table for the paged forward.
TOLERANCE = {torch.float32: (2e-5, 2e-5), torch.float16: (1e-3, 1e-3), torch.bfloat16: (8e-3, 1.6e-2)}


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    absolute, relative = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), want, atol=absolute, rtol=relative)
