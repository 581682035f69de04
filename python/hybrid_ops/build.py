"""Builds C++ shared libraries on first use into a user cache keyed by the hash of their sources.

One function does the work, :func:`compile_shared`; the host side (``host.py``) and the simulator (``sim.py``)
call it. The cache is ``$HYBRID_OPS_CACHE``, else ``~/.cache/hybrid_ops`` (``$XDG_CACHE_HOME`` is respected).
A library appears there by an atomic rename only: a killed build leaves nothing that a later run could load.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

CACHE_VARIABLE = "HYBRID_OPS_CACHE"
COMPILER_VARIABLE = "CXX"
HEADER_SUFFIXES = frozenset({".h", ".hpp", ".inc", ".cpp", ".cc", ".def"})
ERROR_LINES = 12
_planning: ContextVar[bool] = ContextVar("hybrid_ops_planning", default=False)


class BuildError(RuntimeError):
    """A library cannot be built; the text has the form ``hybrid_ops: what: fault: got …; allowed …``."""


def cache_path() -> Path:
    """Folder of the built libraries; it need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~").expanduser() / ".cache") / "hybrid_ops"


def cache_dir() -> Path:
    """:func:`cache_path`, created and writable.

    Raises:
        BuildError: the folder cannot be created or written; the text names folder and variable.
    """
    path = cache_path()
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A real write, because os.access says yes to root even on a read-only mount.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        origin = f"${CACHE_VARIABLE}" if CACHE_VARIABLE in os.environ else f"${CACHE_VARIABLE} not set"
        raise BuildError(
            f"hybrid_ops: cache: folder not writable: got {path} ({origin}: {error.strerror}); "
            f"allowed any writable folder, set {CACHE_VARIABLE}"
        ) from error
    return path


def compiler() -> str:
    """Absolute path of the C++ compiler: ``$CXX``, else ``g++``.

    Raises:
        BuildError: it is not there.
    """
    name = os.environ.get(COMPILER_VARIABLE) or "g++"
    found = shutil.which(name)
    if found is None:
        raise BuildError(
            f"hybrid_ops: compiler: {name} not found: got PATH={os.environ.get('PATH', '')}; "
            f"allowed g++ 11 or newer in PATH, or its path in {COMPILER_VARIABLE}"
        )
    return found


def has_compiler() -> bool:
    """Whether :func:`compiler` would succeed."""
    return shutil.which(os.environ.get(COMPILER_VARIABLE) or "g++") is not None


