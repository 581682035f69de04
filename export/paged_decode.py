"""The decode step of a Qwen3.5-style hybrid model whose attention layers are ours too: paged cache, or one of fixed capacity.

Batch 1, one token, nothing dynamic. All attention layers share one pool of pages: layer i has pages i * P to (i + 1) * P - 1,
and its slots are shifted alike. So the pool runs through the graph as one tensor that every layer updates in turn, and
nothing is stacked or sliced. A cache of fixed capacity is a pool of one page per layer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir
import torch

from hybrid_ops import check
from hybrid_ops.export import legacy_export
from hybrid_ops.export.decode import EXPERTS, EXPORTERS, decode_example
from hybrid_ops.export.decode_graph import DecodeStep, states_from_cache, step_inputs
from hybrid_ops.export.hybrid_graph import text_config
from hybrid_ops.export.onnx_export import export_module
from hybrid_ops.export.profiles import DEFAULT_PROFILE, Profile, profile
from hybrid_ops.export.save import save_model
from hybrid_ops.models.paged_step import paged_attention_step, pool_dtype
from hybrid_ops.models.qwen3_5 import linear_attention_step
from hybrid_ops.models.releases import check_release
from hybrid_ops.paged.host_plan import HostPlan

PAGE_SIZE = 128
STATES = ("conv_states", "recurrent_states", "key_cache", "value_cache")
PAST = tuple(f"past_{name}" for name in STATES)
OUTPUT_NAMES = ("logits", *(f"present_{name}" for name in STATES))
CONTIGUOUS_INPUTS = ("input_ids", "position_ids", *PAST, "context_lens")
PAGED_INPUTS = (*CONTIGUOUS_INPUTS, "block_tables", "slot_mapping")


def _refuse(argument: str, wrong: str, got: object, allowed: object, soc: str) -> check.HybridOpsError:
    return check.refuse("export", argument, wrong, got=got, allowed=allowed, soc=soc)


class PagedDecodeStep(DecodeStep):
    """One decode step of a `Qwen3_5ForCausalLM` (or a model with the same submodules) over a pool of pages.

    forward(input_ids [1,1] int64, position_ids [4,1,1] int64, past_conv_states and past_recurrent_states as in DecodeStep,
    past_key_cache and past_value_cache [n_full * P, page, KH, D], context_lens [1] int32, tokens seen and the current one,
    block_tables [1,W] int32, pages of layer 0, slot_mapping [1] int32, where the current token goes in layer 0; negative:
    it is not stored) -> logits [1,1,vocab] and the four states after the step. Without block_tables and slot_mapping the
    pool has one page per layer, and the token goes to slot context_lens - 1.
    """

    def __init__(
        self, model: Any, *, soc: str = "ascend310p", accepted: bool = True, node_experts: bool = False
    ) -> None:
        super().__init__(model, soc=soc, accepted=accepted, node_experts=node_experts)
        self.full = sum(hasattr(layer, "self_attn") for layer in self.model.layers)
        self.first: torch.Tensor
        self.register_buffer("first", torch.zeros(1, dtype=torch.int32), persistent=False)

    def places(
        self,
        layer: int,
        pool: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor | None,
        slot_mapping: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(block_tables, slot_mapping) of one attention layer."""
        pages = pool.shape[0] // self.full
        begin = layer * pages
        if block_tables is None or slot_mapping is None:
            return self.first[None] + begin, context_lens - 1 + begin * pool.shape[1]
        if not begin:
            return block_tables, slot_mapping
        moved = slot_mapping + begin * pool.shape[1]
        return block_tables + begin, torch.where(slot_mapping < 0, slot_mapping, moved)

    def paged(
        self,
        layer: Any,
        hidden: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        pools: tuple[torch.Tensor, torch.Tensor],
        context_lens: torch.Tensor,
        places: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Output `[1, 1, C]` of an attention layer, and the pools with the new token."""
        query, gate, key, value = self.heads(layer, hidden, rotary)
        rows = [x.reshape(1, x.shape[1], x.shape[3]) for x in (query, key, value)]
        out, pools = paged_attention_step(
            *rows, pools, self.first, context_lens, *places, scale=float(layer.scaling)
        )
        mixed = out[None] * torch.sigmoid(gate)
        return layer.o_proj(mixed), pools

    def forward(  # type: ignore[override]
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        past_conv_states: torch.Tensor,
        past_recurrent_states: torch.Tensor,
        past_key_cache: torch.Tensor,
        past_value_cache: torch.Tensor,
        context_lens: torch.Tensor,
        block_tables: torch.Tensor | None = None,
        slot_mapping: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        hidden = self.model.embed_tokens(input_ids)
        rotary = self.rotary(position_ids, hidden.dtype)
        pools = (past_key_cache, past_value_cache)
        conv: list[torch.Tensor] = []
        recurrent: list[torch.Tensor] = []
        full = 0
        for layer in self.model.layers:
            normed = layer.input_layernorm(hidden)
            if hasattr(layer, "linear_attn"):
                i = len(conv)
                mixed, conv_state, state = linear_attention_step(
                    layer.linear_attn, normed, past_conv_states[i], past_recurrent_states[i], self.rule
                )
                conv.append(conv_state)
                recurrent.append(state)
            else:
                places = self.places(full, pools[0], context_lens, block_tables, slot_mapping)
                mixed, pools = self.paged(layer.self_attn, normed, rotary, pools, context_lens, places)
                full += 1
            hidden = self.finish_layer(layer, hidden, mixed)
        logits = self.lm_head(self.model.norm(hidden))
        return logits, torch.stack(conv), torch.stack(recurrent), *pools


def paged_example(
    model: Any, soc: str, *, pages: int, page_size: int, table_width: int | None
) -> dict[str, torch.Tensor]:
    """Inputs of the graph with one token seen; `table_width` None: a cache of fixed capacity."""
    config, dtype = text_config(model), next(model.parameters()).dtype
    inputs = decode_example(config, dtype)
    cache = inputs.pop("past_kv_cache")
    del inputs["attention_mask"]
    full, _, heads, _, size = cache.shape
    for name in ("past_key_cache", "past_value_cache"):
        inputs[name] = torch.zeros(full // 2 * pages, page_size, heads, size, dtype=pool_dtype(dtype, soc))
    inputs["context_lens"] = torch.ones(1, dtype=torch.int32)
    if table_width is not None:
        inputs["block_tables"] = torch.zeros(1, table_width, dtype=torch.int32)
        inputs["slot_mapping"] = torch.zeros(1, dtype=torch.int32)
    return inputs


def build_paged_decode(
    model: Any,
    *,
    target: Profile | str = DEFAULT_PROFILE,
    soc: str = "ascend310p",
    exporter: str = "dynamo",
    max_seq_len: int | None = None,
    pages: int | None = None,
    page_size: int = PAGE_SIZE,
    table_width: int | None = None,
    experts: str = "subgraph",
    **options: Any,
) -> onnx_ir.Model:
    """`export_paged_decode` without writing; `options` go to the exporter."""
    check_release("export")
    soc = check.find_soc(None, soc)
    check.choice("export", "exporter", exporter, EXPORTERS, soc)
    check.choice("export", "experts", experts, EXPERTS, soc)
    check_cache(max_seq_len=max_seq_len, pages=pages, page_size=page_size, table_width=table_width, soc=soc)
    if max_seq_len is not None:
        sizes: dict[str, Any] = {"pages": 1, "page_size": max_seq_len, "table_width": None}
    else:
        sizes = {"pages": pages, "page_size": page_size, "table_width": table_width or pages}
    target = profile(target)
    step = PagedDecodeStep(model, soc=soc, accepted=target.gaps, node_experts=experts == "node")
    example = paged_example(model, soc, **sizes)
    names = CONTIGUOUS_INPUTS if max_seq_len is not None else PAGED_INPUTS
    example = {name: example[name] for name in names}
    if exporter == "legacy":
        return legacy_export.export_module_legacy(step, example, output_names=OUTPUT_NAMES, target=target)
    return export_module(step, example, output_names=OUTPUT_NAMES, target=target, **options)


def check_cache(
    *, max_seq_len: int | None, pages: int | None, page_size: int, table_width: int | None, soc: str
) -> None:
    """HybridOpsError unless the sizes describe one cache: of fixed capacity, or of pages."""
    if (max_seq_len is None) == (pages is None):
        got = f"max_seq_len {max_seq_len} and pages {pages}"
        raise _refuse("pages", "one kind of cache is needed", got, "either max_seq_len or pages", soc)
    for name, value in (
        ("max_seq_len", max_seq_len),
        ("pages", pages),
        ("page_size", page_size),
        ("table_width", table_width),
    ):
        if value is not None and value < 1:
            raise _refuse(name, "too small", value, "1 or more", soc)


def export_paged_decode(
    model: Any, path: str | Path, *, private_domain: bool = False, **options: Any
) -> Path:
    """Export one decode step whose every mixer runs on our operators to `path`; returns the path.

    With `max_seq_len` L the key and value caches are [n_full, L, KH, D] and context_lens says how many tokens they hold,
    the current one included. With `pages` P and `page_size` they are pools [n_full * P, page_size, KH, D], and block_tables
    [1, `table_width`] and slot_mapping [1] say where the sequence stands in layer 0's pages. `target`,
    `soc`, `exporter`, `experts` as for `export_decode`: with experts="node" all layers of a sparse model are operators.
    """
    return save_model(build_paged_decode(model, **options), path, private_domain=private_domain)


def pools_from_cache(
    cache: Any, config: Any, plan: HostPlan, dtype: torch.dtype = torch.float16
) -> dict[str, torch.Tensor]:
    """The past_* inputs from a transformers cache after a prefill (batch 1), its tokens on the pages of the plan's sequence 0.

    `plan` names pages of one layer; slots that no token has are zero.
    """
    states = states_from_cache(cache, config)
    return states | pools_from_columns(states.pop("past_kv_cache"), plan, dtype)


def pools_from_columns(
    kv_cache: torch.Tensor, plan: HostPlan, dtype: torch.dtype = torch.float16, length: int | None = None
) -> dict[str, torch.Tensor]:
    """past_key_cache and past_value_cache from a prefill graph's present_kv_cache [2 * n_full, 1, KH, S, D].

    `length` tokens are taken, all S when absent (a prefill graph of fixed capacity pads); for the rest see `pools_from_cache`.
    """
    states: dict[str, torch.Tensor] = {}
    columns = kv_cache[:, 0, :, :length].transpose(1, 2)  # [2 * n_full, tokens, KH, D]
    tokens = torch.arange(columns.shape[1])
    slot = (
        torch.tensor(plan.tables[0].tolist())[tokens // plan.page_size] * plan.page_size
        + tokens % plan.page_size
    )
    for name, part in (("past_key_cache", columns[0::2]), ("past_value_cache", columns[1::2])):
        pool = torch.zeros(len(part), plan.pages * plan.page_size, *part.shape[2:], dtype=dtype)
        pool[:, slot] = part.to(dtype)
        states[name] = pool.reshape(-1, plan.page_size, *part.shape[2:])
    return states


def paged_step_inputs(
    token: int, past: int, states: dict[str, torch.Tensor], plan: HostPlan | None = None
) -> dict[str, torch.Tensor]:
    """All inputs of one text decode step at position `past`; `plan` gives sequence 0's pages, None: fixed capacity."""
    inputs = step_inputs(token, past, states)
    del inputs["attention_mask"]
    inputs["context_lens"] = torch.tensor([past + 1], dtype=torch.int32)
    if plan is not None:
        table = torch.tensor(plan.tables[0].tolist(), dtype=torch.int32)
        page = int(table[past // plan.page_size])
        inputs["block_tables"] = table[None]
        inputs["slot_mapping"] = torch.tensor(
            [page * plan.page_size + past % plan.page_size], dtype=torch.int32
        )
    return inputs
