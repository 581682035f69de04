"""`hybrid-ops export`: sources, weights by reference and by copy, and what failures leave behind."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from one_weight import one_weight  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from hybrid_ops import HybridOpsError, check, runtime  # noqa: E402
from hybrid_ops.export import (  # noqa: E402
    GraphRunner,
    check_file,
    decode_graph,
    generation,
    paged_decode,
    prefill_graph,
    save,
    weights,
)
from hybrid_ops.export.accuracy import agreement, bound_of  # noqa: E402
from hybrid_ops.export.checkpoint import Checkpoint  # noqa: E402
from hybrid_ops.export.cli_export import app  # noqa: E402
from hybrid_ops.export.graph_view import Graph  # noqa: E402
from hybrid_ops.models.families import small_model  # noqa: E402
from hybrid_ops.paged import HostPlan  # noqa: E402

HEADS = {f"linear_{name}": size for name, size in (("num_key_heads", 2), ("num_value_heads", 4))}
HEADS |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32}


@pytest.fixture(autouse=True)
def on_reference():
    with runtime.using(backend="reference"):
        yield


@pytest.fixture(scope="module")
def model():
    return small_model("qwen3_5", **HEADS, tie_word_embeddings=True)


@pytest.fixture
def folder(model, tmp_path):
    """A checkpoint folder, its embedding large enough to be referenced."""
    path = tmp_path / "checkpoint"
    model.save_pretrained(path)
    return path


def digest(folder) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def one_step(path, model, ids, token: int = 7) -> None:
    """A decode step behind the unmodified model's own prefill."""
    with torch.no_grad():
        truth = model(ids, use_cache=True)
        states = decode_graph.states_from_cache(truth.cache, model.config)
        want = model(torch.tensor([[token]]), cache=truth.cache, use_cache=True).logits.numpy()
    inputs = decode_graph.step_inputs(token, ids.shape[1], states)
    got = GraphRunner(path, backend="reference").run({n: value.numpy() for n, value in inputs.items()})
    assert agreement(got["logits"], want).within(bound_of("logits"))


def whole_prompt(path, model, ids, nrmse: float = 1e-5) -> None:
    inputs = prefill_graph.prompt_inputs(model, ids)
    got = GraphRunner(path, backend="reference").run({n: value.numpy() for n, value in inputs.items()})
    with torch.no_grad():
        assert agreement(got["logits"], model(ids).logits.numpy()).nrmse < nrmse


IDS = torch.arange(3, 14)[None]


def test_by_reference(folder, model, tmp_path, monkeypatch):
    """Large weights stay in the checkpoint, tied ones once; the graphs stand above it and run from there."""
    monkeypatch.setattr(weights, "SMALL", 4096)
    before = digest(folder)
    done = generation.export_generation(folder, tmp_path, weights="reference", dtype="fp32", max_prompt=64)
    assert [item.path.name for item in done] == ["qwen3_5_llm_prefill.onnx", "qwen3_5_llm_decode.onnx"]
    for item in done:
        assert item.path.parent == tmp_path and item.findings == []
        assert set(item.files) == {item.path.name, "checkpoint/model.safetensors"}
        proto = onnx.load(item.path, load_external_data=False)
        offsets = [
            entry.value for t in proto.graph.initializer for entry in t.external_data if entry.key == "offset"
        ]
        assert len(offsets) == len(set(offsets)) > 2
    assert digest(folder) == before
    assert [dict(item.customs) for item in done] == [
        {"ChunkGatedDeltaRule": 2},
        {"RecurrentGatedDeltaRule": 2},
    ]
    whole_prompt(done[0].path, model, IDS, nrmse=5e-3)
    one_step(done[1].path, model, IDS)


def test_by_copy_in_shards(folder, model, tmp_path, monkeypatch):
    """The seed's folders; weights beside the graph in files of the size asked for, as they are multiplied."""
    monkeypatch.setattr(save, "EXTERNAL_BYTES", 4096)
    before = digest(folder)
    (item,) = generation.export_generation(
        folder, tmp_path / "out", component="decode", dtype="fp32", shard_bytes=1 << 17
    )
    assert item.path == tmp_path / "out" / "decode" / "qwen3_5_llm_decode.onnx"
    assert sorted(p.name for p in item.path.parent.iterdir()) == sorted(item.files) and len(item.files) > 3
    assert all(size <= 1 << 17 for name, size in item.files.items() if name != item.path.name)
    assert check_file(item.path) == [] and digest(folder) == before
    one_step(item.path, model, IDS)


