"""Protobuf classes for MindIR: MindSpore's own when it is installed, else the part this package reads.

Importing MindSpore takes seconds and half a gigabyte, so its generated module is loaded by path. The fallback declares
the fields that `mindir.py` touches under their numbers in MindSpore's mind_ir.proto; protobuf keeps the rest as unknown.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ATTRIBUTE_TYPES = (
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 "
    "COMPLEX128 BFLOAT16 TENSOR GRAPH TENSORS TUPLE LIST DICT UMONAD IOMONAD NONE PRIMITIVECLOSURE FUNCGRAPHCLOSURE "
    "PARTIALCLOSURE UNIONFUNCCLOSURE CSR_TENSOR COO_TENSOR ROW_TENSOR CLASS_TYPE NAME_SPACE SYMBOL TYPE_NULL "
    "MAP_TENSOR FUNCTOR SCALAR SCALAR_GRAPH_HOLDER"
).split()
# TensorProto.DataType numbers -> dtype names of this package.
TENSOR_TYPES = {
    0: "", 1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
    16: "bfloat16", 17: "float64",
}  # fmt: skip

# message -> "number name type" per field; "*" marks a repeated field, a capital first letter a message.
_FIELDS = {
    "ExternalDataProto": "1 location string, 2 offset int64, 3 length int64",
    "TensorProto": "1 dims int64*, 2 data_type int32, 7 name string, 9 raw_data bytes, "
    "12 external_data ExternalDataProto",
    "AttributeProto": "1 name string, 2 f float, 3 i int64, 4 d double, 5 s bytes, 6 t TensorProto, 8 floats float*, "
    "9 doubles double*, 10 ints int64*, 11 strings bytes*, 12 tensors TensorProto*, 16 type int32, "
    "17 values AttributeProto*",
    "ValueInfoProto": "1 name string, 2 tensor TensorProto*, 4 denotation string, 5 attr_info AttributeProto",
    "NodeProto": "1 input string*, 2 output string*, 3 name string, 4 op_type string, 5 attribute AttributeProto*, "
    "7 domain string",
    "PrimitiveProto": "1 name string, 2 op_type string, 3 attribute AttributeProto*, 4 instance_name string",
    "GraphProto": "1 node NodeProto*, 2 name string, 3 parameter TensorProto*, 5 input ValueInfoProto*, "
    "6 output ValueInfoProto*, 8 attribute AttributeProto*",
    "ModelProto": "1 ir_version string, 2 producer_name string, 3 producer_version string, 7 graph GraphProto, "
    "8 functions GraphProto*, 12 primitives PrimitiveProto*, 13 mind_ir_version int64",
}


def mindspore_module() -> ModuleType | None:
    """MindSpore's mind_ir_pb2 without importing MindSpore itself; None when it is not installed or does not load."""
    loaded = sys.modules.get("mindspore.train.mind_ir_pb2")
    if loaded is not None:
        return loaded
    return _load_by_path()


@cache
def _load_by_path() -> ModuleType | None:
    package = importlib.util.find_spec("mindspore")
    folders = list(package.submodule_search_locations or ()) if package else []
    files = [Path(folder) / "train" / "mind_ir_pb2.py" for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    spec = importlib.util.spec_from_file_location("hybrid_ops_mind_ir_pb2", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception:  # generated for another protobuf: the fallback reads the same files
        return None
    return module


@cache
def declared_model() -> Any:
    """The ModelProto class of this module's own declaration."""
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES, "int64": kinds.TYPE_INT64, "int32": kinds.TYPE_INT32,
        "float": kinds.TYPE_FLOAT, "double": kinds.TYPE_DOUBLE,
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(
        name="hybrid_ops_mind_ir.proto", package="hybrid_ops.mind_ir", syntax="proto2"
    )
    for message, fields in _FIELDS.items():
        entry = file.message_type.add(name=message)
        for text in fields.split(", "):
            number, name, kind = text.split()
            field = entry.field.add(name=name, number=int(number))
            field.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{file.package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.ModelProto"))


def model_class() -> Any:
    """The ModelProto class to parse a MindIR file with."""
    module = mindspore_module()
    return declared_model() if module is None else module.ModelProto
