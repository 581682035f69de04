"""Rows sorted by expert, and the way back to tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import torch_ops
from .call import hold_device, hold_floats, run
from .errors import refuse
from .routing import RoutingPlan

INIT, COMBINE = "hybrid_moe_init_routing", "hybrid_moe_combine"


@dataclass(frozen=True)
class DispatchedTokens:
    """values [T * top_k, H], bit copies of the input's rows, sorted by expert, slots of one expert ascending.

    Slot t * top_k + j is the j-th expert of token t. offsets int32 [E + 1]: expert e has rows offsets[e] to offsets[e + 1];
    row_experts int32 [T * top_k]: expert of a row; slot_rows int32 [T, top_k]: row of a slot; sorted_slots int32
    [T * top_k]: slot of a row.
    """

    plan: RoutingPlan
    values: torch.Tensor
    row_experts: torch.Tensor
    offsets: torch.Tensor
    slot_rows: torch.Tensor
    sorted_slots: torch.Tensor

    def combine(self, expert_output: torch.Tensor) -> torch.Tensor:
        """Weighted sums [T, W] in token order of rows [T * top_k, W]; float32 inside, rounded once.

        The rows of a token are added in ascending order of their experts, whatever order the router named them in. A NaN
        weight makes its token NaN and no other.
        Raises: MoeError for another number of rows, dtype or device than the dispatched ones.
        """
        where, plan = "DispatchedTokens.combine", self.plan
        hold_floats(where, "expert_output", expert_output, 2)
        rows = plan.tokens * plan.top_k
        if expert_output.shape[0] != rows:
            got, allowed = f"{expert_output.shape[0]} rows", f"{rows}, one per token and expert"
            raise refuse(where, "expert_output", "other rows than were dispatched", got, allowed)
        if expert_output.dtype != self.values.dtype:
            got, allowed = torch_ops.dtype_name(expert_output), torch_ops.dtype_name(self.values)
            raise refuse(where, "expert_output", "other dtype than the dispatched rows", got, allowed)
        hold_device(where, "expert_output", expert_output, self.values.device)
        weights = plan.weights()
        if weights.dtype != expert_output.dtype:
            weights = weights.float()
        tensors = {"expanded_y": expert_output, "expanded_row_idx": self.slot_rows, "scales": weights}
        return run(COMBINE, tensors, {}, plan.options)


def dispatch(plan: RoutingPlan, input: torch.Tensor) -> DispatchedTokens:
    """Rows of `input` [T, H] once per selected expert: no capacity, no dropped token.

    Raises:
        MoeError: another T than the plan's, H of 0, another device, not a float tensor.
    """
    where = "dispatch"
    if not isinstance(plan, RoutingPlan):
        raise refuse(where, "plan", "wrong type", type(plan).__name__, "RoutingPlan")
    hold_floats(where, "input", input, 2)
    if input.shape[0] != plan.tokens:
        raise refuse(
            where, "input", "other number of tokens than the plan", input.shape[0], f"T={plan.tokens}"
        )
    if input.shape[1] < 1:
        raise refuse(where, "input", "rows are empty", "H=0", "H >= 1")
    hold_device(where, "input", input, plan.ids.device)
    tensors = {"x": input, "expert_idx": plan.ids}
    values, slot_rows, offsets, slots, experts = run(
        INIT, tensors, {"expert_num": plan.experts}, plan.options
    )
    return DispatchedTokens(plan, values, experts, offsets, slot_rows, slots)
