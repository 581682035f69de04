"""An operator is named in its own four files and nowhere else: what works with operators takes them from contract.json."""

from __future__ import annotations

from pathlib import Path

from hybrid_ops import contract

ROOT = Path(__file__).parents[1]
SOURCES = ("python", "export", "sim", "op_host", "op_kernel")
SUFFIXES = {".py", ".h", ".cpp", ".j2", ".toml", ".sh", ""}
# Entries whose purpose is one named operator: model adapters, and the ruDNN-shaped functions.
ENTRIES = (
    "python/hybrid_ops/models/",
    "python/hybrid_ops/paged/",
    "python/hybrid_ops/moe/",
    "python/hybrid_ops/gated_delta.py",
    "python/hybrid_ops/contract.json",
)


def own_files(name: str) -> tuple[str, ...]:
    """Beginnings of the paths that belong to an operator; a kernel may be cut into a folder of its name."""
    return (
        f"op_host/{name}.cpp",
        f"op_kernel/{name}.cpp",
        f"op_kernel/{name}_tiling.h",
        f"op_kernel/{name}/",
        f"python/hybrid_ops/ops/{name}.py",
    )


def test_no_operator_is_named_outside_its_files(op):
    allowed = (*own_files(op.name), *ENTRIES)
    # Operators whose names begin with this one's.
    longer = [o for o in contract.load().values() if o.name != op.name and o.name.startswith(op.name)]
    found = []
    for file in (path for folder in SOURCES for path in (ROOT / folder).rglob("*")):
        place = file.relative_to(ROOT).as_posix()
        if file.suffix not in SUFFIXES or not file.is_file() or place.startswith(allowed):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for other in longer:
                line = line.replace(other.name, "").replace(other.type, "")
            if op.name in line or op.type in line:
                found.append(f"{place}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_an_operator_is_four_files(op):
    for place in own_files(op.name):
        if not place.endswith("/"):
            assert (ROOT / place).is_file(), f"{place} is missing"
