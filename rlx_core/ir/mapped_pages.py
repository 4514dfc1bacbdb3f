"""Pages of mapped files that were read once and are not needed any more."""

from __future__ import annotations

import mmap

import numpy as np

from rlx_core.ir.apply import byte_bounds


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
