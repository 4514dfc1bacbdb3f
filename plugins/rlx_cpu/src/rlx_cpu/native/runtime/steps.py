"""The native steps of a plan: what each calls, where its buffers' addresses stand, and the code of all of them.

Steps with equal ops and layouts share one function, so equal layers are compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import field

from rlx_core.codegen.places import Layout, Places
from rlx_core.errors.contained import contained
from rlx_core.ir.graph import Constant
from rlx_core.ir.lir import Lir, Step
from rlx_core.pipeline.kernels import KernelTable
from rlx_core.plugins import package_of
from rlx_core.system.records import evolve, frozen
from rlx_cpu.native import runtime
from rlx_cpu.native.contract import BufferPositions, EmitNested, Emitted
from rlx_cpu.native.llvm.isa import Isa
from rlx_cpu.native.llvm.jit import JitCode
from rlx_cpu.native.llvm.objects import Function, library
from rlx_cpu.native.llvm.optimise import new_module
from rlx_cpu.native.machine import CpuMachine
from rlx_cpu.native.runtime.compiled import CompiledSteps, NativeStep, Settings
from rlx_cpu.native.table import emitter_in, is_external, is_native

if TYPE_CHECKING:
    from rlx_cpu.native.llvm import ir
    from rlx_cpu.native.runtime.sizing import FixedFunctions


def layouts(lir: Lir) -> Iterator[tuple[int, Layout]]:
    """The steps with native kernels by number, each with where its operands and results lie."""
    places = Places(lir)
    for number, step in enumerate(lir.steps):
        if is_native(step.kernel) and reason_to_drive(step) is None:
            yield number, places.layout_of(step)


MOST_DATA: Final = 1 << 20
"""Bytes of constants in the code of a loop."""


def reason_to_drive(step: Step) -> str | None:
    """Return why the graphs inside a step are run from Python; `None` if the step is one function, or holds none."""
    for name, plan in step.nested.items():
        inner = next((s for s in plan.steps if not is_native(s.kernel)), None)
        if inner is not None:
            return f"{inner.kernel} in its {name} runs with NumPy"
        if sum(n.op.value.array.nbytes for n in plan.graph.nodes if isinstance(n.op, Constant)) > MOST_DATA:
            return f"its {name} holds more than {MOST_DATA} bytes of constants"
        reason = next(filter(None, (reason_to_drive(s) for s in plan.steps)), None)
        if reason is not None:
            return reason
    return None


def functions_of(lir: Lir, lying: Mapping[int, Layout] | None = None) -> tuple[list[Function], dict[int, int]]:
    """The functions that native steps call, each once, and by the number of a step which of them it calls.

    Args:
        lying: The steps that are meant, with their layouts; all native ones by default.
    """
    known: dict[tuple[str, object, Layout], int] = {}
    functions: list[Function] = []
    calls: dict[int, int] = {}
    for number, layout in layouts(lir) if lying is None else lying.items():
        step = lir.steps[number]
        place = known.setdefault((step.kernel, step.node.op, layout), len(functions))
        if place == len(functions):
            functions.append(Function(step.kernel, step.node, layout, step.nested, step.nested_offset))
        calls[number] = place
    return functions, calls


def emit_function(module: ir.Module, number: int, function: Function, kernels: KernelTable, isa: Isa) -> Emitted | None:
    """Add a function to a module; `None` for a kernel without an emitter."""
    name = f"k{number}_{function.node.op.name.rpartition('.')[2]}"
    emitted = emit_step(module, name, function, kernels, isa)
    if emitted is None or not module.foreign:
        return emitted
    return evolve(emitted, foreign=tuple(module.foreign.items()))


def emit_step(module: ir.Module, name: str, function: Function, kernels: KernelTable, isa: Isa) -> Emitted | None:
    """The same under a name; what holds graphs brings the functions of their steps."""
    if function.machine is not None:
        isa = evolve(isa, machine=function.machine)
    emit = emitter_in(kernels, function.kernel)
    if not isinstance(emit, EmitNested):
        if emit is None:
            return None
        # Where a row is a package's own, its name begins with the package's plugin.
        plugin = function.kernel.partition(".")[0] if is_external(function.kernel) else "cpu"
        with contained("kernels", function.kernel, f"the code of {function.node.op.name}", plugin):
            emitted = emit(module, function.node, function.layout, isa, name)
            if not isinstance(emitted, Emitted):
                raise TypeError(f"its emitter returned {type(emitted).__name__}, not Emitted")
        return emitted

    def inside(name: str, step: Step, layout: Layout) -> Emitted:
        inner = Function(step.kernel, step.node, layout, step.nested, step.nested_offset)
        emitted = emit_step(module, name, inner, kernels, isa)
        assert emitted is not None, "every step of the graphs has an emitter"
        return emitted

    return emit.emit(module, function.node, function.layout, function.nested, function.nested_offset, isa, name, inside)


def called(calls: Mapping[int, int], emitted: Sequence[Emitted | None]) -> dict[int, Emitted]:
    """Return the function of each step, by its number, for those steps that have native code."""
    pairs = ((number, emitted[place]) for number, place in calls.items())
    return {number: function for number, function in pairs if function is not None}


def kernels_in(plans: Mapping[str, Lir]) -> Iterator[str]:
    """The kernels of all steps of some plans, and of the plans inside those."""
    for plan in plans.values():
        for step in plan.steps:
            yield step.kernel
            yield from kernels_in(step.nested)


def external_packages(functions: Sequence[Function], kernels: KernelTable) -> frozenset[str]:
    """Return the packages other than this one whose emitters some functions use; only these packages are imported."""
    names = (name for each in functions for name in (each.kernel, *kernels_in(each.nested)))
    emitters = (emitter_in(kernels, name) for name in names if is_external(name))
    return frozenset(package_of(emit) for emit in emitters if emit is not None)


def compile_steps(
    lir: Lir, kernels: KernelTable, settings: Settings, machines: Mapping[Hashable, CpuMachine] | None = None
) -> CompiledSteps:
    """The native half of a program.

    Args:
        machines: The machine parameters of functions whose schedules are not the default, by `Function.key`.
    """

    def emit(number: int) -> tuple[ir.Module, Emitted] | None:
        module = new_module("program")
        emitted = emit_function(module, number, functions[number], kernels, settings.isa)
        return None if emitted is None else (module, emitted)

    lying = dict(layouts(lir))
    shared = shared_calls(lir, lying, kernels, settings.isa)
    native = dict(shared.calls)
    if len(native) == len(lying):
        return laid_out(lir, native, settings, shared.for_all)
    functions, calls = functions_of(lir, {number: layout for number, layout in lying.items() if number not in native})
    if machines:
        functions = [evolve(each, machine=machines.get(each.key)) for each in functions]
    compiled = library(functions, settings.isa, emit, external_packages(functions, kernels))
    for number, each in called(calls, compiled.emitted).items():
        assert compiled.code is not None, "what was emitted has code"
        native[number] = each, compiled.code, ()
        if number in shared.fixed:
            shared.functions[shared.fixed[number]] = each, compiled.code
    return laid_out(lir, native, settings, shared.for_all)


StepCall = tuple[Emitted, JitCode | None, tuple[int, ...]]
"""The parts of a step's call: the emitted function, its code if that exists already, and its run-time sizes."""


