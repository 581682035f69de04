"""Exports the prefill and the decode step of a transformers hybrid model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir
import torch

from hybrid_ops import check
from hybrid_ops.export import legacy_export
from hybrid_ops.export.decode_graph import OUTPUT_NAMES, DecodeStep
from hybrid_ops.export.hybrid_graph import text_config
from hybrid_ops.export.onnx_export import export_module, name_dimensions
from hybrid_ops.export.prefill_graph import Prefill, image_token
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile, profile
from hybrid_ops.export.save import save_model
from hybrid_ops.models.releases import check_release

EXPORTERS = ("dynamo", "legacy")
CHUNKS = ("node", "subgraph")
EXPERTS = ("subgraph", "node")
# Longest prompt of a prefill graph without fixed capacity, and its example's length.
MAX_PROMPT = 2048
EXAMPLE_PROMPT = 8


def decode_example(
    config: Any, dtype: torch.dtype, past: int = 3, capacity: int | None = None
) -> dict[str, torch.Tensor]:
    """Zero-filled inputs of the decode graph for a text config, with `past` cached tokens."""
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    full = len(config.layer_types) - linear
    key_heads, key_size = config.linear_num_key_heads, config.linear_key_head_dim
    value_heads, value_size = config.linear_num_value_heads, config.linear_value_head_dim
    channels = 2 * key_heads * key_size + value_heads * value_size
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    columns = past if capacity is None else capacity
    mask = torch.ones(1, past + 1 if capacity is None else capacity, dtype=torch.long)
    if capacity is not None:
        mask[:, past + 1 :] = 0
    return {
        "input_ids": torch.zeros(1, 1, dtype=torch.long),
        "attention_mask": mask,
        "position_ids": torch.full((4, 1, 1), past),
        "past_conv_states": torch.zeros(linear, 1, channels, config.linear_conv_kernel_dim - 1, dtype=dtype),
        "past_recurrent_states": torch.zeros(linear, 1, value_heads, key_size, value_size),
        "past_kv_cache": torch.zeros(2 * full, 1, config.num_key_value_heads, columns, head_dim, dtype=dtype),
    }


def prefill_example(model: Any, dtype: torch.dtype, length: int = EXAMPLE_PROMPT) -> dict[str, torch.Tensor]:
    """Inputs of the prefill graph for a prompt of `length` tokens, with two image patches where it takes images."""
    inputs = {
        "input_ids": torch.zeros(1, length, dtype=torch.long),
        "attention_mask": torch.ones(1, length, dtype=torch.long),
        "position_ids": torch.arange(length).expand(4, 1, length).contiguous(),
    }
    if image_token(model) is not None:
        inputs["image_embeds"] = torch.zeros(2, text_config(model).hidden_size, dtype=dtype)
    return inputs


def _capacity(max_seq_len: int | None) -> int | None:
    if max_seq_len is not None and max_seq_len < 2:
        raise check.refuse(
            "export", "max_seq_len", "too small", got=max_seq_len, allowed="2 or more", soc="every SoC"
        )
    return max_seq_len


def build_decode(
    model: Any,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    exporter: str = "dynamo",
    max_seq_len: int | None = None,
    experts: str = "subgraph",
    **options: Any,
) -> onnx_ir.Model:
    """`export_decode` without writing; `options` go to the exporter."""
    check_release("export")
    check.choice("export", "exporter", exporter, EXPORTERS)
    check.choice("export", "experts", experts, EXPERTS)
    target, capacity = profile(target), _capacity(max_seq_len)
    step = DecodeStep(
        model,
        soc=soc,
        accepted=target.gaps,
        capacity=capacity,
        scatter=target.scatter,
        node_experts=experts == "node",
    )
    example = decode_example(text_config(model), next(model.parameters()).dtype, capacity=capacity)
    if exporter == "legacy":
        axes = {
            "attention_mask": {1: "total"},
            "past_kv_cache": {3: "past"},
            "present_kv_cache": {3: "total"},
        }
        return legacy_export.export_module_legacy(
            step, example, output_names=OUTPUT_NAMES, target=target, dynamic_axes=None if capacity else axes
        )
    shapes: dict[str, Any] | None = None
    if capacity is None:
        past = torch.export.Dim("past", min=1)
        shapes = dict.fromkeys(example)
        shapes |= {"attention_mask": {1: past + 1}, "past_kv_cache": {3: past}}
    return export_module(
        step, example, output_names=OUTPUT_NAMES, target=target, dynamic_shapes=shapes, **options
    )


def build_prefill(
    model: Any,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    exporter: str = "dynamo",
    max_seq_len: int | None = None,
    max_prompt: int | None = None,
    last_logits: bool = False,
    chunk: str = "node",
    experts: str = "subgraph",
    **options: Any,
) -> onnx_ir.Model:
    """`export_prefill` without writing; `options` go to the exporter."""
    check_release("export")
    check.choice("export", "exporter", exporter, EXPORTERS)
    target, capacity = profile(target), _capacity(max_seq_len)
    longest = max_prompt or capacity or MAX_PROMPT
    if longest < 2 or (capacity is not None and longest > capacity):
        raise check.refuse(
            "export", "max_prompt", "out of range", got=longest,
            allowed=f"2..{capacity}" if capacity else "2 or more", soc="every SoC",
        )  # fmt: skip
    check.choice("export", "chunk", chunk, CHUNKS)
    check.choice("export", "experts", experts, EXPERTS)
    graph = Prefill(
        model,
        soc=soc,
        max_length=longest,
        capacity=capacity,
        last_only=last_logits,
        node=chunk == "node",
        node_experts=experts == "node",
    )
    example = prefill_example(model, next(model.parameters()).dtype, min(EXAMPLE_PROMPT, longest))
    axes: dict[str, dict[int, str]] = {
        "input_ids": {1: "sequence"},
        "attention_mask": {1: "sequence"},
        "position_ids": {2: "sequence"},
    }
    if "image_embeds" in example:
        axes["image_embeds"] = {0: "patches"}
    if exporter == "legacy":
        outputs = {} if last_logits else {"logits": {1: "sequence"}}
        outputs |= {} if capacity else {"present_kv_cache": {3: "sequence"}}
        exported = legacy_export.export_module_legacy(
            graph, example, output_names=OUTPUT_NAMES, target=target, dynamic_axes={**axes, **outputs}
        )
    else:
        shapes = {name: dict.fromkeys(by, torch.export.Dim.DYNAMIC) for name, by in axes.items()}
        exported = export_module(
            graph, example, output_names=OUTPUT_NAMES, target=target, dynamic_shapes=shapes, **options
        )
        name_dimensions(exported, axes)
    exported.metadata_props["max_prompt"] = str(longest)
    return exported


def export_decode(
    model: Any,
    path: str | Path,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    private_domain: bool = False,
    exporter: str = "dynamo",
    max_seq_len: int | None = None,
    experts: str = "subgraph",
) -> Path:
    """Export one decode step of `model` (e.g. Qwen3_5ForCausalLM) to `path`; returns the path.

    With `max_seq_len` L the key/value cache has L columns, attention_mask is [1, L] and nothing is dynamic; the new
    column is written in place by CANN's Scatter (profile lite-2.9) or by a comparison of positions. Without it the
    cache grows: attention_mask axis 1 (past + 1) and past_kv_cache axis 3 (past) are dynamic. Batch is 1.
    `target` is a profile name (`lite-2.9`, `lite-2.7`, `lite-2.4`); for releases that cannot leave an optional input out
    in the middle, num_accepted_tokens is not wired (it changes nothing when every row names slot 0).
    `exporter` is torch's "dynamo" (opset 18) or "legacy" (TorchScript, opset 17). `experts` writes routed experts as
    a "subgraph" that gathers their weights, or as four operators per layer ("node").
    """
    exported = build_decode(
        model, target=target, soc=soc, exporter=exporter, max_seq_len=max_seq_len, experts=experts
    )
    return save_model(exported, path, private_domain=private_domain)


def export_prefill(
    model: Any,
    path: str | Path,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    private_domain: bool = False,
    exporter: str = "dynamo",
    max_seq_len: int | None = None,
    max_prompt: int | None = None,
    last_logits: bool = False,
    chunk: str = "node",
    experts: str = "subgraph",
) -> Path:
    """Export the prefill of `model` to `path`; returns the path.

    Dynamic: the sequence axis of the inputs and of logits, and of present_kv_cache without `max_seq_len` (with it the
    cache is zero-padded to that many columns). The graph is right for prompts of up to `max_prompt` tokens (by default
    `max_seq_len`, else 2048), which it cannot check itself; the number stands in the file's metadata (`max_prompt`).
    `last_logits` computes logits of the last unmasked token only. `chunk` writes the chunked gated delta rule as
    its operator ("node") or as a "subgraph" of matrix products in float32; `experts` as in `export_decode`, where the
    subgraph runs every expert on every token.
    """
    exported = build_prefill(
        model,
        target=target,
        soc=soc,
        exporter=exporter,
        max_seq_len=max_seq_len,
        max_prompt=max_prompt,
        last_logits=last_logits,
        chunk=chunk,
        experts=experts,
    )
    return save_model(exported, path, private_domain=private_domain)
