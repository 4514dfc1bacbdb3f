"""The code of a program on a device: launches of functions in a few modules, and the faults that they report."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import field

from rlx_core.codegen.faults import SITE_WORDS, first_error
from rlx_core.codegen.places import Fault
from rlx_core.device.array import DeviceArray
from rlx_core.device.device import Device
from rlx_core.device.driver import At, Driver, Whole
from rlx_core.device.pool import Block
from rlx_core.emit.emitters import Call, Function, Language
from rlx_core.emit.modules import Modules, build_modules
from rlx_core.emit.recordings import Recordings
from rlx_core.emit.steps import Emissions, emissions, padded
from rlx_core.errors import Fact
from rlx_core.ir.array import unwrapped, wrapped
from rlx_core.ir.graph import Value
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.backend import ObjectStore, at_step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.pipeline.profile import Profile
from rlx_core.run.code import Calls, Code
from rlx_core.run.frames import PER_RUN, Frame
from rlx_core.run.parts import HostPart
from rlx_core.run.plan import BufferId, Location, Locations
from rlx_core.system.context import watchers
from rlx_core.system.records import define, frozen

if TYPE_CHECKING:
    from rlx_core.run.program import PlannedProgram

MAX_UNSYNCHRONISED: Final = 64
"""Maximum length of a chain of runs that may fail, each with results of the one before; the next run synchronises."""

BufferArgument = Location | int
"""The location of a call's argument: a buffer of the plan, or an offset in bytes from the start of the workspace."""


@frozen(eq=False)
class PlannedCall:
    """A launch of a program, with its arguments.

    Attributes:
        step: The number of its step.
        arguments: One for each buffer of the call.
        faults: The faults that its sites report.
    """

    call: Call
    step: int
    arguments: tuple[BufferArgument, ...]
    faults: tuple[Callable[[int | None, int], Exception], ...] = ()


@frozen(eq=False)
class StepFault:
    """The error of a step for the index that its kernel reported, and the point."""

    fault: Fault
    step: Step

    def __call__(self, index: int | None, place: int) -> Exception:
        return at_step(self.fault(index, place), self.step)


def planned_calls(lir: Lir, locations: Locations, emission: Emissions) -> Iterator[PlannedCall]:
    """The launches of a program, in order."""
    for number, emitted in emission.steps.items():
        step = lir.steps[number]
        values = (*step.node.operands, *step.node.results)
        workspaces = tuple(accumulate(map(padded, emitted.workspaces), initial=0))
        # A value without elements has no location and is never read; it is passed as the first result that has some.
        substitute = next(v for v in step.node.results if v.type.size)

        def argument(buffer: int, values: Sequence[Value | None] = values, workspaces: Sequence[int] = workspaces,
                     substitute: Value = substitute) -> BufferArgument:  # fmt: skip
            if buffer >= len(values):
                return workspaces[buffer - len(values)]
            value = values[buffer]
            assert value is not None, "a kernel is given only operands that are present"
            return locations.of(value if value.type.size else substitute)

        for call in emitted.calls:
            faults = tuple(StepFault(fault, step) for fault in call.faults)
            yield PlannedCall(call, number, tuple(map(argument, call.buffers)), faults)


def launch_of(driver: Driver, modules: Modules, call: Call, arguments: Sequence[Any]) -> Any:
    """The driver's launch of a call with its arguments."""
    if call.run is not None:
        return driver.routine(call.run, call.places, arguments)
    module = modules.by_function[call.function]
    launch = driver.launch(module, call.function, call.groups, call.group_size, arguments)
    if call.dynamic_nbytes:
        driver.share(launch, call.dynamic_nbytes)
    return launch


@define(eq=False)
class Launches:
    """The launches of a frame.

    Attributes:
        every: One for each call, in order.
        workspace: Memory that they share; `None` if they need none.
        status: Status words for faults; `None` if they report none.
        recordings: Part → the driver's recording, by the addresses of inputs and results.
    """

    every: list[Any]
    workspace: Block | None
    status: Block | None
    recordings: dict[Calls, Recordings] = field(factory=dict)


@define(eq=False)
class PendingRun:
    """A run whose results are on the device and that may have failed; the first thread that synchronises reads its status words.

    Attributes:
        words: A copy of the status words that no other run writes; `None` once they were read, and if the run has none.
        after: Runs whose results it was given, until it is known whether they failed.
    """

    driver: Driver
    faults: Sequence[Any]
    words: Block | None
    after: tuple[PendingRun, ...] = ()
    error: Exception | None = field(default=None)

    @property
    def is_settled(self) -> bool:
        """Whether it is known that no run failed."""
        return self.words is None and self.error is None and not self.after

    @property
    def depth(self) -> int:
        """The length of the longest chain of unsynchronised runs, each with results of the one before as arguments."""
        return 1 + max((run.depth for run in self.after), default=0)

    def settle(self) -> None:
        """Synchronise, and raise the error of this run or of a run whose results it was given."""
        for run in self.after:
            run.settle()
        self.after = ()
        if self.words is not None:
            words = np.empty(SITE_WORDS * len(self.faults), np.uint32)
            self.driver.read(self.words.buffer, 0, words)
            self.error, self.words = first_error(words, self.faults), None
        if self.error is not None:
            raise self.error


