"""SwiGLU experts over dispatched rows, and whole forwards."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from .. import check, torch_ops
from .call import hold_device, hold_floats, run
from .dispatched import DispatchedTokens
from .errors import flag, refuse, refusing
from .routing import RoutingPlan, SigmoidGroupedOptions, SoftmaxOptions, route, route_sigmoid_grouped
from .strategies import GroupedStrategy, strategy_of

EXPERTS = "hybrid_moe_swi_glu_experts"
UNIT = 16  # elements that the operator's H and I are multiples of


def _missing(size: int) -> int:
    return -size % UNIT


def _hold_weights(where: str, weights: dict[str, torch.Tensor]) -> None:
    first, reference = next(iter(weights.items()))
    for name, tensor in weights.items():
        hold_floats(where, name, tensor, 3)
        if 0 in tensor.shape:
            raise refuse(where, name, "an axis is empty", f"shape {list(tensor.shape)}", "E, I, H >= 1")
        if tensor.dtype != reference.dtype:
            got, allowed = torch_ops.dtype_name(tensor), f"{torch_ops.dtype_name(reference)} as {first}"
            raise refuse(where, name, "dtypes differ", got, allowed)
        hold_device(where, name, tensor, reference.device)


def _hold_shape(where: str, name: str, tensor: torch.Tensor, wanted: tuple[int, ...], text: str) -> None:
    if tuple(tensor.shape) != wanted:
        raise refuse(
            where, name, "shapes disagree", f"shape {list(tensor.shape)}", f"{text} = {list(wanted)}"
        )


class SwiGluExperts:
    """Weights of E experts without bias, ready for any number of batches; they are not changed, and not copied where their
    sizes are multiples of 16 already.

    Args:
        gate, up: [E, I, H]; down: [E, H, I]; one dtype and device.

    Raises:
        MoeError: rank, sizes that disagree or are 0, mixed dtypes or devices, quantised weights.
    """

    def __init__(self, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> None:
        where = type(self).__name__
        _hold_weights(where, {"gate": gate, "up": up, "down": down})
        experts, inner, hidden = gate.shape
        _hold_shape(where, "up", up, (experts, inner, hidden), "[E, I, H] of gate")
        _hold_shape(where, "down", down, (experts, hidden, inner), "[E, H, I] of gate")
        self._pack(gate, up, down)

    @classmethod
    def from_fused(
        cls, gate_up: torch.Tensor, down: torch.Tensor, *, transposed: bool = False
    ) -> SwiGluExperts:
        """From gate_up [E, 2I, H], gate rows first: transformers' gate_up_proj and vLLM's w13; down [E, H, I].

        With `transposed` from gate_up [E, H, 2I] and down [E, I, H], as grouped products x @ w take them (vLLM-Ascend).
        """
        where = f"{cls.__name__}.from_fused"
        flag(where, "transposed", transposed)
        _hold_weights(where, {"gate_up": gate_up, "down": down})
        experts, both, hidden = gate_up.transpose(1, 2).shape if transposed else gate_up.shape
        if both % 2:
            what = "columns" if transposed else "rows"
            raise refuse(where, "gate_up", f"an odd number of {what}", both, "2I: gate, then up")
        wanted, text = ((experts, both // 2, hidden), "[E, I, H]") if transposed else (
            (experts, hidden, both // 2), "[E, H, I]")  # fmt: skip
        _hold_shape(where, "down", down, wanted, f"{text} of gate_up")
        if transposed:
            gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
        made = cls.__new__(cls)
        if _missing(both // 2) or _missing(hidden):
            made._pack(gate_up[:, : both // 2], gate_up[:, both // 2 :], down)
        else:
            made._keep(gate_up, None, down, both // 2)
        return made

    def _pack(self, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> None:
        inner, hidden = gate.shape[1:]
        rows, columns = _missing(inner), _missing(hidden)
        if rows or columns:  # zero weights give zero activations, and add nothing
            gate, up = (pad(weight, (0, columns, 0, rows)) for weight in (gate, up))
            down = pad(down, (0, rows, 0, columns))
        self._keep(gate, up, down, inner, hidden)

    def _keep(
        self,
        gate: torch.Tensor,
        up: torch.Tensor | None,
        down: torch.Tensor,
        inner: int,
        hidden: int | None = None,
    ) -> None:
        self._gate, self._down = gate.contiguous(), down.contiguous()
        self._up = None if up is None else up.contiguous()
        self.experts = int(gate.shape[0])
        self.inner, self.hidden = int(inner), int(gate.shape[2] if hidden is None else hidden)

    def forward_dispatched(self, dispatched: DispatchedTokens) -> torch.Tensor:
        """Outputs [T * top_k, H] of the dispatched rows, on the vector units."""
        return self.forward_dispatched_with_strategy(dispatched, GroupedStrategy.SCALAR)

    def forward_dispatched_with_strategy(
        self, dispatched: DispatchedTokens, strategy: GroupedStrategy | str
    ) -> torch.Tensor:
        """As `forward_dispatched`, computed as `strategy` says. Rows of no expert are zero.

        Raises:
            MoeError: other E, H, dtype or device than the weights; CUBE with float32.
        """
        where = f"{type(self).__name__}.forward_dispatched"
        if not isinstance(dispatched, DispatchedTokens):
            raise refuse(where, "dispatched", "wrong type", type(dispatched).__name__, "DispatchedTokens")
        how, plan, values = strategy_of(where, strategy), dispatched.plan, dispatched.values
        if plan.experts != self.experts:
            raise refuse(
                where, "dispatched", "routed to other experts", f"E={plan.experts}", f"E={self.experts}"
            )
        self._hold_input(where, "dispatched", values)
        missing = _missing(self.hidden)
        tensors = {
            "expanded_x": pad(values, (0, missing)) if missing else values,
            "gate": self._gate,
            "down": self._down,
            "expert_offsets": dispatched.offsets,
            "up": self._up,
        }
        out = run(EXPERTS, tensors, {"strategy": how.value}, plan.options)
        return out[:, : self.hidden].contiguous() if missing else out

    def _hold_input(self, where: str, name: str, rows: torch.Tensor) -> None:
        if rows.shape[1] != self.hidden:
            raise refuse(where, name, "rows of another width", f"H={rows.shape[1]}", f"H={self.hidden}")
        if rows.dtype != self._gate.dtype:
            got, allowed = torch_ops.dtype_name(rows), f"{torch_ops.dtype_name(self._gate)} as the weights"
            raise refuse(where, name, "dtypes differ", got, allowed)
        hold_device(where, name, rows, self._gate.device)

    def _hold_forward(
        self, where: str, input: torch.Tensor, logits: torch.Tensor, strategy: object, soc: str | None
    ) -> GroupedStrategy:
        """What a later step would refuse, before the first runs."""
        hold_floats(where, "logits", logits, 2)
        if logits.shape[1] != self.experts:
            got, allowed = f"E={logits.shape[1]}", f"E={self.experts}"
            raise refuse(where, "logits", "routed to other experts", got, allowed)
        self._hold_input(where, "input", hold_floats(where, "input", input, 2))
        if input.shape[0] != logits.shape[0]:
            allowed = f"T={logits.shape[0]} of logits"
            raise refuse(where, "input", "other number of tokens", input.shape[0], allowed)
        hold_device(where, "logits", logits, input.device)
        how = strategy_of(where, strategy)
        if how is GroupedStrategy.CUBE and input.dtype is torch.float32:
            allowed = "SCALAR, AUTO, or 16-bit weights"
            raise refuse(where, "strategy", "the cube path takes no float32", "CUBE with float32", allowed)
        if soc is not None:
            op = check.find_op(EXPERTS)
            with refusing():
                family = check.find_soc(op, soc)
            kinds, kind = op.input("expanded_x").dtypes[family], torch_ops.dtype_name(input)
            if kind not in kinds:
                raise refuse(where, "input", "dtype not available", kind, check.words(kinds), family)
        return how

    def _forward(self, input: torch.Tensor, plan: RoutingPlan, how: GroupedStrategy) -> torch.Tensor:
        tokens = plan.dispatch(input)
        return tokens.combine(self.forward_dispatched_with_strategy(tokens, how))

    def forward(
        self,
        input: torch.Tensor,
        logits: torch.Tensor,
        options: SoftmaxOptions,
        strategy: GroupedStrategy | str = GroupedStrategy.SCALAR,
        **where_to_run: Any,
    ) -> torch.Tensor:
        """Softmax routing of `logits` [T, E], dispatch of `input` [T, H], experts, combination: [T, H]."""
        how = self._hold_forward("forward", input, logits, strategy, where_to_run.get("soc"))
        return self._forward(input, route(logits, options, **where_to_run), how)

    def forward_sigmoid_grouped(
        self,
        input: torch.Tensor,
        logits: torch.Tensor,
        bias: torch.Tensor | None,
        options: SigmoidGroupedOptions,
        strategy: GroupedStrategy | str = GroupedStrategy.SCALAR,
        **where_to_run: Any,
    ) -> torch.Tensor:
        """As `forward`, with grouped sigmoid routing."""
        where = "forward_sigmoid_grouped"
        how = self._hold_forward(where, input, logits, strategy, where_to_run.get("soc"))
        return self._forward(input, route_sigmoid_grouped(logits, bias, options, **where_to_run), how)


def _hold_experts(where: str, experts: object) -> None:
    if not isinstance(experts, SwiGluExperts):
        raise refuse(where, "experts", "wrong type", type(experts).__name__, "SwiGluExperts")


def forward(experts: SwiGluExperts, input: torch.Tensor, logits: torch.Tensor, options: SoftmaxOptions,
            strategy: GroupedStrategy | str = GroupedStrategy.SCALAR, **where_to_run: Any) -> torch.Tensor:  # fmt: skip
    """`experts.forward`."""
    _hold_experts("forward", experts)
    return experts.forward(input, logits, options, strategy, **where_to_run)


def forward_sigmoid_grouped(
    experts: SwiGluExperts, input: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor | None,
    options: SigmoidGroupedOptions, strategy: GroupedStrategy | str = GroupedStrategy.SCALAR, **where_to_run: Any,
) -> torch.Tensor:  # fmt: skip
    """`experts.forward_sigmoid_grouped`."""
    _hold_experts("forward_sigmoid_grouped", experts)
    return experts.forward_sigmoid_grouped(input, logits, bias, options, strategy, **where_to_run)
