"""transformers' cache with paged attention layers: pools of pages, one schedule per step for all of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from hybrid_ops.models.pages import PageTables, Step
from hybrid_ops.paged.appending import append
from hybrid_ops.paged.errors import refuse

WHERE = "PagedCache"
HANDOVER = "hybrid_paged"  # keyword under which an update reaches the attention function


class PagedLayer(CacheLayerMixin):
    """Pools [P, page, H, D] of one attention layer. `update` only counts: the attention function, which knows the padding, writes."""

    is_sliding = False

    def __init__(self, tables: PageTables) -> None:
        super().__init__()
        self.tables, self.seen = tables, 0
        self.new: tuple[torch.Tensor, torch.Tensor] | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = (
            new.new_empty(0, self.tables.page_size, new.shape[1], new.shape[3])
            for new in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take over new keys and values [B, H, T, D]; they come back, and the layer travels to the attention function."""
        forwarded = kwargs.get("kwargs")
        if forwarded is None:
            got, allowed = "an attention layer that does not share its keyword arguments", "transformers 5.24"
            raise refuse(WHERE, "model", "cannot reach the attention function", got, allowed)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        forwarded[HANDOVER] = self
        self.new = key_states, value_states
        self.seen += key_states.shape[2]
        return key_states, value_states

    def write(self, mask: torch.Tensor | None) -> Step:
        """Append what `update` took; `mask` is bool [B, columns so far], False for padding."""
        assert self.new is not None
        batch, _, tokens, _ = self.new[0].shape
        valid = None if mask is None else mask[:, -tokens:]
        step = self.tables.step(self.seen - tokens, batch, tokens, valid, self.new[0])
        self._grow(step.plan.host.pages)
        rows = [new.transpose(1, 2).flatten(0, 1) for new in self.new]
        if step.rows is not None:
            rows = [row[step.rows] for row in rows]
        key, value = (row.contiguous() for row in rows)
        append(step.plan, key, value, *self.pools(), in_place=True)
        self.new = None
        return step

    def pools(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Key pool and value pool [P, page, H, D]; for MLA latents and rotated keys."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def _grow(self, pages: int) -> None:
        more = pages - len(self.pools()[0])
        if more > 0:
            self.keys, self.values = (
                torch.cat([pool, pool.new_empty(more, *pool.shape[1:])]) for pool in self.pools()
            )

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copy pages of this layer's pools."""
        if self.is_initialized:
            self._grow(self.tables.pages)
            for pool in self.pools():
                pool[target] = pool[source]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.seen, self.new, self.is_initialized = 0, None, False
        self.keys = self.values = None


class PagedCache(Cache):
    """A cache for `generate` whose full attention layers live in pages; other layers stay transformers' own.

    Use it with the attention function: `use_paged_attention(model); model.generate(..., cache=PagedCache(model.config))`.
    For MLA the pages hold latents and rotated keys.

    Args:
        config: the model's config.
        page_size: tokens of a page, any number.
        pages: pages of each layer's pool; None: pools grow.

    Raises:
        PagedError: a model with layers that pages do not serve (sliding window, chunked).
    """

    def __init__(self, config: Any, page_size: int = 16, pages: int | None = None) -> None:
        self.tables = PageTables(page_size, pages)
        layers = DynamicCache(config=config).layers
        for i, layer in enumerate(layers):
            if type(layer) is DynamicLayer:
                layers[i] = PagedLayer(self.tables)
            elif isinstance(layer, CacheLayerMixin):
                raise refuse(
                    WHERE, f"layer {i}", "not for pages", type(layer).__name__, "full or linear attention"
                )
        super().__init__(layers=layers)

    def reset(self) -> None:
        """Forget every sequence."""
        super().reset()
        self.tables.reset()

    def _paged(self) -> list[PagedLayer]:
        return [layer for layer in self.layers if isinstance(layer, PagedLayer)]

    def _copy(self, source: list[int], target: list[int]) -> None:
        for layer in self._paged():
            layer.copy_pages(source, target)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Beam search: sequence i goes on as beam_idx[i]; whole pages are shared, not copied."""
        for layer in self.layers:
            if not isinstance(layer, PagedLayer):
                layer.reorder_cache(beam_idx)
        if self.tables.tables:
            self.tables.select(beam_idx.tolist(), self._copy)
