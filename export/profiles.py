"""What differs between the converter releases a graph is written for."""

from __future__ import annotations

from dataclasses import dataclass

from hybrid_ops import check


@dataclass(frozen=True)
class Profile:
    """One target of the exporter.

    `version` is MindSpore Lite's (major, minor). `typed` writes dtype, output_types and outputs_shape: the 2.9
    converter was run with them, the open parsers up to 2.7 stop reading attributes at `dtype`. `gaps` says that
    input_index is understood (2.7 and later), so an optional input in the middle may be left out. `scatter` writes a
    fixed-capacity cache by CANN's Scatter in place, as the 2.9 converter was seen to map it; plain ONNX otherwise.
    """

    name: str
    version: tuple[int, int]
    typed: bool
    gaps: bool
    scatter: bool = False


PROFILES = {
    p.name: p
    for p in (
        Profile("lite-2.9", (2, 9), typed=True, gaps=True, scatter=True),
        Profile("lite-2.7", (2, 7), typed=False, gaps=True),
        Profile("lite-2.4", (2, 4), typed=False, gaps=False),
    )
}
DEFAULT_PROFILE = "lite-2.9"


def profile(name: str | Profile) -> Profile:
    """The profile by name; HybridOpsError for an unknown one."""
    if isinstance(name, Profile):
        return name
    return PROFILES[check.choice("export", "target", name, tuple(PROFILES))]
