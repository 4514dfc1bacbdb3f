"""Poison mode: memory that no step may touch is full of NaN, and looked at after every step.

`[options] "cpu.poison" = true` plans the arena with gaps between slots, fills it with ones (NaN in every float, -1 in integers),
and fills slots again as soon as nothing reads them any more. Programs run step by step. After each step, every byte of the arena,
of the threads' scratch memory and around outputs that the step had no business with must be as it was: so a kernel that writes
outside its result is found at once, and one that reads what was freed, or never written, delivers NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from attrs import evolve

from rlx_core.errors import Fact, RlxError
from rlx_core.ir.lir import Lir, Slot, Step
from rlx_core.pipeline.planning.memory import STRATEGIES, LiveRange, live_ranges, with_offsets
from rlx_core.system.records import frozen
from rlx_cpu.arena import empty

__all__ = ["CANARY", "POISON", "Guard", "PoisonError", "guarded"]

POISON = 0xFF
"""The byte that is in memory nobody may touch: all ones is NaN in f16, bf16, f32 and f64."""

CANARY = 128
"""Bytes between slots, and on either side of an output."""


class PoisonError(RlxError, RuntimeError):
    """A kernel wrote where it may not, or a plan gave bytes to two values; found by poison mode.

    The message names the step, the facts say which bytes changed and whose memory lies beside them. This is a fault of
    the kernel or of the plan, not of the program that ran.
    """


@frozen(eq=False)
class Held:
    """Bytes of the arena and what they hold, from step `birth` to step `death`."""

    slot: Slot
    birth: int
    death: int
    label: str


def guarded(lir: Lir) -> Lir:
    """The plan with gaps between everything that the arena holds."""
    ranges = live_ranges(lir)
    roomy = [evolve(r, nbytes=r.nbytes + CANARY) for r in ranges]
    offsets = STRATEGIES["best"](roomy, lir.alignment)
    slots = (Slot(offset + CANARY, r.nbytes) for offset, r in zip(offsets, ranges, strict=True))
    planned = with_offsets(lir, dict(zip(ranges, slots, strict=True)), lir.alignment)
    return evolve(planned, arena_nbytes=planned.arena_nbytes + CANARY)


class Guard:
    """What must not change, step by step, in the runs of one program planned by `guarded`."""

    def __init__(self, lir: Lir) -> None:
        self._steps = lir.steps
        self._held = [_held(r, lir) for r in live_ranges(lir)]

    def begin(self, arena: np.ndarray) -> None:
        """Before a run: nothing of the run before is left."""
        arena.fill(POISON)

    @staticmethod
    def output(shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
        """A poisoned array between canaries.

        Raises:
            OutOfMemoryError: The machine does not have that much.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = empty((nbytes + 2 * CANARY,), np.dtype(np.uint8), what)
        buffer.fill(POISON)
        return buffer[CANARY : CANARY + nbytes].view(dtype).reshape(shape)

    def after(self, number: int, arena: np.ndarray, outputs: Iterable[np.ndarray], scratch: np.ndarray | None) -> None:
        """After a step: look at everything that it may not have written, then poison what nobody reads any more.

        Args:
            number: Which step it was.
            arena: The bytes of the frame.
            outputs: Arrays made by `output`.
            scratch: The bytes of the threads' scratch memory beyond those that the step asked for.

        Raises:
            PoisonError: A byte was written that belongs to nobody.
        """
        step = self._steps[number]
        live = [h for h in self._held if h.birth <= number <= h.death]
        end = 0
        for held in [*sorted(live, key=lambda h: h.slot.offset), None]:
            start = arena.size if held is None else held.slot.offset
            self._expect_poison(arena[end:start], end, step, live)
            end = max(end, start if held is None else held.slot.end)
        for array in outputs:
            buffer = array.base
            assert buffer is not None, "outputs lie between canaries"
            for side, canary in (("before", buffer[:CANARY]), ("after", buffer[-CANARY:])):
                _expect(canary, f"{side} an output of {array.nbytes} bytes", step)
        if scratch is not None:
            _expect(scratch, "beyond the step's own scratch memory", step)
        for held in live:
            if held.death == number:
                arena[held.slot.offset : held.slot.end] = POISON

    def _expect_poison(self, gap: np.ndarray, offset: int, step: Step, live: list[Held]) -> None:
        wrong = np.flatnonzero(gap != POISON)
        if wrong.size:
            at = offset + int(wrong[0])
            near = min(live, key=lambda h: min(abs(h.slot.offset - at), abs(h.slot.end - at)), default=None)
            beside = "nothing" if near is None else f"{near.label}, bytes {near.slot.offset} to {near.slot.end}"
            raise _violation(step, f"byte {at} of the arena", wrong.size, Fact("beside", beside))


def _held(r: LiveRange, lir: Lir) -> Held:
    if r.step is not None:
        slot = lir.steps[r.step].workspace
        assert slot is not None, "a workspace has a slot"
        return Held(slot, r.birth, r.death, f"the workspace of step {r.step}")
    names = ", ".join(f"{v!r} ({v.type})" for v in r.values)
    return Held(lir.slots[r.values[0]], r.birth, r.death, f"the slot of {names}")


def _expect(canary: np.ndarray, where: str, step: Step) -> None:
    wrong = int((canary != POISON).sum())
    if wrong:
        raise _violation(step, where, wrong)


def _violation(step: Step, where: str, count: int, *facts: Fact) -> PoisonError:
    node = step.node
    return PoisonError(
        f"poison: {step.kernel} wrote {count} bytes that are not its own, {where}",
        Fact("step", f"{node.label} = {node.op.name}", node.origin.source),
        *facts,
    )
