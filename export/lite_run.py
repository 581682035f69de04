"""Runs a converter in a process group of its own, line by line, so that nothing of it outlives a failure."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

GRACE_SECONDS = 5
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Called in a child: the kernel ends it when the thread that made it ends, however that comes about."""
    _LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log: TextIO,
    progress: Callable[[str], None],
) -> tuple[int, list[str]]:
    """Exit code (negative: killed by that signal) and lines of output; each line also goes to `log` and `progress`.

    `folder` is the working directory: converters drop kernel_meta and the like there. When the caller is interrupted
    the whole group is ended; when it is killed outright the kernel ends the converter.
    """
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            log.write(line)
            progress(lines[-1])
        return process.wait(), lines
    finally:
        process.stdout.close()
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
