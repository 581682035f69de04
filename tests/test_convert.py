"""The conversion driver with a converter of the tests' own: configuration, log, failures, kills, full disks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

onnx = pytest.importorskip("onnx")

from mindir_files import arrive, custom_model, write  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from hybrid_ops import HybridOpsError  # noqa: E402
from hybrid_ops.export import convert, lite_config, lite_log, lite_tool, onnx_files  # noqa: E402
from hybrid_ops.export.convert import Request  # noqa: E402
from hybrid_ops.export.convert_cli import app  # noqa: E402

LOG = "[ERROR] LITE(7,7f00,converter_lite):2026-01-01-00:00:00.000.001 [mindspore/lite/tools/x.cc:1] Parse] "


@pytest.fixture(autouse=True)
def no_converter(monkeypatch):
    """No converter unless a test puts one there."""
    for name in (lite_tool.CONVERTER_VARIABLE, lite_tool.HOME_VARIABLE, lite_tool.PYTHONPATH_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@pytest.fixture
def model(tmp_path):
    """A model without Custom nodes that every release converts."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
        helper.make_node("Neg", ["y"], ["z"], name="neg"),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [1, "n", 4])], [info("z", TensorProto.FLOAT, [1, "n", 4])]
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture
def converter(tmp_path, monkeypatch):
    """Makes a program the converter: a shell script that gets the output path as $OUT and the good result as $GOOD."""

    def make(script: str, good: Path | None = None) -> Path:
        path = tmp_path / "converter_lite"
        text = f'#!/bin/bash\nfor a in "$@"; do case $a in --outputFile=*) OUT=${{a#*=}};; esac; done\nGOOD={good}\n'
        path.write_text(f"{text}{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(lite_tool.CONVERTER_VARIABLE, str(path))
        return path

    return make


def good_result(tmp_path, model: Path) -> Path:
    return write(tmp_path / "good.bin", arrive(onnx.load(model)))


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


# Configuration


def test_static_configuration(model):
    shapes = lite_config.static_shapes(onnx.load(model), "n=8")
    text = lite_config.LiteConfig(shapes, notes=("a note",)).text()
    assert text == (
        "# a note\n[ascend_context]\ninput_format=ND\nprecision_mode=enforce_origin\ninput_shape=x:[1,8,4]\n"
    )


def test_gears(model):
    shapes = lite_config.dynamic_shapes(onnx.load(model), "8;16;32")
    config = lite_config.LiteConfig(shapes, "enforce_fp32", soc_version="Ascend310P3", plugins=("/p.so",))
    assert config.text() == (
        "[ascend_context]\ninput_format=ND\nprecision_mode=enforce_fp32\n"
        "[acl_build_options]\ninput_format=ND\ninput_shape=x:1,-1,4\nge.dynamicDims=8;16;32\n"
        "ge.exec.precision_mode=force_fp32\n"
        "[acl_init_options]\nge.socVersion=Ascend310P3\n[registry]\nplugin_path=/p.so\n"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "dimensions are open: got x:1,n,4"),
        ("m=3", "no such open dimension: got 'm'; allowed n"),
        ("n=0", "not a size: got '0'"),
        ("n=-1", "not a size"),
        ("y:1,2,4", "no such input: got 'y'; allowed x"),
        ("x:1,2", "x contradicts the model"),
        ("x:2,2,4", "x contradicts the model: got [2, 2, 4]; allowed [1, 'n', 4]"),
    ],
)
def test_static_shapes_refused(model, text, says):
    with pytest.raises(HybridOpsError) as refused:
        lite_config.static_shapes(onnx.load(model), text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("gears", "says"),
    [
        ("8", "number of gears: got 1"),
        ("8,8;16,16", "one number per open dimension: got [8, 8]; allowed 1 numbers: x[1]"),
        ("8;8", "a gear stands twice"),
        ("8;a", "not a size: got 'a'"),
        (";".join(map(str, range(1, 102))), "number of gears: got 101"),
    ],
)
def test_gears_refused(model, gears, says):
    with pytest.raises(HybridOpsError) as refused:
        lite_config.dynamic_shapes(onnx.load(model), gears)
    assert says in str(refused.value)


