"""The bytes of a file where they lie: mapped, so that arrays in it take no memory of the process's own."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

__all__ = ["mapped", "mapped_file"]


def mapped(path: Path) -> np.ndarray:
    """The bytes of a file, read-only. It must not be shortened or changed while they are in use; replacing it is safe.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return mapped_file(file)


def mapped_file(file: BinaryIO) -> np.ndarray:
    """The same of a file that is open."""
    try:
        if os.fstat(file.fileno()).st_size:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except ValueError:  # it became empty in between
        pass
    return np.frombuffer(b"", np.uint8)  # nothing cannot be mapped
