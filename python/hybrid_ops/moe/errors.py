"""How the mixture-of-experts calls refuse: one class, the project's one form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import check

EVERY = "every SoC"


class MoeError(check.HybridOpsError):
    """Shape, dtype, option, device or capability refused before anything ran."""


def refuse(
    where: str, argument: str, wrong: str, got: object, allowed: object, soc: str | None = None
) -> MoeError:
    """The error to raise; `where` is the function or class of hybrid_ops.moe."""
    text = check.refuse(f"moe.{where}", argument, wrong, got=got, allowed=allowed, soc=soc or EVERY)
    return MoeError(str(text))


@contextmanager
def refusing() -> Iterator[None]:
    """Refusals of an operator's own checks leave as MoeError; hazards and faults of the machine as they are."""
    try:
        yield
    except check.HybridOpsError as error:
        if type(error) is check.HybridOpsError:
            raise MoeError(str(error)) from error
        raise
