"""Decoding with states on the device, against a stand-in for mindspore_lite that runs ONNX and watches its tensors."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from hybrid_ops import HybridOpsError  # noqa: E402
from hybrid_ops.export.lite_session import DecodeSession  # noqa: E402

CAPACITY, VOCABULARY = 6, 5
SHAPES = {
    "input_ids": (TensorProto.INT32, [1, 1]),
    "attention_mask": (TensorProto.INT32, [1, CAPACITY]),
    "position_ids": (TensorProto.INT32, [4, 1, 1]),
    "past_conv_states": (TensorProto.FLOAT16, [1, 1, 2, 3]),
    "past_recurrent_states": (TensorProto.FLOAT, [1, 1, 2, 2, 2]),
    "past_kv_cache": (TensorProto.FLOAT16, [2, 1, 1, CAPACITY, 4]),
}
DTYPES = {TensorProto.INT32: "INT32", TensorProto.FLOAT16: "FLOAT16", TensorProto.FLOAT: "FLOAT32"}


def decode_model(capacity_out: int = CAPACITY) -> onnx.ModelProto:
    """present = past/2 + f(token, position, mask), with logits that depend on everything."""
    info, node = helper.make_tensor_value_info, helper.make_node
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    nodes = [
        node("Cast", ["input_ids"], ["ids"], to=single),
        node("Cast", ["position_ids"], ["pos"], to=single),
        node("Cast", ["attention_mask"], ["mask"], to=single),
        node("ReduceSum", ["mask"], ["count"], keepdims=0),
        node("ReduceMean", ["pos"], ["at"], keepdims=0),
        node("ReduceSum", ["ids"], ["token"], keepdims=0),
        node("Mul", ["count", "at"], ["product"]),
        node("Add", ["token", "product"], ["news"]),
        node("Cast", ["news"], ["news16"], to=half),
        node("Cast", ["two"], ["two16"], to=half),
    ]
    for name, suffix in (("conv_states", "16"), ("recurrent_states", ""), ("kv_cache", "16")):
        nodes += [
            node("Div", [f"past_{name}", f"two{suffix}"], [f"half_{name}"]),
            node("Add", [f"half_{name}", f"news{suffix}"], [f"present_{name}"]),
            node("Cast", [f"present_{name}"], [f"wide_{name}"], to=single),
            node("ReduceSum", [f"wide_{name}"], [f"sum_{name}"], keepdims=0),
        ]
    nodes += [
        node("Add", ["sum_conv_states", "sum_recurrent_states"], ["part"]),
        node("Add", ["part", "sum_kv_cache"], ["all"]),
        node("Mul", ["row", "all"], ["logits"]),
    ]
    constants = [
        helper.make_tensor("two", single, [], [2.0]),
        helper.make_tensor("row", single, [1, 1, VOCABULARY], list(range(VOCABULARY))),
    ]
    inputs = [info(name, kind, shape) for name, (kind, shape) in SHAPES.items()]
    outputs = [info("logits", single, [1, 1, VOCABULARY])]
    for name in ("conv_states", "recurrent_states", "kv_cache"):
        kind, shape = SHAPES[f"past_{name}"]
        shape = [capacity_out if d == CAPACITY else d for d in shape]
        outputs.append(info(f"present_{name}", kind, shape))
    return helper.make_model(
        helper.make_graph(nodes, "decode", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", 18)],
    )


def stand_in(model: onnx.ModelProto) -> types.SimpleNamespace:
    """mindspore_lite as far as a session uses it; predict poisons its outputs before it reads its inputs."""
    record = SimpleNamespace(fail=False, host_copies=0, pairs=[], devices=set())

    class Tensor:
        def __init__(self, name="", shape=None, dtype=None, device=None):
            self.name, self.shape, self.dtype, self.device, self.data = name, shape, dtype, device, None
            record.devices.add(device)

        def set_data_from_numpy(self, array):
            assert list(array.shape) == list(self.shape) and str(array.dtype) == self.dtype.lower()
            record.host_copies += self.device is not None
            self.data = array.copy()

        def get_data_to_numpy(self):
            return self.data.copy()

    def tensor(value):
        kind = value.type.tensor_type
        return Tensor(value.name, [d.dim_value for d in kind.shape.dim], DTYPES[kind.elem_type])

    class Model:
        def build_from_file(self, path, kind, context, config):
            assert kind == "MINDIR" and context.target == ["ascend"]
            self.evaluator = ReferenceEvaluator(model)
            self.inputs = [tensor(v) for v in reversed(model.graph.input)]  # the order is the model's own

        def get_inputs(self):
            return self.inputs

        def get_outputs(self):
            return [tensor(v) for v in model.graph.output]

        def predict(self, inputs, outputs):
            for out in outputs:
                out.data = np.full(out.shape, np.nan, np.float32)
            if record.fail:
                raise RuntimeError("device error")
            record.pairs.append(({id(t) for t in inputs}, {id(t) for t in outputs}))
            got = self.evaluator.run(
                None, {mine.name: t.data for mine, t in zip(self.inputs, inputs, strict=True)}
            )
            for out, value in zip(outputs, got, strict=True):
                out.data = value

    return SimpleNamespace(
        Context=lambda: SimpleNamespace(ascend=SimpleNamespace()),
        Model=Model,
        Tensor=Tensor,
        ModelType=SimpleNamespace(MINDIR="MINDIR"),
        DataType=SimpleNamespace(FLOAT16="FLOAT16", FLOAT32="FLOAT32", INT32="INT32", INT64="INT64"),
        record=record,
    )


def states(value: float = 1.0) -> dict[str, np.ndarray]:
    kinds = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32}
    return {
        name.removeprefix("past_"): np.full(shape, value, kinds[kind])
        for name, (kind, shape) in SHAPES.items()
        if name.startswith("past_")
    }


def wanted(tokens, first: int):
    """Logits and states of the same steps with every state carried by hand."""
    evaluator, carried, logits = ReferenceEvaluator(decode_model()), states(), []
    for step, token in enumerate(tokens):
        mask = (np.arange(CAPACITY) <= first + step).astype(np.int32)[None]
        feed = {"input_ids": np.int32([[token]]), "attention_mask": mask}
        feed["position_ids"] = np.full((4, 1, 1), first + step, np.int32)
        feed |= {f"past_{name}": value for name, value in carried.items()}
        out, *present = evaluator.run(None, feed)
        carried = dict(zip(carried, present, strict=True))
        logits.append(out)
    return logits, carried


def test_steps_equal_and_states_stay(tmp_path):
    lite = stand_in(decode_model())
    session = DecodeSession(tmp_path / "m.mindir", device=3, lite=lite)
    assert session.capacity == CAPACITY
    session.start(states(), 2)
    copies = lite.record.host_copies
    logits, carried = wanted([4, 1, 3], 2)
    for token, expected in zip([4, 1, 3], logits, strict=True):
        np.testing.assert_array_equal(session.step(token), expected)
    for name, value in session.states().items():
        np.testing.assert_array_equal(value, carried[name])
    assert copies == lite.record.host_copies == 3  # only the prompt's states came from the host
    assert lite.record.devices == {None, "ascend:3"}
    for read, written in lite.record.pairs:
        assert not read & written
    first, second, third = (read for read, _ in lite.record.pairs)
    assert first == third != second  # two sets in turn


def test_failed_step_can_be_repeated(tmp_path):
    lite = stand_in(decode_model())
    session = DecodeSession(tmp_path / "m.mindir", lite=lite)
    session.start(states(), 2)
    session.step(4)
    lite.record.fail = True
    with pytest.raises(RuntimeError, match="device error"):
        session.step(1)
    lite.record.fail = False
    assert session.length == 3
    np.testing.assert_array_equal(session.step(1), wanted([4, 1], 2)[0][1])


def test_capacity_is_kept(tmp_path):
    session = DecodeSession(tmp_path / "m.mindir", lite=stand_in(decode_model()))
    session.start(states(), CAPACITY - 1)
    session.step(1)
    with pytest.raises(HybridOpsError, match="length: the cache is full: got 6; allowed fewer than 6 tokens"):
        session.step(1)


def test_refusals(tmp_path):
    file = tmp_path / "m.mindir"
    with pytest.raises(HybridOpsError, match="capacity: not fixed"):
        DecodeSession(file, lite=stand_in(decode_model(CAPACITY + 1)))
    fewer = decode_model()
    fewer.graph.output.pop()
    with pytest.raises(HybridOpsError, match="model: no decode step"):
        DecodeSession(file, lite=stand_in(fewer))
    session = DecodeSession(file, lite=stand_in(decode_model()))
    with pytest.raises(HybridOpsError, match="states: not the model's"):
        session.start({"conv_states": states()["conv_states"]}, 0)
    with pytest.raises(HybridOpsError, match="length: outside the capacity: got 7; allowed 0 to 6"):
        session.start(states(), 7)
    short = states() | {"kv_cache": np.zeros((2, 1, 1, 2, 4), np.float16)}
    with pytest.raises(HybridOpsError, match="past_kv_cache: shape"):
        session.start(short, 2)


def test_without_mindspore_lite(monkeypatch):
    monkeypatch.setitem(sys.modules, "mindspore_lite", None)
    with pytest.raises(
        HybridOpsError, match=r"lite: mindspore_lite: cannot be imported: got .*install the wheel"
    ):
        DecodeSession("model.mindir")
