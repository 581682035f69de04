"""Small random transformers models for tests of pages, prompts for them, and greedy generation on either cache."""

from __future__ import annotations

import torch
import transformers

from hybrid_ops.models import use_paged_attention
from hybrid_ops.models.families import small_model

HEADS = {
    "num_attention_heads": 4,
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
}


def mixtral(**changes):
    config = transformers.MixtralConfig(
        **{**HEADS, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, **changes}
    )
    return transformers.MixtralForCausalLM(config)


def deepseek_v3():
    config = transformers.DeepseekV3Config(
        **HEADS, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2, n_group=2,
        topk_group=1, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=20, n_shared_experts=1,
    )  # fmt: skip
    return transformers.DeepseekV3ForCausalLM(config)


def kimi_linear():
    config = transformers.KimiLinearConfig(
        **HEADS, layer_types=["linear_attention", "full_attention"], pad_token_id=0, num_key_value_heads=4, kv_lora_rank=24,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=20, linear_head_dim=16, linear_num_heads=2, num_experts=4,
        num_experts_per_token=2, moe_intermediate_size=32,
    )  # fmt: skip
    return transformers.KimiLinearForCausalLM(config)


LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
MAKERS = {
    "qwen3_5": lambda: small_model("qwen3_5", **LINEAR),
    "qwen3_next": lambda: small_model("qwen3_next", **LINEAR),
    "mixtral": mixtral,
    "deepseek_v3": deepseek_v3,
}
if hasattr(transformers, "KimiLinearConfig"):
    MAKERS["kimi_linear"] = kimi_linear
_made: dict = {}


def sample(name):
    """The model with random weights, those of its queries and keys larger than by default: attention decides tokens."""
    if name not in _made:
        torch.manual_seed(4)
        model = MAKERS[name]().eval()
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if any(part in key for part in ("q_proj", "k_proj", "q_b_proj", "kv_b_proj", "lm_head")):
                    weight.mul_(3)
        _made[name] = model
    return _made[name]


def prompt(padded: bool, seed: int = 3):
    ids = torch.randint(1, 64, (2, 7), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


GREEDY = {"max_new_tokens": 32, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


def generate(model, implementation, cache=None, **more):
    if implementation == "paged":
        use_paged_attention(model)
    else:
        model.set_attn_implementation(implementation)
    options = {**GREEDY, "return_dict_in_generate": True, "output_logits": True, **more}
    return model.generate(**options, **({} if cache is None else {"cache": cache}))
