"""Products of four bytes on any machine: LLVM's intrinsics as functions of plain operations with the documented meaning.

Code for a processor with such an instruction is emitted as for that processor. The calls of the intrinsic are then calls of a
function that is defined here, and LLVM compiles the module for this machine, in vectors as wide as it has.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from rlx_cpu.native.llvm import boundary, jit, objects, optimise
from rlx_cpu.native.llvm.background import drain
from rlx_cpu.native.llvm.build import OUTER
from rlx_cpu.native.llvm.isa import BY_NAME, Isa, assuming_host, available, this_host

AT_HWCAP, AT_HWCAP2 = 16, 26
"""Keys in `/proc/self/auxv` (Linux, `include/uapi/linux/auxvec.h`); bits are those of `arch/arm64/include/uapi/asm/hwcap.h`."""

MEANINGS: Final = {
    "llvm.x86.avx512.vpdpbusd.512": ("z", "s"),
    "llvm.x86.avx512.vpdpbusd.256": ("z", "s"),
    "llvm.x86.avx2.vpdpbssd.256": ("s", "s"),
    "llvm.x86.avx2.vpdpbuud.256": ("z", "z"),
    "llvm.aarch64.neon.sdot.v4i32.v16i8": ("s", "s"),
    "llvm.aarch64.neon.udot.v4i32.v16i8": ("z", "z"),
    "llvm.aarch64.neon.usdot.v4i32.v16i8": ("z", "s"),
}
"""Intrinsic → whether the bytes of its operands have signs (`s`) or not (`z`): Intel's Intrinsics Guide (`_mm512_dpbusd_epi32`,
`_mm256_dpbssd_avx_epi32`, `_mm256_dpbuud_avx_epi32`) and Arm's A64 instructions SDOT, UDOT and USDOT (vector)."""

PAIRS: Final = "llvm.x86.avx512.pmaddw.d.512"

MEANING_OF_PAIRS: Final = f"""define internal <16 x i32> @"{PAIRS}"(<32 x i16> %x, <32 x i16> %y) noinline {{
entry:
  %x.wide = sext <32 x i16> %x to <32 x i32>
  %y.wide = sext <32 x i16> %y to <32 x i32>
  %product = mul <32 x i32> %x.wide, %y.wide
  %pairs = bitcast <32 x i32> %product to <16 x i64>
  %low = trunc <16 x i64> %pairs to <16 x i32>
  %shifted = lshr <16 x i64> %pairs, splat (i64 32)
  %high = trunc <16 x i64> %shifted to <16 x i32>
  %sum = add <16 x i32> %low, %high
  ret <16 x i32> %sum
}}"""
"""Two products of i16 in each lane, for blocks that have no words of four bytes."""

SETS: Final = tuple(
    evolve(BY_NAME[name], dots=dots)
    for name, dots in (
        ("avx512", ("avx512vnni",)),
        ("avx2", ("avxvnni",)),
        ("avx2", ("avxvnniint8", "avxvnni")),
        ("neon", ("dotprod",)),
        ("neon", ("dotprod", "i8mm")),
    )
    # What else code for x86 calls has a meaning there alone.
    if BY_NAME[name].arch in ("aarch64", this_host().arch)
)
"""Instruction sets with each of the instructions."""


def label(isa: Isa) -> str:
    """The name of a set in the names of tests."""
    return "-".join((isa.name, *isa.dots))


@cache
def seen_by_linux() -> frozenset[str]:
    """Features of AArch64 that Linux reports to this process; under an emulator LLVM reads those of another machine."""
    auxiliary = Path("/proc/self/auxv")
    if this_host().arch != "aarch64" or not auxiliary.exists():
        return frozenset()
    data = auxiliary.read_bytes()
    values = dict(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
    bits = {"dotprod": values.get(AT_HWCAP, 0) >> 20, "i8mm": values.get(AT_HWCAP2, 0) >> 13}
    return frozenset(name for name, bit in bits.items() if bit & 1)


def runs_here(isa: Isa) -> bool:
    """Whether this machine has a set with its products of four bytes."""
    return any(each.name == isa.name and {*isa.dots} <= {*each.dots, *seen_by_linux()} for each in available())


@contextmanager
def as_on(dots: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are compiled as on this machine's processor with further features, and computed by the meaning of these."""
    here, host = optimise.processor(available()[0]), this_host()

    def generate(text: str, isa: Isa) -> bytes:
        return boundary.object_file(with_meanings(text), here, outer=OUTER)

    drain()  # what is compiled in the background is code for this machine
    with assuming_host(evolve(host, features=host.features | {*dots})), jit.keeping(None):
        for module in (jit, objects):
            monkeypatch.setattr(module, "generate", generate)
        yield
        drain()


def with_meanings(text: str) -> str:
    """A module in which functions that are defined in it take the place of the intrinsics."""
    definitions = {name: meaning(name, *extensions) for name, extensions in MEANINGS.items()}
    for name, definition in {**definitions, PAIRS: MEANING_OF_PAIRS}.items():
        declared = re.search(rf'^declare .*@"{re.escape(name)}"\(.*\)$', text, re.MULTILINE)
        if declared is not None:
            text = text.replace(declared[0], definition).replace(f'@"{name}"', f'@"meaning.{name}"')
    return text


def meaning(name: str, *extensions: str) -> str:
    """The definition of an intrinsic: the four products of the bytes of each lane are added to its i32."""
    bits = 128 if "neon" in name else int(name.rpartition(".")[2])
    lanes = bits // 32
    sums, words = f"<{lanes} x i32>", f"<{4 * lanes} x i32>"
    operand = f"<{4 * lanes} x i8>" if "neon" in name else sums
    lines = [f'define internal {sums} @"{name}"({sums} %z, {operand} %x, {operand} %y) noinline {{', "entry:"]
    for each, extension in zip("xy", extensions, strict=True):
        lines += [
            f"%{each}.bytes = bitcast {operand} %{each} to <{4 * lanes} x i8>",
            f"%{each}.wide = {extension}ext <{4 * lanes} x i8> %{each}.bytes to {words}",
        ]
    lines.append(f"%product = mul {words} %x.wide, %y.wide")
    total = "%z"
    for i in range(4):
        order = ", ".join(f"i32 {4 * lane + i}" for lane in range(lanes))
        lines += [
            f"%p{i} = shufflevector {words} %product, {words} poison, {sums} <{order}>",
            f"%s{i} = add {sums} {total}, %p{i}",
        ]
        total = f"%s{i}"
    return "\n".join([*lines, f"ret {sums} {total}", "}"])
