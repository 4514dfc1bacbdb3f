"""The result of a compilation, and the cache of such results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import evolve, field

from rlx_core import pipeline
from rlx_core.errors import PluginError
from rlx_core.errors.contained import contained
from rlx_core.ir.dims import DimBinding
from rlx_core.ir.graph import Graph
from rlx_core.ir.lir import Lir
from rlx_core.ir.provenance import Lines, Source
from rlx_core.pipeline.backend import Backend, ObjectStore, Program, Target
from rlx_core.pipeline.config.records import MemoryConfig
from rlx_core.pipeline.report import CompilationReport
from rlx_core.plugins import ContributionFault
from rlx_core.system.logs import log_event
from rlx_core.system.progress import progress
from rlx_core.system.records import frozen

if TYPE_CHECKING:  # imported where memory is planned; a program from the cache needs none of it
    from rlx_core.ir.types import TensorType
    from rlx_core.pipeline.planning.planner import PlanOptions
    from rlx_core.pipeline.recording import RecordedPlan

BINDINGS_BEFORE_RECORDING: Final = 2
"""Bindings of a template that are planned before one is recorded, which takes several times as long."""

MAX_RECORDINGS: Final = 8
"""Recordings of a template; each is valid for the sizes for which planning takes the same branches."""


@frozen(eq=False)
class CompiledProgram:
    """A compiled program: one that can run, or a template that becomes one when its sizes are bound.

    Attributes:
        lir: The plan.
        backend: The target's compiler.
        target: The target, with the kernels that plugins contribute.
        memory: The memory configuration for specialising a template.
        report: The record of the compilation.
        objects: The cache of its machine code between processes, or `None`.
        code: The backend's code of it, from which further programs are created; all copies of this share it.
        preparing: The program that computes its parameters from the caller's, once it was needed; shared in the same way.
        sources: The source line of each input and parameter.
        recorded: Of a template: the recorded plan of each binding that was planned, `None` where it was not recorded; shared in
            the same way.
        lines: Lines of the program that the plan was made from; the nodes of the plan refer to these.
    """

    lir: Lir
    backend: Backend
    target: Target
    memory: MemoryConfig
    report: CompilationReport
    objects: ObjectStore | None = None
    sources: Mapping[str, Source | None] = field(factory=dict)
    code: list[object] = field(factory=list)
    lines: Lines = ()
    preparing: list[CompiledProgram] = field(factory=list)
    recorded: list[RecordedPlan | None] = field(factory=list)

    @property
    def is_template(self) -> bool:
        """Whether sizes are still unknown."""
        return bool(self.lir.graph.symbols)

    def specialize(self, binding: DimBinding) -> Lir:
        """The planned program for one binding of the sizes."""
        if not self.is_template:
            return self.lir
        start = time.perf_counter()
        specialized = pipeline.dynamic.specialize(self.lir, binding, self.target, options=plan_options(self.memory))
        self._log("specialize", sizes=binding, seconds=time.perf_counter() - start)
        return specialized

    def recorded_program(
        self, binding: DimBinding, planned: Callable[[], Lir]
    ) -> tuple[Program, tuple[TensorType, ...]] | None:
        """Return the program for a binding from a recorded plan, and the types of its outputs; `None` if none is valid for it.

        Args:
            binding: The sizes.
            planned: Returns the plan of `specialize`, of which `planned_program` would make an equal program.
        """
        if self.target.kernels.has_failures:
            return None
        start = time.perf_counter()
        for plan in self.recorded:
            result = None if plan is None else plan.program(binding, planned)
            if result is not None:
                self._log("specialize", sizes=binding, seconds=time.perf_counter() - start)
                return result
        return None

    def record(self, binding: DimBinding) -> None:
        """Record the planning of a binding that was planned, unless it is one of the first, or there are enough recordings."""
        count = len(self.recorded)
        if not self.is_template or not self.backend.has_outlines or count >= BINDINGS_BEFORE_RECORDING + MAX_RECORDINGS:
            return
        plan = None
        if count >= BINDINGS_BEFORE_RECORDING:
            plan = pipeline.dynamic.record(
                self.lir,
                binding,
                self.target,
                lambda lir: self.backend.outline(lir, self.target, lir.options),
                plan_options(self.memory),
            )
        self.recorded.append(plan)

    def planned_program(self, lir: Lir) -> tuple[Lir, Program]:
        """Return a program for a plan, with the plan that it implements.

        The plan differs if the code of a kernel could not be generated, although its row accepts the node: the row is
        skipped with a warning, and its steps get the next kernel.
        """
        while True:
            try:
                return lir, self.program_for(lir)
            except PluginError as error:
                if not self._pass_over(error):
                    raise
            lir = pipeline.dynamic.replanned(lir, self.target, plan_options(self.memory))

    def _pass_over(self, error: PluginError) -> bool:
        """Return whether an error is about the code of a row that can be passed over, which is done."""
        fault, table = error.fault, self.target.kernels
        if not isinstance(fault, ContributionFault) or fault.kind != "kernels":
            return False
        # A plan from a cache has the row although it failed before; the next plan cannot have it.
        return table.has_failed(fault.name) or table.fail(table.get(fault.name), "", error)

    def program_for(self, lir: Lir) -> Program:
        """Return the backend's program for a plan, with no parameters bound and no mutable state shared with other programs."""
        start = time.perf_counter()
        program = self._another(lir)
        if program is None:
            with progress(f"building {self.report.name} for {self.target.name}"):
                program = self._built(lir)
        self._log("build", code=program.code_origin, seconds=time.perf_counter() - start)
        return program

    def to_prepare(self, prepare: Graph) -> CompiledProgram:
        """Return the program that computes a prepare graph on the same target."""
        if prepare is not self.lir.prepare:
            return self._preparing(prepare)
        if not self.preparing:
            self.preparing.append(self._preparing(prepare))
        return self.preparing[0]

    def _preparing(self, prepare: Graph) -> CompiledProgram:
        options = plan_options(self.memory)
        lir = pipeline.planning.planner.make_lir(
            pipeline.planning.prepare.computed_graph(prepare),
            self.target,
            options=options,
            resolved=self.lir.options,
        )
        return evolve(self, lir=lir, code=[], preparing=[], recorded=[])

    def _another(self, lir: Lir) -> Program | None:
        """Return a program from code that was made before; `None` if no such code exists."""
        for code in self.code if lir is self.lir else ():
            return self.backend.another(lir, self.target, lir.options, code)
        return None

    def _built(self, lir: Lir) -> Program:
        with contained("backends", self.target.name, "making a program"):
            program = self.backend.build(lir, self.target, lir.options, self.objects)
            if not isinstance(program, Program):
                raise TypeError(f"`build` returned {type(program).__name__}, not a Program")
        if lir is self.lir and program.code is not None:  # of a template there are as many programs as sizes
            self.code[:] = [program.code]
        return program

    def _log(self, event: str, **facts: Any) -> None:
        log_event(event, {"program": self.report.name, "target": self.target.name, **facts})

    def report_for(self, lir: Lir, program: Program | None = None) -> CompilationReport:
        """Return the report with the memory plan of a specialised program, and the origin of its code, if it has any."""
        stages = {**self.report.stages, "LIR steps": len(lir.steps)}
        if program is None:
            return evolve(self.report, lir=lir, stages=stages, code=None)
        checked = program.reason_without_entry
        return evolve(
            self.report,
            lir=lir,
            stages=stages,
            code=program.code_origin,
            checked=checked,
            traffic=program.traffic,
            tuned=program.tuned,
        )


class ProgramCache(Protocol):
    """A cache of compiled programs; `rlx_core.runtime.cache.CompileCache` is one."""

    @property
    def objects(self) -> ObjectStore | None:
        """The backends' cache of machine code between processes."""

    def get_or_compile(
        self,
        key: str,
        compile: Callable[[], CompiledProgram],
        *,
        to_bytes: Callable[[CompiledProgram], bytes | None] | None = None,
        from_bytes: Callable[[bytes], CompiledProgram] | None = None,
    ) -> CompiledProgram: ...


@cache
def plan_options(memory: MemoryConfig) -> PlanOptions:
    """Return the options of memory planning for a configuration."""
    return pipeline.planning.planner.PlanOptions(strategy=memory.strategy, alignment=memory.alignment)
