"""Converts an exported ONNX model to MindIR: check, configuration, converter_lite, its log, comparison with the source.

Everything is written into a temporary folder beside the result and moved when it is whole, so that neither a failure
nor a kill leaves half a file under a final name.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from hybrid_ops import check
from hybrid_ops.export import (
    lite_config,
    lite_log,
    lite_rules,
    lite_run,
    lite_tool,
    mindir,
    mindir_diff,
    onnx_files,
)
from hybrid_ops.export.custom_node import OP_TYPE
from hybrid_ops.export.lite_config import LiteConfig, Shapes
from hybrid_ops.export.lite_rules import Finding, Version
from hybrid_ops.export.lite_tool import Tool

# Exit codes of `hybrid-ops convert`.
CODES = {"converted": 0, "differs": 1, "refused": 2, "failed": 3, "no converter": 4}
DEFAULT_VERSION: Version = (2, 9)
OPTIMIZE = ("ascend_oriented", "general", "none")
OPP_VARIABLE = "ASCEND_CUSTOM_OPP_PATH"
# MindIR is about as large as the ONNX model; the converter's scratch is small beside it.
SPACE_FACTOR, SPACE_EXTRA = 1.05, 32 << 20


@dataclass(frozen=True)
class Request:
    """What to convert and how.

    `version`: converter release to check for (None: the converter's own, else 2.9). `static`: sizes of open dimensions;
    `dynamic`: gears (see lite_config). `opp`: operator package, a vendor folder or one with install.sh. `plugin`:
    "auto" (ours, for a converter older than 2.4), "none" or a path. `force` goes on in spite of findings.
    """

    model: Path
    out: Path
    version: Version | None = None
    soc: str = "ascend310p"
    precision: str = lite_config.DEFAULT_PRECISION
    static: str = ""
    dynamic: str = ""
    optimize: str = "ascend_oriented"
    opp: Path | None = None
    plugin: str = "auto"
    force: bool = False


@dataclass
class Conversion:
    """What happened. `status` is a key of CODES; `log_findings` is the converter's log in terms of the rules."""

    status: str
    findings: list[Finding]
    log_findings: list[Finding] = field(default_factory=list)
    command: str = ""
    problem: str = ""
    files: list[Path] = field(default_factory=list)
    diff: mindir_diff.Diff | None = None
    tool: str = ""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["files"] = [file.name for file in self.files]
        return document


def convert(request: Request, progress: Callable[[str], None] = lambda _: None) -> Conversion:
    """Runs the whole conversion; `progress` gets every step and every line of the converter.

    Result files in `request.out`: <name>.mindir (with <name>_variables/ when it is large), <name>.ini, <name>.log,
    <name>.convert.json. Errors: HybridOpsError for input that cannot be used, before anything is written.
    """
    model, files = onnx_files.load(request.model)
    _check_request(request)
    tool = lite_tool.find()
    version = request.version or (tool.version if tool and tool.parses_custom else None) or DEFAULT_VERSION
    progress(f"checking {request.model.name} for Lite {version[0]}.{version[1]}")
    findings = lite_rules.check_model(model, version=version, soc=request.soc, file=request.model)
    if lite_rules.exit_code(findings) and not request.force:
        return Conversion("refused", findings, problem="the checker found faults")
    shapes = _shapes(request, model)
    _check_space(request, files)
    request.out.mkdir(parents=True, exist_ok=True)
    _sweep(request)
    prefix = f".{request.model.stem}.convert-{os.getpid()}-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=request.out)).resolve()
    try:
        return _in_folder(request, model, tool, findings, shapes, folder, progress)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise check.refuse(
            "convert", str(request.out), "cannot be written", got=error.strerror, allowed="free disk space",
            soc="this machine",
        ) from error  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_request(request: Request) -> None:
    check.choice("convert", "optimize", request.optimize, OPTIMIZE)
    check.choice("convert", "precision", request.precision, tuple(lite_config.PRECISIONS))
    if request.static and request.dynamic:
        raise check.refuse(
            "convert", "static", "given together with dynamic", got=request.static, allowed="one of them", soc=request.soc
        )  # fmt: skip
    if request.model.stem.endswith("_graph"):
        raise check.refuse(
            "convert", "model", "name ends in _graph, which MindSpore takes for a part of a large model",
            got=request.model.name, allowed="another name", soc="any SoC",
        )  # fmt: skip
    opp = request.opp
    if opp is not None and not any((opp / part).exists() for part in ("install.sh", "op_impl", "op_proto")):
        raise check.refuse(
            "convert", "opp", "no operator package", got=str(opp),
            allowed="a vendor folder with op_impl and op_proto, or one with install.sh", soc=request.soc,
        )  # fmt: skip


def _shapes(request: Request, model: onnx.ModelProto) -> Shapes:
    if request.dynamic:
        return lite_config.dynamic_shapes(model, request.dynamic)
    if request.static or request.optimize == "ascend_oriented":
        return lite_config.static_shapes(model, request.static)
    return Shapes({})


def _check_space(request: Request, files: tuple[Path, ...]) -> None:
    place = next(p for p in [request.out, *request.out.absolute().parents] if p.exists())
    needed = int(sum(file.stat().st_size for file in files) * SPACE_FACTOR) + SPACE_EXTRA
    free = shutil.disk_usage(place).free
    if free < needed:
        raise check.refuse(
            "convert", str(request.out), "disk too full", got=f"{free >> 20} MiB free", allowed=f"{needed >> 20} MiB",
            soc="this machine",
        )  # fmt: skip


def _sweep(request: Request) -> None:
    """Remove temporary folders that a killed run left for this model."""
    for stale in request.out.glob(f".{request.model.stem}.convert-*"):
        number = stale.name.rsplit("-", 2)[-2]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(stale, ignore_errors=True)


def _plugins(
    request: Request, model: onnx.ModelProto, tool: Tool | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Plugin libraries for the configuration, and what they need in the environment."""
    if request.plugin not in ("auto", "none"):
        return (str(Path(request.plugin).resolve()),), {}
    custom = any(node.op_type == OP_TYPE for node in model.graph.node)
    if request.plugin == "none" or not custom or tool is None or tool.parses_custom or tool.package is None:
        return (), {}
    from hybrid_ops.export import lite_plugin_build

    inference = lite_plugin_build.inference(model)
    environment = {lite_plugin_build.INFER_VARIABLE: inference} if inference else {}
    return (str(lite_plugin_build.plugin(tool.package)),), environment


def _config(request: Request, shapes: Shapes, plugins: tuple[str, ...]) -> LiteConfig:
    chip = request.soc.lower() not in ("ascend310p", "ascend910b")
    installer = request.opp if request.opp and (request.opp / "install.sh").exists() else None
    return LiteConfig(
        shapes,
        request.precision,
        soc_version="Ascend" + request.soc.lower().removeprefix("ascend").upper() if chip else "",
        opp_installer=str(installer.resolve()) if installer else "",
        plugins=plugins,
        ascend=request.optimize == "ascend_oriented",
        notes=(f"{request.model.name}: configuration for converter_lite", "comments are whole lines only"),
    )


def _command(request: Request, tool: Tool | None, shapes: Shapes, config: Path, output: Path) -> list[str]:
    command = [
        *(tool.command if tool else (lite_tool.TOOL,)),
        "--fmk=ONNX",
        f"--modelFile={request.model.resolve()}",
        f"--outputFile={output}",
        "--saveType=MINDIR",
        f"--optimize={request.optimize}",
        f"--configFile={config}",
    ]
    if shapes.given and not shapes.gears:
        command.append(f"--inputShape={shapes.flat()}")
    return command


def _environment(request: Request, tool: Tool | None, extra: dict[str, str]) -> dict[str, str]:
    """Variables the converter needs on top of the caller's."""
    added = {**(tool.environment if tool else {}), **extra}
    if request.opp and not (request.opp / "install.sh").exists():
        inherited = os.environ.get(OPP_VARIABLE)
        added[OPP_VARIABLE] = os.pathsep.join(
            [str(request.opp.resolve()), *([inherited] if inherited else [])]
        )
    return added


def _in_folder(
    request: Request,
    model: onnx.ModelProto,
    tool: Tool | None,
    findings: list[Finding],
    shapes: Shapes,
    folder: Path,
    progress: Callable[[str], None],
) -> Conversion:
    name, out = request.model.stem, request.out.resolve()
    plugins, extra = _plugins(request, model, tool)
    config = _config(request, shapes, plugins).write(folder / f"{name}.ini")
    added = _environment(request, tool, extra)
    final = _command(request, tool, shapes, out / config.name, out / name)
    words = [*(f"{key}={shlex.quote(value)}" for key, value in added.items()), shlex.join(final)]
    result = Conversion("no converter", findings, command=" ".join(words))
    if tool is None:
        result.problem = f"{lite_tool.TOOL} is in none of ${lite_tool.CONVERTER_VARIABLE}, "
        result.problem += (
            f"${lite_tool.HOME_VARIABLE}, PATH, and Python has no mindspore_lite; files are written"
        )
        return _finish(result, folder, out, name)
    result.tool = f"{tool.command[0]} ({tool.origin}, release {tool.version or 'unknown'})"
    progress(f"converting with {result.tool}")
    begin = time.monotonic()
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        command = _command(request, tool, shapes, config, folder / name)
        code, lines = lite_run.run(command, {**os.environ, **added}, folder, log, progress)
    result.seconds = round(time.monotonic() - begin, 3)
    _judge(result, code, lines, model, folder, name)
    return _finish(result, folder, out, name)


def _judge(
    result: Conversion, code: int, lines: list[str], model: onnx.ModelProto, folder: Path, name: str
) -> None:
    """Set status, problem and diff from what the converter left."""
    result.status = "failed"
    produced = [p for p in (folder / f"{name}.mindir", folder / f"{name}_graph.mindir") if p.is_file()]
    if code != 0 or not produced:
        result.log_findings = lite_log.findings(lines, model)
        if code < 0:
            result.problem = f"the converter was ended by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                result.problem += " (memory may have run out)"
        elif code:
            result.problem = f"the converter ended with exit code {code}"
        else:
            result.problem = "the converter reports success but wrote no MindIR"
        if not result.log_findings:
            result.problem += ": " + "; ".join(lite_log.tail(lines)) if lines else ""
        return
    try:
        result.diff = mindir_diff.compare(model, mindir.read(produced[0]))
    except check.HybridOpsError as error:
        result.problem = f"the result is not whole: {error}".replace(str(folder) + os.sep, "")
        result.log_findings = lite_log.findings(lines, model)
        return
    result.status = "differs" if result.diff.faults else "converted"
    if result.diff.faults:
        result.problem = f"{len(result.diff.faults)} differences between what was sent and what arrived"


def _finish(result: Conversion, folder: Path, out: Path, name: str) -> Conversion:
    """Move what is whole out of `folder`, weights first, the model last; write the report."""
    whole = result.status in ("converted", "differs")
    names = [f"{name}.ini", f"{name}.log"]
    parts = [f"{name}_variables", f"{name}_graph.mindir", f"{name}.mindir"]
    if whole:
        names += parts
    result.files = [out / entry for entry in names if (folder / entry).exists()]
    report = folder / f"{name}.convert.json"
    report.write_text(json.dumps(result.as_json(), indent=1, default=str) + "\n", encoding="utf-8")
    for target in [out / report.name, *result.files]:
        if (folder / target.name).is_dir() and target.is_dir():
            shutil.rmtree(target)
        os.replace(folder / target.name, target)
    if whole:  # a result of the other form, in one file or several, would now be somebody else's
        for stale in (out / part for part in parts if out / part not in result.files):
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink(missing_ok=True)
    result.files.insert(0, out / report.name)
    return result
