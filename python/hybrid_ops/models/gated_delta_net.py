"""A gated delta net layer whose every step between the projections is an operator: convolution, gates, rule, gated norm.

Prompt tokens go through ChunkGatedDeltaRule, a single token through RecurrentGatedDeltaRule. `FusedGatedDeltaNet` is a
function of its states, kept in the operators' own layouts and dtypes, so that a decode step neither casts nor transposes
them; `fused` puts it under the layers of a transformers model, whose cache keeps transformers' layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from hybrid_ops import check, runtime
from hybrid_ops.models.cached import linear_states
from hybrid_ops.models.gated_delta import CHUNK_TYPE, OP_TYPE, boundary_dtypes, l2norm, state_indices
from hybrid_ops.models.qwen3_5 import projections
from hybrid_ops.models.releases import check_release

_NEEDED = (
    "conv1d",
    "A_log",
    "dt_bias",
    "norm",
    "out_proj",
    "head_k_dim",
    "head_v_dim",
    "key_dim",
    "value_dim",
)
PREFILL, UPDATE = 0, 1  # run_mode of the convolution
SILU = 1
CONVOLUTION = "HybridCausalConv1d"


@dataclass
class States:
    """conv `[B, K-1, conv_dim]`, the last raw rows; recurrent `[B, NV, DV, DK]`; dtypes of the layer's operators."""

    conv: torch.Tensor
    recurrent: torch.Tensor


def is_gated_delta_net(layer: Any) -> bool:
    """Whether a module is a gated delta net of the Qwen3.5 or Qwen3-Next form."""
    return all(hasattr(layer, name) for name in _NEEDED)


