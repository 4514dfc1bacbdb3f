"""A heap for the memory of all programs in as few WebGPU buffers as possible, because a launch may bind a buffer only once.

Heap addresses start at 0. The heap is divided into segments; each segment is one buffer of at most the size of a binding. All
segments have the same size except the last, which grows by a copy into a larger buffer; the addresses of its contents do not
change. A launch binds the segments of its operands, in most programs one. No buffer is destroyed explicitly: a buffer is freed
after the last command that refers to it, so that no submitted command refers to a destroyed buffer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import NamedTuple

import wgpu
from attrs import frozen

from rlx_core.errors import Fact, OutOfMemoryError

_FIRST = 4 << 20
"""The initial size of the first segment in bytes; it grows by doubling."""

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@frozen(eq=False)
class Room:
    """An allocation of a driver: a range of the heap, or a separate buffer.

    Attributes:
        start: The heap address of the first byte.
        nbytes: The size in bytes, a multiple of 4.
        dedicated: The separate buffer of an allocation outside of the heap.
    """

    start: int
    nbytes: int
    dedicated: wgpu.GPUBuffer | None = None


class Piece(NamedTuple):
    """The part of a byte range that is in one buffer; `before` counts the bytes of the range that precede it."""

    buffer: wgpu.GPUBuffer
    start: int
    nbytes: int
    before: int


class Heap:
    """A first-fit allocator over segments.

    Args:
        device: The device of the buffers.
        segment: The size of a segment in bytes, a power of two.
        max_segments: The maximum number of segments.
        place: The device's name, for errors.
    """

    def __init__(self, device: wgpu.GPUDevice, segment: int, max_segments: int, place: str) -> None:
        self._device, self._max_segments, self._place = device, max_segments, place
        self.segment = segment
        self.nbytes = min(_FIRST, segment)
        self.buffers = [device.create_buffer(size=self.nbytes, usage=USAGE)]
        self._gaps = [(0, self.nbytes)]  # free ranges, sorted by address; adjacent ranges are merged

    def take(self, nbytes: int) -> Room:
        """Allocate bytes, a multiple of the alignment: in the first gap that is large enough, within one segment if possible.

        Raises:
            OutOfMemoryError: No gap is large enough, and the heap has reached its limit.
        """
        for number, (start, size) in enumerate(self._gaps):
            first = self._fitting(start, nbytes)
            if first + nbytes <= start + size:
                left = [(start, first - start), (first + nbytes, start + size - first - nbytes)]
                self._gaps[number : number + 1] = [gap for gap in left if gap[1]]
                return Room(first, nbytes)
        self._grow(nbytes)
        return self.take(nbytes)

    def give_back(self, allocation: Room) -> None:
        """Free an allocation, and merge adjacent gaps."""
        insort(self._gaps, (allocation.start, allocation.nbytes))
        merged: list[tuple[int, int]] = []
        for start, size in self._gaps:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self._gaps = merged

    def segments_of(self, allocation: Room) -> range:
        """Return the numbers of the segments that contain an allocation."""
        return range(allocation.start // self.segment, (allocation.start + allocation.nbytes - 1) // self.segment + 1)

    def pieces(self, start: int, nbytes: int) -> Iterator[Piece]:
        """Yield the parts of a byte range of the heap in each of its buffers, in order."""
        done = 0
        while done < nbytes:
            number, offset = divmod(start + done, self.segment)
            size = min(nbytes - done, self.segment - offset)
            yield Piece(self.buffers[number], offset, size, done)
            done += size

    def _fitting(self, start: int, nbytes: int) -> int:
        """Return the address for an allocation at or after `start`: the next segment, if the rest of this one is too small."""
        left = -start % self.segment
        return start if nbytes <= left or left == 0 else start + left

    def _grow(self, nbytes: int) -> None:
        end = self._gaps[-1] if self._gaps else (self.nbytes, 0)
        tail = end[0] if sum(end) == self.nbytes else self.nbytes
        needed, limit = self._fitting(tail, nbytes) + nbytes, self.segment * self._max_segments
        if needed > limit:
            raise OutOfMemoryError(
                f"{self._place}: the memory of its programs would be {needed} bytes",
                Fact(
                    "limit",
                    f"{limit} bytes: {self._max_segments} of {self.segment} that one binding of a WebGPU buffer holds there",
                ),
            )
        before = self.nbytes
        self._resize(max(needed, min(2 * before, self.segment)))
        self.give_back(Room(before, self.nbytes - before))

    def _resize(self, nbytes: int) -> None:
        """Resize the heap to `nbytes`: enlarge the last segment, and append further segments."""
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