def test_sizes_for_a_model_without_open_dimensions():
    value = helper.make_tensor_value_info("x", 1, [2])
    fixed = helper.make_model(
        helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "g", [value], [value])
    )
    with pytest.raises(
        HybridOpsError, match=r"static: the model has no open dimension: got 'n=2'; allowed nothing"
    ):
        lite_config.static_shapes(fixed, "n=2")
    assert lite_config.static_shapes(fixed, "x:2").flat() == "x:2"


def test_sizes_follow_from_each_other():
    info = helper.make_tensor_value_info
    values = [info("a", 1, ["past"]), info("b", 1, ["past + 1"]), info("c", 1, ["past*2"])]
    graph = helper.make_graph([helper.make_node("Neg", ["a"], ["z"])], "g", values, [info("z", 1, ["past"])])
    shapes = lite_config.static_shapes(helper.make_model(graph), "past=7")
    assert shapes.flat() == "a:7;b:8;c:14"


def test_values_the_reader_would_misread_are_refused(model):
    shapes = lite_config.Shapes({"x": (1,)})
    with pytest.raises(HybridOpsError, match="no '#'"):
        lite_config.LiteConfig(shapes, plugins=("/a#b.so",)).text()
    with pytest.raises(HybridOpsError, match="allowed enforce_origin, enforce_fp32"):
        lite_config.LiteConfig(shapes, "fp32").text()


# The converter's log


@pytest.mark.parametrize(
    ("text", "rule", "node"),
    [
        ("INPUT ILLEGAL: modelFile must be *.onnx", "G1", ""),
        ("not support onnx data type Relu", "G3", "relu"),
        ("FMKTYPE: ONNX, OP TYPE: Neg", "G3", "neg"),
        ("unsupported onnx data type: 16", "G9", ""),
        ("const tensor repeated", "G4", ""),
        ("Output tensor repeated", "G5", ""),
        ("For custom, attr of input_names must be not empty, please set it!", "P2", ""),
        ("optional_input_name: q is not in input_names, please check!", "P4", ""),
        ("For attribute name: output_num, AttributeType should be int, please check!", "P5", ""),
        ("ONNX Datatype: 4 is not supported!", "P8", ""),
        ("Custom op attribute input_index is invalid!", "A6", ""),
        ("Convert attr to args for node neg failed.", "A6", "neg"),
        ("Unsupported custom attribute type in adaptor, prim name: Custom, attr name: dtype", "A12", ""),
        ("libgraph.so: cannot open shared object file: No such file or directory", "ENV", ""),
        ("Failed to find input y in input_shape x:1", "CONFIG", ""),
        ("Failed to write the mindir proto to file /x/net.mindir", "DISK", ""),
        ("param proto name: z is not in param dict.", "G16", ""),
        ("Convert graph to om failed", "GE", ""),
    ],
)
def test_messages_become_rules(model, text, rule, node):
    found = lite_log.findings(
        [LOG + text, LOG + text, "[WARNING] LITE: [a.cc:1] F] " + text], onnx.load(model)
    )
    assert [(f.rule, f.node) for f in found] == [(rule, node)]


def test_unknown_messages_are_shown():
    lines = ["hello", LOG + "something new", LOG + "something new", "bye"]
    assert lite_log.findings(lines) == [] and lite_log.tail(lines) == ["something new"]
    assert lite_log.tail(["only", "", "text"]) == ["only", "text"]


# Finding a converter


