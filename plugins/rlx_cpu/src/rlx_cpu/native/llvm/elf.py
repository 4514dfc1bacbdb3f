"""Relocatable object files of 64-bit ELF, as LLVM makes them for Linux: bytes, names, and the places that are filled in later.

Source:
    System V ABI, chapters 4 and 5 (object files), with the AMD64 and AArch64 supplements.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from rlx_core.errors import KernelBuildError
from rlx_core.system.records import frozen

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_UNWIND: Final = 0x70000001
UNWIND: Final = ".eh_frame"
"""Name of the section by which stacks are unwound."""
_WRITE, _ALLOC = 1, 2
_GLOBAL, _WEAK = 1, 2
_RESERVED: Final = 0xFF00
"""Numbers from here on name no section."""


@frozen
class Section:
    """Bytes that are in memory when code runs.

    Attributes:
        alignment: Bytes that its start must be a multiple of.
    """

    name: str
    data: bytes
    alignment: int


@frozen
class Symbol:
    """A name.

    Attributes:
        section: Number of the section that contains it; `None` for a symbol of another object, or of the process.
        value: Offset from the section's start.
        is_shared: Whether it is visible to other objects.
        may_repeat: Whether several objects may define it identically.
    """

    name: str
    section: int | None
    value: int
    is_shared: bool
    may_repeat: bool


@frozen
class Relocation:
    """A place in a section that depends on where a symbol lies."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@frozen
class Object:
    """One object file.

    Attributes:
        machine: ELF's number of the architecture.
        sections: Sections by number in the file, without those that are not needed at run time.
    """

    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes, *, has_unwind: bool = False) -> Object:
    """An object file that LLVM made.

    Args:
        data: The file.
        has_unwind: Whether the result has the section `.eh_frame`, by which stacks are unwound.

    Raises:
        KernelBuildError: It has data that code writes to, which nothing here is made for.
    """
    ident, kind, machine, *_, shoff, _, _, _, _, _, shnum, shstrndx = _HEADER.unpack_from(data)
    assert ident[:6] == b"\x7fELF\x02\x01" and kind == 1, "LLVM was asked for a relocatable object of 64 bits"  # noqa: PT018
    headers = [_SECTION.unpack_from(data, shoff + i * _SECTION.size) for i in range(shnum)]
    names = _bytes_of(data, headers[shstrndx])
    sections: dict[int, Section] = {}
    symbols: tuple[Symbol, ...] = ()
    for number, (name_at, what, flags, _, _, size, link, _, alignment, _) in enumerate(headers):
        name = _text(names, name_at)
        if what == _SYMTAB:
            symbols = tuple(_symbols(_bytes_of(data, headers[number]), _bytes_of(data, headers[link])))
        elif flags & _ALLOC and size and (has_unwind or (what != _UNWIND and name != UNWIND)):
            if flags & _WRITE or what not in (_PROGBITS, _UNWIND):
                raise KernelBuildError(f"package: native code has data of its own ({name}), which files cannot share")
            sections[number] = Section(name, _bytes_of(data, headers[number]), max(1, alignment))
    relocations = tuple(
        Relocation(info, offset, which & 0xFFFFFFFF, which >> 32, addend)
        for _, what, _, _, start, size, _, info, _, _ in headers
        if what == _RELA and info in sections
        for offset, which, addend in _RELOCATION.iter_unpack(data[start : start + size])
    )
    return Object(machine, sections, symbols, relocations)


def exported(objects: Sequence[Object], starts: Sequence[Mapping[int, int]]) -> dict[str, int]:
    """Return where the shared functions of objects lie, by name.

    Args:
        starts: For each object, where its sections begin, by number.

    Raises:
        ValueError: Two functions have one name.
    """
    result: dict[str, int] = {}
    for each, places in zip(objects, starts, strict=True):
        for symbol in each.symbols:
            if not symbol.is_shared or symbol.section is None:
                continue
            if symbol.name in result and not symbol.may_repeat:
                raise ValueError(f"two functions are called {symbol.name}")
            result.setdefault(symbol.name, places[symbol.section] + symbol.value)
    return result


def _bytes_of(data: bytes, header: tuple[int, ...]) -> bytes:
    return data[header[4] : header[4] + header[5]]


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _symbols(table: bytes, names: bytes) -> list[Symbol]:
    symbols = []
    for name_at, info, _, section, value, _ in _SYMBOL.iter_unpack(table):
        binding, place = info >> 4, None if section == 0 or section >= _RESERVED else section
        symbols.append(Symbol(_text(names, name_at), place, value, binding in (_GLOBAL, _WEAK), binding == _WEAK))
    return symbols
