"""Generates what must not be written twice: docs/ops/<op>.md and the support table of README.md."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import jinja2

from . import case, contract

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"(<!-- support table: generated -->\n).*?(\n<!-- end -->)", re.S)


def pages() -> dict[Path, str]:
    """Text of every generated page, by path in the checkout."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("hybrid_ops"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    ops = list(contract.load().values())
    out = {}
    for op in ops:
        module = importlib.import_module(f"hybrid_ops.ops.{op.name}")
        counts, names = _cases(op)
        out[ROOT / "docs" / "ops" / f"{op.name}.md"] = env.get_template("op_page.md.j2").render(
            op=op,
            signature=_signature(op),
            meaning=inspect.cleandoc(module.__doc__ or ""),
            case_counts=counts,
            case_names=names,
        )
    table = env.get_template("support_table.md.j2").render(ops=ops, socs=contract.socs(), columns=_columns)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not TABLE.search(text):
        raise SystemExit(f"docs: README.md: marker of the support table is missing: allowed {TABLE.pattern}")
    out[readme] = TABLE.sub(lambda m: m.group(1) + "\n" + table.strip() + "\n" + m.group(2), text)
    from .export import rules_page  # needs onnx, which the rest of the package does not

    out[ROOT / "docs" / "rules.md"] = rules_page.page(env)
    return out


def _cases(op: contract.Op) -> tuple[dict[str, int], list[str]]:
    """Number of cases per SoC, and their names without the part of the id that says operator, dtypes and SoC."""
    counts, names = {}, []
    for soc in op.socs:
        listed = case.cases(op.name, soc)
        counts[soc] = len(listed)
        for column in range(op.columns(soc)):
            ids = [c.id.split("-") for c in listed if c.column == column]
            differ = [len(set(words)) > 1 for words in zip(*ids, strict=False)]
            start = differ.index(True) if True in differ else len(differ) - 1
            names += ["-".join(words[start:]) for words in ids]
    return counts, list(dict.fromkeys(names))


def _signature(op: contract.Op) -> str:
    """Python call form, optional arguments with their defaults."""
    words = [t.name if t.required else f"{t.name}=None" for t in op.inputs]
    return ", ".join(words + [f"{a.name}={a.default}" for a in op.attrs])


def _columns(op: contract.Op, soc: str) -> str:
    """Dtype of the first input per column, and of what differs between columns otherwise."""
    first = op.inputs[0]
    cells = []
    for i in range(op.columns(soc)):
        free = [
            t
            for t in op.inputs[1:]
            if len(set(t.dtypes[soc])) > 1 and t.dtypes[soc][i] != first.dtypes[soc][i]
        ]
        extra = [f"{t.name} {t.dtypes[soc][i]}" for t in free]
        cells.append(first.dtypes[soc][i] + (f" ({', '.join(extra)})" if extra else ""))
    return "; ".join(cells) or "no"


def main(check: bool = False) -> int:
    """Writes the pages, or with `check` compares them; returns the number of stale pages."""
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print("docs: run ./build.sh docs")
    return stale if check else 0
