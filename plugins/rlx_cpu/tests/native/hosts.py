"""A table of processors as data: their features as LLVM and as Linux call them, and what rlx does on each of them.

Tests of what depends on the processor run over this table, on any machine: code for a processor is compiled and looked at, and
run only where the machine has all of its features. `RLX_TEST_HOST=NAME` makes all of this plugin's tests run as if the machine
had no more than the features of that processor (see `conftest.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from attrs import evolve, frozen

from rlx_cpu.native.llvm.background import drain
from rlx_cpu.native.llvm.isa import BASELINE, Host, Isa, assuming_host, available, host_from, this_host

__all__ = ["HOSTS", "Row", "made_for", "masked"]

_V2: Final = ("crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3: Final = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4: Final = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_ICE_LAKE: Final = (
    *_V4,
    *("avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq"),
    *("gfni", "vaes", "vpclmulqdq"),
)
_SAPPHIRE_RAPIDS: Final = (
    *_ICE_LAKE,
    *("amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avxvnni"),
)
_ZEN_4: Final = (*_ICE_LAKE, "avx512bf16", "sse4a")
_ALDER_LAKE: Final = (*_V3, "avxvnni", "gfni", "vaes", "vpclmulqdq")
_N1: Final = ("aes", "crc", "dotprod", "fullfp16", "lse", "rcpc", "rdm", "sha2")
_V1: Final = (*_N1, "bf16", "fp16fml", "i8mm", "sve")


@frozen
class Row:
    """A processor and what is expected on it.

    Attributes:
        host: The processor.
        best: The instruction set that `auto` takes.
        sets: All sets that it can run, widest first.
        dot: The instruction for products of four bytes with sign; `None` if there is none in the best set.
    """

    host: Host
    best: str
    sets: tuple[str, ...]
    dot: str | None = None

    @property
    def name(self) -> str:
        return self.host.cpu

    @property
    def flags(self) -> frozenset[str]:
        """The features as `/proc/cpuinfo` lists them."""
        return frozenset(_IN_LINUX.get(name, name.replace("-", "_")) for name in self.host.features)


_IN_LINUX: Final[Mapping[str, str]] = {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "fp-armv8": "fp",
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
    "lse": "atomics",
}
"""LLVM's name of a feature → the kernel's, where they differ by more than a dash."""

_ALL_X86: Final = ("avx512bf16", "avx512", "avx2", "sse2")


def _row(
    arch: str, cpu: str, features: tuple[str, ...], best: str, sets: tuple[str, ...], dot: str | None = None
) -> Row:
    return Row(host_from(f"{arch}-unknown-linux-gnu", cpu, dict.fromkeys(features, True)), best, sets, dot)


HOSTS: Final = (
    _row("x86_64", "x86-64", (), "sse2", _ALL_X86[3:]),
    _row("x86_64", "nehalem", _V2, "sse2", _ALL_X86[3:]),
    _row("x86_64", "haswell", _V3, "avx2", _ALL_X86[2:]),
    _row("x86_64", "znver1", (*_V3, "sse4a"), "avx2", _ALL_X86[2:]),
    _row("x86_64", "znver3", (*_V3, "sse4a", "vaes", "vpclmulqdq"), "avx2", _ALL_X86[2:]),
    # An emulator's `-cpu max`, and every processor newer than this LLVM: the name says less than the features.
    _row("x86_64", "k8-sse3", _V3, "avx2", _ALL_X86[2:]),
    _row("x86_64", "skylake-avx512", _V4, "avx512", _ALL_X86[1:]),
    _row("x86_64", "icelake-server", _ICE_LAKE, "avx512", _ALL_X86[1:], "vpdpbusd"),
    _row("x86_64", "sapphirerapids", _SAPPHIRE_RAPIDS, "avx512", _ALL_X86, "vpdpbusd"),
    _row("x86_64", "emeraldrapids", _SAPPHIRE_RAPIDS, "avx512", _ALL_X86, "vpdpbusd"),
    _row("x86_64", "alderlake", _ALDER_LAKE, "avx2", _ALL_X86[2:], "vpdpbusd"),
    _row("x86_64", "sierraforest", (*_ALDER_LAKE, "avxvnniint8"), "avx2", _ALL_X86[2:], "vpdpbssd"),
    _row("x86_64", "znver4", _ZEN_4, "avx512bf16", _ALL_X86, "vpdpbusd"),
    _row("x86_64", "znver5", (*_ZEN_4, "avx512vp2intersect", "avxvnni"), "avx512bf16", _ALL_X86, "vpdpbusd"),
    # An emulator, and every core newer than this LLVM.
    _row("aarch64", "generic", (), "neon", ("neon",)),
    _row("aarch64", "neoverse-n1", _N1, "neon", ("neon",), "sdot"),
    _row("aarch64", "neoverse-v1", _V1, "neon", ("neon",), "sdot"),
    _row("aarch64", "neoverse-n2", (*_V1, "sve2"), "neon", ("neon",), "sdot"),
    _row("aarch64", "neoverse-v2", (*_V1, "sve2"), "neon", ("neon",), "sdot"),
    _row("aarch64", "apple-m1", (*_N1, "fp16fml", "sha3"), "neon", ("neon",), "sdot"),
)


@contextmanager
def made_for(row: Row, name: str | None = None) -> Iterator[Isa]:
    """An instruction set, the best one by default, with which modules compiled inside are code for a processor of the table.

    Of this machine's architecture it is the code that the processor itself would get; of another one, LLVM's for its name.
    """
    name = name or row.best
    isa = next(isa for isa in available(row.host) if isa.name == name)
    if row.host.arch != this_host().arch:
        yield evolve(isa, cpu=row.host.cpu)
        return
    drain()  # what is compiled in the background is code for this machine
    with assuming_host(row.host):
        yield isa


def masked(row: Row) -> Host | None:
    """This machine with the name and no more than the features of a processor of the table.

    Returns:
        `None` where code for that processor cannot run: it is of another architecture, or has sets that are not here.
    """
    here, baseline = this_host(), BASELINE.get(row.host.arch, ())
    if here.arch != row.host.arch:
        return None
    features = here.features & (row.host.features | set(baseline))
    found = Host(here.arch, row.host.cpu, features, (here.features | here.missing) - features)
    return found if tuple(i.name for i in available(found)) == row.sets else None
