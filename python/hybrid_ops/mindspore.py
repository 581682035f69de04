"""Every operator as a MindSpore function: `from hybrid_ops import mindspore as hops`, `hops.<operator>(…)`.

Arguments, order and defaults are those of PyTorch's `hybrid_ops.<op>`; every output is returned and no input is
modified. The functions work in PyNative and in graph mode, inside and outside of a Cell. They belong to the device target
that MindSpore has when this module is imported; `bind` makes them anew after `mindspore.set_device`.
"""

from __future__ import annotations

from pathlib import Path as _Path
from typing import Any

import mindspore as _ms

from . import check as _check
from . import contract as _contract
from . import mindspore_ops as _ops

_missing: dict[str, str] = {}


def bind(target: str | None = None) -> None:
    """Make the functions for a device target, "CPU" (simulator) or "Ascend" (operator package); None takes MindSpore's.

    Raises:
        HybridOpsError: another target. SimulatorError: the cache for generated files cannot be written.
    """
    wanted = target or _ms.get_context("device_target")
    _check.choice("hybrid_ops.mindspore", "target", wanted, ("CPU", "Ascend"))
    _missing.clear()
    for name in _contract.load():
        try:
            # In the module's dict, not through __getattr__: the graph compiler looks there only.
            globals()[name] = _ops.function(name, wanted)
        except _check.HybridOpsError as error:
            if wanted == "CPU":
                raise
            globals().pop(name, None)
            _missing[name] = str(error)


def relocate(source: str | _Path, target: str | _Path) -> list[str]:
    """Copy a MindIR file so that its operators use this machine's simulator; `mindspore.load` takes the copy.

    `mindspore.export` stores absolute paths of libraries, so a file from another machine, or from before a change of the
    kernels, does not run. Builds what is missing.

    Args:
        source: MindIR file that `mindspore.export` wrote on a CPU.
        target: file to write; must not end in "_graph.mindir", which MindSpore cannot load.

    Returns:
        Types of the operators found.

    Raises:
        HybridOpsError: not a MindIR file, an operator that this release does not have, or a target MindSpore cannot load.
    """
    from . import mindspore_mindir

    return mindspore_mindir.relocate(_Path(source), _Path(target))


def __getattr__(name: str) -> Any:
    if name in _missing:  # the package on this machine lacks it
        raise _check.HybridOpsError(_missing[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["bind", "relocate", *_contract.load()])


bind()