def march_flags() -> list[str]:
    """Code generation flags for this machine's family; fixed per family so that the cache can be shared."""
    return ["-march=x86-64-v3"] if platform.machine() in ("x86_64", "AMD64") else []


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Inside, :func:`compile_shared` returns the path that it would build and builds nothing."""
    token = _planning.set(True)
    try:
        yield
    finally:
        _planning.reset(token)


def source_hash(sources: Iterable[Path], flags: Sequence[str], depends: Iterable[Path] = ()) -> str:
    """16 hex digits over the sources, the flags, and every header below the ``-I`` folders and ``depends``.

    File names count relative to their folder, not absolutely: two checkouts of one state share a cache entry.
    Folders given as ``-isystem<folder>`` do not count; name what matters of them in ``depends``.
    """
    digest = hashlib.sha256()
    digest.update(f"{sys.platform}/{platform.machine()}\0".encode())
    roots = [Path(flag[2:]) for flag in flags if flag.startswith("-I") and len(flag) > 2]
    for flag in flags:
        place = next((option for option in ("-I", "-isystem") if flag.startswith(option)), flag)
        digest.update(place.encode())
        digest.update(b"\0")
    for path in [*sources, *roots, *depends]:
        for name, file in _files(Path(path)):
            digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def library_path(name: str, key: str) -> Path | None:
    """The built library, from a folder listed in ``$HYBRID_OPS_PREBUILT`` or the cache; None when absent."""
    file = f"{name}-{key}.so"
    for folder in (os.environ.get("HYBRID_OPS_PREBUILT") or "").split(os.pathsep):
        if folder and (Path(folder) / file).is_file():
            return Path(folder) / file
    path = cache_path() / file
    return path if path.is_file() else None


def compile_shared(
    name: str,
    sources: Sequence[Path | str],
    flags: Sequence[str] = (),
    *,
    depends: Sequence[Path | str] = (),
    link: Sequence[str] = (),
    quiet: bool = False,
) -> Path:
    """Compile ``sources`` into one shared library and return its path, or return the cached one.

    Args:
        name: file stem, e.g. ``libhost_ops``; the cache file is ``<name>-<hash>.so``.
        sources: C++ files, one compile unit each.
        flags: compiler flags, e.g. ``-std=c++17 -O2 -Isim/include``; ``-fPIC`` is added. Headers below ``-I``
            folders belong to the hash.
        depends: further files or folders that belong to the hash.
        link: arguments of the link step, after the objects (libraries, ``-Wl,…``); they belong to the hash.
        quiet: no progress line on stderr.

    Raises:
        BuildError: no compiler, cache not writable, or a source does not compile (first error lines).
    """
    files = [Path(source) for source in sources]
    missing = [str(file) for file in files if not file.is_file()]
    if missing or not files:
        raise BuildError(
            f"hybrid_ops: {name}: source missing: got {', '.join(missing) or 'none'}; allowed existing files"
        )
    key = source_hash(files, [*flags, "--link", *link], [Path(path) for path in depends])
    found = library_path(name, key)
    if found is not None:
        return found
    if _planning.get():
        return cache_path() / f"{name}-{key}.so"
    target = cache_dir() / f"{name}-{key}.so"
    tool = compiler()
    with _locked(target.with_suffix(".lock")):
        if target.is_file():  # built by another process while this one waited
            return target
        for stale in target.parent.glob(
            f".{target.stem}.*"
        ):  # of a killed build; the lock proves nobody uses it
            shutil.rmtree(stale, ignore_errors=True)
        with (
            tempfile.TemporaryDirectory(prefix=f".{target.stem}.", dir=target.parent) as folder,
            _progress(name, len(files), quiet),
        ):
            library = _build(tool, name, files, flags, link, Path(folder))
            os.replace(library, target)
    return target


def _build(
    tool: str, name: str, files: list[Path], flags: Sequence[str], link: Sequence[str], folder: Path
) -> Path:
    objects = [folder / f"{i}_{file.stem}.o" for i, file in enumerate(files)]

    def one(pair: tuple[Path, Path]) -> None:
        _run([tool, *flags, "-fPIC", "-c", str(pair[0]), "-o", str(pair[1])], name, pair[0].name)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        list(pool.map(one, zip(files, objects, strict=True)))
    library = folder / f"{name}.so"
    _run([tool, "-shared", "-o", str(library), *map(str, objects), *link], name, "link")
    return library


def _run(command: list[str], name: str, unit: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return
    lines = result.stderr.strip().splitlines()
    errors = [i for i, line in enumerate(lines) if "error" in line] or [0]
    text = "\n  ".join(lines[errors[0] : errors[0] + ERROR_LINES])
    raise BuildError(
        f"hybrid_ops: {name}: {unit} does not compile: got exit {result.returncode} of {command[0]}\n  {text}"
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclusive lock between processes and threads; the kernel drops it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress(name: str, count: int, quiet: bool) -> Iterator[None]:
    if quiet:
        yield
        return
    begin = time.monotonic()
    print(f"hybrid_ops: building {name} ({count} file{'s' * (count != 1)}) …", file=sys.stderr, flush=True)
    yield
    print(f"hybrid_ops: built {name} in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def _files(path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        return [(path.name, path)]
    found = [file for file in path.rglob("*") if file.suffix in HEADER_SUFFIXES and file.is_file()]
    return sorted((file.relative_to(path).as_posix(), file) for file in found)
