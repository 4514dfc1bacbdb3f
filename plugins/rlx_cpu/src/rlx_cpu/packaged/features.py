"""Features of this machine's processor, as reported by Linux: detected without LLVM, which may be missing."""

from __future__ import annotations

import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

_V2: Final = ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
_V3: Final = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4: Final = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

NEEDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "avx512bf16": ("x86_64", (*_V4, "avx512_bf16")),
    "avx512": ("x86_64", _V4),
    "avx2": ("x86_64", _V3),
    "neon": ("aarch64", ("asimd", "fp")),
    "sse2": ("x86_64", ("sse2",)),
}
"""Instruction set → the architecture, and what portable code for it (`llvm.isa.PORTABLE`) uses, in the words of /proc/cpuinfo."""

_BASELINE: Final[Mapping[str, tuple[str, ...]]] = {"aarch64": ("asimd", "fp"), "x86_64": ("sse2",)}
"""Architecture → the features that its ABI guarantees. Under an emulator `/proc/cpuinfo` is of another architecture."""

_CPUINFO: Final = Path("/proc/cpuinfo")


def reason_against(architecture: str, needs: Sequence[str]) -> str | None:
    """Why code for an architecture that needs some features cannot run here, as the end of a sentence; `None` if it can."""
    if sys.platform != "linux":
        return f"is for Linux, and this is {platform.system() or sys.platform}"
    if arch() != architecture:
        return f"is for {architecture}, and this machine is {arch()}"
    present = {*_BASELINE.get(architecture, ()), *features()}
    missing = [feature for feature in needs if feature not in present]
    return f"needs {', '.join(missing)}, which this processor lacks" if missing else None


def arch() -> str:
    """This machine's architecture, as LLVM calls it."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@cache
def features(cpuinfo: Path = _CPUINFO) -> Collection[str]:
    """Return the features of the first processor that programs may use; empty if the system does not report them."""
    try:
        with cpuinfo.open() as lines:
            for line in lines:
                label, _, words = line.partition(":")
                if label.strip() in ("flags", "Features"):
                    return frozenset(words.split())
    except (OSError, UnicodeDecodeError):
        return frozenset()  # a system that does not say: code for more than the least is not chosen
    return frozenset()
