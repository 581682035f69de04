"""Routers and experts of transformers' sparse models computed by the operators; shared experts, gates and residuals stay theirs.

    with moe_patched(model, soc="ascend310p"):
        model.generate(**inputs)

For models of Qwen3-MoE, Qwen3-Next, Qwen3.5-MoE, Mixtral, DeepSeek-V3 and every other whose experts are gate_up_proj
[E, 2I, H] and down_proj [E, H, I] with SiLU. `register()` offers the experts alone, to `set_experts_implementation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.functional import linear

from hybrid_ops import check
from hybrid_ops.moe import routing
from hybrid_ops.moe.dispatched import dispatch
from hybrid_ops.moe.experts import EXPERTS, SwiGluExperts
from hybrid_ops.moe.routing import RoutingPlan, SigmoidGroupedOptions, SoftmaxOptions
from hybrid_ops.moe.strategies import GroupedStrategy

NAME = "hybrid_npu"  # under which transformers' ExpertsInterface knows the experts
CORRECTION = "e_score_correction_bias"  # of routers with grouped sigmoid scores (DeepSeek-V3 and its kin)

_packed: WeakKeyDictionary[nn.Module, tuple[Any, SwiGluExperts]] = WeakKeyDictionary()


def supported_dtype(op: str, argument: str, dtype: torch.dtype, soc: str) -> torch.dtype:
    """`dtype` where the operator has it on `soc`, else the contract's first."""
    listed = check.find_op(op).input(argument).dtypes[soc]
    name = str(dtype).removeprefix("torch.")
    return dtype if name in listed else getattr(torch, listed[0])


def is_experts(module: nn.Module) -> bool:
    """Whether a module holds stacked SwiGLU experts."""
    return all(hasattr(module, name) for name in ("gate_up_proj", "down_proj", "act_fn"))


def is_router(module: nn.Module) -> bool:
    """Whether a module is a top-k router of transformers: a weight [E, H], top_k and num_experts."""
    return all(hasattr(module, name) for name in ("weight", "top_k", "num_experts")) and not is_experts(
        module
    )


def hold_experts(module: Any, soc: str) -> None:
    """HybridOpsError for experts that the operator does not compute."""
    act = module.act_fn
    faults = {
        "activation": None if isinstance(act, nn.SiLU) or getattr(act, "__name__", "") == "silu"
        or type(act).__name__ in ("SiLU", "SiLUActivation") else type(act).__name__,
        "bias": "experts with bias" if getattr(module, "has_bias", False) else None,
        "layout": "transposed weights" if getattr(module, "is_transposed", False) else None,
        "gate": None if getattr(module, "has_gate", True) and getattr(module, "is_concatenated", True) else
        "no gate, or interleaved with up",
    }  # fmt: skip
    for what, got in faults.items():
        if got is not None:
            raise check.refuse(
                "models", what, "experts of unknown form", got=got,
                allowed="gate_up_proj [E, 2I, H], down_proj [E, H, I], SiLU, no bias", soc=soc,
            )  # fmt: skip


def packed(module: Any, dtype: torch.dtype) -> SwiGluExperts:
    """The module's weights for the operator, made once and again when they change."""
    up, down = module.gate_up_proj, module.down_proj
    if (
        up.is_inference() or down.is_inference()
    ):  # made inside inference mode: such tensors do not count their writes
        return SwiGluExperts.from_fused(up.detach().to(dtype), down.detach().to(dtype))
    state = tuple((w.data_ptr(), w._version, w.device, dtype) for w in (up, down))
    known = _packed.get(module)
    if known is None or known[0] != state:
        known = (state, SwiGluExperts.from_fused(up.detach().to(dtype), down.detach().to(dtype)))
        _packed[module] = known
    return known[1]


def experts_forward(
    module: nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
    *,
    soc: str = "ascend310p",
    strategy: GroupedStrategy | str = GroupedStrategy.AUTO,
) -> torch.Tensor:
    """As transformers' experts modules: hidden_states [T, H], index and weights [T, K] -> [T, H].

    An index of num_experts or more (expert parallel padding) adds nothing. Rounded to a dtype the operator has on `soc`.
    """
    dtype = supported_dtype(EXPERTS, "expanded_x", hidden_states.dtype, soc)
    experts = packed(module, dtype)
    options = {"backend": None, "soc": soc, "checks": None}
    plan = RoutingPlan(top_k_index.to(torch.int32).contiguous(), top_k_weights, experts.experts, options)
    tokens = dispatch(plan, hidden_states.to(dtype))
    out = tokens.combine(experts.forward_dispatched_with_strategy(tokens, strategy))
    return out.to(hidden_states.dtype)


