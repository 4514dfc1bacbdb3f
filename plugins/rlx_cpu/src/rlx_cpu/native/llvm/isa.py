"""Processors and instruction sets as data.

A `Host` is a processor in LLVM's words: its architecture, its name and its features. An `Isa` has the width and number of
vectors, and the other properties that code generation may count on.

Kernels are written once for any `Isa`; the best one that the machine has is taken unless the option `cpu.isa` forces
another. NEON can be compiled for on any machine and run where it exists.

LLVM's description of this machine is cached, so that a program whose code is all cached does not load LLVM's library. It is kept
by what it depends on: the processor's own description, which NumPy and Linux have read, and the file of the library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from rlx_core.errors import CacheError, ConfigError, Fact, nearest
from rlx_core.ir.dtypes import DType, i8, u8
from rlx_core.ir.forms import PLAIN_FORMS
from rlx_core.system.disk import DiskCache
from rlx_core.system.private import cache_directory
from rlx_core.system.records import frozen
from rlx_cpu.native import llvm
from rlx_cpu.native.machine import MACHINE, CpuMachine, assumed


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

OF_MACS: Final = ("dotprod",)
"""Further features of AArch64 where the system is macOS: the oldest such processor is the M1. LLVM reports none there."""


def host_from(triple: str, cpu: str, reported: Mapping[str, bool]) -> Host:
    """Return the processor described by LLVM; a feature of `BASELINE`, or `OF_MACS`, is missing only if LLVM reports that."""
    # Of the process and not of the machine: an x86-64 interpreter may run on AArch64 by translation.
    arch, _, _ = triple.partition("-")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    more = OF_MACS if arch == "aarch64" and "-apple-" in triple else ()
    known = {**dict.fromkeys((*BASELINE.get(arch, ()), *more), True), **reported}
    return Host(
        arch,
        cpu,
        frozenset(name for name, is_there in known.items() if is_there),
        frozenset(name for name, is_there in known.items() if not is_there),
    )


# ---------------------------------------------------------------------------------- LLVM's description, cached

_FORMAT: Final = 1

_CPUINFO: Final = Path("/proc/cpuinfo")
_PROCESSOR: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")
"""Lines of a processor there that are the same for all that are alike."""


@frozen
class LlvmFacts:
    """This machine in LLVM's words.

    Attributes:
        triple: The process's triple.
        cpu: The name of the processor.
        features: Its features, each with whether the processor has it.
        llvm, llvmlite: The versions.
    """

    triple: str
    cpu: str
    features: Mapping[str, bool]
    llvm: tuple[int, ...]
    llvmlite: str


@cache
def default_cache(directory: Path) -> DiskCache | None:
    """Return the cache in a directory; `None` if that cannot be used."""
    try:
        return DiskCache(directory)
    except CacheError:
        return None


@cache
def facts() -> LlvmFacts:
    """Return LLVM's description of this machine: from the cache, or from LLVM, and kept."""
    key = _key()
    store = None if key is None else default_cache(cache_directory() / "objects")
    if key is None or store is None:
        return facts_of_llvm()
    entry = store.get(key)
    if entry is not None:
        try:
            return PLAIN_FORMS.read(json.loads(entry), LlvmFacts, "facts")
        except (ValueError, KeyError, TypeError) as error:
            store.drop(key, repr(error))
    result = facts_of_llvm()
    store.put(key, json.dumps(PLAIN_FORMS.write(result, LlvmFacts), default=dict).encode())
    return result


def facts_of_llvm() -> LlvmFacts:
    """Return LLVM's description of this machine."""
    boundary = llvm.boundary
    version, llvmlite = boundary.versions()
    return LlvmFacts(boundary.triple(), boundary.host_name(), boundary.host_features(), version, llvmlite)


def _key() -> str | None:
    """Return the identity of the processor and of LLVM's library; `None` where the system does not describe them."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        parts = [_FORMAT, sorted(_numpy_features().items()), list(_processor()), list(_library())]
    except (OSError, UnicodeDecodeError):
        return None
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _processor() -> Iterator[str]:
    """Yield what Linux says of the first processor."""
    with _CPUINFO.open() as lines:
        for line in lines:
            if not line.strip():
                return
            if line.partition(":")[0].strip() in _PROCESSOR:
                yield line


def _numpy_features() -> Mapping[str, bool]:
    """Return the features that NumPy reads from the processor itself, which under an emulator is another than Linux's."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    features: Mapping[str, Any] = _multiarray_umath.__cpu_features__
    return {name: bool(value) for name, value in features.items()}


def _library() -> Iterator[tuple[Any, ...]]:
    """Yield the identities of the files of llvmlite that LLVM and the version are in."""
    spec = importlib.util.find_spec("llvmlite")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        for path in (Path(folder, "binding", "libllvmlite.so"), Path(folder, "_version.py")):
            status = path.stat()
            yield str(path), status.st_size, status.st_mtime_ns


