"""Builds C++ shared libraries on first use into a user cache keyed by the hash of their sources.

One function does the work, :func:`compile_shared`; the host side (``host.py``) and the simulator (``sim.py``)
call it. The cache is ``$HYBRID_OPS_CACHE``, else the one that ``./build.sh`` made in this checkout, else
``~/.cache/hybrid_ops`` (``$XDG_CACHE_HOME`` is respected).
A library appears there by an atomic rename only: a killed build leaves nothing that a later run could load.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "HYBRID_OPS_CACHE"
COMPILER_VARIABLE = "CXX"
CHECKOUT = Path(__file__).resolve().parents[2]  # of a checkout; of an installation, a folder without build.sh
HEADER_SUFFIXES = frozenset({".h", ".hpp", ".inc", ".cpp", ".cc", ".def"})
ERROR_LINES = 12
_planning: ContextVar[bool] = ContextVar("hybrid_ops_planning", default=False)


@dataclass(frozen=True)
class Generated:
    """A C++ source that exists as text only; it becomes a file in the working folder of its build."""

    stem: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.stem}-{hashlib.sha256(self.text.encode()).hexdigest()[:16]}.cpp"


class BuildError(RuntimeError):
    """A library cannot be built; the text has the form ``hybrid_ops: what: fault: got …; allowed …``."""


def cache_path() -> Path:
    """Folder of the built libraries; it need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    built = CHECKOUT / "build" / "cache"  # so that commands after ./build.sh find what it built
    if (CHECKOUT / "build.sh").exists() and built.is_dir():
        return built
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
        raise _unwritable(path, error) from error
    return path


def compiler() -> list[str]:
    """The C++ compiler as a command: ``$CXX`` (words as a shell reads them: ``ccache g++``), else ``g++``.

    Raises:
        BuildError: it is not there.
    """
    words = _compiler_words()
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise BuildError(
            f"hybrid_ops: compiler: {words[0] if words else 'empty name'} not found: "
            f"got PATH={os.environ.get('PATH', '')}; "
            f"allowed g++ 12 or newer in PATH, or its path in {COMPILER_VARIABLE}"
        )
    return [found, *words[1:]]


def _compiler_words() -> list[str]:
    try:
        return shlex.split(os.environ.get(COMPILER_VARIABLE) or "g++")
    except ValueError:  # an open quote
        return []


def has_compiler() -> bool:
    """Whether :func:`compiler` would succeed."""
    words = _compiler_words()
    return bool(words) and shutil.which(words[0]) is not None


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


def source_hash(
    sources: Iterable[Path | Generated], flags: Sequence[str], depends: Iterable[Path] = ()
) -> str:
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
        if isinstance(path, Generated):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.text.encode()).digest())
            continue
        for name, file in _files(Path(path)):
            digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def library_path(name: str, key: str) -> Path | None:
    """The built library, from a folder listed in ``$HYBRID_OPS_PREBUILT`` or the cache; None when absent.

    A damaged file (a full disk, a lost power supply) counts as absent: loading it would kill the process.
    """
    file = f"{name}-{key}.so"
    for folder in (os.environ.get("HYBRID_OPS_PREBUILT") or "").split(os.pathsep):
        if folder and is_whole(Path(folder) / file):
            return Path(folder) / file
    path = cache_path() / file
    return path if is_whole(path) else None


