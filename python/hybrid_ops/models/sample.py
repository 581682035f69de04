"""A small Qwen3.5 decoder with random weights: few layers and channels, the real head geometry of the 4B model."""

from __future__ import annotations

import math
from typing import Any

import torch

# Qwen3.5-4B's linear attention (config.json of the checkpoint); everything else of the sample is small.
HEADS_4B = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def sample_config(layers: int = 4, hidden: int = 256, vocab: int = 512, **changes: Any) -> Any:
    """A `Qwen3_5TextConfig`: every fourth layer has full attention. `changes` override single fields."""
    from transformers import Qwen3_5TextConfig

    fields: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        **HEADS_4B,
        **changes,
    }
    return Qwen3_5TextConfig(**fields)


def randomise(model: Any) -> Any:
    """Draw the weights that matter to the states from torch's generator (in place); returns the model.

    The default initialisation makes states decay within a token (softplus(1) * A up to 16) and convolutions 50 times
    weaker than trained ones. Step sizes are drawn as state-space models initialise them (log-uniform in 1e-3..1e-1) and
    convolutions with unit gain, so that the recurrent state is large and remembers the prompt. Routers are drawn too:
    initialised with zeros, they would choose the same experts for every token.
    """
    with torch.no_grad():
        for layer in model.modules():
            if hasattr(layer, "dt_bias"):
                step = torch.empty_like(layer.dt_bias).uniform_(math.log(1e-3), math.log(1e-1)).exp()
                layer.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))  # inverse of softplus
                taps = layer.conv1d.weight.shape[-1]
                layer.conv1d.weight.normal_(std=taps**-0.5)
            router = getattr(layer, "gate", None)
            if hasattr(layer, "experts") and router is not None:
                router.weight.normal_(std=1.0)
    return model


def sample_decoder(config: Any = None, seed: int = 0) -> Any:
    """A `Qwen3_5ForCausalLM` in eval mode with `randomise`d weights, the same for the same seed."""
    from transformers import Qwen3_5ForCausalLM

    random = torch.random.get_rng_state()
    try:
        torch.manual_seed(seed)
        return randomise(Qwen3_5ForCausalLM(config or sample_config()).eval())
    finally:
        torch.random.set_rng_state(random)