def test_places_of_the_converter(tmp_path, monkeypatch):
    home = tmp_path / "mindspore-lite-2.7.1-linux-aarch64"
    program = home / "tools/converter/converter/converter_lite"
    program.parent.mkdir(parents=True)
    (home / "tools/converter/lib").mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert lite_tool.find() is None
    monkeypatch.setenv(lite_tool.HOME_VARIABLE, str(home))
    tool = lite_tool.find()
    assert tool.command == (str(program),) and tool.version == (2, 7) and tool.parses_custom
    assert tool.environment["LD_LIBRARY_PATH"].split(":")[0] == str(home / "tools/converter/lib")
    for named in (program, program.parent):
        monkeypatch.setenv(lite_tool.CONVERTER_VARIABLE, str(named))
        assert lite_tool.find().command == (str(program),)
    monkeypatch.setenv(lite_tool.CONVERTER_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(HybridOpsError, match="MSLITE_CONVERTER: no such program"):
        lite_tool.find()
    monkeypatch.setenv(lite_tool.CONVERTER_VARIABLE, sys.executable)
    with pytest.raises(HybridOpsError, match="this Python has no mindspore_lite"):
        lite_tool.find()


# The run


def test_without_converter_the_files_are_written(model, tmp_path):
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["convert", str(model), "--out", str(out), "--static", "n=8"])
    assert result.exit_code == 4
    assert (
        result.output.count("no converter") == 1
        and "no converter: converter_lite is in none" in result.output
    )
    assert visible(out) == ["net.convert.json", "net.ini"]
    assert (
        f"command: converter_lite --fmk=ONNX --modelFile={model} --outputFile={out}/net --saveType=MINDIR "
        f"--optimize=ascend_oriented --configFile={out}/net.ini --inputShape=x:1,8,4" in result.output
    )


def test_success(model, tmp_path, converter):
    out, before = tmp_path / "out", hashlib.sha256(model.read_bytes()).digest()
    converter(
        'echo working; cp "$GOOD" "$OUT.mindir"; echo CONVERT RESULT SUCCESS:0', good_result(tmp_path, model)
    )
    seen = []
    result = convert.convert(Request(model, out, static="n=8"), seen.append)
    assert (result.status, result.exit_code, result.problem) == ("converted", 0, "")
    assert visible(out) == ["net.convert.json", "net.ini", "net.log", "net.mindir"]
    assert "working" in seen and (out / "net.log").read_text().startswith("working\n")
    assert hashlib.sha256(model.read_bytes()).digest() == before
    report = json.loads((out / "net.convert.json").read_text())
    assert report["status"] == "converted" and report["diff"]["faults"] == []


def test_large_result_in_several_files(model, tmp_path, converter):
    def outside(made):
        part = made.graph.parameter.add(name="w").external_data
        part.location, part.offset, part.length = "net_variables/data_0", 0, 4

    good = write(tmp_path / "good.bin", arrive(onnx.load(model), outside))
    converter(
        'mkdir "${OUT}_variables"; printf 1234 > "${OUT}_variables/data_0"; cp "$GOOD" "${OUT}_graph.mindir"',
        good,
    )
    for _ in range(2):  # the second run replaces the first one's folder
        assert convert.convert(Request(model, tmp_path / "out", static="n=8")).status == "converted"
    assert {"net_graph.mindir", "net_variables"} < set(visible(tmp_path / "out"))
    converter('cp "$GOOD" "$OUT.mindir"', good_result(tmp_path, model))
    assert convert.convert(Request(model, tmp_path / "out", static="n=8")).status == "converted"
    assert visible(tmp_path / "out") == ["net.convert.json", "net.ini", "net.log", "net.mindir"]


