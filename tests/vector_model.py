"""NumPy meaning of the simulator's vector calls on an image of the unified buffer, and the launcher for the test kernel."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from hybrid_ops import sim

KERNEL = Path(__file__).parent / "kernels" / "vector_calls.cpp"
SOCS = ("ascend310p", "ascend910b")
IMAGE = 65536
TYPES = {
    "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8), "i16": np.dtype(np.int16), "u16": np.dtype(np.uint16), "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32), "i64": np.dtype(np.int64),
}  # fmt: skip
COUNT, PREFIX, BITS, REGISTER, COUNTER = range(5)


@cache
def libraries() -> dict[str, Path]:
    """The test kernel for both SoCs, compiled side by side; -O1 halves the compile time."""
    build = lambda soc: sim.compile_kernel_file(KERNEL, "vector_calls", ["-O1"], soc)  # noqa: E731
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(SOCS, pool.map(build, SOCS), strict=True))


@dataclass
class Call:
    """Arguments of one vector call, as the test kernel's Case has them. Offsets in bytes, strides in 32-byte blocks."""

    call: str
    form: int = COUNT
    count: int = 0
    mask: tuple[int, int] = (0, 0)
    repeat: int = 1
    dst: int = 0
    src: tuple[int, int] = (16384, 32768)
    blk: tuple[int, int, int] = (1, 1, 1)
    rep: tuple[int, int, int] = (8, 8, 8)
    scalar: float = 0.0
    mode: int = 0
    extra: int = 0
    hazards: list = field(default_factory=list)

    def pack(self) -> np.ndarray:
        data = struct.pack(
            "32s2i2Q4i6ifii", self.call.encode(), self.form, self.count, *self.mask, self.repeat, self.dst, *self.src,
            *self.blk, *self.rep, self.scalar, self.mode, self.extra,
        )  # fmt: skip
        return np.frombuffer(data, np.uint8)


def run(
    call: Call, image: np.ndarray, soc: str, *, checks: str = "full", figures: dict | None = None
) -> np.ndarray:
    """The image after the call; raises what the simulator raises and keeps its reports in `call.hazards`."""
    args = [
        sim.Argument("image", sim.INPUT, image),
        sim.Argument("result", sim.OUTPUT, size=IMAGE),
        sim.Argument("tiling", sim.TILING, call.pack()),
    ]
    result = sim.launch_kernel(
        libraries()[soc], args, op="vector_calls", soc=soc, block_dim=1, checks=checks, figures=figures
    )
    call.hazards = result.hazards
    return args[1].bytes.copy()


