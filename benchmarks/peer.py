"""Runs somebody else's kernel file of the same operator: any .cpp that takes our arguments, its tiling given as fields.

The tiling file (JSON) says how to enter the kernel and, for each case (a batch size), what its tiling struct holds:

    {"entry": "kernel_function", "label": "name", "workspace_bytes": 0, "defines": {"NAME": "value"},
     "cases": {"1": {"block_dim": 8, "tiling_key": 0, "fields": [["name", "uint32", 7], ["scale", "float32", 0.5]]}}}

"arguments" lists input and output names where the kernel's order is not ours, "include" folders beside the kernel's.
Fields are laid out in order with natural alignment; the struct is padded to 8 bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_ops import check, contract, dtypes, sim, sim_build

CODES = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
    "float32": "f", "float64": "d",
}  # fmt: skip
STRUCT_ALIGNMENT = 8


def pack(fields: Sequence[Sequence[Any]]) -> bytes:
    """Little-endian bytes of a C struct.

    Args:
        fields: (name, type, value) in declaration order; a list as value is an array.

    Raises:
        HybridOpsError: unknown type.
    """
    data = b""
    for name, kind, value in fields:
        if kind not in CODES:
            raise check.refuse(
                "benchmark", f"peer tiling field {name}", "unknown type", got=kind, allowed=check.words(CODES),
                soc="any SoC",
            )  # fmt: skip
        size = struct.calcsize(CODES[kind])
        data += b"\0" * (-len(data) % size)
        values = value if isinstance(value, list) else [value]
        data += struct.pack(f"<{len(values)}{CODES[kind]}", *values)
    return data + b"\0" * (-len(data) % STRUCT_ALIGNMENT)


@dataclass(frozen=True)
class Peer:
    """A kernel file and what its tiling file says."""

    kernel: Path
    entry: str
    label: str
    soc: str
    workspace_bytes: int
    defines: Mapping[str, str | None]
    cases: Mapping[str, Mapping[str, Any]]
    arguments: Sequence[str] = ()
    include: Sequence[Path] = ()

    @classmethod
    def read(cls, kernel: Path, tiling: Path, soc: str) -> Peer:
        """Load the tiling file; `soc` is the SoC family the kernel is compiled for."""
        table = json.loads(tiling.read_text(encoding="utf-8"))
        return cls(
            kernel, table["entry"], table.get("label", table["entry"]), soc, table.get("workspace_bytes", 0),
            table.get("defines", {}), table["cases"], table.get("arguments", ()),
            [tiling.parent / folder for folder in table.get("include", ())],
        )  # fmt: skip

    def launch(
        self,
        op: str,
        arrays: Mapping[str, np.ndarray | None],
        batch: int | str,
        chip: str,
        *,
        attrs: Mapping[str, Any] | None = None,
        despite_reports: bool = False,
        **options: Any,
    ) -> sim.Result:
        """Run the kernel on the operator's inputs; outputs by name as `sim.launch` gives them.

        `attrs` are those of our operator, which its outputs' sizes may follow from. `despite_reports`: a kernel that breaks
        rules and still runs to its end is no error; `hazards` of the result say what it did.

        Raises:
            HybridOpsError: no tiling for that batch, or the kernel does not compile or breaks a rule.
        """
        plan = self.cases.get(str(batch))
        if plan is None:
            raise check.refuse(
                "benchmark",
                "peer tiling",
                "case missing",
                got=batch,
                allowed=check.words(self.cases),
                soc=chip,
            )
        found = contract.load()[op]
        library = sim_build.compile_kernel_file(
            self.kernel,
            self.entry,
            self.defines,
            self.soc,
            include=[self.kernel.parent, *self.include],
            name=f"peer-{self.entry}",
        )
        specs = {n: check.Spec(a.shape, dtypes.name_of(a.dtype)) for n, a in arrays.items() if a is not None}
        bound = check.call(found, self.soc, specs, attrs)
        inplace = {t.inplace for t in found.outputs if t.inplace}
        args = [
            sim.Argument(t.name, sim.INOUT if t.name in inplace else sim.INPUT, arrays.get(t.name))
            for t in found.inputs
        ]
        by_name = {a.name: a for a in args}
        for tensor in found.outputs:
            if tensor.inplace:
                args.append(by_name[tensor.inplace])
                continue
            spec = bound.outputs[tensor.name]
            size = int(np.prod(spec.shape)) * dtypes.NUMPY[spec.dtype].itemsize
            args.append(sim.Argument(tensor.name, sim.OUTPUT, size=size))
            by_name[tensor.name] = args[-1]
        if self.arguments:
            args = [by_name[name] for name in self.arguments]
        args.append(sim.Argument("workspace", sim.WORKSPACE, size=self.workspace_bytes))
        args.append(sim.Argument("tiling", sim.TILING, np.frombuffer(pack(plan["fields"]), np.uint8)))
        try:
            result = sim.launch_kernel(
                library, args, op=self.entry, soc=chip, block_dim=plan["block_dim"],
                tiling_key=plan.get("tiling_key", 0), **options,
            )  # fmt: skip
        except sim.SimulatorHazard as fault:
            if not despite_reports or fault.timing is None:
                raise
            result = sim.Result({}, [dict(h) for h in fault.hazards], dict(fault.timing))
        outputs = {n: by_name[n].array(spec.shape, spec.dtype) for n, spec in bound.outputs.items()}
        return sim.Result(outputs, result.hazards, result.timing, result.prints)
