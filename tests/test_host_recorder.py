"""The recorder on an operator made for it, and the evaluator of limits against Python's."""

from __future__ import annotations

import ctypes
import json

import pytest

from hybrid_ops import build, host, paths

TOY = """
#include "register/op_def_registry.h"
static ge::graphStatus Shape(gert::InferShapeContext* c) {
    *c->GetOutputShape(0) = *c->GetInputShape(0);
    return c->GetInputShape(1) == nullptr ? ge::GRAPH_SUCCESS : ge::GRAPH_FAILED;
}
static ge::graphStatus Types(gert::InferDataTypeContext* c) {
    return c->SetOutputDataType(0, c->GetInputDataType(0));
}
static ge::graphStatus Tiling(gert::TilingContext* c) {
    return c->GetRawTilingData()->Append(*c->GetAttrs()->GetInt(1));
}
namespace ops {
class ToyScale : public OpDef {
 public:
    explicit ToyScale(const char* name) : OpDef(name) {
        this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT16, ge::DT_FLOAT});
        this->Input("bias").ParamType(OPTIONAL).DataTypeList({ge::DT_FLOAT, ge::DT_INT32});
        this->Output("y").ParamType(REQUIRED).Follow("x");
        this->Attr("steps").AttrType(REQUIRED).ListInt();
        this->Attr("width").AttrType(OPTIONAL).Int(7);
        this->Attr("mode").AttrType(OPTIONAL).String("fast");
        this->Attr("exact").AttrType(OPTIONAL).Bool(false);
        this->Attr("eps").AttrType(OPTIONAL).Float(1e-6f);
        this->SetInferShape(Shape).SetInferDataType(Types);
        this->AICore().SetTiling(Tiling);
        OpAICoreConfig other;
        other.Input("x").DataType({ge::DT_BF16, ge::DT_FLOAT});
        this->AICore().AddConfig("ascend310p").AddConfig("ascend910b", other);
    }
};
OP_ADD(ToyScale);
}  // namespace ops
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    source = tmp_path_factory.mktemp("toy") / "toy_scale.cpp"
    source.write_text(TOY)
    sim = paths.source_dir("sim")
    library = build.compile_shared(
        "libhost_toy", [*sorted((sim / "host").glob("*.cpp")), source], [*host.FLAGS, f"-I{sim / 'include'}"]
    )
    return ctypes.CDLL(str(library))


def answer(function, *args):
    function.restype = ctypes.c_char_p
    return json.loads(function(*args).decode())


def test_recorder_knows_columns_lists_overrides_and_defaults(toy):
    op = answer(toy.hostops_contract)["ops"]["ToyScale"]
    x, bias = op["inputs"]
    assert x["dtypes"] == {
        "ascend310p": ["float16", "float32"] * 2,
        "ascend910b": ["bfloat16", "float32"] * 2,
    }
    assert bias["dtypes"]["ascend310p"] == ["float32", "float32", "int32", "int32"]
    assert op["outputs"][0]["dtypes"] == x["dtypes"]
    assert [(a["name"], a["type"], a["required"], a["default"]) for a in op["attrs"]] == [
        ("steps", "list_int", True, None),
        ("width", "int", False, 7),
        ("mode", "string", False, "fast"),
        ("exact", "bool", False, False),
        ("eps", "float", False, 1e-06),
    ]


def test_tiling_without_cores_and_missing_attributes_are_errors(toy):
    tensor = host._Tensor(0, b"float16", b"ND", 1, (ctypes.c_int64 * 1)(4))
    attr = host._Attr(name=b"steps")
    config = b"cores.vector = 8\n"
    args = (b"ToyScale", b"ascend310p", config, ctypes.byref(tensor), 1, ctypes.byref(attr))
    assert answer(toy.hostops_tiling, *args, 1)["error"] == "toy_scale: tiling set no block dim"
    assert "steps: required attribute is missing" in answer(toy.hostops_tiling, *args, 0)["error"]
    assert answer(toy.hostops_infer, b"Nothing", None, 0, None, 0)["error"] == "Nothing: no such operator"


def test_call_that_is_not_offered_is_a_compile_error_naming_it(tmp_path):
    source = tmp_path / "unknown.cpp"
    source.write_text(TOY.replace('.Follow("x")', '.FollowsTheMoon("x")'))
    with pytest.raises(build.BuildError, match="FollowsTheMoon"):
        build.compile_shared("libhost_unknown", [source], [f"-I{paths.source_dir('sim') / 'include'}"])


LIMITS = """
#include "limits.h"
extern "C" int evaluate(const char* rule, long a, long b) {
    hybrid_ops::Axes axes;
    hybrid_ops::Fault fault;
    axes.Bind("x", hybrid_ops::ParseRules("A B"), {a, b}, &fault);
    const hybrid_ops::Limit limit(rule, "");
    if (limit.malformed()) return -1;
    return limit.Applies(axes) ? limit.Holds(axes) : -2;
}
"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    source = tmp_path_factory.mktemp("limits") / "limits_test.cpp"
    source.write_text(LIMITS)
    flags = ["-std=c++17", f"-I{paths.source_dir('op_host')}", f"-I{paths.source_dir('sim') / 'include'}"]
    return ctypes.CDLL(str(build.compile_shared("libhost_limits", [source], flags))).evaluate


@pytest.mark.parametrize(
    "rule",
    [
        "A % B == 0", "1 <= A <= 8", "1 < A < B < 9", "A == B or A == 2 and B == 3", "(A == B or A == 2) and B == 3",
        "A + 2 * B - 1 >= 7", "(A - 5) // B == -1", "(A - 5) % B == 1", "A != B", "A // 2 * 2 == A", "A > B >= 1",
        "A - B - 1 == 0", "not A == B", "-A + B <= 0", "A*B+1>A",
    ],
)  # fmt: skip
def test_limits_evaluate_as_in_python(evaluate, rule):
    for a in range(6):
        for b in range(1, 6):
            expected = bool(eval(rule, {"A": a, "B": b}))
            assert evaluate(rule.encode(), ctypes.c_long(a), ctypes.c_long(b)) == expected, (rule, a, b)


@pytest.mark.parametrize(
    "rule", ["A %", "A == 1 2", "(A == 1", "1 == 1", "", "A ** 2 == 4", "A = 1", "A & 1"]
)
def test_malformed_limits_are_known_as_such(evaluate, rule):
    assert evaluate(rule.encode(), ctypes.c_long(1), ctypes.c_long(1)) == -1


def test_limits_over_absent_axes_say_nothing(evaluate):
    assert evaluate(b"C >= 1", ctypes.c_long(1), ctypes.c_long(1)) == -2
