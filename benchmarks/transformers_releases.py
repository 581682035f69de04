"""Adapter and export with every transformers release that is supported, one line per release.

    python benchmarks/transformers_releases.py [RELEASE ...] [--folder DIR]

Each release is installed with pip into a folder of its own (no dependencies but those that the environment lacks or has
in a version it does not accept) and put in front on PYTHONPATH. With it: small models of all families decode with the operator in place of
transformers' rule, decode and prefill graphs are exported by both exporters and run against the model, and the backend
of transformers.exporters works or refuses. `calls` are operator calls during decode, `forms` those of export_matrix.
Exit code 1 if a supported release fails or an unsupported one is not refused.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from packaging.requirements import Requirement
from packaging.version import Version

# The last of every minor release that is supported, and the one before the first.
RELEASES = "5.15.1 5.16.1 5.17.0 5.18.0 5.19.0 5.20.2 5.21.1 5.22.2 5.23.0 5.24.0".split()
UNSUPPORTED = ("5.14.1",)
STEPS = 16


def pip_install(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    command += ["--disable-pip-version-check", "--target", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{requirement} cannot be installed: {done.stderr.strip()}")


def version(name: str, folder: Path) -> str | None:
    """What `import` would find with `folder` in front."""
    found = next(iter(importlib.metadata.distributions(name=name, path=[str(folder), *sys.path])), None)
    return None if found is None else found.version


def prepare(release: str, folder: Path) -> Path:
    """The folder with that release and what it needs, directly or not, that the environment has not or otherwise."""
    target, todo = folder / release, [Requirement(f"transformers=={release}")]
    while todo:
        wanted = todo.pop()
        have = version(wanted.name, target)
        if have is not None and wanted.specifier.contains(Version(have), prereleases=True):
            continue
        pip_install(f"{wanted.name}{wanted.specifier}", target)
        (found,) = importlib.metadata.distributions(name=wanted.name, path=[str(target)])
        needed = map(Requirement, found.requires or [])
        todo += [n for n in needed if n.marker is None or n.marker.evaluate({"extra": ""})]
    return target


def adapter(family: str) -> dict[str, Any]:
    """Greedy decode with the operator in place of transformers' rule: calls, equal tokens, error of the logits."""
    import torch

    from hybrid_ops import models, runtime
    from hybrid_ops.export import accuracy, matrix
    from hybrid_ops.models.cached import forward
    from hybrid_ops.models.families import small_model
    from hybrid_ops.models.gated_delta import recurrent_rule
    from hybrid_ops.models.gated_delta_net import fused

    model, calls = small_model(family), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return recurrent_rule(*args, **kwargs)

    def decode() -> tuple[list[int], torch.Tensor]:
        logits, cache = forward(model, matrix.prompt(21, 64))
        tokens, found = [int(logits[0, -1].argmax())], []
        for _ in range(STEPS):
            logits, cache = forward(model, torch.tensor([[tokens[-1]]]), cache)
            found.append(logits)
            tokens.append(int(logits[0, -1].argmax()))
        return tokens, torch.cat(found)

    with runtime.using(backend="reference"):
        wanted, logits = decode()
        with models.patched(model, rule=counted):
            got, ours = decode()
        with fused(model):
            whole, layers_too = decode()
        again, plain = decode()
    found = accuracy.agreement(ours.numpy(), logits.numpy())
    layers = sum(kind == "linear_attention" for kind in model.config.layer_types)
    faults = []
    if calls != layers * STEPS:
        faults.append(f"{family}: {calls} operator calls instead of {layers * STEPS}")
    found_fused = accuracy.agreement(layers_too.numpy(), logits.numpy())
    if whole != wanted or not found_fused.within(accuracy.bound_of("logits")):
        faults.append(f"{family}: decode with layers of operators differs: {found_fused}")
    if got != wanted or not found.within(accuracy.bound_of("logits")):
        faults.append(f"{family}: decode with the operator differs: {found}")
    if again != wanted or not torch.equal(plain, logits):
        faults.append(f"{family}: the model is not as before")
    return {"calls": calls, "nrmse": found.nrmse, "faults": faults}


