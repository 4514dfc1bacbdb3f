"""Running a planned program, in the host's memory or in a device's.

On a device runs are submitted and not waited for. With outputs on the device the call returns at once, and reading an element
waits; with outputs on the host, reading them waits. Parameters are copied to the device when they are bound, once for all
programs that share the binding, and stay there; donated ones are written where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_core import pipeline
from rlx_core.errors import Fact, OutOfMemoryError
from rlx_core.errors.contained import reraise
from rlx_core.ir.array import usable
from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Outputs, Program, Traffic
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.code import Calls, Code
from rlx_core.run.frames import BoundParams, Frame, Frames, SharedState, bind_params
from rlx_core.run.memory import ProgramMemory
from rlx_core.run.parts import Driven, HostCall, HostPart, parts_of
from rlx_core.run.plan import BufferId, ExecutionPlan, Locations
from rlx_core.run.results import ResultMemory, Results
from rlx_core.system.context import watchers
from rlx_core.system.locks import lazy
from rlx_core.system.records import frozen

if TYPE_CHECKING:
    from rlx_core.run.poison import Guard
    from rlx_core.tuning.tuner import TunedProblem


@frozen(eq=False)
class StartedRun:
    """A run that has all its memory.

    Attributes:
        inputs: As code can use them.
        transferred: The bytes of the inputs that were copied to a device.
        results: Memory of the outputs.
        pending: The state by which a device reports faults after the call has returned.
    """

    frame: Frame
    params: BoundParams
    inputs: Sequence[Any]
    on_host: bool
    transferred: int
    results: ResultMemory
    pending: Any


class PlannedProgram(Program):
    """A program with its code. Runs are safe from several threads at once, because each has a frame.

    Args:
        plan: The execution plan.
        memory: The memory that its values lie in.
        code: The compiled calls.
        parts: Makes the parts of the program in order, when they are first needed.
        shared: What clones share.
        guard: Checks memory after every step; `parts` are single steps then.
        lir: The LIR of the plan, if this process planned it.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        memory: ProgramMemory,
        code: Code,
        parts: Callable[[], Sequence[Calls | HostPart]],
        shared: SharedState | None = None,
        *,
        guard: Guard | None = None,
        lir: Lir | None = None,
    ) -> None:
        self.plan, self.memory, self.compiled, self.lir, self.guard = plan, memory, code, lir, guard
        self._make_parts = parts
        self.shared = shared or SharedState()
        self.frames = Frames(plan, memory, code, self.shared, lambda: self._used)
        self._results = Results(plan, memory, self.frames)
        self._donated = [number for number, leaf in enumerate(plan.inputs) if leaf.is_donated]
        self._traffic = Traffic()

    # ---------------------------------------------------------------------------------------- the interface

    def bind(self, params: Mapping[str, Any]) -> None:
        used, read = self._used, self._read_by_host
        self.shared.params, transferred = bind_params(self.plan, self.memory, params, self.shared.params, used, read)
        self._traffic = Traffic(bound=transferred)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return self.run_to(inputs, None)

    def run_to(self, inputs: Sequence[Any], outputs: Outputs | None) -> list[Any]:
        memory, params = self.memory, self.shared.params
        if memory.is_host:
            if outputs == "device":
                return super().run_to(inputs, outputs)
            return self._finish(self._start(inputs, False, params))
        on_host = outputs == "host" or (outputs is None and all(memory.at(x) is None for x in inputs))
        try:
            return memory.in_turn(lambda: self._start(inputs, on_host, params), self._finish)
        except OutOfMemoryError as lack:
            raise lack.with_fact(Fact(f"plan of {self.plan.name}", self._sizes()))  # noqa: B904  it is the same error
        except Exception as error:  # noqa: BLE001 - a driver may raise anything; it is raised again, with its owner
            reraise(error, "backends", self.plan.target, "a run on its device")

    def run_nested(self, inputs: Sequence[Any]) -> tuple[list[Any], int]:
        """Run as a part of another program, from and to arrays of this memory; also the bytes copied for steps on the host.

        Raises:
            OutOfMemoryError: There is not enough memory for both.
        """
        results = self._finish(self._start(inputs, False, self.shared.params))
        return results, self._traffic.steps

    def clone(self) -> PlannedProgram:
        return PlannedProgram(
            self.plan, self.memory, self.compiled, self._make_parts, self.shared, guard=self.guard, lir=self.lir
        )

    def entry(self, name: str) -> Callable[..., Any] | None:
        return None if self.reason_without_entry is not None else self.compiled.entry(self, name)

    @property
    def reason_without_entry(self) -> str | None:
        """Why calls of this program are all checked; `None` if plain ones are not."""
        if self.guard is not None:
            return "poison mode checks memory after every step"
        return self.compiled.reason_without_entry(self)

    @property
    def code(self) -> object | None:
        return None if self.lir is None or self.guard is not None else self.compiled.shared(self.lir)

    @property
    def code_origin(self) -> str | None:
        return self.compiled.origin

    @property
    def tuned(self) -> Sequence[TunedProblem]:
        return self.compiled.tuned

    @property
    def traffic(self) -> Traffic | None:
        return None if self.memory.is_host else self._traffic

    # ------------------------------------------------------------------------------------------------ a run

    def _start(self, inputs: Sequence[Any], on_host: bool, params: BoundParams) -> StartedRun:
        """Allocate all memory of a run and bind its inputs; after an error nothing is allocated.

        Raises:
            OutOfMemoryError: There is not that much memory.
        """
        frame = self.frames.take(params)
        try:
            ready = self.memory.accept(inputs, self._donated, params.arrays.values())
            transferred = self._feed(frame, ready, waits=not on_host)
            results = self._results.begin(frame, ready, on_host=on_host)
            pending = self.compiled.begin(frame, waits=on_host)
            return StartedRun(frame, params, ready, on_host, transferred, results, pending)
        except BaseException:
            self.frames.release(frame)
            raise

    def _feed(self, frame: Frame, inputs: Sequence[Any], *, waits: bool) -> int:
        """Bind the inputs; the bytes that were copied to a device."""
        frames, memory, transferred = self.frames, self.memory, 0
        for number, array in enumerate(inputs):
            buffer, address = BufferId("input", number), memory.at(array)
            if address is not None:
                frames.bind(frame, buffer, address)
            elif buffer in self._used and array.size:
                frames.bind(frame, buffer, memory.staged(frame, self.plan, buffer))
                memory.write(frame.bound[buffer], array, waits=waits)
                transferred += array.nbytes
        return transferred

    def _finish(self, started: StartedRun) -> list[Any]:
        """Run all parts, and deliver the outputs."""
        frame, params, inputs = started.frame, started.params, started.inputs
        nread = 0
        try:
            in_steps = self._run_parts(started)
            run = self.compiled.end(frame, inputs, started.pending, waits=started.on_host)
            if started.on_host:
                results, nread = self._results.on_host(frame, inputs, params)
                if not nread:
                    self.memory.synchronize()  # the caller's arrays are read until then
            else:
                results = self._results.in_memory(frame, inputs, params, started.results, run)
        finally:
            self.frames.release(frame)
        if not self.memory.is_host:
            self._traffic = Traffic(self._traffic.bound, started.transferred, nread, in_steps)
        return results

    def _run_parts(self, started: StartedRun) -> int:
        """Run all parts; the bytes that were copied for steps on the host."""
        frame, guard, transferred = started.frame, self.guard, 0
        profile = pipeline.profile.active() if watchers[0] else None
        on_host: Mapping[BufferId, np.ndarray] | None = None
        if guard is not None:
            guard.begin(frame)
        with np.errstate(all="ignore") if self._reads_on_host else nullcontext():  # programs report NaN and infinities
            for index, part in enumerate(self.parts):
                if guard is not None:
                    self.compiled.poison_scratch(frame)
                if isinstance(part, Calls):
                    self.compiled.run(part, frame, profile)
                else:
                    if on_host is None:
                        on_host = self._on_host(started)
                    with nullcontext() if profile is None else profile.timing(part.step):
                        transferred += part.run(frame, on_host)
                if guard is not None:
                    number, is_last = part.steps[-1], index + 1 == len(self.parts)
                    # Steps without elements are no parts.
                    following = number + 1 if is_last else self.parts[index + 1].steps[0]
                    results = started.results.returned.values()
                    guard.after(number, following, frame, results, self.compiled.unused_scratch(frame, number))
        return transferred

    def _on_host(self, started: StartedRun) -> Mapping[BufferId, np.ndarray]:
        """The arrays of a device's program that are on the host too and that this run does not change, by buffer."""
        if self.memory.is_host:
            return {}
        known = {BufferId("constant", i): array for i, array in enumerate(self.plan.constants)}
        known |= {BufferId("param", i): array for i, array in started.params.on_host.items()}
        inputs = enumerate(zip(self.plan.inputs, started.inputs, strict=True))
        known |= {
            BufferId("input", i): usable(x)
            for i, (leaf, x) in inputs
            if isinstance(x, np.ndarray) and not leaf.is_donated
        }
        return known

    # ---------------------------------------------------------------------------------------------- details

    @lazy
    def parts(self) -> Sequence[Calls | HostPart]:
        """What runs, in order."""
        return tuple(self._make_parts())

    @property
    def host_parts(self) -> Iterator[HostPart]:
        """The steps that the host runs or drives."""
        return (part for part in self.parts if isinstance(part, HostPart))

    @lazy
    def _reads_on_host(self) -> bool:
        return any(self.host_parts)

    @lazy
    def _used(self) -> frozenset[BufferId]:
        """The buffers that must be on a device, or dense on the host: code refers to them, or outputs or steps of the host do."""
        used = {*self.compiled.arguments}
        for part in self.host_parts:
            used.update(part.written)
            if isinstance(part, Driven):
                used.update(part.read)
        used.update(each.location.buffer for each in self.plan.outputs if each.location is not None)
        used.update(BufferId("input", i) for i in self._donated if self.plan.inputs[i].type.size)
        used.update(BufferId("param", i) for i, e in enumerate(self.plan.params) if e.is_donated and e.type.size)
        return frozenset(used)

    @lazy
    def _read_by_host(self) -> frozenset[BufferId]:
        """The buffers that functions of the host read."""
        return frozenset(buffer for part in self.host_parts if isinstance(part, HostCall) for buffer in part.read)

    def _sizes(self) -> str:
        """The memory of a run, for errors."""
        plan = self.plan
        nbytes = {
            "arena": plan.arena_nbytes,
            "workspace": self.compiled.workspace_nbytes,
            "inputs": sum(leaf.type.static_nbytes for leaf in plan.inputs),
            "outputs": sum(type.static_nbytes for type in plan.results),
            "parameters": sum(leaf.type.static_nbytes for leaf in plan.params),
            "constants": sum(array.nbytes for array in plan.constants),
        }
        return ", ".join(f"{name} {count}" for name, count in nbytes.items() if count) + " bytes"


def planned_program(
    lir: Lir,
    kernels: KernelTable,
    memory: ProgramMemory,
    code: Callable[[Lir, Locations], Code],
    nested: Callable[[int, str, Lir], PlannedProgram],
) -> PlannedProgram:
    """The program of a plan.

    Args:
        memory: Where its values lie; with a margin, the program checks memory after every step.
        code: Compiles the plan, given the locations of its values.
        nested: Makes the program of a graph inside a step, given the step's number, the attribute and the plan.
    """
    guard: Guard | None = None
    if memory.margin:
        from rlx_core.run.poison import Guard, with_gaps  # here, because few programs are checked

        lir = with_gaps(lir)
        guard = Guard(lir)
    locations = Locations(lir)
    compiled = code(lir, locations)
    options = {"is_single": guard is not None, "skips_empty": not memory.is_host}
    return PlannedProgram(
        locations.plan(),
        memory,
        compiled,
        lambda: tuple(parts_of(lir, locations, kernels, compiled, nested, **options)),
        guard=guard,
        lir=lir,
    )