@cache
def _detected() -> Host:
    known = facts()
    return host_from(known.triple, known.cpu, known.features)


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


@frozen
class QuadProduct:
    """An instruction that multiplies the four bytes of each lane of two vectors, and adds the products to an i32, modulo 2^32.

    Attributes:
        intrinsic: LLVM's name.
        flips: Whether it needs the sign bits of the first factor flipped: −128 to 127 as 0 to 255, or the reverse. A sum of
            products is then larger, or smaller, by 128 times the sum of the second factor.
        is_swapped: Whether its operands are the second factor and the first.
        takes_bytes: Whether the operands are vectors of i8 for LLVM, and not of i32.
    """

    intrinsic: str
    flips: bool
    is_swapped: bool
    takes_bytes: bool


DOTS: Final[Mapping[str, Mapping[tuple[DType, DType], str]]] = {
    "avx512vnni": {(u8, i8): "llvm.x86.avx512.vpdpbusd"},
    "avxvnniint8": {(i8, i8): "llvm.x86.avx2.vpdpbssd", (u8, u8): "llvm.x86.avx2.vpdpbuud"},
    "avxvnni": {(u8, i8): "llvm.x86.avx512.vpdpbusd"},  # LLVM encodes it without AVX-512 where the processor has none
    "dotprod": {(i8, i8): "llvm.aarch64.neon.sdot", (u8, u8): "llvm.aarch64.neon.udot"},
    "i8mm": {(u8, i8): "llvm.aarch64.neon.usdot"},
}
"""Feature → the dtypes of the operands of its products of four bytes, with LLVM's names without the width."""

_DOTS_OF: Final = {
    ("x86_64", 64): ("avx512vnni",),
    ("x86_64", 32): ("avxvnniint8", "avxvnni"),
    ("aarch64", 16): ("dotprod", "i8mm"),
}
"""Architecture and bytes of a vector → the features whose instructions have that width, the preferred one first."""


@frozen
class Isa:
    """One instruction set.

    Attributes:
        name: Value of the option `cpu.isa`.
        arch: The architecture, as LLVM's triples begin.
        vector_bytes: Bytes of a vector register.
        registers: Number of vector registers; it bounds the tile size.
        needs: Required features, in LLVM's names.
        without: Features that are switched off, so that a narrower set is really narrower.
        pause: The intrinsic that a waiting loop calls.
        fence: The intrinsic that orders nontemporal stores before later stores; `None` for a set without such stores.
        machine: Further properties used by schedules.
        cpu: LLVM's name of the target processors, if the code is not for this machine: it runs on any processor with the set.
        dots: Features of `DOTS` that the processor has and the code uses. Portable code has none.
    """

    name: str
    arch: str
    vector_bytes: int
    registers: int
    needs: tuple[str, ...]
    without: tuple[str, ...]
    pause: str | None
    fence: str | None
    machine: CpuMachine = MACHINE
    cpu: str | None = None
    dots: tuple[str, ...] = ()

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector."""
        return self.vector_bytes // dtype.itemsize

    @property
    def multiplies_bf16(self) -> bool:
        """Whether one instruction multiplies two pairs of bfloat16 and adds both products to an f32."""
        return "avx512bf16" in self.needs

    @property
    def i16_pair_product(self) -> str | None:
        """The intrinsic that multiplies two vectors of pairs of i16 and adds both products of a pair in an i32, if there is one.

        Where the processor has VNNI, LLVM makes one instruction of it and of the sum that follows if that is as fast.
        """
        if self.arch != "x86_64":
            return None
        return {16: "llvm.x86.sse2.pmadd.wd", 32: "llvm.x86.avx2.pmadd.wd", 64: "llvm.x86.avx512.pmaddw.d.512"}[
            self.vector_bytes
        ]

    @property
    def u8_i8_pair_product(self) -> str | None:
        """The intrinsic that multiplies bytes without sign by bytes with sign and adds both products of a pair in an i16, which
        saturates, if there is one."""
        is_x86 = self.arch == "x86_64"
        names = {32: "llvm.x86.avx2.pmadd.ub.sw", 64: "llvm.x86.avx512.pmaddubs.w.512"}
        return names.get(self.vector_bytes) if is_x86 else None

    def quad_product(self, first: DType, second: DType) -> QuadProduct | None:
        """Return the instruction for factors of these dtypes, i8 or u8, if there is one; one that flips no bits if possible."""
        operands = {pair: name for feature in reversed(self.dots) for pair, name in DOTS[feature].items()}
        suffix = (
            f"v{self.vector_bytes // 4}i32.v{self.vector_bytes}i8" if self.arch == "aarch64" else 8 * self.vector_bytes
        )
        for flips in (False, True):
            factors = (_OTHER_SIGN[first] if flips else first, second)
            for is_swapped in (False, True):
                name = operands.get(factors[::-1] if is_swapped else factors)
                if name is not None:
                    return QuadProduct(f"{name}.{suffix}", flips, is_swapped, takes_bytes=self.arch == "aarch64")
        return None

    @property
    def converts_f16(self) -> bool:
        """Whether float16 is converted by instructions."""
        return self.arch != "x86_64" or "f16c" in self.needs

    def excludes(self, feature: str) -> bool:
        """Return whether the set does without a feature."""
        return any(feature == w or (w.endswith("*") and feature.startswith(w[:-1])) for w in self.without)

    def on(self, host: Host) -> Isa:
        """Return the set with the features of `DOTS` that a processor has."""
        known = _DOTS_OF.get((self.arch, self.vector_bytes), ())
        dots = tuple(f for f in known if host.has(f) and not self.excludes(f))
        return evolve(self, dots=dots) if dots else self

    def features(self, host: Host) -> str:
        """The feature string for LLVM: the host's, less what this set does without."""
        if self.cpu is not None or self.arch != host.arch:
            return ",".join(f"+{f}" for f in (*self.needs, *self.dots))
        off = {feature for feature in host.features | host.missing if self.excludes(feature)} | host.missing
        # Disabled features come last: LLVM then also disables those that imply them, whereas `+vaes` after `-avx` would enable
        # AVX.
        on = {*host.features, *self.dots} - off
        return ",".join([*(f"+{f}" for f in sorted(on)), *(f"-{f}" for f in sorted(off))])


