"""Qwen3.5's gated delta net in MindSpore: one decode token with explicit states, weights from the torch layer.

Projections, convolution update, gates, l2norm, the operator, gated RMS norm, output projection: what
`hybrid_ops.models.linear_attention_step` does for the torch layer, with the recurrent state in the operator's own layout
and dtype, so that a step neither transposes nor casts it.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from hybrid_ops import check
from hybrid_ops import mindspore as hops

OP = "recurrent_gated_delta_rule"
L2_EPSILON = 1e-6  # transformers' and flash-linear-attention's value
_WEIGHTS = {
    "in_proj_qkv": "in_proj_qkv.weight", "in_proj_z": "in_proj_z.weight", "in_proj_b": "in_proj_b.weight",
    "in_proj_a": "in_proj_a.weight", "conv": "conv1d.weight", "conv_bias": "conv1d.bias", "A_log": "A_log",
    "dt_bias": "dt_bias", "norm": "norm.weight", "out_proj": "out_proj.weight",
}  # fmt: skip


def boundary_dtypes(soc: str) -> tuple[str, str]:
    """(activation, state) dtype names of the operator on `soc`: the contract's column with the widest state."""
    op = check.find_op(OP)
    family = check.find_soc(op, soc)
    column = op.widest_column(family, "state")
    return op.input("query").dtypes[family][column], op.input("state").dtypes[family][column]


def tensor_from_torch(tensor: Any) -> Tensor:
    """A torch tensor's values in the MindSpore dtype of the same name (bfloat16 by way of float32, which is exact)."""
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.detach().cpu()
    array = plain.float().numpy() if name == "bfloat16" else plain.numpy()
    return Tensor(np.ascontiguousarray(array)).astype(getattr(ms, name))


def _parameter(name: str, weight: Any) -> Parameter:
    """A weight of the torch layer as the step uses it: projections `[in, out]`, the convolution `[C, K]`."""
    if "proj" in name:
        weight = weight.t()
    elif name == "conv":
        weight = weight.squeeze(1)
    return Parameter(tensor_from_torch(weight), name=name, requires_grad=False)


class GatedDeltaNetStep(nn.Cell):
    """The decode branch of transformers' `Qwen3_5GatedDeltaNet` as a pure function of its states.

    Args:
        layer: the torch layer; its weights are copied, dtypes kept.
        soc: SoC whose storage dtypes the operator uses: "ascend310p" float16, "ascend910b" bfloat16.

    Inputs: hidden `[B, 1, H]`; conv_state `[B, conv_dim, K-1]`, the last K-1 raw columns; state `[B, NV, DV, DK]` in the
    operator's dtype. Returns the layer's output `[B, 1, H]` and both new states; inputs are not modified. States of
    transformers are `[B, NV, DK, DV]` float32: `state_from_torch` converts one.

    Errors: HybridOpsError when the layer has no such weights, and the operator's own refusals.
    """

    def __init__(self, layer: Any, soc: str = "ascend310p") -> None:
        super().__init__()
        given = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
        for name, source in _WEIGHTS.items():
            if source not in given and name != "conv_bias":
                raise check.refuse(
                    "models", "layer", f"no {source}", got=type(layer).__name__, allowed="a gated delta net of Qwen3.5",
                    soc=soc,
                )  # fmt: skip
            setattr(self, name, _parameter(name, given[source]) if source in given else None)
        self.key_size, self.value_size = int(layer.head_k_dim), int(layer.head_v_dim)
        self.key_dim, self.value_dim = int(layer.key_dim), int(layer.value_dim)
        self.key_heads, self.value_heads = int(layer.num_k_heads), int(layer.num_v_heads)
        self.epsilon = float(layer.norm.variance_epsilon)
        self.scale = self.key_size**-0.5
        self.soc = soc
        activation, state = boundary_dtypes(soc)
        self.activation, self.state_dtype = getattr(ms, activation), getattr(ms, state)

    def state_from_torch(self, state: Any) -> Tensor:
        """A recurrent state of transformers, `[B, NV, DK, DV]`, as this layer takes it."""
        return tensor_from_torch(state.transpose(-2, -1).contiguous()).astype(self.state_dtype)

    def _rows(self, x: Tensor, heads: int, size: int, normed: bool) -> Tensor:
        """`[B, 1, heads * size]` as the operator's packed rows; the norm in float32: squares of float16 overflow above 255."""
        x = x.reshape(-1, heads, size)
        if normed:
            x = x.astype(ms.float32)
            x = x * ops.rsqrt((x * x).sum(-1, keepdims=True) + L2_EPSILON)
        return x.astype(self.activation)

    def _conv(self, mixed: Tensor, conv_state: Tensor) -> tuple[Tensor, Tensor]:
        """One column `[B, C, 1]` through the depthwise causal convolution and SiLU; the slid state beside it."""
        window = ops.cat((conv_state, mixed.astype(conv_state.dtype)), -1)
        out = (window * self.conv).sum(-1, keepdims=True)
        if self.conv_bias is not None:
            out = out + self.conv_bias.expand_dims(-1)
        return out * ops.sigmoid(out), window[:, :, 1:]

    def _norm(self, x: Tensor, gate: Tensor) -> Tensor:
        """RMS norm over a head, then times SiLU of the gate, statistics in float32."""
        wide = x.astype(ms.float32)
        wide = wide * ops.rsqrt((wide * wide).mean(-1, keep_dims=True) + self.epsilon)
        gate = gate.astype(ms.float32)
        return (self.norm * wide.astype(x.dtype) * (gate * ops.sigmoid(gate))).astype(x.dtype)

    def construct(self, hidden: Tensor, conv_state: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = hidden.shape[0]
        mixed = ops.matmul(hidden, self.in_proj_qkv).swapaxes(1, 2)
        gate = ops.matmul(hidden, self.in_proj_z)
        beta = ops.sigmoid(ops.matmul(hidden, self.in_proj_b))
        # exp(A_log) of a float16 parameter may be infinite; softplus(x) = log(1 + exp(x)) without overflow
        step = ops.matmul(hidden, self.in_proj_a).astype(ms.float32) + self.dt_bias.astype(ms.float32)
        step = ops.relu(step) + ops.log1p(ops.exp(-ops.abs(step)))
        decay = -ops.exp(self.A_log.astype(ms.float32)) * step

        mixed, conv_state = self._conv(mixed, conv_state)
        mixed = mixed.swapaxes(1, 2)
        query = mixed[:, :, : self.key_dim]
        key = mixed[:, :, self.key_dim : 2 * self.key_dim]
        value = mixed[:, :, 2 * self.key_dim :]
        out, state = hops.recurrent_gated_delta_rule(
            self._rows(query, self.key_heads, self.key_size, True),
            self._rows(key, self.key_heads, self.key_size, True),
            self._rows(value, self.value_heads, self.value_size, False),
            beta.reshape(-1, self.value_heads).astype(self.activation),
            state,
            ops.ones((batch,), ms.int32),
            ops.arange(0, batch).astype(ms.int32),
            decay.reshape(-1, self.value_heads),
            scale_value=self.scale,
            soc=self.soc,
        )
        core = self._norm(out.astype(hidden.dtype), gate.reshape(-1, self.value_heads, self.value_size))
        return ops.matmul(core.reshape(batch, 1, -1), self.out_proj), conv_state, state
