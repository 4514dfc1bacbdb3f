"""The memory of one device, shared by all programs on it: blocks that are given back are kept and given out again.

A driver's own allocation costs more than most kernels, and a program asks for the same sizes in every run. Because all work on
a device happens in one order, a block can be given out while the device still works on what was in it.
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

__all__ = ["Block", "DonatedBlock", "Holder", "Pool", "capacity_for"]

_STEPS = 8
"""Sizes between one power of two and the next; so at most an eighth of a block is unused."""


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
    """Bytes on a device; they go back to the pool when nobody has the block any more.

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
    """In the place of the memory of an array that was donated: whoever asks for anything of it gets the error."""

    def __init__(self, to: str, type: TensorType) -> None:
        self._donation = to, type

    def __getattr__(self, name: str) -> NoReturn:
        raise donated_error(*self._donation)


class Holder(Protocol):
    """Whoever keeps blocks for later."""

    def trim(self) -> None:
        """Free the blocks that no run uses."""


@define(eq=False)
class Pool:
    """The blocks of one device. Lists are only appended to and popped from, which needs no lock in any thread.

    Attributes:
        place: The device, for errors.
        driver: Whose memory it is.
        held: Bytes in blocks, those included that wait to be given out again.
        poison: A byte that blocks are filled with when they are given out, to find whoever reads what was never written.
        turns: When runs on the device have to wait for one another.
    """

    place: str
    driver: Driver
    held: int = 0
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
        """Bytes that wait to be given out again."""
        return sum(capacity * len(buffers) for (capacity, _), buffers in list(self._free.items()))

    def held_by(self, holder: Holder) -> None:
        """Remember who may have blocks that it can do without."""
        with self._lock:
            self._holders.add(holder)

    @property
    def used(self) -> int:
        """Bytes in blocks that somebody has."""
        return self.held - self.cached

    def block(self, nbytes: int, what: str, *, is_apart: bool = False) -> Block:
        """A block of at least `nbytes`.

        Args:
            what: What it is for, as errors say it.
            is_apart: Whether kernels get it as `Whole`.

        Raises:
            OutOfMemoryError: The device has no room for it, even without the blocks that wait and those that holders can do
                without; or its buffers are smaller.
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
                    self.held += capacity
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
        """A block that nobody has any more; in a forked child it stays its parent's."""
        if self._pid == os.getpid():
            self._free[block.capacity, block.is_apart].append(block.buffer)

    def trim(self) -> None:
        """Give what waits back to the driver."""
        with self._lock:
            for (capacity, _), buffers in list(self._free.items()):
                while buffers:
                    try:
                        buffer = buffers.pop()
                    except IndexError:  # another thread was given it
                        break
                    del self._every[id(buffer)]
                    self.driver.free(buffer)
                    self.held -= capacity

    def trim_holders(self) -> None:
        """Free what holders do not need, too."""
        with self._lock:
            for holder in list(self._holders):
                holder.trim()
            self.trim()
