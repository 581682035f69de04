"""Full-size export of Qwen3.5-4B: time, peak memory, files and nodes, by reference and by copy.

    python benchmarks/export_4b.py [--weights reference|copy] [--component all|prefill|decode] [--folder DIR] [--keep]

By reference: a checkpoint of the real size that holds nothing (a sparse file; references are not read), graphs beside
it. By copy: random weights, written to shards of 1 GB; needs 9 GB of disk per graph, which is freed afterwards.
Figures are of the exporting process alone. Aims: 60 s and 2 GB by reference, 120 s and 12 GB by copy.
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


def sparse_checkpoint(folder: Path) -> None:
    """model.safetensors with the names and shapes of the 4B model in float16 and no data behind them."""
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
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    print(f"checkpoint: {len(header)} tensors, {at / 1e9:.2f} GB named")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", choices=("reference", "copy"), default="reference")
    parser.add_argument("--component", choices=("all", "prefill", "decode"), default="decode")
    parser.add_argument("--max-seq-len", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="export-4b-", dir=given.folder))
    try:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        source, kind = folder, given.weights
        if kind == "reference":
            sparse_checkpoint(folder)
        else:
            source, kind = folder / "config.json", "random"
        command = [sys.executable, "-m", "hybrid_ops", "export", str(source), "--out", str(folder)]
        command += ["--weights", kind, "--component", given.component]
        command += ["--max-seq-len", str(given.max_seq_len)] if given.max_seq_len else []
        start = time.perf_counter()
        code = subprocess.run(command, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}).returncode
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"{given.weights}, {given.component}: {seconds:.1f} s, peak {peak:.2f} GB, exit code {code}")
        for path in sorted(folder.rglob("*.onnx")):
            proto = onnx.load(path, load_external_data=False)
            nodes = proto.graph.node
            first = next((n for n in nodes if n.op_type == "Custom"), None)
            print(f"{path.relative_to(folder)}: {len(nodes)} nodes, {path.stat().st_size / 1e6:.1f} MB")
            if first is not None:
                print(
                    "  "
                    + ", ".join(f"{a.name}={onnx.helper.get_attribute_value(a)}" for a in first.attribute)
                )
        return code
    finally:
        if given.keep:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    raise SystemExit(main())
