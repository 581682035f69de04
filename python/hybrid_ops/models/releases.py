"""Which transformers releases the adapters and the export are made for; benchmarks/transformers_releases.py tries them.

The rules moved from layer instances to globals of the modelling modules in 5.13; the cache's getters came in 5.20 to
5.22, `register_backend` of transformers.exporters in 5.23, the name `cache` for `past_key_values` in 5.24.
"""

from __future__ import annotations

import re

from hybrid_ops import check

FIRST, LAST = (5, 15), (5, 24)
PAGED = (
    5,
    24,
)  # the first whose attention layers hand their keyword arguments to Cache.update, where PagedCache gets in


def check_release(op: str = "models", first: tuple[int, int] = FIRST) -> None:
    """Refuse a transformers outside first..LAST; without transformers there is nothing to refuse."""
    try:
        from transformers import __version__ as version
    except ImportError:
        return
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not first <= (int(found[1]), int(found[2])) <= LAST:
        oldest, last = (".".join(map(str, release)) for release in (first, LAST))
        raise check.refuse(
            op, "transformers", "release is not supported", got=version, allowed=f"{oldest} to {last}", soc="every SoC",
            hint=f"pip install 'transformers>={oldest},<{LAST[0]}.{LAST[1] + 1}'",
        )  # fmt: skip
