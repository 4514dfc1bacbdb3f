"""Object files in this process without LLVM: a program whose code is all cached does not load LLVM's library.

Objects are those of `optimise.generate` for this machine, in which addresses are words of 64 bits. On other systems than Linux on
x86-64 LLVM links them.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from rlx_core.errors import Fact, KernelBuildError, OutOfMemoryError
from rlx_cpu.native.llvm.c_library import known_symbols
from rlx_cpu.native.llvm.elf import UNWIND, Object, Relocation, exported, read_object

_X86_64: Final = 62
_ADDRESS, _DISTANCE = 1, 24
"""R_X86_64_64 and R_X86_64_PC64."""
_ALIGNMENT: Final = 64
"""Bytes of a cache line: two functions in one line would be fetched together."""


READ, EXECUTE = 1, 4

_mappings: Final[dict[object, mmap.mmap]] = {}
"""The memory of every `CodeMemory`, by a key that this one has."""


class CodeMemory:
    """Memory that is unmapped with this object, except at the end of the process, when threads may still run code in it.

    Attributes:
        nbytes: Its bytes.
        start: Its address, a multiple of a page.

    Raises:
        OSError: There is not that much memory.
    """

    def __init__(self, nbytes: int) -> None:
        self._key = object()
        self._frames: list[int] = []
        self._is_registering = False
        self.nbytes = nbytes
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _mappings[self._key] = memory
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    @property
    def bytes(self) -> mmap.mmap:
        """The memory, to be written before it is protected."""
        return _mappings[self._key]

    def protect(self, offset: int, nbytes: int, rights: int) -> None:
        """Set the rights of pages.

        Raises:
            KernelBuildError: The system does not let memory be executed.
        """
        # If the instruction cache is separate (AArch64), Linux synchronises it with data when pages become executable.
        if nbytes and _mprotect()(self.start + offset, nbytes, rights):
            reason = ctypes.get_errno()
            raise KernelBuildError(
                f"cpu: the system does not let memory be executed (errno {reason})",
                hint="a policy such as SELinux's execmem forbids it; compiling is forbidden by it as well",
            )

    def add_frames(self, offset: int) -> None:
        """Let stacks be unwound through the code, as threads do that end inside of it, by the `.eh_frame` at an offset."""
        functions = _frame_functions()
        if functions is not None:
            self._is_registering = True  # where a signal's handler raises meanwhile, the memory stays
            functions[0](self.start + offset)
            self._frames.append(self.start + offset)
            self._is_registering = False

    def __del__(  # a default, because globals go first at the end
        self, mappings: dict[object, mmap.mmap] = _mappings
    ) -> None:
        if self._key not in mappings or self._is_registering or sys is None or sys.is_finalizing():
            return
        # Not by an object that refers to this one: of a cycle the collector finalises objects in any order.
        for address in self._frames:
            functions = _frame_functions()
            assert functions is not None, "they have added it"
            functions[1](address)
        del mappings[self._key]


@atexit.register
def _keep(mappings: Mapping[object, mmap.mmap] = _mappings) -> None:
    """At the end of the process: leave all code where it is."""
    for memory in list(mappings.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


@cache
def _frame_functions() -> tuple[Callable[[int], None], Callable[[int], None]] | None:
    """Return libgcc's functions that add and remove a section by which stacks are unwound; `None` if it is not there."""
    try:
        library = ctypes.CDLL("libgcc_s.so.1")
        functions = library.__register_frame, library.__deregister_frame
    except (OSError, AttributeError):
        return None
    for each in functions:
        each.argtypes, each.restype = (ctypes.c_void_p,), None
    return functions


@cache
def _mprotect() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


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
        exports = {name: memory.start + offset for name, offset in exported(read, starts).items()}
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


def _fill(
    memory: CodeMemory, read: Object, places: Mapping[int, int], relocation: Relocation, exports: Mapping[str, int]
) -> None:
    """Write the address of a symbol, or its distance."""
    symbol = read.symbols[relocation.symbol]
    if symbol.section is not None:
        target = memory.start + places[symbol.section] + symbol.value
    else:
        target = exports.get(symbol.name) or known_symbols().get(symbol.name) or 0
        if not target:
            raise ValueError(f"it calls {symbol.name}, which is unknown")
    position = places[relocation.section] + relocation.offset
    value = target + relocation.addend - (memory.start + position if relocation.kind == _DISTANCE else 0)
    struct.pack_into("<Q", memory.bytes, position, value & (1 << 64) - 1)
