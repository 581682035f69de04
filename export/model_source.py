"""Opens what a user names as the model: a config.json, or a folder with one and perhaps a safetensors checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hybrid_ops import check
from hybrid_ops.export.checkpoint import INDEX, SINGLE, Checkpoint
from hybrid_ops.models.releases import check_release

# model_type of the language model's config -> model class in transformers, stem of the exported files.
CLASSES = {
    "qwen3_5_text": ("Qwen3_5ForCausalLM", "qwen3_5"),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", "qwen3_5_moe"),
    "qwen3_next": ("Qwen3NextForCausalLM", "qwen3_next"),
}
DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}


def _refuse(wrong: str, got: object, allowed: object) -> check.HybridOpsError:
    return check.refuse("export", "model", wrong, got=got, allowed=allowed, soc="every SoC")


@dataclass(frozen=True)
class Source:
    """One model to export: configs, family stem and, where there are weights, the checkpoint's folder."""

    config: Any  # of the language model
    image_token: int | None
    class_name: str
    stem: str
    folder: Path | None

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint's index, None where the source is a config alone."""
        return None if self.folder is None else Checkpoint(self.folder)


def open_source(path: str | Path) -> Source:
    """Read the config at `path` (a file, or a folder with config.json).

    Errors: HybridOpsError for a missing or unreadable config, a model type that no graph here describes, or a
    transformers release that is not supported.
    """
    import transformers

    check_release("export")
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise _refuse("no config", path, "a config.json or a folder with one")
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["model_type"]
        if not isinstance(kind, str):
            raise ValueError("model_type is no text")
    except (ValueError, KeyError, TypeError) as error:
        raise _refuse("config cannot be read", f"{file} ({error!r})", "a transformers config.json") from error
    types = {**CLASSES, "qwen3_5": ("", ""), "qwen3_5_moe": ("", "")}
    if kind not in types:
        raise _refuse("model type is not exported", repr(kind), check.words(types))
    try:
        outer = transformers.AutoConfig.from_pretrained(str(file))
    except Exception as error:  # strict configs raise types of their own
        raise _refuse("config is not accepted", f"{file} ({error})", "a valid config") from error
    config = getattr(outer, "text_config", None) or outer
    class_name, stem = CLASSES[config.model_type]
    has_weights = path.is_dir() and ((path / INDEX).exists() or (path / SINGLE).exists())
    image_token = getattr(outer, "image_token_id", None) if config is not outer else None
    return Source(config, image_token, class_name, stem, path.resolve() if has_weights else None)


def without_weights(source: Source, dtype: torch.dtype) -> tuple[Any, FakeTensorMode]:
    """The model with tensors that have no data, and the mode in which such tensors are traced."""
    import transformers

    mode, default = FakeTensorMode(allow_non_fake_inputs=True), torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with mode:
            model = getattr(transformers, source.class_name)(source.config).eval()
    finally:
        torch.set_default_dtype(default)
    model.model.rotary_emb = type(model.model.rotary_emb)(
        source.config
    )  # frequencies are computed, not loaded
    model.image_token_id = source.image_token
    return model, mode
