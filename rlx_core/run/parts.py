"""The parts of a program in order: calls of compiled code, functions of the host, and control flow that the host drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core.errors import RlxError
from rlx_core.errors.contained import reraise
from rlx_core.ir.array import read_only_view
from rlx_core.ir.lir import Lir, Slot, Step
from rlx_core.ir.placed import At
from rlx_core.ir.strides import dense_strides, extent
from rlx_core.ir.types import TensorType
from rlx_core.pipeline.backend import at_step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.code import Calls, Code
from rlx_core.run.memory import bytes_of, strided
from rlx_core.run.plan import ARENA, BufferId, Location, Locations
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.run.frames import Frame
    from rlx_core.run.program import PlannedProgram

OnHost = Mapping[BufferId, np.ndarray]
"""Buffers of a device's program whose contents are on the host too."""


@frozen
class StepOperand:
    """An operand or a result of a step that the host runs or drives."""

    location: Location
    type: TensorType

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element."""
        low, high = extent(self.type, self.location.strides)
        return high - low if self.type.size else 0

    def array(self, frame: Frame, on_host: OnHost) -> np.ndarray:
        """The value as an array on the host."""
        root = on_host.get(self.location.buffer) if self.type.size else None
        if root is None:
            return frame.array(self.location, self.type)
        shape, dtype = self.type.static_shape, self.type.dtype.numpy
        return strided(bytes_of(root), self.location.offset, shape, dtype, self.location.strides)


class HostPart(ABC):
    """One step that the host runs or drives.

    Attributes:
        steps: Its number.
        step: The step.
        operands, results: Where they lie; `None` for an absent operand.
    """

    def __init__(self, number: int, step: Step, locations: Locations) -> None:
        self.steps, self.step = (number,), step
        self.operands = tuple(None if v is None else StepOperand(locations.of(v), v.type) for v in step.node.operands)
        self.results = tuple(StepOperand(locations.of(v), v.type) for v in step.node.results)

    @property
    def written(self) -> Iterator[BufferId]:
        """The buffers of its results."""
        return (each.location.buffer for each in self.results if each.type.size)

    @property
    def read(self) -> Iterator[BufferId]:
        """The buffers of its operands."""
        return (each.location.buffer for each in self.operands if each is not None and each.type.size)

    @abstractmethod
    def run(self, frame: Frame, on_host: OnHost) -> int:
        """Run the step; the bytes that were copied between the host and a device.

        Raises:
            RlxError: The step failed; the error names its node and the user's line.
        """


class HostCall(HostPart):
    """A step that a function of the host computes: in place in the host's memory, else on copies.

    Args:
        call: Called with the op, its operands, and the keywords `out` and `workspace`.
        plugin: Who contributed it, for errors.
    """

    def __init__(
        self, number: int, step: Step, locations: Locations, call: Callable[..., None], plugin: str | None
    ) -> None:
        super().__init__(number, step, locations)
        self._call, self._plugin = call, plugin

    def run(self, frame: Frame, on_host: OnHost) -> int:
        memory, step = frame.memory, self.step
        operands = [None if each is None else each.array(frame, on_host) for each in self.operands]
        if memory.is_host:
            results = [each.array(frame, on_host) for each in self.results]
        else:
            results = [np.empty(each.type.static_shape, each.type.dtype.numpy) for each in self.results]
        out = results[0] if len(results) == 1 else tuple(results)
        try:
            self._call(step.node.op, *operands, out=out, workspace=_workspace(frame, step.workspace))
        except RlxError as error:
            raise at_step(error, step) from error.__cause__
        except Exception as error:  # noqa: BLE001 - contributed code may raise anything; it is raised again, with its owner
            reraise(error, "kernels", step.kernel, f"a run of {step.node.op.name}", self._plugin)
        if memory.is_host:
            return 0
        for each, array in zip(self.results, results, strict=True):
            if each.type.size:
                assert each.location.strides == dense_strides(each.type), "functions of the host write dense results"
                memory.write(frame.at(each.location), array)
        copied = (each for each in self.operands if each is not None and each.location.buffer not in on_host)
        return sum(each.nbytes for each in (*copied, *self.results))


def _workspace(frame: Frame, slot: Slot | None) -> np.ndarray | None:
    if slot is None:
        return None
    if not frame.memory.is_host:
        return np.empty(slot.nbytes, np.uint8)
    arena: np.ndarray = frame.bound[ARENA].buffer
    return arena[slot.offset : slot.end]


class Driven(HostPart):
    """A loop or a choice that the host drives: each graph of the op is a separate program in the same memory."""

    def __init__(self, number: int, step: Step, locations: Locations, programs: Mapping[str, PlannedProgram]) -> None:
        super().__init__(number, step, locations)
        self._programs = programs

    def run(self, frame: Frame, on_host: OnHost) -> int:
        from rlx_core.run.control import drive  # here, because few programs have such a step, and it brings the ops

        memory, step, transferred = frame.memory, self.step, 0

        def run(name: str, operands: Sequence[Any]) -> Sequence[Any]:
            nonlocal transferred
            results, traffic = self._programs[name].run_nested(operands)
            transferred += traffic
            return results

        def store(number: int, array: Any, offset: int) -> None:
            result = self.results[number]
            if result.type.size:
                address = frame.at(result.location)
                memory.store(array, At(address.buffer, address.offset + offset))

        operands = [memory.operand(frame, each.location, each.type) for each in self.operands if each is not None]
        try:
            drive(step.node.op, memory, run, operands, store)
        except RlxError as error:
            raise at_step(error, step) from error.__cause__
        return transferred


def parts_of(
    lir: Lir,
    locations: Locations,
    kernels: KernelTable,
    code: Code,
    nested: Callable[[int, str, Lir], PlannedProgram],
    *,
    is_single: bool = False,
    skips_empty: bool = False,
) -> Iterator[Calls | HostPart]:
    """The parts of a program: maximal sequences of steps that its code runs, and the steps of the host between them.

    Args:
        nested: Makes the program of a graph inside a step, given the step's number, the attribute and the plan.
        is_single: Whether each step is a separate part.
        skips_empty: Whether steps without elements are left out, as on devices, whose code has no calls for them.
    """
    pending: list[int] = []

    def calls() -> Iterable[Calls]:
        if pending:
            yield Calls(tuple(pending))
            pending.clear()

    for number, step in enumerate(lir.steps):
        if number in code.steps:
            is_apart = is_single or code.is_submitted_alone(number)
            if is_apart:
                yield from calls()
            pending.append(number)
            if is_apart:
                yield from calls()
            continue
        if skips_empty and is_empty(step):
            continue
        yield from calls()
        if step.nested:
            programs = {name: nested(number, name, plan) for name, plan in step.nested.items()}
            yield Driven(number, step, locations, programs)
        else:
            yield HostCall(number, step, locations, *_function(step, kernels))
    yield from calls()


def _function(step: Step, kernels: KernelTable) -> tuple[Callable[..., None], str | None]:
    """The function of a step and the plugin that contributed it; those of other plugins cannot write to their operands."""
    row = kernels.get(step.kernel)
    if row.plugin in (None, kernels.plugin):
        return row.run, row.plugin
    return partial(_with_read_only_operands, row.run, row.in_place), row.plugin


def _with_read_only_operands(
    run: Callable[..., None], in_place: tuple[int, ...], op: Any, /, *operands: Any, out: Any, workspace: Any
) -> None:
    views = (
        each if each is None or number in in_place else read_only_view(each) for number, each in enumerate(operands)
    )
    run(op, *views, out=out, workspace=workspace)


def is_empty(step: Step) -> bool:
    """Whether no result of a step has elements, so that there is nothing to compute."""
    return all(type.size == 0 for type in step.node.types)
