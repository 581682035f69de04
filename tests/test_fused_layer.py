"""Gated delta nets with every step an operator, in the simulator, against the unmodified transformers models."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, runtime  # noqa: E402
from hybrid_ops.export import accuracy  # noqa: E402
from hybrid_ops.models import gated_delta_net, layer_agreement  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402
from hybrid_ops.models.gated_delta_net import FusedGatedDeltaNet, fused  # noqa: E402

HEADS = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
LENGTHS = (1, 2, 3, 33, 64, 200)
STEPS = 16
# Logits against float32: float16 operands as on the device; bfloat16 ones have three bits less.
BOUNDS = {"ascend310p": (0.9999, 5e-3), "ascend910b": (0.9999, 1.2e-2)}


@pytest.fixture(autouse=True)
def in_the_simulator(request):
    with torch.no_grad(), runtime.using(backend="sim"):
        yield


@pytest.fixture(scope="module", params=["qwen3_5", "qwen3_next"])
def model(request):
    return small_model(request.param, **HEADS)


def agree(got, want, soc: str, what: str) -> None:
    cosine, nrmse = BOUNDS[soc]
    found = accuracy.agreement(got.float().numpy(), want.float().numpy())
    assert found.cosine >= cosine and found.nrmse <= nrmse, f"{what}: {found}"


def generate(model, prompt, tokens):
    """Logits of the prompt, then of each token fed one by one."""
    made = model(prompt, use_cache=True)
    outs, cache = [made.logits], made.cache
    for token in tokens:
        outs.append(model(token[None, None].expand(len(prompt), 1), cache=cache, use_cache=True).logits)
    return outs, cache


@pytest.mark.parametrize("length", LENGTHS)
def test_prefill_then_decode_equals_transformers(model, length, soc):
    torch.manual_seed(length)
    prompt, tokens = torch.randint(0, 64, (1, length)), torch.randint(0, 64, (STEPS,))
    want, _ = generate(model, prompt, tokens)
    with fused(model, soc) as nets, runtime.using(soc=soc):
        assert len(nets) == 2
        got, _ = generate(model, prompt, tokens)
    for step, (a, b) in enumerate(zip(got, want, strict=True)):
        agree(a, b, soc, f"step {step}")


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_layer_outputs_equal_transformers(family, soc):
    """Parameters and hidden states hold values of the SoC's dtype; benchmarks/layers.py has every length."""
    case = layer_agreement.LayerCase.of(family, soc)
    for length in (1, 2, 33):
        found = layer_agreement.agreement_of(case, length)
        assert len(found.steps) == STEPS
        for part in (found.prefill, *found.steps, found.whole):
            assert part.cosine >= 0.9999 and part.nrmse <= 5e-3, f"{length} tokens: {found}"


@pytest.mark.parametrize("steps", [torch.float16, torch.bfloat16])
def test_a_token_is_computed_in_the_dtype_of_the_steps(steps):
    """A decode step rounds nothing to bfloat16 unless asked to: eight times the error."""
    case = layer_agreement.LayerCase.of("qwen3_next", "ascend910b", **HEADS)
    hidden, calls = case.hidden(17, 0), [1] * 17
    net = FusedGatedDeltaNet(case.layer, case.soc, steps=steps)
    assert (net.token_dtype, net.chunk_dtype, net.state_dtype) == (steps, torch.bfloat16, torch.float32)
    states, outs = net.initial_states(1), []
    with runtime.using(soc=case.soc):
        for t in range(17):
            out, states = net(hidden[:, t : t + 1], states)
            outs.append(out)
    worst = layer_agreement.compare(outs, layer_agreement.reference(case, hidden, calls)).worst_step.nrmse
    assert (worst <= 1.5e-3) == (steps == torch.float16) and worst <= 1.5e-2