def _grouped(router: Any) -> SigmoidGroupedOptions:
    return SigmoidGroupedOptions(
        top_k=router.top_k,
        groups=router.num_group,
        selected_groups=router.topk_group,
        group_top_two=True,
        renormalize=bool(router.norm_topk_prob),
        scale=float(router.routed_scaling_factor),
    )


def router_forward(
    router: Any, hidden_states: torch.Tensor, *, soc: str = "ascend310p"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As transformers' top-k routers: (logits [T, E], weights [T, K], expert ids int64 [T, K]).

    Weights are float32 where the router keeps them so (Mixtral, DeepSeek-V3), else in the dtype of the logits.
    """
    rows = hidden_states.reshape(-1, hidden_states.shape[-1])
    if hasattr(router, CORRECTION):
        logits = linear(rows.float(), router.weight.float())
        bias = getattr(router, CORRECTION).float()
        plan = routing.route_sigmoid_grouped(logits, bias, _grouped(router), soc=soc)
        return logits, plan.weights(), plan.expert_indices().long()
    logits = linear(rows, router.weight)
    wide = not hasattr(router, "norm_topk_prob")  # Mixtral: renormalised always, never rounded
    scores = logits.float() if wide else logits
    scores = scores.to(supported_dtype(routing.GATING, "x", scores.dtype, soc))
    if scores.dtype != logits.dtype and torch.finfo(scores.dtype).bits < 32:
        scores = logits.float()  # a narrower range would change the selection
    plan = routing.route(
        scores, SoftmaxOptions(int(router.top_k), wide or bool(router.norm_topk_prob)), soc=soc
    )
    weights = plan.weights() if wide else plan.weights().to(logits.dtype)
    return logits, weights, plan.expert_indices().long()


def register(
    name: str = NAME, *, soc: str = "ascend310p", strategy: GroupedStrategy | str = GroupedStrategy.AUTO
) -> str:
    """Offer the experts to transformers: `model.set_experts_implementation(register())`. Returns `name`."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    soc = check.find_soc(check.find_op(EXPERTS), soc)
    ALL_EXPERTS_FUNCTIONS.register(name, partial(experts_forward, soc=soc, strategy=strategy))
    return name


@dataclass
class MoeInstallation:
    """Modules whose forward `install_moe` replaced; `restore()` puts them back."""

    experts: list[nn.Module] = field(default_factory=list)
    routers: list[nn.Module] = field(default_factory=list)
    before: list[tuple[nn.Module, Callable[..., Any] | None]] = field(default_factory=list)

    def set(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        self.before.append((module, module.__dict__.get("forward")))
        module.__dict__["forward"] = forward

    def restore(self) -> None:
        while self.before:
            module, forward = self.before.pop()
            if forward is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = forward


def install_moe(
    model: nn.Module,
    *,
    soc: str = "ascend310p",
    strategy: GroupedStrategy | str = GroupedStrategy.AUTO,
    routers: bool = True,
) -> MoeInstallation:
    """Compute the experts of `model`, and its routers, by the operators until `restore()`. Inference only.

    Errors: HybridOpsError where the model has no experts, or some that the operator does not compute.
    """
    soc = check.find_soc(check.find_op(EXPERTS), soc)
    done = MoeInstallation()
    done.experts = [m for m in model.modules() if is_experts(m)]
    if not done.experts:
        raise check.refuse(
            "models", "model", "no stacked experts to replace", got=type(model).__name__,
            allowed="experts with gate_up_proj [E, 2I, H] and down_proj [E, H, I]", soc=soc,
        )  # fmt: skip
    for module in done.experts:
        hold_experts(module, soc)
    done.routers = [m for m in model.modules() if is_router(m)] if routers else []
    for module in done.experts:
        done.set(module, partial(experts_forward, module, soc=soc, strategy=strategy))
    for module in done.routers:
        done.set(module, partial(router_forward, module, soc=soc))
    return done


@contextmanager
def moe_patched(model: nn.Module, **options: Any) -> Iterator[MoeInstallation]:
    """`install_moe` for the length of a with-block."""
    done = install_moe(model, **options)
    try:
        yield done
    finally:
        done.restore()
