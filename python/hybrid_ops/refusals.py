"""How a family of calls refuses: an error class of its own, the project's one form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import check

if TYPE_CHECKING:
    import torch

EVERY = "every SoC"
OPTIONS = ("backend", "soc", "checks")  # that every call of a family takes

E = TypeVar("E", bound=check.HybridOpsError)


class Refusals(Generic[E]):
    """The refusals of hybrid_ops.<family>, raised as `error`."""

    def __init__(self, family: str, error: type[E]) -> None:
        self.family, self.error = family, error

    def refuse(
        self, where: str, argument: str, wrong: str, got: object, allowed: object, soc: str | None = None
    ) -> E:
        """The error to raise; `where` is the function or class of the family."""
        text = check.refuse(
            f"{self.family}.{where}", argument, wrong, got=got, allowed=allowed, soc=soc or EVERY
        )
        return self.error(str(text))

    def dense(self, where: str, name: str, given: Any) -> torch.Tensor:
        """`given` if it is a tensor with strides; sparse, nested and quantised ones are refused."""
        import torch  # plans of a family work without it

        if not isinstance(given, torch.Tensor):
            raise self.refuse(where, name, "not a tensor", type(given).__name__, "torch.Tensor")
        if given.is_quantized or given.is_nested or given.layout is not torch.strided:
            got = "quantized" if given.is_quantized else "nested" if given.is_nested else given.layout
            raise self.refuse(where, name, "not a dense tensor", got, "torch.strided, unquantised")
        return given

    def flag(self, where: str, name: str, given: object) -> bool:
        """`given` if it is True or False."""
        if not isinstance(given, bool):
            raise self.refuse(where, name, "wrong type", check.shown(given), "True or False")
        return given

    def hold_options(self, where: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Every option of `OPTIONS`, None where it is not given."""
        unknown = set(options) - set(OPTIONS)
        if unknown:
            got, allowed = check.words(sorted(unknown)), check.words(OPTIONS)
            raise self.refuse(where, "options", "no such option", got, allowed)
        for name, given in options.items():
            if not (given is None or isinstance(given, str)):
                raise self.refuse(where, name, "wrong type", check.shown(given), "str or None")
        return {name: options.get(name) for name in OPTIONS}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refusals of an operator's own checks leave as the family's; hazards and faults of the machine as they are."""
        try:
            yield
        except check.HybridOpsError as error:
            if type(error) is check.HybridOpsError:
                raise self.error(str(error)) from error
            raise
