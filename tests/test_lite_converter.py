"""A real converter, MindSpore Lite 2.0.0: our graphs convert, and every attribute is found again in the MindIR.

The release has no parser for Custom nodes. Graphs are cut at them, or this package's plugin adds the parser; neither
says anything about the Ascend half, which needs CANN.
"""

from __future__ import annotations

import collections
import re
import resource
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from lite_converter import lite  # noqa: E402, F401
from mindir_files import custom_model  # noqa: E402

from hybrid_ops.export import convert, cut_graph, lite_plugin_build, lite_run, mindir  # noqa: E402
from hybrid_ops.export.convert import Request  # noqa: E402

pytestmark = pytest.mark.usefixtures("lite")
OPTIMIZE = ("none", "general")
CAPACITY = 64
GRAPHS = ("dynamo", "fixed", "gapless", "prefill", "qwen3_5", "qwen3_5_moe", "qwen3_next")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> dict[str, Path]:
    """Decode steps of every family, by both exporters, with growing and fixed cache, for old and new releases."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("transformers")
    from hybrid_ops import runtime
    from hybrid_ops.export import export_decode, export_prefill
    from hybrid_ops.models.families import FAMILIES, small_model

    folder = tmp_path_factory.mktemp("graphs")
    dense = small_model("qwen3_5")
    with runtime.using(backend="reference"):
        export_decode(dense, folder / "dynamo.onnx")
        export_decode(dense, folder / "fixed.onnx", max_seq_len=CAPACITY)
        export_decode(dense, folder / "gapless.onnx", target="lite-2.4", exporter="legacy")
        export_prefill(dense, folder / "prefill.onnx", max_seq_len=CAPACITY, exporter="legacy")
        for family in FAMILIES:
            path = folder / f"{family}.onnx"
            export_decode(small_model(family), path, max_seq_len=CAPACITY, exporter="legacy")
    return {path.stem: path for path in sorted(folder.glob("*.onnx"))}


def run(path: Path, out: Path, optimize: str = "none", **options) -> convert.Conversion:
    version = (2, 4) if path.stem == "gapless" else (2, 9)
    return convert.convert(Request(path, out, version, optimize=optimize, **options))


@pytest.mark.parametrize("optimize", OPTIMIZE)
@pytest.mark.parametrize("name", GRAPHS)
def test_whole_graph_with_the_plugin(graphs, tmp_path, name, optimize):
    result = run(graphs[name], tmp_path, optimize)
    assert (result.status, result.problem) == ("converted", ""), result.log_findings
    source = onnx.load(graphs[name])
    customs = [node for node in source.graph.node if node.op_type == "Custom"]
    states = collections.Counter(entry.state for entry in result.diff.attributes)
    # Every attribute of every node, and reg_op_name of each.
    assert states["same"] == sum(len(node.attribute) + 1 for node in customs)
    assert set(states) <= {"same", "added"} and customs
    for node in mindir.read(tmp_path / f"{name}.mindir").custom_nodes:
        if node.attributes["type"].value == "RecurrentGatedDeltaRule":
            assert [kind.dtype for kind in node.outputs] == ["float16", "float16"]
            # Lite's inference gives up on some shapes before the node; it then writes [-1].
            assert [len(kind.dims) for kind in node.outputs if kind.dims != (-1,)] in ([3, 4], [4])


@pytest.mark.parametrize("optimize", OPTIMIZE)
def test_graph_cut_at_custom_nodes(graphs, tmp_path, optimize):
    source = onnx.load(graphs["dynamo"])
    parts = {"cut": cut_graph.cut(source)}
    parts |= {f"stage{i}": part for i, part in enumerate(cut_graph.split(source))}
    rules = sum(node.op_type == "Custom" for node in source.graph.node)
    assert rules and len(parts) == 1 + 1 + rules
    for name, part in parts.items():
        onnx.checker.check_model(part, full_check=True)
        onnx.save(part, tmp_path / f"{name}.onnx")
        result = run(tmp_path / f"{name}.onnx", tmp_path / "out", optimize, plugin="none")
        assert (result.status, result.problem) == ("converted", ""), (name, result.log_findings)
        assert all(kept for kind, (_, kept) in result.diff.counts.items() if kind == "MatMul")


@pytest.mark.parametrize("optimize", OPTIMIZE)
def test_attributes_of_every_kind(tmp_path, optimize):
    onnx.save(custom_model(), tmp_path / "all.onnx")
    result = run(tmp_path / "all.onnx", tmp_path / "out", optimize, force=True)
    wrong = [entry for entry in result.diff.attributes if entry.state not in ("same", "added")]
    assert wrong == [] and sum(entry.state == "same" for entry in result.diff.attributes) == 16
    # The type is in no contract, so nothing tells the converter its outputs: `general` drops the Cast behind it.
    casts = [fault for fault in result.diff.faults if "Cast behind everything was removed" in fault]
    assert result.diff.faults == casts and len(casts) == (optimize == "general")


def test_without_the_plugin(graphs, tmp_path):
    result = run(graphs["dynamo"], tmp_path, plugin="none")
    names = [node.name for node in onnx.load(graphs["dynamo"]).graph.node if node.op_type == "Custom"]
    assert result.exit_code == 3 and [(f.rule, f.node) for f in result.log_findings] == [
        ("G3", n) for n in names
    ]
    assert not (tmp_path / "dynamo.mindir").exists()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"type": 3}, "P1"),
        ({"type": ""}, "P1"),
        ({"input_names": "x,y,z"}, "P2"),
        ({"output_names": None}, "P3"),
        ({"optional_input_names": ["q"]}, "P4"),
        ({"output_num": "2"}, "P5"),
        ({"table": onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [1.0])}, "P8"),
    ],
)
def test_parser_refuses_as_later_releases_do(tmp_path, changes, rule):
    onnx.save(custom_model(**changes), tmp_path / "bad.onnx")
    result = run(tmp_path / "bad.onnx", tmp_path / "out", force=True)
    assert result.exit_code == 3 and rule in [finding.rule for finding in result.log_findings], result.problem


def test_ascend_needs_cann(graphs, tmp_path):
    result = run(graphs["dynamo"], tmp_path, "ascend_oriented", static="past=7")
    assert result.exit_code == 3 and [finding.rule for finding in result.log_findings] == ["ENV"]
    assert re.search(r"past_kv_cache:\[2,1,\d+,7,\d+\]\n", (tmp_path / "dynamo.ini").read_text())
    # A fixed cache leaves no dimension open.
    assert run(graphs["fixed"], tmp_path, "ascend_oriented").exit_code == 3


def test_disk_runs_full(graphs, tmp_path, monkeypatch):
    """The converter may write 64 KiB per file; what it leaves of the MindIR must not appear."""
    real = lite_run.run

    def limited(*arguments):
        previous = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, previous[1]))
        try:
            return real(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, previous)

    monkeypatch.setattr(convert.lite_run, "run", limited)
    result = run(graphs["dynamo"], tmp_path)
    assert result.exit_code == 3 and [finding.rule for finding in result.log_findings] == ["DISK"], (
        result.problem
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dynamo.convert.json", "dynamo.ini", "dynamo.log"]


def test_plugin_names_what_it_lacks(tmp_path):
    with pytest.raises(convert.check.HybridOpsError, match=r"plugin: libraries are missing"):
        lite_plugin_build.plugin(tmp_path)


def test_an_output_that_is_constant(tmp_path):
    """Rule G16 is what the converter does: folded, and then not found when the MindIR is written."""
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    nodes = [node("Neg", ["x"], ["y"], name="neg"), node("Add", ["w", "w"], ["z"], name="add")]
    values = {name: info(name, onnx.TensorProto.FLOAT, [2]) for name in "xyz"}
    graph = onnx.helper.make_graph(nodes, "g", [values["x"]], [values["y"], values["z"]], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path
    )
    refused = convert.convert(Request(path, tmp_path, (2, 0), optimize="none"))
    assert refused.status == "refused" and [finding.rule for finding in refused.findings] == ["G16"]
    failed = convert.convert(Request(path, tmp_path, (2, 0), optimize="none", force=True))
    assert failed.status == "failed" and [finding.rule for finding in failed.log_findings] == ["G16"]
    assert not (tmp_path / "net.mindir").exists()
