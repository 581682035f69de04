"""Dtype names of the contract as NumPy dtypes; bfloat16 comes from ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

NUMPY: dict[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}

# CANN spells a dtype twice: as the C type of a kernel, and as the enumerator of ge::DataType.
KERNEL_TYPE = {
    "float16": "half", "bfloat16": "bfloat16_t", "float32": "float", "int8": "int8_t", "uint8": "uint8_t",
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "bool": "bool",
}  # fmt: skip
GE_TYPE = {
    "float16": "DT_FLOAT16", "bfloat16": "DT_BF16", "float32": "DT_FLOAT", "int8": "DT_INT8", "uint8": "DT_UINT8",
    "int16": "DT_INT16", "int32": "DT_INT32", "int64": "DT_INT64", "bool": "DT_BOOL",
}  # fmt: skip
SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def name_of(dtype: np.dtype | type) -> str:
    """Contract name of a NumPy dtype, e.g. "bfloat16"; the NumPy name for one the contract does not know."""
    return np.dtype(dtype).name


def is_float(dtype: np.dtype) -> bool:
    """Whether the dtype is a floating type, bfloat16 included."""
    return np.dtype(dtype).kind == "f" or np.dtype(dtype) == NUMPY["bfloat16"]


def nan_poison(array: np.ndarray) -> None:
    """Fill with 0xFF bytes: NaN in every floating type, -1 in every integer type."""
    array.view(np.uint8).fill(0xFF)


def narrow(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Rounded to `kind`; finite values beyond its range become its largest, as Cast does on both SoCs."""
    most = float(ml_dtypes.finfo(kind).max)
    return np.where(np.isfinite(array), np.clip(array, -most, most), array).astype(kind)
