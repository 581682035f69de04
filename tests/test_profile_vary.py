"""`hybrid-ops profile --vary`: what is measured, which value wins, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hybrid_ops import case, check, contract, profile, profile_vary

OP, SOC = "hybrid_paged_attention", "ascend910b"


def find(name):
    return next(c for c in case.cases(OP, SOC) if c.id.endswith(f"-{name}"))


def profiles(cycles):
    """Stands in for the simulator: so many cycles for each value of num_splits."""
    seen = []

    def measure(attrs):
        seen.append(dict(attrs))
        made = {"cycles": cycles[attrs["num_splits"]], "ratio": None, "timing": {"bound": "memory"}}
        return SimpleNamespace(**made, op=OP, soc=SimpleNamespace(variant="910B3"))

    return measure, seen


@pytest.mark.parametrize(
    "cycles, wanted",
    [
        ({1: 800.0, 4: 200.0, 8: 400.0}, "num_splits=4 is fastest: 4.00 times as fast as num_splits=1"),
        ({1: 200.0, 4: 201.0, 8: 900.0}, "num_splits=1 is fastest: no other value pays here"),
    ],
)
def test_the_fastest_is_named(cycles, wanted):
    measure, seen = profiles(cycles)
    table, verdict = profile_vary.compare(measure, {"causal": True}, "num_splits", [1, 4, 8])
    assert verdict == wanted and table.row_count == 3
    assert seen == [{"causal": True, "num_splits": n} for n in (1, 4, 8)]
    assert list(table.columns[2].cells) == [f"{cycles[1] / cycles[n]:.2f}" for n in (1, 4, 8)]


def test_splits_pay_where_one_sequence_leaves_cores_idle(capsys):
    """One long sequence with one block of heads keeps one core busy; sixteen of them keep all."""
    sizes = ["heads=(1,1)", "dims=(32,32)", "page=64"]
    for lengths, pays in (("[768]", True), (f"[{', '.join(['96'] * 48)}]", False)):
        profile.command(OP, soc=SOC, only="fp16-910b-mha", vary="num_splits=1,4",
                        sizes=[f"lengths={lengths}", *sizes])  # fmt: skip
        assert ("num_splits=4 is fastest: " in capsys.readouterr().out) is pays


def test_sizes_make_another_case():
    made = profile_vary.resized(find("mha"), ["lengths=[5, 6, 7]", "heads=(4, 2)"], SOC)
    assert made.inputs()["context_lens"].tolist() == [5, 6, 7] and made.inputs()["query"].shape == (3, 4, 64)
    assert find("mha").inputs()["context_lens"].tolist() == [37, 64]


REFUSED = {
    "size": (["length=3"], "num_splits=1,2", "profile: with: no such size: got length; allowed lengths, "),
    "no-size": (["lengths"], "num_splits=1,2", "profile: with: not a name and values: got 'lengths'; allowed NAME=VALUE"),
    "size-value": (["lengths=x y"], "num_splits=1,2", "profile: with: lengths is no value: got 'x y'; allowed a Python literal"),
    "attribute": ([], "splits=1,2", "profile: vary: no such attribute: got splits; allowed scale_value, causal, num_splits, "),
    "one": ([], "num_splits=2,2", "profile: vary: nothing to compare: got 2,2; allowed two values or more"),
    "value": ([], "num_splits=1,many", "profile: vary: num_splits is no value: got 'many'; allowed a Python literal"),
    "operator": ([], "num_splits=1,33", "hybrid_paged_attention: num_splits: num_splits out of range: got num_splits=33; "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    sizes, vary, wanted = REFUSED[name]
    with pytest.raises(check.HybridOpsError) as caught:
        profile.command(OP, soc=SOC, only="mha", vary=vary, sizes=sizes)
    assert str(caught.value).startswith(wanted) and str(caught.value).endswith(f" on {SOC}")


def test_a_trace_is_of_one_run(tmp_path):
    with pytest.raises(check.HybridOpsError, match="profile: vary: one run has a trace, not several"):
        profile.command(OP, soc=SOC, vary="num_splits=1,2", trace=tmp_path / "x.json")


def test_flags_are_written_as_in_a_shell():
    assert profile_vary.values_of(contract.load()[OP], "causal=true,false", SOC) == ("causal", [True, False])
