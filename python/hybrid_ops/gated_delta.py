"""ruDNN-shaped entries on [B, H, T, *] tensors with a float32 state.

`gated_delta_rule(input)` repeats every token, `chunk_gated_delta_rule(input, chunk_size)` is for prefill; the two agree up
to rounding. (The operator of the second's name has packed rows instead; it is `hybrid_ops.chunk_gated_delta_rule`.)

Mapping onto recurrent_gated_delta_rule and chunk_gated_delta_rule (NK = NV = H):

    query, key, value [B, H, T, D]    -> [B*T, H, D]
    beta, log_decay   [B, H, T]       -> [B*T, H], log_decay stays float32
    initial_state     [B, H, K, V]    -> state [B, H, V, K], a copy: the caller's tensor is not overwritten
    query_scale                       -> scale_value
    lengths T for each of B sequences; token by token, slot b of the pool for each token of sequence b
    final state                       <- state, transposed back, as float32

Precision: on ascend310p the state is stored as float16, so the float32 state is rounded on the way in and the final
state on the way out (in between it is float32); on ascend910b it is stored as float32 but query, key, value and beta
are 16 bits wide, bfloat16 in chunks, bfloat16 or float16 token by token. float32 operands fit neither chip: they are
rounded to the chip's type, and a PrecisionWarning says so once. Only backend="reference" computes them unrounded.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

from . import case, check, contract, runtime, torch_ops
from . import soc as platform

TOKENS = "gated_delta_rule"
CHUNKS = "chunk_gated_delta_rule"
OPS = {TOKENS: "recurrent_gated_delta_rule", CHUNKS: "chunk_gated_delta_rule"}
STATE = {TOKENS: "state", CHUNKS: "initial_state"}
OPERANDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class GatedDeltaError(check.HybridOpsError):
    """Shape, dtype, device or scale refused before anything ran."""


class PrecisionWarning(UserWarning):
    """The chip stores less precision than the tensors given."""


@dataclass(frozen=True)
class GatedDeltaInput:
    """Operands of one call; query and key are normalised by the caller.

    Args:
        query, key: [B, H, T, K], float32, float16 or bfloat16.
        value: [B, H, T, V]; beta: [B, H, T]; both in the dtype of query.
        log_decay: [B, H, T], float32.
        initial_state: [B, H, K, V], float32; never overwritten.
        query_scale: finite factor of the query.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    beta: torch.Tensor
    log_decay: torch.Tensor
    initial_state: torch.Tensor
    query_scale: float = 1.0


@dataclass(frozen=True)
class GatedDeltaOutput:
    """`output` [B, H, T, V] in the dtype of query, `final_state` [B, H, K, V] float32."""

    output: torch.Tensor
    final_state: torch.Tensor


Refuse = Callable[[str, str, object, object], GatedDeltaError]


def _refusals(name: str, soc: str) -> Refuse:
    def refuse(argument: str, wrong: str, got: object, allowed: object) -> GatedDeltaError:
        return GatedDeltaError(str(check.refuse(name, argument, wrong, got=got, allowed=allowed, soc=soc)))

    return refuse


def _check(given: GatedDeltaInput, refuse: Refuse) -> None:
    tensors = {f.name: getattr(given, f.name) for f in fields(given) if f.name != "query_scale"}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise refuse(name, "not a tensor", type(tensor).__name__, "torch.Tensor")
        if tensor.is_quantized:
            raise refuse(name, "quantized", tensor.dtype, "F32, F16, BF16")
        if tensor.device != given.query.device:
            raise refuse(name, "tensors on several devices", tensor.device, given.query.device)
    if given.query.dtype not in OPERANDS:
        raise refuse("query", "dtype not available", given.query.dtype, check.words(OPERANDS.values()))
    for name, tensor in tensors.items():
        wanted = torch.float32 if name in ("log_decay", "initial_state") else given.query.dtype
        if tensor.dtype != wanted:
            raise refuse(name, "wrong dtype", tensor.dtype, wanted)
    if given.query.dim() != 4 or given.value.dim() != 4:
        name = "query" if given.query.dim() != 4 else "value"
        raise refuse(name, "wrong rank", f"shape {list(tensors[name].shape)}", "[B, H, T, D]")
    b, h, t, k = given.query.shape
    v = given.value.shape[3]
    shapes = {"key": (b, h, t, k), "value": (b, h, t, v), "beta": (b, h, t), "log_decay": (b, h, t),
              "initial_state": (b, h, k, v)}  # fmt: skip
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            hint = "wrong shape" if name != "key" else "wrong shape, head counts are equal (no grouped heads)"
            raise refuse(name, hint, list(tensors[name].shape), list(shape))
    scale = given.query_scale
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise refuse("query_scale", "not a finite number", scale, "a finite float")


