"""CuPy's pool: blocks come back when nobody has a pointer any more, to the stream that was current when they were given out."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from cupy.cuda import Device, current, get_current_stream, world

ALIGNMENT = 512

free: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = defaultdict(list)
held = 0


class OutOfMemoryError(MemoryError):
    pass


class PooledMemory:
    def __init__(self, nbytes: int) -> None:
        self.device_id, self.size = current.device, -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.stream = get_current_stream().ptr
        waiting = free[self.stream, self.size]
        self.ptr, self.block = waiting.pop() if waiting else self._allocated()

    def _allocated(self) -> tuple[int, np.ndarray]:
        global held
        if held + self.size > world.limit:
            raise OutOfMemoryError(f"Out of memory allocating {self.size:,} bytes")
        held += self.size
        whole = np.full(self.size + ALIGNMENT, 0xFF, np.uint8)
        start = -whole.ctypes.data % ALIGNMENT
        address = whole.ctypes.data + start
        world.blocks[address] = whole[start : start + self.size]
        world.records.append(("allocate", self.size))
        return address, world.blocks[address]

    def __del__(self) -> None:
        if "block" in self.__dict__:
            free[self.stream, self.size].append((self.ptr, self.block))


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = current.device if device_id == -1 else device_id


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.offset, self.ptr, self.device_id = mem, offset, mem.ptr + offset, mem.device_id

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class PinnedMemoryPointer:
    def __init__(self, nbytes: int) -> None:
        self.block = np.zeros(max(nbytes, 1), np.uint8)
        self.ptr = self.block.ctypes.data

    def __del__(self) -> None:
        self.block[:] = 0xEE  # whoever still reads it finds that


def alloc(size: int) -> MemoryPointer:
    world.expect_alive()
    return MemoryPointer(PooledMemory(size), 0)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    return PinnedMemoryPointer(size)
