"""A whole gated delta net layer by operators against transformers' own: prefill, then token by token.

The layer's parameters and its inputs are rounded to the SoC's storage dtype first, so that only what the layer computes
between hidden states in and hidden states out counts; transformers computes in float32 from the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hybrid_ops import runtime
from hybrid_ops.export.accuracy import Agreement, agreement
from hybrid_ops.models.families import small_model
from hybrid_ops.models.gated_delta import boundary_dtypes
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet, is_gated_delta_net

STEPS = 16


@dataclass(frozen=True)
class LayerCase:
    """A layer, its model's config, and the SoC whose operators run it."""

    layer: Any
    config: Any
    soc: str

    @classmethod
    def of(cls, family: str, soc: str, **changes: Any) -> LayerCase:
        """The first gated delta net of `small_model(family, **changes)`, its parameters rounded to what `soc` stores."""
        model = small_model(family, **changes)
        layer = next(m for m in model.modules() if is_gated_delta_net(m))
        activation, _ = boundary_dtypes(soc)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name not in ("A_log", "dt_bias", "norm.weight"):  # float32 in the operators' contracts
                    parameter.copy_(parameter.to(activation))
        return cls(layer, model.config, soc)

    def hidden(self, tokens: int, seed: int) -> torch.Tensor:
        """Hidden states `[1, tokens, H]` of unit size, float32 values that the SoC's dtype holds exactly."""
        rng = torch.Generator().manual_seed(seed)
        x = torch.randn(1, tokens, self.config.hidden_size, generator=rng)
        return x.to(boundary_dtypes(self.soc)[0]).float()


def reference(case: LayerCase, hidden: torch.Tensor, calls: Sequence[int]) -> list[torch.Tensor]:
    """Outputs of transformers' layer, float32, for the next `calls[i]` tokens each; its own cache in between."""
    from transformers import DynamicCache

    cache, outs, at = DynamicCache(config=case.config), [], 0
    with torch.no_grad():
        for count in calls:
            outs.append(case.layer(hidden[:, at : at + count], cache=cache))
            at += count
    return outs


def by_operators(case: LayerCase, hidden: torch.Tensor, calls: Sequence[int]) -> list[torch.Tensor]:
    """The same by the SoC's operators in the simulator."""
    net = FusedGatedDeltaNet(case.layer, case.soc)
    states, outs, at = net.initial_states(1), [], 0
    with torch.no_grad(), runtime.using(backend="sim", soc=case.soc):
        for count in calls:
            out, states = net(hidden[:, at : at + count], states)
            outs.append(out)
            at += count
    return outs


@dataclass(frozen=True)
class LayerResult:
    """Agreement of the prefill, of each decode step, and of all outputs as one tensor."""

    prefill: Agreement
    steps: list[Agreement]
    whole: Agreement

    @property
    def worst_step(self) -> Agreement:
        return max(self.steps, key=lambda a: a.nrmse)


def compare(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> LayerResult:
    """Outputs of one sequence of calls, the first the prefill, against the reference's."""
    found = [agreement(a.float().numpy(), b.numpy()) for a, b in zip(got, want, strict=True)]
    whole = agreement(torch.cat(list(got), 1).float().numpy(), torch.cat(list(want), 1).numpy())
    return LayerResult(found[0], found[1:], whole)


def agreement_of(case: LayerCase, length: int, steps: int = STEPS, seed: int = 0) -> LayerResult:
    """A prefill of `length` tokens and `steps` decode steps, by operators against transformers."""
    hidden, calls = case.hidden(length + steps, seed + length), [length] + [1] * steps
    return compare(by_operators(case, hidden, calls), reference(case, hidden, calls))
