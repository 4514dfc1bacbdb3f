"""The memory of all programs in as few WebGPU buffers as it fits in, because a launch may bind a buffer only once.

The heap counts its bytes from 0 and is cut into segments, of which each is a buffer that one binding holds. All segments are of
one size but the last, which grows by being copied into a larger one; what lies in it keeps its place. A launch is given the
segments that its operands lie in, and in most programs that is one. Nothing is ever destroyed by hand: a buffer goes when the
last command that names it has run, so that no command is submitted that names one that is gone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple

import wgpu
from attrs import frozen

from rlx_core.errors import Fact, OutOfMemoryError

__all__ = ["Heap", "Piece", "Room"]

_FIRST = 4 << 20
"""Bytes that the first segment starts with; it doubles from there."""

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@frozen(eq=False)
class Room:
    """Memory of a driver: bytes of the heap, or a buffer of its own.

    Attributes:
        start: The first byte in the heap.
        nbytes: How many there are, a multiple of 4.
        own: The buffer, for what is not in the heap.
    """

    start: int
    nbytes: int
    own: wgpu.GPUBuffer | None = None


class Piece(NamedTuple):
    """Bytes that lie in one buffer, and how many of those asked for come before them."""

    buffer: wgpu.GPUBuffer
    start: int
    nbytes: int
    before: int


class Heap:
    """Bytes in segments, taken and given back.

    Args:
        device: Whose.
        segment: Bytes of a segment, a power of two.
        most: How many segments there may be.
        place: The device's name, for errors.
    """

    def __init__(self, device: wgpu.GPUDevice, segment: int, most: int, place: str) -> None:
        self._device, self._most, self._place = device, most, place
        self.segment = segment
        self.nbytes = min(_FIRST, segment)
        self.buffers = [device.create_buffer(size=self.nbytes, usage=USAGE)]
        self._gaps = [(0, self.nbytes)]  # by where they begin; no two touch

    def take(self, nbytes: int) -> Room:
        """Room for some bytes, a multiple of the alignment: in the first gap that is large enough, in one segment if it can be.

        Raises:
            OutOfMemoryError: There is no such gap, and the heap may not grow.
        """
        for number, (start, size) in enumerate(self._gaps):
            first = self._fitting(start, nbytes)
            if first + nbytes <= start + size:
                left = [(start, first - start), (first + nbytes, start + size - first - nbytes)]
                self._gaps[number : number + 1] = [gap for gap in left if gap[1]]
                return Room(first, nbytes)
        self._grow(nbytes)
        return self.take(nbytes)

    def give_back(self, room: Room) -> None:
        """Room that nobody has any more."""
        insort(self._gaps, (room.start, room.nbytes))
        merged: list[tuple[int, int]] = []
        for start, size in self._gaps:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self._gaps = merged

    def segments_of(self, room: Room) -> range:
        """The numbers of the segments in which room lies."""
        return range(room.start // self.segment, (room.start + room.nbytes - 1) // self.segment + 1)

    def pieces(self, start: int, nbytes: int) -> Iterator[Piece]:
        """Bytes of the heap as parts of its buffers, in order."""
        done = 0
        while done < nbytes:
            number, offset = divmod(start + done, self.segment)
            size = min(nbytes - done, self.segment - offset)
            yield Piece(self.buffers[number], offset, size, done)
            done += size

    def _fitting(self, start: int, nbytes: int) -> int:
        """Where bytes begin that come after `start`: in the next segment, where the rest of this one does not hold them."""
        left = -start % self.segment
        return start if nbytes <= left or left == 0 else start + left

    def _grow(self, nbytes: int) -> None:
        end = self._gaps[-1] if self._gaps else (self.nbytes, 0)
        tail = end[0] if sum(end) == self.nbytes else self.nbytes
        needed, most = self._fitting(tail, nbytes) + nbytes, self.segment * self._most
        if needed > most:
            raise OutOfMemoryError(
                f"{self._place}: the memory of its programs would be {needed} bytes",
                Fact(
                    "limit",
                    f"{most} bytes: {self._most} of {self.segment} that one binding of a WebGPU buffer holds there",
                ),
            )
        before = self.nbytes
        self._resize(max(needed, min(2 * before, self.segment)))
        self.give_back(Room(before, self.nbytes - before))

    def _resize(self, nbytes: int) -> None:
        """Have so many bytes: the last segment grows, and others follow it."""
        last = len(self.buffers) - 1
        sizes = [min(self.segment, nbytes - first) for first in range(0, nbytes, self.segment)]
        if self.buffers[last].size < sizes[last]:
            grown = self._device.create_buffer(size=sizes[last], usage=USAGE)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(self.buffers[last], 0, grown, 0, self.buffers[last].size)
            self._device.queue.submit([encoder.finish()])
            self.buffers[last] = grown
        self.buffers += [self._device.create_buffer(size=size, usage=USAGE) for size in sizes[last + 1 :]]
        self.nbytes = nbytes
