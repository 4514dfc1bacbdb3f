"""One run of a program on a device: what it has before its first step, and what its errors say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx_core.codegen.places import Fault
from rlx_core.device.pool import Block
from rlx_core.device.turns import Turns
from rlx_core.emit.delivery import Rooms
from rlx_core.emit.frames import Frame
from rlx_core.emit.parameters import Params
from rlx_core.errors import OutOfMemoryError
from rlx_core.ir.lir import Step
from rlx_core.pipeline.select.backend import Outputs, at_step
from rlx_core.system.records import frozen

__all__ = ["Started", "StepFault", "in_turn"]

T = TypeVar("T")
R = TypeVar("R")


def in_turn(turns: Turns, begin: Callable[[], T], finish: Callable[[T], R]) -> R:
    """A run that has all its memory before its first step; where that is short, once more while no other thread has a run.

    Raises:
        OutOfMemoryError: It is short even then. What `finish` raises is not caught.
    """
    for turn in (turns.among_others, turns.alone):
        with turn():
            try:
                started = begin()
            except OutOfMemoryError as error:
                lack = error.with_traceback(None)  # it, or a context's, would keep the memory of this run
                lack.__context__ = None
                continue
            return finish(started)
    raise lack


@frozen(eq=False)
class Started:
    """A run that has all its memory.

    Attributes:
        inputs: As given; a donated one that shares memory with another is a copy.
        crossed: The bytes of those that were copied to the device.
        words: Where the words for faults are copied to, if somebody looks at them later.
    """

    frame: Frame
    inputs: Sequence[Any]
    outputs: Outputs
    params: Params
    crossed: int
    rooms: Rooms
    words: Block | None


@frozen(eq=False)
class StepFault:
    """The error of a step for the index that its kernel reported, and the place."""

    fault: Fault
    step: Step

    def __call__(self, index: int | None, place: int) -> Exception:
        return at_step(self.fault(index, place), self.step)
