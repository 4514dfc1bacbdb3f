"""Pages of memory that are not needed any more: of mapped files that were read once, and of arrays that can be computed again."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import numpy as np

from rlx_core.ir.apply import byte_bounds


def owner_of(array: np.ndarray) -> object:
    """Return the array or other object that owns the memory of an array."""
    owner: object = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def free_owned_pages(array: np.ndarray) -> bool:
    """Free the pages of an array's memory, whose address stays reserved; return whether this system can.

    Its elements are zeros or what they were, until they are written again.

    Args:
        array: A dense array whose memory NumPy has allocated.
    """
    advise = _madvise()
    if advise is None:
        return False
    low, high = byte_bounds(array)
    first, end = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE, high // mmap.PAGESIZE * mmap.PAGESIZE
    return first >= end or not advise(first, end - first, mmap.MADV_DONTNEED)


@cache
def _madvise() -> Any:
    """Return the C library's function; `None` on systems other than Linux, where `MADV_DONTNEED` may keep pages."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return function


def trim_heap() -> None:
    """Return free pages of the C library's heap to the system: after large arrays, glibc keeps up to 64 MiB of them."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """Return the C library's function; `None` where it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def free_mapped_pages(array: np.ndarray) -> None:
    """Remove the pages of an array from the memory of the process, if it is a read-only view of a mapped file.

    Its elements remain readable: the operating system reads a page again where it is accessed, from its cache or from the file.
    Pages that the array shares with its neighbours in the file are kept.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    mapped = owner.obj if isinstance(owner, memoryview) else owner
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or not memoryview(mapped).readonly:
        return
    start, _ = byte_bounds(np.frombuffer(mapped, np.uint8))
    low, high = (bound - start for bound in byte_bounds(array))
    first, end = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE, high // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        mapped.madvise(mmap.MADV_DONTNEED, first, end - first)
