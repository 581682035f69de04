"""The main job, on the NumPy meaning (the simulator's run is `./build.sh run`): artefacts, verdict, refusals."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from hybrid_ops import HybridOpsError, run_job
from hybrid_ops.export import accuracy, check_file
from hybrid_ops.export.cli import app


def test_artefacts_and_verdict(tmp_path, monkeypatch):
    arguments = ["run", "--out", str(tmp_path), "--steps", "2", "--prompt", "4", "--backend", "reference"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "all bounds hold" in done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "report.json", "table.txt"]
    assert check_file(tmp_path / "model.onnx") == []
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["failures"] == [] and report["launches"] == 6 and report["nodes"]["Custom"] == 3
    assert report["rules"] > 45 and len(report["tokens"]) == len(report["by_step"]) == 2
    for tensors in report["agreements"].values():
        assert set(tensors) == {
            "logits",
            "present_conv_states",
            "present_recurrent_states",
            "present_kv_cache",
        }
        assert all(figures["cosine"] > 0.9999 for figures in tensors.values())
    table = (tmp_path / "table.txt").read_text()
    assert "exported graph" in table and "recurrent_states" in table


def test_a_bound_that_does_not_hold_fails():
    report = run_job.Report("ascend310p", "float16", "reference", "off", 1, 1)
    bad = accuracy.Agreement(0.9998, 0.01, 0.1)
    report.agreements = {"exported graph": {"logits": bad, "present_kv_cache": bad}}
    report.findings = [
        {"rule": "C12", "severity": "S", "node": "n", "attribute": "scale_value", "problem": "missing"}
    ]
    report.judge()
    assert len(report.failures) == 2
    assert (
        report.failures[0].startswith("exported graph: logits: ")
        and "C12 n scale_value" in report.failures[1]
    )


def test_agreement():
    import numpy as np

    zeros = np.zeros((2, 3), np.float32)
    assert accuracy.agreement(zeros, zeros) == accuracy.PERFECT
    nan = np.full((2, 3), np.nan, np.float32)
    assert not accuracy.agreement(nan, zeros + 1).within(accuracy.ACCEPTANCE)
    assert not accuracy.PERFECT.worse(accuracy.agreement(nan, zeros + 1)).within(accuracy.ACCEPTANCE)
    half = accuracy.agreement(zeros + 2, zeros + 1)
    assert half.cosine == pytest.approx(1) and half.nrmse == 1 and half.max_abs == 1
    with pytest.raises(ValueError, match="shape"):
        accuracy.agreement(zeros, zeros[0])


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"soc": "ascend1"}, "soc: not a known SoC: got 'ascend1'"),
        ({"backend": "gpu"}, "run: backend: not a known choice: got 'gpu'; allowed sim, reference"),
        ({"checks": "some"}, "run: checks: not a known choice: got 'some'; allowed full, off"),
        ({"steps": 0}, "run: steps: too small: got 0; allowed 1 or more"),
    ],
)
def test_refusals_leave_nothing_behind(arguments, text, tmp_path):
    with pytest.raises(HybridOpsError, match=text):
        run_job.run_job(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HybridOpsError, match="run: out: cannot be written to"):
        run_job.run_job(tmp_path / "file" / "out")
