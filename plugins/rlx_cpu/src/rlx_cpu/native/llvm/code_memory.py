"""Memory for machine code: written first, executable after that, never both at once."""

from __future__ import annotations

import atexit
import ctypes
import mmap
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from rlx_core.errors import KernelBuildError

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
