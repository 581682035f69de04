"""Small experts, plans and refusals of hybrid_ops.moe, shared by its tests."""

from __future__ import annotations

import pytest
import torch

from hybrid_ops import HybridOpsError
from hybrid_ops.moe import MoeError, SigmoidGroupedOptions, SoftmaxOptions, SwiGluExperts
from hybrid_ops.moe.routing import RoutingPlan

RUN = {"backend": "reference", "soc": "ascend910b"}
LIMIT = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
TOP2 = SoftmaxOptions(top_k=2, renormalize=True)
GROUPS = SigmoidGroupedOptions(2, 1, 1, False, True, 1.0)


def experts(count=4, inner=24, hidden=32, dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    gate, up = (torch.randn(count, inner, hidden) * hidden**-0.5 for _ in range(2))
    down = torch.randn(count, hidden, inner) * inner**-0.5
    return SwiGluExperts(gate.to(dtype), up.to(dtype), down.to(dtype)), (gate, up, down)


def routed(ids, scores=None, count=4, **options):
    ids = torch.tensor(ids, dtype=torch.int32)
    scores = torch.ones(ids.shape) if scores is None else torch.tensor(scores)
    return RoutingPlan(ids, scores, count, {**RUN, "checks": None, **options})


def refusal(function, *args, **kwargs):
    with pytest.raises(MoeError) as caught:
        function(*args, **kwargs)
    assert isinstance(caught.value, HybridOpsError) and isinstance(caught.value, ValueError)
    return str(caught.value)
