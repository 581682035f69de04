"""Paged attention kernels: which units a call runs on, invariants across paths, refusals, plans of every legal shape."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_ops import case, check, dtypes, host, runtime, sim
from hybrid_ops.check import Spec

GQA, MLA = "hybrid_paged_attention", "hybrid_paged_mla"
VECTOR, CUBE = 0, 1  # tiling keys
ATTRS = {"scale_value": 0.1, "causal": True}
FIRST = {"ascend310p": "float16", "ascend910b": "float16"}


def gqa_specs(n=2, hq=4, hkv=2, d=64, dv=64, pages=5, page=16, b=2, w=2, dtype="float16", **changes):
    specs = {
        "query": Spec((n, hq, d), dtype), "key_cache": Spec((pages, page, hkv, d), dtype),
        "value_cache": Spec((pages, page, hkv, dv), dtype), "sequence_ids": Spec((n,), "int32"),
        "positions": Spec((n,), "int32"), "context_lens": Spec((b,), "int32"), "block_tables": Spec((b, w), "int32"),
    }  # fmt: skip
    return specs | changes


def mla_specs(n=2, h=4, r=64, p=32, dtype="float16", **changes):
    specs = {
        "query": Spec((n, h, r), dtype), "query_rope": Spec((n, h, p), dtype), "kv_cache": Spec((5, 16, 1, r), dtype),
        "key_rope_cache": Spec((5, 16, 1, p), dtype), "sequence_ids": Spec((n,), "int32"),
        "positions": Spec((n,), "int32"), "context_lens": Spec((2,), "int32"), "block_tables": Spec((2, 2), "int32"),
    }  # fmt: skip
    return specs | changes


def find(op, name, soc):
    return next(c for c in case.cases(op, soc) if c.id.endswith(f"-{name}"))


REFUSALS = {
    "dim": (GQA, gqa_specs(d=1025), {}, "query: D out of range: got D=1025; allowed 1 <= D <= 1024"),
    "no-dim": (GQA, gqa_specs(d=0), {}, "query: D out of range: got D=0; allowed 1 <= D <= 1024"),
    "value-dim": (GQA, gqa_specs(dv=1025), {}, "value_cache: DV out of range: got DV=1025; allowed 1 <= DV <= 1024"),
    "groups": (GQA, gqa_specs(hq=6, hkv=4), {}, "query: HQ must be a multiple of HKV: got HQ=6, HKV=4; allowed HQ % HKV == 0"),
    "kv-heads": (GQA, gqa_specs(value_cache=Spec((5, 16, 1, 64), "float16")), {},
                 "value_cache: axis HKV differs from HKV of key_cache: got HKV=1 (shape [5, 16, 1, 64]); allowed HKV=2"),
    "pages": (GQA, gqa_specs(value_cache=Spec((6, 16, 2, 64), "float16")), {},
              "value_cache: axis P differs from P of key_cache: got P=6 (shape [6, 16, 2, 64]); allowed P=5"),
    "no-pages": (GQA, gqa_specs(pages=0), {}, "key_cache: no page: got P=0; allowed P >= 1"),
    "no-slots": (GQA, gqa_specs(page=0), {}, "key_cache: pages without slots: got PS=0; allowed PS >= 1"),
    "no-sequence": (GQA, gqa_specs(b=0), {}, "context_lens: no sequence: got B=0; allowed B >= 1"),
    "ids": (GQA, gqa_specs(positions=Spec((3,), "int32")), {},
            "positions: axis N differs from N of query: got N=3 (shape [3]); allowed N=2"),
    "tables": (GQA, gqa_specs(block_tables=Spec((3, 2), "int32")), {},
               "block_tables: axis B differs from B of context_lens: got B=3 (shape [3, 2]); allowed B=2"),
    "scale-zero": (GQA, gqa_specs(), {"scale_value": 0.0}, "scale_value: not above 0: got 0; allowed > 0"),
    "scale-negative": (GQA, gqa_specs(), {"scale_value": -1.0}, "scale_value: not above 0: got -1; allowed > 0"),
    "scale-nan": (GQA, gqa_specs(), {"scale_value": float("nan")}, "scale_value: not finite: got nan; allowed a finite float"),
    "splits": (GQA, gqa_specs(), {"num_splits": 33},
               "num_splits: num_splits out of range: got num_splits=33; allowed 1 <= num_splits <= 32"),
    "workspace": (GQA, gqa_specs(n=5000, hq=32, dv=128), {"num_splits": 2}, "num_splits: partial results exceed 64 MiB"),
    "mixed-dtypes": (GQA, gqa_specs(value_cache=Spec((5, 16, 2, 64), "float32")), {}, "value_cache: dtype not available"),
    "bf16": (GQA, gqa_specs(dtype="bfloat16"), {}, "query: dtype not available: got bfloat16; allowed float16"),
    "latent": (MLA, mla_specs(r=1025), {}, "query: R out of range: got R=1025; allowed 1 <= R <= 1024"),
    "rope": (MLA, mla_specs(p=257), {}, "query_rope: RP out of range: got RP=257; allowed 1 <= RP <= 256"),
    "no-rope": (MLA, mla_specs(p=0), {}, "query_rope: RP out of range: got RP=0; allowed 1 <= RP <= 256"),
    "latent-heads": (MLA, mla_specs(kv_cache=Spec((5, 16, 2, 64), "float16")), {},
                     "kv_cache: axis 1 is wrong: got 1=2 (shape [5, 16, 2, 64]); allowed 1=1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name):
    op, specs, attrs, text = REFUSALS[name]
    with pytest.raises(check.HybridOpsError) as caught:
        bound = check.call(op, "ascend310p", specs, ATTRS | attrs)
        host.tiling(op, "ascend310p", specs, bound.attrs)
    assert str(caught.value).startswith(f"{op}: {text}") and " on ascend310p" in str(caught.value)


BAD = {
    "page beyond the pool": ("block_tables", 99, "block_tables: page outside the pool: got 99 at [0, 0]"),
    "page missing": ("block_tables", -1, "block_tables: page outside the pool: got -1 at [0, 0]"),
    "length negative": ("context_lens", -1, "context_lens: negative length: got -1 at [0]; allowed >= 0"),
    "length beyond pages": ("context_lens", 65, "context_lens: longer than its pages: got 65 at [0]"),
    "sequence": ("sequence_ids", 2, "sequence_ids: no such sequence: got 2 at [0]; allowed 0..1"),
    "position": ("positions", 37, "positions: outside its sequence: got 37 at [0]; allowed 0..36"),
    "query": ("query", np.nan, "query: not finite: got nan at [0, 0, 0]; allowed finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_value_refusal(name, soc):
    argument, value, text = BAD[name]
    found = find(GQA, "mha", soc)
    arrays = found.inputs()
    arrays[argument].reshape(-1)[0] = value
    with pytest.raises(check.HybridOpsError) as caught:
        runtime.run(GQA, arrays, found.attrs, soc=soc, backend="reference", validate="values")
    assert str(caught.value).startswith(f"{GQA}: {text}")


def test_page_twice_is_refused(soc):
    found = find(GQA, "mha", soc)
    arrays = found.inputs()
    arrays["block_tables"][0, 1] = arrays["block_tables"][0, 0]
    with pytest.raises(check.HybridOpsError, match="block_tables: page twice in one sequence"):
        runtime.run(GQA, arrays, found.attrs, soc=soc, backend="reference", validate="values")


def key_of(op, soc, specs, **attrs):
    return host.tiling(op, soc, specs, check.call(op, soc, specs, ATTRS | attrs).attrs).tiling_key


def test_units_follow_from_the_shape(soc):
    assert key_of(GQA, soc, gqa_specs()) == CUBE
    assert key_of(GQA, soc, gqa_specs(hq=2, hkv=2)) == VECTOR, "one row a block"
    assert key_of(GQA, soc, gqa_specs(d=72)) == VECTOR, "no whole fractals"
    assert key_of(GQA, soc, gqa_specs(n=64, hq=2, hkv=2, b=1)) == CUBE, "prefill"
    assert key_of(MLA, soc, mla_specs()) == CUBE
    if soc == "ascend910b":
        assert key_of(GQA, soc, gqa_specs(dtype="float32")) == VECTOR


@pytest.mark.parametrize("d", [1, 7, 64, 129, 576, 1024])
@pytest.mark.parametrize("dv", [1, 96, 512, 1024])
def test_every_legal_shape_has_a_plan(d, dv, soc):
    for dtype in ("float16", "float32") if soc == "ascend910b" else ("float16",):
        for heads in ((1, 1), (8, 1), (128, 1), (96, 32)):
            specs = gqa_specs(n=33, hq=heads[0], hkv=heads[1], d=d, dv=dv, dtype=dtype)
            for attrs in ({}, {"num_splits": 32}, {"softmax_lse_flag": True}):
                if 33 * heads[0] * 32 * (dv + 2) > 16777216 and "num_splits" in attrs:
                    continue
                bound = check.call(GQA, soc, specs, ATTRS | attrs)
                assert host.tiling(GQA, soc, specs, bound.attrs).block_dim >= 1


@pytest.mark.parametrize("name", ["mix", "mix-64"])
def test_order_of_queries_does_not_change_bits(name, soc):
    """A decode step's results do not depend on what else is in the batch, nor on where."""
    found = find(GQA, name, soc)
    inputs = found.inputs()
    order = np.array([3, 6, 0, 5, 1, 4, 2])
    plain = sim.launch(GQA, inputs, found.attrs, soc=soc).outputs["attention_out"]
    moved = {n: inputs[n][order] for n in ("query", "sequence_ids", "positions")}
    shuffled = sim.launch(GQA, inputs | moved, found.attrs, soc=soc).outputs["attention_out"]
    assert shuffled.tobytes() == plain[order].tobytes()


