"""Command line of the comparisons with other projects' reference functions."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def checkouts(doc: str, peers: Iterable[str]) -> tuple[dict[str, Path], str]:
    """Checkouts by name of a peer, of those that were given, and the backend of our operators."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in peers:
        parser.add_argument(f"--{name}", type=Path, help=f"checkout of {name}")
    parser.add_argument("--backend", choices=("sim", "reference"), default="sim")
    given = vars(parser.parse_args())
    folders = {name: given[name.replace("-", "_")] for name in peers}
    return {name: folder for name, folder in folders.items() if folder}, given["backend"]
