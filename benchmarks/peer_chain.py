"""Runs somebody else's chunk gated delta rule, split as FLA splits it: states at the chunk borders, then outputs.

The folder holds `peer.json` and whatever it names (paths relative to the folder, or absolute):

    {"label": "name", "chunk": 64, "dtype": "float16",
     "soc": "ascend310p", "kernels": [
       {"kernel": "fwd_h.cpp", "entry": "function", "tiling_header": "fwd_h_tiling.h", "include": ["folder"],
        "force_include": ["shim.h"], "flags": ["-DX"], "cores": [1, 2],
        "arguments": ["k", "w", "u", "g", "initial_state", "cu_seqlens", "chunk_indices", "h", "v_new", "final_state"],
        "tiling": {"seqlen": "T", "scale": "scale"}, "workspace": {"vOffset": "cores * chunk * DV * 4"}}, …]}

`tiling_header` declares the struct by CANN's TILING_DATA_FIELD_DEF; the fields named under "tiling" get the value of an
expression over T, B, NK, NV, DK, DV, chunk, cores, float_state and scale, those under "workspace" the offset of an area of that many
bytes, all others 0. "cores" is cube and vector cores per AI Core on a chip that splits them. Arguments are head first:
q, k [1, NK, T, DK]; w [1, NV, T, DK], u [1, NV, T, DV] (the WY form of a chunk); g [1, NV, T] summed within chunks; states
[B, NV, DK, DV]; h [1, NV, chunks, DK, DV]; o [1, NV, T, DV]. The kernels run as compiled without auto-sync.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer import pack

from hybrid_ops import build, dtypes, sim, sim_build
from hybrid_ops import soc as platform

AREA = 512  # alignment of workspace areas
TYPES = {"bool": "uint8", "float": "float32", "int64_t": "int64", "int32_t": "int32", "uint32_t": "uint32"}
_STRUCT = re.compile(r"BEGIN_TILING_DATA_DEF\(\s*(\w+)\s*\)")
_FIELD = re.compile(r"TILING_DATA_FIELD_DEF\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def wy_form(key: np.ndarray, value: np.ndarray, beta: np.ndarray, g: np.ndarray, chunk: int):
    """w, u and the summed gates of every chunk, in float64, tokens first; T a multiple of `chunk`.

    (I + L) u = beta v and (I + L) w = beta exp(G) k, with L the part below the diagonal of beta k k^T exp(G_i - G_j).
    """
    heads = value.shape[1] // key.shape[1]
    k = np.repeat(key.astype(np.float64), heads, axis=1)
    w, u, sums = np.empty_like(k), np.empty(value.shape), np.empty(g.shape)
    below = np.tril(np.ones((chunk, chunk)), -1)[..., None]
    for begin in range(0, len(key), chunk):
        rows = slice(begin, begin + chunk)
        total = np.cumsum(g[rows].astype(np.float64), axis=0)
        b = beta[rows].astype(np.float64)
        decay = np.exp(np.minimum(total[:, None] - total[None], 0))
        left = below * decay * np.einsum("ihd,jhd->ijh", k[rows], k[rows]) * b[:, None]
        system = np.eye(chunk) + left.transpose(2, 0, 1)
        solve = np.linalg.solve(system, np.concatenate([
            (value[rows] * b[..., None]), k[rows] * (b * np.exp(total))[..., None],
        ], axis=-1).transpose(1, 0, 2))  # fmt: skip
        solved = solve.transpose(1, 0, 2)
        u[rows], w[rows], sums[rows] = solved[..., : value.shape[-1]], solved[..., value.shape[-1] :], total
    return w, u, sums


def _head_first(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a.swapaxes(0, 1)[None])


def _value(expression: str | int | float, names: Mapping[str, float]) -> Any:
    return eval(str(expression), {"__builtins__": {}}, dict(names))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a chain, as peer.json describes it."""

    folder: Path
    plan: Mapping[str, Any]

    def _path(self, name: str) -> Path:
        return (self.folder / name).resolve()

    def _struct(self) -> tuple[str, list[tuple[str, str]]]:
        text = self._path(self.plan["tiling_header"]).read_text(encoding="utf-8")
        name = _STRUCT.search(text)
        assert name, f"{self.plan['tiling_header']}: no BEGIN_TILING_DATA_DEF"
        return name[1], _FIELD.findall(text)

    def library(self, soc: str, core: str) -> Path:
        struct, fields = self._struct()
        members = "".join(f"    {kind} {name};\n" for kind, name in fields)
        header = build.cache_dir() / f"peer-{self.plan['entry']}-tiling.h"
        header.write_text(
            f"#pragma once\n#include <cstdint>\nstruct {struct} {{\n{members}}};\n", encoding="utf-8"
        )
        forced = [
            "kernel_operator.h",
            str(header),
            *(str(self._path(f)) for f in self.plan.get("force_include", ())),
        ]
        flags = [word for file in forced for word in ("-include", file)]
        return sim_build.compile_kernel_file(
            self._path(self.plan["kernel"]), self.plan["entry"], ["-w", *self.plan.get("flags", ()), *flags], soc,
            include=[self._path(f) for f in self.plan.get("include", ())],
            name=f"peer-{self.plan['entry']}-{soc}", core=core,
        )  # fmt: skip

    def tiling(self, names: Mapping[str, float]) -> tuple[bytes, int]:
        """The struct's bytes and the bytes of workspace."""
        offsets, used = {}, 0
        for name, size in self.plan.get("workspace", {}).items():
            offsets[name] = used
            used += -(-int(_value(size, names)) // AREA) * AREA
        given = {n: _value(e, names) for n, e in self.plan["tiling"].items()} | offsets
        unknown = set(given) - {name for _, name in self._struct()[1]}
        assert not unknown, f"{self.plan['entry']}: not in its tiling struct: {sorted(unknown)}"
        fields = [
            (name, TYPES[kind], float(given.get(name, 0)) if kind == "float" else int(given.get(name, 0)))
            for kind, name in self._struct()[1]
        ]
        return pack(fields), used


@dataclass(frozen=True)
class ChainResult:
    """out [T, NV, DV] and final_state [B, NV, DV, DK], and the timing report of each kernel by its entry."""

    outputs: dict[str, np.ndarray]
    timings: dict[str, dict[str, Any]]
    hazards: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Chain:
    """A folder's kernels."""

    label: str
    soc: str
    chunk: int
    dtype: str
    kernels: Sequence[Kernel]

    @classmethod
    def read(cls, folder: Path) -> Chain:
        table = json.loads((folder / "peer.json").read_text(encoding="utf-8"))
        kernels = [Kernel(folder, plan) for plan in table["kernels"]]
        return cls(table["label"], table["soc"], table["chunk"], table["dtype"], kernels)

    def run(
        self, arrays: Mapping[str, np.ndarray], scale: float, chip: str, *, checks: str = "full"
    ) -> ChainResult:
        """Run every kernel in turn on inputs of `chunk_gated_delta_rule` (one sequence, T a multiple of the chunk).

        A kernel that breaks a rule is run again without checks: `hazards` says what it did.

        Raises:
            HybridOpsError: a kernel does not compile or cannot go on.
        """
        tokens, nk, dk = arrays["key"].shape
        nv, dv = arrays["value"].shape[1:]
        assert len(arrays["actual_seq_lengths"]) == 1 and tokens % self.chunk == 0
        kind, held = dtypes.NUMPY[self.dtype], arrays["initial_state"].dtype
        figures = platform.load(chip).figures
        split = bool(figures["cores.split"])
        names = {
            "T": tokens, "B": 1, "NK": nk, "NV": nv, "DK": dk, "DV": dv, "chunk": self.chunk, "scale": scale,
            "cores": figures["cores.ai"], "float_state": int(held == np.float32),
        }  # fmt: skip
        w, u, sums = wy_form(*(arrays[n] for n in ("key", "value", "beta", "g")), self.chunk)
        chunks = tokens // self.chunk
        indices = np.stack([np.zeros(chunks, np.int64), np.arange(chunks)], -1)
        given: dict[str, np.ndarray] = {
            "q": _head_first(arrays["query"].astype(kind)), "k": _head_first(arrays["key"].astype(kind)),
            "w": _head_first(w.astype(kind)), "u": _head_first(u.astype(kind)), "g": _head_first(sums.astype(np.float32)),
            "initial_state": np.ascontiguousarray(arrays["initial_state"].swapaxes(2, 3)),
            "cu_seqlens": np.array([0, tokens], np.int64), "chunk_indices": indices,
        }  # fmt: skip
        made = {
            "h": ((1, nv, chunks, dk, dv), kind), "v_new": ((1, nv, tokens, dv), kind), "o": ((1, nv, tokens, dv), kind),
            "final_state": ((1, nv, dk, dv), held),
        }  # fmt: skip
        timings, hazards = {}, {}
        for kernel in self.kernels:
            tiling, bytes_ = kernel.tiling(names)
            cube, vectors = kernel.plan.get("cores", (0, 0)) if split else (0, 0)

            def launch(checks: str, kernel=kernel, cube=cube, vectors=vectors, tiling=tiling, bytes_=bytes_):
                args = []
                for name in kernel.plan["arguments"]:
                    if name in given:
                        args.append(sim.Argument(name, sim.INPUT, given[name]))
                        continue
                    shape, dtype = made[name]
                    args.append(
                        sim.Argument(name, sim.OUTPUT, size=int(np.prod(shape)) * np.dtype(dtype).itemsize)
                    )
                args.append(sim.Argument("workspace", sim.WORKSPACE, size=bytes_))
                args.append(sim.Argument("tiling", sim.TILING, np.frombuffer(tiling, np.uint8)))
                return args, sim.launch_kernel(
                    kernel.library(self.soc, "vector"), args, op=kernel.plan["entry"], soc=chip, checks=checks,
                    block_dim=int(names["cores"]), auto_sync=False, record=True, vectors=vectors,
                    cube_library=kernel.library(self.soc, "cube") if cube else None,
                )  # fmt: skip

            reports: list[dict[str, Any]] = []
            if checks == "full":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", sim.SimulatorWarning)
                    try:
                        args, result = launch("full")
                        reports = result.hazards
                    except sim.SimulatorHazard as fault:
                        reports = fault.hazards
                        args, result = launch("off")
            else:
                args, result = launch("off")
            for argument in args:
                if argument.name in made:
                    shape, dtype = made[argument.name]
                    given[argument.name] = argument.bytes.view(dtype).reshape(shape)
            timings[kernel.plan["entry"]] = result.timing or {}
            hazards[kernel.plan["entry"]] = reports
        outputs = {"out": given["o"][0].swapaxes(0, 1), "final_state": given["final_state"].swapaxes(2, 3)}
        return ChainResult(outputs, timings, hazards)
