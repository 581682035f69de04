"""Lower bounds of an operator's time on a chip: what memory and what the vector units alone would need.

An operator says in ``ops/<op>.py``, ``floors(specs, soc)``, how many bytes it must move and which passes over how many
elements it cannot avoid; this module turns both into cycles. A floor takes every vector core evenly loaded, peak rates, and no
issue cost, latency or start-up; a kernel's distance from the larger floor is what is left to win.
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
class Floors:
    """Cycles of the core clock, bytes, and what each vector pass contributes (cycles on all cores)."""

    memory_cycles: float
    vector_cycles: float
    read_bytes: int
    write_bytes: int
    passes: Mapping[str, float]

    @property
    def cycles(self) -> float:
        """The larger floor."""
        return max(self.memory_cycles, self.vector_cycles)

    @property
    def bound(self) -> str:
        """Which floor is the larger: "memory" or "vector"."""
        return "memory" if self.memory_cycles >= self.vector_cycles else "vector"


def floors(read_bytes: int, write_bytes: int, passes: Sequence[Pass], soc: str) -> Floors:
    """Cycles below which no kernel of this work can stay.

    Args:
        read_bytes, write_bytes: global memory traffic, every byte counted once.
        passes: unavoidable vector sweeps, over all cores.
        soc: family or chip name.

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
    return Floors(memory, sum(parts.values()), read_bytes, write_bytes, parts)


def size(spec: Spec) -> int:
    """Bytes of a tensor."""
    return math.prod(int(n) for n in spec.shape) * dtypes.NUMPY[spec.dtype].itemsize


def gated_delta(specs: Mapping[str, Spec | None], soc: str) -> Floors:
    """Floors of the recurrent gated delta rule, every row active and every sequence in slots of its own.

    Memory: the state is read once per sequence and written once per row (the contract stores it after every token), all other
    inputs are read once, out is written once.

    Vector, per state element in fp32: cast in (once per sequence) and cast out (once per row) unless the state is fp32;
    per row two multiplies and two block reductions (S k and S q), one multiply (decay) and one Axpy (update). Passes
    over single rows (q, k, v, gates, the upper levels of a reduction) are left out: they are below 1/16 of it.

    Args:
        specs: shape and dtype by input name; absent optional inputs are None or missing.
        soc: family or chip name.
    """
    given = {name: spec for name, spec in specs.items() if spec is not None}
    state, rows = given["state"], int(given["value"].shape[0])
    sequences = min(int(given["actual_seq_lengths"].shape[0]), rows)
    elements = math.prod(int(n) for n in state.shape[1:])
    slot = elements * dtypes.NUMPY[state.dtype].itemsize
    small = sum(size(spec) for name, spec in given.items() if name != "state")
    passes = [
        Pass("Mul.f32", 3 * rows * elements),
        Pass("BlockReduceSum.f32", 2 * rows * elements),
        Pass("Axpy.f32", rows * elements),
    ]
    if state.dtype != "float32":
        passes.append(Pass("Cast.f16f32", (sequences + rows) * elements))
    return floors(sequences * slot + small, rows * slot + size(given["value"]), passes, soc)
