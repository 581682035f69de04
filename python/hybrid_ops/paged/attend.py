"""Attention and MLA of a plan's queries over its pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .. import check, contract, torch_ops
from .arguments import layout
from .device_plan import DevicePlan
from .errors import dense, flag, hold_options, refuse, refusing
from .place import hold
from .workspace import SplitWorkspace

ATTENTION = "hybrid_paged_attention"
NZ_ATTENTION = "hybrid_paged_attention_nz"
MLA = "hybrid_paged_mla"
NZ_MLA = "hybrid_paged_mla_nz"


def attention(
    plan: DevicePlan,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    scale_value: float,
    causal: bool,
    *,
    lse: bool = False,
    cache_mode: int = 0,
    **options: Any,
) -> Any:
    """softmax(scale_value * query key^T) value of every query over the pages of its sequence.

    Args:
        plan: the schedule; the same plan serves every layer.
        query: [N, HQ, D], float16, bfloat16 or float32 as the SoC has it; N the plan's queries.
        key_cache: [P, page_size, HKV, D]; query head h reads head h // (HQ / HKV).
        value_cache: [P, page_size, HKV, DV]; DV may differ from D, both 1..1024.
            With cache_mode 1 both caches are NZ [P, HKV * D / 16, page_size, 16], D and page_size multiples of 16.
        scale_value: finite and above 0.
        causal: a query sees tokens 0..position, else the whole length.
        lse: also return the natural log of the sum of exp(score), float32 [N, HQ], -inf where nothing is seen.
        cache_mode: layout of both caches, 0 ND, 1 NZ; the bits of the result are the same.
        options: backend, soc, checks as for every operator.

    Returns:
        [N, HQ, DV] in the dtype of query, zeros where nothing is seen; with `lse` a pair.

    Raises:
        PagedError: refused before anything ran. Slots beyond a length, and pages that no length needs, are never read.
    """
    tensors = {"query": query, "key_cache": key_cache, "value_cache": value_cache}
    op = attention_of("attention", cache_mode)
    return _run("attention", op, plan, tensors, scale_value, causal, None, lse, options)


def attention_with_workspace(
    plan: DevicePlan,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    scale_value: float,
    causal: bool,
    workspace: SplitWorkspace,
    *,
    lse: bool = False,
    cache_mode: int = 0,
    **options: Any,
) -> Any:
    """`attention` with each history cut into `workspace.splits` parts, merged in float32."""
    tensors = {"query": query, "key_cache": key_cache, "value_cache": value_cache}
    where = "attention_with_workspace"
    return _run(
        where,
        attention_of(where, cache_mode),
        plan,
        tensors,
        scale_value,
        causal,
        _workspace(where, workspace),
        lse,
        options,
    )


def mla(
    plan: DevicePlan,
    query: torch.Tensor,
    query_rope: torch.Tensor,
    kv_cache: torch.Tensor,
    key_rope_cache: torch.Tensor,
    scale_value: float,
    causal: bool,
    *,
    lse: bool = False,
    cache_mode: int = 0,
    **options: Any,
) -> Any:
    """Multi-head latent attention: the latents are key and value of every head.

    Args:
        plan: the schedule.
        query: [N, H, R], already multiplied by the absorbed key projection.
        query_rope: [N, H, RP], rotated by the caller; RP 1..256.
        kv_cache: [P, page_size, 1, R], latents; key_rope_cache: [P, page_size, 1, RP], rotated keys.
            With cache_mode 1 NZ [P, R / 16, page_size, 16] and [P, RP / 16, page_size, 16], sizes multiples of 16.
        scale_value: the model's own, (nope + rope) ** -0.5 with its corrections; not R ** -0.5.
        causal, lse, cache_mode, options: as `attention`.

    Returns:
        Compressed context [N, H, R], before the value projection; with `lse` a pair.

    Raises:
        PagedError: refused before anything ran.
    """
    tensors = {
        "query": query,
        "query_rope": query_rope,
        "kv_cache": kv_cache,
        "key_rope_cache": key_rope_cache,
    }
    op = attention_of("mla", cache_mode, (MLA, NZ_MLA))
    return _run("mla", op, plan, tensors, scale_value, causal, None, lse, options)


def mla_with_workspace(
    plan: DevicePlan,
    query: torch.Tensor,
    query_rope: torch.Tensor,
    kv_cache: torch.Tensor,
    key_rope_cache: torch.Tensor,
    scale_value: float,
    causal: bool,
    workspace: SplitWorkspace,
    *,
    lse: bool = False,
    cache_mode: int = 0,
    **options: Any,
) -> Any:
    """`mla` with each history cut into `workspace.splits` parts, merged in float32."""
    tensors = {
        "query": query,
        "query_rope": query_rope,
        "kv_cache": kv_cache,
        "key_rope_cache": key_rope_cache,
    }
    where = "mla_with_workspace"
    op = attention_of(where, cache_mode, (MLA, NZ_MLA))
    return _run(where, op, plan, tensors, scale_value, causal, _workspace(where, workspace), lse, options)


def _workspace(where: str, workspace: Any) -> SplitWorkspace:
    if not isinstance(workspace, SplitWorkspace):
        raise refuse(where, "workspace", "wrong type", type(workspace).__name__, "SplitWorkspace")
    return workspace


def attention_of(where: str, cache_mode: Any, names: tuple[str, str] = (ATTENTION, NZ_ATTENTION)) -> str:
    """The operator, of ND and NZ caches, that reads caches of this layout. Raises PagedError for an unknown one."""
    return names[layout(where, cache_mode)]


def hold_plan(where: str, plan: Any) -> DevicePlan:
    """`plan` if it is a DevicePlan, else the refusal."""
    if not isinstance(plan, DevicePlan):
        raise refuse(where, "plan", "wrong type", type(plan).__name__, "DevicePlan")
    return plan


def hold_tensors(where: str, plan: DevicePlan, tensors: Mapping[str, Any], packed: int) -> None:
    """Refuse what is no contiguous dense tensor on the plan's device and stream, or has other sizes than the plan.

    The first `packed` tensors have one row per query, the others are caches in pages.
    """
    for i, (name, tensor) in enumerate(tensors.items()):
        if not dense(where, name, tensor).is_contiguous():
            raise refuse(
                where, name, "not contiguous", f"strides {list(tensor.stride())}", "contiguous memory"
            )
        if i < packed and tensor.dim() and tensor.shape[0] != plan.host.queries:
            raise refuse(where, name, "other query count than the plan", tensor.shape[0], plan.host.queries)
        if i >= packed and tensor.dim() and tensor.shape[0] != plan.host.pages:
            raise refuse(where, name, "other number of pages than the plan", tensor.shape[0], plan.host.pages)
    hold(where, "plan", plan.place, dict(tensors))


def _hold_page_size(where: str, plan: DevicePlan, name: str, cache: torch.Tensor, axis: int) -> None:
    if cache.dim() == 4 and cache.shape[axis] != plan.host.page_size:
        raise refuse(where, name, "other page_size than the plan", cache.shape[axis], plan.host.page_size)


def _run(
    where: str,
    name: str,
    plan: DevicePlan,
    tensors: dict[str, torch.Tensor],
    scale_value: float,
    causal: bool,
    workspace: SplitWorkspace | None,
    lse: bool,
    options: Mapping[str, Any],
) -> Any:
    plan, chosen = hold_plan(where, plan), hold_options(where, options)
    hold_tensors(where, plan, tensors, packed=len(tensors) - 2)
    for cache in list(tensors)[-2:]:
        _hold_page_size(where, plan, cache, tensors[cache], axis=2 if name in (NZ_ATTENTION, NZ_MLA) else 1)
    number = isinstance(scale_value, int | float) and not isinstance(scale_value, bool)
    if not number or not abs(scale_value) <= check.FLOAT32_MAX or not np.float32(scale_value) > 0:
        raise refuse(where, "scale_value", "not a finite number above 0", scale_value, "> 0, finite")
    flag(where, "causal", causal)
    flag(where, "lse", lse)
    query = tensors["query"]
    value = tensors["value_cache"] if name == ATTENTION else query
    if workspace is not None and query.dim() == 3 and value.dim():
        workspace.hold(where, query.shape[0], query.shape[1], value.shape[-1], tensors)
    attrs = {"scale_value": float(scale_value), "causal": causal, "softmax_lse_flag": lse,
             "num_splits": 1 if workspace is None else workspace.splits}  # fmt: skip
    with refusing():
        out, log_sum = torch_ops.call(
            contract.load()[name],
            {**tensors, **plan.inputs()},
            attrs,
            functional=False,
            validate=None,
            **chosen,
        )
    return (out, log_sum) if lse else out
