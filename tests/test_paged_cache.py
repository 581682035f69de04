"""What transformers does to a cache besides filling it: crop, repeat, select, reorder, releases; pages follow, or it is refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this transformers has no AttentionInterface", allow_module_level=True)

from paged_transformers import generate, prompt, sample  # noqa: E402

from hybrid_ops import paged, runtime  # noqa: E402
from hybrid_ops.models import PagedCache, use_paged_attention  # noqa: E402
from hybrid_ops.models.pages import PageTables  # noqa: E402

ATTENTION = ["mixtral", "deepseek_v3"]


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"), torch.no_grad():
        yield


def refusal(function, *args, **kwargs) -> str:
    with pytest.raises(paged.PagedError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def tokens(batch: int, count: int, seed: int) -> torch.Tensor:
    return torch.randint(1, 64, (batch, count), generator=torch.Generator().manual_seed(seed))


class Pair:
    """The same model on transformers' cache and on ours, step by step."""

    def __init__(self, name: str, padded: bool, page_size: int = 4) -> None:
        self.model = sample(name)
        self.mine = PagedCache(self.model.config, page_size=page_size)
        self.theirs = transformers.DynamicCache(config=self.model.config)
        self.mask = torch.zeros(2, 0, dtype=torch.long)
        given = prompt(padded)
        self.step(given["input_ids"], given["attention_mask"])

    def step(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Both go on with `ids`, and agree where a row is no padding."""
        new = torch.ones_like(ids) if mask is None else mask
        self.mask = torch.cat([self.mask, new], 1)
        logits = []
        places = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        for cache, kind in ((self.theirs, "sdpa"), (self.mine, "paged")):
            use_paged_attention(self.model) if kind == "paged" else self.model.set_attn_implementation(kind)
            logits.append(self.model(ids, attention_mask=self.mask, position_ids=places, cache=cache).logits)
        torch.testing.assert_close(logits[1][new.bool()], logits[0][new.bool()], atol=2e-4, rtol=2e-4)

    def both(self, call: str, *args) -> None:
        for cache in (self.mine, self.theirs):
            getattr(cache, call)(*args)

    def crop(self, columns: int) -> None:
        self.both("crop", -columns)
        self.mask = self.mask[:, : self.mask.shape[1] - columns]
        assert self.mine.get_seq_length() == self.theirs.get_seq_length() == self.mask.shape[1]

    def hold_pages(self) -> None:
        """Every page has holders or is free, and a page that is not full has one holder."""
        tables = self.mine.tables
        held = [page for table in tables.tables for page in table]
        assert sorted(set(held) | set(tables._free)) == list(range(tables.pages)) and not set(held) & set(
            tables._free
        )
        assert tables.lengths == self.mask.sum(1).tolist()
        for table, length in zip(tables.tables, tables.lengths, strict=True):
            assert len(table) == -(-length // tables.page_size)
            assert length % tables.page_size == 0 or held.count(table[-1]) == 1


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("columns", [1, 3, 5, 6])
@pytest.mark.parametrize("name", ATTENTION)
def test_crop(name, columns, padded):
    """Rejected tokens go away; what follows is computed as if they had never been there."""
    pair = Pair(name, padded)
    pair.crop(columns)
    pair.hold_pages()
    pair.step(tokens(2, 4, 1))
    pair.step(tokens(2, 1, 2))
    pair.hold_pages()


def test_crop_of_everything_and_of_nothing():
    pair = Pair("mixtral", True)
    pair.mine.crop(0)
    pair.hold_pages()
    pair.crop(7)
    assert pair.mine.tables.tables == [[], []]
    pair.step(tokens(2, 3, 1))
    pair.hold_pages()


@pytest.mark.parametrize("name", [*ATTENTION, "qwen3_next"])
def test_repeat_and_select(name):
    pair = Pair(name, True)
    if name == "qwen3_next":  # transformers' linear attention layers have neither
        for call, given in (("batch_repeat_interleave", 2), ("batch_select_indices", torch.tensor([0]))):
            assert refusal(getattr(pair.mine, call), given) == (
                f"paged.PagedCache: {call}: not every layer can: got a layer of LinearAttentionLayer; "
                "allowed models with attention layers only on every SoC"
            )
        pair.step(tokens(2, 2, 1))
        return
    before = len(pair.mine.tables._free)
    pair.both("batch_repeat_interleave", 3)
    assert before - len(pair.mine.tables._free) == 2, (
        "one whole page each is shared, the page in use is copied: twice 7 - 4"
    )
    pair.mask = pair.mask.repeat_interleave(3, 0)
    pair.step(tokens(6, 3, 1))
    pair.hold_pages()
    pair.both("batch_select_indices", torch.tensor([5, 0, 3]))
    pair.mask = pair.mask[[5, 0, 3]]
    pair.step(tokens(3, 2, 2))
    pair.hold_pages()
    pair.both("batch_select_indices", torch.tensor([True, False, True]))
    pair.mask = pair.mask[[0, 2]]
    pair.step(tokens(2, 2, 3))
    pair.hold_pages()


def test_crop_into_a_shared_page_copies_it():
    pair = Pair("mixtral", False)
    pair.step(tokens(2, 2, 1))
    pair.both("batch_repeat_interleave", 2)
    pair.mask = pair.mask.repeat_interleave(2, 0)
    shared = {t[0] for t in pair.mine.tables.tables}
    assert len(shared) == 2
    pair.crop(6)
    assert len({t[0] for t in pair.mine.tables.tables}) == 4
    pair.hold_pages()
    pair.step(tokens(4, 3, 2))


@pytest.mark.parametrize("name", ATTENTION)
def test_prompt_lookup_decoding(name):
    """Assisted decoding proposes tokens out of the prompt and crops those that the model would not have chosen."""
    model = sample(name)
    phrase = tokens(1, 4, 5)
    ids = torch.cat([phrase, tokens(1, 2, 6), phrase], 1)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    want = generate(model, "sdpa", **given)
    cache = PagedCache(model.config, page_size=4)
    cropped = []
    crop = cache.crop
    cache.crop = lambda n: (cropped.append(n), crop(n))[1]
    got = generate(model, "paged", cache, **given, prompt_lookup_num_tokens=3)
    assert got.sequences.shape == (1, 42) and torch.equal(got.sequences, want.sequences)
    assert any(n < 0 for n in cropped)
    assert cache.tables.columns == cache.get_seq_length()


CROPS = (
    "paged.PagedCache: tokens_to_remove: not a number of tokens to forget: got {}; allowed -7..0 on every SoC"
)


def test_refusals():
    pair = Pair("mixtral", False)
    cache = pair.mine
    for given in (1, -8, 1.0, None, True):
        assert refusal(cache.crop, given) == CROPS.format(given)
    for given in (0, -1, 1.5, None, True):
        assert refusal(cache.batch_repeat_interleave, given) == (
            f"paged.PagedCache: repeats: not a number of copies: got {given}; allowed 1 or more on every SoC"
        )
    for call, name in (("reorder_cache", "beam_idx"), ("batch_select_indices", "indices")):
        where = f"paged.PagedCache: {name}: not sequences of the batch: got "
        for given in (torch.tensor([0, 2]), torch.tensor([-1])):
            assert (
                refusal(getattr(cache, call), given) == f"{where}{given.tolist()}; allowed 0..1 on every SoC"
            )
        for given in ([0, 1], torch.tensor(0), torch.tensor([0.0])):
            assert refusal(getattr(cache, call), given).startswith(where)
    layer = cache.layers[0]
    for call, given in (("crop", -1), ("reorder_cache", torch.tensor([1, 0])), ("batch_repeat_interleave", 2),
                        ("batch_select_indices", torch.tensor([0]))):  # fmt: skip
        assert refusal(getattr(layer, call), given) == (
            f"paged.PagedCache: {call}: layers share their pages: got a call on one layer; allowed PagedCache.{call} on every SoC"
        )
    pair.hold_pages()
    pair.step(tokens(2, 1, 1))
    hybrid = Pair("qwen3_5", False)
    assert refusal(hybrid.mine.crop, -1) == (
        "paged.PagedCache: crop: not every layer can: got a layer of LinearAttentionLayer; "
        "allowed models with attention layers only on every SoC"
    )
    assert hybrid.mine.is_croppable is False and cache.is_croppable is True
    hybrid.step(tokens(2, 1, 1))


def test_other_releases_are_refused(monkeypatch):
    model = sample("mixtral")
    monkeypatch.setattr("transformers.__version__", "5.23.0")
    for call, where in ((PagedCache, "PagedCache"), (use_paged_attention, "use_paged_attention")):
        found = refusal(call, model.config if call is PagedCache else model)
        assert found.startswith(
            f"paged.{where}: transformers: release is not supported: got 5.23.0; allowed 5.24 to 5.24 on every SoC"
        )


def test_gradients_are_refused_in_the_backward_pass():
    model = use_paged_attention(sample("mixtral"))
    with torch.enable_grad():
        logits = model(tokens(1, 3, 0), cache=PagedCache(model.config)).logits
        with pytest.raises(ValueError, match="hybrid_paged_attention: backward: no gradient exists"):
            logits.sum().backward()


def test_a_refused_step_leaves_the_cache_as_it_was():
    model = use_paged_attention(sample("mixtral"))
    cache = PagedCache(model.config, page_size=4, pages=1)
    model(tokens(1, 1, 0), cache=cache)
    for given in (tokens(1, 4, 1), tokens(2, 1, 2)):
        with pytest.raises(paged.PagedError):
            model(given, cache=cache)
        assert cache.get_seq_length() == cache.tables.columns == 1
        assert [layer.seen for layer in cache.layers] == [1] * len(cache.layers)
    model(tokens(1, 1, 3), cache=cache)
    assert cache.get_seq_length() == cache.tables.columns == 2 and cache.tables.lengths == [2]


def test_a_full_pool_refuses_copies_before_anything_changes():
    tables, at, copied = PageTables(4, 3), torch.zeros(1), []
    tables.step(0, 1, 3, None, at)
    tables.select([0, 0, 0], lambda *moves: copied.append(moves))
    assert len(copied) == 1 and not tables._free
    before = [list(t) for t in tables.tables], list(tables.lengths), list(tables._free), tables.columns
    text = refusal(tables.select, [0, 0, 1, 2], lambda *moves: copied.append(moves))
    assert text.startswith("paged.PagedCache: pages: every page is taken: got 3; allowed more pages")
    assert ([list(t) for t in tables.tables], tables.lengths, tables._free, tables.columns) == before
    assert len(copied) == 1


BAD = {
    "page_size": (0, -4, 2.5, "4", None, True, 10**5000),
    "pages": (0, -3, 2.5, "4", [1], True, 10**5000),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sizes_are_refused(name):
    config = sample("mixtral").config
    for given in BAD[name]:
        text = refusal(PagedCache, config, **{name: given})
        assert text.startswith(f"paged.PagedCache: {name}: ") and "\n" not in text
    text = "paged.PagedCache: config: not a model's config: got dict; allowed a PreTrainedConfig on every SoC"
    assert refusal(PagedCache, {}) == text


def test_a_full_pool_is_refused_before_pages_are_taken():
    tables = PageTables(4, 3)
    at = torch.zeros(1)
    tables.step(0, 2, 4, None, at)
    before = [list(t) for t in tables.tables], list(tables.lengths), list(tables._free), tables.columns
    assert refusal(tables.step, 4, 2, 4, None, at) == (
        "paged.PagedCache: pages: every page is taken: got 3; allowed more pages, or None to grow on every SoC"
    )
    assert ([list(t) for t in tables.tables], tables.lengths, tables._free, tables.columns) == before
    tables.step(4, 2, 0, None, at)
