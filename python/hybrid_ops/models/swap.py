"""Swaps the recurrent rule of transformers' hybrid models for the operator, and puts it back.

Two places hold the function, depending on the release: since 5.15 the layers call a global of their modelling module;
up to 5.12 each layer instance keeps it as an attribute. Both are set, where they exist; transformers is not edited.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import nn

from hybrid_ops import check
from hybrid_ops.models.gated_delta import recurrent_rule
from hybrid_ops.models.releases import check_release

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
MODULE_GLOBAL = "torch_recurrent_gated_delta_rule"
CHUNK_GLOBAL = "torch_chunk_gated_delta_rule"  # the prefill rule, likewise a global of the modelling module
INSTANCE_ATTRIBUTE = "recurrent_gated_delta_rule"


@dataclass
class Installation:
    """What `install` replaced; `restore()` puts every original back (in reverse order, once)."""

    replaced: list[tuple[Any, str, Any]] = field(default_factory=list)

    def set(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        self.replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, function)

    def restore(self) -> None:
        while self.replaced:
            owner, name, original = self.replaced.pop()
            setattr(owner, name, original)

    def __len__(self) -> int:
        return len(self.replaced)


def modelling_modules(families: Iterable[str] = FAMILIES) -> list[ModuleType]:
    """The installed transformers' modelling modules of `families`; families a release lacks are left out."""
    found = []
    for family in families:
        name = f"transformers.models.{family}.modeling_{family}"
        try:
            present = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            present = False
        if present:
            found.append(importlib.import_module(name))
    return found


def install(
    model: nn.Module | None = None,
    *,
    soc: str = "ascend310p",
    rule: Callable[..., Any] = recurrent_rule,
    families: Iterable[str] = FAMILIES,
) -> Installation:
    """Make hybrid models decode with the operator until `restore()` of the returned object.

    Without `model` every model of `families` in this process is affected (modules' globals, which is what
    transformers >= 5.15 reads). With `model` the attributes of that model's layers (transformers < 5.13) are set too,
    and only the modelling modules that its layers come from are touched.
    Errors: HybridOpsError when there is nothing to replace (a model without gated delta layers, or a release of
    transformers that is not supported).
    """
    soc = check.find_soc(None, soc)
    check_release()
    function = functools.wraps(rule)(functools.partial(rule, soc=soc))
    done = Installation()
    if model is None:
        modules = modelling_modules(families)
        layers: list[nn.Module] = []
    else:
        layers = [layer for layer in model.modules() if INSTANCE_ATTRIBUTE in vars(layer)]
        modules = list({id(m): m for m in map(inspect.getmodule, map(type, model.modules())) if m}.values())
    for module in modules:
        if callable(vars(module).get(MODULE_GLOBAL)):
            done.set(module, MODULE_GLOBAL, function)
    for layer in layers:
        done.set(layer, INSTANCE_ATTRIBUTE, function)
    if not done:
        got = "transformers" if model is None else type(model).__name__
        allowed = f"models of {check.words(families)}"
        raise check.refuse(
            "models", "model", "no gated delta rule to replace", got=got, allowed=allowed, soc=soc
        )
    return done


@contextmanager
def patched(model: nn.Module | None = None, **options: Any) -> Iterator[Installation]:
    """`install` for the length of a with-block; the originals are back afterwards, also after an exception."""
    done = install(model, **options)
    try:
        yield done
    finally:
        done.restore()