def test_both_folders(folder, model, tmp_path):
    """Prefill and decode at the same time, by two processes."""
    done = generation.export_generation(
        folder, tmp_path, dtype="fp32", exporter="legacy", max_prompt=64, chunk="subgraph", jobs=2
    )
    assert [str(item.path.relative_to(tmp_path)) for item in done] == [
        "prefill/qwen3_5_llm_prefill.onnx",
        "decode/qwen3_5_llm_decode.onnx",
    ]
    whole_prompt(done[0].path, model, IDS)
    one_step(done[1].path, model, IDS)


def test_a_refusal_comes_whole_from_another_process():
    refusal = check.refuse("export", "weights", "not there", got=1, allowed="2", soc="every SoC", hint="copy")
    again = pickle.loads(pickle.dumps(refusal))
    assert type(again) is HybridOpsError and str(again) == str(refusal)


def test_weights_are_turned_bit_by_bit():
    bits = np.arange(2 * 3 * 5, dtype=np.uint16).reshape(2, 3, 5) * 2111
    for dtype in (np.float16, ml_dtypes.bfloat16):
        array = bits.view(dtype)
        array.flags.writeable = False
        turned = weights.transposed(array, (2, 0, 1))
        assert turned.dtype == dtype and turned.flags.c_contiguous
        assert np.array_equal(turned.view(np.uint16), np.transpose(bits, (2, 0, 1)))


def test_half_precision_from_a_float32_checkpoint(folder, tmp_path):
    (item,) = generation.export_generation(
        folder, tmp_path / "out", component="decode", max_seq_len=32, exporter="legacy"
    )
    proto = onnx.load(item.path)
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    assert types["past_kv_cache"] == onnx.TensorProto.FLOAT16
    assert types["past_recurrent_states"] == onnx.TensorProto.FLOAT
    assert item.customs == {"RecurrentGatedDeltaRule": 2, "Scatter": 2}
    assert item.seconds.keys() == {"trace", "write"}


def test_experts_that_are_stored_one_by_one(tmp_path):
    model = small_model("qwen3_next", **HEADS)
    model.save_pretrained(tmp_path / "checkpoint")
    assert any(".experts.0." in name for name in Checkpoint(tmp_path / "checkpoint").entries)
    (item,) = generation.export_generation(
        tmp_path / "checkpoint", tmp_path / "out", component="decode", dtype="fp32", exporter="legacy"
    )
    one_step(item.path, model, IDS)
    with pytest.raises(HybridOpsError, match="experts are stored one by one"):
        generation.export_generation(
            tmp_path / "checkpoint", tmp_path, component="decode", weights="reference", dtype="fp32"
        )


def test_config_alone_gives_random_weights(folder, tmp_path):
    config = folder / "config.json"
    command = ["export", str(config), "--out", str(tmp_path / "out"), "--component", "decode"]
    done = CliRunner().invoke(app, [*command[1:], "--exporter", "legacy", "--profile", "lite-2.7"])
    assert done.exit_code == 0, done.output
    path = tmp_path / "out" / "decode" / "qwen3_5_llm_decode.onnx"
    assert "RecurrentGatedDeltaRule" in done.output and check_file(path, version=(2, 7)) == []
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == [path.name]


def test_vision_language_config_takes_images(model, tmp_path):
    """An outer config with an image token: the prefill graph places rows of image_embeds at those tokens."""
    config = {"model_type": "qwen3_5", "image_token_id": 60, "text_config": model.config.to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model.save_pretrained(tmp_path / "text")
    (tmp_path / "text" / "model.safetensors").rename(tmp_path / "model.safetensors")
    (item,) = generation.export_generation(
        tmp_path,
        tmp_path / "out",
        component="prefill",
        dtype="fp32",
        max_prompt=64,
        exporter="legacy",
        chunk="subgraph",
    )
    runner = GraphRunner(item.path, backend="reference")
    ids = torch.tensor([[5, 60, 60, 9, 60, 3]])
    rows = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    inputs = {**prefill_graph.prompt_inputs(model, ids), "image_embeds": rows}
    got = runner.run({name: value.numpy() for name, value in inputs.items()})["logits"]
    with torch.no_grad():
        embeds = model.model.embed_tokens(ids)
        embeds[0, [1, 2, 4]] = rows
        want = model(inputs_embeds=embeds).logits.numpy()
    assert agreement(got, want).nrmse < 1e-5
    text = {**prefill_graph.prompt_inputs(model, torch.arange(7)[None]), "image_embeds": rows[:0]}
    got = runner.run({name: value.numpy() for name, value in text.items()})["logits"]
    with torch.no_grad():
        assert agreement(got, model(torch.arange(7)[None]).logits.numpy()).nrmse < 1e-5


def write_header(file, header: dict, size: int) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))


