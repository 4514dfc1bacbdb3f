"""Object files in this process without LLVM: a program whose code is all cached does not load LLVM's library.

Objects are those of `optimise.generate` for this machine, in which addresses are words of 64 bits. On other systems than Linux on
x86-64 LLVM links them.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from rlx_core.errors import Fact, KernelBuildError, OutOfMemoryError
from rlx_cpu.native.llvm.c_library import addresses as of_the_c_library
from rlx_cpu.native.llvm.code_memory import EXECUTE, READ, CodeMemory
from rlx_cpu.native.llvm.elf import UNWIND, Object, Relocation, read_object

_X86_64: Final = 62
_ADDRESS, _DISTANCE = 1, 24
"""R_X86_64_64 and R_X86_64_PC64."""
_ALIGNMENT: Final = 64
"""Bytes of a cache line: two functions in one line would be fetched together."""

symbols: Final[dict[str, int]] = {}
"""Addresses of functions that code may call, besides those of the C library; LLVM's linker gets them too."""


def add_symbols(addresses: Mapping[str, int]) -> None:
    """Add functions that code linked from now on may call."""
    symbols.update(addresses)


class LoadedCode:
    """Linked objects; addresses are valid as long as it lives."""

    def __init__(self, memory: CodeMemory, functions: Mapping[str, int]) -> None:
        self._memory = memory
        self._functions = functions

    def address(self, function: str) -> int:
        """Return the address of a function; 0 if no function has that name."""
        return self._functions.get(function, 0)


def linked(objects: Sequence[bytes]) -> LoadedCode | None:
    """Return object files in this process; `None` if this system, or something in one of them, needs LLVM's linker.

    Raises:
        RuntimeError: A file is damaged, a function is unknown, or two have one name.
        OutOfMemoryError: There is no memory for the code.
        KernelBuildError: The system does not let memory be executed.
    """
    if not is_supported():
        return None
    try:
        read = [read_object(data, has_unwind=True) for data in objects]
        if not all(_is_linked_here(each) for each in read):
            return None
        starts, size = _starts(read)
        memory = _memory(size)
        exports = _exports(read, starts, memory.start)
        for each, places in zip(read, starts, strict=True):
            for number, section in each.sections.items():
                memory.bytes[places[number] : places[number] + len(section.data)] = section.data
            for relocation in each.relocations:
                _fill(memory, each, places, relocation, exports)
    except KernelBuildError:
        return None
    except (AssertionError, IndexError, KeyError, ValueError, struct.error) as error:
        raise RuntimeError(f"an object file is damaged ({error!r:.80})") from error
    memory.protect(0, memory.nbytes, READ | EXECUTE)
    for each, places in zip(read, starts, strict=True):
        for number, section in each.sections.items():
            if section.name == UNWIND:
                memory.add_frames(places[number])
    return LoadedCode(memory, exports)


@cache
def is_supported() -> bool:
    """Return whether objects for this system are linked here."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return sys.platform == "linux" and is_x86 and ctypes.sizeof(ctypes.c_void_p) == 8


def _is_linked_here(read: Object) -> bool:
    return read.machine == _X86_64 and all(each.kind in (_ADDRESS, _DISTANCE) for each in read.relocations)


def _starts(read: Sequence[Object]) -> tuple[list[dict[int, int]], int]:
    """Return where each section begins, by its number in its object, and the bytes of all."""
    end, starts = 0, []
    for each in read:
        places = {}
        for number, section in each.sections.items():
            alignment = max(_ALIGNMENT, section.alignment)
            places[number] = -(-end // alignment) * alignment
            end = places[number] + len(section.data)
            end += 8 if section.name == UNWIND else 0  # zeros end it
        starts.append(places)
    return starts, max(end, 1)


def _memory(nbytes: int) -> CodeMemory:
    try:
        return CodeMemory(nbytes)
    except OSError as error:
        raise OutOfMemoryError("cpu: no memory is left for code", Fact("needed", f"{nbytes} bytes")) from error


def _exports(read: Sequence[Object], starts: Sequence[Mapping[int, int]], start: int) -> dict[str, int]:
    exports: dict[str, int] = {}
    for each, places in zip(read, starts, strict=True):
        for symbol in each.symbols:
            if not symbol.is_shared or symbol.section is None:
                continue
            if symbol.name in exports and not symbol.may_repeat:
                raise ValueError(f"two functions are called {symbol.name}")
            exports.setdefault(symbol.name, start + places[symbol.section] + symbol.value)
    return exports


def _fill(
    memory: CodeMemory, read: Object, places: Mapping[int, int], relocation: Relocation, exports: Mapping[str, int]
) -> None:
    """Write the address of a symbol, or its distance."""
    symbol = read.symbols[relocation.symbol]
    if symbol.section is not None:
        target = memory.start + places[symbol.section] + symbol.value
    else:
        target = exports.get(symbol.name) or symbols.get(symbol.name) or of_the_c_library().get(symbol.name) or 0
        if not target:
            raise ValueError(f"it calls {symbol.name}, which is unknown")
    position = places[relocation.section] + relocation.offset
    value = target + relocation.addend - (memory.start + position if relocation.kind == _DISTANCE else 0)
    struct.pack_into("<Q", memory.bytes, position, value & (1 << 64) - 1)
