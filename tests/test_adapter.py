"""The decode adapter: same numbers as transformers' own rule, and a swap that leaves nothing behind."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, models, runtime  # noqa: E402
from hybrid_ops.export import accuracy  # noqa: E402
from hybrid_ops.models import gated_delta, swap  # noqa: E402
from hybrid_ops.models.sample import sample_config, sample_decoder  # noqa: E402

qwen3_5 = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
HF_RULE = qwen3_5.torch_recurrent_gated_delta_rule


@pytest.fixture(autouse=True)
def on_reference():
    """The NumPy meaning: what is tested here is the boundary, not the kernel."""
    with runtime.using(backend="reference"), torch.no_grad():
        yield


@pytest.fixture(scope="module")
def model():
    return sample_decoder(
        sample_config(layers=2, hidden=64, vocab=64, layer_types=["linear_attention", "full_attention"])
    )


def call(
    batch: int,
    length: int,
    heads: tuple[int, int] = (2, 4),
    size: int = 32,
    dtype: str = "float32",
    seed: int = 1,
):
    """Arguments as a model gives them: raw q and k, gates in (0, 1) and below 0."""
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    key_heads, value_heads = heads
    return {
        "query": torch.randn(batch, length, key_heads, size).to(kind),
        "key": torch.randn(batch, length, key_heads, size).to(kind),
        "value": torch.randn(batch, length, value_heads, size).to(kind),
        "g": -torch.rand(batch, length, value_heads),
        "beta": torch.rand(batch, length, value_heads).to(kind),
        "initial_state": torch.randn(batch, value_heads, size, size),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }


def agree(got, want, nrmse: float = 2e-3) -> None:
    found = accuracy.agreement(got.float().numpy(), want.float().numpy())
    assert found.cosine > 0.9999 and found.nrmse < nrmse, found


@pytest.mark.parametrize("batch, length", [(1, 1), (3, 1), (1, 5), (2, 4)])
def test_rule_agrees_with_transformers(batch, length, soc):
    arguments = call(batch, length)
    before = copy.deepcopy(arguments)
    out, state = gated_delta.recurrent_rule(**arguments, soc=soc)
    want, want_state = HF_RULE(**arguments)
    limit = 2e-3 if soc == "ascend310p" else 1e-2  # bfloat16 operands
    agree(out, want, limit)
    agree(state, want_state, limit)
    assert state.dtype == torch.float32 and out.dtype == arguments["query"].dtype
    for name, value in before.items():
        assert not isinstance(value, torch.Tensor) or torch.equal(value, arguments[name]), name


def test_sequences_of_a_batch_do_not_mix():
    arguments = call(3, 2)
    out, state = gated_delta.recurrent_rule(**arguments)
    for b in range(3):
        one = {k: v[b : b + 1] if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        alone, alone_state = gated_delta.recurrent_rule(**one)
        assert torch.equal(out[b : b + 1], alone) and torch.equal(state[b : b + 1], alone_state)


def test_packed_prompts_are_those_alone(soc):
    """The chunk rule with cu_seqlens, an empty sequence among them, against transformers' rule one by one."""
    lengths = [5, 0, 70, 1]
    arguments = call(1, sum(lengths)) | {"initial_state": torch.randn(len(lengths), 4, 32, 32)}
    offsets = torch.tensor([0, 5, 5, 75, 76])
    out, state = gated_delta.chunk_operator_rule(**arguments, soc=soc, cu_seqlens=offsets)
    assert state.shape == (4, 4, 32, 32)
    limit, at = 2e-3 if soc == "ascend310p" else 1e-2, 0
    for b, length in enumerate(lengths):
        if not length:
            agree(state[b], arguments["initial_state"][b], limit)
            continue
        one = {
            k: v[:, at : at + length] if k in ("query", "key", "value", "g", "beta") else v
            for k, v in arguments.items()
        }
        want, want_state = qwen3_5.torch_chunk_gated_delta_rule(
            **(one | {"initial_state": arguments["initial_state"][b : b + 1]})
        )
        agree(out[:, at : at + length], want, limit)
        agree(state[b], want_state[0], limit)
        at += length
    fresh, _ = gated_delta.chunk_operator_rule(
        **(arguments | {"initial_state": None}), soc=soc, cu_seqlens=offsets.tolist()
    )
    zeros, _ = gated_delta.chunk_operator_rule(
        **(arguments | {"initial_state": torch.zeros(4, 4, 32, 32)}), soc=soc, cu_seqlens=offsets
    )
    assert torch.equal(fresh, zeros)
    with pytest.raises(
        HybridOpsError,
        match="chunk_gated_delta_rule: cu_seqlens: packed sequences are one row: got 2 rows; allowed 1 on",
    ):
        gated_delta.chunk_operator_rule(**call(2, 3), soc=soc, cu_seqlens=torch.tensor([0, 3]))


