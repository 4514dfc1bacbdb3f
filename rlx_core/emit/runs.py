"""One run of a program on a device: what it has before its first step, and what its errors say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rlx_core.codegen.places import Fault
from rlx_core.device.pool import Block
from rlx_core.emit.delivery import Rooms
from rlx_core.emit.frames import Frame
from rlx_core.emit.parameters import Params
from rlx_core.ir.lir import Step
from rlx_core.pipeline.select.backend import Outputs, at_step

__all__ = ["Started", "StepFault"]


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
