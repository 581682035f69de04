"""Choice of backend, and what happens when compiler, cache, chip or operator package are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hybrid_ops import build, case, check, contract, doctor, npu, runtime, sim

RGDR = "recurrent_gated_delta_rule"
CALL = """
import sys
from hybrid_ops import case, runtime
c = case.cases("recurrent_gated_delta_rule", "ascend310p")[0]
inputs = c.inputs()
before = inputs["state"].copy()
try:
    for _ in range(2):
        runtime.run(c.op, inputs, c.attrs, backend=sys.argv[1] if len(sys.argv) > 1 else None)
finally:
    assert inputs["state"].tobytes() == before.tobytes()
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {n: v for n, v in os.environ.items() if n not in ("HYBRID_OPS_PREBUILT", "CXX")}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess) -> str:
    return done.stderr.strip().splitlines()[-1]


def test_without_compiler_cpu_tensors_run_on_the_reference_and_that_is_said_once():
    done = python("-c", CALL, CXX="/nowhere/g++")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("CPU tensors run on the reference backend, no C++ compiler found") == 1


def test_simulator_without_compiler_is_refused(tmp_path):
    done = python("-c", CALL, "sim", CXX="/nowhere/g++", HYBRID_OPS_CACHE=str(tmp_path))
    assert done.returncode != 0
    assert "hybrid_ops: compiler: /nowhere/g++ not found: got PATH=" in last_line(done)
    assert "allowed g++" in last_line(done)
    assert not list(tmp_path.glob("*.so")), "a library without a compiler"


@pytest.mark.parametrize("command", [["build"], ["selftest", "--only", "decode-4b"]], ids=lambda c: c[0])
def test_cache_that_cannot_be_written(tmp_path, command):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = python("-m", "hybrid_ops", *command, HYBRID_OPS_CACHE=str(blocked / "cache"))
    assert done.returncode == 2
    assert f"hybrid_ops: cache: folder not writable: got {blocked}" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [["selftest", "--soc", "ascend999"], ["build", "--soc", "ascend999"]], ids=lambda c: c[0]
)
def test_wrong_soc_name(command):
    done = python("-m", "hybrid_ops", *command)
    assert done.returncode == 2
    assert "soc: not a known SoC: got 'ascend999'; allowed ascend310p, ascend910b" in done.stderr.replace(
        "\n", " "
    )
    assert "Traceback" not in done.stderr


def test_kernel_that_does_not_compile_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    kernel = tmp_path / "broken.cpp"
    kernel.write_text('extern "C" void broken(unsigned char* x) { NoSuchCall(x); }\n')
    with pytest.raises(sim.SimulatorError, match="NoSuchCall"):
        sim.compile_kernel_file(kernel, "broken", soc="ascend310p", quiet=True)
    assert not list((tmp_path / "cache").glob("*.so"))
    with pytest.raises(sim.SimulatorError, match="source missing"):
        sim.compile_kernel_file(tmp_path / "absent.cpp", "absent", soc="ascend310p")


def test_options_by_context(soc):
    found = case.cases(RGDR, soc)[0]
    with runtime.using(backend="reference"):
        assert runtime.options().backend == "reference"
        runtime.run(RGDR, found.inputs(), found.attrs)
    assert runtime.options().backend is None
    with (
        pytest.raises(check.HybridOpsError, match="using: no such option: got chip"),
        runtime.using(chip="x"),
    ):
        pass


def package(folder: Path, vendor: str, name: str = RGDR) -> Path:
    kernels = folder / "vendors" / vendor / "op_impl" / "ai_core" / "tbe" / "kernel" / "ascend310p" / name
    kernels.mkdir(parents=True)
    return folder / "vendors" / vendor


def test_operator_package_is_found_in_cann_order(tmp_path, monkeypatch):
    first, second = package(tmp_path / "a", npu.VENDOR), package(tmp_path / "b", npu.VENDOR)
    monkeypatch.setenv(npu.CUSTOM_PATHS, f"{first}{os.pathsep}{tmp_path / 'b'}")
    monkeypatch.delenv("ASCEND_OPP_PATH", raising=False)
    assert npu.package_folders() == [first, second]


def test_doctor_says_which_of_two_equal_operators_wins(tmp_path, monkeypatch):
    opp = tmp_path / "opp"
    builtin = opp / "built-in" / "op_impl" / "ai_core" / "tbe" / "impl" / "dynamic"
    builtin.mkdir(parents=True)
    (builtin / f"{RGDR}.py").touch()
    ours = package(tmp_path / "custom", npu.VENDOR)
    monkeypatch.setenv("ASCEND_OPP_PATH", str(opp))
    monkeypatch.setenv(npu.CUSTOM_PATHS, str(ours))
    op = contract.load()[RGDR]
    both = next(f for f in doctor.examine() if f.subject == op.type)
    assert both.text.startswith(f"2 packages have it: {npu.VENDOR} ({ours}); CANN's own")
    assert "the first one wins" in both.text
    monkeypatch.delenv(npu.CUSTOM_PATHS)
    alone = next(f for f in doctor.examine() if f.subject == op.type)
    assert alone.text.startswith("comes from CANN's own")


def test_doctor_exit_code(tmp_path):
    assert python("-m", "hybrid_ops", "doctor").returncode == 0
    broken = python("-m", "hybrid_ops", "doctor", CXX="/nowhere/g++")
    assert (
        broken.returncode == 1
        and "compiler: hybrid_ops: compiler: /nowhere/g++ not found" in broken.stdout.replace("\n", " ")
    )


def test_npu_backend_says_what_is_missing():
    op = contract.load()[RGDR]
    if "torch_npu" in sys.modules:
        pytest.skip("torch_npu is installed here")
    with pytest.raises(check.HybridOpsError, match="backend: npu: torch_npu cannot be imported"):
        npu.call(op, "ascend310p", {}, {}, {})


def test_reports_of_severity_warning_reach_the_user():
    kernel = Path(__file__).parent / "kernels" / "over_read.cpp"
    library = sim.compile_kernel_file(kernel, "over_read", soc="ascend310p", quiet=True)
    x, y = np.arange(6, dtype=np.float32), sim.Argument("y", sim.OUTPUT, size=32)
    with pytest.warns(
        sim.SimulatorWarning,
        match=r"over_read.cpp:13: gm.over_read: DataCopy: src: reads bytes \[0, 32\) of 'x'",
    ):
        sim.launch_kernel(
            library, [sim.Argument("x", sim.INPUT, x), y], op="over_read", soc="ascend310p", block_dim=1
        )
    np.testing.assert_array_equal(y.array([8], "float32")[:6], x)