def test_bad_sources(folder, tmp_path):
    out = tmp_path / "out"
    broken = tmp_path / "broken"
    broken.mkdir()

    def refused(text: str, source=folder, **options) -> None:
        with pytest.raises(HybridOpsError, match=text):
            generation.export_generation(source, out, component="decode", **options)
        assert not out.exists() or not any(out.rglob("*.onnx"))

    refused("export: model: no config", broken)
    (broken / "config.json").write_text("{")
    refused("export: model: config cannot be read", broken)
    (broken / "config.json").write_text('{"model_type": "llama"}')
    refused("export: model: model type is not exported: got 'llama'", broken)
    refused("export: weights: not a known choice", weights="link")
    refused(
        "export: weights: external data may not lead out of the model's folder",
        weights="reference",
        dtype="fp32",
    )
    refused("export: dtype: the SoC has no bfloat16", dtype="bf16")
    refused("export: dtype: not a known choice", dtype="int8")
    refused("export: weights: no checkpoint in the source", folder / "config.json", weights="copy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 96}))
    refused(r"mlp.gate_proj.weight has another shape: got \[128, 64\]; allowed \[96, 64\]")
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for content, text in (
        (whole[:-1], "file is truncated"),
        (whole[:4], "no safetensors file"),
        (b"\xff" * 64, "no safetensors file"),
        ((9).to_bytes(8, "little") + b"not json!" + bytes(9), "header cannot be read"),
    ):
        file.write_bytes(content)
        refused(f"export: checkpoint: {text}")
    write_header(file, {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 8)
    refused("export: weights: not in the checkpoint: got ")
    file.unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    refused("export: checkpoint: file is missing: got .*gone.safetensors")


def command(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(word) for word in words])
    return found.exit_code, str(found.exception or found.output)


def small_config(tmp_path, family: str):
    config = small_model(family, **HEADS).config
    config.save_pretrained(tmp_path)
    return tmp_path / "config.json"


def test_all_layers_as_operators(tmp_path):
    """Prefill with experts as nodes, decode with experts and pages; the states of one go into the other."""
    config, out = small_config(tmp_path, "qwen3_next"), tmp_path / "out"
    words = ("--attention", "paged", "--pages", 4, "--page-size", 8, "--table-width", 3, "--experts", "node")
    common = ("--exporter", "legacy", "--dtype", "fp32", "--max-prompt", 24, "--jobs", 1)
    assert command(config, "--out", out, *words, *common)[0] == 0
    prefill, decode = (out / name / f"qwen3_next_llm_{name}.onnx" for name in generation.COMPONENTS)
    kinds = [{node.type for node in Graph(onnx.load(path)).custom_nodes} for path in (prefill, decode)]
    assert kinds[1] - kinds[0] == {"RecurrentGatedDeltaRule", "HybridReshapeAndCache", "HybridPagedAttention"}
    assert {"ChunkGatedDeltaRule", "HybridMoeSwiGluExperts"} <= kinds[0] and len(kinds[1]) == 7
    inputs = {v.name: v for v in onnx.load(decode).graph.input}
    shape = [d.dim_value for d in inputs["past_key_cache"].type.tensor_type.shape.dim]
    assert shape == [4, 8, 2, 32] and "attention_mask" not in inputs

    ids = torch.arange(3, 20)
    plan = HostPlan(8, 4, [[2, 0, 3]], [24], [], [])
    first, second = (GraphRunner(path, backend="reference") for path in (prefill, decode))
    text = {"input_ids": ids[None], "attention_mask": torch.ones(1, 17, dtype=torch.long)}
    text["position_ids"] = torch.arange(17).expand(4, 1, 17)
    got = {n: torch.from_numpy(v) for n, v in first.run({n: v.numpy() for n, v in text.items()}).items()}
    states = paged_decode.pools_from_columns(got["present_kv_cache"], plan)
    states |= {f"past_{n}": got[f"present_{n}"] for n in ("conv_states", "recurrent_states")}
    given = paged_decode.paged_step_inputs(7, 17, states, plan)
    step = second.run({name: value.numpy() for name, value in given.items()})
    text = {"input_ids": torch.cat([ids, torch.tensor([7])])[None]}
    text["attention_mask"] = torch.ones(1, 18, dtype=torch.long)
    text["position_ids"] = torch.arange(18).expand(4, 1, 18)
    whole = first.run({name: value.numpy() for name, value in text.items()})
    assert agreement(step["logits"][0, 0], whole["logits"][0, -1]).within(bound_of("logits"))


@pytest.mark.parametrize(
    "words, text",
    [
        (("--experts", "loop"), "experts: not a known choice: got 'loop'; allowed subgraph, node"),
        (("--attention", "flash"), "attention: not a known choice: got 'flash'; allowed model, paged, fixed"),
        (("--experts", "node"), "experts: the model has no routed experts: got node; allowed subgraph"),
        (
            ("--attention", "paged"),
            "pages: one kind of cache is needed: got max_seq_len None and pages None; allowed either max_seq_len or pages",
        ),
        (("--attention", "paged", "--pages", 0), "pages: too small: got 0; allowed 1 or more"),
        (
            ("--attention", "paged", "--pages", 4, "--max-seq-len", 64),
            "pages: one kind of cache is needed: got max_seq_len 64 and pages 4; allowed either max_seq_len or pages",
        ),
        (
            ("--attention", "fixed"),
            "pages: one kind of cache is needed: got max_seq_len None and pages None; allowed either max_seq_len or pages",
        ),
        (
            ("--attention", "fixed", "--max-seq-len", 64, "--page-size", 8),
            "page_size: there are no pages with attention fixed: got 8; allowed attention paged",
        ),
        (("--pages", 4), "pages: there are no pages with attention model: got 4; allowed attention paged"),
    ],
)
def test_refused_forms(words, text, tmp_path):
    code, said = command(
        small_config(tmp_path, "qwen3_5"), "--out", tmp_path / "out", "--component", "decode", *words
    )
    assert code and said.startswith(f"export: {text} on ") and not (tmp_path / "out").exists()


def test_links_are_not_referenced(folder, tmp_path):
    os.link(folder / "model.safetensors", tmp_path / "second")
    with pytest.raises(HybridOpsError, match="export: weights: loaders refuse links"):
        generation.export_generation(folder, tmp_path, component="decode", weights="reference", dtype="fp32")


def test_a_disk_without_room(tmp_path, monkeypatch):
    usage = save.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(save.shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(HybridOpsError, match=r"export: out: not enough room on the disk: got 0.0 GB free"):
        save.save_model(one_weight(4), tmp_path / "m.onnx", shard_bytes=1 << 20)
    assert list(tmp_path.iterdir()) == []


CHILD = """
    import os, resource, signal, sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from one_weight import one_weight
    from hybrid_ops.check import HybridOpsError
    from hybrid_ops.export.save import save_model
    {setup}
    try:
        save_model(one_weight(8), Path({path!r}), shard_bytes=1 << 30, tick={tick})
    except HybridOpsError as error:
        print(error)
        sys.exit(2)
"""


def child(path, setup: str = "", tick: str = "None") -> subprocess.CompletedProcess:
    text = textwrap.dedent(CHILD).format(
        tests=os.path.dirname(__file__), path=str(path), setup=setup, tick=tick
    )
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


def test_a_disk_that_fills_while_writing(tmp_path):
    """A real limit on file size ends the write half way: what was there stays, nothing is left over."""
    path = tmp_path / "m.onnx"
    save.save_model(one_weight(1), path)
    before = digest(tmp_path)
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22))"
    done = child(path, limit)
    assert done.returncode == 2 and "export: out: no room left while writing" in done.stdout, done.stderr
    assert digest(tmp_path) == before


def test_a_kill_while_writing(tmp_path):
    """Nothing partial under the final name; the next export clears what the killed one left."""
    path = tmp_path / "m.onnx"
    done = child(path, tick="lambda *_: os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    assert not path.exists() and all(p.name.startswith(".m-") for p in tmp_path.iterdir())
    assert any(tmp_path.iterdir())
    save.save_model(one_weight(2), path, shard_bytes=1 << 30)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HybridOpsError, match=r"export: out: cannot be written: got .*File exists"):
        save.save_model(one_weight(1), tmp_path / "file" / "m.onnx")
