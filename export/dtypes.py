"""Type numbers of ONNX (TensorProto.DataType) and MindSpore (TypeId), by the contract's dtype names.

MindSpore's numbers are the TypeId enum of its core/ir/dtype/type_id.h, where number types start after 29; the same
numbers are mindspore_lite.DataType. `dtype` attributes use ONNX numbers, `output_types` MindSpore's.
"""

from __future__ import annotations

from onnx import TensorProto

ONNX = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "bfloat16": TensorProto.BFLOAT16,
}
MINDSPORE = {
    "bool": 30,
    "int8": 32,
    "int16": 33,
    "int32": 34,
    "int64": 35,
    "uint8": 37,
    "float16": 42,
    "float32": 43,
    "float64": 44,
    "bfloat16": 45,
}
ONNX_NAMES = {int(number): name for name, number in ONNX.items()}
MINDSPORE_NAMES = {number: name for name, number in MINDSPORE.items()}
# Type strings of ONNX operator schemas.
TENSOR_TYPES = tuple(f"tensor({TensorProto.DataType.Name(number).lower()})" for number in ONNX.values())


def onnx_name(number: int) -> str:
    """Contract dtype name of an ONNX type number, or the enum's own spelling when the project has none."""
    return ONNX_NAMES.get(number) or TensorProto.DataType.Name(number).lower()
