"""transformers' sparse models with routers and experts by the operators: blocks, generated tokens, restoring, refusals."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from moe_models import FAMILIES, small_moe  # noqa: E402

from hybrid_ops import HybridOpsError, runtime  # noqa: E402
from hybrid_ops.models import moe as models_moe  # noqa: E402
from hybrid_ops.models.moe import install_moe, is_experts, is_router, moe_patched, register  # noqa: E402

CHIPS = {"ascend910b": torch.float32, "ascend310p": torch.float16}
LOGITS = {torch.float32: 1e-5, torch.float16: 2e-2}


def greedy(model):
    prompt = torch.arange(3, 12)[None]
    return model.generate(prompt, max_new_tokens=32, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_gives_the_same_tokens(family, soc):
    """32 greedy tokens, all four kernels simulated; weights, shared experts and residuals are the model's own."""
    dtype = CHIPS[soc]
    model = small_moe(family, dtype)
    with torch.no_grad():
        want, logits = greedy(model), model(torch.arange(3, 40)[None]).logits
        with moe_patched(model, soc=soc) as done, runtime.using(backend="sim"):
            assert len(done.routers) == len(done.experts) > 0
            got, ours = greedy(model), model(torch.arange(3, 40)[None]).logits
        again = model(torch.arange(3, 40)[None]).logits
    assert got.shape == (1, 41) and torch.equal(got, want) and len(set(got[0].tolist())) > 15
    assert (ours.float() - logits.float()).abs().max() <= LOGITS[dtype]
    assert torch.equal(again, logits), "the model was not put back"


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_agree_with_transformers(family):
    """A whole sparse block, shared expert included; weights and experts of every token."""
    model = small_moe(family)
    block = next(m for m in model.modules() if any(is_experts(c) for c in m.children()))
    torch.manual_seed(4)
    hidden = torch.randn(2, 9, 64)
    with torch.no_grad():
        want = block(hidden)
        _, weights, ids = block.gate(hidden.reshape(-1, 64))
        done = install_moe(block, soc="ascend910b")
        with runtime.using(backend="reference"):
            got = block(hidden)
            _, our_weights, our_ids = block.gate(hidden.reshape(-1, 64))
        done.restore()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    order, ours = ids.argsort(dim=1), our_ids.argsort(dim=1)
    assert torch.equal(ids.gather(1, order), our_ids.gather(1, ours))  # DeepSeek-V3 names them in no order
    torch.testing.assert_close(our_weights.gather(1, ours), weights.gather(1, order), rtol=2e-6, atol=1e-7)
    assert our_weights.dtype == weights.dtype and our_ids.dtype == ids.dtype


def test_experts_by_name():
    """transformers' own switch, experts alone."""
    model = small_moe("qwen3_moe")
    tokens = torch.arange(3, 12)[None]
    with torch.no_grad(), runtime.using(backend="reference"):
        want = model(tokens).logits
        before = model.config._experts_implementation
        model.set_experts_implementation(register(soc="ascend910b"))
        got = model(tokens).logits
        model.set_experts_implementation(before)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_padding_of_expert_parallel_adds_nothing():
    model = small_moe("qwen3_moe")
    experts = next(m for m in model.modules() if is_experts(m))
    hidden, index = torch.randn(3, 64), torch.tensor([[0, 8, 3], [8, 8, 8], [5, 1, 8]])
    weights = torch.rand(3, 3)
    with torch.no_grad(), runtime.using(backend="reference"):
        got = models_moe.experts_forward(experts, hidden, index, weights, soc="ascend910b")
        want = type(experts).forward.__wrapped__(experts, hidden, index, weights)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not got[1].any()


def test_weights_are_packed_once_and_again_when_they_change():
    model = small_moe("mixtral")
    experts = next(m for m in model.modules() if is_experts(m))
    first = models_moe.packed(experts, torch.float16)
    assert models_moe.packed(experts, torch.float16) is first
    with torch.no_grad():
        experts.down_proj.mul_(2)
    assert models_moe.packed(experts, torch.float16) is not first


def test_weights_made_in_inference_mode():
    """They do not count their writes: packed anew every time, never stale."""
    with torch.inference_mode():
        experts = next(m for m in small_moe("mixtral").modules() if is_experts(m))
        first = models_moe.packed(experts, torch.float16)
        experts.down_proj.zero_()
        assert not models_moe.packed(experts, torch.float16)._down.any() and first._down.any()


def test_routers_may_stay():
    model = small_moe("mixtral")
    done = install_moe(model, soc="ascend910b", routers=False)
    assert not done.routers and done.experts
    done.restore()
    assert not any("forward" in vars(m) for m in model.modules())


def test_what_cannot_be_replaced_is_refused():
    with pytest.raises(HybridOpsError) as caught:
        install_moe(torch.nn.Linear(2, 2))
    assert str(caught.value) == (
        "models: model: no stacked experts to replace: got Linear; allowed experts with gate_up_proj [E, 2I, H] and "
        "down_proj [E, H, I] on ascend310p"
    )
    model = small_moe("mixtral")
    experts = next(m for m in model.modules() if is_experts(m))
    experts.act_fn = torch.nn.GELU()
    with pytest.raises(HybridOpsError, match="models: activation: experts of unknown form: got GELU"):
        install_moe(model)
    assert not any("forward" in vars(m) for m in model.modules())
    assert not is_router(experts)


UNKNOWN = {
    "bias": ({"has_bias": True}, "bias: experts of unknown form: got experts with bias"),
    "layout": ({"is_transposed": True}, "layout: experts of unknown form: got transposed weights"),
    "gate": ({"has_gate": False}, "gate: experts of unknown form: got no gate, or interleaved with up"),
    "interleaved": (
        {"is_concatenated": False},
        "gate: experts of unknown form: got no gate, or interleaved with up",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_experts_of_another_form_are_refused(name):
    changes, wanted = UNKNOWN[name]
    model = small_moe("mixtral")
    for attribute, value in changes.items():
        setattr(next(m for m in model.modules() if is_experts(m)), attribute, value)
    with pytest.raises(HybridOpsError) as caught:
        install_moe(model, soc="ascend910b")
    assert str(caught.value) == (
        f"models: {wanted}; allowed gate_up_proj [E, 2I, H], down_proj [E, H, I], SiLU, no bias on ascend910b"
    )
    assert not any("forward" in vars(m) for m in model.modules())


def test_shared_experts_and_their_gates_stay_the_models(soc):
    """Only routers and experts are replaced; the shared expert runs as it is, once per block."""
    model = small_moe("qwen3_next", CHIPS[soc])
    calls = []
    shared = [m for n, m in model.named_modules() if n.endswith("shared_expert")]
    for module in shared:
        module.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad(), moe_patched(model, soc=soc) as done, runtime.using(backend="reference"):
        assert not set(done.experts + done.routers) & {m for s in shared for m in s.modules()}
        model(torch.arange(3, 12)[None])
    assert len(calls) == len(shared) > 0
