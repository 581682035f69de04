"""Pages with examples: they run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from hybrid_ops import runtime

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(("page", "count"), [("paged.md", 3), ("moe.md", 4)])
def test_examples_run(page, count):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == count
    names: dict = {}
    with runtime.using(backend="sim", checks="full"):
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    assert names["tokens"].shape == (1, 7)
