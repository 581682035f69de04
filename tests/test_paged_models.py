"""transformers' models on pages: the same tokens as on their own cache, with padding, beams, and what is refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this transformers has no AttentionInterface", allow_module_level=True)

from hybrid_ops import paged, runtime  # noqa: E402
from hybrid_ops.models import PagedCache, use_paged_attention  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402

HEADS = {
    "num_attention_heads": 4,
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
}


def mixtral(**changes):
    config = transformers.MixtralConfig(
        **{**HEADS, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, **changes}
    )
    return transformers.MixtralForCausalLM(config)


def deepseek_v3():
    config = transformers.DeepseekV3Config(
        **HEADS, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2, n_group=2,
        topk_group=1, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=20, n_shared_experts=1,
    )  # fmt: skip
    return transformers.DeepseekV3ForCausalLM(config)


def kimi_linear():
    config = transformers.KimiLinearConfig(
        **HEADS, layer_types=["linear_attention", "full_attention"], pad_token_id=0, num_key_value_heads=4, kv_lora_rank=24,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=20, linear_head_dim=16, linear_num_heads=2, num_experts=4,
        num_experts_per_token=2, moe_intermediate_size=32,
    )  # fmt: skip
    return transformers.KimiLinearForCausalLM(config)


LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
MAKERS = {
    "qwen3_5": lambda: small_model("qwen3_5", **LINEAR),
    "qwen3_next": lambda: small_model("qwen3_next", **LINEAR),
    "mixtral": mixtral,
    "deepseek_v3": deepseek_v3,
}
if hasattr(transformers, "KimiLinearConfig"):
    MAKERS["kimi_linear"] = kimi_linear
_made: dict = {}


def sample(name):
    """The model with random weights, those of its queries and keys larger than by default: attention decides tokens."""
    if name not in _made:
        torch.manual_seed(4)
        model = MAKERS[name]().eval()
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if any(part in key for part in ("q_proj", "k_proj", "q_b_proj", "kv_b_proj", "lm_head")):
                    weight.mul_(3)
        _made[name] = model
    return _made[name]


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"), torch.no_grad():
        yield


def prompt(padded: bool):
    ids = torch.randint(1, 64, (2, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


GREEDY = {"max_new_tokens": 32, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


def generate(model, implementation, cache=None, **more):
    if implementation == "paged":
        use_paged_attention(model)
    else:
        model.set_attn_implementation(implementation)
    options = {**GREEDY, "return_dict_in_generate": True, "output_logits": True, **more}
    return model.generate(**options, **({} if cache is None else {"cache": cache}))


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


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3"])
def test_generate_in_the_simulator(name):
    model = sample(name)
    few = {**prompt(True), "max_new_tokens": 4}
    want = generate(model, "sdpa", **few)
    with runtime.using(backend="sim", soc="ascend910b", checks="full"):
        got = generate(model, "paged", PagedCache(model.config, page_size=5), **few)
    assert torch.equal(got.sequences, want.sequences)


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
