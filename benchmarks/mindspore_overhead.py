"""What one call costs besides the kernel: MindSpore in both modes, PyTorch and NumPy, on the smallest call of each operator.

All four run the same kernel library in the simulator; the row "simulator" is that alone. `python benchmarks/mindspore_overhead.py`
prints microseconds per call (median of --calls, least in brackets: MindSpore hands calls to other threads, which a busy
machine delays) and the milliseconds MindSpore needs to compile a graph around one call.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import torch
from mindspore import Tensor, nn

import hybrid_ops
from hybrid_ops import case, contract, sim, torch_ops
from hybrid_ops import mindspore as hops


def microseconds(call: Callable[[], Any], calls: int) -> str:
    """Median and least of `calls` calls after one to warm up."""
    call()
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return f"{statistics.median(times) * 1e6:.0f} ({min(times) * 1e6:.0f})"


class Net(nn.Cell):
    def __init__(self, function: Callable[..., Any], attrs: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.attrs = function, attrs

    def construct(self, *tensors: Any) -> Any:
        return self.function(*tensors, **self.attrs)


def smallest(op: contract.Op) -> case.Case:
    """The float16 case with the fewest input bytes that has rows to compute."""
    found = [
        c for c in case.cases(op.name, "ascend310p") if "float16" in op.inputs[0].dtypes[c.soc][c.column]
    ]
    return min(found, key=lambda c: sum(a.nbytes for a in c.inputs().values() if a is not None))


def measure(op: contract.Op, calls: int) -> dict[str, str]:
    chosen = smallest(op)
    arrays, attrs = chosen.inputs(), dict(chosen.attrs)
    rows = {"simulator": microseconds(lambda: sim.launch(op, arrays, attrs, checks="off"), calls)}
    tensors = [None if a is None else torch_ops.from_numpy(a) for a in arrays.values()]
    public = getattr(hybrid_ops, op.name)
    rows["NumPy"] = microseconds(lambda: public(*arrays.values(), **attrs, functional=True), calls)
    with torch.no_grad():
        rows["PyTorch"] = microseconds(lambda: public(*tensors, **attrs, functional=True), calls)
    given = [None if a is None else Tensor(a) for a in arrays.values()]
    function = getattr(hops, op.name)

    def run(call: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: [t.asnumpy() for t in call(*given)]

    ms.set_context(mode=ms.PYNATIVE_MODE)
    rows["MindSpore PyNative"] = microseconds(run(lambda *t: function(*t, **attrs)), calls)
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net(function, attrs)
    begin = time.perf_counter()
    run(net)()
    rows["compile, ms"] = f"{(time.perf_counter() - begin) * 1e3:.0f}"
    rows["MindSpore graph"] = microseconds(run(net), calls)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    ms.set_device("CPU")
    columns = ("simulator", "NumPy", "PyTorch", "MindSpore PyNative", "MindSpore graph", "compile, ms")
    print(f"{'smallest float16 call, us':<34}" + "".join(f"{c:>20}" for c in columns))
    for op in contract.load().values():
        rows = measure(op, calls)
        print(f"{op.name:<34}" + "".join(f"{rows[c]:>20}" for c in columns))


if __name__ == "__main__":
    main()
