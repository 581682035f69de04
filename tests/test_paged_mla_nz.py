"""Latent attention over NZ pages: the bits of the ND operator, both paths, refusals, plans that read what append wrote."""

from __future__ import annotations

import numpy as np
import pytest
from nz_operators import find, hold_bits, hold_refusal, hold_values, key

from hybrid_ops import runtime
from hybrid_ops.check import Spec
from hybrid_ops.ops import hybrid_paged_mla_nz as nz

ND, NZ = "hybrid_paged_mla", nz.OP


@pytest.mark.parametrize(
    "name", ["dims-512-64", "page-48", "heads-1", "prefill", "splits-lse", "growing", "bad-page"]
)
def test_bits_are_those_of_nd(name, soc):
    found = find(NZ, name, soc)
    inputs = found.inputs()
    hold_bits(NZ, ND, found, {n: np.ascontiguousarray(nz.to_nd(inputs[n])) for n in nz.CACHES})


def test_both_paths_are_covered(soc):
    assert {n: key(find(NZ, n, soc)) for n in ("heads-1", "heads-16")} == {"heads-1": 0, "heads-16": 1}


def specs_of(n=2, h=4, r=64, rp=32, rb=4, rpb=2, page=16, **changes):
    return {
        "query": Spec((n, h, r), "float16"), "query_rope": Spec((n, h, rp), "float16"),
        "kv_cache": Spec((5, rb, page, 16), "float16"), "key_rope_cache": Spec((5, rpb, page, 16), "float16"),
        "sequence_ids": Spec((n,), "int32"), "positions": Spec((n,), "int32"), "context_lens": Spec((2,), "int32"),
        "block_tables": Spec((2, 2), "int32"),
    } | changes  # fmt: skip


REFUSALS = {
    "latent": (specs_of(r=72), "query: latents are no whole NZ columns: got R=72; allowed R % 16 == 0"),
    "other-latent": (specs_of(rb=3), "kv_cache: other latents than the query's: got RB=3, R=64; allowed RB * 16 == R"),
    "rope": (specs_of(rp=24), "query_rope: rotary keys are no whole NZ columns: got RP=24; allowed RP % 16 == 0"),
    "other-rope": (specs_of(rpb=3), "key_rope_cache: other rotary keys than the query's: got RPB=3, RP=32"),
    "page": (specs_of(page=24), "kv_cache: NZ pages hold a multiple of 16 tokens: got PS=24; allowed PS % 16 == 0"),
    "column": (specs_of(kv_cache=Spec((5, 4, 16, 32), "float16")), "kv_cache: axis 16 is wrong"),
    "pages": (specs_of(key_rope_cache=Spec((4, 2, 16, 16), "float16")), "key_rope_cache: axis P differs"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name, soc):
    hold_refusal(NZ, soc, *REFUSALS[name])


def test_values_are_checked(soc):
    hold_values(find(NZ, "heads-16", soc))


def test_plan_reads_what_append_wrote():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from hybrid_ops import paged

    torch.manual_seed(3)
    table = paged.HostPlan(
        page_size=16, pages=5, tables=[[3], [0, 4]], lengths=[3, 21], sequence_ids=[0, 0, 0, 1], positions=[0, 1, 2, 20]
    )  # fmt: skip
    query, rope = torch.randn(4, 8, 64).half(), torch.randn(4, 8, 32).half()
    rows = torch.randn(4, 1, 64).half(), torch.randn(4, 1, 32).half()
    caches = torch.randn(5, 16, 1, 64).half(), torch.randn(5, 16, 1, 32).half()
    with runtime.using(backend="reference"):
        plan = paged.DevicePlan.upload(table, query)
        blocked = paged.append(plan, *rows, *(paged.nd_to_nz(c) for c in caches), cache_mode=1)[:2]
        plain = paged.append(plan, *rows, *caches)[:2]
        assert all(torch.equal(paged.nz_to_nd(b, 1), p) for b, p in zip(blocked, plain, strict=True))
        wanted = paged.mla(plan, query, rope, *plain, 0.1, True)
        assert torch.equal(paged.mla(plan, query, rope, *blocked, 0.1, True, cache_mode=1), wanted)
        room = paged.SplitWorkspace(query, queries=4, heads=8, value_dim=64, splits=2)
        split = paged.mla_with_workspace(plan, query, rope, *blocked, 0.1, True, room, cache_mode=1)
        torch.testing.assert_close(split, wanted, atol=1e-3, rtol=1e-3)
        with pytest.raises(
            paged.PagedError, match="mla: cache_mode: not a known layout: got 2; allowed 0 ND, 1 NZ"
        ):
            paged.mla(plan, query, rope, *blocked, 0.1, True, cache_mode=2)
        other = [c[:, :, :8].contiguous() for c in blocked]
        with pytest.raises(
            paged.PagedError, match="kv_cache: other page_size than the plan: got 8; allowed 16"
        ):
            paged.mla(plan, query, rope, *other, 0.1, True, cache_mode=1)
