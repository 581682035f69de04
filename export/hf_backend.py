"""Backend `mindspore_lite` of transformers.exporters, where that takes backends (transformers 5.23 and later).

`register()` makes the auto classes find it; `LiteExporter` works as any other exporter of that package:

    LiteExporter().export_for_generation(model, {"input_ids": ids, "attention_mask": mask}, LiteConfig(dynamic=True))

Graphs keep that package's inputs and outputs (every leaf of the cache). Those of `hybrid-ops export` have the published
ones and need nothing of transformers but the model's classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir
import torch
import transformers

from hybrid_ops import check
from hybrid_ops.export import run_graph
from hybrid_ops.export.onnx_export import OPSET, finish, translation_table
from hybrid_ops.export.profiles import DEFAULT_PROFILE
from hybrid_ops.export.save import save_model, to_default_domain
from hybrid_ops.models import experts
from hybrid_ops.models.gated_delta import chunk_operator_rule
from hybrid_ops.models.releases import check_release
from hybrid_ops.models.swap import CHUNK_GLOBAL, Installation, install, modelling_modules

check_release("export")
try:
    from transformers.exporters import exporter_onnx
    from transformers.exporters.auto import register_backend
    from transformers.exporters.configs import OnnxConfig
    from transformers.exporters.runners.base import ModelRunner
    from transformers.exporters.utils import onnx_inputs
except ImportError as error:
    raise check.refuse(
        "export", "transformers", "takes no export backends", got=transformers.__version__, allowed="transformers 5.23 or later",
        soc="every SoC", hint="hybrid-ops export works with every supported release",
    ) from error  # fmt: skip

FORMAT = "mindspore_lite"


@dataclass
class LiteConfig(OnnxConfig):
    """`OnnxConfig` with the converter release the graph is written for and the SoC of the operators."""

    export_format: str = FORMAT  # type: ignore[assignment]
    opset_version: int | None = OPSET
    target: str = DEFAULT_PROFILE
    soc: str = "ascend310p"


def _masks(rotary: Any) -> torch.Tensor:
    """`[3, rotary_dim / 2]`: 1 where a frequency takes its position from time, height, width."""
    size = rotary.inv_freq.numel()
    masks, axis = torch.zeros(3, size), torch.zeros(size, dtype=torch.long)
    for which in (1, 2):
        axis[which : rotary.mrope_section[which] * 3 : 3] = which
    masks[axis, torch.arange(size)] = 1
    return masks


def recomposed(masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
    """Interleaved multimodal rope by constant masks: the indexed writes of the original become ScatterND."""
    mixed = (freq * masks[:, None, None, :].to(freq.dtype)).sum(dim=0)
    return torch.cat((mixed, mixed), dim=-1)


@contextmanager
def operators(model: torch.nn.Module, soc: str) -> Iterator[None]:
    """The model with its rules as operators, experts independent of routing and rope without indexed writes."""
    done = Installation()
    with ExitStack() as stack:
        stack.callback(done.restore)
        if any(hasattr(layer, "linear_attn") for layer in model.modules()):
            stack.callback(install(model, soc=soc).restore)
            rule = functools.partial(chunk_operator_rule, soc=soc)
            for module in modelling_modules():
                if callable(vars(module).get(CHUNK_GLOBAL)):
                    done.set(module, CHUNK_GLOBAL, rule)
        for layer in model.modules():
            if hasattr(layer, "gate_up_proj") and hasattr(layer, "down_proj") and hasattr(layer, "act_fn"):
                stack.callback(_replace(layer, "forward", functools.partial(experts.routed_all, layer)))
            if hasattr(layer, "mrope_section") and hasattr(layer, "recomposition_frequencies"):
                mixed = functools.partial(recomposed, _masks(layer))
                stack.callback(_replace(layer, "recomposition_frequencies", mixed))
        yield


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Put an attribute on one instance; calling the result takes it off again."""
    object.__setattr__(owner, name, function)
    return lambda: object.__delattr__(owner, name)


@contextmanager
def translations() -> Iterator[None]:
    """Our operators in that package's table of translations (private; the same name in 5.15 to 5.24)."""
    table = exporter_onnx._ONNX_TRANSLATION_TABLE
    ours = {operator: emit for operator, emit in translation_table().items() if operator not in table}
    table.update(ours)
    try:
        yield
    finally:
        for operator in ours:
            del table[operator]


class LiteExporter(exporter_onnx.OnnxExporter):
    """Exports a `PreTrainedModel` to an ONNX graph that the converter of MindSpore Lite takes."""

    export_format = FORMAT  # type: ignore[assignment]
    config_class = LiteConfig

    def export_program(self, model: Any, sample_inputs: Any, config: Any) -> tuple[onnx_ir.Model, Any]:  # type: ignore[override]  # a graph, not an ExportedProgram
        """As the base class; Custom nodes complete for `config.target`, in the default domain."""
        with operators(model, config.soc), translations():
            program, metadata = super().export_program(model, sample_inputs, config)
        return to_default_domain(finish(program, config.target)), metadata

    @classmethod
    def save_program(cls, program: onnx_ir.Model, path: str | Path) -> None:  # type: ignore[override]  # a graph, not an ExportedProgram
        """Whole or not at all, weights of 1 GB and more beside it."""
        save_model(program, path)

    @classmethod
    def program_files(cls, filename: str) -> list[str]:
        """The data file is there only for large models."""
        return [filename]


class LiteRunner(ModelRunner):
    """Runs an exported graph on the CPU: ONNX operators in onnx's evaluator, Custom nodes in the simulator."""

    def __init__(self, metadata: Any, runner: run_graph.GraphRunner) -> None:
        super().__init__(metadata)
        self.runner = runner

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def from_program(
        cls,
        program: onnx_ir.Model,
        metadata: Any,
        device: Any = None,
        backend: str = "sim",
        soc: str = "ascend310p",
    ) -> LiteRunner:
        """`backend`: "sim" or "reference". Errors: HybridOpsError for a device other than the CPU."""
        if device is not None and torch.device(device).type != "cpu":
            raise check.refuse("export", "device", "graphs run here", got=device, allowed="cpu", soc=soc)
        return cls(metadata, run_graph.GraphRunner(onnx_ir.to_proto(program), backend=backend, soc=soc))

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any) -> Any:
        """Outputs as the model returns them; inputs are never modified."""
        names = [value.name for value in self.runner.model.graph.input]
        inputs = onnx_inputs(names, kwargs)
        outputs = self.runner.run({name: tensor.detach().numpy() for name, tensor in inputs.items()})
        return self.unflatten([torch.from_numpy(value) for value in outputs.values()])


def register() -> None:
    """Make `export_format="mindspore_lite"` known to transformers' auto classes (again does nothing new)."""
    from transformers.exporters.auto import EXPORT_BACKENDS

    if FORMAT not in EXPORT_BACKENDS:
        register_backend(LiteExporter, LiteRunner)
