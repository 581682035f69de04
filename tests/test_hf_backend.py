"""Backend of transformers.exporters: registered, exported, saved, loaded and run through that package's own calls."""

from __future__ import annotations

import collections
import sys

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from hybrid_ops import HybridOpsError, runtime  # noqa: E402

try:
    from hybrid_ops.export import hf_backend
except HybridOpsError as error:
    pytest.skip(f"{error}", allow_module_level=True)

from transformers.exporters.base import ExportedModel  # noqa: E402
from transformers.models.qwen3_5 import modeling_qwen3_5  # noqa: E402

from hybrid_ops.export import check_file, check_model  # noqa: E402
from hybrid_ops.export.accuracy import agreement, bound_of  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402

IDS = torch.arange(3, 12)[None]


@pytest.fixture(scope="module")
def model():
    return small_model("qwen3_5")


@pytest.fixture(scope="module")
def exported(model):
    hf_backend.register()
    hf_backend.register()
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    with runtime.using(backend="reference"):
        return hf_backend.LiteExporter().export_for_generation(model, inputs, hf_backend.LiteConfig())


def test_graphs_are_clean(exported):
    import onnx_ir

    types = {"prefill": "ChunkGatedDeltaRule", "decode": "RecurrentGatedDeltaRule"}
    assert set(exported.components) == set(types)
    for name, component in exported.components.items():
        proto = onnx_ir.to_proto(component.program)
        assert check_model(proto) == []
        kinds = collections.Counter(node.op_type for node in proto.graph.node)
        assert kinds["Custom"] == 2 and not {"ScatterND", "Loop", "If", "OneHot", "NonZero"} & set(kinds)
        assert types[name].encode() in proto.SerializeToString()


def test_saved_loaded_and_run(exported, model, tmp_path):
    exported.save_pretrained(tmp_path)
    assert check_file(tmp_path / "prefill.onnx") == [] and check_file(tmp_path / "decode.onnx") == []
    back = ExportedModel.from_pretrained(tmp_path, backend="reference")
    result = back.runners["prefill"](input_ids=IDS, position_ids=torch.arange(9)[None])
    with torch.no_grad():
        want = model(IDS).logits.numpy()
    assert agreement(result.logits.numpy(), want).within(bound_of("logits"))
    with pytest.raises(HybridOpsError, match="export: device: graphs run here: got cuda; allowed cpu"):
        ExportedModel.from_pretrained(tmp_path, device="cuda")


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_the_model_is_put_back(family):
    """Swaps last as long as the export, also when that fails."""
    model = small_model(family)
    names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
    module = sys.modules[type(model).__module__]
    before = [vars(module)[name] for name in names]
    with runtime.using(backend="reference"), torch.no_grad():
        plain = model(IDS).logits
        with pytest.raises(RuntimeError, match="stop"), hf_backend.operators(model, "ascend310p"):
            assert [vars(module)[name] for name in names] != before
            swapped = model(IDS).logits
            raise RuntimeError("stop")
        assert [vars(module)[name] for name in names] == before
        assert torch.equal(model(IDS).logits, plain)
    found = agreement(swapped.numpy(), plain.numpy())
    assert found.within(bound_of("logits")) and found.max_abs > 0


def test_rope_by_masks_is_the_original(model):
    rotary = model.model.rotary_emb
    freq = torch.randn(3, 1, 5, rotary.inv_freq.numel(), generator=torch.Generator().manual_seed(0))
    got = hf_backend.recomposed(hf_backend._masks(rotary), freq)
    want = modeling_qwen3_5.Qwen3_5TextRotaryEmbedding.recomposition_frequencies(rotary, freq.clone())
    assert torch.equal(got, want)