@frozen(eq=False)
class SharedCalls:
    """The calls of a bound template's functions.

    Attributes:
        calls: The calls of functions that exist, by the numbers of the steps.
        for_all: See `CompiledSteps`.
        fixed, functions: See `sizing.fixed_steps`.
    """

    calls: Mapping[int, StepCall] = field(factory=dict)
    for_all: frozenset[int] = frozenset()
    fixed: Mapping[int, Hashable] = field(factory=dict)
    functions: FixedFunctions = field(factory=dict)


def shared_calls(lir: Lir, lying: Mapping[int, Layout], kernels: KernelTable, isa: Isa) -> SharedCalls:
    """Return the calls of the functions that other sizes call too; a plan without a template has no such functions."""
    if lir.origin is None:
        return SharedCalls()
    sized = runtime.sizing.sized_steps(lir, lying, kernels, isa)
    calls: dict[int, StepCall] = {number: (each.emitted, each.code, each.words) for number, each in sized.items()}
    others = {number: layout for number, layout in lying.items() if number not in sized}
    functions, fixed = runtime.sizing.fixed_steps(lir, others, isa)
    calls |= {number: (*functions[key], ()) for number, key in fixed.items() if key in functions}
    return SharedCalls(calls, frozenset((*sized, *fixed)), fixed, functions)


def laid_out(
    lir: Lir, native: Mapping[int, StepCall], settings: Settings, for_all: frozenset[int] = frozenset()
) -> CompiledSteps:
    """The native half of a program, from what each native step calls: a place in the table for every address that it reads.

    Args:
        for_all: See `CompiledSteps`.
    """
    steps: dict[int, NativeStep] = {}
    words = 0
    for number, (each, code, call_sizes) in sorted(native.items()):
        step = lir.steps[number]
        assert not each.held, "only steps inside loops have operands that are held"
        positions = BufferPositions.of_step(step, each, words + len(call_sizes))
        words = positions.end
        steps[number] = NativeStep(
            step, each, code, positions.first, positions.workspace, tuple(positions.packs),
            positions.status, positions.arena, call_sizes,
        )  # fmt: skip
    codes = tuple(dict.fromkeys(code for _, code, _ in native.values() if code is not None))
    return CompiledSteps(codes, steps, words, settings, for_all=for_all)
