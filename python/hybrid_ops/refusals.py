"""How a family of calls refuses: an error class of its own, the project's one form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from . import check

EVERY = "every SoC"

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

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refusals of an operator's own checks leave as the family's; hazards and faults of the machine as they are."""
        try:
            yield
        except check.HybridOpsError as error:
            if type(error) is check.HybridOpsError:
                raise self.error(str(error)) from error
            raise