def lanes(call: Call, per_repeat: int) -> np.ndarray:
    """Boolean (repeat, lane): what the call's mask activates."""
    if call.form in (COUNT, COUNTER):
        repeats = -(-call.count // per_repeat)
        return (np.arange(repeats * per_repeat) < call.count).reshape(repeats, per_repeat)
    lane = np.arange(per_repeat)
    if call.form == PREFIX:
        on = lane < call.mask[0]
    else:
        on = np.array([call.mask[i // 64] >> (i % 64) & 1 for i in lane], bool)
    return np.tile(on, (call.repeat, 1))


def addresses(call: Call, on: np.ndarray, base: int, blk: int, rep: int, size: int) -> np.ndarray:
    """Byte address of every (repeat, lane) of an operand; contiguous for the count form."""
    repeats, per_repeat = on.shape
    r, lane = np.ogrid[:repeats, :per_repeat]
    if call.form == COUNT:
        return base + (r * per_repeat + lane) * size
    per_block = 32 // size
    return base + r * rep * 32 + lane // per_block * blk * 32 + lane % per_block * size


def load(image: np.ndarray, at: np.ndarray, dtype: np.dtype) -> np.ndarray:
    index = at[..., None] + np.arange(dtype.itemsize)
    return np.ascontiguousarray(image[index]).view(dtype)[..., 0]


def store(image: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
    raw = np.ascontiguousarray(values)[..., None].view(np.uint8)
    image[at[..., None] + np.arange(values.dtype.itemsize)] = raw


def saturate(values: np.ndarray, soc: str) -> np.ndarray:
    """Results of fp16 arithmetic: 310P has no infinity (default of its soc file)."""
    if soc == "ascend310p" and values.dtype == np.float16:
        return np.clip(values, np.float16(-65504), np.float16(65504))
    return values


def tree(values: np.ndarray, soc: str) -> np.ndarray:
    """Sum over the last axis (a power of two) by adjacent pairs, every node rounded."""
    while values.shape[-1] > 1:
        values = saturate(values[..., 0::2] + values[..., 1::2], soc)
    return values[..., 0]


def elementwise(
    call: Call, image: np.ndarray, dtypes: Sequence[np.dtype], function: Callable[..., np.ndarray], soc: str
) -> np.ndarray:
    """Expected image: dst[lane] = function(src lanes…) on active lanes; dtypes of dst and each source."""
    expected = image.copy()
    per_repeat = 256 // max(d.itemsize for d in dtypes)
    on = lanes(call, per_repeat)
    where = [
        addresses(call, on, base, blk, rep, d.itemsize)
        for d, base, blk, rep in zip(dtypes, (call.dst, *call.src), call.blk, call.rep, strict=False)
    ]
    with np.errstate(all="ignore"):
        sources = [load(image, at, d) for at, d in zip(where[1:], dtypes[1:], strict=True)]
        values = saturate(function(load(image, where[0], dtypes[0]), *sources).astype(dtypes[0]), soc)
    store(expected, where[0][on], values[on])
    return expected


def same(actual: np.ndarray, expected: np.ndarray, dtype: np.dtype, ulp: int = 0) -> None:
    """Bitwise, except that any NaN equals any NaN, and that floats may differ by `ulp` units in the last place."""
    a, e = actual.view(dtype), expected.view(dtype)
    if dtype.kind in "fV":
        with np.errstate(all="ignore"):
            nan = np.isnan(a.astype(np.float64)) & np.isnan(e.astype(np.float64))
        bits = np.dtype(f"i{dtype.itemsize}")
        distance = np.abs(a.view(bits).astype(np.int64) - e.view(bits).astype(np.int64))
        wrong = ~nan & (distance > ulp)
    else:
        wrong = a != e
    where = np.flatnonzero(wrong)
    assert not len(where), (
        f"{len(where)} elements differ, first {where[0]}: got {a[where[0]]}, expected {e[where[0]]}"
    )


SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 6e-8, -6e-8, 1.0, 1e-4, 60000.0]


def seed_of(*key: object) -> np.random.Generator:
    """A generator that depends on the names only."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def floats(rng: np.random.Generator, dtype: np.dtype, specials: bool = True) -> np.ndarray:
    values = (
        rng.standard_normal(IMAGE // dtype.itemsize) * rng.choice([0.1, 1, 30], IMAGE // dtype.itemsize)
    ).astype(dtype)
    if specials:
        values[rng.integers(0, values.size, values.size // 40)] = np.resize(
            np.array(SPECIALS).astype(dtype), values.size // 40
        )
    return values.view(np.uint8).copy()


def image_of(rng: np.random.Generator, dtype: np.dtype, specials: bool = True) -> np.ndarray:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return (
            rng.integers(info.min, info.max, IMAGE // dtype.itemsize, dtype, endpoint=True)
            .view(np.uint8)
            .copy()
        )
    return floats(rng, dtype, specials)


def check(call: Call, dtypes, function, soc: str, image: np.ndarray, ulp: int = 0) -> None:
    expected = elementwise(call, image, dtypes, function, soc)
    same(run(call, image, soc), expected, dtypes[0], ulp)
    assert [h["rule"] for h in call.hazards if h["severity"] == "error"] == []


def masked(call: Call, image: np.ndarray, d: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    on = lanes(call, 256 // d.itemsize)
    return load(image, addresses(call, on, call.src[0], call.blk[1], call.rep[1], d.itemsize), d), on
