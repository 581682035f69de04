"""Function-level adapter: the recurrent gated delta rule as model code calls it, computed by the operator.

Model code (transformers, flash-linear-attention) keeps `[B, T, heads, size]` tensors in the model's dtype and a
float32 state `[B, NV, DK, DV]`; the operator takes packed `[T, heads, size]` rows in the SoC's storage dtype and a
state pool `[S, NV, DV, DK]`. This file is the boundary: one cast and one transpose on each side, nothing else.
"""

from __future__ import annotations

import torch

from hybrid_ops import check, torch_ops  # noqa: F401  (torch_ops registers torch.ops.hybrid_ops)

OP_TYPE = "RecurrentGatedDeltaRule"
CHUNK_TYPE = "ChunkGatedDeltaRule"
L2_EPSILON = 1e-6  # transformers' and flash-linear-attention's value


def boundary_dtypes(
    soc: str, op_type: str = OP_TYPE, operands: torch.dtype | None = None
) -> tuple[torch.dtype, torch.dtype]:
    """(activation, state) dtypes of an operator on `soc`: the contract's column with the widest state.

    Of several such columns the one whose activations are `operands`, else the first.
    """
    op = check.find_op(op_type)
    family = check.find_soc(op, soc)
    state = "state" if op_type == OP_TYPE else "initial_state"
    column = op.widest_column(family, state, str(operands).removeprefix("torch."))
    activation, wide = (op.input(name).dtypes[family][column] for name in ("query", state))
    return getattr(torch, activation), getattr(torch, wide)


def l2norm(x: torch.Tensor, eps: float = L2_EPSILON) -> torch.Tensor:
    """`x * rsqrt(sum(x^2) + eps)` over the last axis, in float32: squares of float16 overflow above 255."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + eps)


def state_indices(batch: int, length: int, device: torch.device) -> torch.Tensor:
    """Slot of every packed row, int32 `[batch * length]`: sequence b owns slot b.

    For one sequence it is a plain constant: converters for Ascend cannot map what arange + repeat_interleave becomes.
    """
    if batch == 1:
        return torch.zeros(length, dtype=torch.int32, device=device)
    slots = torch.arange(batch, dtype=torch.int32, device=device)
    return slots[:, None].expand(batch, length).reshape(batch * length)


def recurrent_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    soc: str = "ascend310p",
    accepted: bool = True,
    **kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Same call as transformers' `torch_recurrent_gated_delta_rule`.

    query, key `[B, T, NK, DK]`; value `[B, T, NV, DV]`; g, beta `[B, T, NV]` (g = log of the decay, float32);
    initial_state `[B, NV, DK, DV]` or None for zeros. Returns the output `[B, T, NV, DV]` in query's dtype and, with
    `output_final_state`, the new state `[B, NV, DK, DV]` float32 (None otherwise). Inputs are not modified.
    `soc` selects the storage dtypes of the operator's boundary; `accepted=False` leaves num_accepted_tokens out
    (the same meaning here, because every row of a sequence names one slot).
    Errors: HybridOpsError for packed sequences (`cu_seqlens`); the operator's own refusals.
    """
    if kwargs.get("cu_seqlens") is not None:
        raise check.refuse(
            "recurrent_gated_delta_rule", "cu_seqlens", "the decode adapter takes no packed sequences",
            got="a tensor", allowed="None", soc=soc,
        )  # fmt: skip
    batch, length, key_heads, key_size = key.shape
    value_heads, value_size = value.shape[-2:]
    rows = batch * length
    activation, state_dtype = boundary_dtypes(soc)
    if use_qk_l2norm_in_kernel:
        query_rows, key_rows = l2norm(query), l2norm(key)
    else:
        query_rows, key_rows = query, key
    if initial_state is None:
        pool = torch.zeros(batch, value_heads, value_size, key_size, dtype=state_dtype, device=value.device)
    else:
        pool = initial_state.transpose(-2, -1).to(state_dtype).contiguous()
    lengths = torch.full((batch,), length, dtype=torch.int32, device=query.device)
    out, pool = torch.ops.hybrid_ops.recurrent_gated_delta_rule_functional(
        query=query_rows.reshape(rows, key_heads, key_size).to(activation).contiguous(),
        key=key_rows.reshape(rows, key_heads, key_size).to(activation).contiguous(),
        value=value.reshape(rows, value_heads, value_size).to(activation).contiguous(),
        beta=beta.reshape(rows, value_heads).to(activation).contiguous(),
        state=pool,
        actual_seq_lengths=lengths,
        ssm_state_indices=state_indices(batch, length, query.device),
        g=g.reshape(rows, value_heads).float().contiguous(),
        gk=None,
        num_accepted_tokens=torch.full_like(lengths, length) if accepted else None,
        scale_value=key_size**-0.5,
    )
    out = out.reshape(batch, length, value_heads, value_size).to(query.dtype)
    state = pool.transpose(-2, -1).contiguous().float() if output_final_state else None
    return out, state


def chunk_operator_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    soc: str = "ascend310p",
    lengths: torch.Tensor | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Same call as transformers' `torch_chunk_gated_delta_rule`, computed by chunk_gated_delta_rule.

    Shapes and results as of `recurrent_rule`, for any T. `lengths` int32 `[B]` are all T; made here when absent, but an
    exported graph of dynamic length has to compute them. With `cu_seqlens` `[N + 1]`, cumulative, the one row (B = 1) is N
    sequences one behind the other, and states are `[N, NV, DK, DV]`.
    Errors: HybridOpsError for `cu_seqlens` with more than one row; the operator's own refusals.
    """
    offsets = kwargs.get("cu_seqlens")
    if offsets is not None:
        offsets = torch.as_tensor(offsets)
        if key.shape[0] != 1:
            raise check.refuse(
                "chunk_gated_delta_rule", "cu_seqlens", "packed sequences are one row", got=f"{key.shape[0]} rows",
                allowed="1", soc=soc,
            )  # fmt: skip
        lengths = offsets.diff().to(torch.int32)
    batch, key_heads, key_size = int(key.shape[0]), int(key.shape[2]), int(key.shape[3])
    value_heads, value_size = int(value.shape[2]), int(value.shape[3])
    activation, state_dtype = boundary_dtypes(soc, CHUNK_TYPE)
    if use_qk_l2norm_in_kernel:
        query_rows, key_rows = l2norm(query), l2norm(key)
    else:
        query_rows, key_rows = query, key
    if initial_state is None:
        sequences = batch if offsets is None else len(offsets) - 1
        shape = (sequences, value_heads, value_size, key_size)
        state = torch.zeros(shape, dtype=state_dtype, device=value.device)
    else:
        state = initial_state.transpose(-2, -1).to(state_dtype).contiguous()
    if lengths is None:
        lengths = torch.full((batch,), key.shape[1], dtype=torch.int32, device=query.device)
    out, state = torch.ops.hybrid_ops.chunk_gated_delta_rule(
        query=query_rows.reshape(-1, key_heads, key_size).to(activation).contiguous(),
        key=key_rows.reshape(-1, key_heads, key_size).to(activation).contiguous(),
        value=value.reshape(-1, value_heads, value_size).to(activation).contiguous(),
        beta=beta.reshape(-1, value_heads).to(activation).contiguous(),
        initial_state=state,
        actual_seq_lengths=lengths,
        g=g.reshape(-1, value_heads).float().contiguous(),
        scale_value=key_size**-0.5,
    )
    out = out.reshape(batch, -1, value_heads, value_size).to(query.dtype)
    return out, state.transpose(-2, -1).contiguous().float() if output_final_state else None
