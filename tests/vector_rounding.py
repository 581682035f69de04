"""Reference of Cast: exact values rounded to a type in each rounding mode."""

from __future__ import annotations

import numpy as np

MODES = ["NONE", "RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD"]


def to_integral(x: np.ndarray, mode: str) -> np.ndarray:
    x = x.astype(np.float64)
    away = np.trunc(x + np.copysign(0.5, x))
    return {
        "NONE": np.rint,
        "RINT": np.rint,
        "FLOOR": np.floor,
        "CEIL": np.ceil,
        "TRUNC": np.trunc,
        "ROUND": lambda _: away,
    }[mode](x)


def to_float(x: np.ndarray, dtype: np.dtype, mode: str) -> np.ndarray:
    """Rounds exact values (fp64 or int64) to a float type by looking at the neighbours."""
    bits = np.dtype(f"i{dtype.itemsize}")
    near = x.astype(dtype)
    exact = x.astype(np.longdouble)
    up = near.astype(np.longdouble)
    step = lambda v, by: (v.view(bits) + by).view(dtype)  # noqa: E731
    # Neighbours by magnitude: low is towards zero.
    too_big = np.abs(up) > np.abs(exact)
    low = np.where(too_big, step(near, -1), near)
    high = np.where(too_big, near, step(near, 1))
    inexact = low.astype(np.longdouble) != exact
    negative = exact < 0
    middle = np.abs(low.astype(np.longdouble)) + np.abs(high.astype(np.longdouble)) <= 2 * np.abs(exact)
    pick = {"FLOOR": negative, "CEIL": ~negative, "TRUNC": np.zeros_like(negative), "ROUND": middle,
            "ODD": low.view(bits) & 1 == 0}.get(mode)  # fmt: skip
    rounded = (
        near
        if pick is None
        else np.where(inexact & np.isfinite(exact) & pick, high, np.where(np.isfinite(exact), low, near))
    )
    limit = (
        {2: 65504.0, 4: 3.4028235e38}[dtype.itemsize]
        if dtype.kind == "f"
        else float(np.float32(3.3895314e38))
    )
    finite = np.isfinite(exact)
    top = np.array(limit).astype(dtype)
    return np.where(
        finite & ~np.isfinite(rounded.astype(np.float64)),
        np.where(negative, -top, top).astype(dtype),
        rounded,
    )


def cast(d: np.dtype, mode: str, soc: str):
    def convert(_, x):
        if d.kind in "iu":
            values = to_integral(x, mode) if x.dtype.kind not in "iu" else x
            info = np.iinfo(d)
            if values.dtype.kind == "f":
                values = np.where(np.isnan(values), 0, values)
                exact = np.clip(values, float(info.min), float(info.max))
                return (
                    np.where(
                        values >= float(info.max),
                        info.max,
                        np.where(values <= float(info.min), info.min, exact),
                    )
                    .astype(object)
                    .astype(d)
                )
            return np.clip(values, info.min, info.max).astype(d)
        if x.dtype == d:
            return to_integral(x, mode).astype(d)
        return to_float(x.astype(np.float64) if x.dtype.kind != "i" else x, d, mode)

    return convert
