"""Which experts a token goes to, and with what weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .call import hold_device, hold_floats, hold_number, hold_whole, run
from .errors import flag, hold_options, refuse

if TYPE_CHECKING:
    from .dispatched import DispatchedTokens

GATING = "hybrid_moe_gating_top_k"


@dataclass(frozen=True)
class SoftmaxOptions:
    """top_k experts by softmax over all of them; renormalize: the selected weights divided by their sum. No defaults."""

    top_k: int
    renormalize: bool


@dataclass(frozen=True)
class SigmoidGroupedOptions:
    """Sigmoid scores; of `groups` groups the `selected_groups` best, of their experts the top_k best. No defaults.

    A group counts as its best expert, or with group_top_two as the sum of its best two. Weights are the scores, divided by the
    sum of the selected with renormalize, times scale (above 0).
    """

    top_k: int
    groups: int
    selected_groups: int
    group_top_two: bool
    renormalize: bool
    scale: float


@dataclass(frozen=True)
class RoutingPlan:
    """Experts and weights of every token, `[T, top_k]`, best first."""

    ids: torch.Tensor
    scores: torch.Tensor
    experts: int
    options: dict[str, Any] = field(repr=False)  # backend, soc, checks of the steps that follow

    @property
    def tokens(self) -> int:
        return int(self.ids.shape[0])

    @property
    def top_k(self) -> int:
        return int(self.ids.shape[1])

    def expert_indices(self) -> torch.Tensor:
        """int32 [T, top_k], distinct in every row; equal scores: lower number first."""
        return self.ids

    def weights(self) -> torch.Tensor:
        """[T, top_k] in the dtype of the logits; NaN in a row without a valid score."""
        return self.scores

    def dispatch(self, input: torch.Tensor) -> DispatchedTokens:
        """Rows of `input` [T, H] once per selected expert, sorted by expert. MoeError: other T, device or dtype."""
        from .dispatched import dispatch

        return dispatch(self, input)


def _route(
    where: str,
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    attrs: dict[str, Any],
    options: dict[str, Any],
) -> RoutingPlan:
    hold_floats(where, "logits", logits, 2)
    chosen = hold_options(where, options)
    if bias is not None:
        hold_floats(where, "bias", bias, 1)
        hold_device(where, "bias", bias, logits.device)
    weights, ids = run(GATING, {"x": logits, "bias": bias}, attrs, chosen)
    return RoutingPlan(ids, weights, int(logits.shape[1]), chosen)


def route(logits: torch.Tensor, options: SoftmaxOptions, **where_to_run: Any) -> RoutingPlan:
    """Softmax over all experts in float32, then the top_k best.

    Args:
        logits: [T, E], float32, float16 or bfloat16 as the SoC has it; any strides.
        options: top_k 1..E, renormalize.
        where_to_run: backend, soc, checks as for every operator; the plan's later steps use them too.

    Returns:
        RoutingPlan. Rows with NaN or +inf, or of only -inf, have NaN weights and experts 0..top_k-1.

    Raises:
        MoeError: rank, dtype, device, top_k out of range.
    """
    if not isinstance(options, SoftmaxOptions):
        raise refuse("route", "options", "wrong type", type(options).__name__, "SoftmaxOptions")
    attrs = {
        "k": hold_whole("route", "top_k", options.top_k),
        "norm_topk_prob": flag("route", "renormalize", options.renormalize),
    }
    return _route("route", logits, None, attrs, where_to_run)


def route_sigmoid_grouped(
    logits: torch.Tensor, bias: torch.Tensor | None, options: SigmoidGroupedOptions, **where_to_run: Any
) -> RoutingPlan:
    """Sigmoid scores in float32, corrected by `bias` for the selection only; groups first, then experts.

    Args:
        logits: [T, E], E 1..1024; bias: float32 [E] or None.
        options: groups 1..128 that divide E, selected_groups 1..groups, top_k 1..64 within the selected groups, scale above 0.
        where_to_run: as for `route`.

    Raises:
        MoeError: rank, dtype, device, an option out of range.
    """
    where = "route_sigmoid_grouped"
    if not isinstance(options, SigmoidGroupedOptions):
        raise refuse(where, "options", "wrong type", type(options).__name__, "SigmoidGroupedOptions")
    attrs = {
        "k": hold_whole(where, "top_k", options.top_k),
        "group_count": hold_whole(where, "groups", options.groups),
        "k_group": hold_whole(where, "selected_groups", options.selected_groups),
        "group_select_mode": int(flag(where, "group_top_two", options.group_top_two)),
        "norm_type": 1,
        "norm_topk_prob": flag(where, "renormalize", options.renormalize),
        "routed_scaling_factor": hold_number(where, "scale", options.scale, "float above 0"),
    }
    return _route(where, logits, bias, attrs, where_to_run)
