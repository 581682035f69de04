"""Exports the decode step of a transformers hybrid model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hybrid_ops import check
from hybrid_ops.export import legacy_export
from hybrid_ops.export.decode_graph import OUTPUT_NAMES, DecodeStep
from hybrid_ops.export.onnx_export import export_module
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile, profile
from hybrid_ops.export.save import save_model


def decode_example(config: Any, dtype: torch.dtype, past: int = 3) -> dict[str, torch.Tensor]:
    """Zero-filled inputs of the decode graph for a text config, with `past` cached tokens."""
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    full = len(config.layer_types) - linear
    key_heads, key_size = config.linear_num_key_heads, config.linear_key_head_dim
    value_heads, value_size = config.linear_num_value_heads, config.linear_value_head_dim
    channels = 2 * key_heads * key_size + value_heads * value_size
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "input_ids": torch.zeros(1, 1, dtype=torch.long),
        "attention_mask": torch.ones(1, past + 1, dtype=torch.long),
        "position_ids": torch.full((4, 1, 1), past),
        "past_conv_states": torch.zeros(linear, 1, channels, config.linear_conv_kernel_dim - 1, dtype=dtype),
        "past_recurrent_states": torch.zeros(linear, 1, value_heads, key_size, value_size),
        "past_kv_cache": torch.zeros(2 * full, 1, config.num_key_value_heads, past, head_dim, dtype=dtype),
    }


def export_decode(
    model: Any,
    path: str | Path,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    private_domain: bool = False,
    exporter: str = "dynamo",
) -> Path:
    """Export one decode step of `model` (e.g. Qwen3_5ForCausalLM) to `path`; returns the path.

    Dynamic: attention_mask axis 1 (past + 1), past_kv_cache axis 3 (past); everything else is fixed, batch is 1.
    `target` is a profile name (`lite-2.9`, `lite-2.7`, `lite-2.4`); for releases that cannot leave an optional input out
    in the middle, num_accepted_tokens is not wired (it changes nothing when every row names slot 0).
    `exporter` is torch's "dynamo" (opset 18) or "legacy" (TorchScript, opset 17).
    """
    check.choice("export", "exporter", exporter, ("dynamo", "legacy"))
    target = profile(target)
    step = DecodeStep(model, soc=soc, accepted=target.gaps)
    example = decode_example(model.config, next(model.parameters()).dtype)
    options: dict[str, Any] = {"output_names": OUTPUT_NAMES, "target": target}
    if exporter == "legacy":
        axes = {
            "attention_mask": {1: "total"},
            "past_kv_cache": {3: "past"},
            "present_kv_cache": {3: "total"},
        }
        exported = legacy_export.export_module_legacy(step, example, dynamic_axes=axes, **options)
    else:
        past = torch.export.Dim("past", min=1)
        shapes: dict[str, Any] = dict.fromkeys(example)
        shapes |= {"attention_mask": {1: past + 1}, "past_kv_cache": {3: past}}
        exported = export_module(step, example, dynamic_shapes=shapes, **options)
    return save_model(exported, path, private_domain=private_domain)
