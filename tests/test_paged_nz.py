"""Attention over NZ pages: the bits of the ND operator, round trips through the cache write, plan and shim, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from nz_operators import find, hold_bits, hold_refusal, hold_values, key

from hybrid_ops import runtime
from hybrid_ops.check import Spec
from hybrid_ops.ops import _nz_pages as pages
from hybrid_ops.ops import hybrid_paged_attention_nz as nz

ND, NZ = "hybrid_paged_attention", nz.OP


@pytest.mark.parametrize(
    "name", ["page-16-128", "page-64-64", "page-128-64", "page-48", "mha", "chunked-prefill", "splits-lse", "bad-page"]
)  # fmt: skip
def test_bits_are_those_of_nd(name, soc):
    found = find(NZ, name, soc)
    inputs = found.inputs()
    rows = {n: np.ascontiguousarray(pages.to_nd(inputs[n], inputs["query"].shape[-1])) for n in nz.CACHES}
    assert all(pages.to_nz(rows[n]).tobytes() == inputs[n].tobytes() for n in rows), "ND -> NZ -> ND"
    hold_bits(NZ, ND, found, rows)


def test_both_paths_are_covered(soc):
    assert {n: key(find(NZ, n, soc)) for n in ("mha", "page-48", "qwen3-30b")} == {
        "mha": 0,
        "page-48": 1,
        "qwen3-30b": 1,
    }


def specs_of(n=2, hq=4, kb=8, d=64, page=16, **changes):
    return {
        "query": Spec((n, hq, d), "float16"), "key_cache": Spec((5, kb, page, 16), "float16"),
        "value_cache": Spec((5, kb, page, 16), "float16"), "sequence_ids": Spec((n,), "int32"),
        "positions": Spec((n,), "int32"), "context_lens": Spec((2,), "int32"), "block_tables": Spec((2, 2), "int32"),
    } | changes  # fmt: skip


REFUSALS = {
    "dim": (specs_of(d=72, kb=9), "query: heads are no whole NZ columns: got D=72; allowed D % 16 == 0"),
    "page": (specs_of(page=24), "key_cache: NZ pages hold a multiple of 16 tokens: got PS=24; allowed PS % 16 == 0"),
    "heads": (specs_of(kb=6), "key_cache: not a whole number of heads: got KB=6, D=64"),
    "groups": (specs_of(hq=3), "query: HQ must be a multiple of HKV = 16 KB / D: got HQ=3, D=64, KB=8"),
    "column": (specs_of(key_cache=Spec((5, 8, 16, 32), "float16")), "key_cache: axis 16 is wrong"),
    "value": (specs_of(value_cache=Spec((5, 4, 16, 16), "float16")),
              "value_cache: axis KB differs from KB of key_cache: got KB=4"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name, soc):
    hold_refusal(NZ, soc, *REFUSALS[name])


def test_values_are_checked(soc):
    hold_values(find(NZ, "mha", soc))


def test_plan_and_shim_read_what_append_wrote():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from hybrid_ops import paged

    torch.manual_seed(3)
    table = paged.HostPlan(
        page_size=16, pages=5, tables=[[3], [0, 4]], lengths=[3, 21], sequence_ids=[0, 0, 0, 1], positions=[0, 1, 2, 20]
    )  # fmt: skip
    query, rows = torch.randn(4, 8, 32).half(), torch.randn(2, 4, 2, 32).half()
    caches = [torch.randn(5, 16, 2, 32).half() for _ in range(2)]
    with runtime.using(backend="reference"):
        plan = paged.DevicePlan.upload(table, query)
        blocked = paged.append(plan, *rows, *(paged.nd_to_nz(c) for c in caches), cache_mode=1)[:2]
        plain = paged.append(plan, *rows, *caches)[:2]
        assert all(torch.equal(paged.nz_to_nd(b, 2), p) for b, p in zip(blocked, plain, strict=True))
        wanted = paged.attention(plan, query, *plain, 32**-0.5, True)
        assert torch.equal(paged.attention(plan, query, *blocked, 32**-0.5, True, cache_mode=1), wanted)
        room = paged.SplitWorkspace(query, queries=4, heads=8, value_dim=32, splits=2)
        split = paged.attention_with_workspace(plan, query, *blocked, 32**-0.5, True, room, cache_mode=1)
        torch.testing.assert_close(split, wanted, atol=1e-3, rtol=1e-3)
        tables = torch.tensor([[3, -1], [0, 4]], dtype=torch.int32)
        last = paged.paged_attention(
            query[2:], *blocked, tables, torch.tensor([3, 21], dtype=torch.int32), cache_mode=1, validate="values"
        )  # fmt: skip
        assert torch.equal(last, wanted[2:])
        with pytest.raises(
            paged.PagedError, match="attention: cache_mode: not a known layout: got 2; allowed 0 ND, 1 NZ"
        ):
            paged.attention(plan, query, *blocked, 32**-0.5, True, cache_mode=2)
        other = [c[:, :, :8].contiguous() for c in blocked]
        with pytest.raises(
            paged.PagedError, match="key_cache: other page_size than the plan: got 8; allowed 16"
        ):
            paged.attention(plan, query, *other, 32**-0.5, True, cache_mode=1)