def test_steps_in_bfloat16_keep_its_range():
    case = layer_agreement.LayerCase.of("qwen3_5", "ascend910b", **HEADS)
    hidden = case.hidden(3, 0)
    with torch.no_grad():
        case.layer.in_proj_qkv.weight.mul_(2.0**17)  # projected rows far above 65504
    want = layer_agreement.reference(case, hidden, [3])[0]
    net = FusedGatedDeltaNet(case.layer, "ascend910b", steps=torch.bfloat16)
    with runtime.using(soc="ascend910b"):
        out, _ = net(hidden, net.initial_states(1))
    agree(out, want, "ascend910b", "large rows")
    with pytest.raises(
        HybridOpsError,
        match=r"models: steps: dtype not available: got torch.bfloat16; allowed torch.float16 on ascend310p",
    ):
        FusedGatedDeltaNet(case.layer, "ascend310p", steps=torch.bfloat16)


def test_batch_and_continued_prompt(soc):
    """Two sequences, a prompt in two pieces: states go through transformers' cache and come back."""
    model = small_model("qwen3_5", **HEADS)
    torch.manual_seed(1)
    ids = torch.randint(0, 64, (2, 21))
    want = model(ids).logits
    with fused(model, soc), runtime.using(soc=soc):
        first = model(ids[:, :9], use_cache=True)
        rest = model(ids[:, 9:], cache=first.cache, use_cache=True)
    agree(torch.cat([first.logits, rest.logits], 1), want, soc, "two pieces")


def test_layer_with_its_own_states(soc):
    """As a function of states: any split into calls, states in the operators' layouts, nothing modified."""
    model = small_model("qwen3_5", **HEADS)
    layer = model.model.layers[0].linear_attn
    net = FusedGatedDeltaNet(layer, soc)
    torch.manual_seed(2)
    hidden = torch.randn(2, 12, 64)
    want = layer(hidden)
    states = net.initial_states(2)
    before = [states.conv.clone(), states.recurrent.clone()]
    outs, at = [], 0
    with runtime.using(soc=soc):
        for count in (5, 1, 1, 4, 1):
            out, new = net(hidden[:, at : at + count], states)
            assert torch.equal(states.conv, before[0]) and torch.equal(states.recurrent, before[1])
            states, at = new, at + count
            before = [states.conv.clone(), states.recurrent.clone()]
            outs.append(out)
    assert states.conv.dtype == net.steps and states.recurrent.dtype == net.state_dtype
    agree(torch.cat(outs, 1), want, soc, "pieces")


def test_packed_sequences(soc):
    """Any lengths in one call, then their next tokens as a batch: each sequence as if it were alone."""
    case = layer_agreement.LayerCase.of("qwen3_next", soc, **HEADS)
    lengths = [5, 1, 0, 70, 2]
    hidden, after = case.hidden(sum(lengths), 0), case.hidden(len(lengths), 1)
    net = FusedGatedDeltaNet(case.layer, soc)
    torch.manual_seed(6)
    start = net.initial_states(len(lengths))
    start.conv.copy_(torch.randn(start.conv.shape))
    start.recurrent.copy_(0.1 * torch.randn(start.recurrent.shape))
    out, states = net.packed(hidden, torch.tensor(lengths), start)
    step, _ = net(after.transpose(0, 1), states)
    for b, (piece, rows) in enumerate(zip(out[0].split(lengths), hidden[0].split(lengths), strict=True)):
        alone = gated_delta_net.States(start.conv[b : b + 1], start.recurrent[b : b + 1])
        if len(rows):
            made, alone = net.packed(rows[None], torch.tensor([len(rows)]), alone)
            agree(piece, made[0], soc, f"sequence {b}")
        # The projection's sums depend on the number of rows: one unit in the last place.
        torch.testing.assert_close(states.conv[b], alone.conv[0], rtol=2e-3, atol=1e-4)
        if not len(rows):
            assert torch.equal(states.conv[b], start.conv[b])
            assert torch.equal(states.recurrent[b], start.recurrent[b])
        agree(states.recurrent[b], alone.recurrent[0], soc, f"state {b}")
        agree(step[b], net(after[:, b : b + 1], alone)[0][0], soc, f"step {b}")


