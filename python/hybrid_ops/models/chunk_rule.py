"""The chunked gated delta rule in a form that exporters can write down: no loop, no branch, any length up to a bound.

Same mathematics as transformers' `torch_chunk_gated_delta_rule`. Two of its steps depend on the input at trace time and
are replaced by fixed numbers of matrix products:
 * the unit lower triangular system of a chunk is inverted by doubling the size of its inverted diagonal blocks, which
   is as stable as forward substitution (the geometric series of (I + A) is not: its terms overflow for equal keys);
 * the walk over chunks is a linear recurrence S[c] = M[c] S[c-1] + B[c], evaluated as a prefix scan whose depth is the
   logarithm of the largest number of chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as functional

from hybrid_ops import check
from hybrid_ops.models.gated_delta import l2norm

CHUNK = 64
# exp(-100) is 0 in float32; the bound keeps sums of log decays finite where a gate resets the state (g = -inf).
LEAST_LOG_DECAY = -100.0


def scan_depth(max_length: int, chunk_size: int = CHUNK) -> int:
    """Levels of the prefix scan for sequences of up to `max_length` tokens."""
    return math.ceil(math.log2(-(-max_length // chunk_size)))


@dataclass(frozen=True)
class Constants:
    """Matrices that depend on sizes only; made once, so that a traced graph holds them and not their making."""

    lower: torch.Tensor  # [C, C] ones on and below the diagonal
    strictly: torch.Tensor  # [C, C] ones below it
    identity: torch.Tensor  # [C, C]
    below: tuple[torch.Tensor, ...]  # per doubling, [C, C] ones where a block of inverses is still missing
    channels: torch.Tensor  # [DK, DK] identity

    @classmethod
    def of(cls, key_size: int, chunk_size: int = CHUNK) -> Constants:
        """For keys of `key_size` channels and a chunk size that is a power of 2."""
        row, column = torch.arange(chunk_size)[:, None], torch.arange(chunk_size)
        widths = [1 << level for level in range(chunk_size.bit_length() - 1)]
        below = [(row // (2 * w) == column // (2 * w)) & (row // w > column // w) for w in widths]
        return cls(
            lower=(row >= column).float(),
            strictly=(row > column).float(),
            identity=torch.eye(chunk_size),
            below=tuple(mask.float() for mask in below),
            channels=torch.eye(key_size),
        )

    def to(self, device: torch.device) -> Constants:
        """The same on `device`."""
        return Constants(
            lower=self.lower.to(device),
            strictly=self.strictly.to(device),
            identity=self.identity.to(device),
            below=tuple(mask.to(device) for mask in self.below),
            channels=self.channels.to(device),
        )


def unit_lower_inverse(system: torch.Tensor, constants: Constants) -> torch.Tensor:
    """Inverse of I + `system`, where `system` `[N, C, C]` is strictly lower triangular.

    With X the inverses of the diagonal blocks of width s, those of width 2s are X - X E X, E the blocks of `system`
    below them. The first step has X = I.
    """
    first, *others = constants.below or (constants.strictly,)
    inverse = constants.identity - system * first
    for mask in others:
        inverse = inverse - torch.bmm(torch.bmm(inverse, system * mask), inverse)
    return inverse


def _shift(x: torch.Tensor, rows: int) -> torch.Tensor:
    """`x` `[chunks * heads, M, N]` moved `rows` rows later, zeros moving in (a Pad: exported zeros take room)."""
    return functional.pad(x, (0, 0, 0, 0, rows, 0))[: x.shape[0]]


def chunk_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    max_length: int = 2048,
    chunk_size: int = CHUNK,
    constants: Constants | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Same call as transformers' `torch_chunk_gated_delta_rule`, for sequences of up to `max_length` tokens.

    query, key `[B, T, NK, DK]`; value `[B, T, NV, DV]`; g (log of the decay) and beta `[B, T, NV]`; initial_state
    `[B, NV, DK, DV]` or None for zeros. Returns the output `[B, T, NV, DV]` in query's dtype and, with
    `output_final_state`, the state after the last token, float32 `[B, NV, DK, DV]` (None otherwise). Everything is
    computed in float32; tokens with beta = 0 and g = 0 leave the state as it is. `constants`: those of the key size and
    `chunk_size`, made here when absent.
    Errors: HybridOpsError for packed sequences (`cu_seqlens`), a chunk size that is no power of 2, and, where T is
    known, T > max_length. In an exported graph of dynamic length the bound is the caller's to keep.
    """
    if kwargs.get("cu_seqlens") is not None:
        raise check.refuse(
            "chunk_gated_delta_rule", "cu_seqlens", "packed sequences are not taken",
            got="a tensor", allowed="None", soc="every SoC",
        )  # fmt: skip
    if chunk_size < 1 or chunk_size & (chunk_size - 1):
        raise check.refuse(
            "chunk_gated_delta_rule", "chunk_size", "not a power of 2",
            got=chunk_size, allowed="1, 2, 4, …", soc="every SoC",
        )  # fmt: skip
    length = key.shape[1]
    # int(): sizes of the model stay numbers where tracing turns every size into a tensor.
    batch, key_heads, key_size = int(key.shape[0]), int(key.shape[2]), int(key.shape[3])
    value_heads, value_size = int(value.shape[2]), int(value.shape[3])
    if isinstance(length, int) and length > max_length:
        raise check.refuse(
            "chunk_gated_delta_rule", "query", "sequence is too long",
            got=f"{length} tokens", allowed=f"up to max_length {max_length}", soc="every SoC",
        )  # fmt: skip
    heads, groups = batch * value_heads, value_heads // key_heads
    missing = (length + chunk_size - 1) // chunk_size * chunk_size - length

    def chunks(x: torch.Tensor, size: int) -> torch.Tensor:
        """`[B, T, heads, size]` -> float32 `[chunks * B * NV, chunk_size, size]`, zeros behind the last token.

        One batch axis for chunks and heads, chunk by chunk: products are plain batched ones, and moving by a chunk is
        moving by `heads` rows. (Two axes make the exporter specialise on a single chunk.)
        """
        if x.shape[2] != value_heads:  # each key head serves `groups` consecutive value heads
            x = torch.stack([x] * groups, dim=3)
        rows = functional.pad(x.reshape(batch, -1, value_heads, size).float(), (0, 0, 0, 0, 0, missing))
        split = rows.reshape(batch, -1, chunk_size, value_heads, size).permute(1, 0, 3, 2, 4)
        return split.reshape(-1, chunk_size, size)

    if use_qk_l2norm_in_kernel:
        query_rows, key_rows = l2norm(query), l2norm(key)
    else:
        query_rows, key_rows = query, key
    q = chunks(query_rows.float() * key_size**-0.5, key_size)
    k, v = chunks(key_rows, key_size), chunks(value, value_size)
    rate = chunks(beta.unsqueeze(-1), 1)
    log_decay = chunks(g.float().clamp(min=LEAST_LOG_DECAY).unsqueeze(-1), 1)

    fixed = (constants or Constants.of(key_size, chunk_size)).to(key.device)
    total = torch.matmul(fixed.lower, log_decay)  # cumulative log decay of every row, [chunks * heads, C, 1]
    # Rows decay what earlier rows wrote; above the diagonal the difference is positive and exp would overflow.
    pairwise = torch.exp(torch.clamp(total - total.transpose(1, 2), max=0.0)) * fixed.lower
    decayed_key = k * rate
    system = torch.bmm(decayed_key, k.transpose(1, 2)) * pairwise * fixed.strictly
    inverse = unit_lower_inverse(system, fixed)
    writes = torch.bmm(inverse, v * rate)
    reads = torch.bmm(inverse, decayed_key * total.exp())
    last = total[:, -1:]
    kept_key = (k * torch.exp(last - total)).transpose(1, 2)  # [chunks * heads, DK, C]

    step = fixed.channels * last.exp() - torch.bmm(kept_key, reads)
    state = torch.bmm(kept_key, writes)
    start = None
    if initial_state is not None:
        start = initial_state.reshape(heads, key_size, value_size).float()
        first = torch.cat([torch.bmm(step[:heads], start), torch.zeros_like(state)], dim=0)
        state = state + first[: state.shape[0]]
    for level in range(scan_depth(max_length, chunk_size)):
        # Zeros for the products that move in are right: they only ever multiply the zeros that state moves in.
        state = state + torch.bmm(step, _shift(state, heads << level))
        step = torch.bmm(step, _shift(step, heads << level))
    before = _shift(state, heads) if start is None else torch.cat([start, state], dim=0)[: state.shape[0]]

    attention = torch.bmm(q, k.transpose(1, 2)) * pairwise
    out = torch.bmm(q * total.exp(), before) + torch.bmm(attention, writes - torch.bmm(reads, before))
    out = out.reshape(-1, batch, value_heads, chunk_size, value_size).permute(1, 0, 3, 2, 4)
    out = out.reshape(batch, -1, value_heads, value_size)[:, :length].to(query.dtype)
    if not output_final_state:
        return out, None
    return out, state[-heads:].reshape(batch, value_heads, key_size, value_size)
