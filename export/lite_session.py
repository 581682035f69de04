"""Decodes with MindSpore Lite on a device: states stay there, and steps of even and odd parity use them in turn.

For decode graphs with fixed KV capacity, whose shapes are all static (a 310P runs no others). Each step reads the states
of one parity and writes those of the other, so no output aliases an input that is still being read; the host sees token
ids, mask, positions and logits only. mindspore_lite 2.1 or later is needed (tensors on the device, bound outputs).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_ops import check

STATES = ("conv_states", "recurrent_states", "kv_cache")
OUTPUTS = ("logits", *(f"present_{name}" for name in STATES))
# mindspore_lite.DataType members by NumPy name; bfloat16 is none of them.
_DTYPES = {"float16": "FLOAT16", "float32": "FLOAT32", "int32": "INT32", "int64": "INT64"}


def _refuse(argument: str, wrong: str, got: object, allowed: object) -> check.HybridOpsError:
    return check.refuse("lite", argument, wrong, got=got, allowed=allowed, soc="this model")


def _mindspore_lite() -> Any:
    try:
        return importlib.import_module("mindspore_lite")
    except ImportError as error:
        raise check.refuse(
            "lite", "mindspore_lite", "cannot be imported", got=error, allowed="mindspore_lite 2.1 or later", soc="this machine",
            hint="install the wheel of the MindSpore Lite release that converted the model, for this Python, from the vendor's download page",
        ) from error  # fmt: skip


class DecodeSession:
    """One sequence (batch 1) on one device.

    `file`: MindIR of a decode step; `lite`: the mindspore_lite module, imported when left out (HybridOpsError when it is not installed); `config`: file of
    [ascend_context] and other run-time settings; `precision`: as it was converted with.
    Errors: HybridOpsError when the model is no decode step with fixed capacity.
    """

    def __init__(
        self,
        file: str | Path,
        *,
        device: int = 0,
        precision: str = "enforce_origin",
        config: str = "",
        lite: Any = None,
    ) -> None:
        lite = lite or _mindspore_lite()
        self._lite, self._device = lite, f"ascend:{device}"
        context = lite.Context()
        context.target = ["ascend"]
        context.ascend.device_id = device
        context.ascend.precision_mode = precision
        self._model = lite.Model()
        self._model.build_from_file(str(file), lite.ModelType.MINDIR, context, config)
        self._inputs = {tensor.name: tensor for tensor in self._model.get_inputs()}
        outputs = self._model.get_outputs()
        wanted = {"input_ids", "attention_mask", "position_ids", *(f"past_{name}" for name in STATES)}
        if set(self._inputs) != wanted or len(outputs) != len(OUTPUTS):
            got = f"{check.words(self._inputs)} and {len(outputs)} outputs"
            raise _refuse(
                "model", "no decode step", got, f"{check.words(sorted(wanted))} and {len(OUTPUTS)} outputs"
            )
        self.capacity = self._fixed_capacity(dict(zip(OUTPUTS, outputs, strict=True)))
        self.length = 0
        self._parity = 0
        self._busy = False
        self._logits = self._on_device(outputs[0])
        self._states = [
            {name: self._on_device(self._inputs[f"past_{name}"]) for name in STATES} for _ in range(2)
        ]

    def _fixed_capacity(self, outputs: Mapping[str, Any]) -> int:
        places = {
            "attention_mask": list(self._inputs["attention_mask"].shape)[-1],
            "past_kv_cache": list(self._inputs["past_kv_cache"].shape)[-2],
            "present_kv_cache": list(outputs["present_kv_cache"].shape)[-2],
        }
        if len(set(places.values())) != 1 or min(places.values()) <= 0:
            raise _refuse("capacity", "not fixed", places, "one positive size (export with --max-seq-len)")
        return int(places["attention_mask"])

    def _on_device(self, like: Any) -> Any:
        return self._lite.Tensor(shape=list(like.shape), dtype=like.dtype, device=self._device)

    def _numpy(self, name: str, value: np.ndarray) -> np.ndarray:
        """`value` as the model's input `name` wants it; refuses another shape."""
        tensor = self._inputs[name]
        if list(value.shape) != list(tensor.shape):
            raise _refuse(name, "shape", list(value.shape), list(tensor.shape))
        for dtype, member in _DTYPES.items():
            if tensor.dtype == getattr(self._lite.DataType, member):
                return np.ascontiguousarray(value, dtype=dtype)
        raise _refuse(name, "dtype of the model", tensor.dtype, check.words(_DTYPES))

    def start(self, states: Mapping[str, np.ndarray], length: int) -> None:
        """Take the states after a prompt of `length` tokens: conv_states, recurrent_states, kv_cache as the prefill
        graph returns them, the KV cache padded to the capacity.

        Errors: HybridOpsError for a missing state, another shape, or a length beyond the capacity.
        """
        if set(states) != set(STATES):
            raise _refuse("states", "not the model's", check.words(states), check.words(STATES))
        if not 0 <= length <= self.capacity:
            raise _refuse("length", "outside the capacity", length, f"0 to {self.capacity}")
        ready = {name: self._numpy(f"past_{name}", states[name]) for name in STATES}
        for name, value in ready.items():
            self._states[self._parity][name].set_data_from_numpy(value)
        self.length = length

    def step(self, token: int) -> np.ndarray:
        """Logits [1, 1, vocabulary] after one more token. A step that fails leaves the states as they were.

        Errors: HybridOpsError when the cache is full or another thread is inside a step.
        """
        if self.length >= self.capacity:
            raise _refuse("length", "the cache is full", self.length, f"fewer than {self.capacity} tokens")
        if self._busy:
            raise _refuse("step", "called while a step runs", "two callers", "one at a time")
        self._busy = True
        try:
            mask = np.zeros((1, self.capacity))
            mask[:, : self.length + 1] = 1
            host = {
                "input_ids": np.array([[token]]),
                "attention_mask": mask,
                "position_ids": np.full((4, 1, 1), self.length),
            }
            before, after = self._states[self._parity], self._states[1 - self._parity]
            inputs = []
            for name, tensor in self._inputs.items():
                if name in host:
                    tensor.set_data_from_numpy(self._numpy(name, host[name]))
                    inputs.append(tensor)
                else:
                    inputs.append(before[name.removeprefix("past_")])
            self._model.predict(inputs, [self._logits, *(after[name] for name in STATES)])
            logits = self._logits.get_data_to_numpy()
            self._parity = 1 - self._parity
            self.length += 1
            return logits
        finally:
            self._busy = False

    def states(self) -> dict[str, np.ndarray]:
        """The current states, copied to the host."""
        return {name: tensor.get_data_to_numpy() for name, tensor in self._states[self._parity].items()}
