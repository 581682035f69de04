"""The library that MindSpore loads: its parts in C++, missing or faulty kernels, where output axes come from."""

from __future__ import annotations

import ctypes
import json
import shutil

import pytest

from hybrid_ops import build, check, contract, mindspore_build, paths, sim_build
from hybrid_ops import host as host_side
from hybrid_ops.contract import Op
from hybrid_ops.contract import Tensor as Argument

RGDR = "recurrent_gated_delta_rule"
PARTS = r"""
#include "mindspore_aot.h"
using namespace hybrid_ops;
static std::string text;
extern "C" const char* read(const char* json, const char* key) {
    try { text = JsonReader(json).Read()[key].text; } catch (const std::exception& error) { text = error.what(); }
    return text.c_str();
}
extern "C" const char* describe(const char* json) {
    text = Describe(Operator{"some_op", "SomeOp", {}, {}, {}, {}, {}, {}, "", ""}, Chip{"310p", "ascend310p", "", ""},
                    JsonReader(json).Read());
    return text.c_str();
}
extern "C" unsigned long long number(const char* json) { return JsonReader(json).Read()["n"].Unsigned(); }
extern "C" int64_t axis(int64_t* shape, int rank, int dim, int64_t scale, int64_t offset) {
    return Shapes({{{0, dim, scale, offset}}}, &rank, &shape)[0][0];
}
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    source = tmp_path_factory.mktemp("parts") / "parts.cpp"
    source.write_text(PARTS)
    flags = [
        *mindspore_build.FLAGS,
        f"-isystem{mindspore_build.TEMPLATES}",
        f"-isystem{paths.source_dir('sim')}",
    ]
    path = build.compile_shared(
        "mindspore_parts", [source], flags, depends=mindspore_build.headers(), link=["-ldl"], quiet=True
    )
    library = ctypes.CDLL(str(path))
    library.read.restype = library.describe.restype = ctypes.c_char_p
    library.axis.restype = ctypes.c_int64
    library.number.restype = ctypes.c_ulonglong
    library.axis.argtypes = [
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int64,
    ]
    return library


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": "plain"}', b"plain"),
        (b'{"b": {"a": 1}, "a" : "x\\n\\"y\\"\\\\ \\u0041" }', b'x\n"y"\\ A'),
        (b'{"b": [], "c": {}, "a": true}', b"true"),
        (b'{"b": [1, {"a": 2}, "]"], "a": -1.5e3}', b"-1.5e3"),
        (b'{"b": 1}', b"null"),
        (b'{"a": "cut', b"hybrid_ops: a library answered JSON that ends early"),
        (b'{"a" 1}', b"hybrid_ops: a library answered text that is not JSON"),
    ],
)
def test_json(parts, text, value):
    assert parts.read(text, b"a") == value


def hazard(severity, **fields):
    common = {
        "rule": "race.raw",
        "kernel_file": "k.cpp",
        "line": 12,
        "api": "Mul",
        "tensor": "q",
        "bytes": [0, 32],
    }
    return {**common, "severity": severity, "count": 1, "message": "reads what DataCopy writes", **fields}


@pytest.mark.parametrize(
    ("error", "hazards"),
    [
        (None, [hazard("note"), hazard("error", count=3), hazard("warning", message="bytes [0, 32) of q")]),
        ("stopped: out of bounds", []),
        ("stopped", [hazard("error", tensor="", message="")]),
        (None, [hazard("error", line=n) for n in range(9)]),
    ],
)
def test_hazards_have_the_words_of_the_simulator_backend(parts, error, hazards):
    report = json.dumps({"ok": False, "error": error, "hazards": hazards}).encode()
    assert parts.describe(report).decode() == check.hazards("some_op", "ascend310p", error, hazards)


def test_numbers_keep_all_64_bits(parts):
    assert parts.number(b'{"n": 18446744073709551615}') == 2**64 - 1


def test_axes_of_outputs(parts):
    shape = (ctypes.c_int64 * 2)(5, 7)
    assert parts.axis(shape, 2, 1, 1, 0) == 7
    assert parts.axis(shape, 2, 0, 3, -2) == 13
    assert parts.axis((ctypes.c_int64 * 2)(-1, 7), 2, 0, 3, -2) == -1, "an unknown size stays unknown"
    assert parts.axis((ctypes.c_int64 * 1)(-2), 1, 0, 1, 0) == -1, "unknown rank"


def op_with(inputs: list[tuple[str, bool]], output: str) -> Op:
    tensors = [
        Argument(f"t{i}", (tuple(rule.split()),), {}, required) for i, (rule, required) in enumerate(inputs)
    ]
    return Op("Some", "some", "", (), tuple(tensors), (Argument("out", (tuple(output.split()),), {}),))


def test_where_output_axes_come_from():
    def found(*args):
        axes = mindspore_build.output_axes(op_with(*args))
        return axes and [tuple(a.values()) for a in axes[0]]

    assert found([("T D", True), ("B", True)], "B D T 3") == [
        (1, 0, 1, 0),
        (0, 1, 1, 0),
        (0, 0, 1, 0),
        (-1, 0, 0, 3),
    ]
    assert found([("T+1", True)], "T T*2 T+4") == [(0, 0, 1, -1), (0, 0, 2, -2), (0, 0, 1, 3)]
    assert found([("T*2", True), ("T", True)], "T") == [(1, 0, 1, 0)], (
        "a division is not taken when avoidable"
    )
    assert found([("T", True), ("B", False), ("B", True)], "B") is None, "inputs after an optional one shift"


def test_every_operator_infers_or_is_static(op):
    axes = mindspore_build.output_axes(op)
    assert axes is None or [len(a) for a in axes] == [len(t.axes[0]) for t in op.outputs]


FAULTY = r"""
extern "C" unsigned ascsim_kernel_args() { return 14; }
extern "C" void ascsim_kernel(void** args) { static_cast<char*>(args[10])[-1] = 0; }
"""


@pytest.fixture
def moved(tmp_path, monkeypatch):
    """SimulatorOp over a copy of the library in a folder of its own, with everything but the kernel beside it."""
    ms = pytest.importorskip("mindspore", reason="MindSpore is not installed: its library is not entered")
    from hybrid_ops import mindspore_ops

    mindspore_build.ensure(RGDR, "ascend310p", 0)
    for path in (mindspore_build.library(RGDR), sim_build.core_library(), host_side.library_path()):
        shutil.copy(path, tmp_path)
    library = tmp_path / mindspore_build.library(RGDR).name
    monkeypatch.setattr(mindspore_build, "library", lambda name: library)
    monkeypatch.setenv("HYBRID_OPS_CACHE", str(tmp_path))
    monkeypatch.delenv("HYBRID_OPS_PREBUILT", raising=False)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return mindspore_ops.SimulatorOp(contract.load()[RGDR]), tmp_path


def call(primitive):
    from mindspore import Tensor

    from hybrid_ops import case

    found = next(c for c in case.cases(RGDR, "ascend310p") if c.id.endswith("varlen"))
    tensors = [None if a is None else Tensor(a) for a in found.inputs().values()]
    return [t.asnumpy() for t in primitive(*tensors, 1.0, "", "off")]


def test_missing_kernel_is_named(moved):
    primitive, _ = moved
    with pytest.raises(
        RuntimeError, match=f"library: not found: got no {RGDR}-ascend310p-0-.*run hybrid-ops build"
    ):
        call(primitive)


def test_kernel_that_writes_outside_its_tensors(moved):
    primitive, folder = moved
    source = folder / "faulty.cpp"
    source.write_text(FAULTY)
    faulty = build.compile_shared("faulty", [source], ["-std=c++17"], quiet=True)
    with build.planning():
        kernel = sim_build.compile_kernel(contract.load()[RGDR], "ascend310p", 0).name
    shutil.copy(faulty, folder / kernel)
    with pytest.raises(RuntimeError, match=f"{RGDR}: kernel: wrote outside a tensor \\(on ascend310p\\)"):
        call(primitive)
