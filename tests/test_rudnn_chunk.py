"""ruDNN's chunk_gated_delta_rule(input, chunk_size): equal for every chunk size, its limits, its errors."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its entries cannot be tested")

import hybrid_ops  # noqa: E402
from hybrid_ops.gated_delta import chunk_gated_delta_rule  # noqa: E402


def operands(dtype, b=2, h=3, t=70, k=32, v=48):
    made = torch.Generator().manual_seed(t)

    def randn(*shape):
        return torch.randn(*shape, generator=made)

    q, key = (torch.nn.functional.normalize(randn(b, h, t, k), dim=-1).to(dtype) for _ in range(2))
    return hybrid_ops.GatedDeltaInput(
        q, key, randn(b, h, t, v).to(dtype), torch.rand(b, h, t, generator=made).to(dtype),
        -torch.rand(b, h, t, generator=made), randn(b, h, k, v) * 0.3, k**-0.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "backend", "soc_name", "limit"),
    [(torch.float32, "reference", None, 1e-6), (torch.float16, "reference", None, 5e-4),
     (torch.float16, "sim", "ascend310p", 1e-3), (torch.bfloat16, "sim", "ascend910b", 5e-3)],
    ids=["f32-exact", "f16-reference", "f16-310p", "bf16-910b"],
)  # fmt: skip
@pytest.mark.parametrize("length", [1, 70])
def test_agrees_with_the_token_by_token_entry(dtype, backend, soc_name, limit, length):
    x = operands(dtype, t=length)
    initial = x.initial_state.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = chunk_gated_delta_rule(x, 64, backend=backend, soc=soc_name)
        want = hybrid_ops.gated_delta_rule(
            dataclasses.replace(x, query=x.query.float(), key=x.key.float(), value=x.value.float(), beta=x.beta.float()),
            backend="reference",
        )  # fmt: skip
    assert made.output.dtype == dtype and made.final_state.dtype == torch.float32
    for got, wanted in ((made.output, want.output), (made.final_state, want.final_state)):
        assert got.shape == wanted.shape
        assert ((got.double() - wanted.double()).norm() / wanted.double().norm()).item() <= limit
    assert torch.equal(x.initial_state, initial)


@pytest.mark.parametrize("backend", ["reference", "sim"])
def test_equal_for_every_chunk_size(backend):
    x = operands(torch.bfloat16, b=1, h=1, t=20, k=16, v=16)
    first, *others = (chunk_gated_delta_rule(x, size, backend=backend) for size in (64, 1, 7, 16, 220))
    for other in others:
        assert torch.equal(other.output, first.output) and torch.equal(other.final_state, first.final_state)


def test_without_tokens_returns_a_copy_of_the_initial_state():
    x = operands(torch.float16, t=0)
    made = chunk_gated_delta_rule(x, 64, backend="reference")
    assert made.output.shape == (2, 3, 0, 48) and torch.equal(made.final_state, x.initial_state)
    assert made.final_state.data_ptr() != x.initial_state.data_ptr()


@pytest.mark.parametrize(
    ("soc_name", "chunk_size", "text"),
    [("ascend310p", 0, "chunk_size: not a positive number: got 0; allowed 1 or more on ascend310p"),
     ("ascend310p", -64, "chunk_size: not a positive number: got -64; allowed 1 or more on ascend310p"),
     ("ascend310p", True, "chunk_size: not a positive number: got True; allowed 1 or more on ascend310p"),
     ("ascend310p", 64.0, "chunk_size: not a positive number: got 64.0; allowed 1 or more on ascend310p"),
     ("ascend310p", 256, "chunk_size: triangle exceeds local memory: got 256, 4 * (chunk_size^2 + chunk_size) = 263168 "
                         "bytes; allowed up to 262144 bytes on ascend310p"),
     ("ascend910b", 222, "chunk_size: triangle exceeds local memory: got 222, 4 * (chunk_size^2 + chunk_size) = 198024 "
                         "bytes; allowed up to 196608 bytes on ascend910b")],
)  # fmt: skip
def test_chunk_size_refusals(soc_name, chunk_size, text):
    dtype = torch.float16 if soc_name == "ascend310p" else torch.bfloat16
    with pytest.raises(hybrid_ops.GatedDeltaError) as caught:
        chunk_gated_delta_rule(operands(dtype), chunk_size, soc=soc_name, backend="sim")
    assert str(caught.value) == f"chunk_gated_delta_rule: {text}"


def test_the_largest_chunk_is_accepted():
    x = operands(torch.float16, b=1, h=1, t=2, k=16, v=16)
    chunk_gated_delta_rule(x, 255, backend="reference")


@pytest.mark.parametrize(
    ("change", "text"),
    [({"key": lambda x: x.key[:, :1]}, "key: wrong shape, head counts are equal (no grouped heads): got [2, 1, 70, 32]"),
     ({"log_decay": lambda x: x.log_decay.half()}, "log_decay: wrong dtype: got torch.float16; allowed torch.float32"),
     ({"initial_state": lambda x: x.initial_state.transpose(2, 3)}, "initial_state: wrong shape: got [2, 3, 48, 32]"),
     ({"query_scale": lambda x: float("inf")}, "query_scale: not a finite number: got inf; allowed a finite float")],
    ids=["heads", "gate", "state", "scale"],
)  # fmt: skip
def test_operand_refusals(change, text):
    x = operands(torch.float16)
    bad = dataclasses.replace(x, **{n: f(x) for n, f in change.items()})
    with pytest.raises(hybrid_ops.GatedDeltaError) as caught:
        chunk_gated_delta_rule(bad, 64, backend="reference")
    assert str(caught.value).startswith(f"chunk_gated_delta_rule: {text}")
