"""Vector API of the simulator against NumPy: masks, strides, repeats, tails, special values, refusals and rule reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from vector_model import (
    BITS,
    COUNT,
    COUNTER,
    IMAGE,
    PREFIX,
    REGISTER,
    TYPES,
    Call,
    addresses,
    check,
    elementwise,
    floats,
    image_of,
    lanes,
    libraries,
    load,
    run,
    same,
    saturate,
    seed_of,
    store,
)
from vector_rounding import MODES, cast

from hybrid_ops import sim, sim_build

ROOT = Path(__file__).resolve().parents[1]
F16, F32 = TYPES["f16"], TYPES["f32"]


def forms(name: str, rng: np.random.Generator, per_repeat: int) -> list[Call]:
    """Count, lane count, bit mask, mask register in both modes; strides with holes, rereads and repeats."""
    bits = tuple(int(x) for x in rng.integers(0, 2**63, 2))
    mask = (bits[0], bits[1] if per_repeat > 64 else 0)
    return [
        Call(name, COUNT, count=int(rng.integers(1, 900))),
        Call(
            name,
            PREFIX,
            mask=(int(rng.integers(1, per_repeat + 1)), 0),
            repeat=5,
            blk=(1, 1, 1),
            rep=(8, 8, 8),
        ),
        Call(name, PREFIX, mask=(per_repeat - 3, 0), repeat=3, blk=(2, 1, 0), rep=(17, 8, 1)),
        Call(name, BITS, mask=mask, repeat=4, blk=(1, 2, 1), rep=(9, 16, 0)),
        Call(name, REGISTER, mask=mask, repeat=2),
        Call(name, COUNTER, count=per_repeat * 2 + 5, blk=(1, 1, 1), rep=(10, 8, 0)),
    ]


def double(function):
    """Evaluated in fp64, rounded once."""
    return lambda _, x: function(x.astype(np.float64)).astype(x.dtype)


BINARY = {
    "Add": lambda _, a, b: a + b, "Sub": lambda _, a, b: a - b, "Mul": lambda _, a, b: a * b,
    "Max": lambda _, a, b: np.where(np.isnan(a) if a.dtype.kind == "f" else False, a, np.where(a > b, a, b)),
    "Min": lambda _, a, b: np.where(np.isnan(a) if a.dtype.kind == "f" else False, a, np.where(a < b, a, b)),
}  # fmt: skip


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.where(np.isnan(x), x, x.dtype.type(0)))


def wide(function):
    """Several fp32 steps, one rounding at the end (the fp32 forms round after each step)."""
    return lambda d, a, b: function(d.astype(np.float32), a.astype(np.float32), b.astype(np.float32)).astype(
        d.dtype
    )


FLOAT_BINARY = {
    "Div": lambda _, a, b: a / b,
    "AddRelu": wide(lambda d, a, b: relu(a + b)), "SubRelu": wide(lambda d, a, b: relu(a - b)),
    "FusedMulAdd": wide(lambda d, a, b: a * d + b), "FusedMulAddRelu": wide(lambda d, a, b: relu(a * d + b)),
}  # fmt: skip
UNARY = {
    "Abs": lambda _, x: np.abs(x), "Relu": lambda _, x: relu(x), "Sqrt": lambda _, x: np.sqrt(x),
    "Exp": double(np.exp), "Ln": double(np.log), "Reciprocal": double(lambda x: 1 / x), "Rsqrt": double(lambda x: 1 / np.sqrt(x)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f16", "f32", "i16", "i32"])
@pytest.mark.parametrize("name", [*BINARY, *FLOAT_BINARY, "And", "Or"])
def test_binary(soc: str, name: str, dtype: str) -> None:
    function = (
        BINARY.get(name)
        or FLOAT_BINARY.get(name)
        or {"And": lambda _, a, b: a & b, "Or": lambda _, a, b: a | b}[name]
    )
    d = TYPES[dtype]
    if (name in FLOAT_BINARY and d.kind == "i") or (name in ("And", "Or") and dtype != "i16"):
        return
    rng = seed_of(name, dtype)
    for call in forms(f"{name}.{dtype}", rng, 256 // d.itemsize):
        check(call, (d, d, d), function, soc, image_of(rng, d))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("name", [*UNARY])
def test_unary(soc: str, name: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of(name, dtype)
    for call in forms(f"{name}.{dtype}", rng, 256 // d.itemsize):
        # libm and NumPy may disagree in the last bit of fp64, which moves fp32 by one unit at a tie.
        check(call, (d, d), UNARY[name], soc, image_of(rng, d), ulp=1 if name in ("Exp", "Ln") else 0)


@pytest.mark.parametrize("dtype", ["f16", "f32", "i16", "i32"])
def test_scalar(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("scalar", dtype)
    s = d.type(3)
    table = {
        "Adds": lambda _, x: x + s, "Muls": lambda _, x: x * s, "Maxs": lambda _, x: BINARY["Max"](_, x, np.full_like(x, s)),
        "Mins": lambda _, x: BINARY["Min"](_, x, np.full_like(x, s)),
    }  # fmt: skip
    if d.kind == "f":
        table["LeakyRelu"] = lambda _, x: np.where(x >= 0, x, x * s)
    for name, function in table.items():
        for call in forms(f"{name}.{dtype}", rng, 256 // d.itemsize):
            call.scalar = 3.0
            check(call, (d, d), function, soc, image_of(rng, d))


@pytest.mark.parametrize("types", ["f16", "f32", "f32.f16"])
def test_axpy_and_mul_add_dst(soc: str, types: str) -> None:
    d, s = TYPES[types.split(".")[0]], TYPES[types.split(".")[-1]]
    rng, per_repeat = seed_of("axpy", types), 256 // d.itemsize
    label = types if d == s else "mixed"
    image = np.concatenate([floats(rng, d)[:16384], floats(rng, s)[: IMAGE - 16384]])
    step = 4 if d != s else 8
    for form in (Call("", COUNT, count=203), Call("", PREFIX, mask=(per_repeat - 1, 0), repeat=3, rep=(8, step, step)),
                 Call("", REGISTER, mask=(0x5A5A5A5A5A, 0), repeat=2, rep=(8, step, step))):  # fmt: skip
        axpy = Call(**{**vars(form), "call": f"Axpy.{label}", "scalar": 0.5})
        check(
            axpy,
            (d, s),
            lambda d, a: (a.astype(F32) * F32.type(0.5) + d.astype(F32)).astype(d.dtype),
            soc,
            image,
        )
        check(
            Call(**{**vars(form), "call": f"MulAddDst.{label}"}),
            (d, s, s),
            wide(lambda d, a, b: a * b + d),
            soc,
            image,
        )


CASTS = {
    "f16.f32": "NONE ODD", "f32.f16": "NONE", "i32.f32": "RINT FLOOR CEIL ROUND TRUNC", "f32.i32": "NONE", "i16.f16": "RINT",
    "i32.f16": "RINT FLOOR CEIL ROUND TRUNC", "i8.f16": "NONE FLOOR CEIL ROUND TRUNC", "u8.f16": "NONE FLOOR CEIL ROUND TRUNC",
    "f16.i8": "NONE", "f16.u8": "NONE", "f16.i16": "NONE", "i16.i32": "NONE",
}  # fmt: skip
ALL5 = "RINT FLOOR CEIL ROUND TRUNC"
CASTS_910B = {
    **CASTS, "f16.f32": f"NONE {ALL5} ODD", "f32.i32": f"NONE {ALL5}", "i16.f16": ALL5, "f16.i16": f"NONE {ALL5}",
    "f32.i16": "NONE", "i32.bf16": ALL5, "f32.bf16": "NONE", "bf16.f32": ALL5, "i64.i32": "NONE", "i16.f32": ALL5,
    "f32.f32": ALL5, "i64.f32": ALL5, "i32.i64": "NONE", "f32.i64": ALL5,
}  # fmt: skip


@pytest.mark.parametrize("pair", CASTS_910B)
def test_cast(soc: str, pair: str) -> None:
    table = CASTS if soc == "ascend310p" else CASTS_910B
    if pair not in table:
        return
    d, s = (TYPES[t] for t in pair.split("."))
    rng, widest = seed_of(pair), max(d.itemsize, s.itemsize)
    per_repeat = 256 // widest
    image = image_of(rng, s)
    if s.kind == "f" or s.name == "bfloat16":
        values = image[16384:].view(s)
        ties = rng.integers(-300, 300, values.size // 4) * 0.5
        values[: ties.size] = ties.astype(s)
        if s == F32 and d.itemsize == 2 and d.kind == "f":
            near = (rng.standard_normal(values.size // 4).astype(d)).astype(F32).view(np.int32)
            drop = 1 << (12 if d == F16 else 15)
            values[ties.size : 2 * ties.size] = (
                (near + rng.choice([0, drop - 1, drop, drop + 1], near.size)).astype(np.int32).view(F32)
            )
    for mode in table[pair].split():
        rep = (per_repeat * d.itemsize // 32, per_repeat * s.itemsize // 32, 0)
        calls = [Call(f"Cast.{pair}", COUNT, count=1300 if widest < 8 else 700, mode=MODES.index(mode))]
        calls.append(
            Call(f"Cast.{pair}", PREFIX, mask=(per_repeat - 1, 0), repeat=3, rep=rep, mode=MODES.index(mode))
        )
        calls.append(
            Call(
                f"Cast.{pair}",
                BITS,
                mask=(0x0F0F1234F, 0),
                repeat=2,
                rep=rep,
                blk=(2, 1, 0),
                mode=MODES.index(mode),
            )
        )
        calls[-1].rep = (rep[0] * 2, rep[1], 0)
        for call in calls:
            expected = elementwise(call, image, (d, s), cast(d, mode, soc), "ascend910b")
            if soc == "ascend310p" and d == F16:  # no infinity there
                on = lanes(call, per_repeat)
                at = addresses(call, on, call.dst, call.blk[0], call.rep[0], 2)[on]
                store(expected, at, saturate(load(expected, at, F16), soc))
            same(run(call, image, soc), expected, d)


def test_cast_scaled(soc: str) -> None:
    image = seed_of("deq").integers(-70000, 70000, IMAGE // 4, np.int32).view(np.uint8).copy()
    call = Call("Cast.f16.i32", COUNT, count=300, scalar=0.125)
    same(
        run(call, image, soc),
        elementwise(call, image, (F16, TYPES["i32"]), lambda _, x: (x * 0.125).astype(F16), soc),
        F16,
    )


def test_cast_int4(soc: str) -> None:
    image = floats(seed_of("int4"), F16, specials=False)
    call = Call("Cast.i4.f16", COUNT, count=256)
    result = run(call, image, soc)
    x = np.clip(np.rint(image[16384:].view(F16)[:256].astype(np.float32)), -8, 7).astype(np.int8) & 15
    assert (result[:128] == (x[0::2] | x[1::2] << 4).astype(np.uint8)).all()
    assert (result[128:] == image[128:]).all()
    if soc == "ascend910b":
        back = run(Call("Cast.f16.i4", COUNT, count=256, dst=16384, src=(0, 0)), result, soc)
        nibble = np.where(x > 7, x - 16, x)
        assert (back[16384:].view(F16)[:256] == nibble).all()


def test_cast_refuses_rounding_modes_by_name() -> None:
    image = floats(seed_of("mode"), F32)
    for mode in ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC"):
        with pytest.raises(
            sim.SimulatorHazard,
            match=rf"(?s)float to half.*CAST_{mode}.*CAST_NONE, CAST_ODD.*ascend310p.*ascend910b has it",
        ):
            run(Call("Cast.f16.f32", COUNT, count=64, mode=MODES.index(mode)), image, "ascend310p")
        run(Call("Cast.f16.f32", COUNT, count=64, mode=MODES.index(mode)), image, "ascend910b")


@pytest.mark.parametrize("dtype", ["f16", "f32", "i16", "i32", "u16"])
def test_fills(soc: str, dtype: str) -> None:
    d, rng = TYPES[dtype], seed_of("fill", dtype)
    image, per_repeat, per_block = image_of(rng, d), 256 // d.itemsize, 32 // d.itemsize
    for call in (Call("", COUNT, count=137), Call("", PREFIX, mask=(per_repeat - 2, 0), repeat=3, blk=(2, 0, 0), rep=(20, 0, 0)),
                 Call("", BITS, mask=(0xF0F0F0F055, 0), repeat=2)):  # fmt: skip
        call.call, call.scalar = f"Duplicate.{dtype}", 7.0
        check(call, (d,), lambda x: np.full_like(x, 7), soc, image)
    brcb = Call(f"Brcb.{dtype}", repeat=3, blk=(2, 0, 0), rep=(17, 0, 0))
    expected = image.copy()
    source = image[16384:].view(d)
    for r in range(3):
        for j in range(8):
            start = (r * 17 + j * 2) * 32
            expected[start : start + 32].view(d)[:] = source[r * 8 + j]
    same(run(brcb, image, soc), expected, d)
    if dtype != "u16":
        for call in (
            Call("", COUNT, count=200),
            Call("", PREFIX, mask=(per_block + 1, 0), repeat=2, blk=(2, 0, 0), rep=(16, 0, 0)),
        ):
            call.call, call.scalar = f"CreateVecIndex.{dtype}", 5.0
            on = lanes(call, per_repeat)
            ramp = (5 + np.arange(on.size)).reshape(on.shape).astype(d)
            check(call, (d,), lambda _, ramp=ramp: ramp, soc, image)


def test_bit_operations(soc: str) -> None:
    image = image_of(seed_of("bits"), TYPES["u16"])
    d = TYPES["u16"]
    check(Call("Not.u16", COUNT, count=77), (d, d), lambda _, x: ~x, soc, image)
    if soc == "ascend910b":
        for name, d in (("i32", TYPES["i32"]), ("u16", TYPES["u16"])):
            check(Call(f"ShiftLeft.{name}", count=99, extra=3), (d, d), lambda _, x: x << 3, soc, image)
            check(Call(f"ShiftRight.{name}", count=99, extra=3), (d, d), lambda _, x: x >> 3, soc, image)
            call = Call(f"ShiftRightRound.{name}", PREFIX, mask=(20, 0), repeat=2, extra=3)
            check(call, (d, d), lambda _, x: ((x.astype(np.int64) + 4) >> 3).astype(x.dtype), soc, image)


def test_whole_tensor_operators(soc: str) -> None:
    image = floats(seed_of("operators"), F32, specials=False)
    call = Call("Operators", COUNT, count=77)
    check(call, (F32, F32, F32), lambda _, a, b: (a - b) * b, soc, image)


def test_half_overflow_follows_the_soc_file(soc: str) -> None:
    image = np.full(IMAGE // 2, 60000, F16).view(np.uint8).copy()
    for wanted, flag in ((np.float16(65504), 1), (np.float16(np.inf), 0)):
        result = run(Call("Add.f16", COUNT, count=40), image, soc, figures={"numerics.fp16_saturate": flag})
        assert (result[:80].view(F16) == wanted).all()


def test_checks_off_computes_the_same(soc: str) -> None:
    rng = seed_of("off")
    image = image_of(rng, F32)
    for call in forms("Mul.f32", rng, 64):
        assert (run(call, image, soc) == run(call, image, soc, checks="off")).all()


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("param.repeat", Call("Add.f32", PREFIX, mask=(64, 0), repeat=300, rep=(0, 0, 0), src=(0, 0))),
        ("param.mask", Call("Add.f32", PREFIX, mask=(65, 0), repeat=1)),
        ("param.mask_bits", Call("Add.f32", BITS, mask=(3, 1), repeat=1)),
        ("param.dst_blk_stride", Call("Muls.f32", PREFIX, mask=(64, 0), repeat=1, blk=(0, 1, 1))),
        ("param.overlap", Call("Muls.f32", PREFIX, mask=(64, 0), repeat=1, dst=32, src=(0, 0))),
        ("param.overlap_repeat", Call("Muls.f32", PREFIX, mask=(64, 0), repeat=2, dst=256, src=(0, 0))),
        ("param.overlap", Call("Brcb.f32", repeat=1, dst=0, src=(0, 0), rep=(8, 0, 0))),
        ("param.align", Call("Muls.f32", COUNT, count=8, dst=4)),
        ("param.stride", Call("Add.f32", PREFIX, mask=(8, 0), repeat=1, rep=(256, 8, 8))),
        ("param.count", Call("Compare.f32", COUNT, count=65)),
        ("param.mask_lost", Call("LosesItsMask")),
    ],
    ids=lambda x: x if isinstance(x, str) else x.call,
)  # fmt: skip
def test_parameter_rules(soc: str, rule: str, call: Call) -> None:
    image = floats(seed_of("rules"), F32, specials=False)
    try:
        run(call, image, soc)
        found = call.hazards
    except sim.SimulatorHazard as hazard:
        found = hazard.hazards
    report = [h for h in found if h["rule"] == rule]
    assert report, f"{rule} not reported: {[h['rule'] for h in found]}"
    assert report[0]["kernel_file"].endswith("vector_calls.cpp") and report[0]["line"] > 0


def test_accumulating_in_place_is_allowed(soc: str) -> None:
    """dst == src1 with repeat stride 0: every repeat adds on top of the one before."""
    image = floats(seed_of("acc"), F32, specials=False)
    call = Call("Add.f32", PREFIX, mask=(64, 0), repeat=6, rep=(0, 8, 0), src=(16384, 0))
    total = image[:256].view(F32).copy()
    for r in range(6):
        total = image[16384 + r * 256 : 16384 + r * 256 + 256].view(F32) + total
    result = run(call, image, soc)
    same(result[:256], total.view(np.uint8), F32)
    assert [h for h in call.hazards if h["severity"] == "error"] == []


def test_portable_conversions_match_the_intrinsics() -> None:
    import ctypes

    library = sim_build.load_kernel(libraries()["ascend310p"])
    library.conversion_mismatches.restype = ctypes.c_uint64
    assert library.conversion_mismatches() == 0


REFUSALS = {
    "ascend310p": {
        "Sort32(a, a, u, 1)": "Sort32 is not available on ascend310p (ascend910b has it)",
        "Gatherb(a, a, u, 1, {})": "Gatherb is not available on ascend310p (ascend910b has it)",
        "ShiftLeft(i, i, 1, 8)": "ShiftLeft is not available on ascend310p (ascend910b has it)",
        "Add(b, b, b, 8)": "Add: dtype bfloat16_t is not available on ascend310p; allowed half, float, int16_t, int32_t",
        "Duplicate(b, bfloat16_t(0.0f), 8)": "Duplicate: dtype bfloat16_t is not available on ascend310p; allowed",
        "Cast(a, b, RoundMode::CAST_NONE, 8)": "Cast: dtype bfloat16_t is not available on ascend310p (ascend910b has it)",
        "Cast(s, a, RoundMode::CAST_RINT, 8)": "Cast: float to int16_t is not available on ascend310p (ascend910b has it)",
        "Compare(c, i, i, CMPMODE::EQ, 64)": "Compare: dtype int32_t is not available on ascend310p; allowed half, float (ascend910b has it)",
        "Exp(i, i, 8)": "Exp: dtype int32_t is not available on ascend310p; allowed half, float",
        "Axpy(h, a, 1.0f, 8)": "Axpy: this dst/src dtype pair is not available on ascend310p",
    },
    "ascend910b": {
        "Scatter(a, a, u, 0u, 8u)": "Scatter is not available on ascend910b (ascend310p has it)",
        "RpSort16(h, h, 1)": "RpSort16 is not available on ascend910b (ascend310p has it)",
        "Add(b, b, b, 8)": "Add: dtype bfloat16_t is not available on ascend910b; allowed half, float, int16_t, int32_t",
        "Div(i, i, i, 8)": "Div: dtype int32_t is not available on ascend910b; allowed half, float",
    },
}  # fmt: skip


def test_unavailable_calls_do_not_compile(soc: str, tmp_path: Path) -> None:
    """Each refusal names call, dtype and SoC."""
    source = tmp_path / "refused.cpp"
    tensors = "LocalTensor<float> a; LocalTensor<bfloat16_t> b; LocalTensor<half> h; LocalTensor<int32_t> i; LocalTensor<uint32_t> u; LocalTensor<int16_t> s; LocalTensor<uint8_t> c;"
    lines = "\n".join(f"    {text};" for text in REFUSALS[soc])
    source.write_text(
        f'#include "kernel_operator.h"\nusing namespace AscendC;\nvoid f() {{\n    {tensors}\n{lines}\n}}\n'
    )
    flags = [
        "-std=c++20",
        "-march=x86-64-v3",
        "-w",
        "-fmax-errors=0",
        f"-I{ROOT / 'sim/include'}",
        f"-I{ROOT / 'sim'}",
    ]
    done = subprocess.run(
        ["g++", "-fsyntax-only", *flags, *sim_build.soc_macros(soc), str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    for text in REFUSALS[soc].values():
        assert text in done.stderr, text


def test_support_headers_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "sim/gen_support.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
