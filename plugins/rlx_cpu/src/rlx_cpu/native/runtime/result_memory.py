"""Memory of large results: aligned to cache lines, and in pages that an earlier result used.

NumPy starts arrays 16 bytes into a line, so every vector of a kernel that is as wide as a line spans two lines: a transposition
takes 1.6 times as long. And blocks of more than 32 MiB are returned to the system when they are freed, which clears every page
at its first access: adding a number to 64 MiB takes 1.6 times as long. So large results come from a custom allocator
(`result_memory_code`), through NumPy's interface for allocators (NEP 49). They own their memory like any other array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import numpy as np

from rlx_cpu.native.contract import ALIGNMENT
from rlx_cpu.native.runtime import interpreter
from rlx_cpu.native.runtime.code import RESULT_MEMORY
from rlx_cpu.native.runtime.linked import code_of
from rlx_cpu.native.runtime.result_memory_words import CACHED_NBYTES, WORDS

MIN_ALLOCATOR_NBYTES: Final = 1 << 16
"""Bytes from which a result is worth an allocator's call."""

_NAME: Final = b"mem_handler"
"""The name of NumPy's capsules for allocators."""

_state: Final = np.zeros(WORDS, np.int64)


class _Allocator(ctypes.Structure):
    """NumPy's `PyDataMem_Handler`."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("state", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("new", "new_zeroed", "resized", "freed")),
    )


def allocator_for(nbytes: int) -> int:
    """The allocator of a result of `nbytes`, as the address of its capsule; 0 for NumPy's own."""
    capsule = allocator() if nbytes >= MIN_ALLOCATOR_NBYTES else None
    return 0 if capsule is None else id(capsule)


@cache
def allocator() -> Any | None:
    """Our allocator as NumPy takes it; `None` if this NumPy does not take it as is known.

    It lives as long as the process: arrays that the interpreter drops last are freed by it.
    """
    code = code_of(RESULT_MEMORY)
    functions = [code.address(name) for name in ("new", "new_zeroed", "resized", "freed")]
    record = _Allocator(b"rlx", 1, _state.ctypes.data, *functions)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    capsule = new(ctypes.addressof(record), _NAME, None)
    for item in (code, _state, record, capsule):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))
    return capsule if is_taken(capsule) else None


def held_nbytes() -> int:
    """Bytes of blocks that were freed and are kept for results to come."""
    return int(_state[CACHED_NBYTES])


@contextmanager
def allocating(capsule: Any) -> Iterator[None]:
    """NumPy's arrays that are made inside get their memory from an allocator."""
    swap = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(interpreter.addresses()[interpreter.SET_ALLOCATOR])
    before = swap(capsule)
    try:
        yield
    finally:
        swap(before)


def is_taken(capsule: Any) -> bool:
    """Return whether arrays that are made under an allocator get their memory from it."""
    with allocating(capsule):
        array = np.empty(MIN_ALLOCATOR_NBYTES, np.uint8)
    return array.ctypes.data % ALIGNMENT == 0 and handler_name(array) == "rlx"


def handler_name(array: np.ndarray) -> str | None:
    """The name of the allocator that an array's memory is from."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    name: str | None = _multiarray_umath.get_handler_name(array)
    return name
