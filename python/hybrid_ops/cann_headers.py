"""Finds real CANN headers (an installed toolkit or a headers-only copy of one) and the g++ flags they need.

Nothing of CANN is shipped with this project: the headers are read below ``ASCEND_HOME_PATH``. Layouts differ by
release, so files are probed, never versions.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

USUAL_PLACES = (
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "~/Ascend/ascend-toolkit/latest",
)
HOW_TO_GET = (
    "install the CANN toolkit (8.1 or newer) or unpack its headers (<arch>-linux/ and tools/tikicpulib) "
    "and set ASCEND_HOME_PATH to that folder"
)
# The macros CANN's own CPU-debug build sets; the core generation is what selects a SoC's implementation headers.
SOC_MACROS = {
    "ascend310p": ["-D__CCE_AICORE__=200", "-D__DAV_M200__", "-D__NPU_ARCH__=2002"],
    "ascend910b": ["-D__CCE_AICORE__=220", "-D__DAV_C220__", "-D__NPU_ARCH__=2201"],
}
CPU_DEBUG = ["-std=c++17", "-D__CCE_KT_TEST__=1", "-DASCENDC_CPU_DEBUG=1", "-DASCENDC_DEBUG=1"]


class HeadersMissing(RuntimeError):
    """No usable CANN headers; the text says what is missing and how to get it."""


@dataclass(frozen=True)
class CannHeaders:
    """Include folders of one CANN tree, for kernel sources and for host sources."""

    home: Path
    kernel: tuple[Path, ...]
    host: tuple[Path, ...]

    def kernel_flags(self, soc: str, option: str = "-isystem") -> list[str]:
        """g++ flags for a kernel source; ``option="-I"`` makes the headers' own diagnostics visible."""
        return CPU_DEBUG + SOC_MACROS[soc] + _spread(option, self.kernel)

    def host_flags(self) -> list[str]:
        """g++ flags for an op_host source (CANN's libraries use the old string ABI)."""
        return ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-fPIC", *_spread("-isystem", self.host)]


def find() -> CannHeaders:
    """Headers below ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME or the usual places; raises HeadersMissing."""
    named = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME")
    places = [named] if named else list(USUAL_PLACES)
    home = next((p for p in (Path(x).expanduser() for x in places if x) if p.is_dir()), None)
    if home is None:
        raise HeadersMissing(
            f"check-cann: ASCEND_HOME_PATH: no CANN tree: got {named or 'unset'}; {HOW_TO_GET}"
        )
    arches = dict.fromkeys([f"{platform.machine()}-linux", "x86_64-linux", "aarch64-linux"])
    roots = [home, *(home / a for a in arches), home / "compiler"]

    def base_of(relative: str) -> Path | None:
        """Folder from which `relative` can be included, in the first root that has it."""
        for prefix in ("", "include", "ascendc/include/highlevel_api", "asc/include", "asc/include/utils"):
            for root in roots:
                if (root / prefix / relative).exists():
                    return root / prefix
        return None

    public = base_of("register/op_def_registry.h")
    return CannHeaders(home, _kernel_dirs(home, roots, public), _host_dirs(home, public, base_of))


def _host_dirs(home, public, base_of) -> tuple[Path, ...]:
    if public is None:
        raise HeadersMissing(f"check-cann: register/op_def_registry.h: not found under {home}; {HOW_TO_GET}")
    dirs = [public, base_of("tiling/platform/platform_ascendc.h")]
    dirs += [public / "experiment" / x for x in ("platform", "slog", "metadef", "runtime")]
    dirs += [public / "external", public / "base"]
    return tuple(d for d in dirs if d and d.is_dir())


def _kernel_dirs(home, roots, public) -> tuple[Path, ...]:
    debug = [
        home / "tools" / t for t in ("tikicpulib/lib/include", "cpudebug/lib/include", "cpudebug/include")
    ]
    if os.environ.get("ASCENDC_CPUDEBUG_INCLUDE"):
        debug.insert(0, Path(os.environ["ASCENDC_CPUDEBUG_INCLUDE"]))
    stub = next((d for d in debug if (d / "stub_fun.h").exists()), None)
    if stub is None:
        raise HeadersMissing(
            f"check-cann: stub_fun.h: CPU-debug headers not found under {home}/tools; {HOW_TO_GET} "
            "(or ASCENDC_CPUDEBUG_INCLUDE to the folder with stub_fun.h)"
        )
    for root in roots:
        new = root / "asc" / "include"
        if (new / "kernel_operator.h").exists():  # CANN 8.5 and newer
            inner = "basic_api interface adv_api adv_api/matmul aicpu_api utils c_api simt_api tiling".split()
            impl = [
                root / "asc" / "impl" / x for x in ("", "basic_api", "adv_api", "c_api", "simt_api", "utils")
            ]
            dirs = [root / "asc", new, *(new / x for x in inner), *impl]
            break
        for basic in (root / "ascendc/include/basic_api", root / "tikcpp/tikcfw"):
            if (basic / "kernel_operator.h").exists():  # CANN 8.0 to 8.3
                high = root / "ascendc/include/highlevel_api"
                high = high if high.is_dir() else basic
                dirs = [basic, basic / "impl", basic / "interface"]
                dirs += [high, high / "lib", high / "impl", high / "lib/matmul"]
                break
        else:
            continue
        break
    else:
        raise HeadersMissing(f"check-cann: kernel_operator.h: not found under {home}; {HOW_TO_GET}")
    return tuple(d for d in [stub, *([public] if public else []), *dirs] if d.is_dir())


def _spread(option: str, dirs: tuple[Path, ...]) -> list[str]:
    return [x for d in dirs for x in (option, str(d))]