@pytest.mark.parametrize("name", ["mha", "chunked-prefill"])
def test_unseen_slots_do_not_change_bits(name, soc):
    """Cases poison unseen slots with NaN; other garbage gives the same bits."""
    found = find(GQA, name, soc)
    inputs = found.inputs()
    cleaned = {
        n: np.where(np.isnan(inputs[n]), 7, inputs[n]).astype(inputs[n].dtype)
        for n in ("key_cache", "value_cache")
    }
    assert any(np.isnan(inputs[n]).any() for n in cleaned)
    poisoned, clean = (sim.launch(GQA, a, found.attrs, soc=soc).outputs for a in (inputs, inputs | cleaned))
    assert all(poisoned[n].tobytes() == clean[n].tobytes() for n in clean)


def test_latent_attention_is_attention_over_joined_keys(soc):
    found = find(MLA, "heads-7", soc)
    a = found.inputs()
    joined = {
        "query": np.concatenate([a["query"], a["query_rope"]], -1),
        "key_cache": np.concatenate([a["kv_cache"], a["key_rope_cache"]], -1),
        "value_cache": a["kv_cache"],
    } | {n: a[n] for n in ("sequence_ids", "positions", "context_lens", "block_tables")}
    latent = sim.launch(MLA, a, found.attrs, soc=soc).outputs["attention_out"].astype(float)
    plain = sim.launch(GQA, joined, found.attrs, soc=soc).outputs["attention_out"].astype(float)
    np.testing.assert_allclose(latent, plain, atol=2e-3, rtol=2e-3)


def test_splits_agree_with_the_whole(soc):
    found = find(GQA, "splits-7", soc)
    arrays = found.inputs()
    whole = sim.launch(GQA, arrays, dict(found.attrs) | {"num_splits": 1}, soc=soc).outputs["attention_out"]
    parts = sim.launch(GQA, arrays, found.attrs, soc=soc).outputs["attention_out"]
    assert dtypes.name_of(parts.dtype) == FIRST[soc]
    np.testing.assert_allclose(parts.astype(float), whole.astype(float), atol=1e-3, rtol=1e-3)
