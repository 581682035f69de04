"""Vector calls that move or reduce elements: gathers, reductions, compare and select, transposes, sorts, high level."""

from __future__ import annotations

import numpy as np
import pytest
from vector_model import (
    BITS,
    COUNT,
    IMAGE,
    PREFIX,
    TYPES,
    Call,
    check,
    floats,
    image_of,
    lanes,
    masked,
    run,
    same,
    saturate,
    seed_of,
    store,
    tree,
)

from hybrid_ops import sim

F16, F32 = TYPES["f16"], TYPES["f32"]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_gathers(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("gather", dtype)
    image, per_repeat = floats(rng, d, specials=False), 256 // d.itemsize
    picks = rng.integers(0, 1000, 512)
    image[32768:].view(np.uint32)[:512] = picks * d.itemsize
    source = image[16384:].view(d)
    call = Call(f"Gather.{dtype}", COUNT, count=301, extra=64)
    chosen = source[picks + 64 // d.itemsize]
    check(call, (d,), lambda x: chosen[: x.size].reshape(x.shape) if x.size <= 512 else x, soc, image)
    call = Call(f"Gather.{dtype}", PREFIX, mask=(per_repeat - 1, 0), repeat=2, rep=(9, 0, 0))
    check(call, (d,), lambda x: source[picks][: x.size].reshape(x.shape), soc, image)
    expected = image.copy()
    if soc == "ascend310p":
        order = rng.permutation(512)
        image[32768:].view(np.uint32)[:512] = order * d.itemsize
        expected = image.copy()
        expected[: 512 * d.itemsize].view(d)[order[:200]] = source[:200]
        same(run(Call(f"Scatter.{dtype}", COUNT, count=200), image, soc), expected, d)
    else:
        blocks = rng.integers(0, 100, 24)
        image[32768:].view(np.uint32)[:24] = blocks * 32
        expected = image.copy()
        for i, b in enumerate(blocks):
            start = (i // 8 * 17 + i % 8 * 2) * 32
            expected[start : start + 32] = image[16384 + b * 32 : 16384 + b * 32 + 32]
        same(run(Call(f"Gatherb.{dtype}", repeat=3, blk=(2, 0, 0), rep=(17, 0, 0)), image, soc), expected, d)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_gather_mask(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("gathermask", dtype)
    image, per_repeat = image_of(rng, d), 256 // d.itemsize
    source = image[16384:].view(d)
    for mode, keep in ((1, [0]), (2, [1]), (3, [0, 4]), (6, [3, 7])):
        call = Call(f"GatherMask.{dtype}", repeat=3, dst=64, mode=mode, extra=0)
        x = source[: per_repeat * 3]
        kept = x[[i for i in range(x.size) if (i % 4 == keep[0] % 4 if len(keep) > 1 else i % 2 == keep[0])]]
        result = run(call, image, soc)
        assert result[:4].view(np.uint32)[0] == kept.size
        same(result[64 : 64 + kept.nbytes], kept.view(np.uint8), d)
        assert (result[64 + kept.nbytes : 16384] == image[64 + kept.nbytes : 16384]).all()
    pattern = np.unpackbits(image[32768 : 32768 + 32 * 4], bitorder="little")
    if soc == "ascend310p":  # mask counts all elements
        x, bits, call = (
            source[:150],
            pattern[:150],
            Call(f"GatherMask.{dtype}", repeat=9, dst=64, count=150, extra=1, rep=(0, 8, 0)),
        )
        bits = np.concatenate([pattern[: min(per_repeat, 150 - at)] for at in range(0, 150, per_repeat)])
    else:  # mask counts the elements of one repeat
        n = per_repeat - 7
        call = Call(f"GatherMask.{dtype}", repeat=2, dst=64, count=n, extra=1, rep=(0, 9, 1))
        x = np.concatenate([source[:n], source[9 * 32 // d.itemsize :][:n]])
        bits = np.concatenate([pattern[:n], pattern[256 : 256 + n]])
    kept = x[bits.astype(bool)]
    result = run(call, image, soc)
    assert result[:4].view(np.uint32)[0] == kept.size
    same(result[64 : 64 + kept.nbytes], kept.view(np.uint8), d)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_reductions_in_a_repeat(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("reduce", dtype)
    per_repeat, per_block = 256 // d.itemsize, 32 // d.itemsize
    image = floats(rng, d, specials=False)
    image[16384:].view(d)[:50] *= d.type(500)
    shapes = [
        dict(form=PREFIX, mask=(per_repeat, 0), repeat=4), dict(form=PREFIX, mask=(per_repeat - 5, 0), repeat=2, blk=(1, 2, 1), rep=(2, 17, 0)),
        dict(form=BITS, mask=(0xFFFF00F0000F1, 0), repeat=3, rep=(1, 8, 0)),
    ]  # fmt: skip
    for shape in shapes:
        base = Call("", **{"rep": (1, 8, 8), **shape})
        x, on = masked(base, image, d)
        zeros = np.where(on, x, d.type(0))
        by_block = lambda a: a.reshape(a.shape[0], 8, per_block)  # noqa: E731
        block_on = by_block(on).any(-1)
        for name, values in (
            ("BlockReduceSum", tree(by_block(zeros), soc)), ("BlockReduceMax", by_block(np.where(on, x, d.type(-np.inf))).max(-1)),
            ("BlockReduceMin", by_block(np.where(on, x, d.type(np.inf))).min(-1)),
        ):  # fmt: skip
            expected = image.copy()
            at = (np.arange(x.shape[0])[:, None] * base.rep[0] * 8 + np.arange(8)) * d.itemsize
            store(expected, at[block_on], values[block_on])
            same(run(Call(**{**vars(base), "call": f"{name}.{dtype}"}), image, soc), expected, d)
        expected = image.copy()
        pairs = saturate(zeros[:, 0::2] + zeros[:, 1::2], soc)
        pair_on = on[:, 0::2] | on[:, 1::2]
        at = np.arange(x.shape[0])[:, None] * base.rep[0] * 128 + np.arange(per_repeat // 2) * d.itemsize
        store(expected, at[pair_on], pairs[pair_on])
        same(run(Call(**{**vars(base), "call": f"PairReduceSum.{dtype}"}), image, soc), expected, d)
        expected = image.copy()
        store(expected, np.arange(x.shape[0]) * base.rep[0] * d.itemsize, tree(zeros, soc))
        names = ["WholeReduceSum", "vcadd"] if base.mask[0] == per_repeat else ["WholeReduceSum"]
        if base.form == PREFIX:
            names.append("RepeatReduceSum")
        else:
            names.append("ReduceRepeat")
        for name in names:
            same(run(Call(**{**vars(base), "call": f"{name}.{dtype}"}), image, soc), expected, d)
        for name, fill, arg in (
            ("WholeReduceMax", -np.inf, np.argmax),
            ("WholeReduceMin", np.inf, np.argmin),
        ):
            filled = np.where(on, x, d.type(fill))
            index = arg(filled, -1)
            for mode in (0, 1):
                expected = image.copy()
                value = np.take_along_axis(filled, index[:, None], -1)[:, 0].view(f"u{d.itemsize}")
                cells = np.stack([value, index.astype(value.dtype)][:: 1 if mode == 0 else -1], -1)
                at = (np.arange(x.shape[0])[:, None] * base.rep[0] * 2 + np.arange(2)) * d.itemsize
                store(expected, at, cells)
                same(
                    run(Call(**{**vars(base), "call": f"{name}.{dtype}", "mode": mode}), image, soc),
                    expected,
                    d,
                )
    only = Call(f"WholeReduceMax.{dtype}", PREFIX, mask=(per_repeat, 0), repeat=2, rep=(1, 8, 8), mode=2)
    if soc == "ascend310p":
        with pytest.raises(sim.SimulatorHazard, match=r"ORDER_ONLY_VALUE.*ascend310p"):
            run(only, image, soc)
    else:
        x, _ = masked(only, image, d)
        assert (run(only, image, soc)[: 2 * d.itemsize].view(d) == x.max(-1)).all()


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_reductions_over_all(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("reduceall", dtype)
    per_repeat = 256 // d.itemsize
    image = floats(rng, d, specials=False)
    source = image[16384:].view(d)

    def passes(x: np.ndarray) -> np.ndarray:  # tree of trees, zero padded
        while x.size > 1:
            padded = np.zeros(-(-x.size // per_repeat) * per_repeat, d)
            padded[: x.size] = x
            x = tree(padded.reshape(-1, per_repeat), soc)
        return x

    def repeats(x: np.ndarray) -> np.ndarray:
        padded = np.zeros(-(-x.size // per_repeat) * per_repeat, d)
        padded[: x.size] = x
        return tree(padded.reshape(-1, per_repeat), soc)

    for count in (1, per_repeat - 1, per_repeat, per_repeat * 3 + 7, per_repeat * 20):
        x = source[:count]
        whole = count // per_repeat * per_repeat
        if soc == "ascend310p":  # whole repeats by tree, the tail on top
            parts = [passes(repeats(x[:whole]))] if whole else []
            parts += [repeats(x[whole:])] if count > whole else []
            total = saturate(parts[0] + parts[1], soc) if len(parts) == 2 else parts[0]
        else:  # repeats one after the other
            sums = repeats(x)
            total = sums[:1]
            for s in sums[1:]:
                total = total + s
        assert (
            run(Call(f"ReduceSum.{dtype}", COUNT, count=count), image, soc)[: d.itemsize].view(d)[0]
            == total[0]
        ), count
        for name, arg in (("ReduceMax", np.argmax), ("ReduceMin", np.argmin)):
            result = run(Call(f"{name}.{dtype}", COUNT, count=count, mode=1), image, soc)
            assert result[: d.itemsize].view(d)[0] == x[arg(x)]
            assert result[d.itemsize : 2 * d.itemsize].view(f"u{d.itemsize}")[0] == arg(x)
    call = Call(
        f"ReduceSum.{dtype}",
        PREFIX,
        mask=(per_repeat - 3, 0),
        repeat=70,
        rep=(1, 8, 8),
        src=(16384, 16384 + 70 * 256),
    )
    x, on = masked(call, image, d)
    assert run(call, image, soc)[: d.itemsize].view(d)[0] == passes(tree(np.where(on, x, d.type(0)), soc))[0]
    short = Call(
        f"ReduceSum.{dtype}",
        PREFIX,
        mask=(per_repeat, 0),
        repeat=70,
        rep=(1, 8, 8),
        src=(16384, 40960),
        extra=32 // d.itemsize,
    )
    with pytest.raises(sim.SimulatorHazard, match="sharedTmpBuffer: too small"):
        run(short, image, soc)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_compare_and_select(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("cmp", dtype)
    per_repeat = 256 // d.itemsize
    image = rng.integers(-3, 4, IMAGE // d.itemsize).astype(d).view(np.uint8).copy()
    a, b = image[16384:].view(d), image[32768:].view(d)
    operators = [np.less, np.greater, np.equal, np.less_equal, np.greater_equal, np.not_equal]
    for mode, operator in enumerate(operators):
        n = per_repeat * 3
        for call, right in ((Call(f"Compare.{dtype}", COUNT, count=n, mode=mode), b[:n]),
                            (Call(f"CompareScalar.{dtype}", PREFIX, repeat=3, mode=mode, scalar=1.0), 1.0)):  # fmt: skip
            expected = image.copy()
            expected[: n // 8] = np.packbits(operator(a[:n], right), bitorder="little")
            same(run(call, image, soc), expected, np.dtype(np.uint8))
    bits = np.unpackbits(image[49152:], bitorder="little").astype(bool)
    image[49152:] = rng.integers(0, 256, 16384).astype(np.uint8)
    bits = np.unpackbits(image[49152:], bitorder="little").astype(bool)
    for call in (Call("", COUNT, count=per_repeat * 2 + 5), Call("", PREFIX, mask=(per_repeat - 1, 0), repeat=3, blk=(1, 1, 2), rep=(9, 8, 16)),
                 Call("", BITS, mask=(0x123456789ABCD, 0), repeat=2)):  # fmt: skip
        call.call, call.extra = f"Select.{dtype}", 49152
        for mode in (0, 2):
            call.mode = mode
            on = lanes(call, per_repeat)
            chosen = (
                np.tile(bits[:per_repeat], (on.shape[0], 1))
                if mode == 0
                else bits[: on.size].reshape(on.shape)
            )
            check(call, (d, d, d), lambda _, x, y, chosen=chosen: np.where(chosen, x, y), soc, image)
    scalar = Call(f"SelectScalar.{dtype}", COUNT, count=per_repeat + 9, extra=49152, mode=1, scalar=-7.0)
    on = lanes(scalar, per_repeat)
    check(scalar, (d, d), lambda _, x: np.where(bits[: on.size].reshape(on.shape), x, d.type(-7)), soc, image)
    register = Call(f"CompareRegister.{dtype}", PREFIX, mask=(per_repeat, 0), repeat=2, mode=0)
    first = a[:per_repeat] < b[:per_repeat]
    check(register, (d, d, d), lambda _, x, y: np.where(first, x, y), soc, image)


def test_transposes(soc: str) -> None:
    for dtype, columns in (("f16", 16), ("u16", 16), ("f32", 8)):
        d = TYPES[dtype]
        image = image_of(seed_of("rows", dtype), d)
        rows = image[16384:].view(d)[: 16 * columns * 2].reshape(16, 2, columns)  # row i, repeat r
        call = Call(f"TransDataTo5HD.{dtype}", repeat=2, blk=(1, 2, 0), rep=(16, 1, 0))
        expected = image.copy()
        for r in range(2):
            x = rows[:, r, :]
            out = x.T if columns == 16 else x.T.reshape(8, 2, 8).reshape(16, 8)
            expected[r * 512 : r * 512 + 512] = np.ascontiguousarray(out).view(np.uint8).ravel()
        same(run(call, image, soc), expected, np.dtype(np.uint8))
    image = image_of(seed_of("rows8"), TYPES["i8"])
    expected = image.copy()
    rows = image[16384 : 16384 + 512].reshape(16, 32)
    expected[:512].reshape(16, 32)[:, 16:] = rows[:, :16].T
    same(run(Call("TransDataTo5HD.i8", repeat=1, mode=1), image, soc), expected, np.dtype(np.uint8))
    image = image_of(seed_of("square"), F16)
    expected = image.copy()
    expected[:512] = (
        np.ascontiguousarray(image[16384 : 16384 + 512].view(np.uint16).reshape(16, 16).T)
        .view(np.uint8)
        .ravel()
    )
    same(run(Call("Transpose.f16"), image, soc), expected, np.dtype(np.uint8))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_high_level(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("adv", dtype)
    image = floats(rng, d, specials=False)
    x = image[16384:].view(d)
    with np.errstate(over="ignore"):
        negated = np.exp((x[:500] * d.type(-1)).astype(np.float64)).astype(d)
        bottom = saturate(saturate(negated, soc) + d.type(1), soc)
        sigmoid, silu = d.type(1) / bottom, x[:500] / bottom
    for call, expected in ((Call(f"Sigmoid.{dtype}", count=500, extra=256), sigmoid), (Call(f"SigmoidOwn.{dtype}", count=500), sigmoid),
                           (Call(f"Silu.{dtype}", count=500), silu)):  # fmt: skip
        call.src = (16384, 32768)
        same(run(call, image, soc)[: 500 * d.itemsize], expected.view(np.uint8), d, ulp=1)
    for name, values in (("BroadcastLast", np.repeat(x[:16], 24)), ("BroadcastFirst", np.tile(x[:32], 16))):
        shape = (16, values.size // 16)
        result = run(Call(f"{name}.{dtype}", mask=shape, extra=4096), image, soc)
        assert (result[: values.nbytes].view(d) == values).all()
        with pytest.raises(sim.SimulatorHazard, match="sharedTmpBuffer: too small"):
            run(Call(f"{name}.{dtype}", mask=shape, extra=16), image, soc)
    if soc == "ascend910b" and dtype == "f32":
        grid = x[: 6 * 40].reshape(6, 40)
        rows = tree(np.concatenate([grid, np.zeros((6, 24), d)], 1), soc)
        assert (run(Call("ReduceSumAR.f32", mask=(6, 40), extra=4096), image, soc)[:24].view(d) == rows).all()
        columns = grid[0].copy()
        for row in grid[1:]:
            columns += row
        assert (
            run(Call("ReduceSumRA.f32", mask=(6, 40), extra=4096), image, soc)[:160].view(d) == columns
        ).all()


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_sorts(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("sort", dtype)
    image = rng.integers(-40, 40, IMAGE // d.itemsize).astype(d).view(np.uint8).copy()
    scores = image[16384:].view(d)
    if soc == "ascend310p":
        proposals = scores[: 4 * 16 * 8].reshape(4, 16, 8)
        order = np.argsort(-proposals[:, :, 4].astype(np.float32), axis=1, kind="stable")
        result = run(Call(f"RpSort16.{dtype}", repeat=4), image, soc)
        ordered = np.take_along_axis(proposals, order[:, :, None], 1)
        assert (result[: ordered.nbytes].view(d).reshape(ordered.shape) == ordered).all()
        merged = run(Call(f"MrgSort4.{dtype}", dst=32768, src=(0, 0), count=16, mode=15), result, soc)
        flat = ordered.reshape(64, 8)
        order = np.argsort(-flat[:, 4].astype(np.float32), kind="stable")
        assert (merged[32768:].view(d)[: 64 * 8].reshape(64, 8) == flat[order]).all()
        field = run(Call(f"ProposalExtract.{dtype}", repeat=2, extra=4), image, soc)
        assert (field[: 32 * d.itemsize].view(d) == scores[: 32 * 8].reshape(32, 8)[:, 4]).all()
        joined = (
            run(Call(f"ProposalConcat.{dtype}", repeat=2, extra=2), image, soc)[: 32 * 8 * d.itemsize]
            .view(d)
            .reshape(32, 8)
        )
        assert (joined[:, 2] == scores[:32]).all()
        assert (joined[:, 0] == image.view(d)[: 32 * 8].reshape(32, 8)[:, 0]).all()
        return
    image[32768:].view(np.uint32)[:256] = np.arange(256)
    result = run(Call(f"Sort32.{dtype}", repeat=4), image, soc)
    records = result[: 128 * 8].reshape(128, 8)
    order = np.concatenate(
        [np.argsort(-scores[i : i + 32].astype(np.float32), kind="stable") + i for i in range(0, 128, 32)]
    )
    assert (records[:, 4:].copy().view(np.uint32).ravel() == order).all()
    assert (records[:, : d.itemsize].copy().view(d).ravel() == scores[order]).all()
    merged = run(Call(f"MrgSort.{dtype}", dst=40960, src=(0, 0), count=32, mode=15), result, soc)[
        40960 : 40960 + 1024
    ].reshape(128, 8)
    final = order[np.argsort(-scores[order].astype(np.float32), kind="stable")]
    assert (merged[:, 4:].copy().view(np.uint32).ravel() == final).all()