class DeviceCode(Code):
    """The launches of a program on a device.

    Args:
        device: The device.
        calls: The launches, in order.
        modules: The functions that they call.
        workspace_nbytes: Bytes of memory that calls share.
        alone: The steps whose calls may wait or allocate, which are submitted separately.
        steps: The plan's steps, for profiles; `None` for a program from a package.
        shared: The code from which other programs of an equal plan are created; see `Program.code`.
    """

    def __init__(
        self,
        device: Device,
        calls: Sequence[PlannedCall],
        modules: Modules,
        workspace_nbytes: int = 0,
        *,
        alone: frozenset[int] = frozenset(),
        steps: Sequence[Step] | None = None,
        shared: object | None = None,
        origin: str | None = None,
    ) -> None:
        self.device, self.calls, self.modules, self.workspace_nbytes = device, calls, modules, workspace_nbytes
        self._alone, self._steps, self._shared, self.origin = alone, steps, shared, origin
        self.faults = tuple(fault for each in calls for fault in each.faults)
        self._ranges: dict[int, tuple[int, int]] = {}
        arguments: dict[BufferId, list[tuple[int, int, int]]] = defaultdict(list)
        for number, each in enumerate(calls):
            first, _ = self._ranges.get(each.step, (number, number))
            self._ranges[each.step] = first, number + 1
            for place, argument in enumerate(each.arguments):
                if isinstance(argument, Location):
                    arguments[argument.buffer].append((number, place, argument.offset))
        self.steps = frozenset(self._ranges)
        self.arguments = arguments
        self._moving = [buffer for buffer in arguments if buffer.kind in PER_RUN]

    @property
    def status_nbytes(self) -> int:
        """The bytes of the status words."""
        return 4 * SITE_WORDS * len(self.faults)

    def is_submitted_alone(self, number: int) -> bool:
        return number in self._alone

    # ------------------------------------------------------------------------------------------------ calls

    def prepare(self, frame: Frame) -> Launches:
        device, driver = self.device, self.device.driver
        workspace = device.block(self.workspace_nbytes, "a workspace") if self.workspace_nbytes else None
        status = None
        if self.faults:
            status = device.block(self.status_nbytes, "status words", is_apart=True)
            driver.fill(status.buffer, 0, self.status_nbytes, 0xFF)
        launches: list[Any] = []
        site = 0
        for each in self.calls:
            arguments: list[Any] = []
            for argument in each.arguments:
                if isinstance(argument, Location):
                    arguments.append(frame.at(argument))
                else:
                    assert workspace is not None, "its size is the sum of all workspaces of a step"
                    arguments.append(At(workspace.buffer, argument))
            if each.faults:
                assert status is not None, "there are status words for all faults"
                arguments += [Whole(status.buffer), np.uint32(site)]
                site += len(each.faults)
            launches.append(launch_of(driver, self.modules, each.call, arguments))
        return Launches(launches, workspace, status)

    def place(self, calls: Launches, arguments: Sequence[tuple[int, int, int]], address: At) -> None:
        set_argument, every = self.device.driver.set_argument, calls.every
        buffer, base = address
        for launch, argument, offset in arguments:
            set_argument(every[launch], argument, At(buffer, base + offset))

    def run(self, part: Calls, frame: Frame, profile: Profile | None) -> None:
        if profile is None or self._steps is None:
            self.device.driver.submit(self._ready(part, frame))
            return
        for number in part.steps:  # launch by launch, each timed by the device's clock and waited for
            first, end = self._ranges[number]
            start = time.perf_counter()
            seconds = sum(self.device.driver.timed(launch) for launch in frame.calls.every[first:end])
            profile.add(self._steps[number], seconds, start=start)

    def _ready(self, part: Calls, frame: Frame) -> Sequence[Any]:
        """Return the launches to submit for a part, or their recording from a run with the same addresses."""
        driver, launches = self.device.driver, frame.calls
        (first, _), (_, end) = self._ranges[part.steps[0]], self._ranges[part.steps[-1]]
        selected: list[Any] = launches.every[first:end]
        if not driver.can_record or len(selected) == 1:
            return selected
        if part not in launches.recordings:
            launches.recordings[part] = Recordings(driver)
        addresses = tuple([driver.address(frame.bound[buffer]) for buffer in self._moving])
        return launches.recordings[part].of(addresses, selected)

    # ------------------------------------------------------------------------------------------------- runs

    def begin(self, frame: Frame, *, waits: bool) -> Block | None:
        if waits or not self.faults:
            return None
        return self.device.block(self.status_nbytes, "status words")

    def end(self, frame: Frame, inputs: Sequence[Any], begun: Block | None, *, waits: bool) -> PendingRun | None:
        """The run, if it can fail after the call has returned; with `waits` its fault is raised now."""
        driver, status = self.device.driver, frame.calls.status
        before = dict.fromkeys(x.run for x in inputs if isinstance(x, DeviceArray) and isinstance(x.run, PendingRun))
        after = tuple(run for run in before if not run.is_settled)
        if waits:
            for run in after:
                run.settle()
            if status is not None:
                self._expect_no_fault(status)
            return None
        if begun is not None:
            driver.copy(status.buffer, 0, begun.buffer, 0, self.status_nbytes)
            driver.fill(status.buffer, 0, self.status_nbytes, 0xFF)
        pending = PendingRun(driver, self.faults, begun, after)
        if pending.depth > MAX_UNSYNCHRONISED:
            pending.settle()
        return None if pending.is_settled else pending

    def _expect_no_fault(self, status: Block) -> None:
        driver = self.device.driver
        words = np.empty(self.status_nbytes // 4, np.uint32)
        driver.read(status.buffer, 0, words)
        error = first_error(words, self.faults)
        if error is not None:
            driver.fill(status.buffer, 0, words.nbytes, 0xFF)
            raise error

    # ---------------------------------------------------------------------------------------- the fast path

    def entry(self, program: PlannedProgram, name: str) -> Callable[..., Any] | None:
        device = self.device
        expected = [(leaf.type, leaf.type.dtype.numpy, leaf.type.static_shape) for leaf in program.plan.inputs]

        def call(*arguments: Any) -> Any:
            if len(arguments) != len(expected) or watchers[0]:
                return NotImplemented
            arrays = [unwrapped(each) for each in arguments]
            for array, (type_, dtype, shape) in zip(arrays, expected, strict=True):
                if type(array) is DeviceArray:
                    if array.device is not device or array.type != type_:
                        return NotImplemented
                elif type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                    return NotImplemented
            return tuple(map(wrapped, program.run_to(arrays, None)))

        return call

    def reason_without_entry(self, program: PlannedProgram) -> str | None:
        if any(leaf.is_donated for leaf in (*program.plan.inputs, *program.plan.params)):
            return "donated arrays must not be other arguments too"
        part = next((part for part in program.parts if isinstance(part, HostPart)), None)
        return None if part is None else reason_on_host(part.step)

    def shared(self, lir: Lir) -> object | None:
        return self._shared


def reason_on_host(step: Step) -> str:
    """Return the reason why the device does not run a step by itself."""
    return f"the host drives {step.kernel}" if step.nested else f"{step.kernel} runs on the host"


@frozen(eq=False)
class CompiledPlan:
    """The code of a plan, which programs of equal plans share.

    Attributes:
        emissions: The functions and calls of its steps.
        modules: The built functions.
        nested: The same of the graphs inside steps, by the step's number and the attribute.
    """

    emissions: Emissions
    modules: Modules
    nested: Mapping[tuple[int, str], CompiledPlan] = field(factory=dict)

    @property
    def origin(self) -> str | None:
        if not self.modules.by_function:
            return None
        return "cached" if self.modules.is_cached else "compiled"

    def on(self, lir: Lir, locations: Locations, device: Device) -> DeviceCode:
        """Return the code for a program."""
        calls = tuple(planned_calls(lir, locations, self.emissions))
        alone = frozenset(number for number, each in self.emissions.steps.items() if each.may_wait)
        return DeviceCode(
            device,
            calls,
            self.modules,
            self.emissions.workspace,
            alone=alone,
            steps=lir.steps,
            shared=self,
            origin=self.origin,
        )


def compile_plan(
    lir: Lir, device: Device, kernels: KernelTable, language: Language, objects: ObjectStore | None = None
) -> CompiledPlan:
    """Compile the functions of a plan and of the plans inside it.

    Raises:
        KernelBuildError: The device's compiler refuses a function.
    """
    emission = emissions(lir, kernels)

    def nodes_of(function: Function) -> Sequence[Fact]:
        calling = (
            lir.steps[n] for n, each in emission.steps.items() if any(c.function == function.name for c in each.calls)
        )
        return [Fact("node", f"{s.node.label} {s.node.op.name}", s.node.origin.source) for s in calling]

    nested = {
        (number, name): compile_plan(plan, device, kernels, language, objects)
        for number, step in enumerate(lir.steps)
        for name, plan in step.nested.items()
    }
    return CompiledPlan(emission, build_modules(device, language, emission.functions, objects, nodes_of), nested)


def functions_of(lirs: Iterable[Lir], kernels: KernelTable) -> list[Function]:
    """Return every function of some plans and of the plans nested in them, once."""
    functions: dict[str, Function] = {}
    waiting = list(lirs)
    while waiting:
        lir = waiting.pop()
        functions.update((f.name, f) for f in emissions(lir, kernels).functions)
        waiting += [plan for step in lir.steps for plan in step.nested.values()]
    return list(functions.values())
