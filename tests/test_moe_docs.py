"""The page on the mixture of experts: its examples run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from hybrid_ops import runtime

PAGE = Path(__file__).parents[1] / "docs" / "moe.md"


def test_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict = {}
    with runtime.using(backend="sim", checks="full"):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert names["tokens"].shape == (1, 7)
