"""Running a LIR with NumPy: a list of calls on arrays that were made once, so a run allocates only its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from rlx_core.errors import RlxError
from rlx_core.errors.contained import reraise
from rlx_core.ir.array import read_only_view
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import Program, at_step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.profile import active
from rlx_core.system.records import frozen
from rlx_cpu.arena import empty
from rlx_cpu.frames import Frames, SharedParams
from rlx_cpu.kernels.control import driven
from rlx_cpu.poison import Guard

__all__ = ["Instruction", "NumpyProgram", "instruction"]


@frozen(eq=False)
class Instruction:
    """A step with everything looked up: which function, on which places of a frame."""

    call: Callable[..., None]
    step: Step
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    workspace: int | None
    plugin: str | None = None

    def run(self, arrays: list[Any]) -> None:
        """Run the step on a frame's arrays; what goes wrong says at which node."""
        operands = [None if p is None else arrays[p] for p in self.operands]
        out = arrays[self.results[0]] if len(self.results) == 1 else tuple(arrays[p] for p in self.results)
        workspace = None if self.workspace is None else arrays[self.workspace]
        try:
            self.call(self.step.node.op, *operands, out=out, workspace=workspace)
        except RlxError as error:
            raise at_step(error, self.step) from error.__cause__
        except Exception as error:  # noqa: BLE001 - contributed code may raise anything; it is raised again, with its owner
            reraise(error, "kernels", self.step.kernel, f"a run of {self.step.node.op.name}", self.plugin)


def with_read_only_operands(
    run: Callable[..., None], in_place: tuple[int, ...], op: Any, /, *operands: Any, out: Any, workspace: Any
) -> None:
    """Run another package's kernel with operands that it cannot write to, except those that it declares as `in_place`."""
    views = (
        each if each is None or number in in_place else read_only_view(each) for number, each in enumerate(operands)
    )
    run(op, *views, out=out, workspace=workspace)


def instruction(step: Step, frames: Frames, kernels: KernelTable, program: Callable[[Lir], Program]) -> Instruction:
    """A step of a program as a call; `program` makes programs of the plans in it."""
    row = kernels.get(step.kernel)
    run: Callable[..., None] = row.run
    if row.plugin not in (None, kernels.plugin, "cpu"):
        run = partial(with_read_only_operands, run, row.in_place)
    if step.nested:
        run = partial(driven, programs={name: program(plan) for name, plan in step.nested.items()})
    return Instruction(
        run,
        step,
        tuple(None if v is None else frames.places[v] for v in step.node.operands),
        tuple(frames.places[v] for v in step.node.results),
        frames.workspaces.get(id(step)),
        row.plugin,
    )


class NumpyProgram(Program):
    """A LIR compiled to a list of NumPy calls."""

    def __init__(
        self, lir: Lir, kernels: KernelTable, shared: SharedParams | None = None, guard: Guard | None = None
    ) -> None:
        self._kernels, self._guard = kernels, guard
        self._frames = Frames(lir, shared or SharedParams(), output=empty if guard is None else guard.output)
        self._instructions = [
            instruction(step, self._frames, kernels, lambda plan: NumpyProgram(plan, kernels)) for step in lir.steps
        ]

    def bind(self, params: Mapping[str, np.ndarray]) -> None:
        self._frames.bind(params)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        frame = self._frames.take()
        try:
            if self._guard is not None:
                self._guard.begin(frame.arena)
            self._frames.fill(frame, inputs)
            with np.errstate(all="ignore"):  # what NumPy would warn about is what the program says: NaN, infinities
                profile = active()
                for number, each in enumerate(self._instructions):
                    with nullcontext() if profile is None else profile.timing(each.step):
                        each.run(frame.arrays)
                    if self._guard is not None:
                        self._guard.after(number, frame.arena, self._frames.outputs_of(frame), None)
            return self._frames.deliver(frame)
        finally:
            self._frames.give_back(frame)

    def clone(self) -> NumpyProgram:
        return NumpyProgram(self._frames.lir, self._kernels, self._frames.shared, self._guard)
