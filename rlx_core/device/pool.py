"""The memory of one device, shared by all programs on it: a caching allocator that keeps freed blocks for reuse.

A driver's own allocation costs more than most kernels, and a program allocates the same sizes in every run. Because all work on
a device happens in one order, a block can be reused while the device still works on its previous content.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from attrs import Factory, field

from rlx_core.device.driver import Driver
from rlx_core.device.turns import Turns
from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.ir.array import donated_error
from rlx_core.ir.types import TensorType
from rlx_core.system.locks import Lock
from rlx_core.system.records import define

_STEPS = 8
"""Number of block sizes from one power of two to the next, so that at most an eighth of a block is unused."""


def capacity_for(nbytes: int, alignment: int) -> int:
    """The size of the blocks that hold `nbytes`.

    >>> capacity_for(1, 256), capacity_for(1000, 256), capacity_for(1 << 20, 256), capacity_for((1 << 20) + 1, 256)
    (256, 1024, 1048576, 1179648)
    """
    power = max(nbytes - 1, 1).bit_length()
    step = max(alignment, (1 << power) // (2 * _STEPS))
    return -(-max(nbytes, 1) // step) * step


@define(eq=False)
class Block:
    """Bytes on a device, returned to the pool when the last reference to the block is dropped.

    Attributes:
        buffer: The driver's own.
        capacity: Bytes that it has.
        pool: Where it goes back to; `None` for memory that another library owns.
        is_apart: Whether kernels get it as `Whole`.
    """

    buffer: Any
    capacity: int
    pool: Pool | None = None
    is_apart: bool = False

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.take_back(self)


class DonatedBlock:
    """Replaces the memory of a donated array: any access to it raises the error."""

    def __init__(self, to: str, type: TensorType) -> None:
        self._donation = to, type

    def __getattr__(self, name: str) -> NoReturn:
        raise donated_error(*self._donation)


class Holder(Protocol):
    """An object that keeps blocks for later use."""

    def trim(self) -> None:
        """Free the blocks that no run uses."""


@define(eq=False)
class Pool:
    """The blocks of one device. Lists are only appended to and popped from, which needs no lock in any thread.

    Attributes:
        place: The device, for errors.
        driver: Whose memory it is.
        reserved: Bytes in all blocks, including free blocks kept for reuse.
        poison: A byte with which blocks are filled when they are allocated, to detect reads of uninitialised memory.
        turns: When runs on the device have to wait for one another.
    """

    place: str
    driver: Driver
    reserved: int = 0
    poison: int | None = None
    turns: Turns = field(init=False, default=Factory(lambda self: Turns(self.place), takes_self=True))
    _free: dict[tuple[int, bool], list[Any]] = field(factory=lambda: defaultdict(list))
    # Buffers by identity. The collector finalises all objects of a cycle, a library's buffer too if only a block there has it,
    # before the block can give it back: it must never be reachable from blocks alone.
    _every: dict[int, Any] = field(factory=dict)
    _holders: WeakSet[Holder] = field(factory=WeakSet)
    _lock: Lock = field(init=False, default=Factory(lambda self: Lock(f"the blocks of {self.place}"), takes_self=True))
    _pid: int = field(factory=os.getpid)

    @property
    def cached(self) -> int:
        """Bytes in free blocks."""
        return sum(capacity * len(buffers) for (capacity, _), buffers in list(self._free.items()))

    def held_by(self, holder: Holder) -> None:
        """Register an object whose unused blocks `trim_holders` frees."""
        with self._lock:
            self._holders.add(holder)

    @property
    def used(self) -> int:
        """Bytes in blocks that are in use."""
        return self.reserved - self.cached

    def block(self, nbytes: int, what: str, *, is_apart: bool = False) -> Block:
        """A block of at least `nbytes`.

        Args:
            what: Purpose of the block, for errors.
            is_apart: Whether kernels get it as `Whole`.

        Raises:
            OutOfMemoryError: The device has not enough memory for it, even after freeing unused blocks of the pool and of
                holders; or the size exceeds the largest buffer.
        """
        facts = self.driver.facts
        capacity = capacity_for(nbytes, facts.alignment)
        if nbytes > facts.largest_buffer:
            raise OutOfMemoryError(
                f"{self.place}: {what} of {nbytes} bytes, and a buffer there has at most {facts.largest_buffer}",
                hint="bind smaller sizes",
            )
        capacity = min(capacity, facts.largest_buffer)
        try:
            buffer = self._free[capacity, is_apart].pop()
        except IndexError:
            buffer = self._allocate(capacity, nbytes, what, is_apart)
        if self.poison is not None:
            self.driver.fill(buffer, 0, capacity, self.poison)
        return Block(buffer, capacity, self, is_apart)

    def _allocate(self, capacity: int, nbytes: int, what: str, is_apart: bool) -> Any:
        allocate = self.driver.allocate_apart if is_apart else self.driver.allocate
        with self._lock:
            for make_room in (self.trim, self.trim_holders, None):
                try:
                    buffer = allocate(capacity)
                    self.reserved += capacity
                    self._every[id(buffer)] = buffer
                    return buffer
                except OutOfMemoryError as error:
                    cause = error.message
                if make_room is not None:
                    make_room()
        raise OutOfMemoryError(
            f"{self.place}: {what} of {nbytes} bytes cannot be allocated",
            Fact("in use", f"{self.used} bytes by arrays and programs of this process"),
            Fact("device", f"{self.driver.facts.memory_nbytes} bytes in all"),
            Fact("cause", cause),
            hint="let go of arrays and programs that are not needed, or bind smaller sizes",
        )

    def take_back(self, block: Block) -> None:
        """Put the memory of an unreferenced block back into the pool; in a forked child the memory stays the parent's."""
        if self._pid == os.getpid():
            self._free[block.capacity, block.is_apart].append(block.buffer)

    def trim(self) -> None:
        """Free the unused blocks of the pool."""
        with self._lock:
            for (capacity, _), buffers in list(self._free.items()):
                while buffers:
                    try:
                        buffer = buffers.pop()
                    except IndexError:  # another thread was given it
                        break
                    del self._every[id(buffer)]
                    self.driver.free(buffer)
                    self.reserved -= capacity

    def trim_holders(self) -> None:
        """Free the unused blocks of the holders and of the pool."""
        with self._lock:
            for holder in list(self._holders):
                holder.trim()
            self.trim()
