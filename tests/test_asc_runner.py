"""Host-and-kernel files (.asc): launch rewriting, the acl shim, reports per launch."""

from pathlib import Path

import pytest

from hybrid_ops import asc_runner, check, sim_build
from hybrid_ops.asc_runner import rewrite_launches

ADD = Path(__file__).parent / "kernels" / "add.asc"


def test_file_runs_unmodified_and_silent(soc):
    result = asc_runner.run_asc(ADD, soc, argv=["hello"])
    assert result.ok, result
    assert "text <<<2>>> (hello)" in result.stdout and "wrong 0, first launch 0" in result.stdout
    assert len(result.reports) == 2 and result.hazards == []


def test_missing_queue_step_is_reported_with_its_line():
    result = asc_runner.run_asc(ADD, "ascend910b", defines=["WITHOUT_QUEUE"])
    assert not result.ok and "first launch 507015" in result.stdout
    race = next(h for h in result.hazards if h["rule"] == "race.raw")
    lines = ADD.read_text().splitlines()
    assert "DataCopy(gz, c" in lines[race["line"] - 1] and "Add(c" in lines[race["other"]["line"] - 1]
    assert "missing V_MTE3" in race["message"] and race["kernel_file"].endswith("add.asc")


def test_checks_off_and_timing():
    result = asc_runner.run_asc(ADD, "ascend910b", defines=["WITHOUT_QUEUE"], checks="off", record=True)
    assert result.ok and result.reports[0]["timing"]["cycles"] > 0


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("k<<<n, 0, s>>>(a, f(b));", 'LaunchKernel<1>("k", ::ascsim::KernelCores{0, 0}, n, 0, s, [&] { k(a, f(b)); });'),
        ("ns::k<T, 2> <<<g(1, 2), nullptr, s>>>(a);", 'LaunchKernel<1>("ns::k<T, 2>", ::ascsim::KernelCores{0, 0}, g(1, 2), nullptr, s, [&] { ns::k<T, 2> (a); });'),
        ("k<<<1, 0>>>(a);", 'LaunchKernel<1>("k", ::ascsim::KernelCores{0, 0}, 1, 0, nullptr, [&] { k(a); });'),
    ],
)  # fmt: skip
def test_launches_are_rewritten(source, wanted):
    assert rewrite_launches(source) == "::ascsim::" + wanted


def test_cores_of_kernels():
    text = """__global__ __cube__ void c(int) {} template <int n> __global__ __aicore__ __mix__(1, 2) void m(int) {}
    __global__ __vector__ void v(int) {} extern "C" __global__ __aicore__ void k(int) { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_1); }"""
    assert asc_runner.kernel_cores(text) == {"c": (1, 0), "m": (1, 2), "v": (0, 0), "k": (1, 1)}
    launched = rewrite_launches("m<3><<<4, 0, s>>>(a);", "ascend910b", {"m": (1, 2)})
    assert '"m<3>", ::ascsim::KernelCores{1, 2}, 4' in launched


def test_cores_of_tiling_keys():
    text = """KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY); KERNEL_TASK_TYPE(2, KERNEL_TYPE_MIX_AIC_1_2);
    KERNEL_TASK_TYPE(0x10UL, KERNEL_TYPE_MIX_AIC_1_1);"""
    assert [sim_build.task_cores(text, key) for key in (None, 0, 2, 16)] == [(1, 2), (0, 0), (1, 2), (1, 1)]
    assert sim_build.task_cores("KERNEL_TASK_TYPE(1, KERNEL_TYPE_AIC_ONLY);", 3) == (0, 0)


@pytest.mark.parametrize("source", ['puts("k<<<1, 0, s>>>(a)");', "// k<<<1, 0, s>>>(a)\n", "x = 1 <<<2;"])
def test_what_is_no_launch_stays(source):
    assert rewrite_launches(source) == source


def test_lines_stay_where_they_are():
    source = "int a;\nk<<<n,\n  0, s>>>(\n  b);\nint c;\n"
    assert rewrite_launches(source).count("\n") == source.count("\n")


def test_refusals():
    with pytest.raises(check.HybridOpsError, match="wrong number of settings: got 1"):
        rewrite_launches("k<<<1>>>(a);")
    with pytest.raises(check.HybridOpsError, match="asc: file: missing"):
        asc_runner.run_asc("nowhere.asc")