def is_whole(path: Path) -> bool:
    """Whether the file is a 64-bit ELF file with all its bytes: linkers put the section table at the very end."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    if len(head) < 64 or head[:5] != b"\x7fELF\x02":
        return False
    (table,) = struct.unpack_from("<Q", head, 40)
    entry_bytes, entries = struct.unpack_from("<HH", head, 58)
    return table + entry_bytes * entries <= size


def _unwritable(path: Path, error: OSError) -> BuildError:
    origin = f"${CACHE_VARIABLE}" if CACHE_VARIABLE in os.environ else f"${CACHE_VARIABLE} not set"
    return BuildError(
        f"hybrid_ops: cache: folder not writable: got {path} ({origin}: {error.strerror}); "
        f"allowed any writable folder with room, set {CACHE_VARIABLE}"
    )


_INCLUDE = re.compile(r"^\s*#\s*include\s*[\"<]([^\">]+)[\">]", re.M)


def included(source: Path, folders: Sequence[Path]) -> list[Path]:
    """The files that `source` includes, directly or through others, beside themselves or in `folders`, sorted.

    Read from the text: what a macro names or a condition leaves out is not told apart.
    """
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        file = waiting.pop()
        for name in _INCLUDE.findall(file.read_text(encoding="utf-8", errors="replace")):
            places = (folder / name for folder in (file.parent, *folders))
            header = next((place.resolve() for place in places if place.is_file()), None)
            if header is not None and header not in found:
                found.add(header)
                waiting.append(header)
    return sorted(found)


def compile_shared(
    name: str,
    sources: Sequence[Path | str | Generated],
    flags: Sequence[str] = (),
    *,
    depends: Sequence[Path | str] = (),
    link: Sequence[str] = (),
    quiet: bool = False,
) -> Path:
    """Compile ``sources`` into one shared library and return its path, or return the cached one.

    Args:
        name: file stem, e.g. ``libhost_ops``; the cache file is ``<name>-<hash>.so``.
        sources: C++ files or generated texts, one compile unit each.
        flags: compiler flags, e.g. ``-std=c++17 -O2 -Isim/include``; ``-fPIC`` is added. Headers below ``-I``
            folders belong to the hash.
        depends: further files or folders that belong to the hash.
        link: arguments of the link step, after the objects (libraries, ``-Wl,…``); they belong to the hash.
        quiet: no progress line on stderr.

    Raises:
        BuildError: no compiler, cache not writable, or a source does not compile (first error lines).
    """
    files = [source if isinstance(source, Generated) else Path(source) for source in sources]
    missing = [str(file) for file in files if isinstance(file, Path) and not file.is_file()]
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
        if is_whole(target):  # built by another process while this one waited
            return target
        if target.exists() and not quiet:
            print(f"hybrid_ops: {target} is damaged and built anew", file=sys.stderr)
        _remove_stale(target)
        try:
            with (
                tempfile.TemporaryDirectory(prefix=f".{target.stem}.", dir=target.parent) as folder,
                _progress(name, len(files), quiet),
            ):
                library = _build(tool, name, files, flags, link, Path(folder))
                os.replace(library, target)
        except OSError as error:
            raise _unwritable(target.parent, error) from error
    return target


def _remove_stale(target: Path) -> None:
    """Removes the working folders of killed builds: those whose lock nobody holds."""
    for folder in target.parent.glob(".*-*.*"):
        stem = folder.name[1:].rpartition(".")[0]
        lock = target.parent / f"{stem}.lock"
        if not folder.is_dir() or not lock.is_file():
            continue
        if stem == target.stem:  # its lock is ours
            shutil.rmtree(folder, ignore_errors=True)
            continue
        with contextlib.suppress(OSError), lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _build(
    tool: list[str],
    name: str,
    sources: Sequence[Path | Generated],
    flags: Sequence[str],
    link: Sequence[str],
    folder: Path,
) -> Path:
    files = [folder / s.name if isinstance(s, Generated) else s for s in sources]
    for file, source in zip(files, sources, strict=True):
        if isinstance(source, Generated):
            file.write_text(source.text, encoding="utf-8")
    objects = [folder / f"{i}_{file.stem}.o" for i, file in enumerate(files)]

    def one(pair: tuple[Path, Path]) -> None:
        _run([*tool, *flags, "-fPIC", "-c", str(pair[0]), "-o", str(pair[1])], name, pair[0].name)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        list(pool.map(one, zip(files, objects, strict=True)))
    library = folder / f"{name}.so"
    _run([*tool, "-shared", "-o", str(library), *map(str, objects), *link], name, "link")
    if not is_whole(library):
        raise BuildError(
            f"hybrid_ops: {name}: the compiler ended well but made no library: got {shlex.join(tool)}; "
            f"allowed a C++ compiler in {COMPILER_VARIABLE}"
        )
    return library


def _run(command: list[str], name: str, unit: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode == 0:
        return
    full = os.strerror(errno.ENOSPC)
    if full in result.stderr:
        raise _unwritable(cache_path(), OSError(errno.ENOSPC, full))
    lines = result.stderr.strip().splitlines() or ["(no message)"]
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
