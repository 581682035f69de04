"""Small random models of every family that the exporters know, for tests and trials."""

from __future__ import annotations

from typing import Any

import torch

from hybrid_ops import check
from hybrid_ops.models.releases import check_release
from hybrid_ops.models.sample import HEADS_4B, randomise

# Family -> (config class, model class) in transformers.
FAMILIES = {
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"),
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}


def small_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A causal language model of `family` in eval mode with the head geometry of the 4B model; `changes` to its config.

    Errors: HybridOpsError for an unknown family.
    """
    import transformers

    check_release()
    check.choice("models", "family", family, tuple(FAMILIES))
    config_class, model_class = (getattr(transformers, name) for name in FAMILIES[family])
    known = config_class().to_dict()
    fields = {**SMALL, **HEADS_4B, **changes}
    config = config_class(**{name: value for name, value in fields.items() if name in known})
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(seed)
        return randomise(model_class(config).eval())
    finally:
        torch.random.set_rng_state(state)
