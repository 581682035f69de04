"""Reads where the tensors of a safetensors checkpoint lie, without reading them.

Format (huggingface/safetensors): 8 bytes little-endian header length, a JSON header name -> {dtype, shape,
data_offsets relative to the end of the header}, then the data. Several files are joined by an index JSON.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir

from hybrid_ops import check

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_HEADER = 100_000_000  # the format's own limit, bytes
DTYPES: dict[str, Any] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def _refuse(wrong: str, got: object, allowed: str) -> check.HybridOpsError:
    return check.refuse("export", "checkpoint", wrong, got=got, allowed=allowed, soc="every SoC")


@dataclass(frozen=True)
class Entry:
    """One tensor: its file, numpy dtype, shape, and byte range in the file."""

    name: str
    file: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def array(self) -> np.ndarray:
        """The values, mapped from the file (read-only)."""
        count = math.prod(self.shape)
        if not count:
            return np.zeros(self.shape, self.dtype)
        flat = np.memmap(self.file, np.uint8, "r", self.offset, (self.nbytes,))
        return flat.view(self.dtype).reshape(self.shape)

    def external(self, base: Path) -> onnx_ir.ExternalTensor:
        """A tensor of an ONNX model in folder `base` whose data are this byte range."""
        return onnx_ir.ExternalTensor(
            str(self.file.relative_to(base)),
            self.offset,
            self.nbytes,
            onnx_ir.DataType.from_numpy(self.dtype),
            shape=onnx_ir.Shape(self.shape),
            name=self.name,
            base_dir=str(base),
        )


class Checkpoint:
    """All tensors of a folder, by name.

    Errors: HybridOpsError for a folder without safetensors, a missing or truncated file, a header that is no header,
    a tensor type that no exported graph has.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / INDEX
        if index.exists():
            try:
                names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            except (ValueError, KeyError, AttributeError) as error:
                raise _refuse(
                    "index cannot be read", f"{index} ({error})", "a JSON with weight_map"
                ) from error
            files = [folder / name for name in names]
        else:
            files = [folder / SINGLE]
        self.entries: dict[str, Entry] = {}
        for file in files:
            if not file.exists():
                raise _refuse("file is missing", file, f"{SINGLE}, or {INDEX} and its files")
            for entry in read_header(file):
                self.entries[entry.name] = entry

    def find(self, name: str) -> Entry | None:
        """The tensor that a text model calls `name`; vision-language checkpoints nest it, tied heads leave it out."""
        tail = name.removeprefix("model.")
        candidates = [name, f"model.language_model.{tail}", f"language_model.model.{tail}"]
        if name == "lm_head.weight":
            candidates.append("language_model.lm_head.weight")
        found = next((self.entries[n] for n in candidates if n in self.entries), None)
        if found is None and name == "lm_head.weight":
            return self.find("model.embed_tokens.weight")
        return found


def read_header(file: Path) -> list[Entry]:
    """Entries of one file, checked against its size."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
            raise _refuse("no safetensors file", f"{file} of {size} bytes", "a complete file")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise _refuse("header cannot be read", f"{file} ({error})", "a safetensors file") from error
    entries = []
    for name, fields in header.items():
        if name == "__metadata__":
            continue
        begin, end = fields["data_offsets"]
        dtype, shape = DTYPES.get(fields["dtype"]), tuple(fields["shape"])
        if dtype is None:
            continue  # e.g. quantised weights; missing only if the graph needs it
        if end - begin != math.prod(shape) * dtype.itemsize or 8 + length + end > size:
            raise _refuse(
                "file is truncated", f"{file}: {name} ends at byte {8 + length + end} of {size}", "all of it"
            )
        entries.append(Entry(name, file, dtype, shape, 8 + length + begin, end - begin))
    return entries
