"""The processor that native code is made for, as data: its architecture, its name and its features, in LLVM's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Final

from rlx_core.system.records import frozen
from rlx_cpu.native.llvm import boundary


@frozen(cache_hash=True)
class Host:
    """A processor.

    Attributes:
        arch: The architecture, as LLVM's triples begin.
        cpu: LLVM's name of the processor.
        features: The features that it has.
        missing: The features that LLVM knows and that the processor does not have.
    """

    arch: str
    cpu: str
    features: frozenset[str]
    missing: frozenset[str] = frozenset()

    def has(self, feature: str) -> bool:
        """Return whether the processor has a feature."""
        return feature in self.features

    def __str__(self) -> str:
        return f"{self.cpu} ({self.arch})"


BASELINE: Final[Mapping[str, tuple[str, ...]]] = {
    "aarch64": ("fp-armv8", "neon"),
    "x86_64": ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"),
}
"""Architecture → the features that its ABI guarantees. LLVM omits them if it cannot detect the processor: on AArch64 it reads
them from `/proc/cpuinfo`, which under an emulator describes another machine."""


def host_from(triple: str, cpu: str, reported: Mapping[str, bool]) -> Host:
    """Return the processor described by LLVM; a feature of `BASELINE` is missing only if LLVM reports that."""
    # Of the process and not of the machine: an x86-64 interpreter may run on AArch64 by translation.
    arch, _, _ = triple.partition("-")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    known = {**dict.fromkeys(BASELINE.get(arch, ()), True), **reported}
    return Host(
        arch,
        cpu,
        frozenset(name for name, is_there in known.items() if is_there),
        frozenset(name for name, is_there in known.items() if not is_there),
    )


@cache
def _detected() -> Host:
    return host_from(boundary.triple(), boundary.host_name(), boundary.host_features())


_assumed: Host | None = None


def this_host() -> Host:
    """This machine's processor."""
    return _detected() if _assumed is None else _assumed


@contextmanager
def assuming_host(host: Host) -> Iterator[None]:
    """Make native code for another processor meanwhile; it runs here where this one has all of its features. For tests."""
    global _assumed
    before, _assumed = _assumed, host
    try:
        yield
    finally:
        _assumed = before
