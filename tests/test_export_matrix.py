"""Forms of export in which two settings meet first, by the same trial as the benchmark that runs all of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from hybrid_ops.export import accuracy, decode, matrix
from hybrid_ops.models.families import small_model

EVERY = list(matrix.forms())
CORNERS = sorted(matrix.corners(EVERY), key=str)  # one family after the other


@functools.cache
def model_of(family: str):
    return small_model(family)


def test_every_pair_of_settings_is_there():
    def pairs(forms):
        return {pair for form in forms for pair in itertools.combinations(vars(form).items(), 2)}

    assert len(EVERY) == len(set(EVERY)) == 3 * 2 * 2 * 3 * (2 + 1)
    assert pairs(CORNERS) == pairs(EVERY) and len(CORNERS) <= 12


@pytest.mark.parametrize("form", CORNERS, ids=str)
def test_the_graph_is_the_model(form, tmp_path):
    """Checker clean, Custom nodes counted, logits and states in bounds, 16 greedy tokens the model's."""
    trial = matrix.run(model_of(form.family), form, tmp_path)
    assert not trial.refusal and trial.faults == []
    assert trial.tokens == matrix.STEPS and trial.logits != accuracy.PERFECT != trial.states


OURS = [
    matrix.Form("qwen3_next", "decode", "dynamo", "paged", "lite-2.9", ours=True),
    matrix.Form("qwen3_5_moe", "decode", "legacy", "fixed", "lite-2.4", ours=True),
    matrix.Form("qwen3_5_moe", "decode", "legacy", "paged", "lite-2.7", ours=True),
]


@pytest.mark.parametrize("form", OURS, ids=str)
def test_a_graph_of_our_operators_alone(form, tmp_path):
    """Gated delta rule, attention and experts together, in the simulator: clean, counted, 16 greedy tokens the model's."""
    assert form in set(matrix.all_ours())
    trial = matrix.run(model_of(form.family), form, tmp_path, backend="sim")
    assert not trial.refusal and trial.faults == [] and trial.hazards == []
    assert sum(trial.customs.values()) == 2 + 2 + 4 * 3
    assert trial.tokens == matrix.STEPS and trial.logits != accuracy.PERFECT != trial.states


def test_a_trial_finds_what_differs(tmp_path, monkeypatch):
    """The trial fails on a graph of another model, and passes a refusal on."""
    form = matrix.Form("qwen3_5", "decode", "legacy", "growing", "lite-2.9")
    model, other = model_of("qwen3_5"), small_model("qwen3_5", seed=1)
    export = decode.export_decode
    monkeypatch.setattr(matrix.decode, "export_decode", lambda _, *a, **k: export(other, *a, **k))
    trial = matrix.run(model, form, tmp_path)
    assert trial.tokens < matrix.STEPS and len(trial.faults) >= 2, trial.faults
    assert matrix.run(model, dataclasses.replace(form, profile="lite-1"), tmp_path).refusal.startswith(
        "export: target"
    )
    twin = dataclasses.replace(
        trial, form=dataclasses.replace(form, exporter="dynamo"), attributes=[], work={}
    )
    assert len(matrix.twins([trial, twin])) == 2