_OTHER_SIGN: Final[Mapping[DType, DType]] = {i8: u8, u8: i8}

_X86: Final = ("llvm.x86.sse2.pause", "llvm.x86.sse.sfence")
_AVX512: Final = ("avx512f", "avx512vl", "avx512dq", "avx512bw", "fma", "f16c")

ISAS: Final = (
    Isa("avx512bf16", "x86_64", 64, 32, (*_AVX512, "avx512bf16"), (), *_X86),
    Isa("avx512", "x86_64", 64, 32, _AVX512, ("avx512bf16",), *_X86),
    Isa("avx2", "x86_64", 32, 16, ("avx2", "fma", "f16c"), ("avx512*", "evex512", "avx10*"), *_X86),
    Isa("neon", "aarch64", 16, 32, ("neon",), ("sve*",), None, None),
    # The baseline of 64-bit x86: no fused multiply-add, so LLVM emulates `fma` where accuracy requires it.
    Isa("sse2", "x86_64", 16, 16, ("sse2",), ("avx*", "evex512", "fma*", "f16c", "xop"), *_X86),
)
"""From the most to the least preferred."""

BY_NAME: Final = {isa.name: isa for isa in ISAS}

SLOW_PAIRS: Final = frozenset({"sapphirerapids", "emeraldrapids"})
"""Processors, as LLVM calls them, that multiply a pair of bf16 every other cycle: f32 products of widened elements are 1.5 times
as fast there (130 against 87 GFLOP/s on a core), and more exact. On Zen 4 pairs are twice as fast as f32."""


PORTABLE: Final = {
    "avx512bf16": "x86-64-v4",
    "avx512": "x86-64-v4",
    "avx2": "x86-64-v3",
    "neon": "generic",
    "sse2": "x86-64",
}
"""LLVM's name of the common baseline of all processors with a set: the levels of the x86-64 psABI."""


def available(host: Host | None = None) -> tuple[Isa, ...]:
    """The instruction sets that a processor can run, this machine's by default, widest first."""
    host = host or this_host()
    return tuple(i.on(host) for i in ISAS if i.arch == host.arch and host.features.issuperset(i.needs))


def host_isa(host: Host | None = None) -> Isa | None:
    """The instruction set that is best on a processor, this machine's by default; `None` if it has none of those known."""
    host = host or this_host()
    is_slow = host.cpu in SLOW_PAIRS
    return next((i for i in available(host) if not (is_slow and i.multiplies_bf16)), None)


def named(name: str) -> Isa:
    """Return the instruction set named by the option `cpu.isa`; `auto` is the best available one.

    Raises:
        ConfigError: No such set exists, or this machine does not have it.
    """
    supported = available()
    isa = host_isa() if name == "auto" else next((i for i in supported if i.name == name), BY_NAME.get(name))
    if isa is None:
        raise ConfigError(f"cpu.isa: {name!r} is none of auto, {', '.join(BY_NAME)}", hint=nearest(name, BY_NAME))
    if isa not in supported:
        raise ConfigError(
            f"cpu.isa: this machine has {', '.join(i.name for i in supported) or 'none of them'}, not {name}",
            Fact("machine", str(this_host())),
        )
    return evolve(isa, machine=assumed())


def portable(name: str) -> Isa:
    """An instruction set as code for every machine that has it, this one or not.

    Raises:
        ConfigError: There is no such set.
    """
    isa = BY_NAME.get(name)
    if isa is None:
        raise ConfigError(f"cpu: {name!r} is none of {', '.join(BY_NAME)}", hint=nearest(name, BY_NAME))
    return evolve(isa, machine=assumed(), cpu=PORTABLE[name])
