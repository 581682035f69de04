"""Exports the graphs that generate text, from a config or a checkpoint folder, into the folders the runtime expects."""

from __future__ import annotations

import collections
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch

from hybrid_ops import check
from hybrid_ops.export import lite_rules, lite_run
from hybrid_ops.export.decode import CHUNKS, EXPERTS, EXPORTERS, build_decode, build_prefill
from hybrid_ops.export.model_source import DTYPES, Source, open_source, without_weights
from hybrid_ops.export.paged_decode import PAGE_SIZE, build_paged_decode, check_cache
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile, profile
from hybrid_ops.export.save import save_model
from hybrid_ops.export.weights import CheckpointWeights, RandomWeights, Weights, attach, fold_transposes

COMPONENTS = ("prefill", "decode")
ATTENTION = ("model", "paged", "fixed")
BUILDERS: dict[str, Callable[..., onnx_ir.Model]] = {"prefill": build_prefill, "decode": build_decode}
WEIGHTS = ("copy", "reference", "random")
SHARD_BYTES = 1 << 30
_ONNX_NAMES = {torch.float16: "FLOAT16", torch.float32: "FLOAT", torch.bfloat16: "BFLOAT16"}
Stage = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


@dataclass
class Exported:
    """One written graph: node counts (`Custom` nodes also by type), files with sizes, seconds by stage, findings."""

    component: str
    path: Path
    nodes: collections.Counter[str]
    customs: collections.Counter[str]
    files: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict)
    findings: list[lite_rules.Finding] = field(default_factory=list)


@contextmanager
def _silent(_: str) -> Iterator[Callable[[int, int], None]]:
    yield lambda done, total: None


def _refuse(argument: str, wrong: str, got: object, allowed: object, soc: str, hint: str = "") -> Exception:
    return check.refuse("export", argument, wrong, got=got, allowed=allowed, soc=soc, hint=hint)


def component_path(out: Path, stem: str, component: str, *, flat: bool = False) -> Path:
    """`out/decode/qwen3_5_llm_decode.onnx`; separate folders because names of data files collide."""
    name = f"{stem}_llm_{component}.onnx"
    return out / name if flat else out / component / name


def export_generation(
    model: str | Path,
    out: str | Path,
    *,
    component: str = "all",
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    exporter: str = "dynamo",
    dtype: str = "fp16",
    max_seq_len: int | None = None,
    max_prompt: int | None = None,
    last_logits: bool = False,
    chunk: str = "node",
    experts: str = "subgraph",
    attention: str = "model",
    pages: int | None = None,
    page_size: int | None = None,
    table_width: int | None = None,
    weights: str | None = None,
    seed: int = 0,
    private_domain: bool = False,
    shard_bytes: int = SHARD_BYTES,
    jobs: int = 1,
    stage: Stage = _silent,
) -> list[Exported]:
    """Export `model` (a config.json, or a folder with one and perhaps a safetensors checkpoint) into folder `out`.

    `component`: prefill, decode or all; `dtype` of weights and activations: fp16, fp32, bf16. `weights`: "copy" (the
    default with a checkpoint; files of `shard_bytes` beside each graph), "reference" (data stay in the checkpoint, which
    must lie in `out`; the graphs then stand in `out` itself) or "random" (the default without one, from `seed`).
    `attention` of the decode graph: "model" (matrix products and softmax), "paged" (our operator over `pages` pages of
    `page_size` tokens a layer, named by tables of `table_width`) or "fixed" (our operator, capacity `max_seq_len`).
    Nothing of the weights is held in memory but the tensor being written, except by the "legacy" exporter. `stage(name)`
    is entered for every step and yields `tick(done, total)` in bytes. With `jobs` of 2 and more the prefill is exported
    by a process of its own meanwhile; the caller's module must then bear being imported there. For the rest see `export_decode`, `export_prefill`.
    Errors: HybridOpsError before anything is traced for refused arguments and sources; those of `save_model`.
    """
    soc = check.find_soc(None, soc)
    check.choice("export", "component", component, ("all", *COMPONENTS), soc)
    check.choice("export", "exporter", exporter, EXPORTERS, soc)
    check.choice("export", "chunk", chunk, CHUNKS, soc)
    check.choice("export", "experts", experts, EXPERTS, soc)
    check.choice("export", "attention", attention, ATTENTION, soc)
    check.choice("export", "dtype", dtype, tuple(DTYPES), soc)
    cache = _cache(attention, component, max_seq_len, pages, page_size, table_width, soc)
    target = profile(target)
    if dtype == "bf16" and soc == "ascend310p":
        raise _refuse("dtype", "the SoC has no bfloat16", dtype, "fp16, fp32", soc)
    if shard_bytes < 1:
        raise _refuse("shard_bytes", "too small", shard_bytes, "1 or more", soc)
    source, out = open_source(model), Path(out)
    if experts == "node" and not getattr(source.config, "num_experts", None):
        raise _refuse("experts", "the model has no routed experts", experts, "subgraph", soc)
    kind = weights or ("random" if source.folder is None else "copy")
    check.choice("export", "weights", kind, WEIGHTS, soc)
    supply = _weights(source, kind, seed, exporter, out, soc)
    if component == "all" and jobs > 1:
        both: dict[str, Any] = {
            "target": target, "soc": soc, "exporter": exporter, "dtype": dtype, "max_seq_len": max_seq_len,
            "max_prompt": max_prompt, "last_logits": last_logits, "chunk": chunk, "experts": experts,
            "attention": attention, "pages": pages, "page_size": page_size, "table_width": table_width,
            "weights": kind, "seed": seed, "private_domain": private_domain, "shard_bytes": shard_bytes,
        }  # fmt: skip
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, lite_run.die_with_parent) as pool, stage("prefill"):
            prefill = pool.submit(export_generation, model, out, component="prefill", **both)
            decoded = export_generation(model, out, component="decode", **both, stage=stage)
            return [*prefill.result(), *decoded]
    options: dict[str, Any] = {
        "target": target,
        "soc": soc,
        "exporter": exporter,
        "max_seq_len": max_seq_len,
        "experts": experts,
    }
    done = []
    for name in COMPONENTS if component == "all" else (component,):
        path = component_path(out, source.stem, name, flat=kind == "reference")
        extra: dict[str, Any] = cache
        if name == "prefill":
            extra = {"max_prompt": max_prompt, "last_logits": last_logits, "chunk": chunk}
        build = BUILDERS[name] if name == "prefill" or attention == "model" else build_paged_decode
        seconds, start = {}, time.perf_counter()
        with stage(f"trace {name}"):
            graph = _trace(source, build, DTYPES[dtype], supply, path.parent.resolve(), {**options, **extra})
            if kind != "reference":
                fold_transposes(graph)
        seconds["trace"] = time.perf_counter() - start
        with stage(f"write {name}") as tick:
            save_model(
                graph,
                path,
                private_domain=private_domain,
                shard_bytes=None if kind == "reference" else shard_bytes,
                tick=tick,
            )
        seconds["write"] = time.perf_counter() - start - seconds["trace"]
        del graph
        with stage(f"check {name}"):
            done.append(_report(name, path, target, soc, seconds))
    return done