def backend() -> str:
    """What the backend of transformers.exporters does on this release: node counts, or why it refuses."""
    import torch

    from hybrid_ops import HybridOpsError, runtime

    try:
        from hybrid_ops.export import hf_backend
    except HybridOpsError as error:
        return f"refused ({str(error).split(': ', 2)[2].split(' on every SoC')[0]})"
    from hybrid_ops.models.families import small_model

    hf_backend.register()
    ids = torch.arange(3, 12)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with runtime.using(backend="reference"):
        made = hf_backend.LiteExporter().export_for_generation(
            small_model("qwen3_5"), inputs, hf_backend.LiteConfig()
        )
    counts = {
        name: sum(node.op_type == "Custom" for node in part.program.graph.all_nodes())
        for name, part in made.components.items()
    }
    return ", ".join(f"{name} {count} Custom" for name, count in counts.items())


def trial() -> dict[str, Any]:
    """Everything, with the release that is importable here."""
    import transformers

    from hybrid_ops import HybridOpsError
    from hybrid_ops.export import matrix
    from hybrid_ops.models.families import FAMILIES, small_model

    report: dict[str, Any] = {"release": transformers.__version__, "refused": "", "faults": []}
    try:
        parts = [adapter(family) for family in FAMILIES]
        report["calls"] = sum(part["calls"] for part in parts)
        report["nrmse"] = max(part["nrmse"] for part in parts)
        report["faults"] += [fault for part in parts for fault in part["faults"]]
        chosen = [
            matrix.Form("qwen3_5", "decode", "dynamo", "growing", "lite-2.9"),
            matrix.Form("qwen3_5", "prefill", "legacy", "fixed", "lite-2.9"),
            matrix.Form("qwen3_5_moe", "decode", "legacy", "fixed", "lite-2.9"),
            matrix.Form("qwen3_next", "prefill", "dynamo", "growing", "lite-2.9"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            for form in chosen:
                found = matrix.run(small_model(form.family), form, Path(folder))
                report["faults"] += [f"{form}: {fault}" for fault in found.faults]
                report["faults"] += [f"{form} refused: {found.refusal}"] if found.refusal else []
        report["forms"] = len(chosen)
        report["backend"] = backend()
    except HybridOpsError as error:
        report["refused"] = str(error)
    return report


def measure(release: str, folder: Path) -> dict[str, Any]:
    path = os.pathsep.join([str(prepare(release, folder)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, "--here"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    try:
        report = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = "; ".join(done.stderr.strip().splitlines()[-3:])
        return {
            "release": release,
            "refused": "",
            "faults": [f"ended with exit code {done.returncode}: {last}"],
        }
    if report["release"] != release:
        report["faults"].append(f"release {report['release']} was imported")
    return report


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("releases", nargs="*", default=[*UNSUPPORTED, *RELEASES])
    parser.add_argument("--folder", type=Path, help="where releases are installed, and kept")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(trial()))
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        for release in given.releases:
            start = time.perf_counter()
            report = measure(release, given.folder or Path(temporary))
            bad = bool(report["faults"]) or bool(report["refused"]) != (release in UNSUPPORTED)
            failed |= bad
            line = f"transformers {release}: {'FAULT' if bad else 'ok'}"
            if report["refused"]:
                line += f", refused: {report['refused']}"
            elif not report["faults"]:
                line += f", {report['calls']} calls, logits NRMSE {report['nrmse']:.1e}, {report['forms']} forms equal"
                line += f", exporters backend: {report['backend']}"
            print(f"{line} ({time.perf_counter() - start:.0f} s)", flush=True)
            for fault in report["faults"]:
                print(f"  {fault}", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
