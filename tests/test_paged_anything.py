"""Every argument of every paged call replaced by what it is not: the one form of refusal, or a result; never Python's own error."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from paged_model import OWN, host  # noqa: E402

from hybrid_ops import check, paged, runtime  # noqa: E402


def ints(*values, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def pools(count=2, pages=5, dims=(8, 8), heads=2):
    return tuple(torch.zeros(pages, 4, heads, d) for d in dims[:count])


def calls() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Legal calls, with everything named."""
    plan, query, rows = host(OWN), torch.zeros(4, 4, 8), torch.zeros(3, 2, 8)
    device, tables = (
        paged.DevicePlan.upload(plan, query),
        torch.tensor([[2, 3], [0, 1], [4, 1]], dtype=torch.int32),
    )
    latent = dict(zip(("kv_cache", "key_rope_cache"), pools(dims=(8, 3), heads=1), strict=True))
    caches = dict(zip(("key_cache", "value_cache"), pools(), strict=True))
    scaled = {"plan": device, "query": query, "scale_value": 1.0, "causal": True, "lse": False}
    workspace = paged.SplitWorkspace(query, 4, 4, 8, 2)
    shim = {"query": torch.zeros(3, 4, 8), **caches, "block_tables": tables, "context_lens": ints(6, 3, 8)}
    sizes = {"page_size": 4, "pages": 5, "queries": 4, "sequences": 2, "table_width": 2}
    return {
        "attention": (paged.attention, {**scaled, **caches, "cache_mode": 0}),
        "attention_with_workspace": (paged.attention_with_workspace, {**scaled, **caches, "workspace": workspace}),
        "mla": (paged.mla, {**scaled, **latent, "query_rope": torch.zeros(4, 4, 3), "cache_mode": 0}),
        "append": (paged.append, {"plan": device, "key": torch.zeros(4, 2, 8), "value": torch.zeros(4, 2, 8), **caches,
                                  "in_place": True, "cache_mode": 0}),
        "upload": (paged.DevicePlan.upload, {"host": plan, "query": query}),
        "from_packed": (paged.DevicePlan.from_packed, {"words": plan.packed(), "query": query, **sizes}),
        "workspace": (paged.SplitWorkspace, {"query": query, "queries": 4, "heads": 4, "value_dim": 8, "splits": 2}),
        "paged_attention": (paged.paged_attention, {**shim, "scale_value": 1.0, "query_start_loc": ints(0, 1, 2, 3),
                                                    "causal": True, "num_splits": 1, "cache_mode": 0, "validate": None}),
        "paged_attention_read": (paged.paged_attention, {**shim, "query_start_loc": ints(0, 1, 2, 3), "validate": "values"}),
        "reshape_and_cache": (paged.reshape_and_cache, {"key": rows, "value": rows.clone(), **caches,
                                                        "slot_mapping": ints(1, 2, 3), "cache_mode": 0, "validate": None}),
        "slots_of": (paged.slots_of, {"block_tables": tables, "sequence_ids": ints(0, 1), "positions": ints(1, 2),
                                      "page_size": 4, "validate": "values"}),
        "nd_to_nz": (paged.nd_to_nz, {"cache": torch.zeros(2, 4, 2, 8)}),
        "nz_to_nd": (paged.nz_to_nd, {"cache": torch.zeros(2, 1, 4, 16), "heads": 2}),
    }  # fmt: skip


def others() -> dict[str, Any]:
    """What some argument is not: of another type, kind of tensor, dtype, rank, size, device."""
    z = torch.zeros
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = {"quantised": torch.quantize_per_tensor(z(4, 4, 8), 0.1, 0, torch.qint8), "nested":
               torch.nested.nested_tensor([z(2, 8), z(3, 8)]), "sparse": z(4, 4, 8).to_sparse(), "sparse pages": z(5, 4, 2, 8).to_sparse()}  # fmt: skip
    return odd | {
        "None": None, "5": 5, "-1": -1, "2^70": 2**70, "1.5": 1.5, "nan": float("nan"), "text": "x", "list": [1, 2], "no list": [],
        "dict": {}, "array": np.zeros((2, 3)), "scalar": np.float32(1), "object": object(), "True": True, "0-d": torch.tensor(1),
        "empty": z(0), "no rows": z(0, 4, 8), "no pages": z(0, 4, 2, 8), "no dim": z(3, 4, 0), "no ints": ints(),
        "no tables": z(0, 2, dtype=torch.int32), "float64": z(4, 4, 8, dtype=torch.float64), "complex": z(4, 4, 8, dtype=torch.complex64),
        "bool": z(4, 4, 8, dtype=torch.bool), "half": z(4, 4, 8).half(), "float8": z(4, 4, 8).to(torch.float8_e4m3fn),
        "meta": z(4, 4, 8, device="meta"), "meta pages": z(5, 4, 2, 8, device="meta"), "expanded": z(1, 4, 8).expand(4, 4, 8),
        "expanded pages": z(1, 4, 2, 8).expand(5, 4, 2, 8), "strided": z(4, 8, 4).transpose(1, 2), "int8": z(3, dtype=torch.int8),
        "recorded": z(4, 4, 8, requires_grad=True), "recorded rows": z(3, 2, 8, requires_grad=True),
        "recorded pages": z(5, 4, 2, 8, requires_grad=True), "rank 9": z([1] * 9), "imaginary": z(4, 4, 8, dtype=torch.complex64).imag,
    }  # fmt: skip


@pytest.mark.parametrize("name", calls())
def test_any_argument_may_be_anything(name):
    refused = 0
    for argument in calls()[name][1]:
        for what, other in others().items():
            function, given = calls()[name]
            try:
                with runtime.using(backend="reference"):
                    function(**{**given, argument: other})
            except check.HybridOpsError as error:
                assert " on " in str(error) and ": got " in str(error) and "; allowed " in str(error), what
                refused += 1
            except Exception as error:
                raise AssertionError(
                    f"{name}: {argument} = {what}: {type(error).__name__}: {error}"
                ) from error
    assert refused > 0.6 * len(calls()[name][1]) * len(others())


@pytest.mark.parametrize("name", calls())
def test_the_calls_are_legal(name):
    function, given = calls()[name]
    with runtime.using(backend="reference"):
        function(**given)