def test_different_result(model, tmp_path, converter):
    good = write(
        tmp_path / "good.bin", arrive(onnx.load(model), lambda made: made.graph.input[0].tensor[0].dims.pop())
    )
    converter('cp "$GOOD" "$OUT.mindir"', good)
    result = convert.convert(Request(model, tmp_path / "out", static="n=8"))
    assert result.exit_code == 1 and result.diff.faults == [
        "x: graph input: sent [1, None, 4], arrived [1, -1]"
    ]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ('head -c 40 "$GOOD" > "$OUT.mindir"; exit 1', "ended with exit code 1"),
        ('head -c 40 "$GOOD" > "$OUT.mindir"', "the result is not whole: mindir: net.mindir: is cut short"),
        ("echo CONVERT RESULT SUCCESS:0", "reports success but wrote no MindIR"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("kill -KILL $$", "ended by SIGKILL (memory may have run out)"),
        (f"echo '{LOG}odd'; exit 3", "ended with exit code 3: odd"),
    ],
)
def test_failure_leaves_log_and_earlier_result(model, tmp_path, converter, script, says):
    out = tmp_path / "out"
    out.mkdir()
    (out / "net.mindir").write_bytes(b"earlier")
    converter(script, good_result(tmp_path, model))
    result = convert.convert(Request(model, out, static="n=8"))
    assert result.exit_code == 3 and says in result.problem
    assert (out / "net.mindir").read_bytes() == b"earlier"
    assert visible(out) == ["net.convert.json", "net.ini", "net.log", "net.mindir"]


def test_failing_log_names_rule_and_node(model, tmp_path, converter):
    converter(f"echo '{LOG}not support onnx data type Neg'; exit 1")
    result = CliRunner().invoke(
        app, ["convert", str(model), "--out", str(tmp_path / "out"), "--static", "n=8"]
    )
    assert result.exit_code == 3 and "E G3 neg: no parser for Neg; export without it" in result.output


def test_refused_by_the_checker(tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "out"
    onnx.save(custom_model(), path)  # of a type that is in no contract, with names that are not its inputs
    result = CliRunner().invoke(app, ["convert", str(path), "--out", str(out), "--static", "n=3"])
    assert result.exit_code == 2 and "C1 everything" in result.output
    assert not out.exists()
    forced = CliRunner().invoke(app, ["convert", str(path), "--out", str(out), "--static", "n=3", "--force"])
    assert forced.exit_code == 4


def test_operator_package(model, tmp_path, converter):
    converter('env > "$OUT.env"; cp "$OUT.env" "$GOOD.env"; exit 1', tmp_path / "good")
    vendor = tmp_path / "vendors" / "hybrid_ops"
    with pytest.raises(HybridOpsError, match="opp: no operator package"):
        convert.convert(Request(model, tmp_path / "out", static="n=8", opp=vendor))
    (vendor / "op_impl").mkdir(parents=True)
    convert.convert(Request(model, tmp_path / "out", static="n=8", opp=vendor))
    assert f"ASCEND_CUSTOM_OPP_PATH={vendor}" in (tmp_path / "good.env").read_text()
    (vendor / "install.sh").touch()
    convert.convert(Request(model, tmp_path / "out", static="n=8", opp=vendor))
    assert f"[acl_option_cfg_param]\ncustom_opp_path={vendor}\n" in (tmp_path / "out" / "net.ini").read_text()


# Bad input


def broken(tmp_path, model, kind):
    data = model.read_bytes()
    path = tmp_path / f"{kind}.onnx"
    if kind == "absent":
        return path
    if kind == "huge":
        with path.open("wb") as file:
            file.truncate(2**31)  # sparse
        return path
    path.write_bytes({"truncated": data[: len(data) // 2], "empty": b"", "text": b"not a model\n" * 9}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", "cannot be read: got No such file"),
        ("truncated", "cut short or no ONNX file"),
        ("empty", "is empty or no ONNX file"),
        ("text", "no ONNX file"),
        ("huge", "over 2 GiB"),
    ],
)
def test_unreadable_model(tmp_path, model, kind, says):
    with pytest.raises(HybridOpsError) as refused:
        convert.convert(Request(broken(tmp_path, model, kind), tmp_path / "out"))
    assert says in str(refused.value) and not (tmp_path / "out").exists()


def test_external_data(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], bytes(16), raw=True)
    info = helper.make_tensor_value_info
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    graph = helper.make_graph([node], "g", [info("x", 1, [4])], [info("y", 1, [4])], [weight])
    path = tmp_path / "net.onnx"
    built = helper.make_model(graph)
    onnx.save(
        built, path, save_as_external_data=True, location="net.data", size_threshold=0, convert_attribute=True
    )
    assert onnx_files.load(path)[1] == (path, tmp_path / "net.data")
    (tmp_path / "net.data").write_bytes(bytes(15))
    with pytest.raises(HybridOpsError, match=r"external data of w: got net.data: 15 bytes; allowed 16 bytes"):
        convert.convert(Request(path, tmp_path / "out"))
    (tmp_path / "net.data").unlink()
    with pytest.raises(HybridOpsError, match=r"net\.data: no such file"):
        convert.convert(Request(path, tmp_path / "out"))
    loaded = onnx.load(path, load_external_data=False)
    loaded.graph.initializer[0].external_data[0].value = "../net.data"
    path.write_bytes(loaded.SerializeToString())
    with pytest.raises(HybridOpsError, match="a file in or below the model's folder"):
        convert.convert(Request(path, tmp_path / "out"))


def test_arguments(model, tmp_path):
    named = model.with_name("net_graph.onnx")
    named.write_bytes(model.read_bytes())
    for request, says in (
        (Request(model, tmp_path / "out", optimize="fast"), "optimize: not a known choice"),
        (Request(model, tmp_path / "out", precision="fp16"), "precision: not a known choice"),
        (Request(model, tmp_path / "out", static="n=1", dynamic="1;2"), "given together with dynamic"),
        (Request(model, tmp_path / "out", soc="ascend999"), "not a known SoC"),
        (Request(named, tmp_path / "out"), "name ends in _graph"),
    ):
        with pytest.raises(HybridOpsError) as refused:
            convert.convert(request)
        assert says in str(refused.value)
    assert not (tmp_path / "out").exists()


# Disk and kill


def test_full_disk_before(model, tmp_path, monkeypatch):
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(HybridOpsError, match="disk too full: got 0 MiB free"):
        convert.convert(Request(model, tmp_path / "out", static="n=8"))
    assert not (tmp_path / "out").exists()


def test_full_disk_while_writing(model, tmp_path, monkeypatch):
    def full(self, path):
        path.write_bytes(b"[asc")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lite_config.LiteConfig, "write", full)
    with pytest.raises(HybridOpsError, match="cannot be written: got No space left on device"):
        convert.convert(Request(model, tmp_path / "out", static="n=8"))
    assert visible(tmp_path / "out") == []


