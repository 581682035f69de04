"""transformers' cache with paged attention layers: pools of pages, one schedule per step for all of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from hybrid_ops import check
from hybrid_ops.models.pages import PageTables, Step
from hybrid_ops.models.releases import PAGED, check_release
from hybrid_ops.paged import figures
from hybrid_ops.paged.appending import append
from hybrid_ops.paged.errors import refuse, refusing

WHERE = "PagedCache"
HANDOVER = "hybrid_paged"  # keyword under which an update reaches the attention function


class PagedLayer(CacheLayerMixin):
    """Pools [P, page, H, D] of one attention layer. `update` only counts: the attention function, which knows the padding, writes."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False

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
            got, allowed = (
                "an attention layer that keeps its keyword arguments",
                "one that hands them to update",
            )
            raise refuse(WHERE, "model", "cannot reach the attention function", got, allowed)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        forwarded[HANDOVER] = self
        self.new = key_states, value_states
        return key_states, value_states

    def write(self, mask: torch.Tensor | None) -> Step:
        """Append what `update` took; `mask` is bool [B, columns so far], False for padding."""
        assert self.new is not None
        batch, _, tokens, _ = self.new[0].shape
        valid = None if mask is None else mask[:, -tokens:]
        step = self.tables.step(self.seen, batch, tokens, valid, self.new[0])
        self._grow(step.plan.host.pages)
        # Detached: attention refuses the backward pass, so that no gradient is left out without a word.
        rows = [new.detach().transpose(1, 2).flatten(0, 1) for new in self.new]
        if step.rows is not None:
            rows = [row[step.rows] for row in rows]
        key, value = (row.contiguous() for row in rows)
        append(step.plan, key, value, *self.pools(), in_place=True)
        self.new = None
        self.seen += tokens
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

    def _only_together(self, call: str) -> Any:
        return refuse(WHERE, call, "layers share their pages", "a call on one layer", f"PagedCache.{call}")

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        raise self._only_together("reorder_cache")

    def crop(self, tokens_to_remove: int) -> None:
        raise self._only_together("crop")

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise self._only_together("batch_repeat_interleave")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        raise self._only_together("batch_select_indices")

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
        PagedError: a model with layers that pages do not serve (sliding window, chunked), a release of transformers that does
            not hand an attention layer's keyword arguments to its cache (before 5.24), no config, numbers below 1.
    """

    def __init__(self, config: Any, page_size: int = 16, pages: int | None = None) -> None:
        with refusing():
            check_release(f"paged.{WHERE}", PAGED)
        figures.number(WHERE, "page_size", page_size, least=1)
        if pages is not None:
            figures.number(WHERE, "pages", pages, least=1)
        if not isinstance(config, PreTrainedConfig):
            raise refuse(WHERE, "config", "not a model's config", type(config).__name__, "a PreTrainedConfig")
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

    def _select(self, sequences: list[int]) -> None:
        if self.tables.tables:
            self.tables.select(sequences, self._copy)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Beam search: sequence i goes on as beam_idx[i]; whole pages are shared, not copied."""
        chosen = self._sequences("beam_idx", beam_idx)
        self._select(chosen)  # first: it may refuse, for want of pages
        for layer in self._others():
            layer.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every sequence `repeats` times, next to each other; whole pages are shared, not copied."""
        if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
            raise refuse(WHERE, "repeats", "not a number of copies", check.shown(repeats), "1 or more")
        for layer in self._others():
            if not hasattr(layer, "batch_repeat_interleave"):
                raise self._unserved(layer, "batch_repeat_interleave")
        self._select([s for s in range(len(self.tables.tables)) for _ in range(repeats)])
        for layer in self._others():
            layer.batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Go on with the sequences `indices` (numbers, or bool [B]) only; pages of the others become free."""
        chosen = self._sequences("indices", indices)
        for layer in self._others():
            if not hasattr(layer, "batch_select_indices"):
                raise self._unserved(layer, "batch_select_indices")
        self._select(chosen)
        for layer in self._others():
            layer.batch_select_indices(indices)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last -tokens_to_remove columns, as assisted decoding does; pages that nobody needs become free.

        Args:
            tokens_to_remove: 0 or less, at least -get_seq_length().

        Raises:
            PagedError: a positive or too large number, or a model with linear attention, whose states have no way back.
        """
        n, seen = tokens_to_remove, self.tables.columns
        if not isinstance(n, int) or isinstance(n, bool) or not -seen <= n <= 0:
            raise refuse(
                WHERE, "tokens_to_remove", "not a number of tokens to forget", check.shown(n), f"{-seen}..0"
            )
        if n == 0:
            return
        for layer in self._others():
            raise self._unserved(layer, "crop")
        self.tables.crop(-n, self._copy)
        for layer in self._paged():
            layer.seen += n

    def _others(self) -> list[Any]:
        return [layer for layer in self.layers if not isinstance(layer, PagedLayer)]

    def _unserved(self, layer: Any, call: str) -> Exception:
        got = f"a layer of {type(layer).__name__}"
        return refuse(WHERE, call, "not every layer can", got, "models with attention layers only")

    def _sequences(self, name: str, given: Any) -> list[int]:
        """Sequences of the batch that `given` names."""
        batch = len(self.tables.tables)
        tensor = isinstance(given, torch.Tensor)
        plain = (
            tensor
            and not (given.is_nested or given.is_quantized or given.is_meta)
            and given.layout is torch.strided
        )
        if not plain or given.dim() != 1 or given.is_floating_point() or given.is_complex():
            got = f"rank {given.dim()}, {given.dtype}" if tensor else type(given).__name__
            raise refuse(
                WHERE, name, "not sequences of the batch", got, "one axis of whole numbers, or bool [B]"
            )
        chosen = given.nonzero().flatten().tolist() if given.dtype is torch.bool else given.tolist()
        if batch and (
            any(not 0 <= s < batch for s in chosen) or (given.dtype is torch.bool and len(given) != batch)
        ):
            raise refuse(WHERE, name, "not sequences of the batch", given.tolist(), f"0..{batch - 1}")
        return chosen