class FusedGatedDeltaNet:
    """transformers' `Qwen3_5GatedDeltaNet` or `Qwen3NextGatedDeltaNet` by operators of this package.

    Args:
        layer: the torch layer. Projections run on it; parameters of the other steps are read, and converted to the
            operators' dtypes and layouts, once.
        soc: SoC whose operators run: the states are float16 on "ascend310p", the recurrent one float32 on "ascend910b".
        steps: dtype of every step between the projections that has it: all on ascend310p, all but the chunk rule, which is
            bfloat16, on ascend910b. float16 has three bits more than bfloat16, and these roundings are the layer's error;
            torch.bfloat16 (ascend910b) for weights whose projections leave float16's range, 65504.

    Errors: HybridOpsError for a layer of another form, an activation other than SiLU, an unknown SoC.
    """

    def __init__(self, layer: Any, soc: str = "ascend310p", *, steps: torch.dtype = torch.float16) -> None:
        soc = check.find_soc(None, soc)
        if not is_gated_delta_net(layer):
            raise check.refuse(
                "models", "layer", "not a gated delta net", got=type(layer).__name__,
                allowed="a layer of Qwen3.5 or Qwen3-Next", soc=soc,
            )  # fmt: skip
        used = getattr(layer, "activation", "silu")
        if used != "silu":
            raise check.refuse(
                "models", "layer", "activation not available", got=repr(used), allowed="'silu'", soc=soc
            )
        allowed = [
            getattr(torch, name) for name in dict.fromkeys(check.find_op(CONVOLUTION).input("x").dtypes[soc])
        ]
        if steps not in allowed:
            raise check.refuse(
                "models",
                "steps",
                "dtype not available",
                got=steps,
                allowed=check.words(map(str, allowed)),
                soc=soc,
            )
        self.layer, self.soc, self.steps = layer, soc, steps
        self.token_dtype, self.state_dtype = boundary_dtypes(soc, OP_TYPE, steps)
        self.chunk_dtype, _ = boundary_dtypes(soc, CHUNK_TYPE, steps)
        # [conv_dim, 1, K] -> [K, conv_dim]
        self.taps = layer.conv1d.weight.detach().squeeze(1).t().to(steps).contiguous()
        bias = layer.conv1d.bias
        self.conv_bias = None if bias is None else bias.detach().to(steps)
        self.A_log, self.dt_bias, self.norm_weight = (
            parameter.detach().float() for parameter in (layer.A_log, layer.dt_bias, layer.norm.weight)
        )
        self.value_heads = layer.value_dim // layer.head_v_dim

    def initial_states(self, batch: int) -> States:
        """States before the first token: zeros."""
        layer, device = self.layer, self.taps.device
        rows, channels = self.taps.shape
        shape = (batch, self.value_heads, layer.head_v_dim, layer.head_k_dim)
        return States(
            torch.zeros(batch, rows - 1, channels, dtype=self.steps, device=device),
            torch.zeros(shape, dtype=self.state_dtype, device=device),
        )

    def __call__(self, hidden_states: torch.Tensor, states: States) -> tuple[torch.Tensor, States]:
        """hidden_states `[B, T, H]`, T >= 1, the next tokens of every sequence -> output `[B, T, H]` and the new states.

        Any split of a sequence into calls gives the same tokens up to rounding. `states` is not modified.
        """
        out, states, _ = self.step(hidden_states, states)
        return out, states

    def packed(
        self, hidden_states: torch.Tensor, lengths: torch.Tensor, states: States
    ) -> tuple[torch.Tensor, States]:
        """Sequences of any lengths one behind the other, in one call.

        hidden_states `[1, T, H]`; lengths `[B]`, int32, their sum T; states of B sequences. Returns the output `[1, T, H]`
        and the new states; a sequence of length 0 keeps its own. Errors: HybridOpsError for another shape.
        """
        if hidden_states.shape[0] != 1 or lengths.dim() != 1 or lengths.shape[0] != states.conv.shape[0]:
            got = f"hidden_states {list(hidden_states.shape)}, lengths {list(lengths.shape)}"
            allowed = f"[1, T, H] and [B], B = {states.conv.shape[0]} as the states have"
            raise check.refuse(
                "models", "lengths", "not one packed row per batch", got=got, allowed=allowed, soc=self.soc
            )
        out, states, _ = self.step(hidden_states, states, lengths)
        return out, states

    def step(
        self, hidden_states: torch.Tensor, states: States, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, States, torch.Tensor]:
        """As a call, with `lengths` as `packed`, and the projected rows `[B, T, conv_dim]` before the convolution."""
        with runtime.using(soc=runtime.options().soc or self.soc):  # float16 alone would mean ascend310p
            return self._step(hidden_states, states, lengths)

    def _step(
        self, hidden_states: torch.Tensor, states: States, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, States, torch.Tensor]:
        batch, length, _ = hidden_states.shape
        rows, device, single = batch * length, hidden_states.device, lengths is None and length == 1
        if lengths is None:
            lengths = torch.full((batch,), length, dtype=torch.int32, device=device)
            offsets = torch.arange(batch + 1, dtype=torch.int32, device=device) * length
        else:
            lengths = lengths.to(device, torch.int32)
            offsets = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        raw, gate, b, a = projections(self.layer, hidden_states)
        mixed, conv = self._convolve(raw.reshape(rows, -1), states.conv, offsets, single)
        log_decay, beta = torch.ops.hybrid_ops.hybrid_gated_delta_gate(
            self._cast(a.reshape(rows, -1)), self._cast(b.reshape(rows, -1)), self.A_log, self.dt_bias
        )
        core, recurrent = self._rule(mixed, log_decay, beta, states.recurrent, lengths, single)
        normed = torch.ops.hybrid_ops.hybrid_gated_rms_norm(
            self._cast(core.reshape(rows * self.value_heads, -1)),
            self._cast(gate.reshape(rows * self.value_heads, -1)),
            self.norm_weight,
            eps=self.layer.norm.variance_epsilon,
        )
        out = normed.reshape(batch, length, -1).to(hidden_states.dtype)
        return self.layer.out_proj(out), States(conv, recurrent), raw

    def _cast(self, x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        return x.to(dtype or self.steps).contiguous()

    def _convolve(
        self, mixed: torch.Tensor, lines: torch.Tensor, offsets: torch.Tensor, single: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed rows `[T, conv_dim]`, each sequence continuing its own line; `single`: one row each."""
        known = torch.ones(len(lines), dtype=torch.int32, device=mixed.device)
        return torch.ops.hybrid_ops.hybrid_causal_conv1d_functional(
            x=self._cast(mixed),
            weight=self.taps,
            conv_states=lines,
            query_start_loc=offsets,
            bias=self.conv_bias,
            initial_state_mode=None if single else known,
            activation=SILU,
            run_mode=UPDATE if single else PREFILL,
        )

    def _rule(
        self,
        mixed: torch.Tensor,
        log_decay: torch.Tensor,
        beta: torch.Tensor,
        state: torch.Tensor,
        lengths: torch.Tensor,
        single: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        layer, rows = self.layer, len(mixed)
        dtype = self.token_dtype if single else self.chunk_dtype
        query, key, value = torch.split(mixed, [layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
        arguments = {
            "query": self._cast(l2norm(query.reshape(rows, -1, layer.head_k_dim)), dtype),
            "key": self._cast(l2norm(key.reshape(rows, -1, layer.head_k_dim)), dtype),
            "value": self._cast(value.reshape(rows, -1, layer.head_v_dim), dtype),
            "beta": self._cast(beta, dtype),
            "g": log_decay,
            "actual_seq_lengths": lengths,
            "scale_value": layer.head_k_dim**-0.5,
        }
        if single:
            slots = state_indices(rows, 1, mixed.device)
            return torch.ops.hybrid_ops.recurrent_gated_delta_rule_functional(
                state=state, ssm_state_indices=slots, **arguments
            )
        return torch.ops.hybrid_ops.chunk_gated_delta_rule_functional(initial_state=state, **arguments)


def _forward(net: FusedGatedDeltaNet) -> Any:
    """`forward` of a transformers layer that keeps its states in transformers' cache.

    With `cu_seq_lens_q`, cumulative, the row is packed sequences, as transformers' kernels take it.
    """
    layer = net.layer

    def forward(
        hidden_states: torch.Tensor,
        cache: Any = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        cache = kwargs.pop("cache_params", cache)  # its name before 5.24
        offsets = kwargs.get("cu_seq_lens_q")
        if offsets is not None:
            if cache is not None:
                raise check.refuse(
                    "models", "cu_seq_lens_q", "a cache holds one sequence per row, not packed ones", got="a cache",
                    allowed="None", soc=net.soc, hint="FusedGatedDeltaNet.packed keeps states of packed sequences",
                )  # fmt: skip
            return net.packed(hidden_states, offsets.diff(), net.initial_states(len(offsets) - 1))[0]
        if attention_mask is not None:
            hidden_states = (hidden_states * attention_mask[:, :, None]).to(hidden_states.dtype)
        states = net.initial_states(hidden_states.shape[0])
        before = None if cache is None else linear_states(cache, layer.layer_idx)
        if before is not None:
            conv, recurrent = before
            # theirs holds K raw columns, [B, conv_dim, K]
            states.conv = net._cast(conv[:, :, 1 - len(net.taps) :].transpose(1, 2))
            states.recurrent = recurrent.transpose(-2, -1).to(net.state_dtype).contiguous()
        out, states, raw = net.step(hidden_states, states)
        if cache is not None:
            cache.update_conv_state(raw.transpose(1, 2), layer.layer_idx, conv_kernel_size=len(net.taps))
            cache.update_recurrent_state(
                states.recurrent.transpose(-2, -1).float().contiguous(), layer.layer_idx
            )
        return out

    return forward


@contextmanager
def fused(model: torch.nn.Module, soc: str = "ascend310p") -> Iterator[list[FusedGatedDeltaNet]]:
    """Run the gated delta nets of `model` by operators inside a with-block, prefill and decode; layers are restored.

    The layers' parameters are read when the block begins. Errors: HybridOpsError when the model has no such layer.
    """
    check_release()
    nets = [FusedGatedDeltaNet(layer, soc) for layer in model.modules() if is_gated_delta_net(layer)]
    if not nets:
        raise check.refuse(
            "models", "model", "no gated delta net to replace", got=type(model).__name__,
            allowed="models of Qwen3.5 and Qwen3-Next", soc=soc,
        )  # fmt: skip
    for net in nets:
        net.layer.forward = _forward(net)
    try:
        yield nets
    finally:
        for net in nets:
            del net.layer.forward
