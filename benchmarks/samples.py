"""AscendC samples of the asc-devkit repository, unmodified, in the simulator: their own data, their own verification.

    python benchmarks/samples.py EXAMPLES [--sample NAME …] [--soc ascend910b]

EXAMPLES is its folder examples/01_simd_cpp_api. A sample passes when its verify script says so, its program returned 0 and no check
reported an error; device memory is zeroed as a driver does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybrid_ops import asc_runner

console = Console(soft_wrap=True, highlight=False, width=150)


@dataclass(frozen=True)
class Sample:
    """A folder with one .asc file, and its scenarios; None: it has only one, without a number."""

    name: str
    scenarios: tuple[int | None, ...]
    verify_needs_scenario: bool = False


SAMPLES = (
    Sample("matmul_basic_api", (None,)),
    Sample("mmad", (1, 2, 3, 4), verify_needs_scenario=True),
    Sample("data_copy_gm2l1", (1, 2)),
    Sample("fixpipe_l0c2gm", (1, 2, 4, 5, 6, 7)),  # 3 is for dav-3510
    Sample("cross_core_set_wait_flag", (0,)),
)


def script(folder: Path, name: str, words: list[str], cwd: Path) -> str:
    """Output of one of the sample's scripts; empty when it failed."""
    command = [sys.executable, str(folder / "scripts" / name), *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode == 0 else ""


def run(folder: Path, sample: Sample, scenario: int | None, soc: str) -> tuple[bool, str]:
    """Whether the scenario passed, and what was reported."""
    numbered = [] if scenario is None else [f"-scenarioNum={scenario}"]
    with tempfile.TemporaryDirectory() as name:
        cwd = Path(name)
        for part in ("input", "output"):
            (cwd / part).mkdir()
        script(folder, "gen_data.py", numbered, cwd)
        defines = [] if scenario is None else [f"SCENARIO_NUM={scenario}"]
        source = next(folder.glob("*.asc"))
        result = asc_runner.run_asc(source, soc, cwd=cwd, defines=defines, memory="zero", include=[folder])
        words = [
            *(numbered if sample.verify_needs_scenario else []),
            "output/output.bin",
            "output/golden.bin",
        ]
        verified = "pass" in script(folder, "verify_result.py", words, cwd).lower()
    counts = Counter(f"{h['severity']} {h['rule']}" for h in result.hazards)
    said = ", ".join(f"{what} x{n}" for what, n in sorted(counts.items())) or "silent"
    return verified and result.ok, said if verified else f"not verified; {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path, help="examples/01_simd_cpp_api of asc-devkit")
    names = [sample.name for sample in SAMPLES]
    parser.add_argument("--sample", nargs="+", default=names, choices=names)
    parser.add_argument("--soc", default="ascend910b")
    options = parser.parse_args()
    table = Table(
        "sample", "scenario", "result", "reports", title=f"samples on {options.soc}", title_justify="left"
    )
    failed = 0
    for sample in (s for s in SAMPLES if s.name in options.sample):
        folder = next(f for f in options.examples.rglob(sample.name) if f.is_dir())
        for scenario in sample.scenarios:
            passed, said = run(folder, sample, scenario, options.soc)
            failed += not passed
            table.add_row(
                sample.name, "" if scenario is None else str(scenario), "pass" if passed else "FAIL", said
            )
    console.print(table)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