def driver(model: Path, out: Path, extra: dict[str, str]) -> subprocess.Popen:
    """The command in a process of its own, once its converter has started."""
    command = [
        sys.executable,
        "-m",
        "hybrid_ops",
        "convert",
        str(model),
        "--out",
        str(out),
        "--static",
        "n=8",
    ]
    # A shell starts what runs in its background with SIGINT ignored, and children inherit that.
    process = subprocess.Popen(
        command,
        env={**os.environ, **extra},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    end = time.monotonic() + 60
    while not list(out.glob(".net.convert-*/net.mindir")):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.05)
    return process


def gone(pid: int) -> bool:
    """Whether the process ends within a few seconds (a zombie has ended)."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_kill(model, tmp_path, converter, number):
    out, pid = tmp_path / "out", tmp_path / "pid"
    program = converter(
        f'echo $$ > {pid}; head -c 40 "$GOOD" > "$OUT.mindir"; exec sleep 600', good_result(tmp_path, model)
    )
    process = driver(model, out, {lite_tool.CONVERTER_VARIABLE: str(program)})
    child = int(pid.read_text())
    process.send_signal(number)
    assert process.wait(30) != 0
    assert gone(child)
    left = visible(out)
    assert left == [] if number != signal.SIGKILL else all(name.startswith(".net.convert-") for name in left)
    converter('cp "$GOOD" "$OUT.mindir"', good_result(tmp_path, model))
    assert convert.convert(Request(model, out, static="n=8")).status == "converted"
    assert visible(out) == ["net.convert.json", "net.ini", "net.log", "net.mindir"]  # leftovers are swept
