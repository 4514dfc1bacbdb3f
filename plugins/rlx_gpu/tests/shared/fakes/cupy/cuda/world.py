"""What the fake device is, what was asked of it, and how it is made to fail."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

lock = threading.RLock()
records: list[tuple[str, Any]] = []
is_hip = False
raises = False
"""Whether factorizations wait and say that they failed."""
devices = 2
driver_version = 13000
limit = 1 << 30
"""Bytes that the device has."""
lost: int | None = None
"""CUDA's number of the error that every call raises."""
blocks: dict[int, np.ndarray] = {}
"""Memory by its address: the device's, live or waiting in CuPy's pool."""


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaError {status}")


class CUDADriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"CUDA_ERROR {status}")


def expect_alive() -> None:
    if lost is not None:
        raise CUDARuntimeError(lost)


def at(address: int, nbytes: int) -> np.ndarray:
    """The memory from an address on."""
    for start, block in blocks.items():
        if start <= address and address + nbytes <= start + block.nbytes:
            return block[address - start :]
    raise AssertionError(f"{nbytes} bytes at {address:#x} are no memory of the device")


def host(address: int, nbytes: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
