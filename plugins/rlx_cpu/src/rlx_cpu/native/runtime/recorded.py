"""Programs of a template from recorded numbers: a new size is not planned (`rlx_core.pipeline.recording`).

`outline` computes the parts of a program that depend on sizes, for sizes that record. `RecordedCode` consists of these parts for
other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field

from rlx_core.ir.lir import Lir
from rlx_core.pipeline.backend import Outline
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.code import Calls
from rlx_core.run.memory import HostMemory
from rlx_core.run.plan import BufferId, ExecutionPlan, Locations
from rlx_core.run.program import PlannedProgram
from rlx_core.system.locks import lazy
from rlx_core.system.records import frozen
from rlx_cpu.native.runtime.compiled import CompiledSteps, Settings
from rlx_cpu.native.runtime.native_steps import NativeCode, PackedOperand, Run, TableContents
from rlx_cpu.native.runtime.program import native_code, reason_on_host
from rlx_cpu.native.runtime.steps import compile_steps, laid_out, layouts, shared_calls

if TYPE_CHECKING:
    from rlx_core.tuning.tuner import TunedProblem
    from rlx_cpu.native.llvm.jit import JitCode
    from rlx_cpu.native.runtime.entry_words import Mode


@frozen(eq=False)
class Numbers:
    """The parts of a program that depend on sizes.

    Attributes:
        plan: The execution plan.
        arguments, packs: See `NativeCode`.
        contents: The words of its table.
        rows: The words of its run (`NativeCode.rows_of`).
        workspace_nbytes: Scratch memory of all threads.
    """

    plan: ExecutionPlan
    arguments: Mapping[BufferId, Sequence[tuple[int, int]]]
    packs: Sequence[PackedOperand]
    contents: TableContents
    rows: Sequence[Sequence[int]]
    workspace_nbytes: int


@frozen(eq=False)
class SharedParts:
    """The parts of a program that are the same for all sizes for which a recording is valid.

    Attributes:
        part: All steps.
        steps: The number of the step of each call.
        uses_threads, has_threaded: See `Run`.
        mode: The threads that its entry uses.
        settings, origin, codes: See `CompiledSteps`.
        packed_constants: See `CompiledSteps`; shared by all sizes.
        compiled: Returns the steps of a plan.
    """

    part: Calls
    steps: tuple[int, ...]
    uses_threads: bool
    has_threaded: bool
    mode: Mode
    settings: Settings
    origin: str | None
    codes: tuple[JitCode, ...]
    compiled: Callable[[Lir], CompiledSteps]
    packed_constants: dict[Any, np.ndarray] = field(factory=dict)


class RecordedCode(NativeCode):
    """The native calls of a program with recorded numbers.

    Args:
        parts: The parts that it shares with other sizes.
        numbers: The parts for its sizes.
        planned: Returns its plan, which only errors, reports and profiles need.
    """

    tuned: Sequence[TunedProblem] = ()

    def __init__(self, parts: SharedParts, numbers: Numbers, planned: Callable[[], Lir]) -> None:
        self._parts, self._planned = parts, planned
        self.settings, self.codes, self.packed_constants = parts.settings, parts.codes, parts.packed_constants
        self.steps, self.origin, self._margin = frozenset(parts.part.steps), parts.origin, 0
        self.arguments, self.packs, self.contents = numbers.arguments, numbers.packs, numbers.contents
        self.workspace_nbytes, self._reason_on_host = numbers.workspace_nbytes, reason_on_host
        words = np.array(numbers.rows, np.int64)
        self._runs = {parts.part.steps: Run(words, parts.steps, parts.uses_threads, parts.has_threaded)}

    @lazy
    def native(self) -> CompiledSteps:
        """The steps of its plan."""
        return self._parts.compiled(self._planned())

    def mode(self, runs: Sequence[Run]) -> Mode:
        return self._parts.mode


def outline(lir: Lir, kernels: KernelTable, settings: Settings, is_current: Callable[[], bool]) -> Outline | None:
    """Return the outline of a plan's program; `None` if one of its steps is not a function for all sizes.

    Args:
        lir: A bound template, with sizes that may be recorded.
        is_current: Returns whether programs are still compiled under these settings.
    """
    lying = dict(layouts(lir))
    shared = shared_calls(lir, lying, kernels, settings.isa)
    if not lir.steps or len(shared.calls) != len(lir.steps):
        return None
    compiled, locations = laid_out(lir, shared.calls, settings, shared.for_all), Locations(lir)
    code = native_code(lir, compiled, locations)
    part = Calls(tuple(range(len(lir.steps))))
    rows, steps, has_threaded = code.rows_of(part.steps)
    uses_threads = has_threaded and code.takes_longer(part.steps, settings.machine.serial_us)
    mode = code.mode([Run(np.zeros(0, np.int64), steps, uses_threads, has_threaded)])
    parts = SharedParts(
        part, steps, uses_threads, has_threaded, mode, settings, compiled.origin, compiled.codes,
        partial(compile_steps, kernels=kernels, settings=settings),
    )  # fmt: skip
    memory = HostMemory("cpu")

    def build(numbers: Numbers, planned: Callable[[], Lir]) -> PlannedProgram:
        return PlannedProgram(numbers.plan, memory, RecordedCode(parts, numbers, planned), lambda: (part,))

    numbers = Numbers(locations.plan(), code.arguments, code.packs, code.contents, rows, code.workspace_nbytes)
    return Outline(numbers, build, is_current)