def test_no_state_means_zeros_and_none_back():
    arguments = call(1, 1) | {"initial_state": None, "output_final_state": False}
    out, state = gated_delta.recurrent_rule(**arguments)
    zeros, _ = gated_delta.recurrent_rule(**(arguments | {"initial_state": torch.zeros(1, 4, 32, 32)}))
    assert state is None and torch.equal(out, zeros)


def test_accepted_tokens_change_nothing_with_one_slot():
    arguments = call(1, 3)
    with_count, without = (gated_delta.recurrent_rule(**arguments, accepted=flag) for flag in (True, False))
    assert torch.equal(with_count[0], without[0]) and torch.equal(with_count[1], without[1])


def test_l2norm_of_half_precision_does_not_overflow():
    x = torch.full((1, 128), 1000.0, dtype=torch.float16)
    assert torch.allclose(gated_delta.l2norm(x), torch.full((1, 128), 128**-0.5))


def test_boundary_dtypes_come_from_the_contract():
    assert gated_delta.boundary_dtypes("ascend310p") == (torch.float16, torch.float16)
    assert gated_delta.boundary_dtypes("ascend910b") == (torch.bfloat16, torch.float32)
    assert gated_delta.boundary_dtypes("ascend910b", operands=torch.float16) == (torch.float16, torch.float32)
    assert (
        gated_delta.boundary_dtypes("ascend910b", gated_delta.CHUNK_TYPE, torch.float16)[0] == torch.bfloat16
    )


def test_state_indices():
    assert gated_delta.state_indices(1, 3, torch.device("cpu")).tolist() == [0, 0, 0]
    found = gated_delta.state_indices(2, 3, torch.device("cpu"))
    assert found.tolist() == [0, 0, 0, 1, 1, 1] and found.dtype == torch.int32


def test_refusals():
    with pytest.raises(
        HybridOpsError, match="cu_seqlens: the decode adapter takes no packed sequences: got a tensor"
    ):
        gated_delta.recurrent_rule(**call(1, 1), cu_seqlens=torch.tensor([0, 1]))
    with pytest.raises(HybridOpsError, match="soc: not a known SoC: got 'ascend999'"):
        models.install(soc="ascend999")
    with pytest.raises(
        HybridOpsError, match="models: model: no gated delta rule to replace: got Linear; allowed models of"
    ):
        models.install(torch.nn.Linear(1, 1))


def test_patched_decodes_like_the_unmodified_model(model):
    cache = model(torch.arange(8)[None], use_cache=True).cache
    other = copy.deepcopy(cache)
    token = torch.tensor([[5]])
    calls = []

    def counted(*args, **kwargs):
        calls.append(kwargs["initial_state"].shape)
        return gated_delta.recurrent_rule(*args, **kwargs)

    with models.patched(model, rule=counted) as installed:
        assert len(installed) == 1
        got = model(token, cache=other, use_cache=True).logits
    want = model(token, cache=cache, use_cache=True).logits
    assert len(calls) == 1
    agree(got, want, 5e-3)
    agree(_state(other), _state(cache))


def _state(cache):
    states = cache.layers[0].recurrent_states
    return states if isinstance(states, torch.Tensor) else states[0]


def test_generate_gives_the_same_tokens(model):
    ids = torch.arange(6)[None]
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids, **options)
    with models.patched():
        assert torch.equal(model.generate(ids, **options), want)


