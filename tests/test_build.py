"""Building into the cache: keys, locks, killed builds, and what the user reads when it cannot work."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybrid_ops import build, sim_build

ANSWER = 'extern "C" int answer() { return VALUE; }\n'
SLOW = '#!/bin/sh\nfor arg; do case $arg in -o) ;; *.o|*.so) : > "$arg" ;; esac; done\nsleep 30\n'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(build.CACHE_VARIABLE, str(folder))
    monkeypatch.delenv("HYBRID_OPS_PREBUILT", raising=False)
    return folder


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "answer.cpp"
    file.write_text(ANSWER)
    return file


def make(source, value=1, **more):
    return build.compile_shared("libanswer", [source], [f"-DVALUE={value}"], **more)


def run(path):
    return ctypes.CDLL(str(path)).answer()


def test_builds_once_and_says_so(source, capfd):
    path = make(source)
    assert run(path) == 1
    assert "hybrid_ops: building libanswer (1 file)" in capfd.readouterr().err
    assert make(source) == path
    assert capfd.readouterr().err == ""
    make(source, 2, quiet=True)
    assert capfd.readouterr().err == ""


def test_key_covers_sources_flags_headers_and_dependencies(source, tmp_path):
    include = tmp_path / "include"
    include.mkdir()
    header = include / "a.h"
    header.write_text("// 1")

    def key(flags=("-O2",)):
        return build.source_hash([source], [*flags, f"-I{include}"], [header])

    keys = {key(), key(("-O1",))}
    header.write_text("// 2")
    keys.add(key())
    source.write_text(ANSWER + "// changed")
    keys.add(key())
    (include / "b.h").write_text("")
    keys.add(key())
    assert len(keys) == 5


def test_key_does_not_depend_on_where_the_tree_is(tmp_path):
    keys = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.h").write_text("int a;")
        (folder / "a.cpp").write_text(ANSWER)
        keys.append(build.source_hash([folder / "a.cpp"], [f"-I{folder}", f"-isystem{folder}"]))
    assert keys[0] == keys[1]


def test_prebuilt_libraries_need_no_compiler(source, cache, tmp_path, monkeypatch):
    path = make(source)
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    path.rename(shipped / path.name)
    monkeypatch.setenv("HYBRID_OPS_PREBUILT", str(shipped))
    monkeypatch.setenv("PATH", "")
    assert not build.has_compiler()
    assert make(source) == shipped / path.name


def test_no_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        build.BuildError, match=r"^hybrid_ops: compiler: g\+\+ not found: got PATH=/nowhere; allowed "
    ):
        make(source)
    monkeypatch.setenv(build.COMPILER_VARIABLE, "no-such-compiler")
    with pytest.raises(build.BuildError, match="compiler: no-such-compiler not found"):
        make(source)


def test_cache_that_cannot_be_written(source, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(build.CACHE_VARIABLE, str(blocked / "cache"))
    with pytest.raises(build.BuildError) as caught:
        make(source)
    assert str(caught.value).startswith(
        f"hybrid_ops: cache: folder not writable: got {blocked / 'cache'} ($HYBRID_OPS_CACHE"
    )
    assert "set HYBRID_OPS_CACHE" in str(caught.value)


def test_cache_of_the_checkout_is_found_without_a_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(build.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(build, "CHECKOUT", tmp_path)
    built = tmp_path / "build" / "cache"
    built.mkdir(parents=True)
    assert build.cache_path() == tmp_path / "user" / "hybrid_ops", "an installation has no build.sh beside it"
    (tmp_path / "build.sh").touch()
    assert build.cache_path() == built
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "chosen"))
    assert build.cache_path() == tmp_path / "chosen"


def test_cached_library_loads_from_a_read_only_cache(source, monkeypatch):
    path = make(source)

    def read_only(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(build.tempfile, "TemporaryFile", read_only)
    assert make(source) == path
    with pytest.raises(build.BuildError, match=r"folder not writable: .*Read-only file system"):
        make(source, 2)


def test_error_of_the_compiler_is_shown_and_nothing_stays(source, cache):
    source.write_text("int answer() { return missing_name; }")
    with pytest.raises(build.BuildError) as caught:
        make(source)
    text = str(caught.value)
    assert "answer.cpp does not compile" in text
    assert "missing_name" in text
    assert {file.suffix for file in cache.iterdir()} <= {".lock"}


@pytest.mark.parametrize("damage", [b"", b"garbage", None], ids=["empty", "garbage", "truncated"])
def test_damaged_library_is_built_anew(source, damage, capfd):
    path = make(source)
    path.write_bytes(path.read_bytes()[:3000] if damage is None else damage)
    assert make(source) == path and run(path) == 1
    assert f"{path} is damaged and built anew" in capfd.readouterr().err


def test_generated_source_needs_no_file_of_its_own(cache):
    path = build.compile_shared("libanswer", [build.Generated("answer", ANSWER)], ["-DVALUE=3"])
    assert run(path) == 3
    assert {file.suffix for file in cache.iterdir()} == {".lock", ".so"}


def test_compiler_with_arguments(source, monkeypatch):
    monkeypatch.setenv(build.COMPILER_VARIABLE, "g++ -DVALUE=7")
    assert build.has_compiler() and run(build.compile_shared("libanswer", [source])) == 7
    monkeypatch.setenv(build.COMPILER_VARIABLE, "'open quote")
    assert not build.has_compiler()
    with pytest.raises(build.BuildError, match="compiler: empty name not found"):
        make(source, 2)


def test_compiler_that_makes_nothing(source, cache, monkeypatch):
    for tool in ("true", "false"):
        monkeypatch.setenv(build.COMPILER_VARIABLE, tool)
        with pytest.raises(build.BuildError, match=r"made no library|does not compile"):
            make(source)
    assert {file.suffix for file in cache.iterdir()} == {".lock"}


def test_full_disk_is_named(source, cache, tmp_path, monkeypatch):
    full = tmp_path / "full-disk-compiler"
    full.write_text("#!/bin/sh\necho 'as: x.o: No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    monkeypatch.setenv(build.COMPILER_VARIABLE, str(full))
    with pytest.raises(build.BuildError, match=r"cache: folder not writable: got .*No space left on device"):
        make(source)
    assert {file.suffix for file in cache.iterdir()} == {".lock"}


def test_missing_source(tmp_path):
    with pytest.raises(build.BuildError, match="source missing"):
        build.compile_shared("libnone", [tmp_path / "none.cpp"])


def start(source, cache, **environment):
    script = (
        f"from hybrid_ops import build; build.compile_shared('libanswer', [{str(source)!r}], ['-DVALUE=1'])"
    )
    package = Path(build.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(package), build.CACHE_VARIABLE: str(cache), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", script], env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_killed_build_leaves_nothing_to_load(source, cache, tmp_path):
    slow = tmp_path / "slow-compiler"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    process = start(source, cache, CXX=str(slow))
    deadline = time.monotonic() + 20
    while not list(cache.glob(".libanswer*/*.o")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list(cache.glob("*.so"))
    assert list(cache.glob(".libanswer*")), "the build was not under way"
    other = source.with_name("other.cpp")
    other.write_text("// of another library\n" + ANSWER)
    build.compile_shared("libother", [other], ["-DVALUE=4"])
    assert not list(cache.glob(".libanswer*")), "remains of the killed build"
    assert run(make(source)) == 1


def test_concurrent_builds_build_once(source, cache):
    processes = [start(source, cache) for _ in range(3)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert sum("built libanswer" in text for text in errors) == 1
    assert len(list(cache.glob("*.so"))) == 1


def test_key_of_a_kernel_covers_what_it_includes_and_nothing_else(tmp_path):
    (tmp_path / "common").mkdir()
    kernel, other = tmp_path / "kernel.cpp", tmp_path / "other.cpp"
    kernel.write_text('#include "kernel_operator.h"\n  #  include "common/rows.h"\n')
    (tmp_path / "common" / "rows.h").write_text('#pragma once\n#include "soc.h"\n#include "../tiling.h"\n')
    (tmp_path / "common" / "soc.h").write_text('#pragma once\n#include "rows.h"\n')
    (tmp_path / "tiling.h").write_text("#pragma once\n")
    other.write_text("")

    def key():
        with build.planning():
            return sim_build.compile_kernel_file(kernel, "kernel", soc="ascend310p", quiet=True)

    found = build.included(kernel, [tmp_path])
    assert [file.relative_to(tmp_path).as_posix() for file in found] == [
        "common/rows.h",
        "common/soc.h",
        "tiling.h",
    ]
    before = key()
    other.write_text("int changed;")
    assert key() == before
    for file in (kernel, *found):
        file.write_text(file.read_text() + "// changed\n")
        assert key() != before, file
        before = key()
