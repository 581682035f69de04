"""Small random sparse models of transformers, one per family of routers and experts."""

from __future__ import annotations

from typing import Any

import torch

SMALL = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {"norm_topk_prob": True}),
    "qwen3_moe-raw": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {"norm_topk_prob": False}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"intermediate_size": 40}),  # no multiple of 16
    "qwen3_next": (
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        "Qwen3_5MoeForCausalLM",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "n_shared_experts": 1,
        },
    ),
}


def small_moe(family: str, dtype: torch.dtype = torch.float32, seed: int = 5) -> Any:
    """A causal language model in eval mode whose routers spread their tokens over the experts."""
    import transformers

    config_class, model_class, changes = FAMILIES[family]
    config_type = getattr(transformers, config_class)
    known = config_type().to_dict() | dict.fromkeys(("n_routed_experts", "num_local_experts", "num_experts"))
    fields = {name: value for name, value in {**SMALL, **changes}.items() if name in known or name in changes}
    if "num_experts" not in config_type().to_dict():
        fields.pop("num_experts", None)
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(config_type(**fields)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() >= 2:
                weight.normal_(0, weight.shape[-1] ** -0.5 * (2.0 if "gate.weight" in name else 1.0))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.3)
    return model.to(dtype)
