"""Programs of the CPU: native code, with functions of the host for the steps that have none."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.run.memory import CANARY, HostMemory
from rlx_core.run.plan import Locations
from rlx_core.run.program import PlannedProgram, planned_program
from rlx_core.system.records import evolve
from rlx_cpu.native.llvm.objects import Function
from rlx_cpu.native.runtime.compiled import CompiledSteps, Settings
from rlx_cpu.native.runtime.native_steps import NativeCode, arguments_of, packs_of
from rlx_cpu.native.runtime.steps import compile_steps, functions_of, reason_to_drive


def reason_on_host(step: Step) -> str:
    """Return why a step does not run as native code."""
    reason = reason_to_drive(step)
    return f"{step.kernel} runs with NumPy" if reason is None else f"{step.node.op.title} is driven: {reason}"


def tunable_functions(lir: Lir) -> Sequence[Function]:
    """Return the functions of a plan that may have several schedules; a template's serve all sizes and have one."""
    return functions_of(lir)[0] if lir.origin is None else ()


def native_code(lir: Lir, native: CompiledSteps, locations: Locations, margin: int = 0) -> NativeCode:
    """The calls of a plan's steps; `margin` bytes of poison are behind scratch memory."""

    def steps_take_longer(numbers: Sequence[int], microseconds: float) -> bool:
        from rlx_cpu.native.work import takes_longer  # here, because one thread runs short programs without asking

        steps = ((lir.steps[number], native.steps[number].emitted) for number in numbers)
        # The template's graph has the formulas of steps whose sizes were bound.
        template = None if lir.origin is None else lir.origin.template.graph
        return takes_longer(steps, microseconds, native.settings.machine.speed, template)

    arguments, packs = arguments_of(native, locations), packs_of(native, locations)
    return NativeCode(native, arguments, packs, steps_take_longer, reason_on_host, margin)


def native_program(
    lir: Lir,
    kernels: KernelTable,
    settings: Settings,
    compiled: CompiledSteps | None = None,
    *,
    poison: bool = False,
) -> PlannedProgram:
    """The program of a plan as native code, with functions of the host for the steps that have none.

    Args:
        compiled: The code of an equal plan; compiled by default.
        poison: Whether the program checks memory after every step.
    """

    def nested(number: int, name: str, plan: Lir) -> PlannedProgram:
        return native_program(plan, kernels, settings, poison=poison)

    def build(plan: Lir, tuned_settings: Settings) -> PlannedProgram:
        return native_program(plan, kernels, tuned_settings)

    def compiled_steps(planned: Lir) -> CompiledSteps:
        if settings.tuning is None:
            return compile_steps(planned, kernels, settings)
        tuned = settings.tuning.selected(tunable_functions(planned), kernels, settings, build)
        return evolve(compile_steps(planned, kernels, settings, tuned.machines), tuned=tuned.problems)

    def code(planned: Lir, locations: Locations) -> NativeCode:
        return native_code(planned, compiled or compiled_steps(planned), locations, memory.margin)

    memory = HostMemory("cpu", CANARY if poison else 0)
    return planned_program(lir, kernels, memory, code, nested)
