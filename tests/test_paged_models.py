"""transformers' models on pages: the same tokens as on their own cache, with padding, beams, and what is refused."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this transformers has no AttentionInterface", allow_module_level=True)

from paged_transformers import MAKERS, generate, mixtral, prompt, sample  # noqa: E402

from hybrid_ops import paged, runtime, sim  # noqa: E402
from hybrid_ops.models import PagedCache, use_paged_attention  # noqa: E402


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"), torch.no_grad():
        yield


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("name", MAKERS)
def test_generate_gives_the_same_tokens(name, padded):
    model = sample(name)
    want = generate(model, "sdpa", **prompt(padded))
    cache = PagedCache(model.config, page_size=5)
    got = generate(model, "paged", cache, **prompt(padded))
    assert got.sequences.shape == (2, 39) and torch.equal(got.sequences, want.sequences)
    assert len(want.sequences[:, 7:].unique()) > 3, "a model that repeats itself shows nothing"
    for mine, theirs in zip(got.logits, want.logits, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=2e-4)
    lengths = [38, 38] if not padded else [35, 38]
    assert cache.tables.lengths == lengths and cache.get_seq_length() == 38
    assert [len(t) for t in cache.tables.tables] == [-(-n // 5) for n in lengths]


@pytest.mark.parametrize("name", ["qwen3_5", "mixtral", "deepseek_v3"])
def test_attention_reaches_the_tokens(name):
    """What the test above relies on: with another history the same model goes on differently."""
    model = sample(name)
    given = prompt(False)
    first = generate(model, "paged", PagedCache(model.config), **given)
    given["input_ids"] = given["input_ids"].clone()
    given["input_ids"][:, 1] = 5
    other = generate(model, "paged", PagedCache(model.config), **given)
    assert not torch.allclose(first.logits[0], other.logits[0], atol=1e-3)


# Prompts whose choices are no near ties in half precision, where logits of 0.5 to 1 stand 0.0005 apart.
DECIDED = {"mixtral": 1, "deepseek_v3": 5, "qwen3_5": 8, "qwen3_next": 6}
COLUMNS = {"310p": ("ascend310p", torch.float16), "910b-f16": ("ascend910b", torch.float16),
           "910b-f32": ("ascend910b", torch.float32)}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", DECIDED)
def test_generate_in_the_simulator(name, column, monkeypatch):
    """32 greedy tokens, every new row and every attention of them by our kernels, all calls watched."""
    soc, dtype = COLUMNS[column]
    model = copy.deepcopy(sample(name)).to(dtype)
    half = dtype is torch.float16
    given = prompt(False, DECIDED[name]) if half else prompt(True)
    want = generate(model, "sdpa", **given)
    if half:
        best = torch.stack(want.logits).float().topk(2).values
        assert (best[..., 0] - best[..., 1]).min() > 0.004, "a near tie shows nothing"
    counts: Counter[str] = Counter()
    launch = sim.launch

    def counted(op, *args, **options):
        counts[getattr(op, "name", op)] += 1
        return launch(op, *args, **options)

    monkeypatch.setattr(sim, "launch", counted)
    with runtime.using(backend="sim", soc=soc, checks="full"):
        got = generate(model, "paged", PagedCache(model.config, page_size=5), **given)
    assert got.sequences.shape == (2, 39) and torch.equal(got.sequences, want.sequences)
    attention = "hybrid_paged_mla" if name == "deepseek_v3" else "hybrid_paged_attention"
    layers = 1 if name.startswith("qwen") else 2
    assert counts == {attention: 32 * layers, "hybrid_reshape_and_cache": 32 * layers}


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3", "qwen3_next"])
def test_beams_share_pages(name):
    model = sample(name)
    options = {**prompt(True), "num_beams": 3, "max_new_tokens": 12, "output_logits": False}
    want = generate(model, "sdpa", **options)
    cache = PagedCache(model.config, page_size=4)
    got = generate(model, "paged", cache, **options)
    assert torch.equal(got.sequences, want.sequences)
    used = [page for table in cache.tables.tables for page in table]
    assert len(set(used)) < len(used), "no page is shared"


def test_one_plan_per_step_serves_every_layer(monkeypatch):
    model = sample("mixtral")
    made = []
    upload = paged.DevicePlan.upload.__func__
    monkeypatch.setattr(
        paged.DevicePlan, "upload", classmethod(lambda c, *a: made.append(1) or upload(c, *a))
    )
    generate(model, "paged", PagedCache(model.config), **prompt(False))
    assert len(made) == 32  # the prompt and 31 steps, two layers each


def test_a_prompt_without_a_cache(monkeypatch):
    model = sample("deepseek_v3")
    given = prompt(True)
    model.set_attn_implementation("sdpa")
    want = model(**given, use_cache=False).logits
    use_paged_attention(model)
    got = model(**given, use_cache=False).logits
    kept = given["attention_mask"].bool()
    torch.testing.assert_close(got[kept], want[kept], atol=2e-4, rtol=2e-4)


def test_a_fixed_pool_and_a_second_use():
    model = sample("mixtral")
    want = generate(model, "sdpa", **prompt(False))
    cache = PagedCache(model.config, page_size=16, pages=6)
    for _ in range(2):
        assert torch.equal(generate(model, "paged", cache, **prompt(False)).sequences, want.sequences)
        assert cache.layers[0].keys.shape == (6, 16, 2, 16)
        cache.reset()


def refusal(function, *args, **kwargs) -> str:
    with pytest.raises(paged.PagedError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_refusals():
    model = use_paged_attention(sample("mixtral"))
    assert refusal(generate, model, "paged", PagedCache(model.config, pages=1), **prompt(False)) == (
        "paged.PagedCache: pages: every page is taken: got 1; allowed more pages, or None to grow on every SoC"
    )
    assert refusal(generate, model, "paged", **prompt(False)) == (
        "paged.use_paged_attention: cache: not a paged cache: got 8 keys for 1 queries; "
        "allowed cache=PagedCache(model.config), or no cache on every SoC"
    )
    window = use_paged_attention(mixtral(sliding_window=4).eval())
    assert refusal(PagedCache, window.config) == (
        "paged.PagedCache: layer 0: not for pages: got DynamicSlidingWindowLayer; allowed full or linear attention on every SoC"
    )
    ids = prompt(False)["input_ids"]
    assert "paged.use_paged_attention: mask: not the plain causal mask: got and_masks" in refusal(window, ids)
    drawn = torch.zeros(2, 1, 7, 7)
    assert refusal(model, ids, attention_mask=drawn) == (
        "paged.use_paged_attention: attention_mask: not a padding mask: got torch.float32 of rank 4; "
        "allowed bool [B, columns] on every SoC"
    )
    cache = PagedCache(model.config)
    model(ids, cache=cache)
    assert refusal(model, ids[:1], cache=cache) == (
        "paged.PagedCache: batch: other batch size than before: got 1; allowed 2 on every SoC"
    )
    module = model.model.layers[0].self_attn
    tensors = [torch.zeros(1, h, 1, 16) for h in (4, 2, 2)]
    from hybrid_ops.models.paged_attention import paged_attention_forward

    assert refusal(paged_attention_forward, module, *tensors, None, softcap=30.0) == (
        "paged.use_paged_attention: softcap: not served by paged attention: got 30.0; allowed None on every SoC"
    )
