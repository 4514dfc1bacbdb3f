"""Poison: memory that no step may read is full of NaN, so that a kernel that reads it is found.

The arena is filled with ones (NaN in every float, -1 in integers) before a run, and the bytes of a value again as soon as nobody
reads it any more; blocks of the pool come filled. Steps are then submitted one by one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from rlx_core.device.device import Device
from rlx_core.emit.frames import Frame
from rlx_core.emit.places import ARENA
from rlx_core.ir.lir import Lir, Slot
from rlx_core.pipeline.planning.memory import live_ranges

__all__ = ["POISON", "Poison"]

POISON: Final = 0xFF
"""The byte that is in memory nobody may read: all ones is NaN in f16, bf16, f32 and f64."""


class Poison:
    """What is filled when, in the runs of one program."""

    def __init__(self, lir: Lir, device: Device) -> None:
        self._device, self._nbytes = device, lir.arena_nbytes
        device.pool.poison = POISON
        self._freed: dict[int, list[Slot]] = defaultdict(list)
        for each in live_ranges(lir):
            slot = lir.slots[each.values[0]] if each.step is None else lir.steps[each.step].workspace
            assert slot is not None, "a workspace has a slot"
            self._freed[each.death].append(slot)

    def begin(self, frame: Frame) -> None:
        """Before a run."""
        if self._nbytes:
            at = frame.bound[ARENA]
            self._device.driver.fill(at.buffer, at.offset, self._nbytes, POISON)

    def after(self, number: int, frame: Frame) -> None:
        """After a step."""
        for slot in self._freed.get(number, ()):
            at = frame.bound[ARENA]
            self._device.driver.fill(at.buffer, at.offset + slot.offset, slot.nbytes, POISON)