def test_originals_are_back_after_an_exception_and_after_nesting():
    original = qwen3_5.torch_recurrent_gated_delta_rule
    with pytest.raises(RuntimeError), models.patched():
        with models.patched():
            assert qwen3_5.torch_recurrent_gated_delta_rule is not original
        assert qwen3_5.torch_recurrent_gated_delta_rule is not original
        raise RuntimeError
    assert qwen3_5.torch_recurrent_gated_delta_rule is original


def test_permanent_install_and_restore():
    original = qwen3_5.torch_recurrent_gated_delta_rule
    installed = models.install()
    try:
        assert len(installed) >= 1 and qwen3_5.torch_recurrent_gated_delta_rule is not original
    finally:
        installed.restore()
        installed.restore()
    assert qwen3_5.torch_recurrent_gated_delta_rule is original


def test_instance_attributes_of_older_releases():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent_gated_delta_rule = HF_RULE

    network = torch.nn.Sequential(Layer(), torch.nn.Linear(1, 1), Layer())
    with models.patched(network) as installed:
        assert len(installed) == 2
        assert network[0].recurrent_gated_delta_rule is not HF_RULE
        out, _ = network[2].recurrent_gated_delta_rule(**call(1, 1))
        agree(out, HF_RULE(**call(1, 1))[0])
    assert network[0].recurrent_gated_delta_rule is HF_RULE


def test_families_that_a_release_lacks_are_left_out():
    assert swap.modelling_modules(("qwen3_5", "no_such_family")) == [qwen3_5]


def test_layer_step_agrees_with_the_layer(model):
    cache = model(torch.arange(8)[None], use_cache=True).cache
    layer = model.model.layers[0].linear_attn
    hidden = torch.randn(1, 1, 64)
    conv = cache.layers[0].conv_states
    conv = (conv if isinstance(conv, torch.Tensor) else conv[0]).clone()
    out, new_conv, state = models.linear_attention_step(layer, hidden, conv[:, :, -3:], _state(cache).clone())
    want = layer(hidden, cache=cache)
    agree(out, want)
    agree(state, _state(cache))
    agree(
        new_conv,
        (
            cache.layers[0].conv_states
            if isinstance(cache.layers[0].conv_states, torch.Tensor)
            else cache.layers[0].conv_states[0]
        )[:, :, -3:],
    )


def test_decode_runs_the_kernel_in_the_simulator(soc):
    """Real 4B head geometry, one token: the simulator's numbers are the meaning's."""
    arguments = call(1, 1, heads=(16, 32), size=128)
    want, want_state = gated_delta.recurrent_rule(**arguments, soc=soc)
    with runtime.using(backend="sim", checks="full"):
        out, state = gated_delta.recurrent_rule(**arguments, soc=soc)
    limit = 1e-3 if soc == "ascend310p" else 4e-3
    agree(out, want, limit)
    agree(state, want_state, limit)


@pytest.mark.parametrize("version", ["5.14.1", "5.25.0", "4.57.6", "main"])
def test_releases_out_of_range_are_refused(version, model, monkeypatch):
    from hybrid_ops.models.gated_delta_net import fused

    monkeypatch.setattr("transformers.__version__", version)
    text = f"models: transformers: release is not supported: got {version}; allowed 5.15 to 5.24"
    with pytest.raises(HybridOpsError, match=text):
        models.install()
    with pytest.raises(HybridOpsError, match=text), fused(model):
        pass


@pytest.mark.parametrize("version", ["5.15.0", "5.24.9"])
def test_releases_in_range(version, monkeypatch):
    monkeypatch.setattr("transformers.__version__", version)
    models.install().restore()


def test_states_before_the_getters():
    """Releases without get_conv_state keep states on the layer, as a tensor or a list of them."""
    from types import SimpleNamespace

    from hybrid_ops.models.cached import linear_states

    conv, state = torch.zeros(1), torch.ones(1)
    for wrap in (lambda x: x, lambda x: [x], lambda x: {0: x}):
        layer = SimpleNamespace(conv_states=wrap(conv), recurrent_states=wrap(state))
        cache = SimpleNamespace(layers=[layer], has_previous_state=lambda index: True)
        assert linear_states(cache, 0) == (conv, state)
        cache.has_previous_state = lambda index: False
        assert linear_states(cache, 0) is None
