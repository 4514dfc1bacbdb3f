"""Poison mode: memory that no step may access is full of NaN, and checked after every step.

The arena is planned with gaps between slots and filled with ones (NaN in every float, -1 in integers) before a run; slots are
filled again as soon as nothing reads them any more. Programs run step by step. After each step every byte of the arena, of
scratch memory and around results that the step had no right to write must be as it was. So a kernel that writes outside of its
result is detected at once, and one that reads freed memory, or memory that was never written, delivers NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from rlx_core.device.driver import At
from rlx_core.errors import Fact, RlxError
from rlx_core.ir.dtypes import u8
from rlx_core.ir.lir import Lir, Slot, Step
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.planning.memory import STRATEGIES, LiveRange, live_ranges, with_offsets
from rlx_core.run.memory import CANARY, POISON
from rlx_core.run.plan import ARENA
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.run.frames import Frame


class PoisonError(RlxError, RuntimeError):
    """A kernel wrote outside of its memory, or a plan gave bytes to two values; detected by poison mode.

    The message names the step; the facts say which bytes changed and which slot lies next to them. The fault is in the kernel or
    in the plan, not in the program that ran.
    """


@frozen(eq=False)
class Occupied:
    """Bytes of the arena in use from step `birth` to step `death`."""

    slot: Slot
    birth: int
    death: int
    label: str


def with_gaps(lir: Lir) -> Lir:
    """The plan with gaps of at least `CANARY` bytes between all slots of the arena."""
    ranges = live_ranges(lir)
    gap = max(CANARY, lir.alignment)
    padded = [evolve(r, nbytes=r.nbytes + gap) for r in ranges]
    offsets = STRATEGIES["best"](padded, lir.alignment)
    slots = (Slot(offset + gap, r.nbytes) for offset, r in zip(offsets, ranges, strict=True))
    planned = with_offsets(lir, dict(zip(ranges, slots, strict=True)), lir.alignment)
    return evolve(planned, arena_nbytes=planned.arena_nbytes + gap)


class Guard:
    """What must not change, step by step, in the runs of a program planned by `with_gaps`."""

    def __init__(self, lir: Lir) -> None:
        self._steps, self._nbytes = lir.steps, lir.arena_nbytes
        self._occupied = [_occupied(r, lir) for r in live_ranges(lir)]

    def begin(self, frame: Frame) -> None:
        """Before a run: fill the arena."""
        if self._nbytes:
            frame.memory.fill(frame.bound[ARENA], self._nbytes, POISON)

    def after(
        self, number: int, following: int, frame: Frame, results: Iterable[Any], scratch: np.ndarray | None
    ) -> None:
        """After a step: check everything that it may not have written, then fill what nothing reads any more.

        Args:
            number: The step.
            following: The step that runs next, or the number of all steps; those between compute no elements and do not run.
            results: The arrays of the run's results, each between margins.
            scratch: Scratch memory that the step does not use.

        Raises:
            PoisonError: A byte was written that the step may not write.
        """
        step, memory = self._steps[number], frame.memory
        live = [o for o in self._occupied if o.birth <= number <= o.death]
        if self._nbytes:
            arena = memory.read(frame.bound[ARENA], TensorType(u8, (self._nbytes,)), (1,))
            self._check_arena(arena, step, live)
        for array in results:
            for side, margin in zip(("before", "after"), memory.margins(array), strict=True):
                _expect(margin, f"{side} an output of {array.nbytes} bytes", step)
        if scratch is not None:
            _expect(scratch, "beyond the step's own scratch memory", step)
        for each in live:
            if each.death < following:
                base = frame.bound[ARENA]
                memory.fill(At(base.buffer, base.offset + each.slot.offset), each.slot.nbytes, POISON)

    def _check_arena(self, arena: np.ndarray, step: Step, live: list[Occupied]) -> None:
        end = 0
        for each in [*sorted(live, key=lambda o: o.slot.offset), None]:
            start = arena.size if each is None else each.slot.offset
            changed = np.flatnonzero(arena[end:start] != POISON)
            if changed.size:
                offset = end + int(changed[0])
                near = min(live, key=lambda o: min(abs(o.slot.offset - offset), abs(o.slot.end - offset)), default=None)
                neighbour = "nothing" if near is None else f"{near.label}, bytes {near.slot.offset} to {near.slot.end}"
                raise _violation(step, f"byte {offset} of the arena", changed.size, Fact("next to", neighbour))
            end = max(end, start if each is None else each.slot.end)


def _occupied(r: LiveRange, lir: Lir) -> Occupied:
    if r.step is not None:
        slot = lir.steps[r.step].workspace
        assert slot is not None, "a workspace has a slot"
        return Occupied(slot, r.birth, r.death, f"the workspace of step {r.step}")
    names = ", ".join(f"{v!r} ({v.type})" for v in r.values)
    return Occupied(lir.slots[r.values[0]], r.birth, r.death, f"the slot of {names}")


def _expect(canary: np.ndarray, where: str, step: Step) -> None:
    changed = int((canary != POISON).sum())
    if changed:
        raise _violation(step, where, changed)


def _violation(step: Step, where: str, count: int, *facts: Fact) -> PoisonError:
    node = step.node
    return PoisonError(
        f"poison: {step.kernel} wrote {count} bytes that are not its own, {where}",
        Fact("step", f"{node.label} = {node.op.name}", node.origin.source),
        *facts,
    )