def test_packed_sequences_under_transformers_names(soc):
    case = layer_agreement.LayerCase.of("qwen3_5", soc, **HEADS)
    lengths = [3, 40, 1]
    hidden = case.hidden(sum(lengths), 0)
    want = torch.cat(
        [layer_agreement.reference(case, x, [x.shape[1]])[0] for x in hidden.split(lengths, 1)], 1
    )
    model = torch.nn.Sequential(case.layer)
    with fused(model, soc):
        got = case.layer(hidden, cu_seq_lens_q=torch.tensor([0, 3, 43, 44], dtype=torch.int32))
    agree(got, want, soc, "packed")


def test_head_geometry_of_the_4b_model():
    model = small_model("qwen3_5")
    torch.manual_seed(5)
    prompt, tokens = torch.randint(0, 64, (1, 5)), torch.randint(0, 64, (2,))
    want, _ = generate(model, prompt, tokens)
    with fused(model, "ascend310p"):
        got, _ = generate(model, prompt, tokens)
    for step, (a, b) in enumerate(zip(got, want, strict=True)):
        agree(a, b, "ascend310p", f"step {step}")


def test_no_step_is_left_to_torch(monkeypatch, soc):
    """Convolution, gates, rule and norm of both phases are operators."""
    model = small_model("qwen3_5", **HEADS)
    called = []
    real = runtime.run

    def counted(op, *args, **kwargs):
        called.append(op.name)
        return real(op, *args, **kwargs)

    monkeypatch.setattr(runtime, "run", counted)
    with fused(model, soc), runtime.using(soc=soc, backend="reference"):
        generate(model, torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    common = ["hybrid_causal_conv1d", "hybrid_gated_delta_gate"]
    prefill = [*common, "chunk_gated_delta_rule", "hybrid_gated_rms_norm"]
    decode = [*common, "recurrent_gated_delta_rule", "hybrid_gated_rms_norm"]
    assert called == 2 * prefill + 2 * decode


def test_layers_are_restored():
    model = small_model("qwen3_5", **HEADS)
    layers = [m for m in model.modules() if gated_delta_net.is_gated_delta_net(m)]
    with pytest.raises(RuntimeError, match="inside"), fused(model):
        raise RuntimeError("inside")
    assert len(layers) == 2 and not any("forward" in vars(layer) for layer in layers)


def test_same_bits_every_time(soc):
    model = small_model("qwen3_5", **HEADS)
    ids = torch.arange(6)[None]
    with fused(model, soc), runtime.using(soc=soc):
        made = {np.ascontiguousarray(model(ids).logits.numpy()).tobytes() for _ in range(20)}
    assert len(made) == 1


def test_refusals():
    model = small_model("qwen3_5", **HEADS)
    layer = model.model.layers[0].linear_attn
    with pytest.raises(
        HybridOpsError, match="models: layer: not a gated delta net: got Linear; allowed a layer of"
    ):
        FusedGatedDeltaNet(torch.nn.Linear(1, 1))
    with (
        pytest.raises(
            HybridOpsError, match="models: model: no gated delta net to replace: got Linear; allowed"
        ),
        fused(torch.nn.Linear(1, 1)),
    ):
        pass
    with pytest.raises(HybridOpsError, match="soc: not a known SoC: got 'ascend999'"):
        FusedGatedDeltaNet(layer, "ascend999")
    with (
        fused(model),
        pytest.raises(
            HybridOpsError, match="models: cu_seq_lens_q: a cache holds one sequence per row, not packed ones"
        ),
    ):
        layer(torch.zeros(1, 2, 64), cache=object(), cu_seq_lens_q=torch.tensor([0, 2]))
    with (
        fused(model),
        pytest.raises(
            HybridOpsError,
            match=r"models: lengths: not one packed row per batch: got hidden_states \[2, 2, 64\]",
        ),
    ):
        layer(torch.zeros(2, 2, 64), cu_seq_lens_q=torch.tensor([0, 2]))
    layer.activation = "gelu"
    with pytest.raises(
        HybridOpsError, match="models: layer: activation not available: got 'gelu'; allowed 'silu'"
    ):
        FusedGatedDeltaNet(layer)
