"""Where the weights of a model traced without weights come from, tensor by tensor.

A graph is traced with tensors that have no data. Afterwards every initializer becomes either a reference into a
checkpoint or a recipe that is run when the file is written, one tensor at a time: no second copy is ever in memory.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx_ir
import torch
from torch._subclasses.fake_tensor import FakeTensor

from hybrid_ops import check
from hybrid_ops.export.checkpoint import Checkpoint

# Tensors of fewer bytes are never referenced: they stand in the model itself.
SMALL = 1 << 14
# Stacked weights of the model -> what a checkpoint with one matrix per expert calls their parts, in order.
STACKED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


class Weights(Protocol):
    """A source of weights."""

    def tensor(
        self, name: str, dtype: np.dtype, shape: tuple[int, ...], base: Path
    ) -> onnx_ir.TensorProtocol:
        """The tensor called `name`, for a model that will stand in folder `base`."""


def _refuse(wrong: str, got: object, allowed: str, hint: str = "") -> check.HybridOpsError:
    return check.refuse("export", "weights", wrong, got=got, allowed=allowed, soc="every SoC", hint=hint)


def lazy(
    make: Callable[[], np.ndarray], name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> onnx_ir.LazyTensor:
    """A tensor made anew whenever it is read."""
    kind = onnx_ir.DataType.from_numpy(dtype)
    return onnx_ir.LazyTensor(
        lambda: onnx_ir.Tensor(make(), dtype=kind, name=name),
        dtype=kind,
        shape=onnx_ir.Shape(shape),
        name=name,
    )


class CheckpointWeights:
    """Weights of a checkpoint, by reference into it or by copy.

    Errors: HybridOpsError for a tensor that is missing or has another shape; by reference also for another dtype
    and for a file that an ONNX model in the target folder may not point to.
    """

    def __init__(self, checkpoint: Checkpoint, *, reference: bool) -> None:
        self.checkpoint, self.reference = checkpoint, reference

    def tensor(
        self, name: str, dtype: np.dtype, shape: tuple[int, ...], base: Path
    ) -> onnx_ir.TensorProtocol:
        entry = self.checkpoint.find(name)
        if entry is None and name.rsplit(".", 1)[-1] in STACKED:
            return self._stacked(name, dtype, shape)
        if entry is None:
            raise _refuse(
                "not in the checkpoint", name, f"a checkpoint of this model in {self.checkpoint.folder}"
            )
        if entry.shape != shape:
            raise _refuse(
                f"{name} has another shape", list(entry.shape), f"{list(shape)} as config.json says"
            )
        small = entry.nbytes < SMALL  # not worth a reference, and free to change its dtype
        if small or not self.reference:
            return lazy(lambda: np.asarray(entry.array(), dtype), name, dtype, shape)
        if entry.dtype != dtype:
            raise _refuse(
                f"{name} is stored in another dtype",
                entry.dtype,
                str(dtype),
                hint="copy the weights, or pass that --dtype",
            )
        return entry.external(base)

    def _stacked(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> onnx_ir.TensorProtocol:
        """All experts' weights in one tensor, from a checkpoint that has a matrix per expert and projection."""
        front, leaf = name.rsplit(".", 1)
        names = [[f"{front}.{expert}.{part}.weight" for part in STACKED[leaf]] for expert in range(shape[0])]
        parts = [[self.checkpoint.find(part) for part in expert] for expert in names]
        for expert, found in zip(names, parts, strict=True):
            for part, entry in zip(expert, found, strict=True):
                wanted = (shape[1] // len(expert), shape[2])
                if entry is None or entry.shape != wanted:
                    got = "nothing" if entry is None else list(entry.shape)
                    raise _refuse(f"{part} does not fit", got, f"{list(wanted)} as config.json says")
        if self.reference:
            raise _refuse(
                "experts are stored one by one", name, "a checkpoint with stacked experts", "copy the weights"
            )

        def make() -> np.ndarray:
            out = np.empty(shape, dtype)
            for expert, found in enumerate(parts):
                rows = 0
                for entry in found:
                    assert entry is not None
                    out[expert, rows : rows + entry.shape[0]] = entry.array()
                    rows += entry.shape[0]
            return out

        return lazy(make, name, dtype, shape)

    def check_place(self, base: Path) -> None:
        """Refuse a target folder from which the checkpoint cannot be referenced: loaders accept only files below it."""
        for file in {entry.file for entry in self.checkpoint.entries.values()}:
            if not file.is_relative_to(base):
                raise _refuse(
                    "external data may not lead out of the model's folder",
                    f"{file} for a model in {base}",
                    "a folder that holds the checkpoint",
                    hint="copy the weights instead",
                )
            if file.is_symlink() or file.stat().st_nlink > 1:
                raise _refuse("loaders refuse links", file, "a plain file", hint="copy the weights instead")


class RandomWeights:
    """Weights drawn from `seed` and the tensor's name, for trials of size and speed.

    Values repeat every BLOCK elements: drawing four thousand million of them would take longer than writing them.
    """

    BLOCK = (1 << 20) + 7

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def tensor(
        self, name: str, dtype: np.dtype, shape: tuple[int, ...], base: Path
    ) -> onnx_ir.TensorProtocol:
        if name == "lm_head.weight":
            name = "model.embed_tokens.weight"  # the same where they are tied, as good where not

        def make() -> np.ndarray:
            random = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
            count = math.prod(shape)
            leaf = name.rsplit(".", 2)[-2:]
            if leaf[-1] == "A_log":
                return np.log(random.uniform(0.01, 16, shape)).astype(dtype)
            if leaf[-1] == "dt_bias":
                step = np.exp(random.uniform(math.log(1e-3), math.log(1e-1), shape))
                return (step + np.log(-np.expm1(-step))).astype(dtype)
            if "norm" in leaf[0]:
                ones = leaf[0] == "norm" and "linear_attn" in name  # the gated norm is not centred at one
                return np.full(shape, float(ones), dtype)
            spread = 0.5 if "conv1d" in leaf else shape[-1] ** -0.5
            block = (random.standard_normal(min(count, self.BLOCK), np.float32) * spread).astype(dtype)
            return np.resize(block, count).reshape(shape)

        return lazy(make, name, dtype, shape)


def attach(model: onnx_ir.Model, weights: Weights, base: Path) -> onnx_ir.Model:
    """Give every initializer without data its tensor (in place)."""
    for name, value in model.graph.initializers.items():
        held = getattr(value.const_value, "raw", None)
        if not isinstance(held, FakeTensor):
            continue
        assert value.const_value is not None
        shape = tuple(int(size) for size in value.const_value.shape)  # type: ignore[arg-type]
        value.const_value = weights.tensor(name, value.const_value.dtype.numpy(), shape, base)
    return model


def transposed(array: np.ndarray, perm: tuple[int, ...]) -> np.ndarray:
    """`np.transpose(array, perm)` in a memory of its own; by torch, whose copy goes in blocks and is 4 times faster."""
    bits = array.view(np.dtype(f"i{array.itemsize}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mapped files are read-only, and nothing is written
        source = torch.from_numpy(bits)
    return source.permute(perm).contiguous().numpy().view(array.dtype)


def fold_transposes(model: onnx_ir.Model) -> onnx_ir.Model:
    """Store weights the way they are used: a weight read only through one Transpose is stored transposed (in place)."""
    for name, value in list(model.graph.initializers.items()):
        users = [node for node, _ in value.uses()]
        tensor = value.const_value
        if tensor is None or not users or any(node.op_type != "Transpose" for node in users):
            continue
        if len({tuple(node.attributes["perm"].as_ints()) for node in users}) > 1:
            continue
        perm = tuple(users[0].attributes["perm"].as_ints())
        shape = tuple(int(tensor.shape[axis]) for axis in perm)  # type: ignore[arg-type]
        turned = lazy(
            lambda tensor=tensor, perm=perm: transposed(tensor.numpy(), perm),  # type: ignore[misc]
            f"{name}.transposed",
            tensor.dtype.numpy(),
            shape,
        )
        new = onnx_ir.Value(
            name=f"{name}.transposed", shape=onnx_ir.Shape(shape), type=value.type, const_value=turned
        )
        model.graph.register_initializer(new)
        for node in users:
            node.outputs[0].replace_all_uses_with(new)
            model.graph.remove(node, safe=True)
        model.graph.initializers.pop(name)
    return model