def _cache(
    attention: str,
    component: str,
    max_seq_len: int | None,
    pages: int | None,
    page_size: int | None,
    table_width: int | None,
    soc: str,
) -> dict[str, Any]:
    """What the decode graph's builder is told of its cache; with pages, max_seq_len is the prefill graph's alone."""
    if attention == "paged":
        capacity = max_seq_len if component == "decode" else None
        sizes = {"pages": pages, "page_size": PAGE_SIZE if page_size is None else page_size}
        check_cache(max_seq_len=capacity, table_width=table_width, soc=soc, **sizes)
        return {"max_seq_len": None, "table_width": table_width, **sizes}
    for name, value in (("pages", pages), ("page_size", page_size), ("table_width", table_width)):
        if value is not None:
            raise _refuse(
                name, f"there are no pages with attention {attention}", value, "attention paged", soc
            )
    if attention == "fixed":
        check_cache(max_seq_len=max_seq_len, pages=None, page_size=1, table_width=None, soc=soc)
    return {}


def _weights(source: Source, kind: str, seed: int, exporter: str, out: Path, soc: str) -> Weights:
    if kind == "random":
        return RandomWeights(seed)
    checkpoint = source.checkpoint()
    if checkpoint is None:
        raise _refuse("weights", "no checkpoint in the source", kind, "random", soc)
    found = CheckpointWeights(checkpoint, reference=kind == "reference")
    if kind == "reference":
        if exporter == "legacy":
            raise _refuse("weights", "the legacy exporter copies weights", kind, "copy", soc, "use dynamo")
        found.check_place(out.resolve())
    return found


def _trace(
    source: Source,
    build: Callable[..., onnx_ir.Model],
    dtype: torch.dtype,
    supply: Weights,
    base: Path,
    options: dict[str, Any],
) -> onnx_ir.Model:
    model, mode = without_weights(source, dtype)
    kind = onnx_ir.DataType[_ONNX_NAMES[dtype]].numpy()
    for parameter, value in model.named_parameters():  # what does not fit is refused before the long work
        supply.tensor(parameter, kind, tuple(value.shape), base)
    if options["exporter"] == "legacy":
        return build(with_weights(source, dtype, supply), **options)
    return build(model, mode=mode, attach=lambda graph: attach(graph, supply, base), **options)


def with_weights(source: Source, dtype: torch.dtype, supply: Weights) -> Any:
    """The model in memory, parameter by parameter from `supply` (tied ones once)."""
    import transformers

    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = getattr(transformers, source.class_name)(source.config).eval()
    finally:
        torch.set_default_dtype(default)
    model.model.rotary_emb = type(model.model.rotary_emb)(source.config)
    model.image_token_id = source.image_token
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            plain = np.dtype(np.float32)
            tensor = supply.tensor(name, plain, tuple(parameter.shape), Path()).numpy()
            parameter.copy_(torch.from_numpy(np.array(tensor)))
    return model


def _report(name: str, path: Path, target: Profile, soc: str, seconds: dict[str, float]) -> Exported:
    proto = onnx.load(path, load_external_data=False)
    nodes = collections.Counter(node.op_type for node in proto.graph.node)
    customs = collections.Counter(node.type for node in lite_rules.Graph(proto).custom_nodes)
    found = lite_rules.check_model(proto, version=target.version, soc=soc, file=path)
    locations = {
        entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    files = {file: (path.parent / file).stat().st_size for file in [path.name, *sorted(locations)]}
    return Exported(name, path, nodes, customs, files, seconds, found)
