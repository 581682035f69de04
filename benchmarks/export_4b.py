"""Full-size export of Qwen3.5-4B: time, peak memory, files and nodes, by reference and by copy.

    python benchmarks/export_4b.py [--weights reference|copy] [--component all|prefill|decode] [--attention model|fixed|paged] [--folder DIR] [--keep]

By reference: a checkpoint of the real size that holds nothing (a sparse file; references are not read), graphs beside
it. By copy: a checkpoint filled with random numbers, copied to shards of 1 GB; needs 9 GB of disk, and 9 GB per graph,
which are freed afterwards. Figures are of the exporting process alone; the checkpoint is written before. Aims: 60 s and 2 GB by reference, 120 s and 12 GB by copy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

from hybrid_ops.export.graph_view import Graph

# config.json of the public checkpoint, as far as the language model goes.
TEXT = {
    "model_type": "qwen3_5_text",
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 248320,
    "tie_word_embeddings": True,
}
CONFIG = {"model_type": "qwen3_5", "image_token_id": 248056, "tie_word_embeddings": True, "text_config": TEXT}


def checkpoint(folder: Path, *, filled: bool) -> None:
    """model.safetensors with the names and shapes of the 4B model in float16: a sparse file, or one with random data."""
    import numpy as np
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**TEXT))
    header, at = {}, 0
    for name, tensor in model.named_parameters():
        size = 2 * math.prod(tensor.shape)
        stored = name.replace("model.", "model.language_model.", 1)
        header[stored] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    block = (
        (np.random.default_rng(0).standard_normal(1 << 22, np.float32) * 0.02).astype(np.float16).tobytes()
    )
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
        for begin in range(0, at if filled else 0, len(block)):
            file.write(block[: at - begin])
    print(f"checkpoint: {len(header)} tensors, {at / 1e9:.2f} GB {'written' if filled else 'named'}")


def dump(path: Path) -> None:
    """Nodes of a graph, and its first Custom node: every attribute with its ONNX type, every input as bound."""
    graph = Graph(onnx.load(path, load_external_data=False))
    nodes = graph.custom_nodes
    print(
        f"{path.name}: {len(graph.proto.node)} nodes, {len(nodes)} of them Custom, {path.stat().st_size / 1e6:.1f} MB"
    )
    for node in nodes[:1]:
        print(f"  {node.label}")
        for name, value in node.values.items():
            print(f"    {name:22}{node.kinds[name]:8}{value}")
        for name, tensor in node.bound().items():
            value = graph.value(tensor)
            print(f"    input {name:22}{value.dtype} {value.shape}")
        print(
            f"    {len({repr(sorted(n.values.items())) for n in nodes})} set of attributes over all {len(nodes)} nodes"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", choices=("reference", "copy"), default="reference")
    parser.add_argument("--component", choices=("all", "prefill", "decode"), default="decode")
    parser.add_argument("--max-seq-len", type=int, default=None)
    parser.add_argument("--attention", choices=("model", "fixed", "paged"), default="model")
    parser.add_argument("--pages", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="export-4b-", dir=given.folder))
    try:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        checkpoint(folder, filled=given.weights == "copy")
        out = folder if given.weights == "reference" else folder / "out"
        command = [sys.executable, "-m", "hybrid_ops", "export", str(folder), "--out", str(out)]
        command += ["--weights", given.weights, "--component", given.component]
        command += ["--max-seq-len", str(given.max_seq_len)] if given.max_seq_len else []
        command += ["--attention", given.attention]
        command += ["--pages", str(given.pages)] if given.pages else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start, load = time.perf_counter(), os.getloadavg()[0]
        code = subprocess.run(command, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}).returncode
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"{given.weights}, {given.component}: {seconds:.1f} s ({busy:.1f} s of processor), "
            f"peak of a process {after.ru_maxrss / 1e6:.2f} GB, exit code {code}; load of the machine before: {load:.1f}"
        )
        for path in sorted(out.rglob("*.onnx")):
            dump(path)
        return code
    finally:
        if given.keep:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(main())
