"""Object files linked into an image: every place that depends on where something lies is filled in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from rlx_core.errors import KernelBuildError
from rlx_cpu.native.llvm.elf import Object, Relocation, exported, read_object
from rlx_cpu.packaged.image import PAGE, Image

_X86_64, _AARCH64 = 62, 183
_STUB: Final = {_X86_64: 8, _AARCH64: 12}
"""Bytes of a jump through the table."""


def linked(objects: Sequence[bytes]) -> Image:
    """Return object files linked to one image.

    Raises:
        KernelBuildError: Two objects define one name, they are for several architectures, or a relocation is not supported.
    """
    read = [read_object(data) for data in objects]
    machine = read[0].machine
    if machine not in _STUB or any(each.machine != machine for each in read):
        raise KernelBuildError(f"package: no code is linked for architecture {machine} of ELF")
    code = bytearray()
    starts = [_placed(each, code) for each in read]
    try:
        exports = exported(read, starts)
    except ValueError as error:
        raise KernelBuildError(f"package: {error}") from None
    undefined = {symbol.name for each in read for symbol in each.symbols if symbol.section is None and symbol.is_shared}
    imports = tuple(sorted(undefined - exports.keys()))
    stubs = _aligned(len(code), 16)
    code += bytes(stubs - len(code) + _STUB[machine] * len(imports))
    table = _aligned(len(code), PAGE)
    for number in range(len(imports)):
        _write_stub(code, machine, stubs + _STUB[machine] * number, table + 8 * number)
    outside = {name: stubs + _STUB[machine] * number for number, name in enumerate(imports)}
    for each, places in zip(read, starts, strict=True):
        for relocation in each.relocations:
            symbol = each.symbols[relocation.symbol]
            if symbol.section is not None:
                target = places[symbol.section] + symbol.value
            else:
                target = exports[symbol.name] if symbol.name in exports else outside[symbol.name]
            _fill(code, machine, places[relocation.section] + relocation.offset, target, relocation)
    return Image(bytes(code), table, imports, exports)


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _placed(read: Object, code: bytearray) -> dict[int, int]:
    """Append an object's sections; where each starts."""
    starts = {}
    for number, section in read.sections.items():
        # Never less than a cache line: two functions in one line would be fetched together.
        starts[number] = _aligned(len(code), max(64, section.alignment))
        code += bytes(starts[number] - len(code)) + section.data
    return starts


def _write_stub(code: bytearray, machine: int, position: int, word: int) -> None:
    """A jump to the address in a word of the table."""
    if machine == _X86_64:
        code[position : position + 6] = b"\xff\x25" + struct.pack("<i", word - (position + 6))  # jmp *word(%rip)
        return
    pages = (word >> 12) - (position >> 12)
    adrp = 0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5  # adrp x16, word
    load = 0xF9400210 | (word & 0xFFF) >> 3 << 10  # ldr x16, [x16, word]
    struct.pack_into("<III", code, position, adrp, load, 0xD61F0200)  # br x16


def _fill(code: bytearray, machine: int, position: int, target: int, relocation: Relocation) -> None:
    """Write a relocation, computed from a symbol's distance.

    Raises:
        KernelBuildError: The kind of relocation is not supported, or the distance is too large.
    """
    value, kind = target + relocation.addend, relocation.kind
    if (machine, kind) in _DISTANCES:
        nbytes = _DISTANCES[machine, kind]
        if not -(1 << 8 * nbytes - 1) <= value - position < 1 << 8 * nbytes - 1:
            raise KernelBuildError("package: the code is too large to be linked")
        code[position : position + nbytes] = (value - position).to_bytes(nbytes, "little", signed=True)
    elif machine == _AARCH64 and kind in _BRANCHES:
        if not -_REACH <= value - position < _REACH:
            raise KernelBuildError("package: the code is too large to be linked")
        _patch(code, position, 0x3FFFFFF, value - position >> 2)
    elif machine == _AARCH64 and kind == _PAGE_DISTANCE:
        pages = (value >> 12) - (position >> 12)
        _patch(code, position, 3 << 29 | 0x7FFFF << 5, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)
    elif machine == _AARCH64 and kind in _WITHIN_PAGE:
        _patch(code, position, 0xFFF << 10, (value & 0xFFF) >> _WITHIN_PAGE[kind] << 10)
    else:
        raise KernelBuildError(
            f"package: relocations of kind {kind} are not linked here (architecture {machine} of ELF)"
        )


_DISTANCES: Final = {
    (_X86_64, 2): 4,  # R_X86_64_PC32
    (_X86_64, 4): 4,  # R_X86_64_PLT32
    (_X86_64, 24): 8,  # R_X86_64_PC64
    (_AARCH64, 260): 8,  # R_AARCH64_PREL64
    (_AARCH64, 261): 4,  # R_AARCH64_PREL32
}
"""Kinds that are a distance, and its bytes."""

_BRANCHES: Final = (282, 283)  # R_AARCH64_JUMP26, R_AARCH64_CALL26
_REACH: Final = 1 << 27
"""Bytes that a branch of AArch64 reaches."""

_PAGE_DISTANCE: Final = 275  # R_AARCH64_ADR_PREL_PG_HI21
_WITHIN_PAGE: Final = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
"""R_AARCH64_ADD_ABS_LO12_NC and R_AARCH64_LDST8 … 128_ABS_LO12_NC, with the bits that the scale of the access takes off."""


def _patch(code: bytearray, position: int, mask: int, bits: int) -> None:
    (instruction,) = struct.unpack_from("<I", code, position)
    struct.pack_into("<I", code, position, instruction & ~mask | bits & mask)
