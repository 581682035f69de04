"""Lower bounds of an operator's time on a chip: what memory, the vector units or the cube units alone would need.

An operator says in ``ops/<op>.py``, ``floors(specs, soc)``, how many bytes it must move and which vector passes and matrix
products it cannot avoid; this module turns them into cycles. A floor takes every core evenly loaded, peak rates, and no
issue cost, latency or start-up; a kernel's distance from the largest floor is what is left to win.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import dtypes
from . import soc as platform
from .check import Spec

REPEAT = 256  # bytes a vector unit takes in at once


@dataclass(frozen=True)
class Pass:
    """One sweep of a vector call: cost key as in sim/soc/instructions.toml, elements, bytes of the wider operand's one."""

    key: str
    elements: float
    width: int = 4

    def cycles(self, soc: platform.Soc) -> float:
        """Throughput cycles on one core."""
        return soc.price(self.key)["per_repeat"] * self.elements * self.width / REPEAT


@dataclass(frozen=True)
class Product:
    """`count` matrix products [m, k] x [k, n] on the cube units; operands of `dtype`, sums in fp32."""

    m: float
    k: float
    n: float
    dtype: str = "float16"
    count: float = 1

    def cycles(self, soc: platform.Soc) -> float:
        """Throughput cycles on one core: multiply-adds as they are, not rounded up to 16 x 16 x 16 blocks."""
        short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "i8"}[self.dtype]
        rate = soc.figures["rates.cube_macs"] / soc.price(f"Mmad.{short}")["per_repeat"]
        return self.count * self.m * self.k * self.n / rate


@dataclass(frozen=True)
class Floors:
    """Cycles of the core clock, bytes, and what each vector pass contributes (cycles on all cores)."""

    memory_cycles: float
    vector_cycles: float
    read_bytes: int
    write_bytes: int
    passes: Mapping[str, float]
    cube_cycles: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """The floors by what sets them: "memory", "vector", "cube"."""
        return {"memory": self.memory_cycles, "vector": self.vector_cycles, "cube": self.cube_cycles}

    @property
    def cycles(self) -> float:
        """The largest floor."""
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """Which floor is the largest."""
        return max(self.parts, key=lambda part: self.parts[part])


def floors(
    read_bytes: int, write_bytes: int, passes: Sequence[Pass], soc: str, products: Sequence[Product] = ()
) -> Floors:
    """Cycles below which no kernel of this work can stay.

    Args:
        read_bytes, write_bytes: global memory traffic, every byte counted once.
        passes: unavoidable vector sweeps, over all cores.
        soc: family or chip name.
        products: unavoidable matrix products, over all cube cores.

    Raises:
        HybridOpsError: unknown SoC.
    """
    chip = platform.load(soc)
    peak = chip.figures["rates.ddr_peak_gbps"] * 1e3 / chip.mhz
    memory = max(
        read_bytes / chip.ddr_bytes_per_cycle(),
        write_bytes / chip.ddr_bytes_per_cycle(write=True),
        (read_bytes + write_bytes) / peak,
    )
    parts: dict[str, float] = {}
    for sweep in passes:
        parts[sweep.key] = parts.get(sweep.key, 0.0) + sweep.cycles(chip) / chip.vector_cores
    cube = sum(product.cycles(chip) for product in products) / chip.figures["cores.cube"]
    return Floors(memory, sum(parts.values()), read_bytes, write_bytes, parts, cube)


def size(spec: Spec) -> int:
    """Bytes of a tensor."""
    return math.prod(int(n) for n in spec.shape) * dtypes.NUMPY[spec.dtype].itemsize