def _rows(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[B, H, T, …] -> [B*T, H, …], contiguous."""
    return tensor.transpose(1, 2).flatten(0, 1).to(dtype).contiguous()


def _check_chunk(chunk_size: object, soc: str, refuse: Refuse) -> None:
    """ruDNN's limit: a triangle of chunk_size^2 + chunk_size floats within what a work group shares."""
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise refuse("chunk_size", "not a positive number", chunk_size, "1 or more")
    room = int(platform.load(soc).figures["sizes.ub"])
    need = 4 * (chunk_size**2 + chunk_size)
    if need > room:
        got = f"{chunk_size}, 4 * (chunk_size^2 + chunk_size) = {need} bytes"
        raise refuse("chunk_size", "triangle exceeds local memory", got, f"up to {room} bytes")


def gated_delta_rule(
    input: GatedDeltaInput,
    *,
    backend: str | None = None,
    soc: str | None = None,
    checks: str | None = None,
) -> GatedDeltaOutput:
    """Token-by-token gated delta rule over whole sequences, any T (T = 0 returns the initial state).

    Args:
        input: the operands, see `GatedDeltaInput`.
        backend, soc, checks: as for every operator; `soc` None: float16 ascend310p, bfloat16 and float32 ascend910b.

    Raises:
        GatedDeltaError: the input is refused; nothing ran and nothing was written.
    """
    return _refusing(TOKENS, input, None, backend, soc, checks)


def chunk_gated_delta_rule(
    input: GatedDeltaInput,
    chunk_size: int,
    *,
    backend: str | None = None,
    soc: str | None = None,
    checks: str | None = None,
) -> GatedDeltaOutput:
    """Gated delta rule over whole sequences, any T, for prefill (T = 0 returns the initial state).

    Args:
        input: the operands, see `GatedDeltaInput`.
        chunk_size: checked against ruDNN's limit, 4 * (chunk_size^2 + chunk_size) bytes of local memory, and nothing more:
            the operator blocks tokens as it likes, so that the result is the same for every chunk size.
        backend, soc, checks: as for every operator; `soc` None: float16 ascend310p, bfloat16 and float32 ascend910b.

    Raises:
        GatedDeltaError: the input or chunk_size is refused; nothing ran and nothing was written.
    """
    return _refusing(CHUNKS, input, chunk_size, backend, soc, checks)


def _refusing(name: str, *args: Any) -> GatedDeltaOutput:
    try:
        return _run(name, *args)
    except check.HybridOpsError as error:
        if type(error) is check.HybridOpsError:  # not a hazard, which is no fault of the input
            raise GatedDeltaError(str(error)) from error
        raise


def _run(
    name: str,
    input: GatedDeltaInput,
    chunk_size: int | None,
    backend: str | None,
    soc: str | None,
    checks: str | None,
) -> GatedDeltaOutput:
    op, held = contract.load()[OPS[name]], STATE[name]
    if not isinstance(input, GatedDeltaInput):
        raise _refusals(name, soc or "every SoC")(
            "input", "wrong type", type(input).__name__, "GatedDeltaInput"
        )
    half = getattr(input.query, "dtype", None) == torch.float16
    family = check.find_soc(op, soc) if soc else "ascend310p" if half else "ascend910b"
    refuse = _refusals(name, family)
    _check(input, refuse)
    if name == CHUNKS:
        _check_chunk(chunk_size, soc or family, refuse)
    options = runtime.options()
    chosen = backend or options.backend
    if chosen is None and input.query.device.type == "cpu":
        chosen = runtime.cpu_backend()
    exact = chosen == "reference"
    column = op.widest_column(family, held, str(input.query.dtype).removeprefix("torch."))
    operand = input.query.dtype if exact else getattr(torch, op.input("query").dtypes[family][column])
    stored = torch.float32 if exact else getattr(torch, op.input(held).dtypes[family][column])
    if operand != input.query.dtype or stored != torch.float32:
        warnings.warn(
            f"{name}: {family} computes {OPERANDS[input.query.dtype]} operands as {OPERANDS[operand]} and stores the state "
            f"as {OPERANDS[stored]}",
            PrecisionWarning, stacklevel=4,
        )  # fmt: skip
    b, h, t, _ = input.query.shape
    device = input.query.device
    tensors = {n: _rows(getattr(input, n), operand) for n in ("query", "key", "value", "beta")}
    tensors["g"] = _rows(input.log_decay, torch.float32)
    tensors[held] = input.initial_state.transpose(2, 3).to(stored).contiguous().clone()
    tensors["actual_seq_lengths"] = torch.full((b,), t, dtype=torch.int32, device=device)
    if name == TOKENS:
        slots = torch.arange(b, dtype=torch.int32, device=device)
        tensors["ssm_state_indices"] = slots.repeat_interleave(t)
    if b * h * t == 0:
        return GatedDeltaOutput(torch.empty_like(input.value), input.initial_state.clone())
    if exact:
        arrays = {n: torch_ops.to_numpy(x) for n, x in tensors.items()}
        made = case.module(op.name).meaning(**arrays, scale_value=float(input.query_scale))
        out, state = (torch_ops.from_numpy(made[o.name]) for o in op.outputs)
    else:
        out, state = torch_ops.call(
            op, tensors, {"scale_value": float(input.query_scale)}, functional=True, backend=chosen, soc=soc or family,
            checks=checks, validate=None,
        )  # fmt: skip
    output = out.to(input.query.dtype).unflatten(0, (b, t)).transpose(1, 2).contiguous()
    return GatedDeltaOutput(output, state.transpose(2, 3).float().contiguous())
